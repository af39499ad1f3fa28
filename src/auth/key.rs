//! API keys: `slc_live_`, 30 random base62 digits, 6 digits of checksum. A key with a bad checksum is
//! turned away before anything is read; only its HMAC is ever stored.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::http::ids;
use crate::settings::Secret;

const PREFIX: &str = "slc_live_";
const RANDOM: usize = 30;
const CHECKSUM: usize = 6;
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// A well-formed API key.
#[derive(Clone, PartialEq)]
pub struct ApiKey(String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(*****)")
    }
}

impl ApiKey {
    /// A fresh key.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let random = ids::random_base62(RANDOM)?;
        let checksum = checksum(&random);
        Ok(Self(format!("{PREFIX}{random}{checksum}")))
    }

    /// Whether this looks like a key of ours, good or not.
    pub fn has_prefix(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// The key, if its form and its checksum are right.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let well_formed =
            digits.len() == RANDOM + CHECKSUM && digits.bytes().all(|b| b.is_ascii_alphanumeric());
        if !well_formed {
            return None;
        }
        let (random, sum) = digits.split_at_checked(RANDOM)?;
        (checksum(random) == sum).then(|| Self(text.to_owned()))
    }

    /// What the ledger knows the key by: hex of HMAC-SHA-256 under the pepper.
    pub fn hash(&self, pepper: &Secret) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(pepper.reveal().as_bytes()).ok()?;
        mac.update(self.0.as_bytes());
        Some(ids::hex(&mac.finalize().into_bytes()))
    }

    /// The last four digits, to recognise it by.
    pub fn last4(&self) -> &str {
        self.0.get(self.0.len().saturating_sub(4)..).unwrap_or("")
    }

    /// The key itself, shown once when it is made.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

fn checksum(random: &str) -> String {
    let digits = base62::encode(CRC.checksum(random.as_bytes()));
    format!("{digits:0>width$}", width = CHECKSUM)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTOR: &str = "slc_live_7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U3YCseo";

    #[test]
    fn checksum_vector() {
        assert_eq!(checksum("7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U"), "3YCseo");
        assert!(ApiKey::parse(VECTOR).is_some());
    }

    #[test]
    fn a_changed_digit_is_noticed() {
        assert!(ApiKey::parse(&VECTOR.replace("7Hq2", "7Hq3")).is_none());
        assert!(ApiKey::parse("slc_live_").is_none());
        assert!(ApiKey::parse("slc_live_ééééééééééééééééééééééééééééééééé").is_none());
    }

    #[test]
    fn generated_keys_parse_and_hide() {
        let key = ApiKey::generate().unwrap();
        assert!(ApiKey::parse(key.reveal()).is_some());
        assert!(!format!("{key:?}").contains(key.reveal()));
        assert_eq!(key.last4().len(), 4);
    }
}
