//! Tokens as bytes of any kind (see [`crate::fuzzing`]).

use futures::FutureExt;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::policy::{JwtVars, Policy};
use super::{Caller, judge};
use crate::auth::front::is_user_id;
use crate::limits::Millis;
use crate::settings::Secret;

const NOW: Millis = Millis(1_800_000_000_000);
const ISSUER: &str = "https://id.example/";
const SECRET: &str = "a secret of these tests, 32 bytes or more";
/// The public halves of keys that have signed nothing but [`SIGNED`].
const KEYS: &str = include_str!("../../../fuzz/keys.json");
/// All tokens that were ever signed by them, or by [`SECRET`].
const SIGNED: [&str; 4] = [
    include_str!("../../../fuzz/corpus/jwt/signed-rs256"),
    include_str!("../../../fuzz/corpus/jwt/signed-es256"),
    include_str!("../../../fuzz/corpus/jwt/signed-eddsa"),
    include_str!("../../../fuzz/corpus/jwt/signed-hs256"),
];

thread_local! {
    static POLICY: Option<Policy> = policy();
}

fn policy() -> Option<Policy> {
    let vars = JwtVars {
        issuer: Some(ISSUER.to_owned()),
        audience: Some("sluice".to_owned()),
        public_key: Some(KEYS.to_owned()),
        hs256_secret: Some(Secret::of(SECRET)),
        ..JwtVars::default()
    };
    vars.policy()?.ok()
}

fn accepted(token: &str) -> Option<Caller> {
    POLICY.with(|policy| {
        assert!(policy.is_some(), "the keys of the fuzzers can't be read");
        judge(token, policy.as_ref()?, NOW).now_or_never()?.ok()
    })
}

/// Any text: it is taken only if its header and its claims are, byte for byte, some that were signed.
pub fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let taken = accepted(&text).is_some();
    let signed = |token: &str| token.rsplit_once('.').map(|(signed, _)| signed.to_owned());
    let genuine = || SIGNED.iter().any(|good| signed(good) == signed(&text));
    assert!(!taken || genuine(), "a token nobody has signed is taken");
    assert!(
        taken || !SIGNED.contains(&text.as_ref()),
        "a good token is refused"
    );
}

/// Any claims, well signed: they are taken only if they are in force, of our issuer and for us, and name a
/// user.
pub fn claims(bytes: &[u8]) {
    let payload = URL_SAFE_NO_PAD.encode(bytes);
    let message = format!("{}.{payload}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#));
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()) else {
        return;
    };
    mac.update(message.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    let Some(caller) = accepted(&format!("{message}.{signature}")) else {
        return;
    };
    let claims: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let said = |name: &str| claims.get(name).and_then(Value::as_str);
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
    let now = 1_800_000_000.0;
    assert!(said("iss") == Some(ISSUER));
    assert!(
        seconds("exp").is_some_and(|at| at > now - 31.0),
        "an old token is taken"
    );
    assert!(
        seconds("nbf").is_none_or(|at| at < now + 31.0),
        "a token is taken too early"
    );
    assert!(
        claims
            .get("aud")
            .is_some_and(|aud| aud.to_string().contains("\"sluice\""))
    );
    assert!(said("sub").is_some());
    assert!(is_user_id(&caller.user_id) && caller.user_id.starts_with("jwt:"));
    assert!(!caller.user_id.contains(['/', '%', '?', '#']));
    assert!(
        caller.plan_claim.is_none(),
        "no claim names a plan where none is set"
    );
}
