//! Paths with one id in them.

/// What stands in the path where the pattern has its braces: `{id}` for one segment, `{id*}` for all that
/// follow. Empty if it has none, `None` if the path is another one. Segments are told apart before escapes
/// are read: an id may hold a slash.
pub fn capture(pattern: &str, path: &str) -> Option<String> {
    if !pattern.contains('{') {
        return (pattern == path).then(String::new);
    }
    let mut id = String::new();
    let mut rest = path.split('/');
    for part in pattern.split('/') {
        if part.ends_with("*}") {
            let tail: Vec<_> = rest.by_ref().collect();
            id = unescaped(&tail.join("/"))?;
            continue;
        }
        let segment = rest.next()?;
        if part.starts_with('{') {
            id = unescaped(segment)?;
        } else if part != segment {
            return None;
        }
    }
    rest.next().is_none().then_some(id)
}

/// The id an escaped segment means; `None` if it is empty or no text.
fn unescaped(segment: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(segment)
        .decode_utf8()
        .ok()?;
    (!text.is_empty()).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_whole_segments() {
        let user = |path| capture("/admin/users/{user_id}/keys", path);
        assert_eq!(
            user("/admin/users/a%2Fb%40c/keys").as_deref(),
            Some("a/b@c")
        );
        for other in [
            "/admin/users/a/b/keys",
            "/admin/users//keys",
            "/admin/users/a/keys/",
            "/x",
            "",
        ] {
            assert_eq!(user(other), None, "{other}");
        }
        assert_eq!(user("/admin/users/%ff/keys"), None);
        let model = |path| capture("/admin/models/{model*}", path);
        assert_eq!(
            model("/admin/models/@cf/meta/llama").as_deref(),
            Some("@cf/meta/llama")
        );
        assert_eq!(
            model("/admin/models/%40cf%2Fmeta").as_deref(),
            Some("@cf/meta")
        );
        assert_eq!(model("/admin/models/"), None);
        assert_eq!(model("/admin/models"), None);
        assert_eq!(capture("/admin/plans", "/admin/plans").as_deref(), Some(""));
        assert_eq!(capture("/admin/plans", "/admin/plans/"), None);
    }
}
