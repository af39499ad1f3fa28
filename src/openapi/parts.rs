//! What operations share: who may call, headers, parameters and errors.

use serde_json::{Map, Value, json};

use super::schema::named;

/// Whom an operation serves, which settles its credentials, its headers and how it fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Desk {
    /// Anybody.
    Open,
    /// A user, at the gateway's own routes.
    Caller,
    /// A user, through an SDK of OpenAI's family.
    OpenAi,
    /// A user, through an SDK of Anthropic's family.
    Anthropic,
    /// The operator.
    Operator,
}

const DESKS: [Desk; 5] = [
    Desk::Open,
    Desk::Caller,
    Desk::OpenAi,
    Desk::Anthropic,
    Desk::Operator,
];

impl Desk {
    /// Who may call: each entry alone will do.
    pub fn security(self) -> Value {
        match self {
            Self::Open => json!([]),
            Self::Operator => json!([{"adminToken": []}]),
            Self::Caller | Self::OpenAi | Self::Anthropic => json!([
                {"bearer": []}, {"xApiKey": []}, {"apiKey": []}, {"userId": [], "gatewaySecret": []},
            ]),
        }
    }

    /// The statuses with which any of its operations may fail.
    pub const fn errors(self) -> &'static [u16] {
        match self {
            Self::Open => &[],
            Self::Operator => &[400, 401, 403, 500, 503],
            Self::Caller | Self::OpenAi => &[400, 401, 403, 429, 500, 503],
            Self::Anthropic => &[400, 401, 403, 429, 500, 503, 529],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Caller => "Caller",
            Self::OpenAi => "OpenAi",
            Self::Anthropic => "Anthropic",
            Self::Operator => "Operator",
        }
    }

    const fn is_held_to_a_plan(self) -> bool {
        matches!(self, Self::Caller | Self::OpenAi | Self::Anthropic)
    }
}

const ERRORS: [(u16, &str, &str); 13] = [
    (
        400,
        "Invalid",
        "The input is wrong; `param` names the field where there is one.",
    ),
    (
        401,
        "Unauthorized",
        "No credential came, or it is not good.",
    ),
    (403, "Forbidden", "The caller is known and may not do this."),
    (
        404,
        "NotFound",
        "There is no such thing, or it is not the caller's.",
    ),
    (409, "Conflict", "Something else stands against it."),
    (
        412,
        "PreconditionFailed",
        "`If-Match` names another version than the one there is.",
    ),
    (413, "TooLarge", "The body is larger than 1 MiB."),
    (
        429,
        "Refused",
        "A limit refuses. Longer waits than a minute come with `x-should-retry: false`.",
    ),
    (500, "Misconfigured", "The gateway is misconfigured."),
    (502, "UpstreamFailed", "The provider failed."),
    (503, "Unavailable", "Something is out for the moment."),
    (504, "UpstreamTimedOut", "The provider took too long."),
    (529, "Overloaded", "Something is out for the moment."),
];

/// The name of an error's answer among the components.
pub fn error_name(desk: Desk, status: u16) -> String {
    let (_, name, _) = ERRORS
        .iter()
        .find(|(known, ..)| *known == status)
        .expect("a known status");
    format!("{}{name}", desk.name())
}

/// Every answer that is an error.
pub fn errors() -> Value {
    let mut all = Map::new();
    for desk in DESKS {
        for (status, _, description) in ERRORS {
            let schema = if desk == Desk::Anthropic {
                "AnthropicError"
            } else {
                "Error"
            };
            let own: &[&str] = match status {
                401 => &["WWWAuthenticate"],
                403 => &["ScopeChallenge"],
                429 => &["RetryAfter", "RetryAfterMs", "ShouldRetry"],
                502..=529 => &["RetryAfter", "ShouldRetry"],
                _ => &[],
            };
            all.insert(
                error_name(desk, status),
                json!({
                    "description": description,
                    "headers": headers(desk, status, own),
                    "content": {"application/json": {"schema": named(schema)}},
                }),
            );
        }
    }
    Value::Object(all)
}

