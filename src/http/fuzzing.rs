//! Paths, and the headers that limits are told in, as bytes of any kind (see [`crate::fuzzing`]).

use percent_encoding::percent_decode_str;
use sfv::Parser;

use super::Shape;
use super::limit_headers::{Meters, Refused};
use super::path::{Path, Prefix};
use crate::limits::{
    Cause, Millis, PolicyKind, PolicyName, PolicyView, Refusal, Span, Unit, Violation,
};

/// Paths: a prefix and a path below it, apart by a line feed, or a path alone. The one spelling is its own
/// spelling, decoding it uncovers no way out, and no spelling of a path dodges its prefix.
pub fn path(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (prefix, raw) = text.split_once('\n').unwrap_or(("", &text));
    let Ok(path) = Path::normalise(raw) else {
        return;
    };
    let spelt = path.as_str();
    assert!(
        Path::normalise(spelt) == Ok(path.clone()),
        "{spelt} is spelt otherwise"
    );
    assert!(spelt.starts_with('/') && !spelt.contains("//") && spelt.is_ascii());
    assert!(!spelt.contains(['?', '#', '\\', ';', ' ']) || raw.contains(['?', '#']));
    let meant = percent_decode_str(spelt).decode_utf8();
    assert!(meant.is_ok(), "{spelt} is no text");
    let meant = meant.unwrap_or_default();
    assert!(
        meant.matches('/').count() == spelt.matches('/').count(),
        "{spelt} hides a slash"
    );
    assert!(
        !meant
            .split('/')
            .any(|segment| segment == "." || segment == ".."),
        "{spelt} escapes"
    );
    assert!(!meant.contains(['\\', ';']) && !meant.chars().any(|c| c.is_ascii_control()));
    let Ok(prefix) = Prefix::parse(prefix) else {
        return;
    };
    assert!(
        Path::normalise(prefix.as_str()).is_ok_and(|path| !path.is_reserved())
            || prefix.as_str().is_empty()
    );
    let below = prefix.rest_of(&path);
    assert!(below.is_none_or(|rest| format!("{}{rest}", prefix.as_str()) == spelt));
    assert!(below.is_none() || prefix.covers_in_any_case(&path));
    let means_below = meant.strip_prefix(prefix.as_str());
    let means_below = means_below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    assert!(
        means_below == below.is_some(),
        "{spelt} dodges {}",
        prefix.as_str()
    );
}

/// Meters made of bytes: all that is said of them can be read by who reads structured fields, fits into a
/// header line and agrees with itself.
pub fn limit_headers(bytes: &[u8]) {
    let mut source = Source(bytes);
    let now = source.instant();
    let policies: Vec<_> = (0..source.below(6)).map(|_| source.policy(now)).collect();
    let user = format!("u{}", source.number());
    let violations: Vec<_> = policies
        .iter()
        .take(usize::try_from(source.below(3)).unwrap_or_default())
        .map(|policy| Violation {
            policy: policy.name.clone(),
            cause: [Cause::Spent, Cause::Held, Cause::Nothing]
                .get(usize::try_from(source.below(3)).unwrap_or_default())
                .copied()
                .unwrap_or(Cause::Spent),
            limit: policy.limit,
            remaining: policy.remaining,
            wait: Span(source.number()),
            resets_at: policy.resets_at,
        })
        .collect();
    let meters = Meters {
        now,
        user,
        policies,
    };
    for shape in [None, Some(Shape::OpenAi), Some(Shape::Anthropic)] {
        readable(&meters.headers(shape));
        if let Some(refused) = Refused::new(
            meters.clone(),
            Refusal {
                violations: violations.clone(),
            },
        ) {
            readable(&refused.headers(shape));
            assert!(refused.retry_after() >= 1);
            assert!(!refused.message().is_empty());
            assert!(!refused.is_quota() || refused.never_retry());
        }
    }
}

fn readable(headers: &[(&'static str, String)]) {
    for (name, value) in headers {
        assert!(
            value.bytes().all(|b| (32..127).contains(&b)),
            "{name}: {value}"
        );
        let structured = matches!(*name, "ratelimit" | "ratelimit-policy");
        assert!(
            !structured || Parser::new(value).parse::<sfv::List>().is_ok(),
            "{name}: {value}"
        );
        let counted = ["-limit", "-remaining"]
            .iter()
            .any(|end| name.ends_with(end));
        assert!(!counted || value.parse::<u64>().is_ok(), "{name}: {value}");
    }
    let mut names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert!(names.len() == all, "a header is there twice");
}

/// Numbers out of bytes; 0 once they are used up.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound
    }

    /// Of any size: a byte says how many bits are wanted.
    fn number(&mut self) -> u64 {
        let bits = u32::from(self.byte()) % 65;
        let bytes = [(); 8].map(|()| self.byte());
        u64::from_le_bytes(bytes)
            .checked_shr(64 - bits)
            .unwrap_or(0)
    }

    fn instant(&mut self) -> Millis {
        Millis(self.number())
    }

    fn policy(&mut self, now: Millis) -> PolicyView {
        let name = match self.below(7) {
            0 => PolicyName::Daily,
            1 => PolicyName::MonthlyTokens,
            2 => PolicyName::Rate,
            3 => PolicyName::Window,
            4 => PolicyName::TokensPerMinute,
            5 => PolicyName::Concurrency,
            _ => {
                let length = usize::from(self.byte() % 16);
                let (text, rest) = self.0.split_at_checked(length).unwrap_or((self.0, &[]));
                self.0 = rest;
                PolicyName::Endpoint(String::from_utf8_lossy(text).into_owned())
            }
        };
        let kinds = [PolicyKind::Fixed, PolicyKind::Bucket, PolicyKind::Sliding];
        let kind = usize::try_from(self.below(4)).unwrap_or_default();
        let units = [Unit::Requests, Unit::Tokens];
        let unit = usize::try_from(self.below(3)).unwrap_or_default();
        PolicyView {
            name,
            kind: kinds.get(kind).copied().unwrap_or(PolicyKind::Concurrency),
            unit: units.get(unit).copied().unwrap_or(Unit::ConcurrentRequests),
            limit: self.number(),
            used: self.number(),
            reserved: self.number(),
            remaining: self.number(),
            window: (self.below(2) == 1).then(|| Span(self.number())),
            resets_at: now.plus(Span(self.number())),
        }
    }
}
