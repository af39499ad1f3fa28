use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::limits::{
    BucketLimit, EndpointLimit, Limits, MaxTokensMode, ModelPattern, Reset, ResetMode, Span,
    WindowLimit, Zone,
};
use crate::settings::WindowDefault;

/// The largest count a JSON number carries exactly everywhere, 2^53 - 1.
pub const MAX_COUNT: u64 = (1 << 53) - 1;
/// Most endpoints one plan may limit.
const MAX_ENDPOINTS: usize = 32;
/// Most model patterns one plan may name.
const MAX_MODELS: usize = 200;
/// Longest window, a year.
const MAX_WINDOW_MINUTES: u64 = 527_040;

/// A plan, as the operator writes it and the ledger keeps it. `None` is unlimited, `0` is none.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its id.
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$")))]
    pub plan_id: String,
    /// Its name, for people.
    #[cfg_attr(test, schemars(length(min = 1, max = 200)))]
    pub name: String,
    /// Calls a day.
    #[serde(default, deserialize_with = "count")]
    pub daily_limit: Option<u64>,
    /// Tokens a month.
    #[serde(default, deserialize_with = "count")]
    pub monthly_token_limit: Option<u64>,
    /// Most tokens one request may ask for.
    #[serde(default, deserialize_with = "count")]
    pub max_tokens_per_request: Option<u64>,
    /// What becomes of a request that asks for more.
    #[serde(default)]
    pub max_tokens_mode: MaxTokensMode,
    /// Exact model names, or prefixes with one trailing `*`; `None` is all.
    #[serde(default)]
    #[cfg_attr(test, schemars(length(max = 200)))]
    pub allowed_models: Option<Vec<ModelPattern>>,
    /// Token bucket over calls.
    #[serde(default)]
    pub rate: Option<BucketLimit>,
    /// Sliding window over calls; absent, or the word `default`, takes the gateway's setting, `null` is
    /// unlimited.
    #[serde(default, skip_serializing_if = "WindowSetting::is_default")]
    #[cfg_attr(test, schemars(with = "Option<WindowSpec>"))]
    pub window: WindowSetting,
    /// Tokens a minute.
    #[serde(default, deserialize_with = "count")]
    pub tokens_per_minute: Option<u64>,
    /// Calls under way at one time.
    #[serde(default, deserialize_with = "count")]
    pub max_concurrent: Option<u64>,
    /// Limits of single endpoints.
    #[serde(default)]
    #[cfg_attr(test, schemars(length(max = 32)))]
    pub endpoints: Vec<EndpointSpec>,
    /// When days and months begin.
    #[serde(default)]
    pub reset: ResetSpec,
    /// What becomes of a call over quota.
    #[serde(default)]
    pub over_quota: OverQuota,
    /// Shares of a quota whose crossing is worth a notification, each in (0, 1].
    #[serde(default = "default_notify_at")]
    #[cfg_attr(test, schemars(length(max = 10), inner(range(max = 1))))]
    pub notify_at: Vec<f64>,
    /// What becomes of calls while the account store is out.
    #[serde(default)]
    pub on_outage: OnOutage,
    /// Would-be refusals are counted and let through.
    #[serde(default)]
    pub shadow: bool,
}

/// A sliding window as written in a plan.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Calls in any window.
    pub max_requests: u64,
    /// Its length.
    #[cfg_attr(test, schemars(range(min = 1, max = 527_040)))]
    pub minutes: u64,
}

/// A plan's word on the sliding window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WindowSetting {
    /// None: the gateway's setting holds.
    #[default]
    Default,
    /// No window at all.
    Unlimited,
    /// This one.
    Limit(WindowSpec),
}

impl WindowSetting {
    const fn is_default(&self) -> bool {
        matches!(self, Self::Default)
    }
}

impl Serialize for WindowSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Default | Self::Unlimited => serializer.serialize_none(),
            Self::Limit(spec) => spec.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for WindowSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WindowReader)
    }
}

/// The word by which a change or an override goes back to the gateway's setting.
pub const DEFAULT_WINDOW: &str = "default";

struct WindowReader;

impl<'de> Visitor<'de> for WindowReader {
    type Value = WindowSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, `null` or `\"default\"`")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(WindowSetting::Unlimited)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        if word == DEFAULT_WINDOW {
            return Ok(WindowSetting::Default);
        }
        Err(E::invalid_value(Unexpected::Str(word), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        WindowSpec::deserialize(MapAccessDeserializer::new(map)).map(WindowSetting::Limit)
    }
}

