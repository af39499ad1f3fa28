use std::fmt;

use super::jwt;
use super::key::ApiKey;
use crate::http::ApiError;
use crate::http::incoming::Incoming;
use crate::settings::Settings;

/// What a caller shows.
#[derive(Clone, PartialEq)]
pub enum Credential {
    /// A well-formed API key.
    Key(ApiKey),
    /// Something with the three parts of a JSON Web Token.
    Jwt(String),
    /// Something else.
    Other,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Key(*****)",
            Self::Jwt(_) => "Jwt(*****)",
            Self::Other => "Other",
        })
    }
}

/// Header lines longer than this hold no credential of ours.
const MAX_LENGTH: usize = 8_192;

/// The credential of a call: `Authorization: Bearer`, `x-api-key` or `api-key`, never the query. Where
/// tokens are taken, Cloudflare Access's counts if nothing better was shown.
pub fn of(request: &Incoming, settings: &Settings) -> Result<Credential, ApiError> {
    let get = |name: &str| request.header(name).map(str::to_owned);
    of_headers(get, settings.jwt.is_some())
}

/// The credential among headers; `takes_tokens`: whether tokens are taken at all.
pub fn of_headers(
    get: impl Fn(&str) -> Option<String>,
    takes_tokens: bool,
) -> Result<Credential, ApiError> {
    let shown = [
        bearer(get("authorization")),
        get("x-api-key"),
        get("api-key"),
    ];
    let chosen = choose(shown.into_iter().flatten().collect());
    let access = takes_tokens.then(|| get("cf-access-jwt-assertion"));
    or_access(chosen, access.flatten().filter(|token| !token.is_empty()))
}

/// The token of an `Authorization: Bearer` header; the scheme's case doesn't matter.
pub fn bearer(header: Option<String>) -> Option<String> {
    let header = header?;
    let (scheme, token) = header.split_once(' ').unwrap_or((header.as_str(), ""));
    Some(if scheme.eq_ignore_ascii_case("bearer") {
        token.trim().to_owned()
    } else {
        header
    })
}

/// Several different credentials are a 400, unless just one of them is a key of ours, or failing that a
/// token: SDKs like to send a dummy beside it.
fn choose(mut shown: Vec<String>) -> Result<Credential, ApiError> {
    shown.retain(|s| !s.is_empty());
    shown.dedup();
    if shown.iter().any(|s| s.len() > MAX_LENGTH) {
        return Err(ApiError::BadCredential("malformed"));
    }
    if let [only] = shown.as_slice() {
        return read(only);
    }
    let kinds: [fn(&str) -> bool; 2] = [ApiKey::has_prefix, jwt::looks_like_one];
    for is_ours in kinds {
        let mut ours = shown.iter().filter(|s| is_ours(s));
        match (ours.next(), ours.next()) {
            (Some(one), None) => return read(one),
            (Some(_), Some(_)) => break,
            (None, _) => {}
        }
    }
    Err(if shown.is_empty() {
        ApiError::NoCredential
    } else {
        ApiError::invalid("Several different credentials were sent.")
    })
}

fn read(credential: &str) -> Result<Credential, ApiError> {
    if ApiKey::has_prefix(credential) {
        let key = ApiKey::parse(credential).ok_or(ApiError::BadCredential("malformed"))?;
        return Ok(Credential::Key(key));
    }
    Ok(if jwt::looks_like_one(credential) {
        Credential::Jwt(credential.to_owned())
    } else {
        Credential::Other
    })
}

fn or_access(
    chosen: Result<Credential, ApiError>,
    access: Option<String>,
) -> Result<Credential, ApiError> {
    match (chosen, access) {
        (Err(ApiError::NoCredential) | Ok(Credential::Other), Some(token)) => {
            if token.len() > MAX_LENGTH {
                return Err(ApiError::BadCredential("malformed"));
            }
            Ok(Credential::Jwt(token))
        }
        (chosen, _) => chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "slc_live_7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U3YCseo";

    fn chosen(shown: &[&str]) -> Result<Credential, ApiError> {
        choose(shown.iter().map(|s| (*s).to_owned()).collect())
    }

    #[test]
    fn our_key_wins_over_a_dummy() {
        assert!(matches!(chosen(&["dummy", KEY]), Ok(Credential::Key(_))));
        assert!(matches!(chosen(&["a", "b"]), Err(ApiError::Invalid { .. })));
        assert_eq!(chosen(&[]), Err(ApiError::NoCredential));
        assert_eq!(
            chosen(&["slc_live_x"]),
            Err(ApiError::BadCredential("malformed"))
        );
    }

    #[test]
    fn a_token_wins_over_a_dummy_and_a_key_over_a_token() {
        let token = || Ok(Credential::Jwt("e30.e30.x".to_owned()));
        assert_eq!(chosen(&["e30.e30.x"]), token());
        assert_eq!(chosen(&["dummy", "e30.e30.x"]), token());
        assert!(matches!(
            chosen(&["e30.e30.x", KEY]),
            Ok(Credential::Key(_))
        ));
        let two = chosen(&["e30.e30.x", "e30.e30.y"]);
        assert!(matches!(two, Err(ApiError::Invalid { .. })));
        assert_eq!(
            chosen(&["e30.e30."]),
            Ok(Credential::Jwt("e30.e30.".to_owned()))
        );
        assert_eq!(chosen(&["a.b"]), Ok(Credential::Other));
        assert_eq!(chosen(&["a.b.c.d.e"]), Ok(Credential::Other));
    }

    #[test]
    fn the_token_of_cloudflare_access_counts_if_nothing_better_was_shown() {
        let with_access = |shown: &[&str]| or_access(chosen(shown), Some("e30.e30.x".to_owned()));
        let token = Ok(Credential::Jwt("e30.e30.x".to_owned()));
        assert_eq!(with_access(&[]), token);
        assert_eq!(with_access(&["dummy"]), token);
        assert!(matches!(with_access(&[KEY]), Ok(Credential::Key(_))));
        assert_eq!(
            with_access(&["slc_live_x"]),
            Err(ApiError::BadCredential("malformed"))
        );
        assert_eq!(or_access(chosen(&[]), None), Err(ApiError::NoCredential));
    }

    #[test]
    fn an_empty_assertion_is_none() {
        let none = of_headers(|name| name.starts_with("cf-").then(String::new), true);
        assert_eq!(none, Err(ApiError::NoCredential));
    }

    #[test]
    fn no_credential_prints() {
        for shown in [KEY, "e30.e30.x"] {
            assert!(!format!("{:?}", chosen(&[shown])).contains(shown));
        }
    }

    #[test]
    fn the_scheme_is_read_in_any_case() {
        assert_eq!(bearer(Some("bEaReR  x ".into())), Some("x".into()));
    }
}
