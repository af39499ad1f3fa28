//! `GET /admin/stats?from=&to=`: what all users did together.

use std::collections::BTreeMap;

use futures::FutureExt;
use serde_json::{Map, Value, json};

use super::Route;
use super::visit::{Visit, failed};
use crate::gateway::desk;
use crate::http::Reply;
use crate::http::router::Handled;
use crate::ledger::stats::{self, PlanRow, Stats};

/// The routes of statistics.
pub const ROUTES: &[Route] = &[Route::new("GET", "/admin/stats", |visit| {
    show(visit).boxed_local()
})];

async fn show(visit: Visit) -> Handled {
    let (from, to) = desk::span(&visit.call)?;
    let stats = stats::between(&visit.call.env, &from, &to)
        .await
        .map_err(failed)?;
    let plans: Vec<_> = stats
        .plans
        .iter()
        .map(|plan| counts(plan, &stats))
        .collect();
    let body = json!({
        "from": from,
        "to": to,
        "totals": totals(&stats),
        "plans": plans,
        "endpoints": endpoints(&stats),
        "days": stats.days,
        "top_users": stats.top_users,
    });
    Ok(Reply::json(200, &body))
}

fn totals(stats: &Stats) -> Value {
    let sum =
        |field: fn(&PlanRow) -> u64| stats.plans.iter().map(field).fold(0, u64::saturating_add);
    let (allowed, refused) = (sum(|p| p.allowed), sum(|p| p.refused));
    json!({
        "allowed": allowed,
        "refused": refused,
        "degraded": sum(|p| p.degraded),
        "queued": sum(|p| p.queued),
        "failed_open": sum(|p| p.failed_open),
        "tokens": sum(|p| p.tokens),
        "refusal_rate": rate(allowed, refused),
    })
}

fn counts(plan: &PlanRow, stats: &Stats) -> Value {
    let of_plan = stats.refusals.iter().filter(|r| r.plan_id == plan.plan_id);
    let refused_by: Map<_, _> = of_plan
        .map(|r| (r.policy.clone(), json!(r.refused)))
        .collect();
    json!({
        "plan_id": plan.plan_id,
        "allowed": plan.allowed,
        "refused": plan.refused,
        "refused_by": refused_by,
        "degraded": plan.degraded,
        "queued": plan.queued,
        "failed_open": plan.failed_open,
        "tokens": plan.tokens,
        "refusal_rate": rate(plan.allowed, plan.refused),
    })
}

/// Endpoints with a limit of their own: what it let through and what it refused.
fn endpoints(stats: &Stats) -> Vec<Value> {
    let mut counts = BTreeMap::<&str, (u64, u64)>::new();
    for row in &stats.endpoints {
        counts.entry(&row.name).or_default().0 = row.allowed;
    }
    for row in &stats.refusals {
        if let Some(name) = row.policy.strip_prefix("endpoint:") {
            let (_, refused) = counts.entry(name).or_default();
            *refused = refused.saturating_add(row.refused);
        }
    }
    let line = |(name, (allowed, refused)): (&str, (u64, u64))| json!({"name": name, "allowed": allowed, "refused": refused, "refusal_rate": rate(allowed, refused)});
    counts.into_iter().map(line).collect()
}

/// Share of calls that were refused; `None` where nothing was called.
#[allow(clippy::cast_precision_loss)]
fn rate(allowed: u64, refused: u64) -> Option<f64> {
    let all = allowed.saturating_add(refused);
    (all > 0).then(|| refused as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_has_no_rate() {
        assert_eq!(rate(0, 0), None);
        assert_eq!(rate(3, 1), Some(0.25));
        assert_eq!(rate(0, 5), Some(1.0));
    }
}
