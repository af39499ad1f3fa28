//! What all users did together, out of `daily_usage`.

use futures::future::try_join5;
use serde::{Deserialize, Serialize};
use worker::Env;

use super::{Db, LedgerError};

/// Users shown as those who call most.
const TOP: u64 = 10;

/// Everything counted between two dates, both included.
pub struct Stats {
    /// By plan.
    pub plans: Vec<PlanRow>,
    /// Refusals by plan and policy.
    pub refusals: Vec<Refusals>,
    /// What the limits of endpoints let through.
    pub endpoints: Vec<EndpointRow>,
    /// By date and plan.
    pub days: Vec<DayRow>,
    /// Those who call most.
    pub top_users: Vec<UserRow>,
}

/// What the users of one plan did.
#[derive(Deserialize)]
pub struct PlanRow {
    /// The plan.
    pub plan_id: String,
    /// Calls that passed.
    pub allowed: u64,
    /// Calls that a limit refused.
    pub refused: u64,
    /// Of those that passed, to a cheaper model.
    pub degraded: u64,
    /// Calls that became jobs.
    pub queued: u64,
    /// Calls that passed while the account store was out.
    pub failed_open: u64,
    /// Tokens used.
    pub tokens: u64,
}

/// Refusals of one policy.
#[derive(Deserialize)]
pub struct Refusals {
    /// The plan.
    pub plan_id: String,
    /// The policy.
    pub policy: String,
    /// How many.
    pub refused: u64,
}

/// Calls that passed at an endpoint with a limit of its own.
#[derive(Deserialize)]
pub struct EndpointRow {
    /// Its name.
    pub name: String,
    /// How many.
    pub allowed: u64,
}

/// What the users of one plan did on one day.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize, Serialize)]
pub struct DayRow {
    date: String,
    plan_id: String,
    allowed: u64,
    refused: u64,
    tokens: u64,
}

/// What one user did.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize, Serialize)]
pub struct UserRow {
    user_id: String,
    plan_id: String,
    calls: u64,
    tokens: u64,
    rejected: u64,
}

/// Everything counted from `from` to `to`, both included.
pub async fn between(env: &Env, from: &str, to: &str) -> Result<Stats, LedgerError> {
    let db = Db::of(env)?;
    let span = [from.into(), to.into()];
    let top = [from.into(), to.into(), TOP.into()];
    let plans = db.all(
        "SELECT plan_id, SUM(calls) AS allowed, SUM(rejected) AS refused, \
           SUM(degraded) AS degraded, SUM(queued) AS queued, SUM(failed_open) AS failed_open, \
           SUM(prompt_tokens + completion_tokens) AS tokens \
         FROM daily_usage WHERE date BETWEEN ?1 AND ?2 GROUP BY plan_id ORDER BY plan_id",
        &span,
    );
    let refusals = db.all(
        "SELECT plan_id, reason.key AS policy, SUM(reason.value) AS refused \
         FROM daily_usage, json_each(daily_usage.refused_by) AS reason \
         WHERE date BETWEEN ?1 AND ?2 GROUP BY plan_id, reason.key ORDER BY plan_id, reason.key",
        &span,
    );
    let endpoints = db.all(
        "SELECT endpoint.key AS name, SUM(endpoint.value) AS allowed \
         FROM daily_usage, json_each(daily_usage.passed_by) AS endpoint \
         WHERE date BETWEEN ?1 AND ?2 AND endpoint.key NOT LIKE 'shadow:%' \
         GROUP BY endpoint.key ORDER BY endpoint.key",
        &span,
    );
    let days = db.all(
        "SELECT date, plan_id, SUM(calls) AS allowed, SUM(rejected) AS refused, \
           SUM(prompt_tokens + completion_tokens) AS tokens \
         FROM daily_usage WHERE date BETWEEN ?1 AND ?2 \
         GROUP BY date, plan_id ORDER BY date, plan_id",
        &span,
    );
    // Beside MAX(date), SQLite takes the plan from the row of that date: the last one they were on.
    let top_users = db.all::<UserRow>(
        "SELECT user_id, plan_id, calls, tokens, rejected FROM ( \
           SELECT user_id, plan_id, MAX(date), SUM(calls) AS calls, \
             SUM(prompt_tokens + completion_tokens) AS tokens, SUM(rejected) AS rejected \
           FROM daily_usage WHERE date BETWEEN ?1 AND ?2 GROUP BY user_id) \
         ORDER BY calls DESC, tokens DESC, user_id LIMIT ?3",
        &top,
    );
    let (plans, refusals, endpoints, days, top_users) =
        try_join5(plans, refusals, endpoints, days, top_users).await?;
    Ok(Stats {
        plans,
        refusals,
        endpoints,
        days,
        top_users,
    })
}
