use std::rc::Rc;

use worker::Url;

use super::keys::KeySet;
use crate::json::parse_strict;
use crate::settings::Secret;

/// The settings of tokens as they were read: `JWT_ISSUER`, `JWT_AUDIENCE`, `JWT_JWKS_URL`,
/// `JWT_PUBLIC_KEY`, `JWT_HS256_SECRET`, `JWT_PLAN_CLAIM`.
#[derive(Default)]
pub struct JwtVars {
    /// What `iss` has to be, exactly.
    pub issuer: Option<String>,
    /// What `aud` has to name; unset: only tokens without `aud` are taken.
    pub audience: Option<String>,
    /// Where the issuer publishes its keys.
    pub jwks_url: Option<String>,
    /// A public key, PEM or JWK.
    pub public_key: Option<String>,
    /// What HS256 tokens are signed with, as its bytes; should have 32 or more.
    pub hs256_secret: Option<Secret>,
    /// The claim that names a user's plan.
    pub plan_claim: Option<String>,
}

/// Whose tokens are taken, and how they are checked.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What `iss` has to be.
    pub issuer: String,
    /// What `aud` has to name.
    pub audience: Option<String>,
    /// The claim that names a user's plan.
    pub plan_claim: Option<String>,
    /// What checks RS256, ES256 and `EdDSA`; without it there is none of them.
    pub public: Option<PublicSource>,
    /// What checks HS256; without it there is none.
    pub secret: Option<Secret>,
}

/// Where the issuer's public keys come from.
#[derive(Clone, Debug)]
pub enum PublicSource {
    /// The issuer publishes them here.
    Jwks(Url),
    /// The settings hold them.
    Fixed(Rc<KeySet>),
}

impl JwtVars {
    /// The policy they make; `None` if none is meant, `Err` with what is wrong if it can't be kept. A
    /// half-set policy lets nobody in.
    pub fn policy(self) -> Option<Result<Policy, &'static str>> {
        let any = self.issuer.is_some()
            || self.audience.is_some()
            || self.jwks_url.is_some()
            || self.public_key.is_some()
            || self.hs256_secret.is_some();
        any.then(|| self.complete())
    }

    fn complete(self) -> Result<Policy, &'static str> {
        let public = match (self.jwks_url, self.public_key) {
            (Some(_), Some(_)) => return Err("JWT_JWKS_URL and JWT_PUBLIC_KEY are both set"),
            (Some(url), None) => Some(PublicSource::Jwks(jwks_url(&url)?)),
            (None, Some(key)) => Some(PublicSource::Fixed(Rc::new(public_key(&key)?))),
            (None, None) => None,
        };
        if public.is_none() && self.hs256_secret.is_none() {
            return Err("JWT_JWKS_URL, JWT_PUBLIC_KEY or JWT_HS256_SECRET is not set");
        }
        Ok(Policy {
            issuer: self.issuer.ok_or("JWT_ISSUER is not set")?,
            audience: self.audience,
            plan_claim: self.plan_claim,
            public,
            secret: self.hs256_secret,
        })
    }
}

/// Keys that came unencrypted could be anybody's, unless they came from this very machine.
fn jwks_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "JWT_JWKS_URL is not a URL")?;
    let near = matches!(url.host_str(), Some("localhost" | "127.0.0.1"));
    match url.scheme() {
        "https" => Ok(url),
        "http" if near => Ok(url),
        _ => Err("JWT_JWKS_URL has to begin with https://"),
    }
}

fn public_key(text: &str) -> Result<KeySet, &'static str> {
    let keys = if text.trim_start().starts_with('{') {
        parse_strict(text.as_bytes())
            .ok()
            .and_then(|json| KeySet::of_json(&json))
    } else {
        KeySet::of_pem(text)
    };
    keys.ok_or("JWT_PUBLIC_KEY is not an RSA, P-256 or Ed25519 public key in PEM or JWK")
}