/// The headers of an answer: those that all have, those that tell of limits, and its own.
pub fn headers(desk: Desk, status: u16, own: &[&str]) -> Value {
    let everywhere = ["XRequestId", "RequestId"];
    let limits = [
        "RateLimitPolicy",
        "RateLimit",
        "XRateLimitLimit",
        "XRateLimitRemaining",
        "XRateLimitReset",
        "Decision",
        "Shadow",
    ];
    let family: &[&str] = match desk {
        Desk::OpenAi => &[
            "XRateLimitLimitRequests",
            "XRateLimitRemainingRequests",
            "XRateLimitResetRequests",
            "XRateLimitLimitTokens",
            "XRateLimitRemainingTokens",
            "XRateLimitResetTokens",
        ],
        Desk::Anthropic => &[
            "AnthropicRequestsLimit",
            "AnthropicRequestsRemaining",
            "AnthropicRequestsReset",
            "AnthropicTokensLimit",
            "AnthropicTokensRemaining",
            "AnthropicTokensReset",
        ],
        _ => &[],
    };
    // A 401 reveals no limits.
    let told = desk.is_held_to_a_plan() && status != 401;
    let limits = limits.iter().chain(family).filter(|_| told);
    let mut all = Map::new();
    for name in everywhere.iter().chain(limits).chain(own) {
        let (_, written, ..) = HEADERS
            .iter()
            .find(|(known, ..)| known == name)
            .expect("a known header");
        all.insert(
            (*written).to_owned(),
            json!({"$ref": format!("#/components/headers/{name}")}),
        );
    }
    Value::Object(all)
}

