use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::input;
use crate::http::limit_headers::rfc3339;
use crate::http::page::Page;
use crate::http::router::Call;
use crate::http::{ApiError, Reply, body};
use crate::json::parse_strict;
use crate::ledger::LedgerError;

/// One call of the operator.
pub struct Visit {
    /// The call.
    pub call: Call,
    /// The id in its path; empty where the route has none.
    pub id: String,
}

/// How often a change is tried again that somebody else's came before.
pub const RACES: usize = 5;

impl Visit {
    /// The body as a JSON object; none at all is an empty one.
    pub async fn object(&mut self) -> Result<Map<String, Value>, ApiError> {
        let bytes = body::read(&self.call.request, body::MAX_JSON).await?;
        if bytes.is_empty() {
            return Ok(Map::new());
        }
        match parse_strict(&bytes)? {
            Value::Object(fields) => Ok(fields),
            _ => Err(ApiError::invalid("The body must be a JSON object.")),
        }
    }

    /// The body as what it has to be; what is unknown or of a wrong type is a 400 that names the field.
    pub async fn body<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        input::read(self.object().await?)
    }

    /// One parameter of the query.
    pub fn query(&self, name: &str) -> Result<Option<String>, ApiError> {
        let url = self.call.request.url()?;
        let pair = url.query_pairs().find(|(key, _)| key == name);
        Ok(pair
            .map(|(_, value)| value.into_owned())
            .filter(|value| !value.is_empty()))
    }

    /// The part of a list that is asked for.
    pub fn page(&self) -> Result<Page, ApiError> {
        Page::of(&self.call.request.url()?)
    }

    /// Whether the operator has said which version they mean to change.
    pub fn is_conditional(&self) -> bool {
        self.if_match().is_some()
    }

    /// 412 if the operator means to change another version than the one there is.
    pub fn expect(&self, version: u64) -> Result<(), ApiError> {
        let Some(asked) = self.if_match() else {
            return Ok(());
        };
        let current = etag(version);
        if asked
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag == current)
        {
            return Ok(());
        }
        Err(ApiError::PreconditionFailed)
    }

    /// This moment, RFC 3339.
    pub fn now(&self) -> String {
        rfc3339(self.call.now)
    }

    fn if_match(&self) -> Option<&str> {
        self.call.request.header("if-match")
    }
}

/// An answer that shows one thing, with the tag of its version.
pub fn shown(status: u16, body: &Value, version: u64) -> Reply {
    let mut reply = Reply::json(status, body);
    reply.set("etag", etag(version));
    reply
}

/// What the operator is told when the ledger does not do its part. Whoever knows what a broken rule means
/// says so before it comes to this.
pub fn failed(error: LedgerError) -> ApiError {
    match error {
        LedgerError::Unavailable => ApiError::Unavailable("ledger"),
        LedgerError::Constraint(_) => {
            ApiError::Conflict("Something this refers to has changed meanwhile.".to_owned())
        }
        LedgerError::Broken(reason) => {
            worker::console_error!(
                "{}",
                serde_json::json!({"event": "ledger", "reason": reason})
            );
            ApiError::Misconfigured("the ledger's answer makes no sense")
        }
    }
}

/// Like [`failed`], where a broken rule means a conflict that can be told.
pub fn conflicts(error: LedgerError, message: impl Into<String>) -> ApiError {
    match error {
        LedgerError::Constraint(_) => ApiError::Conflict(message.into()),
        other => failed(other),
    }
}

/// Too many others changed the same thing at the same time.
pub fn busy() -> ApiError {
    ApiError::Conflict("Others are changing this at the same time; try again.".to_owned())
}

fn etag(version: u64) -> String {
    format!("\"v{version}\"")
}
