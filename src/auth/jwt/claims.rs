use serde_json::Value;

use super::policy::Policy;
use super::subject::{self, Subject};
use crate::limits::{Millis, Span};

/// How far the issuer's clock may be off.
pub const LEEWAY: Span = Span::seconds(30);

/// What a token claims.
pub struct Claims(Value);

impl Claims {
    /// Claims as they were read.
    pub const fn new(claims: Value) -> Self {
        Self(claims)
    }

    /// Whether these claims are of our issuer, for us and in force, or why not. `exp` is required.
    pub fn check(&self, policy: &Policy, now: Millis) -> Result<(), &'static str> {
        let expiry = self.instant("exp")?.ok_or("no expiry")?;
        if expiry.plus(LEEWAY) <= now {
            return Err("expired");
        }
        if self
            .instant("nbf")?
            .is_some_and(|start| start > now.plus(LEEWAY))
        {
            return Err("not yet valid");
        }
        if self.text("iss") != Some(&policy.issuer) {
            return Err("issuer");
        }
        if !self.is_for(policy.audience.as_deref()) {
            return Err("audience");
        }
        Ok(())
    }

    /// The id of the user they name.
    pub fn user_id(&self, policy: &Policy) -> Result<String, &'static str> {
        let subject = self.subject().ok_or("subject")?;
        Ok(subject::user_id(&policy.issuer, &subject))
    }

    /// The plan they name.
    pub fn plan(&self, policy: &Policy) -> Option<String> {
        let plan = self.text(policy.plan_claim.as_deref()?)?;
        (!plan.is_empty()).then(|| plan.to_owned())
    }

    /// Cloudflare Access gives its service tokens an empty `sub` and names them by `common_name`.
    fn subject(&self) -> Option<Subject<'_>> {
        match self.text("sub")? {
            "" => {
                let name = self.text("common_name").filter(|name| !name.is_empty());
                name.map(Subject::Service)
            }
            sub => Some(Subject::User(sub)),
        }
    }

    /// `aud` is a string or a list. A gateway that has no name takes only tokens that are for nobody in
    /// particular (RFC 7519, 4.1.3).
    fn is_for(&self, audience: Option<&str>) -> bool {
        let named = self.0.get("aud").filter(|aud| !aud.is_null());
        match (named, audience) {
            (None, None) => true,
            (Some(Value::String(aud)), Some(ours)) => aud == ours,
            (Some(Value::Array(auds)), Some(ours)) => auds.iter().any(|aud| aud == ours),
            _ => false,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn instant(&self, name: &str) -> Result<Option<Millis>, &'static str> {
        let value = self.0.get(name).filter(|value| !value.is_null());
        value
            .map(|value| numeric_date(value).ok_or("malformed"))
            .transpose()
    }
}

/// Seconds since the epoch, which may have a fraction. What lies before the epoch lies at it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn numeric_date(value: &Value) -> Option<Millis> {
    if let Some(seconds) = value.as_u64() {
        return Some(Millis(seconds.saturating_mul(1_000)));
    }
    value
        .as_f64()
        .map(|seconds| Millis((seconds * 1_000.0) as u64))
}
