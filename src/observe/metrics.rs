//! `GET /metrics`: the ledger's sums for Prometheus. The labels are plans, policies and fixed words, so
//! that no number of users, paths or models adds a series.

use std::collections::BTreeMap;

use super::text::{Family, Kind, Series, render};
use crate::admin::failed;
use crate::auth;
use crate::http::Reply;
use crate::http::router::{Call, Handled};
use crate::ledger::metrics::{self, Depths, PlanTotals, Refusals, Waits};
use crate::ledger::{LedgerError, alerts};
use crate::limits::{BUCKETS, ENDLESS, Millis, SUM};
use worker::Env;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Reasons of refusal that are policies; `endpoint:{name}` are, too.
const POLICIES: [&str; 7] = [
    "daily",
    "degraded",
    "monthly-tokens",
    "rate",
    "window",
    "tokens-per-minute",
    "concurrency",
];

/// Answers the operator's Prometheus.
pub async fn show(call: Call) -> Handled {
    auth::require_admin(&call.request, &call.env, &call.settings, call.now).await?;
    let mut families = all(&call.env, call.now).await.map_err(failed)?;
    never_fall(&call.env, &mut families).await.map_err(failed)?;
    Ok(Reply::bytes(
        200,
        CONTENT_TYPE,
        render(&families).into_bytes(),
    ))
}

async fn all(env: &Env, now: Millis) -> Result<Vec<Family>, LedgerError> {
    let totals = futures::future::try_join3(
        metrics::totals(env),
        metrics::refusals(env),
        metrics::waits(env),
    );
    let state = futures::future::try_join4(
        metrics::jobs(env),
        metrics::depths(env),
        metrics::lag(env, now),
        alerts::open_by_kind(env),
    );
    let ((plans, refusals, waited), (jobs, depths, lag, alerts)) =
        futures::future::try_join(totals, state).await?;
    let mut families = plan_families(&plans);
    families.extend(refused(&refusals));
    families.extend(waits(&waited));
    let word = |(status, count): (String, u64)| Series::new(vec![("status", status)], count);
    families.extend([
        Family::gauge(
            "sluice_jobs",
            "Jobs by status.",
            jobs.into_iter().map(word).collect(),
        ),
        outboxes(&depths),
        Family::gauge(
            "sluice_ledger_lag_seconds",
            "Longest time that a change waited for its publication, in the last hour.",
            vec![Series::seconds(Vec::new(), lag)],
        ),
        Family::gauge(
            "sluice_alerts_open",
            "Alerts that are open, by kind.",
            alerts
                .into_iter()
                .map(|(kind, n)| Series::new(vec![("kind", kind)], n))
                .collect(),
        ),
        Family::gauge(
            "sluice_drifted_accounts",
            "Accounts that were found to differ from the ledger in the last hour.",
            vec![Series::new(Vec::new(), metrics::drifted(env, now).await?)],
        ),
    ]);
    Ok(families)
}

fn plan_families(plans: &[PlanTotals]) -> Vec<Family> {
    let counter = |name, help, count: fn(&PlanTotals) -> u64| {
        let line =
            |plan: &PlanTotals| Series::new(vec![("plan", plan.plan_id.clone())], count(plan));
        Family::counter(name, help, plans.iter().map(line).collect())
    };
    let tokens = plans.iter().flat_map(|plan| {
        let kinds = [
            ("prompt", plan.prompt_tokens),
            ("completion", plan.completion_tokens),
        ];
        kinds.map(|(kind, count)| {
            let labels = vec![("plan", plan.plan_id.clone()), ("kind", kind.to_owned())];
            Series::new(labels, count)
        })
    });
    vec![
        counter(
            "sluice_calls_total",
            "Calls that were decided, refused ones among them.",
            |plan| plan.calls.saturating_add(plan.rejected),
        ),
        counter(
            "sluice_degraded_total",
            "Calls sent to a cheaper model.",
            |plan| plan.degraded,
        ),
        counter("sluice_queued_total", "Calls that became jobs.", |plan| {
            plan.queued
        }),
        counter(
            "sluice_failed_open_total",
            "Calls that passed while the account store was out.",
            |plan| plan.failed_open,
        ),
        counter(
            "sluice_estimated_calls_total",
            "Calls whose tokens are an estimate.",
            |plan| plan.estimated_calls,
        ),
        Family::counter("sluice_tokens_total", "Tokens used.", tokens.collect()),
    ]
}

