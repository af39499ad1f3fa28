//! `/admin/routes`: the operator's own services behind the gateway.

use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::visit::{self, RACES, Visit, conflicts, failed, shown};
use super::{Route, input};
use crate::gateway::protected;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply, ids};
use crate::ledger::audit::Entry;
use crate::ledger::routes::{self, RouteRow};
use crate::plans::check_name;

/// The routes of protected routes.
pub const ROUTES: &[Route] = &[
    Route::new("GET", "/admin/routes", |visit| list(visit).boxed_local()),
    Route::new("POST", "/admin/routes", |visit| create(visit).boxed_local()),
    Route::new("GET", "/admin/routes/{route_id}", |visit| {
        show(visit).boxed_local()
    }),
    Route::new("PATCH", "/admin/routes/{route_id}", |visit| {
        change(visit).boxed_local()
    }),
    Route::new("DELETE", "/admin/routes/{route_id}", |visit| {
        delete(visit).boxed_local()
    }),
];

/// More methods than there are to forward.
const MAX_METHODS: usize = 16;
/// The wait where none is set.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Longest path prefix.
const MAX_PREFIX: usize = 512;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRoute {
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$")))]
    route_id: Option<String>,
    #[cfg_attr(
        test,
        schemars(length(max = 512), regex(pattern = r"^/[A-Za-z0-9._~/-]*$"))
    )]
    path_prefix: String,
    #[cfg_attr(
        test,
        schemars(
            length(max = 16),
            inner(regex(pattern = r"^(GET|HEAD|POST|PUT|PATCH|DELETE)$"))
        )
    )]
    methods: Option<Vec<String>>,
    #[cfg_attr(
        test,
        schemars(length(max = 2048), regex(pattern = r"^https?://[^?#]+$"))
    )]
    upstream_url: String,
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$")))]
    endpoint: Option<String>,
    #[cfg_attr(test, schemars(range(min = 1)))]
    cost: Option<u64>,
    #[cfg_attr(test, schemars(range(min = 1, max = 3_600_000)))]
    timeout_ms: Option<u64>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    #[serde(default, deserialize_with = "input::not_null")]
    #[cfg_attr(
        test,
        schemars(with = "String"),
        schemars(length(max = 512), regex(pattern = r"^/[A-Za-z0-9._~/-]*$"))
    )]
    path_prefix: Option<String>,
    #[serde(default, deserialize_with = "input::maybe")]
    #[cfg_attr(
        test,
        schemars(
            length(max = 16),
            inner(regex(pattern = r"^(GET|HEAD|POST|PUT|PATCH|DELETE)$"))
        )
    )]
    methods: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "input::not_null")]
    #[cfg_attr(
        test,
        schemars(with = "String"),
        schemars(length(max = 2048), regex(pattern = r"^https?://[^?#]+$"))
    )]
    upstream_url: Option<String>,
    #[serde(default, deserialize_with = "input::maybe")]
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$")))]
    endpoint: Option<Option<String>>,
    #[serde(default, deserialize_with = "input::not_null")]
    #[cfg_attr(test, schemars(with = "u64", range(min = 1)))]
    cost: Option<u64>,
    #[serde(default, deserialize_with = "input::maybe")]
    #[cfg_attr(test, schemars(range(min = 1, max = 3_600_000)))]
    timeout_ms: Option<Option<u64>>,
}

async fn list(visit: Visit) -> Handled {
    let page = visit.page()?;
    let rows = routes::page(&visit.call.env, &page).await.map_err(failed)?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |row| (0, &row.route_id), |row| json!(row)),
    ))
}

async fn create(mut visit: Visit) -> Handled {
    let new: NewRoute = visit.body().await?;
    let fresh = || ids::fresh("route").map_err(|_| ApiError::Misconfigured("no random numbers"));
    let row = RouteRow {
        route_id: new.route_id.map_or_else(fresh, Ok)?,
        path_prefix: new.path_prefix,
        methods: new.methods,
        upstream_url: new.upstream_url,
        endpoint: new.endpoint,
        cost: new.cost.unwrap_or(1),
        timeout_ms: new.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS),
        version: 1,
        updated_at: visit.now(),
    };
    check(&visit.call, &row)?;
    let entry = Entry {
        at: &row.updated_at,
        action: "route.create",
        target: &row.route_id,
        before: None,
        after: Some(audited(&row)),
    };
    let created = routes::create(&visit.call.env, &row, &entry).await;
    created.map_err(|e| conflicts(e, "A route of this id or prefix is there already."))?;
    protected::forget();
    Ok(shown(201, &json!(row), row.version))
}

