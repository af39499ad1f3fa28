//! JSON Web Tokens of one issuer (HTTP surface, section 2; RFC 7519 as narrowed by RFC 8725).
//!
//! RS256, ES256 and EdDSA are checked by public keys alone, each by a key of its own kind, and HS256 by the
//! shared secret alone, so a token can't talk a key into another algorithm. A good token makes a
//! [`Caller`] whose user is named by issuer and subject.

mod claims;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod jwk;
mod jwks;
mod keys;
mod policy;
mod subject;
#[cfg(test)]
mod tests;
mod token;
mod verified;

pub use policy::{JwtVars, Policy};
pub use token::looks_like_one;

use self::keys::KeyError;
use self::policy::PublicSource;
use self::token::{Algorithm, Token};
use super::{Caller, Scope};
use crate::http::ApiError;
use crate::limits::Millis;
use crate::settings::Settings;

/// The caller who shows `token`. A token that is not good is 401 with the reason; keys that could not
/// be had are 503; a gateway that takes no tokens answers 401, one whose `JWT_*` settings can't work 500.
pub async fn caller(token: &str, settings: &Settings, now: Millis) -> Result<Caller, ApiError> {
    let policy = match &settings.jwt {
        None => return Err(ApiError::BadCredential("unknown")),
        Some(Err(problem)) => return Err(ApiError::Misconfigured(problem)),
        Some(Ok(policy)) => policy,
    };
    judge(token, policy, now).await
}

async fn judge(token: &str, policy: &Policy, now: Millis) -> Result<Caller, ApiError> {
    let token = Token::parse(token).map_err(ApiError::BadCredential)?;
    verify(&token, policy, now).await?;
    admit(&token, policy, now).map_err(ApiError::BadCredential)
}

/// The algorithm selects the kind of key, and a key of that kind checks nothing else.
async fn verify(token: &Token<'_>, policy: &Policy, now: Millis) -> Result<(), ApiError> {
    let checked = match (token.algorithm, &policy.public, &policy.secret) {
        (Algorithm::Hs256, _, Some(secret)) => token.verify_by_secret(secret),
        (Algorithm::Hs256, _, None) | (_, None, _) => Err(KeyError::Algorithm),
        (_, Some(PublicSource::Fixed(keys)), _) => keys.verify(token),
        (_, Some(PublicSource::Jwks(url)), _) => return jwks::verify(token, url, now).await,
    };
    checked.map_err(KeyError::into)
}

/// What the claims of a verified token say, or why they are not taken.
fn admit(token: &Token<'_>, policy: &Policy, now: Millis) -> Result<Caller, &'static str> {
    let claims = token.claims()?;
    claims.check(policy, now)?;
    let plan = claims.plan(policy);
    Ok(Caller {
        user_id: claims.user_id(policy)?,
        key_id: None,
        scope: Scope::User,
        plan_hint: plan.clone(),
        plan_claim: plan,
        provision: true,
    })
}
