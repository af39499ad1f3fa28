//! One line in the log for every call, and a data point where the operator has bound Analytics Engine.
//! Neither holds a credential, a user's id or anything a caller has written: routes are named by us.

use std::rc::Rc;

use serde::Serialize;
use worker::{AnalyticsEngineDataPointBuilder, Env};

use super::{Stage, Timing};
use crate::clock;
use crate::http::Reply;
use crate::http::incoming::Incoming;
use crate::limits::{Millis, Span};
use crate::settings::Settings;

/// The header by which a caller asks what took how long.
const ASKS: &str = "x-sluice-timing";
/// The binding of Analytics Engine, which is optional.
const ANALYTICS: &str = "ANALYTICS";

/// Watches one call.
pub struct Watch {
    env: Env,
    settings: Rc<Settings>,
    timing: Rc<Timing>,
    began: Millis,
    method: String,
    asked: bool,
}

/// How calls are logged that are answered like one before, in no time.
pub struct Alike {
    method: String,
    route: &'static str,
    status: u16,
    decision: Option<String>,
    plan: Option<String>,
    policy: Option<String>,
    logged: bool,
}

/// One call, as the log has it.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    request_id: &'a str,
    method: &'a str,
    route: &'a str,
    status: u16,
    decision: Option<&'a str>,
    plan: Option<&'a str>,
    policy: Option<&'a str>,
    ms: u64,
    account_ms: Option<u64>,
    upstream_ms: Option<u64>,
}

impl Watch {
    /// The call begins.
    pub fn start(
        request: &Incoming,
        env: &Env,
        settings: &Rc<Settings>,
        timing: Rc<Timing>,
    ) -> Self {
        Self {
            env: env.clone(),
            settings: settings.clone(),
            timing,
            began: clock::now(settings),
            method: request.method().to_owned(),
            asked: request.header(ASKS).is_some_and(|text| text != "0"),
        }
    }

    /// Its answer begins.
    pub fn stop(&self, path: &str, id: &str, reply: &mut Reply) {
        let took = clock::now(&self.settings).since(self.began);
        if self.asked {
            reply.set("server-timing", self.timing.header(took));
        }
        let route = route_of(path);
        if self.settings.log_calls {
            self.log(route, id, reply, took);
        }
        self.point(route, reply, took);
    }

    fn log(&self, route: &str, id: &str, reply: &Reply, took: Span) {
        let line = Line {
            event: "call",
            request_id: id,
            method: &self.method,
            route,
            status: reply.status,
            decision: reply.get("x-sluice-decision"),
            plan: reply.notes.plan.as_deref(),
            policy: reply.notes.policy.as_deref(),
            ms: took.0,
            account_ms: self.timing.of(Stage::Account).map(|span| span.0),
            upstream_ms: self.timing.of(Stage::Upstream).map(|span| span.0),
        };
        line.write();
    }

    /// How calls are logged that get the same answer; `None`: each of them is a data point of its own.
    pub fn alike(&self, path: &str, reply: &Reply) -> Option<Alike> {
        if self.settings.analytics || reply.notes.again.is_none() {
            return None;
        }
        Some(Alike {
            method: self.method.clone(),
            route: route_of(path),
            status: reply.status,
            decision: reply.get("x-sluice-decision").map(str::to_owned),
            plan: reply.notes.plan.clone(),
            policy: reply.notes.policy.clone(),
            logged: self.settings.log_calls,
        })
    }

    fn point(&self, route: &str, reply: &Reply, took: Span) {
        if !self.settings.analytics {
            return;
        }
        let Ok(dataset) = self.env.analytics_engine(ANALYTICS) else {
            return;
        };
        let plan = reply.notes.plan.as_deref().unwrap_or_default();
        let policy = reply.notes.policy.as_deref().unwrap_or_default();
        let decision = reply.get("x-sluice-decision").unwrap_or_default();
        let point = AnalyticsEngineDataPointBuilder::new()
            .indexes([plan])
            .blobs([route, decision, policy])
            .doubles([f64::from(reply.status), millis(took)])
            .build();
        // A point that is lost is no reason to fail a call.
        let _ = dataset.write_data_point(&point);
    }
}

impl Alike {
    /// Logs one more call.
    pub fn log(&self, id: &str) {
        if !self.logged {
            return;
        }
        let line = Line {
            event: "call",
            request_id: id,
            method: &self.method,
            route: self.route,
            status: self.status,
            decision: self.decision.as_deref(),
            plan: self.plan.as_deref(),
            policy: self.policy.as_deref(),
            ms: 0,
            account_ms: None,
            upstream_ms: None,
        };
        line.write();
    }
}

impl Line<'_> {
    fn write(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            worker::console_log!("{line}");
        }
    }
}

#[allow(clippy::cast_precision_loss)]
const fn millis(span: Span) -> f64 {
    span.0 as f64
}

/// A name for the route, out of a fixed set: paths are written by callers.
fn route_of(path: &str) -> &'static str {
    const ROUTES: [&str; 21] = [
        "/admin",
        "/api/ai/query",
        "/api/keys",
        "/api/limits/consume",
        "/api/limits/release",
        "/api/limits/settle",
        "/api/quota",
        "/api/usage",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/api/jobs",
        "/api/notifications",
        "/v1/models",
    ];
    const PREFIXES: [&str; 4] = [
        "/admin/",
        "/api/jobs/",
        "/api/notifications/",
        "/v1/models/",
    ];
    let exact = ROUTES.iter().find(|route| **route == path);
    let below = || PREFIXES.iter().find(|prefix| path.starts_with(**prefix));
    exact.or_else(below).copied().unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_make_up_is_other() {
        assert_eq!(route_of("/v1/responses"), "/v1/responses");
        assert_eq!(route_of("/admin/users/somebody"), "/admin/");
        assert_eq!(route_of("/secret/path"), "other");
    }
}
