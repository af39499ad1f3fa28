//! What the operator may write, and the 400 that names the field where they may not.

use chrono::DateTime;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::http::ApiError;
use crate::http::targets::is_public_target;
use crate::limits::Millis;
use crate::plans::InvalidPlan;
use crate::settings::Settings;

/// Longest name, in bytes.
const MAX_NAME: usize = 200;
/// Longest email address (RFC 5321).
const MAX_EMAIL: usize = 254;

/// Reads the fields of a body.
pub fn read<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Value::Object(fields))
        .map_err(|e| refused(&e.path().to_string(), &e.inner().to_string()))
}

/// A field that may be left out (`None`), be `null` (`Some(None)`) or have a value.
pub fn maybe<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// A field that may be left out but not be `null`.
pub fn not_null<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The 400 for one field.
pub fn refused(path: &str, reason: &str) -> ApiError {
    let path = path.trim_matches('.');
    let missing = reason
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    let field = match (path, missing) {
        ("", None) => {
            return ApiError::invalid(format!("The body is not as it has to be: {reason}."));
        }
        ("", Some(name)) => name.to_owned(),
        (path, Some(name)) => format!("{path}.{name}"),
        (path, None) => path.to_owned(),
    };
    let message = format!("`{field}`: {reason}.");
    ApiError::invalid_field(field, message)
}

/// The 400 for a plan that can't be; `below` is where in the body it stands.
pub fn refused_plan(below: &str, error: &InvalidPlan) -> ApiError {
    let path = format!("{below}.{}", error.field.trim_matches('.'));
    refused(&path, error.reason.trim_end_matches('.'))
}

/// Serde takes a list for an object with the same number of fields; an operator never means that.
pub fn only_objects(below: &str, plan: &Map<String, Value>) -> Result<(), ApiError> {
    let refuse = |name: &str| Err(refused(&format!("{below}.{name}"), "must be an object"));
    for name in ["rate", "window", "reset", "over_quota"] {
        if plan.get(name).is_some_and(Value::is_array) {
            return refuse(name);
        }
    }
    let endpoints = plan.get("endpoints").and_then(Value::as_array);
    match endpoints.and_then(|list| list.iter().position(Value::is_array)) {
        Some(i) => refuse(&format!("endpoints[{i}]")),
        None => Ok(()),
    }
}

/// A name for people: 1 to 200 bytes without control characters.
pub fn check_name(field: &str, name: &str) -> Result<(), ApiError> {
    if name.trim().is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(refused(field, "must be 1 to 200 bytes of text"));
    }
    Ok(())
}

/// An email address, as far as one can tell without writing to it.
pub fn check_email(email: &str) -> Result<(), ApiError> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    let parts = email.split_once('@');
    let plausible = parts.is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !domain.contains('@')
    });
    if !plausible || email.len() > MAX_EMAIL || email.contains(odd) {
        return Err(refused(
            "email",
            "must be an email address of at most 254 bytes",
        ));
    }
    Ok(())
}

/// An address the gateway may call. Outside production it may be near by, for development and tests.
pub fn check_target(field: &str, url: &str, settings: &Settings) -> Result<(), ApiError> {
    if is_public_target(url, !settings.production) {
        return Ok(());
    }
    Err(refused(
        field,
        "must be an http(s) address on the public network, without a user or a password",
    ))
}

/// An address that the gateway sends things about a user to: `https` in production.
pub fn check_webhook(url: &str, settings: &Settings) -> Result<(), ApiError> {
    check_target("webhook_url", url, settings)?;
    if settings.production && !url.to_ascii_lowercase().starts_with("https:") {
        return Err(refused("webhook_url", "must be an https address"));
    }
    Ok(())
}

/// An instant yet to come.
pub fn future(field: &str, text: &str, now: Millis) -> Result<Millis, ApiError> {
    let at = DateTime::parse_from_rfc3339(text).ok();
    let at = at
        .and_then(|at| u64::try_from(at.timestamp_millis()).ok())
        .map(Millis);
    let at = at.ok_or_else(|| refused(field, "must be an instant such as 2026-06-22T00:00:00Z"))?;
    if at <= now {
        return Err(refused(field, "must be yet to come"));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Body {
        amount: u64,
        inner: Option<Inner>,
        #[serde(default, deserialize_with = "maybe")]
        email: Option<Option<String>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        deep: u64,
    }

    fn body(value: Value) -> Result<Body, ApiError> {
        read(value.as_object().unwrap().clone())
    }

    #[test]
    fn the_field_at_fault_is_named() {
        for (value, field) in [
            (json!({}), "amount"),
            (json!({"amount": "1"}), "amount"),
            (json!({"amount": -1}), "amount"),
            (json!({"amount": 1.5}), "amount"),
            (json!({"amount": null}), "amount"),
            (json!({"amount": 1, "typo": 2}), "typo"),
            (json!({"amount": 1, "inner": {}}), "inner.deep"),
            (
                json!({"amount": 1, "inner": {"deep": 1, "x": 2}}),
                "inner.x",
            ),
        ] {
            let ApiError::Invalid { param, .. } = body(value.clone()).unwrap_err() else {
                panic!("{value}");
            };
            assert_eq!(param.as_deref(), Some(field), "{value}");
        }
    }

    #[test]
    fn null_and_absent_are_told_apart() {
        assert_eq!(body(json!({"amount": 1})).unwrap().email, None);
        assert_eq!(
            body(json!({"amount": 1, "email": null})).unwrap().email,
            Some(None)
        );
    }

    #[test]
    fn emails() {
        for good in ["a@b", "ä+x@example.com"] {
            assert!(check_email(good).is_ok(), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b\n"] {
            assert!(check_email(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn instants_lie_ahead() {
        let now = Millis(1_000);
        assert_eq!(future("t", "1970-01-01T00:00:02Z", now), Ok(Millis(2_000)));
        assert_eq!(
            future("t", "1970-01-01T01:00:02+01:00", now),
            Ok(Millis(2_000))
        );
        for bad in ["1970-01-01T00:00:01Z", "tomorrow", "2026-06-22", "", "-1"] {
            assert!(future("t", bad, now).is_err(), "{bad}");
        }
    }
}
