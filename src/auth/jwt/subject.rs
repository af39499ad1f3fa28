use sha2::{Digest, Sha256};

use super::super::front::is_user_id;
use crate::http::ids;

/// Whom a token names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subject<'a> {
    /// A `sub`.
    User(&'a str),
    /// The `common_name` of a service token.
    Service(&'a str),
}

/// Hex digits that stand for the issuer.
const ISSUER_DIGITS: usize = 12;

/// The user's id here: `jwt:{issuer}:{sub}`, or `jwt:{issuer}:service:{common_name}`, where `{issuer}` is
/// the first 12 hex digits of its SHA-256. No two issuers share a user, and no id an operator would choose
/// is one of these. A subject that is too long, or not plain enough to stand in a path, is replaced by its
/// hash: `jwt:{issuer}:sha256:{hex}`.
pub fn user_id(issuer: &str, subject: &Subject<'_>) -> String {
    let (kind, name) = match *subject {
        Subject::User(sub) => ("", sub),
        Subject::Service(name) => ("service:", name),
    };
    let issuer = digest(issuer);
    let issuer = issuer.get(..ISSUER_DIGITS).unwrap_or(&issuer);
    let id = format!("jwt:{issuer}:{kind}{name}");
    if is_user_id(&id) && name.bytes().all(is_plain) {
        return id;
    }
    format!("jwt:{issuer}:{kind}sha256:{}", digest(name))
}

fn digest(text: &str) -> String {
    ids::hex(&Sha256::digest(text.as_bytes()))
}

/// A colon is not plain: it divides the parts of an id.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'@' | b'|' | b'+')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://id.example/";

    fn user(sub: &str) -> String {
        user_id(ISSUER, &Subject::User(sub))
    }

    #[test]
    fn ids_stay_as_they_are_for_ever() {
        assert_eq!(user("auth0|5f7c8ec7"), "jwt:cc529d844da1:auth0|5f7c8ec7");
        let service = user_id(ISSUER, &Subject::Service("e36.access"));
        assert_eq!(service, "jwt:cc529d844da1:service:e36.access");
    }

    #[test]
    fn no_two_subjects_share_an_id() {
        let hashed = user("a b")
            .strip_prefix("jwt:cc529d844da1:")
            .unwrap()
            .to_owned();
        let ids = [
            user("ann"),
            user_id("https://id.example", &Subject::User("ann")),
            user_id(ISSUER, &Subject::Service("ann")),
            user("service:ann"),
            user("a b"),
            user(&hashed),
            user("a/b"),
            user("é"),
            user(&"x".repeat(4_000)),
            user(&"x".repeat(4_001)),
        ];
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        for id in &ids {
            assert!(is_user_id(id) && !id.contains(['/', '%', '?', '#']), "{id}");
        }
    }
}