/// Name among the components, name on the wire, what it says, pattern, example.
type Header = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const COUNT: &str = "^[0-9]+$";
const DURATION: &str = "^([0-9]+h)?([0-9]+m)?([0-9.]+s|[0-9]+ms)$";
const INSTANT: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$";
const HEADERS: [Header; 32] = [
    (
        "XRequestId",
        "x-request-id",
        "Id of this call, made by the gateway.",
        "^req_[0-9A-Za-z]+$",
        "req_01JX4Z",
    ),
    (
        "RequestId",
        "request-id",
        "The same id, where Anthropic's SDKs look for it.",
        "^req_[0-9A-Za-z]+$",
        "req_01JX4Z",
    ),
    (
        "RateLimitPolicy",
        "RateLimit-Policy",
        "Every policy that limits the user: quota `q` in `w` seconds, of unit `qu` (requests if absent).",
        r#"^".+";q=[0-9]+"#,
        r#""daily";q=10;w=86400, "rate";q=10;w=60"#,
    ),
    (
        "RateLimit",
        "RateLimit",
        "What is left of each policy (`r`) and for how many seconds that has to do (`t`); on a refusal, the policies that refuse.",
        r#"^".+";r=[0-9]+;t=[0-9]+"#,
        r#""daily";r=7;t=41230, "rate";r=9;t=6"#,
    ),
    (
        "XRateLimitLimit",
        "X-RateLimit-Limit",
        "Limit of the tightest policy: the one that refused, else the one with the least left.",
        COUNT,
        "10",
    ),
    (
        "XRateLimitRemaining",
        "X-RateLimit-Remaining",
        "What is left of the tightest policy.",
        COUNT,
        "7",
    ),
    (
        "XRateLimitReset",
        "X-RateLimit-Reset",
        "When the tightest policy resets, in Unix seconds.",
        COUNT,
        "1687392000",
    ),
    (
        "Decision",
        "X-Sluice-Decision",
        "What was decided.",
        "^(allowed|refused|degraded|queued|shadow|open)$",
        "allowed",
    ),
    (
        "Shadow",
        "X-Sluice-Shadow",
        "Policies of a plan on trial that would have refused.",
        ".",
        "daily",
    ),
    (
        "RetryAfter",
        "Retry-After",
        "Whole seconds after which it is worth trying again.",
        "^[1-9][0-9]*$",
        "3600",
    ),
    (
        "RetryAfterMs",
        "retry-after-ms",
        "The same wait in milliseconds, for short waits.",
        "^[1-9][0-9]*$",
        "5001",
    ),
    (
        "ShouldRetry",
        "x-should-retry",
        "`false`: an SDK should give up at once.",
        "^(true|false)$",
        "false",
    ),
    (
        "WWWAuthenticate",
        "WWW-Authenticate",
        "How to authenticate (RFC 6750).",
        "^Bearer ",
        r#"Bearer realm="sluice""#,
    ),
    (
        "ScopeChallenge",
        "WWW-Authenticate",
        "Of a credential whose scope is not enough (RFC 6750).",
        "^Bearer ",
        r#"Bearer realm="sluice", error="insufficient_scope""#,
    ),
    (
        "ETag",
        "ETag",
        "The version of what is shown, for `If-Match`.",
        r#"^"v[0-9]+"$"#,
        r#""v3""#,
    ),
    (
        "Location",
        "Location",
        "Where the job can be asked for.",
        "^/api/jobs/",
        "/api/jobs/job_01JX4Z",
    ),
    (
        "PreferenceApplied",
        "Preference-Applied",
        "The call was asked to become a job (RFC 7240).",
        "^respond-async$",
        "respond-async",
    ),
    (
        "Allow",
        "Allow",
        "The methods this path takes.",
        ".",
        "GET, POST",
    ),
    (
        "CacheControl",
        "Cache-Control",
        "How long this may be kept.",
        ".",
        "public, max-age=300",
    ),
    (
        "ServerTiming",
        "Server-Timing",
        "Where the time went.",
        ".",
        "total;dur=12",
    ),
    (
        "XRateLimitLimitRequests",
        "x-ratelimit-limit-requests",
        "Calls in the shortest window.",
        COUNT,
        "10",
    ),
    (
        "XRateLimitRemainingRequests",
        "x-ratelimit-remaining-requests",
        "Calls left of it.",
        COUNT,
        "9",
    ),
    (
        "XRateLimitResetRequests",
        "x-ratelimit-reset-requests",
        "Time until it resets.",
        DURATION,
        "6s",
    ),
    (
        "XRateLimitLimitTokens",
        "x-ratelimit-limit-tokens",
        "Tokens in the shortest window.",
        COUNT,
        "100000",
    ),
    (
        "XRateLimitRemainingTokens",
        "x-ratelimit-remaining-tokens",
        "Tokens left of it.",
        COUNT,
        "99990",
    ),
    (
        "XRateLimitResetTokens",
        "x-ratelimit-reset-tokens",
        "Time until it resets.",
        DURATION,
        "1m30s",
    ),
    (
        "AnthropicRequestsLimit",
        "anthropic-ratelimit-requests-limit",
        "Calls in the shortest window.",
        COUNT,
        "10",
    ),
    (
        "AnthropicRequestsRemaining",
        "anthropic-ratelimit-requests-remaining",
        "Calls left of it.",
        COUNT,
        "9",
    ),
    (
        "AnthropicRequestsReset",
        "anthropic-ratelimit-requests-reset",
        "When it resets.",
        INSTANT,
        "2026-06-22T00:00:00Z",
    ),
    (
        "AnthropicTokensLimit",
        "anthropic-ratelimit-tokens-limit",
        "Tokens in the shortest window.",
        COUNT,
        "100000",
    ),
    (
        "AnthropicTokensRemaining",
        "anthropic-ratelimit-tokens-remaining",
        "Tokens left of it.",
        COUNT,
        "99990",
    ),
    (
        "AnthropicTokensReset",
        "anthropic-ratelimit-tokens-reset",
        "When it resets.",
        INSTANT,
        "2026-06-22T00:00:00Z",
    ),
];

