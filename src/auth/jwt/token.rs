use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::claims::Claims;
use super::keys::KeyError;
use crate::json::parse_strict;
use crate::settings::Secret;

/// The algorithms there are. `none` and all others are unknown here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
    /// HMAC with SHA-256.
    Hs256,
}

impl Algorithm {
    /// The algorithm of this name (RFC 7518, 8037, 9864).
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            "HS256" => Some(Self::Hs256),
            _ => None,
        }
    }
}

/// A token taken apart. Nothing in it is to be believed until its signature is checked.
pub struct Token<'a> {
    /// The whole of it.
    pub text: &'a str,
    /// What its header says it is signed with.
    pub algorithm: Algorithm,
    /// The id of the key, as its header says.
    pub kid: Option<String>,
    /// What the signature covers.
    pub signed: &'a [u8],
    /// The signature.
    pub signature: Vec<u8>,
    payload: &'a str,
}

impl<'a> Token<'a> {
    /// Takes a token apart, or says why it can't be one.
    pub fn parse(text: &'a str) -> Result<Self, &'static str> {
        let (signed, signature) = text.rsplit_once('.').ok_or("malformed")?;
        let (header, payload) = signed.split_once('.').ok_or("malformed")?;
        if payload.contains('.') {
            return Err("malformed");
        }
        let (algorithm, kid) = read_header(header)?;
        Ok(Self {
            text,
            algorithm,
            kid,
            signed: signed.as_bytes(),
            signature: decode(signature).ok_or("malformed")?,
            payload,
        })
    }

    /// Checks the signature as one by HS256, in constant time.
    pub fn verify_by_secret(&self, secret: &Secret) -> Result<(), KeyError> {
        let mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes());
        let mut mac = mac.map_err(|_| KeyError::Signature)?;
        mac.update(self.signed);
        mac.verify_slice(&self.signature)
            .map_err(|_| KeyError::Signature)
    }

    /// What it claims; for tokens whose signature is good.
    pub fn claims(&self) -> Result<Claims, &'static str> {
        let claims = decode(self.payload).and_then(|bytes| parse_strict(&bytes).ok());
        claims.map(Claims::new).ok_or("malformed")
    }
}

/// Whether a credential has a token's three parts.
pub fn looks_like_one(credential: &str) -> bool {
    let mut parts = credential.split('.');
    let filled = |part: Option<&str>| part.is_some_and(|p| !p.is_empty());
    filled(parts.next()) && filled(parts.next()) && parts.next().is_some() && parts.next().is_none()
}

/// Bytes in base64url; padding and stray bits are refused, so that a text has one spelling.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// A header with `crit` asks for an extension to be understood, and none is (RFC 7515, 4.1.11).
fn read_header(header: &str) -> Result<(Algorithm, Option<String>), &'static str> {
    let bytes = decode(header).ok_or("malformed")?;
    let header = parse_strict(&bytes).map_err(|_| "malformed")?;
    let text = |name| header.get(name).and_then(|value| value.as_str());
    if header.get("crit").is_some() {
        return Err("malformed");
    }
    let algorithm = text("alg").and_then(Algorithm::named).ok_or("algorithm")?;
    Ok((algorithm, text("kid").map(str::to_owned)))
}
