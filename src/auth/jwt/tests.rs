use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::spki::EncodePublicKey;
use futures::FutureExt;
use hmac::{Hmac, KeyInit, Mac};
use rsa::BoxedUint;
use rsa::pkcs1::EncodeRsaPublicKey;
use rsa::pkcs8::LineEnding;
use rsa::signature::{SignatureEncoding, Signer};
use rsa::traits::PublicKeyParts;
use serde_json::{Value, json};
use sha2::Sha256;

use super::keys::KeySet;
use super::policy::{JwtVars, Policy, PublicSource};
use super::{Caller, judge};
use crate::http::ApiError;
use crate::limits::{Millis, Span};
use crate::settings::Secret;

const NOW: Millis = Millis(1_800_000_000_000);
const ISSUER: &str = "https://id.example/";
const SECRET: &str = "a secret of these tests, 32 bytes or more";

/// The primes of an RSA key that was made for these tests and is used nowhere else.
const P: &str = "-GWSkZWOhgI3nVj-iQ8FHF-LfefE0TD4TRpTiRiyfEfF-k9YeeLieZlvZGZCKE5WoeM_Y-MapnL0viL09ub8tL\
    H-Z5qSMh4B5nmNLJZM0UBXzG0WELIE10vQdKRWEf4btmyjpXSgRgFR7rzpcf9M6vulOzbei1unA7zaWM3b_gE";
const Q: &str = "3_UfhOrzYO1W0pggKII6P6PQlXJUQBg2-vpFT8PYf-HZU5eq97LGtPHQBUPL8_MVnDgI260xYUZT1u1MQ-Gn5h\
    wJUTVSiM-Q0ToBVz8ka58QFKZouj3sxlf0jDk5vpywtdnzbRNPvAN0-XSXGPAqWrxd2dd2ka_8LRVBQpYYxx0";

struct Keys {
    rsa: rsa::PrivateKey,
    p256: p256::ecdsa::SigningKey,
    ed25519: ed25519_dalek::SigningKey,
}

thread_local! {
    static KEYS: Keys = Keys::new();
}

impl Keys {
    fn new() -> Self {
        let prime = |text| BoxedUint::from_be_slice_vartime(&URL_SAFE_NO_PAD.decode(text).unwrap());
        Self {
            rsa: rsa::PrivateKey::from_p_q(prime(P), prime(Q), 65_537u64.into()).unwrap(),
            p256: p256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap(),
            ed25519: ed25519_dalek::SigningKey::from_bytes(&[7; 32]),
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        match algorithm {
            "RS256" => {
                let key = rsa::pkcs1v15::SigningKey::<Sha256>::new(self.rsa.clone());
                key.sign(message).to_vec()
            }
            "ES256" => {
                let signature: p256::ecdsa::Signature = self.p256.sign(message);
                signature.to_bytes().to_vec()
            }
            "EdDSA" => self.ed25519.sign(message).to_vec(),
            "HS256" => hmac(SECRET.as_bytes(), message),
            _ => Vec::new(),
        }
    }

    fn jwks(&self) -> Value {
        let rsa = self.rsa.to_public_key();
        let point = self.p256.verifying_key().to_sec1_point(false);
        json!({"keys": [
            {"kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256",
             "n": encode(rsa.n().to_be_bytes_trimmed_vartime()),
             "e": encode(rsa.e().to_be_bytes_trimmed_vartime())},
            {"kty": "EC", "kid": "e", "crv": "P-256",
             "x": encode(point.x().unwrap()), "y": encode(point.y().unwrap())},
            {"kty": "OKP", "kid": "d", "crv": "Ed25519", "alg": "EdDSA",
             "x": encode(self.ed25519.verifying_key().as_bytes())},
        ]})
    }

    /// By algorithm, as `BEGIN PUBLIC KEY`.
    fn pem(&self, algorithm: &str) -> String {
        let pem = match algorithm {
            "RS256" => self.rsa.to_public_key().to_public_key_pem(LineEnding::LF),
            "ES256" => self.p256.verifying_key().to_public_key_pem(LineEnding::LF),
            _ => self
                .ed25519
                .verifying_key()
                .to_public_key_pem(LineEnding::LF),
        };
        pem.unwrap()
    }
}

fn hmac(secret: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn jwks() -> Value {
    KEYS.with(Keys::jwks)
}

/// The public keys of these tests.
pub fn public_keys() -> KeySet {
    KeySet::of_json(&jwks()).unwrap()
}

fn seconds(offset: i64) -> i64 {
    i64::try_from(NOW.0 / 1_000).unwrap() + offset
}

/// Claims that are good, changed by `changes`; null takes one away.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "aud": "sluice", "sub": "ann", "exp": seconds(300)});
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        encode(header.to_string()),
        encode(claims.to_string())
    )
}

