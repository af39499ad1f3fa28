//! `user_quotas` and `daily_usage`: what accounts publish. Totals are absolute and carry a sequence
//! number, so a repeated or late write can never count twice.

use std::collections::BTreeMap;

use futures::future::try_join;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worker::Env;

use super::db::changes;
use super::{Db, LedgerError};

/// Where a user's counters stand, as their account publishes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Quotas {
    /// The plan in force.
    pub plan_id: String,
    /// Calls a day in force.
    pub daily_limit: Option<u64>,
    /// Calls of the current day.
    pub used_today: u64,
    /// When the day began, Unix milliseconds.
    pub day_since_ms: u64,
    /// When it ends, RFC 3339.
    pub reset_at: String,
    /// Tokens a month in force.
    pub monthly_token_limit: Option<u64>,
    /// Tokens of the current month.
    pub tokens_used_this_month: u64,
    /// When the month began, Unix milliseconds.
    pub month_since_ms: u64,
    /// When it ends, RFC 3339.
    pub month_reset_at: String,
    /// Grows with every publication.
    pub seq: u64,
    /// How much longer than meant its oldest change has waited, milliseconds.
    pub lag_ms: u64,
    /// What these counters don't tell, as the account packs it.
    pub beyond: String,
}

/// The counters of a row as its account knows them to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Calls of the day.
    pub used_today: u64,
    /// Tokens of the month.
    pub tokens_used_this_month: u64,
    /// The sequence number they were published under.
    pub seq: u64,
}

/// What a user did on one day, as their account publishes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Day {
    /// Local date.
    pub date: String,
    /// Calls dispatched.
    pub calls: u64,
    /// Calls refused.
    pub rejected: u64,
    /// Calls degraded.
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
    /// Refusals by policy.
    pub refused_by: BTreeMap<String, u64>,
    /// How long calls waited, by what for.
    pub latency: Value,
    /// Calls that passed, by the endpoint whose own limit let them.
    pub passed_by: BTreeMap<String, u64>,
    /// Grows with every publication.
    pub seq: u64,
}

/// One day of `GET /api/usage`.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DayRow {
    date: String,
    calls: u64,
    rejected: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// What the ledger knows of a user's counters: where an account with empty storage starts.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Start {
    /// Calls of the day that was current when this was published.
    pub used_today: u64,
    /// When that day began.
    pub day_since_ms: u64,
    /// Tokens of the month that was current.
    pub tokens_used_this_month: u64,
    /// When that month began.
    pub month_since_ms: u64,
    /// The sequence number of the publication.
    pub seq: u64,
    /// What the counters don't tell.
    pub beyond: String,
}

#[derive(Deserialize)]
struct StoredDay {
    date: String,
    calls: u64,
    rejected: u64,
    degraded: u64,
    queued: u64,
    failed_open: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    estimated_calls: u64,
    refused_by: String,
    latency: String,
    passed_by: String,
    seq: u64,
}

/// Publishes totals as one transaction. What is already newer stays, and so does a row that is not as it
/// was `published` last: somebody has written other numbers into it. Whether the counters were written.
pub async fn publish(
    env: &Env,
    user_id: &str,
    quotas: &Quotas,
    days: &[Day],
    published: Option<Published>,
    now: &str,
) -> Result<bool, LedgerError> {
    let db = Db::background(env)?;
    let mut statements = vec![db.statement(
        "INSERT INTO user_quotas (user_id, plan, daily_limit, used_today, reset_at, \
           monthly_token_limit, tokens_used_this_month, month_reset_at, day_since_ms, \
           month_since_ms, seq, updated_at, lag_ms, beyond) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?17) \
         ON CONFLICT (user_id) DO UPDATE SET plan = excluded.plan, \
           daily_limit = excluded.daily_limit, used_today = excluded.used_today, \
           reset_at = excluded.reset_at, monthly_token_limit = excluded.monthly_token_limit, \
           tokens_used_this_month = excluded.tokens_used_this_month, \
           month_reset_at = excluded.month_reset_at, day_since_ms = excluded.day_since_ms, \
           month_since_ms = excluded.month_since_ms, seq = excluded.seq, \
           updated_at = excluded.updated_at, lag_ms = excluded.lag_ms, beyond = excluded.beyond \
         WHERE excluded.seq > user_quotas.seq \
           AND (?14 IS NULL OR user_quotas.seq <> ?14 \
             OR (user_quotas.used_today = ?15 AND user_quotas.tokens_used_this_month = ?16))",
        &[
            user_id.into(),
            (&quotas.plan_id).into(),
            quotas.daily_limit.into(),
            quotas.used_today.into(),
            (&quotas.reset_at).into(),
            quotas.monthly_token_limit.into(),
            quotas.tokens_used_this_month.into(),
            (&quotas.month_reset_at).into(),
            quotas.day_since_ms.into(),
            quotas.month_since_ms.into(),
            quotas.seq.into(),
            now.into(),
            quotas.lag_ms.into(),
            published.map(|p| p.seq).into(),
            published.map(|p| p.used_today).into(),
            published.map(|p| p.tokens_used_this_month).into(),
            (&quotas.beyond).into(),
        ],
    )?];
    for day in days {
        statements.push(day_statement(&db, user_id, &quotas.plan_id, day)?);
    }
    let results = db.batch(statements).await?;
    Ok(results.first().map_or(0, changes) > 0)
}

