use std::cell::RefCell;
use std::rc::Rc;

use worker::Url;

use super::keys::{KeyError, KeySet};
use super::token::Token;
use crate::budget;
use crate::http::{ApiError, fetch};
use crate::limits::{Millis, Span};

/// Keys older than this are fetched again, so that a withdrawn one is not believed for long.
const MAX_AGE: Span = Span::minutes(10);
/// Least time between two fetches, once there are keys.
const PAUSE: Span = Span::seconds(30);
/// How long a fetch that failed speaks for all calls while there are no keys at all.
const COLD_PAUSE: Span = Span::seconds(1);

/// The keys the issuer publishes, as far as this isolate knows them. Values only: every call does its own
/// fetching, since no future may be shared between requests.
#[derive(Default)]
struct Published {
    keys: Option<Rc<KeySet>>,
    fetched_at: Millis,
    tried_at: Millis,
    failed_at: Option<Millis>,
}

thread_local! {
    static PUBLISHED: RefCell<Published> = RefCell::default();
}

/// Checks a token's signature by the keys at `url`. Keys that are missing, old, or do not have the one the
/// token names are fetched first; if that fails, the old ones still count, and 503 stands for "could not
/// tell".
pub async fn verify(token: &Token<'_>, url: &Url, now: Millis) -> Result<(), ApiError> {
    if PUBLISHED.with_borrow(|published| published.is_due(now)) {
        refresh(url, now).await;
    }
    let error = match check(token)? {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    if newer_keys_may_help(error, token) {
        look_again(token, url, now, error).await
    } else {
        Err(error.into())
    }
}

async fn look_again(
    token: &Token<'_>,
    url: &Url,
    now: Millis,
    error: KeyError,
) -> Result<(), ApiError> {
    let retry = PUBLISHED.with_borrow(|published| published.may_retry(now));
    if retry {
        refresh(url, now).await;
    }
    if PUBLISHED.with_borrow(Published::is_in_doubt) {
        return Err(UNREACHABLE);
    }
    let result = if retry { check(token)? } else { Err(error) };
    result.map_err(KeyError::into)
}

const UNREACHABLE: ApiError = ApiError::Unavailable("identity provider");

fn check(token: &Token<'_>) -> Result<Result<(), KeyError>, ApiError> {
    let keys = PUBLISHED.with_borrow(|published| published.keys.clone());
    Ok(keys.ok_or(UNREACHABLE)?.verify(token))
}

/// A token that names no key may be signed by one that is new.
fn newer_keys_may_help(error: KeyError, token: &Token<'_>) -> bool {
    match error {
        KeyError::UnknownKey => true,
        KeyError::Signature => token.kid.is_none(),
        KeyError::Algorithm => false,
    }
}

async fn refresh(url: &Url, now: Millis) {
    PUBLISHED.with_borrow_mut(|published| published.begin(now));
    let keys = published_at(url).await;
    PUBLISHED.with_borrow_mut(|published| published.end(now, keys));
}

/// `None`: slow, out of reach, too large, or no keys at all.
async fn published_at(url: &Url) -> Option<KeySet> {
    let json = fetch::json(url.as_str(), &[], budget::JWKS).await;
    let keys = json.and_then(|json| KeySet::of_json(&json).ok_or("no usable keys"));
    keys.inspect_err(|why| {
        worker::console_warn!("{{\"event\":\"jwks_fetch_failed\",\"why\":\"{why}\"}}");
    })
    .ok()
}

impl Published {
    /// Whether a call has to fetch before it looks at the keys.
    fn is_due(&self, now: Millis) -> bool {
        match self.keys {
            None => self.failed_at.is_none_or(|at| now.since(at) >= COLD_PAUSE),
            Some(_) => now.since(self.fetched_at) >= MAX_AGE && self.may_retry(now),
        }
    }

    /// Whether it is long enough ago that keys were fetched.
    fn may_retry(&self, now: Millis) -> bool {
        now.since(self.tried_at) >= PAUSE
    }

    /// Whether the last try has brought no keys, or none yet.
    fn is_in_doubt(&self) -> bool {
        self.fetched_at < self.tried_at
    }

    fn begin(&mut self, now: Millis) {
        self.tried_at = self.tried_at.max(now);
    }

    /// Books what a try begun at `began` has brought; keys that are newer stay.
    fn end(&mut self, began: Millis, keys: Option<KeySet>) {
        match keys {
            None => self.failed_at = Some(began),
            Some(_) if self.keys.is_some() && began < self.fetched_at => {}
            Some(keys) => {
                self.keys = Some(Rc::new(keys));
                self.fetched_at = began;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::public_keys;
    use super::*;

    const START: Millis = Millis(1_800_000_000_000);

    fn after(seconds: u64) -> Millis {
        START.plus(Span::seconds(seconds))
    }

    fn tried(published: &mut Published, at: Millis, keys: Option<KeySet>) {
        published.begin(at);
        published.end(at, keys);
    }

    #[test]
    fn without_keys_every_call_fetches_but_a_failure_speaks_for_a_second() {
        let mut published = Published::default();
        assert!(published.is_due(START));
        published.begin(START);
        assert!(published.is_due(START));
        published.end(START, None);
        assert!(!published.is_due(Millis(START.0 + 999)));
        assert!(published.is_due(after(1)));
        assert!(published.keys.is_none());
    }

    #[test]
    fn an_unknown_key_is_looked_for_once_in_thirty_seconds() {
        let mut published = Published::default();
        tried(&mut published, START, Some(public_keys()));
        assert!(!published.may_retry(Millis(after(30).0 - 1)) && !published.is_in_doubt());
        assert!(published.may_retry(after(30)));
        published.begin(after(30));
        assert!(!published.may_retry(after(30)) && published.is_in_doubt());
        published.end(after(30), Some(public_keys()));
        assert!(!published.is_in_doubt());
    }

    #[test]
    fn old_keys_are_due_and_outlive_a_failure() {
        let mut published = Published::default();
        tried(&mut published, START, Some(public_keys()));
        assert!(!published.is_due(after(599)));
        assert!(published.is_due(after(600)));
        tried(&mut published, after(600), None);
        assert!(published.keys.is_some() && !published.is_due(after(629)));
        assert!(published.is_due(after(630)));
    }

    #[test]
    fn a_late_answer_does_not_replace_newer_keys() {
        let mut published = Published::default();
        published.begin(START);
        tried(&mut published, after(5), Some(public_keys()));
        published.end(START, Some(public_keys()));
        assert_eq!(published.fetched_at, after(5));
    }
}
