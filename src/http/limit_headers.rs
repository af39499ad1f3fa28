//! What an answer says of limits: the `RateLimit` fields (draft-ietf-httpapi-ratelimit-headers-11),
//! `X-RateLimit-*`, `Retry-After`, and the families that OpenAI's and Anthropic's SDKs know.
//!
//! Every number of one refusal comes from one wait, rounded up, so that they agree.

use std::hash::{DefaultHasher, Hash, Hasher};

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value, json};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};

use super::error::Shape;
use crate::limits::{
    Cause, Millis, PolicyKind, PolicyName, PolicyView, Refusal, Span, Unit, Violation,
};

/// Most seconds by which the end of a long period is announced late, so that the users of a plan
/// don't all return in one second.
const MAX_JITTER_SECONDS: u64 = 30;
/// From this wait on, no SDK should sleep inside its caller's request.
const LONG_WAIT_SECONDS: u64 = 60;
/// In milliseconds.
const SECOND: u64 = 1_000;
/// Largest integer of a structured field (RFC 9651, 15 digits).
const MAX_SF_INTEGER: u64 = 999_999_999_999_999;

/// How a user stands at one moment, ready to be written into headers.
#[derive(Clone, Debug, PartialEq)]
pub struct Meters {
    /// The moment.
    pub now: Millis,
    /// The user, whose jitter is their own.
    pub user: String,
    /// Every limited policy.
    pub policies: Vec<PolicyView>,
}

/// A refusal with everything its answer says.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    meters: Meters,
    violations: Vec<Violation>,
}

impl Meters {
    /// The headers of an answer that was not refused.
    pub fn headers(&self, shape: Option<Shape>) -> Vec<(&'static str, String)> {
        let listed: Vec<_> = self.policies.iter().map(|p| self.entry(p)).collect();
        let tightest = self.policies.iter().min_by(|a, b| by_share(a, b));
        self.write(&listed, tightest, shape)
    }

    fn write(
        &self,
        listed: &[Entry<'_>],
        tightest: Option<&PolicyView>,
        shape: Option<Shape>,
    ) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        headers.extend(policy_field(listed).map(|v| ("ratelimit-policy", v)));
        headers.extend(state_field(listed).map(|v| ("ratelimit", v)));
        if let Some(policy) = tightest {
            headers.push(("x-ratelimit-limit", policy.limit.to_string()));
            headers.push(("x-ratelimit-remaining", policy.remaining.to_string()));
            let reset = policy.resets_at.max(self.now.plus(Span(1)));
            headers.push(("x-ratelimit-reset", reset.unix_seconds_ceil().to_string()));
        }
        match shape {
            Some(Shape::OpenAi) => headers.extend(self.openai()),
            Some(Shape::Anthropic) => headers.extend(self.anthropic()),
            None => {}
        }
        headers
    }

