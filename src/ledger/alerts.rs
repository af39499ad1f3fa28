//! `alerts`, and `snapshots`, which say how sums have moved. Of one kind and subject at most one alert is
//! open; that is the schema's rule, so that two ticks of the clock raise one alert.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worker::Env;

use super::db::Bind;
use super::{Db, LedgerError, metrics};
use crate::http::page::Page;
use crate::limits::Millis;

/// Every kind of alert.
pub const KINDS: [&str; 5] = [
    "refusal_rate",
    "failed_open",
    "dead_letter",
    "ledger_lag",
    "drift",
];

/// One alert.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct AlertRow {
    /// Its id.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: String,
    /// Which plan, queue or part of the gateway it is about.
    pub subject: String,
    /// Since when, Unix milliseconds.
    pub opened_at_ms: u64,
    /// Until when; `None`: still.
    pub closed_at_ms: Option<u64>,
    /// JSON object.
    pub detail: String,
}

/// Which alerts are asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Which {
    /// Every one.
    All,
    /// Those that are open.
    Open,
    /// Those that are over.
    Closed,
}

/// What one plan's users had done at one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PlanCount {
    /// Calls that were decided.
    pub calls: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Those that passed while the account store was out.
    pub failed_open: u64,
}

/// The sums of all plans at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When.
    pub at: Millis,
    /// By plan; one that isn't there had done nothing.
    pub plans: BTreeMap<String, PlanCount>,
}

/// Calls that passed without their account.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct OpenSeconds {
    /// How many.
    pub calls: u64,
    /// In how many different seconds.
    pub seconds: u64,
}

const ROW: &str = "id, kind, subject, opened_at_ms, closed_at_ms, detail";

/// The newest first.
pub async fn page(env: &Env, which: Which, page: &Page) -> Result<Vec<AlertRow>, LedgerError> {
    let condition = match which {
        Which::All => "1",
        Which::Open => "closed_at_ms IS NULL",
        Which::Closed => "closed_at_ms IS NOT NULL",
    };
    let sql = format!(
        "SELECT {ROW} FROM alerts WHERE {condition} \
           AND (?1 IS NULL OR opened_at_ms < ?1 OR (opened_at_ms = ?1 AND id < ?2)) \
         ORDER BY opened_at_ms DESC, id DESC LIMIT ?3"
    );
    let at = page.after.as_ref().map(|(at, _)| *at);
    Db::of(env)?
        .all(
            &sql,
            &[at.into(), page.after_id().into(), page.fetch().into()],
        )
        .await
}

/// Those that are open.
pub async fn open(env: &Env) -> Result<Vec<AlertRow>, LedgerError> {
    let sql = format!("SELECT {ROW} FROM alerts WHERE closed_at_ms IS NULL");
    Db::background(env)?.all(&sql, &[]).await
}

/// How many are open, by kind; a kind of which none is open is 0.
pub async fn open_by_kind(env: &Env) -> Result<Vec<(String, u64)>, LedgerError> {
    let open = open(env).await?;
    let count = |kind: &str| {
        open.iter()
            .filter(|alert| alert.kind == kind)
            .map(|_| 1)
            .sum()
    };
    Ok(KINDS
        .iter()
        .map(|kind| ((*kind).to_owned(), count(kind)))
        .collect())
}

/// Raises an alert, unless one of its kind and subject is open.
pub async fn raise(
    env: &Env,
    id: &str,
    kind: &str,
    subject: &str,
    detail: &Value,
    now: Millis,
) -> Result<bool, LedgerError> {
    let sql = "INSERT INTO alerts (id, kind, subject, opened_at_ms, detail) \
               VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
    let detail = detail.to_string();
    let binds: [Bind<'_>; 5] = [
        id.into(),
        kind.into(),
        subject.into(),
        now.0.into(),
        (&detail).into(),
    ];
    Ok(Db::background(env)?.run(sql, &binds).await? > 0)
}