fn refused(refusals: &[Refusals]) -> [Family; 2] {
    let line = |row: &Refusals, of: &str| {
        let (policy, reason) = policy_and_reason(of);
        let labels = vec![
            ("plan", row.plan_id.clone()),
            ("policy", policy.to_owned()),
            ("reason", reason.to_owned()),
        ];
        Series::new(labels, row.refused)
    };
    let (mut refused, mut watched) = (Vec::new(), Vec::new());
    for row in refusals {
        match row.reason.strip_prefix("shadow:") {
            Some(reason) => watched.push(line(row, reason)),
            None => refused.push(line(row, &row.reason)),
        }
    }
    [
        Family::counter(
            "sluice_refused_total",
            "Calls refused, by policy and reason.",
            refused,
        ),
        Family::counter(
            "sluice_shadow_refused_total",
            "Calls that a plan which only watches would have refused, by policy and reason.",
            watched,
        ),
    ]
}

fn waits(waits: &[Waits]) -> [Family; 2] {
    let of = |stage: &str, name, help| {
        let count = |bucket: &str| {
            let mut found = waits
                .iter()
                .filter(|w| w.stage == stage && w.bucket == bucket);
            found.next().map_or(0, |w| w.total)
        };
        let mut total: u64 = 0;
        let buckets = BUCKETS.map(|end| {
            total = total.saturating_add(count(&end.to_string()));
            (end, total)
        });
        let all = total.saturating_add(count(ENDLESS));
        Family::waits(name, help, &buckets, all, count(SUM))
    };
    [
        of(
            "account",
            "sluice_account_latency_seconds",
            "What dispatched calls waited for their account.",
        ),
        of(
            "upstream",
            "sluice_upstream_latency_seconds",
            "What dispatched calls waited for the beginning of the provider's answer.",
        ),
    ]
}

/// A policy refuses because it is used up; everything else that refuses is no policy.
fn policy_and_reason(reason: &str) -> (&str, &str) {
    if POLICIES.contains(&reason) || reason.starts_with("endpoint:") {
        (reason, "limit")
    } else {
        ("none", reason)
    }
}

fn outboxes(depths: &Depths) -> Family {
    let lines = [
        ("open_calls", depths.open_calls),
        ("deliveries", depths.deliveries),
        ("jobs", depths.jobs),
    ];
    let line = |(name, count): (&str, u64)| Series::new(vec![("outbox", name.to_owned())], count);
    let help = "What waits to be handed on: calls to be booked, notifications, jobs.";
    Family::gauge("sluice_outbox_depth", help, lines.map(line).into())
}

/// A call that is given back, or a user who changes the plan within a day, makes a sum smaller, and
/// Prometheus would take that for a counter that began anew: so a counter stays where it was until the
/// sum has caught up.
async fn never_fall(env: &Env, families: &mut [Family]) -> Result<(), LedgerError> {
    let before = metrics::marks(env).await?;
    let mut marks = BTreeMap::new();
    for family in families
        .iter_mut()
        .filter(|family| family.kind != Kind::Gauge)
    {
        for series in &mut family.series {
            let id = series.id(family.name);
            series.value = series.value.max(before.get(&id).copied().unwrap_or(0));
            marks.insert(id, series.value);
        }
    }
    if marks != before {
        metrics::keep_marks(env, &marks).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_other_reasons_are_told_apart() {
        assert_eq!(policy_and_reason("daily"), ("daily", "limit"));
        assert_eq!(
            policy_and_reason("endpoint:export"),
            ("endpoint:export", "limit")
        );
        assert_eq!(policy_and_reason("blocked"), ("none", "blocked"));
    }
}