fn day_statement(
    db: &Db,
    user_id: &str,
    plan_id: &str,
    day: &Day,
) -> Result<worker::D1PreparedStatement, LedgerError> {
    db.statement(
        "INSERT INTO daily_usage (user_id, date, plan_id, calls, rejected, degraded, queued, \
           failed_open, prompt_tokens, completion_tokens, estimated_calls, refused_by, seq, \
           latency, passed_by) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
         ON CONFLICT (user_id, date) DO UPDATE SET plan_id = excluded.plan_id, \
           calls = excluded.calls, rejected = excluded.rejected, degraded = excluded.degraded, \
           queued = excluded.queued, failed_open = excluded.failed_open, \
           prompt_tokens = excluded.prompt_tokens, \
           completion_tokens = excluded.completion_tokens, \
           estimated_calls = excluded.estimated_calls, refused_by = excluded.refused_by, \
           seq = excluded.seq, latency = excluded.latency, passed_by = excluded.passed_by \
         WHERE excluded.seq > daily_usage.seq",
        &[
            user_id.into(),
            (&day.date).into(),
            plan_id.into(),
            day.calls.into(),
            day.rejected.into(),
            day.degraded.into(),
            day.queued.into(),
            day.failed_open.into(),
            day.prompt_tokens.into(),
            day.completion_tokens.into(),
            day.estimated_calls.into(),
            (&json!(day.refused_by).to_string()).into(),
            day.seq.into(),
            (&day.latency.to_string()).into(),
            (&json!(day.passed_by).to_string()).into(),
        ],
    )
}

/// Where a user's counters stood when they were last published, with the days since `from_date`.
pub async fn start(
    env: &Env,
    user_id: &str,
    from_date: &str,
) -> Result<(Option<Start>, Vec<Day>), LedgerError> {
    let db = Db::of(env)?;
    let sql = "SELECT date, calls, rejected, degraded, queued, failed_open, prompt_tokens, \
                 completion_tokens, estimated_calls, refused_by, latency, passed_by, seq \
               FROM daily_usage WHERE user_id = ?1 AND date >= ?2 ORDER BY date";
    let binds = [user_id.into(), from_date.into()];
    let (start, days) = try_join(row(env, user_id), db.all::<StoredDay>(sql, &binds)).await?;
    Ok((start, days.into_iter().map(StoredDay::day).collect()))
}

/// A user's row.
pub async fn row(env: &Env, user_id: &str) -> Result<Option<Start>, LedgerError> {
    let sql = "SELECT used_today, day_since_ms, tokens_used_this_month, month_since_ms, seq, beyond \
               FROM user_quotas WHERE user_id = ?1";
    Db::of(env)?.first(sql, &[user_id.into()]).await
}

/// Whether a user of this id has ever called, also one who was deleted since.
pub async fn has_called(env: &Env, user_id: &str) -> Result<bool, LedgerError> {
    #[derive(Deserialize)]
    struct Found {}
    let sql = "SELECT 1 AS found FROM user_quotas WHERE user_id = ?1";
    let found = Db::of(env)?.first::<Found>(sql, &[user_id.into()]).await?;
    Ok(found.is_some())
}

/// A user's days from `from` to `to`, both included.
pub async fn days(
    env: &Env,
    user_id: &str,
    from: &str,
    to: &str,
) -> Result<Vec<DayRow>, LedgerError> {
    let sql = "SELECT date, calls, rejected, prompt_tokens, completion_tokens, \
                 prompt_tokens + completion_tokens AS total_tokens \
               FROM daily_usage WHERE user_id = ?1 AND date BETWEEN ?2 AND ?3 ORDER BY date";
    let binds = [user_id.into(), from.into(), to.into()];
    Db::of(env)?.all(sql, &binds).await
}

impl StoredDay {
    /// Refusals by policy, waits and endpoints are only statistics: a row that can't be read counts as none.
    fn day(self) -> Day {
        Day {
            date: self.date,
            calls: self.calls,
            rejected: self.rejected,
            degraded: self.degraded,
            queued: self.queued,
            failed_open: self.failed_open,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            estimated_calls: self.estimated_calls,
            refused_by: serde_json::from_str(&self.refused_by).unwrap_or_default(),
            latency: serde_json::from_str(&self.latency).unwrap_or_default(),
            passed_by: serde_json::from_str(&self.passed_by).unwrap_or_default(),
            seq: self.seq,
        }
    }
}
