//! Credentials and headers as bytes of any kind (see [`crate::fuzzing`]).

use super::credential::{Credential, bearer, of_headers};
use super::front::is_user_id;
use super::key::ApiKey;
use crate::gateway::headers_to_upstream;

const PREFIX: &str = "slc_live_";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM: usize = 30;

/// Keys: a text as it is, and the key whose random digits the bytes choose. A good key is no longer one
/// when any character is another, two neighbours change places, or something is missing or added.
pub fn key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if ApiKey::parse(&text).is_some() {
        withstands_changes(&text);
    }
    let digits = bytes.iter().chain(std::iter::repeat(&0)).take(RANDOM);
    let digits: String = digits
        .filter_map(|byte| DIGITS.get(usize::from(*byte) % DIGITS.len()))
        .map(|digit| char::from(*digit))
        .collect();
    let made = format!("{PREFIX}{digits}{}", checksum(digits.as_bytes()));
    assert!(
        ApiKey::parse(&made).is_some(),
        "a key's own checksum is not taken"
    );
    withstands_changes(&made);
}

fn withstands_changes(good: &str) {
    for (at, own) in good.char_indices() {
        let (before, rest) = good.split_at_checked(at).unwrap_or((good, ""));
        let after = rest.get(own.len_utf8()..).unwrap_or_default();
        for other in ['0', 'a', 'Z', '_', 'é'].into_iter().chain(neighbour(own)) {
            let changed = format!("{before}{other}{after}");
            assert!(
                other == own || ApiKey::parse(&changed).is_none(),
                "{changed}"
            );
        }
        assert!(ApiKey::parse(&format!("{before}{after}")).is_none());
        let swapped: Option<char> = after.chars().next();
        if let Some(next) = swapped.filter(|next| *next != own) {
            let after = after.get(next.len_utf8()..).unwrap_or_default();
            let changed = format!("{before}{next}{own}{after}");
            assert!(ApiKey::parse(&changed).is_none(), "{changed}");
        }
    }
    assert!(ApiKey::parse(&format!("{good}0")).is_none());
    assert!(ApiKey::parse(&format!(" {good}")).is_none());
}

/// The digit after this one.
fn neighbour(digit: char) -> Option<char> {
    let at = DIGITS.iter().position(|d| char::from(*d) == digit)?;
    DIGITS.get((at + 1) % DIGITS.len()).map(|d| char::from(*d))
}

/// CRC-32 bit by bit, in base62 by hand: the key's own arithmetic is not asked about itself.
fn checksum(bytes: &[u8]) -> String {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0xedb8_8320;
            }
        }
    }
    let mut rest = usize::try_from(!crc).unwrap_or_default();
    let mut digits: Vec<u8> = Vec::new();
    for _ in 0..6 {
        digits.extend(DIGITS.get(rest % DIGITS.len()));
        rest /= DIGITS.len();
    }
    digits.into_iter().rev().map(char::from).collect()
}

/// Headers as lines of `name: value`. Whoever calls is taken by a key of ours or a token or not at all, and
/// no credential and nothing about the connection goes up to a provider.
pub fn headers(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let headers: Vec<_> = lines
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let get = |wanted: &str| {
        let found = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.clone())
    };
    taken_or_not(get);
    if let Some(user) = get("x-user-id") {
        let plain =
            !user.is_empty() && user.len() <= 128 && user.bytes().all(|b| (33..127).contains(&b));
        assert!(is_user_id(&user) == plain);
    }
    for (name, _) in headers_to_upstream(&headers) {
        let secret = [
            "authorization",
            "x-api-key",
            "api-key",
            "cookie",
            "x-gateway-secret",
            "cf-access-jwt-assertion",
        ];
        let connection = [
            "connection",
            "transfer-encoding",
            "upgrade",
            "te",
            "host",
            "content-length",
        ];
        assert!(name == name.to_ascii_lowercase());
        assert!(
            !secret.contains(&name.as_str()) && !connection.contains(&name.as_str()),
            "{name}"
        );
    }
}

fn taken_or_not(get: impl Fn(&str) -> Option<String> + Copy) {
    let mut shown = [
        "authorization",
        "x-api-key",
        "api-key",
        "cf-access-jwt-assertion",
    ]
    .into_iter()
    .filter_map(get);
    match of_headers(get, true) {
        Ok(Credential::Key(key)) => {
            assert!(ApiKey::parse(key.reveal()).is_some());
            assert!(shown.any(|value| bearer(Some(value)).as_deref() == Some(key.reveal())));
        }
        Ok(Credential::Jwt(token)) => {
            assert!(!token.is_empty());
            assert!(shown.any(|value| value.contains(&token)));
        }
        Ok(Credential::Other) | Err(_) => {}
    }
}
