//! The operator's desk. Every route stands in one of the [`TABLES`], and whoever isn't the operator is
//! turned away before a table is looked at.

mod audit;
#[cfg(test)]
pub mod bodies;
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
use crate::http::pattern::capture;
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
    &[Route::new("GET", "/admin", |_| {
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
    let path = if path == "/admin/" { "/admin" } else { path };
    let mut allowed = Vec::new();
    for route in all() {
        match capture(route.pattern, path) {
            Some(id) if route.method == call.request.method() => {
                return (route.handler)(Visit { call, id }).await;
            }
            Some(_) => allowed.push(route.method),
            None => {}
        }
    }
    if allowed.is_empty() {
        return Err(ApiError::no_route());
    }
    let mut reply =
        ApiError::MethodNotAllowed(call.request.method().to_owned()).reply(call.shape, &call.id);
    reply.set("allow", allowed.join(", "));
    Ok(reply)
}

/// `GET /admin`: what there is at this desk.
fn index() -> Handled {
    let list: Vec<_> = all()
        .map(|route| json!({"method": route.method, "path": route.pattern}))
        .collect();
    Ok(Reply::json(
        200,
        &json!({"data": list, "next_cursor": null}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(route.pattern.starts_with("/admin"));
        }
    }
}