    fn entry<'a>(&self, policy: &'a PolicyView) -> Entry<'a> {
        Entry {
            policy,
            remaining: policy.remaining,
            seconds: self.seconds_to_reset(policy),
        }
    }

    fn seconds_to_reset(&self, policy: &PolicyView) -> u64 {
        let seconds = policy.resets_at.since(self.now).seconds_ceil().max(1);
        seconds.saturating_add(self.jitter(&policy.name, policy.kind, policy.resets_at))
    }

    /// Positive, and the same for one user in one period.
    fn jitter(&self, policy: &PolicyName, kind: PolicyKind, resets_at: Millis) -> u64 {
        if kind != PolicyKind::Fixed {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (&self.user, policy, resets_at).hash(&mut hasher);
        hasher.finish() % (MAX_JITTER_SECONDS + 1)
    }

    fn openai(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(policy) = self.shortest(Unit::Requests) {
            let reset = self.go_wait(policy);
            headers.push(("x-ratelimit-limit-requests", policy.limit.to_string()));
            headers.push((
                "x-ratelimit-remaining-requests",
                policy.remaining.to_string(),
            ));
            headers.push(("x-ratelimit-reset-requests", reset));
        }
        if let Some(policy) = self.shortest(Unit::Tokens) {
            let reset = self.go_wait(policy);
            headers.push(("x-ratelimit-limit-tokens", policy.limit.to_string()));
            headers.push(("x-ratelimit-remaining-tokens", policy.remaining.to_string()));
            headers.push(("x-ratelimit-reset-tokens", reset));
        }
        headers
    }

    /// To the second from a second on, so that an answer needs no other words every millisecond.
    fn go_wait(&self, policy: &PolicyView) -> String {
        let wait = policy.resets_at.since(self.now);
        go_duration(match wait.0 {
            0..=SECOND => wait,
            _ => Span::seconds(wait.seconds_ceil()),
        })
    }

    fn anthropic(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(policy) = self.shortest(Unit::Requests) {
            let reset = rfc3339(policy.resets_at);
            headers.push((
                "anthropic-ratelimit-requests-limit",
                policy.limit.to_string(),
            ));
            headers.push((
                "anthropic-ratelimit-requests-remaining",
                policy.remaining.to_string(),
            ));
            headers.push(("anthropic-ratelimit-requests-reset", reset));
        }
        if let Some(policy) = self.shortest(Unit::Tokens) {
            let reset = rfc3339(policy.resets_at);
            headers.push(("anthropic-ratelimit-tokens-limit", policy.limit.to_string()));
            headers.push((
                "anthropic-ratelimit-tokens-remaining",
                policy.remaining.to_string(),
            ));
            headers.push(("anthropic-ratelimit-tokens-reset", reset));
        }
        headers
    }

    /// The policy an SDK's own throttle can follow: the one with the shortest window.
    fn shortest(&self, unit: Unit) -> Option<&PolicyView> {
        self.policies
            .iter()
            .filter(|p| p.unit == unit && !matches!(p.name, PolicyName::Endpoint(_)))
            .min_by_key(|p| p.window)
    }
}

impl Refused {
    /// A refusal at the moment of `meters`; `None` if it names no policy.
    pub fn new(meters: Meters, refusal: Refusal) -> Option<Self> {
        (!refusal.violations.is_empty()).then_some(Self {
            meters,
            violations: refusal.violations,
        })
    }

    /// The headers of the refusal: `RateLimit` lists only the policies that refuse, so that its `t`
    /// and `Retry-After` agree.
    pub fn headers(&self, shape: Option<Shape>) -> Vec<(&'static str, String)> {
        let listed: Vec<_> = self
            .violations
            .iter()
            .filter_map(|v| self.entry(v))
            .collect();
        let decisive = self.decisive().map(|v| &v.policy);
        let tightest = self
            .meters
            .policies
            .iter()
            .find(|p| Some(&p.name) == decisive);
        let mut headers = self.meters.write(&listed, tightest, shape);
        if !self.never_retry() {
            let exact = self.decisive().map_or(0, |v| v.wait.0);
            headers.push(("retry-after-ms", exact.max(1).to_string()));
        }
        headers
    }

    /// Whole seconds after which exactly this call passes; at least 1.
    pub fn retry_after(&self) -> u64 {
        let waits = self.violations.iter().map(|v| self.seconds(v));
        waits.max().unwrap_or(1)
    }

    /// Whether an SDK should give up at once instead of sleeping or hammering.
    pub fn never_retry(&self) -> bool {
        self.is_quota() || self.retry_after() >= LONG_WAIT_SECONDS
    }

    /// How long its answer is the same to the word. `None`: some of it changes with every millisecond.
    pub fn unchanged_for(&self) -> Option<Span> {
        if !self.never_retry() {
            return None;
        }
        let waits = self.violations.iter().map(|v| v.wait);
        let resets = self.meters.policies.iter();
        let resets = resets.map(|policy| policy.resets_at.since(self.meters.now));
        let ahead = waits.chain(resets).filter(|left| *left > Span::ZERO);
        let until_the_next_second =
            ahead.map(|left| (left.0 > SECOND).then(|| Span((left.0 - 1) % SECOND + 1)));
        let changes = until_the_next_second.collect::<Option<Vec<_>>>()?;
        changes.into_iter().min()
    }

