use ed25519_dalek::Verifier;
use rsa::pkcs1::DecodeRsaPublicKey;
use rsa::pkcs8::DecodePublicKey;
use rsa::traits::PublicKeyParts;
use rsa::{BoxedUint, pkcs1v15};
use serde_json::Value;
use sha2::Sha256;

use super::jwk;
use super::token::{Algorithm, Token};
use super::verified::Verified;
use crate::http::ApiError;

/// Most keys of a set that are kept.
const MAX_KEYS: usize = 32;
/// Most keys that are tried on a token which doesn't name one.
const MAX_TRIES: usize = 4;
/// Sizes of RSA keys in bits: below is breakable, above takes too much of a call's time.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;

/// Why a signature is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyError {
    /// No key has the id that the token names.
    UnknownKey,
    /// The algorithm is not one for these keys.
    Algorithm,
    /// The signature is wrong.
    Signature,
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        Self::BadCredential(match error {
            KeyError::UnknownKey => "unknown key",
            KeyError::Algorithm => "algorithm",
            KeyError::Signature => "signature",
        })
    }
}

/// The issuer's public keys.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    verified: Verified,
}

/// One public key.
#[derive(Debug)]
pub struct Key {
    /// Its id; without one it may be the key of any token.
    pub kid: Option<String>,
    /// The key itself.
    pub public: PublicKey,
}

/// A key that can check signatures, each kind by one algorithm.
#[derive(Debug)]
pub enum PublicKey {
    /// RS256.
    Rsa(Box<pkcs1v15::VerifyingKey<Sha256>>),
    /// ES256.
    P256(Box<p256::ecdsa::VerifyingKey>),
    /// `EdDSA`.
    Ed25519(Box<ed25519_dalek::VerifyingKey>),
}

impl KeySet {
    /// The usable keys of a JWK set, or of a single JWK; `None` if there are none.
    pub fn of_json(json: &Value) -> Option<Self> {
        let single = std::slice::from_ref(json);
        let list = json
            .get("keys")
            .and_then(Value::as_array)
            .map_or(single, Vec::as_slice);
        Self::of(list.iter().filter_map(jwk::read).take(MAX_KEYS).collect())
    }

    /// The key of a PEM text: `BEGIN PUBLIC KEY`, or `BEGIN RSA PUBLIC KEY`. Line ends may be written `\n`.
    pub fn of_pem(pem: &str) -> Option<Self> {
        let public = PublicKey::of_pem(pem.replace("\\n", "\n").trim())?;
        Self::of(vec![Key { kid: None, public }])
    }

    fn of(keys: Vec<Key>) -> Option<Self> {
        let verified = Verified::default();
        (!keys.is_empty()).then_some(Self { keys, verified })
    }

    /// Checks a token's signature by the key it names, or by those that could be meant.
    pub fn verify(&self, token: &Token<'_>) -> Result<(), KeyError> {
        self.verified.or_check(token.text, || self.check(token))
    }

    fn check(&self, token: &Token<'_>) -> Result<(), KeyError> {
        let mut named = self
            .keys
            .iter()
            .filter(|key| key.may_have_signed(token))
            .peekable();
        if named.peek().is_none() {
            return Err(KeyError::UnknownKey);
        }
        let mut fitting = named
            .filter(|key| key.public.algorithm() == token.algorithm)
            .peekable();
        if fitting.peek().is_none() {
            return Err(KeyError::Algorithm);
        }
        let good = fitting
            .take(MAX_TRIES)
            .any(|key| key.public.verifies(token));
        if good {
            Ok(())
        } else {
            Err(KeyError::Signature)
        }
    }
}

impl Key {
    fn may_have_signed(&self, token: &Token<'_>) -> bool {
        match (&self.kid, &token.kid) {
            (Some(own), Some(named)) => own == named,
            _ => true,
        }
    }
}

impl PublicKey {
    /// An RSA key of a sound size, from its numbers in big-endian bytes.
    pub fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let modulus = BoxedUint::from_be_slice_vartime(modulus);
        let exponent = BoxedUint::from_be_slice_vartime(exponent);
        let key = rsa::PublicKey::new_with_size_limits(modulus, exponent, RSA_BITS).ok()?;
        Some(Self::Rsa(Box::new(pkcs1v15::VerifyingKey::new(key))))
    }

    /// A P-256 key from its coordinates.
    pub fn p256(x: &[u8], y: &[u8]) -> Option<Self> {
        let (x, y): ([u8; 32], [u8; 32]) = (x.try_into().ok()?, y.try_into().ok()?);
        let point = [&[4][..], &x, &y].concat();
        let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(&point).ok()?;
        Some(Self::P256(Box::new(key)))
    }

    /// An Ed25519 key from its 32 bytes.
    pub fn ed25519(bytes: &[u8]) -> Option<Self> {
        let key = ed25519_dalek::VerifyingKey::try_from(bytes).ok()?;
        Some(Self::Ed25519(Box::new(key)))
    }

    fn of_pem(pem: &str) -> Option<Self> {
        let rsa = rsa::PublicKey::from_public_key_pem(pem).ok();
        if let Some(key) = rsa.or_else(|| rsa::PublicKey::from_pkcs1_pem(pem).ok()) {
            return Self::rsa(&key.n().to_be_bytes(), &key.e().to_be_bytes());
        }
        if let Ok(key) = p256::ecdsa::VerifyingKey::from_public_key_pem(pem) {
            return Some(Self::P256(Box::new(key)));
        }
        let key = ed25519_dalek::VerifyingKey::from_public_key_pem(pem).ok()?;
        Some(Self::Ed25519(Box::new(key)))
    }

    /// The one algorithm this key checks.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa(_) => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
            Self::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    fn verifies(&self, token: &Token<'_>) -> bool {
        let (message, signature) = (token.signed, token.signature.as_slice());
        match self {
            Self::Rsa(key) => pkcs1v15::Signature::try_from(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Self::P256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Self::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
        }
    }
}
