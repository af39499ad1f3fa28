//! Paths in one spelling, so that what is matched, limited and sent on is one and the same.
//!
//! Servers disagree about what `%2e%2e`, `%2f`, `\`, `;x` and `%252f` mean. Whatever two of them might
//! read in two ways is refused here; what all of them read alike (an escaped letter, a doubled slash)
//! is brought into one form.

use thiserror::Error;

/// First segments that are the gateway's own; no operator can protect a path below them.
const RESERVED: [&str; 9] = [
    "v1",
    "api",
    "admin",
    "metrics",
    "healthz",
    "readyz",
    "openapi.json",
    "console",
    "me",
];

/// Why a path has no single meaning.
#[derive(Clone, Copy, Debug, Error, Eq, PartialEq)]
pub enum Ambiguous {
    /// It does not begin with a slash.
    #[error("does not begin with `/`")]
    Relative,
    /// A segment is `.` or `..`, escaped or not.
    #[error("has a segment `.` or `..`")]
    Dots,
    /// An escaped slash, or a backslash in any form.
    #[error("has an escaped slash or a backslash")]
    Slash,
    /// A semicolon, in any form: some servers cut the segment there.
    #[error("has a `;`")]
    Parameter,
    /// A control character or a space, or bytes that are no UTF-8.
    #[error("has a character that no path may hold")]
    Character,
    /// A `%` without two hexadecimal digits behind it.
    #[error("has a broken escape")]
    Escape,
    /// An escape of an escape: whoever decodes twice reads another path.
    #[error("is escaped twice")]
    Twice,
}

/// An absolute path without a query, in its one spelling.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Path(String);