    /// Machine-readable reason.
    pub fn code(&self) -> &'static str {
        match self.decisive().map(|v| (&v.policy, v.cause)) {
            Some((policy, Cause::Held)) if policy.is_quota() => "tokens_reserved",
            Some((policy, _)) if policy.is_quota() => "insufficient_quota",
            _ => "rate_limit_exceeded",
        }
    }

    /// The error's `type`.
    pub fn kind(&self) -> &'static str {
        if self.is_quota() {
            return "insufficient_quota";
        }
        match self.decisive().map(|v| &v.policy) {
            Some(PolicyName::Concurrency) => "concurrent_requests",
            Some(PolicyName::TokensPerMinute | PolicyName::MonthlyTokens) => "tokens",
            _ => "requests",
        }
    }

    /// When the decisive policy lets this call pass.
    pub fn reset_at(&self) -> String {
        rfc3339(self.decisive().map_or(self.meters.now, |v| v.resets_at))
    }

    /// The decisive policy's members of the error body.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        if let Some(violation) = self.decisive() {
            details.insert("policy".into(), json!(violation.policy));
            details.insert("limit".into(), json!(violation.limit));
            details.insert("remaining".into(), json!(violation.remaining));
            details.insert("reset_at".into(), json!(rfc3339(violation.resets_at)));
        }
        details
    }

    /// The names of all policies that refuse.
    pub fn policies(&self) -> impl Iterator<Item = &PolicyName> {
        self.violations.iter().map(|v| &v.policy)
    }

    /// The policy with the longest wait.
    pub fn decisive(&self) -> Option<&Violation> {
        self.violations.first()
    }

    /// Whether a day's or month's quota is used up, which no short wait mends.
    pub fn is_quota(&self) -> bool {
        self.decisive()
            .is_some_and(|v| v.policy.is_quota() && v.cause != Cause::Held)
    }

    /// For people. Agents read it too: some stop for good at words like "quota", others wait for
    /// "try again in Ns" (seconds only).
    pub fn message(&self) -> String {
        let Some(violation) = self.decisive() else {
            return "Rate limit reached.".to_owned();
        };
        let policy = &violation.policy;
        let limit = violation.limit;
        if self.is_quota() {
            let reset = rfc3339(violation.resets_at);
            return format!(
                "You exceeded your current quota: the policy `{policy}` allows {limit}. \
                 It will reset at {reset}."
            );
        }
        let wait = self.retry_after();
        match violation.cause {
            Cause::Held => format!(
                "Calls under way hold what is left of `{policy}` ({limit}). \
                 Please try again in {wait}s."
            ),
            Cause::Spent | Cause::Nothing => format!(
                "Rate limit reached: the policy `{policy}` allows {limit}. \
                 Please try again in {wait}s."
            ),
        }
    }

    fn entry(&self, violation: &Violation) -> Option<Entry<'_>> {
        let policies = &self.meters.policies;
        let policy = policies.iter().find(|p| p.name == violation.policy)?;
        Some(Entry {
            policy,
            remaining: violation.remaining.min(policy.remaining),
            seconds: self.seconds(violation),
        })
    }

    fn seconds(&self, violation: &Violation) -> u64 {
        let jitter = match violation.cause {
            Cause::Held => 0,
            Cause::Spent | Cause::Nothing => {
                let kind = if violation.policy.is_quota() {
                    PolicyKind::Fixed
                } else {
                    PolicyKind::Sliding
                };
                self.meters
                    .jitter(&violation.policy, kind, violation.resets_at)
            }
        };
        violation.wait.seconds_ceil().max(1).saturating_add(jitter)
    }
}

/// One policy as the two `RateLimit` fields list it.
struct Entry<'a> {
    policy: &'a PolicyView,
    remaining: u64,
    seconds: u64,
}

