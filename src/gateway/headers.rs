//! Which headers pass. A caller's credentials and whatever the platform adds to its call never go up; a
//! provider's limits, cookies and ids, which are about the gateway and not about the caller, never come
//! down. Names come out in lower case.

/// What a provider is told of the caller. `openai-organization` and `openai-project` are not among them:
/// they would choose on whose bill the gateway's own key spends.
const TO_PROVIDERS: [&str; 6] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "openai-beta",
    "user-agent",
];

/// Headers that are about one connection (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// What no caller gets to see: the answer is the gateway's, with its own ids, limits and caching.
const KEPT_FROM_CALLERS: [&str; 32] = [
    "age",
    "alt-svc",
    "anthropic-organization-id",
    "cache-control",
    "clear-site-data",
    "content-encoding",
    "content-length",
    "content-location",
    "date",
    "expires",
    "location",
    "nel",
    "openai-organization",
    "openai-project",
    "pragma",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "server",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "vary",
    "via",
    "www-authenticate",
    "x-powered-by",
    "x-request-id",
    "x-should-retry",
];

const KEPT_FROM_CALLERS_BY_PREFIX: [&str; 8] = [
    "access-control-",
    "anthropic-ratelimit-",
    "cf-",
    "ratelimit",
    "x-amz",
    "x-envoy-",
    "x-ratelimit-",
    "x-sluice-",
];

/// A caller's headers that go up to a provider.
pub fn to_upstream(headers: &[(String, String)]) -> Vec<(String, String)> {
    passing(headers, |name| TO_PROVIDERS.contains(&name))
}

/// A provider's headers that come down to the caller.
pub fn to_caller(headers: &[(String, String)]) -> Vec<(String, String)> {
    passing(headers, |name| {
        !KEPT_FROM_CALLERS.contains(&name) && !begins(name, &KEPT_FROM_CALLERS_BY_PREFIX)
    })
}

/// No header of one connection passes, neither the known ones nor those that `Connection` names.
fn passing(headers: &[(String, String)], may_pass: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let named = named_by_connection(headers);
    headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| {
            may_pass(name) && !HOP_BY_HOP.contains(&name.as_str()) && !named.contains(name)
        })
        .collect()
}

fn named_by_connection(headers: &[(String, String)]) -> Vec<String> {
    let connections = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
    connections
        .flat_map(|(_, value)| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

fn begins(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn names(headers: Vec<(String, String)>) -> Vec<String> {
        headers.into_iter().map(|(name, _)| name).collect()
    }

    fn secrets() -> Vec<(String, String)> {
        headers(&[
            ("Authorization", "Bearer slc_live_x"),
            ("X-Api-Key", "k"),
            ("api-key", "k"),
            ("x-goog-api-key", "k"),
            ("Cookie", "a=b"),
            ("Proxy-Authorization", "x"),
            ("CF-Connecting-IP", "1.2.3.4"),
            ("cf-access-jwt-assertion", "jwt"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
            ("Forwarded", "for=1.2.3.4"),
            ("X-User-Id", "u"),
            ("x-user-plan", "pro"),
            ("X-Gateway-Secret", "s"),
            ("Host", "h"),
            ("Connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("Keep-Alive", "1"),
            ("TE", "trailers"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "websocket"),
            ("Content-Length", "3"),
            ("Accept-Encoding", "gzip"),
            ("Idempotency-Key", "i"),
            ("Prefer", "respond-async"),
            ("x-request-id", "r"),
            ("x-sluice-internal", "1"),
        ])
    }

    #[test]
    fn credentials_and_connection_headers_never_go_up() {
        assert_eq!(to_upstream(&secrets()), []);
    }

    #[test]
    fn a_provider_is_told_only_what_it_needs() {
        let sent = headers(&[
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream"),
            ("User-Agent", "sdk/1"),
            ("Anthropic-Version", "2023-06-01"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
            ("OpenAI-Beta", "assistants=v2"),
            ("OpenAI-Organization", "org"),
            ("x-stainless-lang", "js"),
            ("x-model", "m-big"),
        ]);
        let passed = to_upstream(&sent);
        assert!(passed.contains(&("content-type".to_owned(), "application/json".to_owned())));
        assert_eq!(
            names(passed),
            [
                "content-type",
                "accept",
                "user-agent",
                "anthropic-version",
                "anthropic-beta",
                "anthropic-beta",
                "openai-beta"
            ]
        );
    }

    #[test]
    fn what_is_about_the_gateway_never_comes_down() {
        let received = headers(&[
            ("Set-Cookie", "__cf_bm=1"),
            ("RateLimit", "\"p\";r=1"),
            ("RateLimit-Policy", "\"p\";q=1"),
            ("x-ratelimit-remaining-tokens", "1"),
            ("anthropic-ratelimit-tokens-limit", "1"),
            ("Retry-After", "9"),
            ("retry-after-ms", "9"),
            ("x-should-retry", "true"),
            ("openai-organization", "org"),
            ("Server", "nginx"),
            ("CF-RAY", "x"),
            ("cf-cache-status", "x"),
            ("Connection", "x-hop"),
            ("X-Hop", "1"),
            ("Content-Length", "3"),
            ("Content-Encoding", "gzip"),
            ("X-Request-Id", "up"),
            ("Request-Id", "up"),
            ("Location", "https://internal/"),
            ("Access-Control-Allow-Origin", "*"),
            ("Cache-Control", "public"),
            ("WWW-Authenticate", "Basic"),
            ("x-sluice-decision", "allowed"),
        ]);
        assert_eq!(to_caller(&received), []);
        let kept = headers(&[
            ("content-type", "application/json"),
            ("openai-processing-ms", "12"),
            ("etag", "\"1\""),
        ]);
        assert_eq!(to_caller(&kept), kept);
    }
}
