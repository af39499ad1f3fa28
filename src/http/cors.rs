//! CORS for the origins of `CORS_ORIGINS`; everybody else is answered as if there were none.

use super::incoming::Incoming;
use super::reply::Reply;
use crate::settings::Settings;

/// Headers a browser may send here. `*` would not cover `Authorization`.
const ALLOWED: [&str; 16] = [
    "authorization",
    "x-api-key",
    "api-key",
    "content-type",
    "accept",
    "if-match",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "openai-organization",
    "openai-project",
    "openai-beta",
    "idempotency-key",
    "prefer",
    "x-client-request-id",
    "x-request-id",
];

/// Headers a browser may read; without them an SDK in a page retries blindly.
const EXPOSED: &str = "retry-after, retry-after-ms, x-should-retry, ratelimit, ratelimit-policy, \
x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, \
x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, \
anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset, x-request-id, request-id, \
location, preference-applied, etag, www-authenticate, x-sluice-decision, x-sluice-shadow, server-timing";

/// The origin of this call, if it may read the answer.
#[derive(Clone, Debug)]
pub struct Origin(Option<String>);

impl Origin {
    /// Looks the caller's origin up in the allow-list.
    pub fn of(request: &Incoming, settings: &Settings) -> Self {
        let origin = request.header("origin");
        let allowed = origin.filter(|o| {
            settings
                .cors_origins
                .iter()
                .any(|allowed| allowed == "*" || allowed == o)
        });
        Self(allowed.map(str::to_owned))
    }

    /// Adds what lets the page read `reply`, errors included.
    pub fn expose(&self, reply: &mut Reply) {
        reply.append("vary", "Origin");
        if let Some(origin) = &self.0 {
            reply.set("access-control-allow-origin", origin.as_str());
            reply.set("access-control-expose-headers", EXPOSED);
        }
    }

    /// Answers a preflight: free, before authentication.
    pub fn preflight(&self, request: &Incoming) -> Reply {
        let mut reply = Reply::empty(204);
        if self.0.is_some() {
            let asked = request
                .header("access-control-request-headers")
                .unwrap_or_default();
            reply.set(
                "access-control-allow-methods",
                "GET, POST, PUT, PATCH, DELETE, OPTIONS",
            );
            reply.set("access-control-allow-headers", granted(asked));
            reply.set("access-control-max-age", "7200");
        }
        reply.append("vary", "Access-Control-Request-Headers");
        reply
    }
}

fn granted(asked: &str) -> String {
    let names = asked
        .split(',')
        .map(|name| name.trim().to_ascii_lowercase());
    let granted: Vec<_> = names
        .filter(|n| ALLOWED.contains(&n.as_str()) || n.starts_with("x-stainless-"))
        .collect();
    granted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_headers_are_granted() {
        assert_eq!(
            granted("Authorization, x-stainless-os,x-evil"),
            "authorization, x-stainless-os"
        );
    }
}
