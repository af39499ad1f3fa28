//! How an account is stored: one packed row that every call writes, and pages that seldom change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::quota::Quota;
use super::window::WindowLog;
use super::{Account, PolicyName};

/// The version of the packed row, its first byte.
const VERSION: u8 = 1;
/// The same, with what came later behind it; written only where there is any, so that an account that
/// never had any can be read by every version.
const WITH_MORE: u8 = 2;

/// Names one page of one window; as text, `window/7` or `endpoint:export/7`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PageKey {
    /// Whose window it is of.
    pub policy: PolicyName,
    /// Its number there.
    pub number: u64,
}

/// A page as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredPage {
    /// Its name.
    pub key: PageKey,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Pages to store and to delete, together with the packed row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New or changed.
    pub pages_written: Vec<StoredPage>,
    /// Not needed any more. Some may never have been stored.
    pub pages_dropped: Vec<PageKey>,
}

/// Why stored bytes are no account.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DecodeError {
    /// A later version has written them, or there are none.
    #[error("unknown version of the stored account")]
    Version,
    /// They are damaged.
    #[error("the stored account is damaged")]
    Damaged,
    /// A page is missing or damaged.
    #[error("page {0} of the stored account is missing or damaged")]
    Page(PageKey),
}

/// Why a text is no name of a page.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not the name of a page")]
pub struct NoPageKey;

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.policy, self.number)
    }
}

impl FromStr for PageKey {
    type Err = NoPageKey;

    fn from_str(text: &str) -> Result<Self, NoPageKey> {
        let (policy, number) = text.rsplit_once('/').ok_or(NoPageKey)?;
        let number = number.parse().map_err(|_| NoPageKey)?;
        let policy = PolicyName::from(policy.to_owned());
        Ok(Self { policy, number })
    }
}

/// Of `daily`, `monthly-tokens` and the cheaper lane.
type Beyond = (Option<Quota>, Option<Quota>, Option<Quota>);

impl Account {
    /// The packed row. It is whole only with the pages that [`Account::take_changes`] tells to store.
    pub fn encode(&self) -> Vec<u8> {
        let later = self.days.later();
        let packed = if self.noted.is_empty() && self.leases.is_empty() && later.is_empty() {
            self.pack(VERSION)
        } else {
            let more = (&self.noted, &self.leases, later);
            self.pack(WITH_MORE)
                .and_then(|bytes| postcard::to_extend(&more, bytes))
        };
        packed.unwrap_or_default()
    }

    /// All that is not skipped, in the order of the fields, which is that of its parts packed one by one.
    fn pack(&self, version: u8) -> postcard::Result<Vec<u8>> {
        let before = (
            &self.daily,
            &self.degraded,
            &self.monthly,
            &self.rate,
            &self.tokens_per_minute,
        );
        let behind = (
            &self.window,
            &self.endpoints,
            &self.days,
            &self.notify_at_permille,
            &self.crossings,
        );
        let bytes = postcard::to_extend(&before, vec![version])?;
        postcard::to_extend(&behind, self.reservations.pack(bytes)?)
    }

    /// An account from its packed row and all its pages. Pages it doesn't know are dropped with the next
    /// changes.
    pub fn decode(bytes: &[u8], pages: Vec<StoredPage>) -> Result<Self, DecodeError> {
        let mut account = match bytes.split_first() {
            Some((&VERSION, body)) => postcard::from_bytes(body),
            Some((&WITH_MORE, body)) => with_more(body),
            _ => return Err(DecodeError::Version),
        }
        .map_err(|_| DecodeError::Damaged)?;
        let mut stored: BTreeMap<_, _> = pages.into_iter().map(|p| (p.key, p.bytes)).collect();
        for (policy, log) in account.windows_mut() {
            restore_pages(&policy, log, &mut stored)?;
        }
        account.orphans = stored
            .into_keys()
            .map(|key| (key.policy, key.number))
            .collect();
        Ok(account)
    }

    /// What the ledger's counters don't tell and what would be lost with the account's storage: top-ups, and
    /// the calls that went to the cheaper model. Empty if there is nothing of the kind.
    pub fn beyond(&self) -> Vec<u8> {
        let degraded = (self.degraded.used() > 0).then_some(&self.degraded);
        let beyond = (self.daily.beyond(), self.monthly.beyond(), degraded);
        if let (None, None, None) = beyond {
            return Vec::new();
        }
        postcard::to_extend(&beyond, vec![VERSION]).unwrap_or_default()
    }

    /// An account that was restored from the ledger's counters takes this over, too; what can't be read is
    /// not there.
    pub fn restore_beyond(&mut self, bytes: &[u8]) {
        let Some((&VERSION, body)) = bytes.split_first() else {
            return;
        };
        let Ok((daily, monthly, degraded)) = postcard::from_bytes::<Beyond>(body) else {
            return;
        };
        if let Some(daily) = daily {
            self.daily.adopt_top_ups(daily);
        }
        if let Some(monthly) = monthly {
            self.monthly.adopt_top_ups(monthly);
        }
        if let Some(degraded) = degraded {
            self.degraded = degraded;
        }
    }

    /// What has to be stored or deleted besides the packed row, since this was last asked.
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        let mut dropped: BTreeSet<_> = std::mem::take(&mut self.orphans)
            .into_iter()
            .map(|(policy, number)| PageKey { policy, number })
            .collect();
        for (policy, log) in self.windows_mut() {
            let key = |number| PageKey {
                policy: policy.clone(),
                number,
            };
            let (written, gone) = log.take_changes();
            let written = written.into_iter().map(|(number, bytes)| StoredPage {
                key: key(number),
                bytes,
            });
            changes.pages_written.extend(written);
            dropped.extend(gone.into_iter().map(key));
        }
        // A page may have been dropped and begun anew since.
        for page in &changes.pages_written {
            dropped.remove(&page.key);
        }
        changes.pages_dropped = dropped.into_iter().collect();
        changes
    }

    fn windows_mut(&mut self) -> impl Iterator<Item = (PolicyName, &mut WindowLog)> {
        let endpoints = self.endpoints.iter_mut();
        let endpoints = endpoints.map(|(name, log)| (PolicyName::Endpoint(name.clone()), log));
        std::iter::once((PolicyName::Window, &mut self.window)).chain(endpoints)
    }
}

fn with_more(body: &[u8]) -> Result<Account, postcard::Error> {
    let (account, more) = postcard::take_from_bytes::<Account>(body)?;
    let (noted, leases, later) = postcard::from_bytes(more)?;
    let mut account = Account {
        noted,
        leases,
        ..account
    };
    account.days.restore_later(later);
    Ok(account)
}

fn restore_pages(
    policy: &PolicyName,
    log: &mut WindowLog,
    stored: &mut BTreeMap<PageKey, Vec<u8>>,
) -> Result<(), DecodeError> {
    let numbers: Vec<_> = log.page_numbers().collect();
    for number in numbers {
        let key = PageKey {
            policy: policy.clone(),
            number,
        };
        let bytes = stored.remove(&key).unwrap_or_default();
        if !log.restore_page(number, &bytes) {
            return Err(DecodeError::Page(key));
        }
    }
    Ok(())
}
