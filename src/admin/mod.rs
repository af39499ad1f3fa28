//! The operator's desk. Every route stands in one of the [`TABLES`], and whoever isn't the operator is
//! turned away before a table is looked at.

mod audit;
pub mod health;
mod input;
mod keys;
mod models;
mod plans;
mod push;
mod quota;
mod routes;
mod stats;
mod users;
mod visit;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::json;

pub use self::visit::{Visit, failed};
use crate::auth;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::jobs::admin as jobs;
use crate::observe::{alerts, reconcile};

/// One route of the desk.
pub struct Route {
    /// Its method.
    pub method: &'static str,
    /// Its path: `{id}` stands for one segment, `{id*}` for all that follow.
    pub pattern: &'static str,
    handler: Handler,
}

type Handler = fn(Visit) -> LocalBoxFuture<'static, Handled>;

impl Route {
    const fn new(method: &'static str, pattern: &'static str, handler: Handler) -> Self {
        Self {
            method,
            pattern,
            handler,
        }
    }
}

/// All routes of the desk, by subject.
const TABLES: &[&[Route]] = &[
    &[Route::new("GET", "/admin/", |_| {
        async { index() }.boxed_local()
    })],
    plans::ROUTES,
    users::ROUTES,
    quota::ROUTES,
    keys::ROUTES,
    models::ROUTES,
    routes::ROUTES,
    stats::ROUTES,
    OBSERVE,
    audit::ROUTES,
    JOBS,
];

/// Jobs; their handlers are at home with the jobs.
const JOBS: &[Route] = &[
    Route::new("GET", "/admin/jobs", |visit| {
        async move { jobs::list(&visit).await }.boxed_local()
    }),
    Route::new("POST", "/admin/jobs/{id}/retry", |visit| {
        async move { jobs::retry(&visit).await }.boxed_local()
    }),
    Route::new("POST", "/admin/jobs/{id}/cancel", |visit| {
        async move { jobs::cancel(&visit).await }.boxed_local()
    }),
];

/// Alerts and reconciliation; their handlers are at home with what is observed.
const OBSERVE: &[Route] = &[
    Route::new("GET", "/admin/alerts", |visit| {
        async move { alerts::list(&visit).await }.boxed_local()
    }),
    Route::new("POST", "/admin/reconcile", |visit| {
        reconcile::post(visit).boxed_local()
    }),
];

/// Every route of the desk.
pub fn all() -> impl Iterator<Item = &'static Route> {
    TABLES.iter().copied().flatten()
}

/// Answers one of the operator's routes.
pub async fn route(call: Call, path: &str) -> Handled {
    auth::require_admin(&call.request, &call.env, &call.settings, call.now).await?;
    // `Request::method` takes any method it does not know for a GET.
    let method = call.request.inner().method();
    let mut allowed = Vec::new();
    for route in all() {
        match capture(route.pattern, path) {
            Some(id) if route.method == method => {
                return (route.handler)(Visit { call, id }).await;
            }
            Some(_) => allowed.push(route.method),
            None => {}
        }
    }
    if allowed.is_empty() {
        return Err(ApiError::no_route());
    }
    let mut reply = ApiError::MethodNotAllowed(method).reply(call.shape, &call.id);
    reply.set("allow", allowed.join(", "));
    Ok(reply)
}

/// `GET /admin/`: what there is at this desk.
fn index() -> Handled {
    let list: Vec<_> = all()
        .map(|route| json!({"method": route.method, "path": route.pattern}))
        .collect();
    Ok(Reply::json(
        200,
        &json!({"data": list, "next_cursor": null}),
    ))
}

/// What stands in the path where the pattern has its braces; empty if it has none, `None` if the path is
/// another one. Segments are told apart before escapes are read: an id may hold a slash.
fn capture(pattern: &str, path: &str) -> Option<String> {
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
    }

    #[test]
    fn no_route_is_there_twice() {
        let mut seen = std::collections::HashSet::new();
        for route in all() {
            assert!(
                seen.insert((route.method, route.pattern)),
                "{} {}",
                route.method,
                route.pattern
            );
            assert!(route.pattern.starts_with("/admin/"));
        }
    }
}