impl Path {
    /// The one spelling of `raw`: slashes single, unreserved characters bare, other escapes in upper
    /// case. A trailing slash and the case of letters are kept: they tell resources apart.
    pub fn normalise(raw: &str) -> Result<Self, Ambiguous> {
        let raw = raw.strip_prefix('/').ok_or(Ambiguous::Relative)?;
        let mut path = String::with_capacity(raw.len() + 1);
        for segment in raw.split('/').filter(|segment| !segment.is_empty()) {
            path.push('/');
            path.push_str(&one_segment(segment)?);
        }
        if path.is_empty() || raw.ends_with('/') {
            path.push('/');
        }
        Ok(Self(path))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the gateway's own, in whatever case.
    pub fn is_reserved(&self) -> bool {
        let first = self.0.split('/').nth(1).unwrap_or("");
        RESERVED.iter().any(|name| name.eq_ignore_ascii_case(first))
    }
}

/// Why a prefix can't be protected.
#[derive(Clone, Copy, Debug, Error, Eq, PartialEq)]
pub enum BadPrefix {
    /// It is not written in the one spelling.
    #[error("must be a path such as `/reports`, without escapes, doubled slashes or dots")]
    Spelling,
    /// Only letters, digits, `-`, `.`, `_` and `~` are the same in every spelling.
    #[error("may hold only letters, digits, `-`, `.`, `_`, `~` and `/`")]
    Character,
    /// It is the gateway's own.
    #[error("is the gateway's own")]
    Reserved,
}

/// What all paths of one protected route begin with, in whole segments.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Prefix(String);

impl Prefix {
    /// The prefix written as `text`; a trailing slash makes no difference.
    pub fn parse(text: &str) -> Result<Self, BadPrefix> {
        if !text.bytes().all(|b| b == b'/' || is_unreserved(b)) {
            return Err(BadPrefix::Character);
        }
        let path = Path::normalise(text).map_err(|_| BadPrefix::Spelling)?;
        if path.0 != text {
            return Err(BadPrefix::Spelling);
        }
        if path.is_reserved() {
            return Err(BadPrefix::Reserved);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The prefix without a trailing slash; `/` is empty.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What of `path` lies below this prefix, with its leading slash; `None` if it isn't below it.
    pub fn rest_of<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let rest = path.0.strip_prefix(self.0.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Whether `path` lies below this prefix for a server that doesn't tell upper from lower case.
    pub fn covers_in_any_case(&self, path: &Path) -> bool {
        let Some((head, rest)) = path.0.split_at_checked(self.0.len()) else {
            return false;
        };
        head.eq_ignore_ascii_case(&self.0) && (rest.is_empty() || rest.starts_with('/'))
    }
}

fn one_segment(segment: &str) -> Result<String, Ambiguous> {
    let mut spelled = String::with_capacity(segment.len());
    let mut meant = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            check(byte, b'!')?;
            if !byte.is_ascii() {
                return Err(Ambiguous::Character);
            }
            spelled.push(char::from(byte));
            meant.push(byte);
            continue;
        }
        let byte = escaped(bytes.next(), bytes.next())?;
        if is_unreserved(byte) {
            spelled.push(char::from(byte));
        } else {
            check(byte, b' ')?;
            spelled.push_str(&format!("%{byte:02X}"));
        }
        meant.push(byte);
    }
    if meant.windows(3).any(is_escape) {
        return Err(Ambiguous::Twice);
    }
    match std::str::from_utf8(&meant) {
        Ok("." | "..") => Err(Ambiguous::Dots),
        Ok(_) => Ok(spelled),
        Err(_) => Err(Ambiguous::Character),
    }
}

/// Whether a segment may mean this byte; of ASCII, none below `least`.
const fn check(byte: u8, least: u8) -> Result<(), Ambiguous> {
    match byte {
        b'/' | b'\\' => Err(Ambiguous::Slash),
        b';' => Err(Ambiguous::Parameter),
        0x7f => Err(Ambiguous::Character),
        _ if byte < least => Err(Ambiguous::Character),
        _ => Ok(()),
    }
}

fn escaped(high: Option<u8>, low: Option<u8>) -> Result<u8, Ambiguous> {
    let digit = |byte: Option<u8>| {
        let value = byte.and_then(|b| char::from(b).to_digit(16));
        value
            .and_then(|v| u8::try_from(v).ok())
            .ok_or(Ambiguous::Escape)
    };
    Ok(digit(high)? << 4 | digit(low)?)
}

fn is_escape(three: &[u8]) -> bool {
    matches!(three, [b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelled(raw: &str) -> Result<String, Ambiguous> {
        Path::normalise(raw).map(|path| path.0)
    }

    #[test]
    fn spellings_that_all_servers_read_alike_become_one() {
        for raw in [
            "/reports/x",
            "//reports///x",
            "/%72eports/x",
            "/repor%74s/%78",
        ] {
            assert_eq!(spelled(raw).as_deref(), Ok("/reports/x"), "{raw}");
        }
        for (raw, one) in [
            ("/", "/"),
            ("///", "/"),
            ("/a/", "/a/"),
            ("/a%2etxt", "/a.txt"),
            ("/%c3%bc%20%3f", "/%C3%BC%20%3F"),
            ("/100%25", "/100%25"),
            ("/a...b/...", "/a...b/..."),
        ] {
            assert_eq!(spelled(raw).as_deref(), Ok(one), "{raw}");
        }
    }

    #[test]
    fn spellings_that_two_servers_may_read_in_two_ways_are_refused() {
        for (raw, why) in [
            ("", Ambiguous::Relative),
            ("reports", Ambiguous::Relative),
            ("/a/../b", Ambiguous::Dots),
            ("/./a", Ambiguous::Dots),
            ("/a/%2e%2E/b", Ambiguous::Dots),
            ("/a/.%2e", Ambiguous::Dots),
            ("/a%2fb", Ambiguous::Slash),
            ("/a%5Cb", Ambiguous::Slash),
            ("/a\\b", Ambiguous::Slash),
            ("/a;x=1/b", Ambiguous::Parameter),
            ("/..;/a", Ambiguous::Parameter),
            ("/a%3bx", Ambiguous::Parameter),
            ("/a%00", Ambiguous::Character),
            ("/a%0d%0a", Ambiguous::Character),
            ("/a%7f", Ambiguous::Character),
            ("/a b", Ambiguous::Character),
            ("/ü", Ambiguous::Character),
            ("/%c0%af", Ambiguous::Character),
            ("/%ff", Ambiguous::Character),
            ("/%", Ambiguous::Escape),
            ("/%4", Ambiguous::Escape),
            ("/%zz", Ambiguous::Escape),
            ("/%252e%252e/", Ambiguous::Twice),
            ("/%25%32%66", Ambiguous::Twice),
        ] {
            assert_eq!(spelled(raw), Err(why), "{raw}");
        }
    }

    #[test]
    fn a_prefix_matches_whole_segments() {
        let reports = Prefix::parse("/reports").unwrap();
        let rest = |raw: &str| {
            let path = Path::normalise(raw).unwrap();
            reports.rest_of(&path).map(str::to_owned)
        };
        assert_eq!(rest("/reports").as_deref(), Some(""));
        assert_eq!(rest("/reports/").as_deref(), Some("/"));
        assert_eq!(rest("/reports/x/y").as_deref(), Some("/x/y"));
        for other in ["/reportsx", "/report", "/Reports", "/x/reports", "/"] {
            assert_eq!(rest(other), None, "{other}");
        }
        let root = Prefix::parse("/").unwrap();
        assert_eq!(
            root.rest_of(&Path::normalise("/any/thing").unwrap()),
            Some("/any/thing")
        );
    }

    #[test]
    fn what_is_the_gateways_own_cant_be_protected() {
        for own in [
            "/v1",
            "/V1/x",
            "/api/limits",
            "/admin",
            "/openapi.json",
            "/me/",
            "/console",
        ] {
            assert_eq!(Prefix::parse(own), Err(BadPrefix::Reserved), "{own}");
            assert!(Path::normalise(own).unwrap().is_reserved());
        }
        assert!(Prefix::parse("/v12").is_ok());
        assert!(Path::normalise("/%76%31/chat").unwrap().is_reserved());
    }

    #[test]
    fn a_prefix_has_only_characters_with_one_spelling() {
        for bad in [
            "", "reports", "/a//b", "/a/../b", "/a%20b", "/a@b", "/a b", "/ü", "/a?b", "/a;b",
        ] {
            assert!(Prefix::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_one_spelling_is_its_own_spelling(raw in "(/|%2[ef5]|%[0-9a-fA-F]{2}|[a-zA-Z.;\\\\%ü ~@]){0,12}") {
            if let Ok(path) = Path::normalise(&raw) {
                prop_assert_eq!(Path::normalise(&path.0), Ok(path.clone()));
                prop_assert!(path.0.starts_with('/') && !path.0.contains("//"));
            }
        }

        #[test]
        fn no_spelling_hides_a_dot_segment_or_a_separator(raw in "/(/|%2[eEfF]|%5[cC]|%3[bB]|%25|[a.;\\\\25eEfF%]){0,10}") {
            if let Ok(path) = Path::normalise(&raw) {
                let decoded = percent_decoded(&path.0);
                prop_assert!(!decoded.contains(['\\', ';']));
                prop_assert_eq!(decoded.matches('/').count(), path.0.matches('/').count());
                prop_assert!(!decoded.split('/').any(|segment| segment == "." || segment == ".."));
            }
        }

        #[test]
        fn escaping_a_prefix_never_dodges_it(escape in prop::collection::vec(any::<bool>(), 9), tail in "(/[a-z]{0,4}){0,3}") {
            let plain = "/reports/";
            let written: String = plain.chars().zip(escape).map(|(c, escape)| {
                if escape && c != '/' { format!("%{:02x}", u32::from(c)) } else { c.to_string() }
            }).collect();
            let path = Path::normalise(&format!("{written}{tail}")).unwrap();
            prop_assert!(Prefix::parse("/reports").unwrap().rest_of(&path).is_some());
        }

        #[test]
        fn nothing_panics(raw in any::<String>()) {
            let _ = Path::normalise(&raw);
            let _ = Prefix::parse(&raw);
        }
    }

    fn percent_decoded(text: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, tail)) = rest.split_first() {
            let escape = (*first == b'%').then(|| tail.get(..2)).flatten();
            let value =
                escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
            bytes.push(value.unwrap_or(*first));
            rest = if value.is_some() { &tail[2..] } else { tail };
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
