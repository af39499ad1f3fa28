use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Span, Zone};

/// Everything that limits one user: their plan, their overrides and the gateway's defaults in one.
///
/// `None` is unlimited, `0` is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Calls a day.
    pub daily: Option<u64>,
    /// Tokens a month.
    pub monthly_tokens: Option<u64>,
    /// Most completion tokens one call may ask for (`max_tokens` x `n`).
    pub max_tokens_per_request: Option<u64>,
    /// What becomes of a call that asks for more.
    pub max_tokens_mode: MaxTokensMode,
    /// Models the user may name; `None` is all of them.
    pub allowed_models: Option<Vec<ModelPattern>>,
    /// Token bucket over calls.
    pub rate: Option<BucketLimit>,
    /// Sliding window over calls.
    pub window: Option<WindowLimit>,
    /// Tokens a minute, as a bucket that holds one minute's worth.
    pub tokens_per_minute: Option<u64>,
    /// Dispatched calls under way at one time.
    pub max_concurrent: Option<u64>,
    /// Sliding windows of single endpoints.
    pub endpoints: Vec<EndpointLimit>,
    /// When days and months begin.
    pub reset: Reset,
    /// Shares of a quota, in thousandths, whose crossing is worth a notification.
    pub notify_at_permille: Vec<u32>,
    /// Would-be refusals are counted and let through.
    pub shadow: bool,
    /// The user is blocked by the operator: nothing passes.
    pub blocked: bool,
}

/// What becomes of a call that asks for more tokens than its plan allows a request.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MaxTokensMode {
    /// It is refused with a 400.
    #[default]
    Reject,
    /// It is lowered to the cap.
    Clamp,
}

/// A token bucket: bursts of `capacity`, refilled evenly.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BucketLimit {
    /// Most calls at once.
    pub capacity: u64,
    /// Calls a minute in the long run.
    pub refill_per_minute: u64,
}

/// A sliding window: at most `max_requests` in any `span`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WindowLimit {
    /// Calls in any window.
    pub max_requests: u64,
    /// Length of the window.
    pub span: Span,
}

/// The sliding window of one endpoint; its key is user + endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndpointLimit {
    /// The endpoint's name, without the `endpoint:` prefix.
    pub name: String,
    /// How much, in which time.
    pub window: WindowLimit,
}

/// An exact model name, or a prefix written with one trailing `*`.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ModelPattern(
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 256), regex(pattern = r"^[^*]*\*?$"))
    )]
    pub String,
);

impl ModelPattern {
    /// Whether `model` is this name or begins with this prefix. Case counts.
    pub fn matches(&self, model: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => model.starts_with(prefix),
            None => self.0 == model,
        }
    }
}

/// When days and months begin (design rule 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reset {
    /// How days are told apart.
    pub mode: ResetMode,
    /// Whose midnight it is.
    pub timezone: Zone,
    /// Day of the month on which token months begin, 1 to 31, clamped in short months.
    pub billing_day: u8,
}

/// How days are told apart.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// Local calendar days.
    #[default]
    Calendar,
    /// 24 hours from the first call after the last reset.
    Rolling,
}

impl Default for Reset {
    fn default() -> Self {
        Self {
            mode: ResetMode::Calendar,
            timezone: Zone::UTC,
            billing_day: 1,
        }
    }
}

/// The name of a policy, alike in headers, quota, errors, metrics and the console.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", from = "String")]
pub enum PolicyName {
    /// Calls a day.
    Daily,
    /// Calls a day of the cheaper model, once the quota is used up.
    Degraded,
    /// Tokens a month.
    MonthlyTokens,
    /// Token bucket over calls.
    Rate,
    /// Sliding window over calls.
    Window,
    /// Tokens a minute.
    TokensPerMinute,
    /// Calls under way.
    Concurrency,
    /// One endpoint's window.
    Endpoint(String),
}

impl PolicyName {
    /// Whether running out of it is worth degrading or queueing; the others pass by themselves soon.
    pub const fn is_quota(&self) -> bool {
        matches!(self, Self::Daily | Self::Degraded | Self::MonthlyTokens)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daily => f.write_str("daily"),
            Self::Degraded => f.write_str("degraded"),
            Self::MonthlyTokens => f.write_str("monthly-tokens"),
            Self::Rate => f.write_str("rate"),
            Self::Window => f.write_str("window"),
            Self::TokensPerMinute => f.write_str("tokens-per-minute"),
            Self::Concurrency => f.write_str("concurrency"),
            Self::Endpoint(name) => write!(f, "endpoint:{name}"),
        }
    }
}

impl From<PolicyName> for String {
    fn from(name: PolicyName) -> Self {
        name.to_string()
    }
}

impl From<String> for PolicyName {
    fn from(name: String) -> Self {
        match name.as_str() {
            "daily" => Self::Daily,
            "degraded" => Self::Degraded,
            "monthly-tokens" => Self::MonthlyTokens,
            "rate" => Self::Rate,
            "window" => Self::Window,
            "tokens-per-minute" => Self::TokensPerMinute,
            "concurrency" => Self::Concurrency,
            other => Self::Endpoint(other.strip_prefix("endpoint:").unwrap_or(other).to_owned()),
        }
    }
}
