//! The sums of `GET /metrics`. Days that are long past are folded into one row a plan, so that a scrape
//! reads days and not years, and sums go on when old rows are deleted.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use worker::Env;

use super::db::changes;
use super::{Db, LedgerError};
use crate::http::limit_headers::rfc3339;
use crate::limits::{Millis, Span};

/// For how long back the ledger's lag is told.
const LAG_SPAN: Span = Span::hours(1);
/// For how long back drift is told.
const DRIFT_SPAN: Span = Span::hours(1);
/// The last day that is folded; nothing before the first.
const FOLDED: &str = "COALESCE((SELECT value FROM observe_state WHERE name = 'folded_until'), '')";

/// The sums of one plan's users, since the beginning.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct PlanTotals {
    /// The plan.
    pub plan_id: String,
    /// Calls that passed.
    pub calls: u64,
    /// Calls that were refused.
    pub rejected: u64,
    /// Of those that passed, to a cheaper model.
    pub degraded: u64,
    /// Calls that became jobs.
    pub queued: u64,
    /// Calls that passed while the account store was out.
    pub failed_open: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Completion tokens.
    pub completion_tokens: u64,
    /// Calls whose tokens are an estimate.
    pub estimated_calls: u64,
}

/// Refusals of one plan's users for one reason, since the beginning.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Refusals {
    /// The plan.
    pub plan_id: String,
    /// The policy, or what else it was.
    pub reason: String,
    /// How many.
    pub refused: u64,
}

/// What waits to be handed on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct Depths {
    /// Calls that passed during an outage and are not booked.
    pub open_calls: u64,
    /// Notifications that are not delivered.
    pub deliveries: u64,
    /// Jobs that wait.
    pub jobs: u64,
}

/// The sums of every plan.
pub async fn totals(env: &Env) -> Result<Vec<PlanTotals>, LedgerError> {
    let sql = format!(
        "SELECT plan_id, SUM(calls) AS calls, SUM(rejected) AS rejected, SUM(degraded) AS degraded, \
           SUM(queued) AS queued, SUM(failed_open) AS failed_open, \
           SUM(prompt_tokens) AS prompt_tokens, SUM(completion_tokens) AS completion_tokens, \
           SUM(estimated_calls) AS estimated_calls \
         FROM (SELECT plan_id, calls, rejected, degraded, queued, failed_open, prompt_tokens, \
                 completion_tokens, estimated_calls FROM usage_folded \
               UNION ALL \
               SELECT plan_id, calls, rejected, degraded, queued, failed_open, prompt_tokens, \
                 completion_tokens, estimated_calls FROM daily_usage WHERE date > {FOLDED}) \
         GROUP BY plan_id ORDER BY plan_id"
    );
    Db::background(env)?.all(&sql, &[]).await
}

/// The refusals of every plan; those that were only watched have `shadow:` before their reason.
pub async fn refusals(env: &Env) -> Result<Vec<Refusals>, LedgerError> {
    let sql = format!(
        "SELECT plan_id, reason, SUM(refused) AS refused \
         FROM (SELECT plan_id, reason, refused FROM refusals_folded \
               UNION ALL \
               SELECT plan_id, one.key AS reason, one.value AS refused \
               FROM daily_usage, json_each(daily_usage.refused_by) AS one WHERE date > {FOLDED} \
               UNION ALL \
               SELECT plan_id, one.key AS reason, one.value AS refused \
               FROM daily_usage, json_each(daily_usage.passed_by) AS one \
               WHERE date > {FOLDED} AND one.key LIKE 'shadow:%') \
         GROUP BY plan_id, reason ORDER BY plan_id, reason"
    );
    Db::background(env)?.all(&sql, &[]).await
}

/// How many calls waited so long for something, over all users.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Waits {
    /// For what.
    pub stage: String,
    /// The upper end of the bucket in milliseconds; or the sum of all waits.
    pub bucket: String,
    /// How many.
    pub total: u64,
}

