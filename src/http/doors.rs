//! The gateway's own routes for callers and monitors, in one table; the operator's desk has its own.

use super::pattern::capture;
use crate::gateway::Dialect;

/// What stands behind a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Door {
    /// An LLM API.
    Llm(Dialect),
    /// The models a caller may use.
    Models,
    /// One of them.
    Model,
    /// The simple door.
    Query,
    /// A decision for another service.
    Consume,
    /// How it went.
    Settle,
    /// That it failed.
    Release,
    /// The caller's quota.
    Quota,
    /// What they used.
    Usage,
    /// Their keys.
    Keys,
    /// Their jobs.
    Jobs,
    /// One of them.
    Job,
    /// The end of one.
    CancelJob,
    /// Their inbox.
    Notifications,
    /// A notification that was read.
    Read,
    /// Whether this Worker runs.
    Alive,
    /// Whether it could serve.
    Ready,
    /// The document of this surface.
    Document,
    /// Numbers for Prometheus.
    Metrics,
}

impl Door {
    /// Whether anybody may knock.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Alive | Self::Ready | Self::Document)
    }

    /// Whether a call here counts against short limits, whatever comes of it.
    pub const fn is_work(self) -> bool {
        matches!(
            self,
            Self::Llm(_) | Self::Models | Self::Model | Self::Query
        )
    }
}

/// One route.
pub struct Route {
    /// Its method; where anybody may `GET`, anybody may `HEAD`.
    pub method: &'static str,
    /// Its path, as [`capture`] reads it.
    pub pattern: &'static str,
    door: Door,
}

/// Every route.
pub const ROUTES: [Route; 24] = [
    llm(Dialect::ChatCompletions),
    llm(Dialect::Completions),
    llm(Dialect::Embeddings),
    llm(Dialect::Responses),
    llm(Dialect::Messages),
    llm(Dialect::CountTokens),
    route("GET", "/v1/models", Door::Models),
    route("GET", "/v1/models/{model*}", Door::Model),
    route("POST", "/api/ai/query", Door::Query),
    route("POST", "/api/limits/consume", Door::Consume),
    route("POST", "/api/limits/settle", Door::Settle),
    route("POST", "/api/limits/release", Door::Release),
    route("GET", "/api/quota", Door::Quota),
    route("GET", "/api/usage", Door::Usage),
    route("GET", "/api/keys", Door::Keys),
    route("GET", "/api/jobs", Door::Jobs),
    route("GET", "/api/jobs/{id}", Door::Job),
    route("DELETE", "/api/jobs/{id}", Door::CancelJob),
    route("GET", "/api/notifications", Door::Notifications),
    route("POST", "/api/notifications/{id}/read", Door::Read),
    route("GET", "/healthz", Door::Alive),
    route("GET", "/readyz", Door::Ready),
    route("GET", "/openapi.json", Door::Document),
    route("GET", "/metrics", Door::Metrics),
];

const fn llm(dialect: Dialect) -> Route {
    route("POST", dialect.path(), Door::Llm(dialect))
}

const fn route(method: &'static str, pattern: &'static str, door: Door) -> Route {
    Route {
        method,
        pattern,
        door,
    }
}

/// What a method and a path lead to.
#[derive(Debug, Eq, PartialEq)]
pub enum Found {
    /// A door, and the id in the path.
    Door(Door, String),
    /// A door that other methods open: these.
    WrongMethod(Door, String),
    /// None of these routes.
    Nowhere,
}

/// Looks a call up.
pub fn find(method: &str, path: &str) -> Found {
    let mut wrong = Found::Nowhere;
    for route in &ROUTES {
        let Some(id) = capture(route.pattern, path) else {
            continue;
        };
        if route.takes(method) {
            return Found::Door(route.door, id);
        }
        wrong = Found::WrongMethod(route.door, route.and_allowed(wrong));
    }
    wrong
}

impl Route {
    fn takes(&self, method: &str) -> bool {
        self.method == method || (self.door.is_open() && method == "HEAD")
    }

    fn and_allowed(&self, before: Found) -> String {
        let own = if self.door.is_open() {
            "GET, HEAD"
        } else {
            self.method
        };
        match before {
            Found::WrongMethod(_, others) => format!("{others}, {own}"),
            _ => own.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_methods_and_no_others() {
        let door = |door, id: &str| Found::Door(door, id.to_owned());
        let wrong = |door, allow: &str| Found::WrongMethod(door, allow.to_owned());
        assert_eq!(find("GET", "/api/jobs/job_1"), door(Door::Job, "job_1"));
        assert_eq!(
            find("DELETE", "/api/jobs/job_1"),
            door(Door::CancelJob, "job_1")
        );
        assert_eq!(
            find("PUT", "/api/jobs/job_1"),
            wrong(Door::CancelJob, "GET, DELETE")
        );
        assert_eq!(find("HEAD", "/healthz"), door(Door::Alive, ""));
        assert_eq!(find("POST", "/healthz"), wrong(Door::Alive, "GET, HEAD"));
        assert_eq!(find("HEAD", "/api/quota"), wrong(Door::Quota, "GET"));
        assert_eq!(find("get", "/api/quota"), wrong(Door::Quota, "GET"));
        assert_eq!(
            find("GET", "/v1/models/%40cf%2Fmeta/llama"),
            door(Door::Model, "@cf/meta/llama")
        );
        for path in [
            "/",
            "/v1/models/",
            "/api/jobs/",
            "/api/jobs/a/b",
            "/API/quota",
            "/api/quota/",
            "/api//quota",
        ] {
            assert_eq!(find("GET", path), Found::Nowhere, "{path}");
        }
    }
}