fn policy_field(entries: &[Entry<'_>]) -> Option<String> {
    let mut list = ListSerializer::new();
    for entry in entries {
        let Ok(name) = entry.policy.name.to_string().try_into() else {
            continue;
        };
        let name: sfv::String = name;
        let mut item = list
            .bare_item(&name)
            .parameter(KeyRef::constant("q"), integer(entry.policy.limit));
        if let Some(unit) = unit_name(entry.policy.unit) {
            item = item.parameter(KeyRef::constant("qu"), unit);
        }
        if let Some(window) = entry.policy.window {
            item = item.parameter(KeyRef::constant("w"), integer(window.seconds_ceil().max(1)));
        }
        // Gives the list back, for chaining.
        let _ = item.finish();
    }
    list.finish()
}

fn state_field(entries: &[Entry<'_>]) -> Option<String> {
    let mut list = ListSerializer::new();
    for entry in entries {
        let Ok(name) = entry.policy.name.to_string().try_into() else {
            continue;
        };
        let name: sfv::String = name;
        let _ = list
            .bare_item(&name)
            .parameter(KeyRef::constant("r"), integer(entry.remaining))
            .parameter(KeyRef::constant("t"), integer(entry.seconds))
            .finish();
    }
    list.finish()
}

/// `requests` is the default of the draft and left out.
fn unit_name(unit: Unit) -> Option<&'static StringRef> {
    match unit {
        Unit::Requests => None,
        Unit::Tokens => Some(StringRef::constant("tokens")),
        Unit::ConcurrentRequests => Some(StringRef::constant("concurrent-requests")),
    }
}

fn integer(value: u64) -> Integer {
    Integer::try_from(value.min(MAX_SF_INTEGER)).unwrap_or(Integer::ZERO)
}

/// Least remaining share first, compared without division.
fn by_share(a: &PolicyView, b: &PolicyView) -> std::cmp::Ordering {
    let left = u128::from(a.remaining) * u128::from(b.limit);
    let right = u128::from(b.remaining) * u128::from(a.limit);
    left.cmp(&right)
}

/// A duration as Go prints it, which is what OpenAI's headers hold.
pub fn go_duration(span: Span) -> String {
    if span.0 == 0 {
        return "0s".to_owned();
    }
    if span.0 < 1_000 {
        return format!("{}ms", span.0);
    }
    let (seconds, millis) = (span.0 / 1_000, span.0 % 1_000);
    let fraction = match millis {
        0 => String::new(),
        _ => format!(".{millis:03}").trim_end_matches('0').to_owned(),
    };
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}{fraction}s"),
        (0, _) => format!("{minutes}m{rest}{fraction}s"),
        _ => format!("{hours}h{minutes}m{rest}{fraction}s"),
    }
}

