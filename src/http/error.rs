//! Every way a call can fail, and the one place that turns it into HTTP (`client-facing` decision table
//! of status, `type`, `code`, `Retry-After` and `x-should-retry`).

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::limit_headers::Refused;
use super::reply::Reply;
use crate::json::JsonError;

/// A failure as its caller sees it. `Display` is the message and never holds a secret.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ApiError {
    /// The input is wrong: 400, naming the field where there is one.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// Which field.
        param: Option<String>,
        /// Machine-readable reason.
        code: &'static str,
    },
    /// No credential came: 401.
    #[error("No API key was given. Send it as `Authorization: Bearer <key>`.")]
    NoCredential,
    /// A credential came and is not good: 401, without a word on why beyond the reason.
    #[error("The API key is not valid ({0}).")]
    BadCredential(&'static str),
    /// The caller is known and may not do this: 403.
    #[error("{message}")]
    Forbidden {
        /// What is not allowed.
        message: String,
        /// Machine-readable reason.
        code: &'static str,
    },
    /// No such thing, or not the caller's: 404.
    #[error("{message}")]
    NotFound {
        /// What is not there.
        message: String,
        /// Machine-readable reason.
        code: &'static str,
    },
    /// The route exists, but not for this method: 405.
    #[error("This route does not take {0}.")]
    MethodNotAllowed(String),
    /// Somebody else was first: 409.
    #[error("{0}")]
    Conflict(String),
    /// `If-Match` names an older version: 412.
    #[error("The resource has changed since it was read; read it again.")]
    PreconditionFailed,
    /// The body is too large: 413.
    #[error("The body is larger than {limit} bytes.")]
    TooLarge {
        /// The largest body this route takes.
        limit: usize,
    },
    /// A limit refuses: 429.
    #[error("{}", .0.message())]
    Refused(Box<Refused>),
    /// The user has too many jobs waiting: 429.
    #[error("You have {limit} jobs waiting, as many as your plan allows.")]
    QueueFull {
        /// Most jobs that may wait.
        limit: u64,
    },
    /// Something of ours is out: 503, try again soon.
    #[error("The gateway can't decide right now ({0}). Please try again soon.")]
    Unavailable(&'static str),
    /// A change is stored, and its user's account could not be told: 503, repeat it.
    #[error(
        "The change is saved but not yet in force everywhere; the gateway goes on trying. \
         Repeat the request to be sure."
    )]
    NotYetInForce,
    /// The provider failed: 502, 503 or 504.
    #[error("{message}")]
    Upstream {
        /// The status the caller gets.
        status: u16,
        /// What happened, in our words.
        message: String,
        /// Machine-readable reason.
        code: &'static str,
        /// Seconds after which it is worth trying again; `None`: it is not.
        retry_after: Option<u64>,
    },
    /// A bug or a broken deployment of ours: 500.
    #[error("The gateway is misconfigured: {0}.")]
    Misconfigured(&'static str),
}

/// Seconds after which a passing fault is worth another try.
pub const RETRY_SOON: u64 = 2;

/// Longest wait after an overload. It is spread from one second up, so that not everybody comes back at once.
const LONGEST_OVERLOAD: u64 = 10;

/// Seconds after which a full queue may have room.
const RETRY_FULL_QUEUE: u64 = 60;

/// Which SDK family reads the error.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Shape {
    /// `{"error":{message,type,param,code}}`, everywhere but on `/v1/messages`.
    #[default]
    OpenAi,
    /// `{"type":"error","error":{type,message}}`, on `/v1/messages`.
    Anthropic,
}

/// What the decision table says of one error.
struct Row {
    status: u16,
    code: &'static str,
    kind: &'static str,
    anthropic: &'static str,
    retry_after: Option<Wait>,
    never_retry: bool,
}

/// How long to wait before the next try.
#[derive(Clone, Copy)]
enum Wait {
    /// So many seconds.
    Seconds(u64),
    /// As after an overload, and at least so many seconds.
    Overload(u64),
}