/// All waits, since the beginning.
pub async fn waits(env: &Env) -> Result<Vec<Waits>, LedgerError> {
    let sql = format!(
        "SELECT stage, bucket, SUM(total) AS total \
         FROM (SELECT stage, bucket, total FROM latency_folded \
               UNION ALL \
               SELECT stage.key AS stage, bucket.key AS bucket, bucket.value AS total \
               FROM daily_usage, json_each(daily_usage.latency) AS stage, \
                 json_each(stage.value) AS bucket WHERE date > {FOLDED}) \
         GROUP BY stage, bucket"
    );
    Db::background(env)?.all(&sql, &[]).await
}

/// Jobs by status; a status that no job has is 0.
pub async fn jobs(env: &Env) -> Result<Vec<(String, u64)>, LedgerError> {
    #[derive(Deserialize)]
    struct Count {
        status: String,
        jobs: u64,
    }
    let sql = "SELECT status, COUNT(*) AS jobs FROM jobs GROUP BY status";
    let counts = Db::background(env)?.all::<Count>(sql, &[]).await?;
    let every = [
        "queued",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "expired",
    ];
    let line = |status: &&str| {
        let found = counts.iter().find(|count| count.status == **status);
        ((*status).to_owned(), found.map_or(0, |count| count.jobs))
    };
    Ok(every.iter().map(line).collect())
}

/// What waits to be handed on.
pub async fn depths(env: &Env) -> Result<Depths, LedgerError> {
    let sql = "SELECT (SELECT COUNT(*) FROM open_calls WHERE booked_at_ms IS NULL) AS open_calls, \
                 (SELECT COUNT(*) FROM deliveries WHERE status = 'pending') AS deliveries, \
                 (SELECT COUNT(*) FROM jobs WHERE finished_at_ms IS NULL) AS jobs";
    let found = Db::background(env)?.first(sql, &[]).await?;
    found.ok_or_else(|| LedgerError::Broken("counting gave no row".to_owned()))
}

/// The longest time by which a publication was late, of those lately; milliseconds. Up to a second is
/// none: only rows that were later are in the index that finds them.
pub async fn lag(env: &Env, now: Millis) -> Result<u64, LedgerError> {
    #[derive(Deserialize)]
    struct Longest {
        lag_ms: Option<u64>,
    }
    let sql = "SELECT MAX(lag_ms) AS lag_ms FROM user_quotas \
               WHERE lag_ms > 1000 AND updated_at >= ?1";
    let since = rfc3339(now.minus(LAG_SPAN));
    let found = Db::background(env)?
        .first::<Longest>(sql, &[(&since).into()])
        .await?;
    Ok(found.and_then(|longest| longest.lag_ms).unwrap_or(0))
}

/// How many accounts were found to differ from the ledger lately.
pub async fn drifted(env: &Env, now: Millis) -> Result<u64, LedgerError> {
    #[derive(Deserialize)]
    struct Count {
        users: u64,
    }
    let sql = "SELECT COUNT(DISTINCT user_id) AS users FROM drifts WHERE at_ms >= ?1";
    let since = now.minus(DRIFT_SPAN).0;
    let found = Db::background(env)?
        .first::<Count>(sql, &[since.into()])
        .await?;
    Ok(found.map_or(0, |count| count.users))
}