fn signed(header: &Value, claims: &Value) -> String {
    let message = unsigned(header, claims);
    let algorithm = header["alg"].as_str().unwrap();
    let signature = KEYS.with(|keys| keys.sign(algorithm, message.as_bytes()));
    format!("{message}.{}", encode(signature))
}

fn token(algorithm: &str) -> String {
    signed(&json!({"alg": algorithm}), &claims(&json!({})))
}

fn claiming(changes: &Value) -> String {
    signed(&json!({"alg": "EdDSA"}), &claims(changes))
}

fn vars() -> JwtVars {
    JwtVars {
        issuer: Some(ISSUER.to_owned()),
        audience: Some("sluice".to_owned()),
        plan_claim: Some("https://id.example/plan".to_owned()),
        ..JwtVars::default()
    }
}

fn by_key(text: &str) -> Policy {
    JwtVars {
        public_key: Some(text.to_owned()),
        ..vars()
    }
    .policy()
    .unwrap()
    .unwrap()
}

fn by_secret(secret: &str) -> Policy {
    JwtVars {
        hs256_secret: Some(Secret::of(secret)),
        ..vars()
    }
    .policy()
    .unwrap()
    .unwrap()
}

fn public() -> Policy {
    by_key(&jwks().to_string())
}

fn shown(token: &str, policy: &Policy) -> Result<Caller, ApiError> {
    judge(token, policy, NOW).now_or_never().unwrap()
}

fn reason(token: &str, policy: &Policy) -> &'static str {
    match shown(token, policy) {
        Err(ApiError::BadCredential(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn is_good(changes: &Value) -> bool {
    shown(&claiming(changes), &public()).is_ok()
}

fn why_not(changes: &Value) -> &'static str {
    reason(&claiming(changes), &public())
}

#[test]
fn every_algorithm_is_checked_by_a_key_of_its_kind() {
    for (algorithm, kid) in [("RS256", "r"), ("ES256", "e"), ("EdDSA", "d")] {
        let named = signed(&json!({"alg": algorithm, "kid": kid}), &claims(&json!({})));
        assert!(shown(&named, &public()).is_ok(), "{algorithm}");
        assert!(
            shown(&token(algorithm), &public()).is_ok(),
            "{algorithm} without kid"
        );
        let pem = KEYS.with(|keys| keys.pem(algorithm));
        assert!(
            shown(&token(algorithm), &by_key(&pem)).is_ok(),
            "{algorithm} PEM"
        );
        let one_line = pem.replace('\n', "\\n");
        assert!(
            shown(&named, &by_key(&one_line)).is_ok(),
            "{algorithm} PEM in a line"
        );
        assert_eq!(reason(&token(algorithm), &by_secret(SECRET)), "algorithm");
    }
    assert!(shown(&token("HS256"), &by_secret(SECRET)).is_ok());
    let pkcs1 = KEYS.with(|keys| keys.rsa.to_public_key().to_pkcs1_pem(LineEnding::LF));
    assert!(shown(&token("RS256"), &by_key(&pkcs1.unwrap())).is_ok());
}

#[test]
fn ed25519_has_two_names() {
    let header = json!({"alg": "Ed25519", "kid": "d"});
    let message = unsigned(&header, &claims(&json!({})));
    let signature = KEYS.with(|keys| keys.sign("EdDSA", message.as_bytes()));
    assert!(shown(&format!("{message}.{}", encode(signature)), &public()).is_ok());
}

#[test]
fn both_kinds_of_keys_can_be_set_and_stay_apart() {
    let both = Policy {
        secret: Some(Secret::of(SECRET)),
        ..public()
    };
    for algorithm in ["RS256", "ES256", "EdDSA", "HS256"] {
        assert!(shown(&token(algorithm), &both).is_ok(), "{algorithm}");
    }
    for secret in public_key_texts() {
        assert_eq!(reason(&hs256_by(secret.as_bytes()), &both), "signature");
    }
}

/// All that an attacker knows of a public key.
fn public_key_texts() -> Vec<String> {
    let mut texts = vec![jwks().to_string()];
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let pem = KEYS.with(|keys| keys.pem(algorithm));
        texts.extend([pem.trim().to_owned(), pem]);
    }
    texts
}

fn hs256_by(secret: &[u8]) -> String {
    let message = unsigned(&json!({"alg": "HS256"}), &claims(&json!({})));
    format!("{message}.{}", encode(hmac(secret, message.as_bytes())))
}

#[test]
fn a_public_key_is_never_a_secret() {
    for secret in public_key_texts() {
        let forged = hs256_by(secret.as_bytes());
        assert_eq!(reason(&forged, &public()), "algorithm");
        assert_eq!(reason(&forged, &by_key(&secret)), "algorithm");
    }
}

#[test]
fn none_and_unknown_algorithms_are_refused() {
    for algorithm in [
        "none", "None", "NONE", "", "RS512", "PS256", "ES384", "HS512", "hs256", "rs256",
    ] {
        for policy in [public(), by_secret(SECRET)] {
            let header = json!({"alg": algorithm, "kid": "r"});
            let unsigned = unsigned(&header, &claims(&json!({})));
            assert_eq!(
                reason(&format!("{unsigned}."), &policy),
                "algorithm",
                "{algorithm}"
            );
            let signature = KEYS.with(|keys| keys.sign("RS256", unsigned.as_bytes()));
            let signed = format!("{unsigned}.{}", encode(signature));
            assert_eq!(reason(&signed, &policy), "algorithm", "{algorithm}");
        }
    }
}

#[test]
fn a_key_of_another_kind_is_refused_though_the_token_names_it() {
    for (algorithm, kid) in [("RS256", "e"), ("ES256", "d"), ("EdDSA", "r")] {
        let token = signed(&json!({"alg": algorithm, "kid": kid}), &claims(&json!({})));
        assert_eq!(reason(&token, &public()), "algorithm");
    }
}

#[test]
fn a_key_nobody_published_is_unknown() {
    let token = signed(&json!({"alg": "EdDSA", "kid": "x"}), &claims(&json!({})));
    assert_eq!(reason(&token, &public()), "unknown key");
}

#[test]
fn what_the_token_brings_along_is_no_key() {
    let attacker = ed25519_dalek::SigningKey::from_bytes(&[8; 32]);
    let x = encode(attacker.verifying_key().as_bytes());
    let header = json!({"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": x},
        "jku": "https://evil.example/jwks", "x5u": "https://evil.example/x5u"});
    let message = unsigned(&header, &claims(&json!({})));
    let signature = attacker.sign(message.as_bytes()).to_vec();
    assert_eq!(
        reason(&format!("{message}.{}", encode(signature)), &public()),
        "signature"
    );
}