/// The limit of one endpoint as written in a plan.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSpec {
    /// The endpoint's name.
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$")))]
    pub name: String,
    /// Calls in any window.
    pub max_requests: u64,
    /// The window's length.
    #[cfg_attr(test, schemars(range(min = 1, max = 31_622_400)))]
    pub per_seconds: u64,
}

/// When days and months begin, as written in a plan.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResetSpec {
    /// How days are told apart.
    #[serde(default)]
    pub mode: ResetMode,
    /// IANA name of the zone whose midnight counts.
    #[serde(default = "utc")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub timezone: Zone,
    /// First day of token months, 1 to 31.
    #[serde(default = "first")]
    #[cfg_attr(test, schemars(range(min = 1, max = 31)))]
    pub billing_day: u8,
}

impl Default for ResetSpec {
    fn default() -> Self {
        Self {
            mode: ResetMode::Calendar,
            timezone: Zone::UTC,
            billing_day: 1,
        }
    }
}

/// What becomes of a call over quota (design rule 8).
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OverQuota {
    /// Which way.
    #[serde(default)]
    pub strategy: Strategy,
    /// The cheaper model of `degrade`.
    #[serde(default)]
    pub degrade_model: Option<String>,
    /// Degraded calls a day.
    #[serde(default, deserialize_with = "count")]
    pub degrade_daily_limit: Option<u64>,
    /// Jobs one user may have waiting.
    #[serde(default = "default_queue_limit", deserialize_with = "count")]
    pub queue_limit: Option<u64>,
}

impl Default for OverQuota {
    fn default() -> Self {
        Self {
            strategy: Strategy::Reject,
            degrade_model: None,
            degrade_daily_limit: None,
            queue_limit: default_queue_limit(),
        }
    }
}

/// The three ways over quota.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// 429.
    #[default]
    Reject,
    /// A cheaper model answers.
    Degrade,
    /// The call is done later.
    Queue,
}

/// What becomes of calls while the account store is out (design rule 7).
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOutage {
    /// They pass, up to a small local cap.
    #[default]
    Open,
    /// 503.
    Closed,
}

/// A plan that can't be: which field, and what is wrong with it.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{field}: {reason}")]
pub struct InvalidPlan {
    /// Path of the field, such as `rate.capacity`.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

impl InvalidPlan {
    fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}

impl Plan {
    /// Reads a plan from JSON and checks every rule; the error names the field.
    pub fn from_value(value: Value) -> Result<Self, InvalidPlan> {
        let plan: Self = serde_path_to_error::deserialize(value)
            .map_err(|e| InvalidPlan::new(e.path().to_string(), e.inner().to_string()))?;
        plan.check()?;
        Ok(plan)
    }

    /// This plan with the fields of `overrides` in place of its own.
    pub fn with_overrides(&self, overrides: &Map<String, Value>) -> Result<Self, InvalidPlan> {
        if overrides.is_empty() {
            return Ok(self.clone());
        }
        if let Some(field) = ["plan_id", "name"]
            .into_iter()
            .find(|f| overrides.contains_key(*f))
        {
            return Err(InvalidPlan::new(field, "can't be overridden"));
        }
        self.patched(overrides)
    }