/// Adds up the oldest day before `before` that isn't folded yet; `false` if there is none.
pub async fn fold_one_day(env: &Env, before: &str) -> Result<bool, LedgerError> {
    #[derive(Deserialize)]
    struct Oldest {
        date: Option<String>,
    }
    let db = Db::background(env)?;
    let sql =
        format!("SELECT MIN(date) AS date FROM daily_usage WHERE date > {FOLDED} AND date < ?1");
    let oldest = db.first::<Oldest>(&sql, &[before.into()]).await?;
    let Some(date) = oldest.and_then(|oldest| oldest.date) else {
        return Ok(false);
    };
    let usage = format!(
        "INSERT INTO usage_folded (plan_id, calls, rejected, degraded, queued, failed_open, \
           prompt_tokens, completion_tokens, estimated_calls) \
         SELECT plan_id, SUM(calls), SUM(rejected), SUM(degraded), SUM(queued), SUM(failed_open), \
           SUM(prompt_tokens), SUM(completion_tokens), SUM(estimated_calls) \
         FROM daily_usage WHERE date = ?1 AND date > {FOLDED} GROUP BY plan_id \
         ON CONFLICT (plan_id) DO UPDATE SET calls = calls + excluded.calls, \
           rejected = rejected + excluded.rejected, degraded = degraded + excluded.degraded, \
           queued = queued + excluded.queued, failed_open = failed_open + excluded.failed_open, \
           prompt_tokens = prompt_tokens + excluded.prompt_tokens, \
           completion_tokens = completion_tokens + excluded.completion_tokens, \
           estimated_calls = estimated_calls + excluded.estimated_calls"
    );
    let refusals = format!(
        "INSERT INTO refusals_folded (plan_id, reason, refused) \
         SELECT plan_id, reason, SUM(refused) FROM ( \
           SELECT plan_id, one.key AS reason, one.value AS refused \
           FROM daily_usage, json_each(daily_usage.refused_by) AS one \
           WHERE date = ?1 AND date > {FOLDED} \
           UNION ALL \
           SELECT plan_id, one.key, one.value \
           FROM daily_usage, json_each(daily_usage.passed_by) AS one \
           WHERE date = ?1 AND date > {FOLDED} AND one.key LIKE 'shadow:%') \
         WHERE TRUE GROUP BY plan_id, reason \
         ON CONFLICT (plan_id, reason) DO UPDATE SET refused = refused + excluded.refused"
    );
    let latencies = format!(
        "INSERT INTO latency_folded (stage, bucket, total) \
         SELECT stage.key, bucket.key, SUM(bucket.value) \
         FROM daily_usage, json_each(daily_usage.latency) AS stage, json_each(stage.value) AS bucket \
         WHERE date = ?1 AND date > {FOLDED} GROUP BY stage.key, bucket.key \
         ON CONFLICT (stage, bucket) DO UPDATE SET total = total + excluded.total"
    );
    let mark = "INSERT INTO observe_state (name, value) VALUES ('folded_until', ?1) \
                ON CONFLICT (name) DO UPDATE SET value = MAX(value, excluded.value)";
    let day = [(&date).into()];
    let statements = [&usage, &refusals, &latencies, mark]
        .map(|sql| db.statement(sql, &day))
        .into_iter()
        .collect::<Result<_, _>>()?;
    let results = db.batch(statements).await?;
    Ok(results.first().map_or(0, changes) > 0)
}

/// Where counters stood when they were last told, by series.
pub async fn marks(env: &Env) -> Result<BTreeMap<String, u64>, LedgerError> {
    let text = state(env, "metric_marks").await?;
    Ok(text
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default())
}

/// Keeps where counters stand.
pub async fn keep_marks(env: &Env, marks: &BTreeMap<String, u64>) -> Result<(), LedgerError> {
    keep_state(env, "metric_marks", &json!(marks).to_string()).await
}

/// A single value that what is observed needs.
pub async fn state(env: &Env, name: &str) -> Result<Option<String>, LedgerError> {
    #[derive(Deserialize)]
    struct Found {
        value: String,
    }
    let sql = "SELECT value FROM observe_state WHERE name = ?1";
    let found = Db::background(env)?
        .first::<Found>(sql, &[name.into()])
        .await?;
    Ok(found.map(|found| found.value))
}

/// Keeps a single value.
pub async fn keep_state(env: &Env, name: &str, value: &str) -> Result<(), LedgerError> {
    let sql = "INSERT INTO observe_state (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    Db::background(env)?
        .run(sql, &[name.into(), value.into()])
        .await
        .map(|_| ())
}