async fn show(visit: Visit) -> Handled {
    let row = found(&visit).await?;
    Ok(shown(200, &json!(row), row.version))
}

async fn change(mut visit: Visit) -> Handled {
    let patch: Patch = visit.body().await?;
    for _ in 0..RACES {
        let old = found(&visit).await?;
        visit.expect(old.version)?;
        let mut row = patch.apply(&old);
        check(&visit.call, &row)?;
        if row == old {
            return Ok(shown(200, &json!(row), row.version));
        }
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: "route.update",
            target: &row.route_id,
            before: Some(audited(&old)),
            after: Some(audited(&row)),
        };
        let updated = routes::update(&visit.call.env, &row, &entry).await;
        if updated.map_err(|e| conflicts(e, "Another route has this prefix."))? {
            protected::forget();
            row.version += 1;
            row.updated_at = now;
            return Ok(shown(200, &json!(row), row.version));
        }
    }
    Err(visit::busy())
}

async fn delete(visit: Visit) -> Handled {
    for _ in 0..RACES {
        let row = found(&visit).await?;
        visit.expect(row.version)?;
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: "route.delete",
            target: &row.route_id,
            before: Some(audited(&row)),
            after: None,
        };
        if routes::delete(&visit.call.env, &row, &entry)
            .await
            .map_err(failed)?
        {
            protected::forget();
            return Ok(Reply::empty(204));
        }
    }
    Err(visit::busy())
}

async fn found(visit: &Visit) -> Result<RouteRow, ApiError> {
    let row = routes::get(&visit.call.env, &visit.id)
        .await
        .map_err(failed)?;
    row.ok_or_else(|| ApiError::not_found("route"))
}

impl Patch {
    fn apply(&self, old: &RouteRow) -> RouteRow {
        let mut row = old.clone();
        if let Some(path_prefix) = &self.path_prefix {
            row.path_prefix.clone_from(path_prefix);
        }
        if let Some(methods) = &self.methods {
            row.methods.clone_from(methods);
        }
        if let Some(upstream_url) = &self.upstream_url {
            row.upstream_url.clone_from(upstream_url);
        }
        if let Some(endpoint) = &self.endpoint {
            row.endpoint.clone_from(endpoint);
        }
        if let Some(cost) = self.cost {
            row.cost = cost;
        }
        if let Some(timeout_ms) = self.timeout_ms {
            row.timeout_ms = timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        }
        row
    }
}

/// The rules every route keeps, and those that only whoever writes one has to be held to.
fn check(call: &Call, row: &RouteRow) -> Result<(), ApiError> {
    named("route_id", &row.route_id)?;
    if row.path_prefix.len() > MAX_PREFIX {
        return Err(input::refused("path_prefix", "must be at most 512 bytes"));
    }
    if row
        .methods
        .as_ref()
        .is_some_and(|methods| methods.len() > MAX_METHODS)
    {
        return Err(input::refused("methods", "has too many entries"));
    }
    protected::check(row).map_err(|e| input::refused(e.field, &e.reason))?;
    input::check_target("upstream_url", &row.upstream_url, &call.settings)
}

fn named(field: &str, name: &str) -> Result<(), ApiError> {
    check_name(field, name).map_err(|e| input::refused(&e.field, &e.reason))
}

/// What the audit keeps of a route: what an operator can change.
fn audited(row: &RouteRow) -> Value {
    json!({
        "path_prefix": row.path_prefix,
        "methods": row.methods,
        "upstream_url": row.upstream_url,
        "endpoint": row.endpoint,
        "cost": row.cost,
        "timeout_ms": row.timeout_ms,
    })
}
