//! `drifts`, and which accounts are to be compared with the ledger.

use serde::Deserialize;
use serde_json::json;
use worker::Env;

use super::{Db, LedgerError};
use crate::account::wire::Drift;
use crate::http::ids;
use crate::limits::Millis;

/// Writes down that an account and the ledger had come apart.
pub async fn note(env: &Env, user: &str, drift: &Drift, now: Millis) -> Result<(), LedgerError> {
    let id = ids::fresh("drift").map_err(|e| LedgerError::Broken(e.to_string()))?;
    let sql = "INSERT INTO drifts (id, user_id, kind, detail, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
    let detail = json!({"account": drift.account, "ledger": drift.ledger}).to_string();
    let binds = [
        (&id).into(),
        user.into(),
        drift.kind.word().into(),
        (&detail).into(),
        now.0.into(),
    ];
    Db::background(env)?.run(sql, &binds).await.map(|_| ())
}

/// Users after `after`, in the order of their ids.
pub async fn users(env: &Env, after: &str, limit: u64) -> Result<Vec<String>, LedgerError> {
    let sql = "SELECT user_id FROM users WHERE user_id > ?1 ORDER BY user_id LIMIT ?2";
    ids_of(env, sql, &[after.into(), limit.into()]).await
}

/// Users after `after` whose account has published since `since`: those of others have freed their
/// storage, and would only be woken.
pub async fn busy_users(
    env: &Env,
    after: &str,
    since: &str,
    limit: u64,
) -> Result<Vec<String>, LedgerError> {
    let sql = "SELECT user_id FROM user_quotas WHERE user_id > ?1 AND updated_at >= ?2 \
               ORDER BY user_id LIMIT ?3";
    ids_of(env, sql, &[after.into(), since.into(), limit.into()]).await
}

/// How many accounts have drifted since `from`, and in which ways.
pub async fn since(env: &Env, from: Millis) -> Result<Vec<(String, u64)>, LedgerError> {
    #[derive(Deserialize)]
    struct Count {
        kind: String,
        users: u64,
    }
    let sql =
        "SELECT kind, COUNT(DISTINCT user_id) AS users FROM drifts WHERE at_ms >= ?1 GROUP BY kind";
    let rows = Db::background(env)?
        .all::<Count>(sql, &[from.0.into()])
        .await?;
    Ok(rows.into_iter().map(|row| (row.kind, row.users)).collect())
}

async fn ids_of(
    env: &Env,
    sql: &str,
    binds: &[super::db::Bind<'_>],
) -> Result<Vec<String>, LedgerError> {
    #[derive(Deserialize)]
    struct Found {
        user_id: String,
    }
    let rows = Db::background(env)?.all::<Found>(sql, binds).await?;
    Ok(rows.into_iter().map(|row| row.user_id).collect())
}