/// Clears an alert that is open.
pub async fn clear(env: &Env, id: &str, now: Millis) -> Result<(), LedgerError> {
    let sql =
        "UPDATE alerts SET closed_at_ms = ?2, told = 0 WHERE id = ?1 AND closed_at_ms IS NULL";
    Db::background(env)?
        .run(sql, &[id.into(), now.0.into()])
        .await
        .map(|_| ())
}

/// Those whose present state the webhook has not heard of.
pub async fn untold(env: &Env, limit: u64) -> Result<Vec<AlertRow>, LedgerError> {
    let sql = format!("SELECT {ROW} FROM alerts WHERE told = 0 ORDER BY opened_at_ms LIMIT ?1");
    Db::background(env)?.all(&sql, &[limit.into()]).await
}

/// The webhook has heard of an alert as it was when it was read.
pub async fn told(env: &Env, alert: &AlertRow) -> Result<(), LedgerError> {
    let sql = "UPDATE alerts SET told = 1 WHERE id = ?1 AND closed_at_ms IS ?2";
    let binds = [(&alert.id).into(), alert.closed_at_ms.into()];
    Db::background(env)?.run(sql, &binds).await.map(|_| ())
}

/// Keeps the sums of this moment and gives them.
pub async fn take_snapshot(env: &Env, now: Millis) -> Result<Snapshot, LedgerError> {
    let totals = metrics::totals(env).await?;
    let count = |plan: metrics::PlanTotals| {
        let calls = plan.calls.saturating_add(plan.rejected);
        let count = PlanCount {
            calls,
            refused: plan.rejected,
            failed_open: plan.failed_open,
        };
        (plan.plan_id, count)
    };
    let plans: BTreeMap<_, _> = totals.into_iter().map(count).collect();
    let sql = "INSERT INTO snapshots (at_ms, plans) VALUES (?1, ?2) \
               ON CONFLICT (at_ms) DO UPDATE SET plans = excluded.plans";
    let text = json!(plans).to_string();
    Db::background(env)?
        .run(sql, &[now.0.into(), (&text).into()])
        .await?;
    Ok(Snapshot { at: now, plans })
}

/// The snapshots since `from`, oldest first.
pub async fn snapshots(env: &Env, from: Millis) -> Result<Vec<Snapshot>, LedgerError> {
    #[derive(Deserialize)]
    struct Stored {
        at_ms: u64,
        plans: String,
    }
    let sql = "SELECT at_ms, plans FROM snapshots WHERE at_ms >= ?1 ORDER BY at_ms";
    let rows = Db::background(env)?
        .all::<Stored>(sql, &[from.0.into()])
        .await?;
    let read = |row: Stored| {
        let plans = serde_json::from_str(&row.plans).ok()?;
        Some(Snapshot {
            at: Millis(row.at_ms),
            plans,
        })
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// Calls that passed without their account since `from`.
pub async fn open_seconds(env: &Env, from: Millis) -> Result<OpenSeconds, LedgerError> {
    let sql = "SELECT COALESCE(SUM(calls), 0) AS calls, COUNT(DISTINCT at_ms / 1000) AS seconds \
               FROM open_calls WHERE at_ms >= ?1 AND calls > 0";
    let found = Db::background(env)?.first(sql, &[from.0.into()]).await?;
    Ok(found.unwrap_or(OpenSeconds {
        calls: 0,
        seconds: 0,
    }))
}

/// Messages that died since `from`, and jobs that failed with them, by queue.
pub async fn dead_since(env: &Env, from: Millis) -> Result<Vec<(String, u64)>, LedgerError> {
    #[derive(Deserialize)]
    struct Count {
        queue: String,
        dead: u64,
    }
    let sql = "SELECT queue, COUNT(*) AS dead FROM dead_letters WHERE at_ms >= ?1 GROUP BY queue \
               UNION ALL \
               SELECT 'jobs' AS queue, COUNT(*) AS dead FROM jobs \
               WHERE finished_at_ms >= ?1 AND status = 'failed' HAVING COUNT(*) > 0";
    let rows = Db::background(env)?
        .all::<Count>(sql, &[from.0.into()])
        .await?;
    Ok(rows.into_iter().map(|row| (row.queue, row.dead)).collect())
}