/// An instant as RFC 3339 in UTC, milliseconds only where there are some.
pub fn rfc3339(at: Millis) -> String {
    i64::try_from(at.0)
        .ok()
        .and_then(DateTime::from_timestamp_millis)
        .map_or_else(String::new, |t| {
            t.to_rfc3339_opts(SecondsFormat::AutoSi, true)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(
        name: PolicyName,
        limit: u64,
        remaining: u64,
        window: u64,
        resets_in: u64,
    ) -> PolicyView {
        let kind = if name.is_quota() {
            PolicyKind::Fixed
        } else {
            PolicyKind::Bucket
        };
        let unit = match name {
            PolicyName::MonthlyTokens | PolicyName::TokensPerMinute => Unit::Tokens,
            _ => Unit::Requests,
        };
        PolicyView {
            name,
            kind,
            unit,
            limit,
            used: limit - remaining,
            reserved: 0,
            remaining,
            window: Some(Span::seconds(window)),
            resets_at: Millis(1_000_000 + resets_in * 1_000),
        }
    }

    fn meters() -> Meters {
        Meters {
            now: Millis(1_000_000),
            user: "u".to_owned(),
            policies: vec![
                view(PolicyName::Daily, 10, 7, 86_400, 41_230),
                view(PolicyName::Rate, 10, 9, 60, 6),
                view(PolicyName::MonthlyTokens, 1_000, 990, 2_592_000, 100_000),
            ],
        }
    }

    fn find(headers: &[(&'static str, String)], name: &str) -> Option<String> {
        headers
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.clone())
    }

    fn refused(policy: PolicyName, wait: Span) -> Refused {
        let resets_at = Millis(1_000_000 + wait.0);
        let violation = Violation {
            policy,
            cause: Cause::Spent,
            limit: 10,
            remaining: 0,
            wait,
            resets_at,
        };
        Refused::new(
            meters(),
            Refusal {
                violations: vec![violation],
            },
        )
        .unwrap()
    }

    #[test]
    fn both_fields_parse_strictly_and_name_token_units() {
        let headers = meters().headers(None);
        let policy = find(&headers, "ratelimit-policy").unwrap();
        assert_eq!(
            policy,
            r#""daily";q=10;w=86400, "rate";q=10;w=60, "monthly-tokens";q=1000;qu="tokens";w=2592000"#
        );
        for field in [policy, find(&headers, "ratelimit").unwrap()] {
            let parsed: sfv::List = sfv::Parser::new(&field).parse().unwrap();
            assert_eq!(parsed.len(), 3);
        }
    }

    #[test]
    fn the_tightest_policy_is_the_one_with_the_least_share() {
        let headers = meters().headers(None);
        assert_eq!(find(&headers, "x-ratelimit-limit").unwrap(), "10");
        assert_eq!(find(&headers, "x-ratelimit-remaining").unwrap(), "7");
        assert_eq!(find(&headers, "x-ratelimit-reset").unwrap(), "42230");
    }

    #[test]
    fn a_refusal_lists_only_who_refuses_and_agrees_with_itself() {
        let refused = refused(PolicyName::Rate, Span(5_001));
        let headers = refused.headers(Some(Shape::OpenAi));
        assert_eq!(refused.retry_after(), 6);
        assert_eq!(find(&headers, "ratelimit").unwrap(), r#""rate";r=0;t=6"#);
        assert_eq!(find(&headers, "retry-after-ms").unwrap(), "5001");
        assert!(!refused.never_retry());
        assert!(refused.message().contains("try again in 6s"));
    }

    #[test]
    fn a_quota_is_announced_late_but_never_early_and_always_alike() {
        let refused = refused(PolicyName::Daily, Span::seconds(3_600));
        let wait = refused.retry_after();
        assert!((3_600..=3_630).contains(&wait));
        assert_eq!(wait, refused.retry_after());
        assert!(refused.never_retry());
        assert_eq!(refused.code(), "insufficient_quota");
        assert_eq!(refused.reset_at(), "1970-01-01T01:16:40Z");
    }

    #[test]
    fn what_only_others_hold_is_no_reason_to_give_up() {
        for policy in [PolicyName::Daily, PolicyName::MonthlyTokens] {
            let mut held = refused(policy, Span::seconds(3));
            held.violations[0].cause = Cause::Held;
            assert_eq!((held.code(), held.retry_after()), ("tokens_reserved", 3));
            assert!(!held.never_retry());
            assert_ne!(held.kind(), "insufficient_quota");
        }
    }

    #[test]
    fn an_answer_is_the_same_until_one_of_its_numbers_changes() {
        let waits = |ms| refused(PolicyName::Daily, Span(ms));
        let headers_at = |refused: &Refused, after: u64| {
            let mut later = refused.clone();
            later.meters.now = refused.meters.now.plus(Span(after));
            for violation in &mut later.violations {
                violation.wait = Span(violation.wait.0 - after);
            }
            later.headers(Some(Shape::OpenAi))
        };
        for ms in [120_001, 120_250, 121_000] {
            let refused = waits(ms);
            let same = refused.unchanged_for().unwrap();
            let now = headers_at(&refused, 0);
            assert_eq!(headers_at(&refused, same.0 - 1), now, "{ms}");
            assert_ne!(headers_at(&refused, same.0), now, "{ms}");
        }
        assert_eq!(waits(5_500).unchanged_for(), Some(Span(500)));
        let mut by_the_millisecond = waits(120_000);
        by_the_millisecond.meters.policies[1].resets_at = Millis(1_000_250);
        assert_eq!(by_the_millisecond.unchanged_for(), None);
        let short = refused(PolicyName::Rate, Span(5_500));
        assert_eq!(short.unchanged_for(), None);
    }

    #[test]
    fn go_durations() {
        let cases = [
            (0, "0s"),
            (250, "250ms"),
            (1_000, "1s"),
            (17_252, "17.252s"),
            (360_000, "6m0s"),
            (86_400_000, "24h0m0s"),
        ];
        for (ms, text) in cases {
            assert_eq!(go_duration(Span(ms)), text);
        }
    }
}