#[test]
fn a_changed_token_has_a_wrong_signature() {
    for (algorithm, policy) in [
        ("RS256", public()),
        ("ES256", public()),
        ("EdDSA", public()),
        ("HS256", by_secret(SECRET)),
    ] {
        let good = token(algorithm);
        assert!(shown(&good, &policy).is_ok());
        let (header, rest) = good.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let payload = encode(claims(&json!({"sub": "root"})).to_string());
        assert_eq!(
            reason(&format!("{header}.{payload}.{signature}"), &policy),
            "signature"
        );
        for wrong in [
            String::new(),
            encode([0; 64]),
            encode([0; 256]),
            encode(vec![1; 5_000]),
        ] {
            let (message, _) = good.rsplit_once('.').unwrap();
            assert_eq!(
                reason(&format!("{message}.{wrong}"), &policy),
                "signature",
                "{algorithm}"
            );
        }
    }
    assert_eq!(
        reason(
            &token("HS256"),
            &by_secret("another secret of more than 32 bytes")
        ),
        "signature"
    );
}

#[test]
fn what_is_no_token_is_malformed() {
    let good = token("EdDSA");
    let twice = encode(r#"{"alg":"EdDSA","alg":"HS256"}"#);
    let claims_twice = {
        let message = format!(
            "{}.{}",
            encode(r#"{"alg":"EdDSA"}"#),
            encode(r#"{"sub":"a","sub":"b"}"#)
        );
        let signature = KEYS.with(|keys| keys.sign("EdDSA", message.as_bytes()));
        format!("{message}.{}", encode(signature))
    };
    for text in [
        "",
        ".",
        "..",
        "a.b.c",
        "e30",
        "e30.e30",
        &format!("{good}.x"),
        &format!("{good}="),
        &format!("{good} "),
        &format!(".{good}"),
        &good.replace('.', ".."),
        &format!("{twice}.e30.x"),
        &claims_twice,
    ] {
        assert_eq!(reason(text, &public()), "malformed", "{text}");
    }
    let crit = signed(
        &json!({"alg": "EdDSA", "crit": ["b64"], "b64": false}),
        &claims(&json!({})),
    );
    assert_eq!(reason(&crit, &public()), "malformed");
    assert_eq!(reason("e30.e30.x", &public()), "algorithm");
    assert_eq!(
        reason(&signed(&json!({"alg": "EdDSA"}), &json!([])), &public()),
        "no expiry"
    );
}

#[test]
fn expiry_is_required_and_has_some_leeway() {
    assert!(is_good(&json!({"exp": seconds(1)})));
    assert!(is_good(&json!({"exp": seconds(-29)})));
    assert_eq!(why_not(&json!({"exp": seconds(-30)})), "expired");
    assert_eq!(why_not(&json!({"exp": seconds(-31)})), "expired");
    assert_eq!(why_not(&json!({"exp": 0})), "expired");
    assert_eq!(why_not(&json!({"exp": -1})), "expired");
    assert_eq!(why_not(&json!({"exp": null})), "no expiry");
    assert_eq!(why_not(&json!({"exp": "1900000000"})), "malformed");
    assert!(is_good(&json!({"exp": 1_800_000_000.5})));
    assert!(is_good(&json!({"exp": u64::MAX})));
    assert!(is_good(&json!({"exp": 1e300})));
}

#[test]
fn leeway_is_exact_to_the_millisecond() {
    let token = claiming(&json!({"exp": seconds(0)}));
    let at = |millis| {
        judge(&token, &public(), Millis(millis))
            .now_or_never()
            .unwrap()
    };
    let end = NOW.plus(Span::seconds(30)).0;
    assert!(at(end - 1).is_ok());
    assert_eq!(at(end), Err(ApiError::BadCredential("expired")));
}

#[test]
fn a_token_for_later_has_some_leeway_too() {
    assert!(is_good(&json!({"nbf": seconds(-5)})));
    assert!(is_good(&json!({"nbf": seconds(30)})));
    assert_eq!(why_not(&json!({"nbf": seconds(31)})), "not yet valid");
    assert_eq!(why_not(&json!({"nbf": "soon"})), "malformed");
}

#[test]
fn a_good_token_that_was_seen_still_expires() {
    let (policy, token) = (public(), claiming(&json!({})));
    assert!(shown(&token, &policy).is_ok());
    let later = judge(&token, &policy, NOW.plus(Span::hours(1)))
        .now_or_never()
        .unwrap();
    assert_eq!(later, Err(ApiError::BadCredential("expired")));
}

#[test]
fn the_issuer_is_exact() {
    for issuer in [
        "https://id.example",
        "https://ID.example/",
        "https://id.example/x",
        "",
    ] {
        assert_eq!(why_not(&json!({"iss": issuer})), "issuer");
    }
    assert_eq!(why_not(&json!({"iss": null})), "issuer");
    assert_eq!(why_not(&json!({"iss": [ISSUER]})), "issuer");
}

#[test]
fn the_audience_is_a_string_or_a_list() {
    assert!(is_good(&json!({"aud": ["other", "sluice"]})));
    for aud in [
        json!("other"),
        json!(["other"]),
        json!([]),
        json!(""),
        json!({}),
        json!([["sluice"]]),
    ] {
        assert_eq!(why_not(&json!({"aud": aud})), "audience");
    }
    assert_eq!(why_not(&json!({"aud": null})), "audience");
}

#[test]
fn a_gateway_without_a_name_takes_only_tokens_for_nobody_in_particular() {
    let nameless = Policy {
        audience: None,
        ..public()
    };
    assert!(shown(&claiming(&json!({"aud": null})), &nameless).is_ok());
    assert_eq!(reason(&claiming(&json!({})), &nameless), "audience");
    assert_eq!(
        reason(&claiming(&json!({"aud": []})), &nameless),
        "audience"
    );
}

#[test]
fn the_caller_is_named_by_issuer_and_subject() {
    let caller = shown(
        &claiming(&json!({"https://id.example/plan": "pro"})),
        &public(),
    )
    .unwrap();
    assert_eq!(caller.user_id, "jwt:cc529d844da1:ann");
    assert_eq!(caller.plan_claim.as_deref(), Some("pro"));
    assert_eq!(caller.plan_hint, caller.plan_claim);
    assert!(caller.provision && caller.key_id.is_none());
    for plan in [json!(""), json!(1), json!(["pro"]), json!(null)] {
        let caller = shown(
            &claiming(&json!({"https://id.example/plan": plan})),
            &public(),
        );
        assert_eq!(caller.unwrap().plan_claim, None);
    }
}

#[test]
fn a_service_token_is_named_by_its_common_name() {
    let service = claiming(&json!({"sub": "", "common_name": "e36.access"}));
    assert_eq!(
        shown(&service, &public()).unwrap().user_id,
        "jwt:cc529d844da1:service:e36.access"
    );
    assert_eq!(why_not(&json!({"sub": ""})), "subject");
    assert_eq!(why_not(&json!({"sub": "", "common_name": ""})), "subject");
    assert_eq!(
        why_not(&json!({"sub": null, "common_name": "e36.access"})),
        "subject"
    );
    assert_eq!(why_not(&json!({"sub": 7})), "subject");
}

#[test]
fn keys_that_are_for_something_else_are_left_out() {
    let unusable = |changes: Value| {
        let mut key = jwks()["keys"][0].clone();
        key.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        KeySet::of_json(&json!({"keys": [key]})).is_none()
    };
    assert!(!unusable(json!({})));
    assert!(!unusable(json!({"key_ops": ["verify"], "x5c": ["…"]})));
    for changes in [
        json!({"use": "enc"}),
        json!({"key_ops": ["encrypt"]}),
        json!({"alg": "RS512"}),
        json!({"alg": "HS256"}),
        json!({"alg": "ES256"}),
        json!({"kty": "oct", "k": "c2VjcmV0"}),
        json!({"n": "AQAB"}),
        json!({"e": "AA"}),
        json!({"e": "!"}),
        json!({"n": null}),
        json!({"kid": 7}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AQAB"}),
        json!({"kty": "OKP", "crv": "X25519", "x": encode([9; 32])}),
        json!({"kty": "EC", "crv": "P-256", "x": encode([1; 32]), "y": encode([1; 32])}),
        json!({"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}),
        json!({"kty": "EC", "crv": "P-384", "x": encode([1; 48]), "y": encode([1; 48])}),
    ] {
        assert!(unusable(changes.clone()), "{changes}");
    }
    for json in [
        json!({"keys": []}),
        json!({"keys": 1}),
        json!({}),
        json!([]),
        json!(null),
    ] {
        assert!(KeySet::of_json(&json).is_none());
    }
}

#[test]
fn an_unusable_key_does_not_spoil_the_others() {
    let mut set = jwks();
    set["keys"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"kty": "new", "kid": [1]}));
    assert!(shown(&token("ES256"), &by_key(&set.to_string())).is_ok());
}

#[test]
fn settings_that_cannot_work_say_so() {
    let problem = |vars: JwtVars| vars.policy().unwrap().unwrap_err();
    let with = |url: &str| JwtVars {
        jwks_url: Some(url.to_owned()),
        ..vars()
    };
    assert!(JwtVars::default().policy().is_none());
    let plan_only = JwtVars {
        plan_claim: Some("plan".to_owned()),
        ..JwtVars::default()
    };
    assert!(plan_only.policy().is_none());
    assert!(problem(vars()).contains("is not set"));
    let anybody = JwtVars {
        issuer: None,
        ..with("https://id.example/jwks")
    };
    assert_eq!(problem(anybody), "JWT_ISSUER is not set");
    let two = JwtVars {
        public_key: Some("x".to_owned()),
        ..with("https://id.example/jwks")
    };
    assert!(problem(two).contains("both"));
    for url in [
        "http://id.example/jwks",
        "http://localhost.example/",
        "http://localhost:x@id.example/",
        "file:///etc/passwd",
        "data:,x",
        "id.example/jwks",
        "http://10.0.0.1/",
        "",
    ] {
        assert!(problem(with(url)).starts_with("JWT_JWKS_URL"), "{url}");
    }
    for url in [
        "https://id.example/jwks",
        "http://localhost:8080/",
        "http://127.0.0.1:1/x",
    ] {
        let policy = with(url).policy().unwrap().unwrap();
        assert!(
            matches!(policy.public, Some(PublicSource::Jwks(_))),
            "{url}"
        );
    }
    for key in [
        "",
        "x",
        "{}",
        "{",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
    ] {
        let vars = JwtVars {
            public_key: Some(key.to_owned()),
            ..vars()
        };
        assert!(problem(vars).starts_with("JWT_PUBLIC_KEY"), "{key}");
    }
}

#[test]
fn an_rsa_key_has_a_sound_size() {
    let of_bytes = |n: usize| {
        let key = json!({"kty": "RSA", "n": encode(vec![255; n]), "e": "AQAB"});
        KeySet::of_json(&key).is_some()
    };
    assert!(!of_bytes(128) && !of_bytes(255) && of_bytes(256) && of_bytes(512) && !of_bytes(513));
}
