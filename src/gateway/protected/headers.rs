//! Which headers pass a protected route, up to the service and down to the caller.
//!
//! The service can trust `X-Sluice-User` and `X-Sluice-Plan`: whatever the caller sent under a name of
//! ours is gone. The caller's credentials stay here, in whatever header they may come. Cookies pass both
//! ways: they are the service's own business, but for the one that Cloudflare Access keeps its token in.

/// Headers of one connection, not of the message (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a caller may show us, and what a trusted front says of them.
const CREDENTIALS: [&str; 7] = [
    "authorization",
    "cf-access-jwt-assertion",
    "x-api-key",
    "api-key",
    "x-gateway-secret",
    "x-user-id",
    "x-user-plan",
];

/// The cookie of Cloudflare Access, whose token is a credential here.
const ACCESS_COOKIE: &str = "cf_authorization";

/// Made anew for the service by whoever sends the request.
const REMADE: [&str; 3] = ["host", "content-length", "expect"];

/// Said by the gateway alone: another's word on limits would contradict ours, another's word on CORS
/// would open our callers' answers to pages the operator did not name, and `alt-svc` would lead them
/// past the gateway.
const OURS: [&str; 6] = [
    "alt-svc",
    "cache-control",
    "content-length",
    "ratelimit",
    "ratelimit-policy",
    "x-should-retry",
];
const OUR_FAMILIES: [&str; 4] = [
    "access-control-",
    "anthropic-ratelimit-",
    "x-ratelimit-",
    "x-sluice-",
];

/// The caller's headers as the service gets them, with who they are.
pub fn to_service(
    headers: &[(String, String)],
    user: &str,
    plan: Option<&str>,
) -> Vec<(String, String)> {
    let passes = |name: &str| {
        !CREDENTIALS.contains(&name) && !REMADE.contains(&name) && !name.starts_with("x-sluice-")
    };
    let mut passed: Vec<_> = end_to_end(headers, passes)
        .into_iter()
        .filter_map(without_access_cookie)
        .collect();
    passed.push(("x-sluice-user".to_owned(), user.to_owned()));
    passed.extend(plan.map(|plan| ("x-sluice-plan".to_owned(), plan.to_owned())));
    passed
}

fn without_access_cookie((name, value): (String, String)) -> Option<(String, String)> {
    if name != "cookie" {
        return Some((name, value));
    }
    let is_access = |pair: &&str| {
        let cookie = pair.split('=').next().unwrap_or_default();
        cookie.trim().eq_ignore_ascii_case(ACCESS_COOKIE)
    };
    let kept: Vec<_> = value.split(';').filter(|pair| !is_access(pair)).collect();
    let kept = kept.join(";").trim().to_owned();
    (!kept.is_empty()).then_some((name, kept))
}

/// The service's headers as the caller gets them, `Location` and `Retry-After` included.
pub fn to_caller(headers: &[(String, String)]) -> Vec<(String, String)> {
    end_to_end(headers, |name| {
        !OURS.contains(&name) && !OUR_FAMILIES.iter().any(|family| name.starts_with(family))
    })
}

fn end_to_end(
    headers: &[(String, String)],
    passes: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let lower = headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value));
    let lower: Vec<_> = lower.collect();
    let connection: Vec<_> = lower
        .iter()
        .filter(|(name, _)| name == "connection")
        .collect();
    let named = |name: &str| {
        let mut options = connection.iter().flat_map(|(_, value)| value.split(','));
        options.any(|option| option.trim().eq_ignore_ascii_case(name))
    };
    let kept = lower
        .iter()
        .filter(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()) && !named(name) && passes(name));
    kept.map(|(name, value)| (name.clone(), (*value).clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn names(list: &[(String, String)]) -> Vec<&str> {
        list.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn the_service_learns_who_calls_and_no_credential() {
        let sent = pairs(&[
            ("Authorization", "Bearer slc_live_x"),
            ("X-Api-Key", "slc_live_x"),
            ("api-key", "slc_live_x"),
            ("X-Gateway-Secret", "s"),
            ("X-User-Id", "front"),
            ("x-sluice-user", "forged"),
            ("X-Sluice-Plan", "forged"),
            ("x-sluice-later", "forged"),
            ("Host", "gateway.example"),
            ("Content-Type", "text/plain"),
            ("Cookie", "session=1"),
            ("X-Custom", "1"),
        ]);
        let up = to_service(&sent, "u1", Some("pro"));
        let expected = [
            "content-type",
            "cookie",
            "x-custom",
            "x-sluice-user",
            "x-sluice-plan",
        ];
        assert_eq!(names(&up), expected);
        assert_eq!(up[3].1, "u1");
        assert_eq!(names(&to_service(&[], "u1", None)), ["x-sluice-user"]);
    }

    #[test]
    fn hop_by_hop_headers_end_here_both_ways() {
        let sent = pairs(&[
            ("Connection", "close, X-Hop"),
            ("Keep-Alive", "timeout=5"),
            ("x-hop", "1"),
            ("TE", "trailers"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("x-stays", "1"),
        ]);
        assert_eq!(
            names(&to_service(&sent, "u", None)),
            ["x-stays", "x-sluice-user"]
        );
        assert_eq!(names(&to_caller(&sent)), ["x-stays"]);
    }

    #[test]
    fn the_service_has_no_say_in_limits_cors_and_caching() {
        let sent = pairs(&[
            ("x-ratelimit-limit", "1"),
            ("RateLimit", "\"x\";r=1"),
            ("x-sluice-decision", "allowed"),
            ("access-control-allow-origin", "*"),
            ("cache-control", "public, max-age=600"),
            ("alt-svc", "h3=\":443\""),
            ("location", "/elsewhere"),
            ("retry-after", "7"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("etag", "\"1\""),
        ]);
        let down = to_caller(&sent);
        assert_eq!(
            names(&down),
            [
                "location",
                "retry-after",
                "set-cookie",
                "set-cookie",
                "etag"
            ]
        );
    }

    #[test]
    fn the_token_of_cloudflare_access_stays_here() {
        let sent = [
            (
                "cookie".to_owned(),
                "a=1; CF_Authorization=eyJ; b=2".to_owned(),
            ),
            ("Cf-Access-Jwt-Assertion".to_owned(), "eyJ".to_owned()),
        ];
        let passed = to_service(&sent, "u", None);
        assert!(passed.contains(&("cookie".to_owned(), "a=1; b=2".to_owned())));
        assert!(!passed.iter().any(|(name, _)| name.starts_with("cf-access")));
        let only = [("cookie".to_owned(), "CF_Authorization=eyJ".to_owned())];
        assert!(
            !to_service(&only, "u", None)
                .iter()
                .any(|(name, _)| name == "cookie")
        );
    }
}