impl ApiError {
    /// A 400 without a field.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: None,
            code: "invalid_request",
        }
    }

    /// A 400 that names the field.
    pub fn invalid_field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: Some(param.into()),
            code: "invalid_value",
        }
    }

    /// A 404 for a route nobody serves.
    pub fn no_route() -> Self {
        Self::NotFound {
            message: "There is no such route.".to_owned(),
            code: "route_not_found",
        }
    }

    /// A 404 for a thing that is not there, or not this caller's.
    pub fn not_found(what: &str) -> Self {
        Self::NotFound {
            message: format!("There is no such {what}."),
            code: "not_found",
        }
    }

    /// The machine-readable reason and its `type`, for errors that are told elsewhere than in an answer.
    pub fn code_and_kind(&self, shape: Shape) -> (&'static str, &'static str) {
        let row = self.row(shape);
        (row.code, row.kind)
    }

    /// The answer, without the headers every answer carries.
    pub fn reply(&self, shape: Shape, request_id: &str) -> Reply {
        let row = self.row(shape);
        let body = match shape {
            Shape::OpenAi => self.openai_body(&row, request_id),
            Shape::Anthropic => self.anthropic_body(&row, request_id),
        };
        let mut reply = Reply::json(row.status, &body);
        if let Some(wait) = row.retry_after {
            reply.set("retry-after", wait.seconds(request_id).to_string());
        }
        if row.never_retry {
            reply.set("x-should-retry", "false");
        }
        if let Some(challenge) = self.challenge() {
            reply.set("www-authenticate", challenge);
        }
        reply
    }

    /// The body of the answer, in the shape of every route but `/v1/messages`.
    pub fn body(&self, request_id: &str) -> Value {
        self.openai_body(&self.row(Shape::OpenAi), request_id)
    }

    fn row(&self, shape: Shape) -> Row {
        let bad = "invalid_request_error";
        match self {
            Self::Invalid { code, .. } => {
                let never = *code == "request_exceeds_quota";
                Row {
                    never_retry: never,
                    ..row(400, code, bad, bad)
                }
            }
            Self::NoCredential | Self::BadCredential(_) => {
                row(401, "invalid_api_key", bad, "authentication_error")
            }
            Self::Forbidden { code, .. } => row(403, code, "permission_error", "permission_error"),
            Self::NotFound { code, .. } => row(404, code, bad, "not_found_error"),
            Self::MethodNotAllowed(_) => row(405, "method_not_allowed", bad, bad),
            Self::Conflict(_) => row(409, "conflict", "conflict", "conflict_error"),
            Self::PreconditionFailed => row(412, "precondition_failed", bad, bad),
            Self::TooLarge { .. } => row(413, "request_too_large", bad, "request_too_large"),
            Self::Refused(refused) => Row {
                retry_after: Some(Wait::Seconds(refused.retry_after())),
                never_retry: refused.never_retry(),
                ..row(429, refused.code(), refused.kind(), "rate_limit_error")
            },
            Self::QueueFull { .. } => Row {
                retry_after: Some(Wait::Seconds(RETRY_FULL_QUEUE)),
                never_retry: true,
                ..row(429, "queue_full", "requests", "rate_limit_error")
            },
            Self::Unavailable(_) => Row {
                retry_after: Some(Wait::Overload(1)),
                ..row(
                    overloaded(shape),
                    "server_is_overloaded",
                    "server_error",
                    "overloaded_error",
                )
            },
            Self::NotYetInForce => Row {
                retry_after: Some(Wait::Seconds(RETRY_SOON)),
                ..row(503, "not_yet_in_force", "server_error", "overloaded_error")
            },
            Self::Upstream {
                status: 503,
                code,
                retry_after,
                ..
            } => Row {
                retry_after: Some(Wait::Overload(retry_after.unwrap_or(1))),
                ..row(overloaded(shape), code, "server_error", "overloaded_error")
            },
            Self::Upstream {
                status,
                code,
                retry_after,
                ..
            } => Row {
                retry_after: retry_after.map(Wait::Seconds),
                never_retry: retry_after.is_none(),
                ..row(*status, code, "server_error", upstream_kind(*status))
            },
            Self::Misconfigured(_) => row(500, "misconfigured", "server_error", "api_error"),
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid { param, .. } => param.as_deref(),
            _ => None,
        }
    }

    fn openai_body(&self, row: &Row, request_id: &str) -> Value {
        let mut error = Map::new();
        error.insert("message".into(), json!(self.to_string()));
        error.insert("type".into(), json!(row.kind));
        error.insert("param".into(), json!(self.param()));
        error.insert("code".into(), json!(row.code));
        let mut body = Map::new();
        if let Self::Refused(refused) = self {
            error.extend(refused.details());
            body.insert("resetAt".into(), json!(refused.reset_at()));
        }
        body.insert("error".into(), Value::Object(error));
        body.insert("request_id".into(), json!(request_id));
        Value::Object(body)
    }

    fn anthropic_body(&self, row: &Row, request_id: &str) -> Value {
        let mut details = Map::new();
        details.insert("error_code".into(), json!(row.code));
        if let Self::Refused(refused) = self {
            details.extend(refused.details());
        }
        json!({
            "type": "error",
            "error": {"type": row.anthropic, "message": self.to_string(), "details": details},
            "request_id": request_id,
        })
    }

    /// RFC 6750, section 3: no error attribute when no credential came.
    fn challenge(&self) -> Option<String> {
        match self {
            Self::NoCredential => Some(r#"Bearer realm="sluice""#.to_owned()),
            Self::BadCredential(reason) => Some(format!(
                r#"Bearer realm="sluice", error="invalid_token", error_description="{reason}""#
            )),
            Self::Forbidden { code, .. } if *code == "insufficient_scope" => {
                Some(r#"Bearer realm="sluice", error="insufficient_scope""#.to_owned())
            }
            _ => None,
        }
    }
}

impl Wait {
    /// The same for one request, and as good as random from one to the next: their ids are.
    fn seconds(self, request_id: &str) -> u64 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::Overload(least) => {
                let sum: u64 = request_id.bytes().map(u64::from).sum();
                (1 + sum % LONGEST_OVERLOAD).max(least.min(LONGEST_OVERLOAD))
            }
        }
    }
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> Self {
        let param = match &error {
            JsonError::DuplicateKey(key) => Some(key.clone()),
            _ => None,
        };
        Self::Invalid {
            message: error.to_string(),
            param,
            code: "invalid_request",
        }
    }
}

