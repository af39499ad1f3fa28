//! The operator's desk, route by route as its own table has them: a route that is not described here fails
//! the tests.

use serde_json::json;

use super::operation::Operation;
use super::parts::Desk;
use super::schema::{named, page};
use crate::admin;

/// Every route of the desk.
pub fn all() -> Vec<Operation> {
    admin::all()
        .map(|route| described(route.method, route.pattern))
        .collect()
}

const PART: &[&str] = &["limit", "cursor"];
const CHANGE: &[&str] = &["ifMatch"];
const GONE: &[u16] = &[404, 409, 412];

fn described(method: &'static str, pattern: &str) -> Operation {
    let new = |id: &str, summary: &str| {
        Operation::new(Desk::Operator, method, pattern, id, summary).tag("operator")
    };
    let list = |id: &str, summary: &str, item| {
        new(id, summary)
            .parameters(PART)
            .answer(200, "A part of the list.", page(item))
    };
    let show = |id: &str, summary: &str, name| {
        new(id, summary)
            .versioned(200, "It.", named(name))
            .errors(&[404])
    };
    let create = |id: &str, summary: &str, body, name| {
        new(id, summary)
            .body(body)
            .versioned(201, "It is there now.", named(name))
            .errors(&[409])
    };
    let change = |id: &str, summary: &str, body, name| {
        new(id, summary)
            .parameters(CHANGE)
            .optional_body(body)
            .versioned(200, "As it is now.", named(name))
            .errors(GONE)
    };
    let delete = |id: &str, summary: &str| {
        new(id, summary)
            .parameters(CHANGE)
            .nothing(204, "It is gone.")
            .errors(GONE)
    };
    let plan = json!({"anyOf": [named("Plan"), named("BrokenPlan")]});
    match (method, pattern) {
        ("GET", "/admin") => new("listAdminRoutes", "What there is at this desk.").answer(200, "Its routes.", page(named("AdminRoute"))),

        ("GET", "/admin/plans") => list("listPlans", "The plans.", plan),
        ("POST", "/admin/plans") => create("createPlan", "A new plan. What is left out is unlimited.", "NewPlan", "Plan"),
        ("GET", "/admin/plans/{plan_id}") => show("getPlan", "One plan.", "Plan"),
        ("PATCH", "/admin/plans/{plan_id}") => change("changePlan", "Changes members of a plan.", "PlanPatch", "Plan"),
        ("DELETE", "/admin/plans/{plan_id}") => delete("deletePlan", "Deletes a plan nobody is on."),

        ("GET", "/admin/users") => list("listUsers", "The users.", named("User")).parameters(&["prefix", "onPlan"]),
        ("POST", "/admin/users") => create("createUser", "A new user.", "NewUser", "User"),
        ("GET", "/admin/users/{user_id}") => show("getUser", "One user.", "User"),
        ("PATCH", "/admin/users/{user_id}") => change("changeUser", "Changes a user, blocks and unblocks.", "UserPatch", "User"),
        ("DELETE", "/admin/users/{user_id}") => delete("deleteUser", "Deletes a user with their keys."),

        ("GET", "/admin/users/{user_id}/quota") => {
            new("getUserQuota", "What a user has left.").answer(200, "The quota.", named("Quota")).errors(&[404])
        }
        ("GET", "/admin/users/{user_id}/usage") => new("getUserUsage", "What a user has used, one row a day.")
            .parameters(&["from", "to"])
            .answer(200, "The days.", page(named("UsageDay")))
            .errors(&[404]),
        ("POST", "/admin/users/{user_id}/reset") => new("resetQuota", "Forgets what a user has used; without `policies`, of all.")
            .optional_body("QuotaReset")
            .answer(200, "The quota as it is now.", named("Quota"))
            .errors(&[404]),
        ("POST", "/admin/users/{user_id}/grant") => new("grantQuota", "Tops a user's quota up.")
            .body("QuotaGrant")
            .answer(200, "The quota as it is now.", named("Quota"))
            .errors(&[404]),

        ("GET", "/admin/users/{user_id}/keys") => list("listKeys", "A user's keys.", named("Key")).errors(&[404]),
        ("POST", "/admin/users/{user_id}/keys") => new("createKey", "A new key, shown this once.")
            .optional_body("NewKey")
            .answer(201, "The key.", named("KeyWithSecret"))
            .errors(&[404, 409]),
        ("DELETE", "/admin/keys/{key_id}") => new("revokeKey", "Revokes a key from now on.").nothing(204, "It is revoked.").errors(&[404]),
        ("POST", "/admin/keys/{key_id}/rotate") => new("rotateKey", "A new key in the place of an old one.")
            .optional_body("KeyRotation")
            .answer(201, "The new key.", named("KeyWithSecret"))
            .errors(&[404, 409]),

        ("GET", "/admin/models") => list("listModelRows", "Where models' calls go.", named("Model")),
        ("GET", "/admin/models/{model*}") => show("getModelRow", "Where a model's calls go.", "Model"),
        ("PUT", "/admin/models/{model*}") => new("putModelRow", "Says where a model's calls go; what is left out is unset.")
            .parameters(CHANGE)
            .body("ModelBody")
            .versioned(200, "As it is now.", named("Model"))
            .versioned(201, "It is there now.", named("Model"))
            .errors(&[409, 412]),
        ("DELETE", "/admin/models/{model*}") => delete("deleteModelRow", "The model's calls go to the default provider again."),

        ("GET", "/admin/routes") => list("listRoutes", "The protected routes.", named("Route")),
        ("POST", "/admin/routes") => create("createRoute", "A new protected route.", "NewRoute", "Route"),
        ("GET", "/admin/routes/{route_id}") => show("getRoute", "One protected route.", "Route"),
        ("PATCH", "/admin/routes/{route_id}") => change("changeRoute", "Changes members of a protected route.", "RoutePatch", "Route"),
        ("DELETE", "/admin/routes/{route_id}") => delete("deleteRoute", "Its paths are nobody's again."),

        ("GET", "/admin/stats") => new("getStats", "What all users did together.")
            .parameters(&["from", "to"])
            .answer(200, "The numbers.", named("Stats")),
        ("GET", "/admin/audit") => list("listAudit", "Who changed what, before and after, the newest first.", named("AuditEntry")),
        ("GET", "/admin/alerts") => list("listAlerts", "What is or was wrong, the newest first.", named("Alert")).parameters(&["alertStatus"]),
        ("POST", "/admin/reconcile") => new("reconcile", "Compares accounts with the ledger, and mends. Large sets come in parts: `cursor` is the `next_cursor` of the one before.")
            .optional_body("Reconciliation")
            .answer(200, "What was compared.", named("ReconciliationReport")),

        ("GET", "/admin/jobs") => {
            let jobs = super::schema::with(page(named("OperatorsJob")), json!({
                "dead_letters": {"type": "array", "items": named("DeadLetter"), "description": "The newest messages nobody could read."},
            }));
            new("listAllJobs", "Jobs of all users, the newest first.").parameters(PART).parameters(&["jobStatus", "ofUser"]).answer(200, "A part of the list.", jobs)
        }
        ("POST", "/admin/jobs/{id}/retry") => new("retryJob", "Lets a job that failed or expired run again.")
            .answer(200, "The job.", named("OperatorsJob"))
            .errors(&[404, 409]),
        ("POST", "/admin/jobs/{id}/cancel") => new("cancelJobOfUser", "Calls a waiting job off.")
            .answer(200, "The job.", named("OperatorsJob"))
            .errors(&[404, 409]),

        _ => panic!("{method} {pattern} is not described"),
    }
}
