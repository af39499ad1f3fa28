use serde::Deserialize;
use serde_json::Value;

use super::keys::{Key, PublicKey};
use super::token::{Algorithm, decode};

/// A JSON Web Key (RFC 7517, 7518, 8037), as far as it matters here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The key, if it is of a kind that is used here, meant for signatures and for its kind's algorithm.
pub fn read(json: &Value) -> Option<Key> {
    let jwk = Jwk::deserialize(json).ok()?;
    let public = jwk.public_key()?;
    let other = |alg: &String| Algorithm::named(alg) != Some(public.algorithm());
    if !jwk.is_for_signatures() || jwk.alg.as_ref().is_some_and(other) {
        return None;
    }
    Some(Key {
        kid: jwk.kid,
        public,
    })
}

impl Jwk {
    fn is_for_signatures(&self) -> bool {
        let usage = self.usage.as_deref().is_none_or(|usage| usage == "sig");
        let operations = self
            .key_ops
            .as_ref()
            .is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        usage && operations
    }

    fn public_key(&self) -> Option<PublicKey> {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => PublicKey::rsa(&bytes(&self.n)?, &bytes(&self.e)?),
            ("EC", Some("P-256")) => PublicKey::p256(&bytes(&self.x)?, &bytes(&self.y)?),
            ("OKP", Some("Ed25519")) => PublicKey::ed25519(&bytes(&self.x)?),
            _ => None,
        }
    }
}

fn bytes(member: &Option<String>) -> Option<Vec<u8>> {
    decode(member.as_deref()?)
}