    /// This plan with the members of `patch` in place of its own.
    pub fn patched(&self, patch: &Map<String, Value>) -> Result<Self, InvalidPlan> {
        let mut value =
            serde_json::to_value(self).map_err(|e| InvalidPlan::new("plan", e.to_string()))?;
        if let Some(fields) = value.as_object_mut() {
            fields.extend(patch.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        Self::from_value(value)
    }

    /// The limits in force for a user of this plan.
    pub fn limits(&self, window: Option<WindowDefault>, blocked: bool) -> Limits {
        Limits {
            daily: self.daily_limit,
            monthly_tokens: self.monthly_token_limit,
            max_tokens_per_request: self.max_tokens_per_request,
            max_tokens_mode: self.max_tokens_mode,
            allowed_models: self.allowed_models.clone(),
            rate: self.rate,
            window: self.window_limit(window),
            tokens_per_minute: self.tokens_per_minute,
            max_concurrent: self.max_concurrent,
            endpoints: self.endpoints.iter().map(EndpointSpec::limit).collect(),
            reset: Reset {
                mode: self.reset.mode,
                timezone: self.reset.timezone,
                billing_day: self.reset.billing_day,
            },
            notify_at_permille: self.notify_at_permille(),
            shadow: self.shadow,
            blocked,
        }
    }

    /// `USER_REQUEST_LIMIT_ENABLED=false` switches every window off, a plan's own included.
    fn window_limit(&self, default: Option<WindowDefault>) -> Option<WindowLimit> {
        let default = default?;
        match self.window {
            WindowSetting::Default => default.limit,
            WindowSetting::Unlimited => None,
            WindowSetting::Limit(spec) => Some(WindowLimit {
                max_requests: spec.max_requests,
                span: Span::minutes(spec.minutes),
            }),
        }
    }

    fn notify_at_permille(&self) -> Vec<u32> {
        self.notify_at
            .iter()
            .map(|share| (share * 1_000.0).round() as u32)
            .collect()
    }

    fn check(&self) -> Result<(), InvalidPlan> {
        check_name("plan_id", &self.plan_id)?;
        if self.name.trim().is_empty() || self.name.len() > 200 {
            return Err(InvalidPlan::new("name", "must be 1 to 200 bytes long"));
        }
        self.check_models()?;
        self.check_windows()?;
        if !(1..=31).contains(&self.reset.billing_day) {
            return Err(InvalidPlan::new("reset.billing_day", "must be 1 to 31"));
        }
        if self.over_quota.strategy == Strategy::Degrade && self.over_quota.degrade_model.is_none()
        {
            return Err(InvalidPlan::new(
                "over_quota.degrade_model",
                "is needed by the strategy `degrade`",
            ));
        }
        let shares_ok = self.notify_at.iter().all(|s| *s > 0.0 && *s <= 1.0);
        if !shares_ok || self.notify_at.len() > 10 {
            return Err(InvalidPlan::new(
                "notify_at",
                "takes at most 10 shares above 0 and up to 1",
            ));
        }
        Ok(())
    }

    fn check_models(&self) -> Result<(), InvalidPlan> {
        let models = self.allowed_models.as_deref().unwrap_or_default();
        if models.len() > MAX_MODELS {
            return Err(InvalidPlan::new("allowed_models", "has too many entries"));
        }
        let bad = models.iter().position(|ModelPattern(p)| {
            let stem = p.strip_suffix('*').unwrap_or(p);
            p.is_empty() || p.len() > 256 || stem.contains('*')
        });
        match bad {
            Some(i) => Err(InvalidPlan::new(
                format!("allowed_models[{i}]"),
                "must be a name, or a prefix with one trailing *",
            )),
            None => Ok(()),
        }
    }

    fn check_windows(&self) -> Result<(), InvalidPlan> {
        if let Some(rate) = self.rate {
            check_count("rate.capacity", rate.capacity)?;
            check_count("rate.refill_per_minute", rate.refill_per_minute)?;
        }
        if let WindowSetting::Limit(window) = self.window {
            check_count("window.max_requests", window.max_requests)?;
            if !(1..=MAX_WINDOW_MINUTES).contains(&window.minutes) {
                return Err(InvalidPlan::new("window.minutes", "must be 1 to 527040"));
            }
        }
        if self.endpoints.len() > MAX_ENDPOINTS {
            return Err(InvalidPlan::new("endpoints", "has too many entries"));
        }
        for (i, endpoint) in self.endpoints.iter().enumerate() {
            check_name(&format!("endpoints[{i}].name"), &endpoint.name)?;
            check_count(
                &format!("endpoints[{i}].max_requests"),
                endpoint.max_requests,
            )?;
            if !(1..=MAX_WINDOW_MINUTES * 60).contains(&endpoint.per_seconds) {
                return Err(InvalidPlan::new(
                    format!("endpoints[{i}].per_seconds"),
                    "must be 1 second to 366 days",
                ));
            }
            if self
                .endpoints
                .iter()
                .take(i)
                .any(|e| e.name == endpoint.name)
            {
                return Err(InvalidPlan::new(
                    format!("endpoints[{i}].name"),
                    "is there twice",
                ));
            }
        }
        Ok(())
    }
}

impl EndpointSpec {
    fn limit(&self) -> EndpointLimit {
        EndpointLimit {
            name: self.name.clone(),
            window: WindowLimit {
                max_requests: self.max_requests,
                span: Span::seconds(self.per_seconds),
            },
        }
    }
}

/// A name that goes into headers and metrics: 1 to 64 of `a-z A-Z 0-9 _ . -`.
pub fn check_name(field: &str, name: &str) -> Result<(), InvalidPlan> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if (1..=64).contains(&name.len()) && name.chars().all(allowed) {
        Ok(())
    } else {
        Err(InvalidPlan::new(
            field,
            "must be 1 to 64 of letters, digits, `_`, `.` and `-`",
        ))
    }
}

fn check_count(field: &str, value: u64) -> Result<(), InvalidPlan> {
    if value > MAX_COUNT {
        Err(InvalidPlan::new(field, "must be below 2^53"))
    } else {
        Ok(())
    }
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Option::<u64>::deserialize(deserializer)?;
    if value.is_some_and(|n| n > MAX_COUNT) {
        return Err(serde::de::Error::custom("must be below 2^53"));
    }
    Ok(value)
}

const fn utc() -> Zone {
    Zone::UTC
}

const fn first() -> u8 {
    1
}

fn default_notify_at() -> Vec<f64> {
    vec![0.8, 1.0]
}

const fn default_queue_limit() -> Option<u64> {
    Some(100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn minimal() -> Value {
        json!({"plan_id": "t", "name": "T"})
    }

    fn with(field: &str, value: Value) -> Result<Plan, InvalidPlan> {
        let mut plan = minimal();
        plan[field] = value;
        Plan::from_value(plan)
    }

    #[test]
    fn absent_is_unlimited_and_zero_is_none() {
        assert_eq!(Plan::from_value(minimal()).unwrap().daily_limit, None);
        assert_eq!(with("daily_limit", json!(0)).unwrap().daily_limit, Some(0));
        assert_eq!(with("daily_limit", json!(null)).unwrap().daily_limit, None);
    }

    #[test]
    fn what_is_no_count_is_refused_and_named() {
        for bad in [
            json!(-1),
            json!("10"),
            json!(1.5),
            json!(1u64 << 53),
            json!(true),
        ] {
            assert_eq!(with("daily_limit", bad).unwrap_err().field, "daily_limit");
        }
        let nested = with("rate", json!({"capacity": -1, "refill_per_minute": 1}));
        assert_eq!(nested.unwrap_err().field, "rate.capacity");
    }

    #[test]
    fn a_typo_is_refused() {
        assert!(with("dayly_limit", json!(10)).is_err());
    }

    #[test]
    fn the_window_has_three_states() {
        let settings = Some(WindowDefault {
            limit: Some(WindowLimit {
                max_requests: 500,
                span: Span::minutes(300),
            }),
        });
        let limit = |plan: Plan| plan.limits(settings, false).window.map(|w| w.max_requests);
        assert_eq!(limit(Plan::from_value(minimal()).unwrap()), Some(500));
        assert_eq!(limit(with("window", json!(null)).unwrap()), None);
        let own = with("window", json!({"max_requests": 5, "minutes": 5})).unwrap();
        assert_eq!(limit(own.clone()), Some(5));
        assert_eq!(own.limits(None, false).window, None);
        let back = own.patched(json!({"window": "default"}).as_object().unwrap());
        assert_eq!(limit(back.unwrap()), Some(500));
        assert_eq!(with("window", json!("none")).unwrap_err().field, "window");
        let nested = with("window", json!({"max_requests": -1, "minutes": 5}));
        assert_eq!(nested.unwrap_err().field, "window.max_requests");
    }

    #[test]
    fn overrides_replace_fields_but_not_the_identity() {
        let plan = with("daily_limit", json!(10)).unwrap();
        let more = plan
            .with_overrides(json!({"daily_limit": 20}).as_object().unwrap())
            .unwrap();
        assert_eq!(more.daily_limit, Some(20));
        let renamed = plan.with_overrides(json!({"plan_id": "x"}).as_object().unwrap());
        assert_eq!(renamed.unwrap_err().field, "plan_id");
    }

    #[test]
    fn json_round_trip() {
        for plan in [minimal(), {
            let mut p = minimal();
            p["window"] = json!(null);
            p
        }] {
            let plan = Plan::from_value(plan).unwrap();
            let again = Plan::from_value(serde_json::to_value(&plan).unwrap()).unwrap();
            assert_eq!(plan, again);
        }
    }
}
