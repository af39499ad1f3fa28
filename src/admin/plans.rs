//! `/admin/plans`.

use futures::FutureExt;
use serde_json::{Map, Value, json};

use super::visit::{self, RACES, Visit, conflicts, failed, shown};
use super::{Route, input};
use crate::account::{leases, refusals};
use crate::http::router::Handled;
use crate::http::{ApiError, Reply};
use crate::ledger::audit::Entry;
use crate::ledger::plans::{self, BadPlan, StoredPlan};
use crate::plans::{InvalidPlan, Plan, cache};

/// The routes of plans.
pub const ROUTES: &[Route] = &[
    Route::new("GET", "/admin/plans", |visit| list(visit).boxed_local()),
    Route::new("POST", "/admin/plans", |visit| create(visit).boxed_local()),
    Route::new("GET", "/admin/plans/{plan_id}", |visit| {
        show(visit).boxed_local()
    }),
    Route::new("PATCH", "/admin/plans/{plan_id}", |visit| {
        change(visit).boxed_local()
    }),
    Route::new("DELETE", "/admin/plans/{plan_id}", |visit| {
        delete(visit).boxed_local()
    }),
];

async fn list(visit: Visit) -> Handled {
    let page = visit.page()?;
    let rows = plans::page(&visit.call.env, &page).await.map_err(failed)?;
    let id = |row: &Result<StoredPlan, BadPlan>| match row {
        Ok(stored) => stored.plan.plan_id.clone(),
        Err(bad) => bad.plan_id.clone(),
    };
    let rows: Vec<_> = rows.into_iter().map(|row| (id(&row), row)).collect();
    Ok(Reply::json(
        200,
        &page.answer(rows, |(id, _)| (0, id), |(_, row)| listed(row)),
    ))
}

async fn create(mut visit: Visit) -> Handled {
    let fields = visit.object().await?;
    input::only_objects("", &fields)?;
    let plan = Plan::from_value(Value::Object(fields)).map_err(|e| refused(&e))?;
    let stored = StoredPlan {
        plan,
        version: 1,
        updated_at: visit.now(),
    };
    let entry = Entry {
        at: &stored.updated_at,
        action: "plan.create",
        target: &stored.plan.plan_id,
        before: None,
        after: Some(json!(stored.plan)),
    };
    let created = plans::create(&visit.call.env, &stored.plan, &entry).await;
    created.map_err(|e| conflicts(e, "A plan of this id is there already."))?;
    forget();
    Ok(shown(201, &body(&stored), stored.version))
}

async fn show(visit: Visit) -> Handled {
    let stored = found(&visit).await?;
    Ok(shown(200, &body(&stored), stored.version))
}

/// The members of the body take the place of the plan's own.
async fn change(mut visit: Visit) -> Handled {
    let patch = visit.object().await?;
    input::only_objects("", &patch)?;
    for _ in 0..RACES {
        let stored = found(&visit).await?;
        visit.expect(stored.version)?;
        let plan = patched(&stored.plan, &patch)?;
        if plan == stored.plan {
            return Ok(shown(200, &body(&stored), stored.version));
        }
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: "plan.update",
            target: &plan.plan_id,
            before: Some(json!(stored.plan)),
            after: Some(json!(plan)),
        };
        let updated = plans::update(&visit.call.env, &plan, stored.version, &entry).await;
        if updated.map_err(failed)? {
            forget();
            let stored = StoredPlan {
                plan,
                version: stored.version + 1,
                updated_at: now,
            };
            return Ok(shown(200, &body(&stored), stored.version));
        }
    }
    Err(visit::busy())
}

async fn delete(visit: Visit) -> Handled {
    for _ in 0..RACES {
        let stored = found(&visit).await?;
        visit.expect(stored.version)?;
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: "plan.delete",
            target: &visit.id,
            before: Some(json!(stored.plan)),
            after: None,
        };
        let deleted = plans::delete(&visit.call.env, &visit.id, stored.version, &entry).await;
        let deleted = deleted.map_err(|e| conflicts(e, "Users are on this plan."))?;
        if deleted {
            forget();
            return Ok(Reply::empty(204));
        }
    }
    Err(visit::busy())
}

/// The old plan, and what it refused, is believed no more in this isolate.
fn forget() {
    cache::forget();
    refusals::forget_all();
    leases::end_all();
}

async fn found(visit: &Visit) -> Result<StoredPlan, ApiError> {
    let stored = plans::one(&visit.call.env, &visit.id)
        .await
        .map_err(failed)?;
    stored.ok_or_else(|| ApiError::not_found("plan"))
}

fn patched(plan: &Plan, patch: &Map<String, Value>) -> Result<Plan, ApiError> {
    let patched = plan.patched(patch).map_err(|e| refused(&e))?;
    if patched.plan_id != plan.plan_id {
        return Err(input::refused("plan_id", "can't be changed"));
    }
    Ok(patched)
}

fn refused(error: &InvalidPlan) -> ApiError {
    input::refused_plan("", error)
}

fn body(stored: &StoredPlan) -> Value {
    let mut body = json!(stored.plan);
    if let Some(fields) = body.as_object_mut() {
        fields.insert("version".into(), json!(stored.version));
        fields.insert("updated_at".into(), json!(stored.updated_at));
    }
    body
}

/// A row that was made invalid by hand is shown as such rather than hidden.
fn listed(row: &Result<StoredPlan, BadPlan>) -> Value {
    match row {
        Ok(stored) => body(stored),
        Err(bad) => json!({"plan_id": bad.plan_id, "name": bad.plan_id, "invalid": bad.reason}),
    }
}
