//! What a service holds between asking and settling: whose reservation it is, sealed so that nobody can
//! settle or release what was never given to them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::limits::OperationId;
use crate::settings::Secret;

const PREFIX: &str = "rsv_";
/// Keeps these seals apart from everything else that is made with the same secret.
const PURPOSE: &[u8] = b"sluice reservation 1\n";
const SEAL: usize = 32;

/// A reservation of one user.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationId {
    /// Whose.
    pub user: String,
    /// Tokens it was asked with.
    pub tokens: u64,
    /// The operation that reserved.
    pub operation: OperationId,
}

impl ReservationId {
    /// The text a service keeps; `None` if the secret can't be used.
    pub fn seal(&self, secret: &Secret) -> Option<String> {
        let content = format!("{}\n{}\n{}", self.user, self.tokens, self.operation.0);
        let mut bytes = mac(secret, content.as_bytes())?
            .finalize()
            .into_bytes()
            .to_vec();
        bytes.extend_from_slice(content.as_bytes());
        Some(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// What `text` stands for; `None` if it was not sealed with this secret.
    pub fn open(text: &str, secret: &Secret) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (seal, content) = bytes.split_at_checked(SEAL)?;
        mac(secret, content)?.verify_slice(seal).ok()?;
        let mut parts = std::str::from_utf8(content).ok()?.splitn(3, '\n');
        Some(Self {
            user: parts.next()?.to_owned(),
            tokens: parts.next()?.parse().ok()?,
            operation: OperationId(parts.next()?.to_owned()),
        })
    }
}

fn mac(secret: &Secret, content: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).ok()?;
    mac.update(PURPOSE);
    mac.update(content);
    Some(mac)
}
