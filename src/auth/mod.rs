//! Who is calling (HTTP surface, section 2). Authentication never opens: "could not tell" is 503 and
//! is never remembered as "no".

mod admin;
mod credential;
pub mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod jwt;
pub mod key;
mod lookup;
pub mod provision;

use worker::Env;

pub use admin::require_admin;
pub use lookup::{KeyRecord, forget, kv_name};

use self::credential::Credential;
use crate::http::ApiError;
use crate::http::incoming::Incoming;
use crate::limits::Millis;
use crate::settings::Settings;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// Whose counters are charged: the user's, never the key's.
    pub user_id: String,
    /// The API key that was shown, so that its account can refuse a revoked one.
    pub key_id: Option<String>,
    /// What the credential may do.
    pub scope: Scope,
    /// The plan as far as the credential's record knows it; the account knows better.
    pub plan_hint: Option<String>,
    /// A plan named by the identity provider or the trusted front.
    pub plan_claim: Option<String>,
    /// A user who isn't known yet is created: the credential's issuer vouches for them.
    pub provision: bool,
}

/// What a credential may do.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Call for its own user.
    #[default]
    User,
    /// Decide for any user, through `/api/limits/*`.
    Service,
}

impl Scope {
    /// The word for it in JSON and in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Service => "service",
        }
    }
}

/// Finds out who is calling.
pub async fn authenticate(
    request: &Incoming,
    env: &Env,
    settings: &Settings,
    now: Millis,
) -> Result<Caller, ApiError> {
    if let Some(caller) = front::trusted(request, settings)? {
        return Ok(caller);
    }
    match credential::of(request, settings)? {
        Credential::Key(key) => lookup::key(&key, env, settings, now).await,
        Credential::Jwt(token) => jwt::caller(&token, settings, now).await,
        Credential::Other => Err(ApiError::BadCredential("unknown")),
    }
}