const fn row(status: u16, code: &'static str, kind: &'static str, anthropic: &'static str) -> Row {
    Row {
        status,
        code,
        kind,
        anthropic,
        retry_after: None,
        never_retry: false,
    }
}

/// Anthropic's SDKs know overload as 529.
const fn overloaded(shape: Shape) -> u16 {
    match shape {
        Shape::OpenAi => 503,
        Shape::Anthropic => 529,
    }
}

const fn upstream_kind(status: u16) -> &'static str {
    match status {
        504 => "timeout_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_is_529_for_anthropic() {
        let error = ApiError::Unavailable("accounts");
        assert_eq!(error.reply(Shape::OpenAi, "req_1").status, 503);
        assert_eq!(error.reply(Shape::Anthropic, "req_1").status, 529);
        let provider = |status| ApiError::Upstream {
            status,
            message: "x".into(),
            code: "server_is_overloaded",
            retry_after: Some(2),
        };
        assert_eq!(provider(503).reply(Shape::Anthropic, "req_1").status, 529);
        assert_eq!(provider(504).reply(Shape::Anthropic, "req_1").status, 504);
    }

    #[test]
    fn waits_after_an_overload_are_spread_and_never_shorter_than_the_provider_asks_for() {
        let waits =
            |least| (0..100).map(move |n| Wait::Overload(least).seconds(&format!("req_{n}")));
        assert_eq!((waits(1).min(), waits(1).max()), (Some(1), Some(10)));
        assert_eq!((waits(7).min(), waits(7).max()), (Some(7), Some(10)));
        assert!(waits(3_600).all(|wait| wait == 10));
    }

    #[test]
    fn a_missing_credential_has_no_error_attribute() {
        let challenge = |e: ApiError| e.challenge().unwrap();
        assert!(!challenge(ApiError::NoCredential).contains("error="));
        assert!(challenge(ApiError::BadCredential("expired")).contains("invalid_token"));
    }

    #[test]
    fn a_rejected_provider_key_is_not_worth_a_retry() {
        let error = ApiError::Upstream {
            status: 502,
            message: "x".into(),
            code: "upstream_auth_failed",
            retry_after: None,
        };
        let reply = error.reply(Shape::OpenAi, "req_1");
        assert_eq!(reply.get("x-should-retry"), Some("false"));
        assert_eq!(reply.get("retry-after"), None);
    }
}