/// Headers that are there wherever an answer refers to them.
const ALWAYS: [&str; 6] = [
    "XRequestId",
    "RequestId",
    "WWWAuthenticate",
    "ETag",
    "Location",
    "CacheControl",
];

/// Every header that answers refer to.
pub fn all_headers() -> Value {
    let one = |(name, _, description, pattern, example): &Header| {
        let schema = json!({"type": "string", "pattern": pattern});
        let required = ALWAYS.contains(name);
        (
            (*name).to_owned(),
            json!({"description": description, "required": required, "schema": schema, "example": example}),
        )
    };
    Value::Object(HEADERS.iter().map(one).collect())
}

/// The component behind a name in a path's braces.
pub fn path_parameter(path: &str, name: &str) -> &'static str {
    match (name, path) {
        ("user_id", _) => "userId",
        ("plan_id", _) => "planId",
        ("key_id", _) => "keyId",
        ("route_id", _) => "routeId",
        ("model", _) => "model",
        ("id", path) if path.contains("/jobs/") => "jobId",
        ("id", path) if path.contains("/notifications/") => "notificationId",
        _ => panic!("{path}: {name} is not described"),
    }
}

/// Every parameter that operations refer to.
pub fn parameters() -> Value {
    let id = json!({"type": "string", "minLength": 1, "maxLength": 128});
    let user = json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"});
    let date = json!({"type": "string", "format": "date"});
    let text = json!({"type": "string"});
    let in_path = |name: &str, description: &str, schema: &Value| json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema});
    let in_query = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema});
    let in_header = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema});
    json!({
        "userId": in_path("user_id", "The user.", &user),
        "planId": in_path("plan_id", "The plan.", &id),
        "keyId": in_path("key_id", "The key's id, which is not the key.", &id),
        "routeId": in_path("route_id", "The protected route.", &id),
        "jobId": in_path("id", "The job.", &id),
        "notificationId": in_path("id", "The notification.", &id),
        "model": in_path("model", "The model's name; its slashes may be escaped or not.", &json!({"type": "string", "minLength": 1, "maxLength": 256})),
        "limit": in_query("limit", "Most entries of the answer.", json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50})),
        "cursor": in_query("cursor", "The `next_cursor` of the part before.", text.clone()),
        "from": in_query("from", "First day, by default 30 days before the last.", date.clone()),
        "to": in_query("to", "Last day, by default tomorrow.", date),
        "prefix": in_query("q", "Beginning of an id or an email address.", json!({"type": "string", "maxLength": 254})),
        "jobStatus": in_query("status", "Only jobs of this status.", named("JobStatus")),
        "alertStatus": in_query("status", "Only alerts of this status.", json!({"type": "string", "enum": ["open", "closed"]})),
        "onPlan": in_query("plan_id", "Only those on this plan.", text.clone()),
        "ofUser": in_query("user_id", "Only those of this user.", text),
        "ifMatch": in_header("If-Match", "The `ETag` of the version that is meant; another one is a 412.", json!({"type": "string", "examples": ["\"v3\""]})),
        "prefer": in_header("Prefer", "`respond-async`: do it later if it can't be done now, and answer 202.", json!({"type": "string", "examples": ["respond-async"]})),
    })
}

/// The credentials.
pub fn security_schemes() -> Value {
    let header = |name: &str, description: &str| json!({"type": "apiKey", "in": "header", "name": name, "description": description});
    json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "A user's API key (`slc_live_…`), or a JSON Web Token where the gateway takes them."},
        "xApiKey": header("x-api-key", "A user's API key, as Anthropic's SDKs send it."),
        "apiKey": header("api-key", "A user's API key, as Azure's SDKs send it."),
        "userId": header("X-User-Id", "The user, told by a front that has authenticated them."),
        "gatewaySecret": header("X-Gateway-Secret", "Shows that the front is the trusted one."),
        "adminToken": {"type": "http", "scheme": "bearer", "description": "The operator's token."},
    })
}
