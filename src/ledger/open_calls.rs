//! `open_calls`: calls that passed while the account store was out, until the account has booked them.

use serde::Deserialize;
use worker::Env;

use super::{Db, LedgerError};
use crate::limits::Millis;

/// What one call used that passed without its account.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct OpenCall {
    /// The operation it is booked under.
    pub id: String,
    /// Whose call it was.
    pub user_id: String,
    /// How many calls.
    pub calls: u64,
    /// Prompt tokens.
    pub prompt: u64,
    /// Completion tokens.
    pub completion: u64,
    /// When it ended, Unix milliseconds.
    pub at_ms: u64,
}

/// Writes one down; once, however often it is tried.
pub async fn insert(env: &Env, call: &OpenCall) -> Result<(), LedgerError> {
    let sql = "INSERT INTO open_calls (id, user_id, calls, prompt, completion, at_ms) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING";
    let binds = [
        (&call.id).into(),
        (&call.user_id).into(),
        call.calls.into(),
        call.prompt.into(),
        call.completion.into(),
        call.at_ms.into(),
    ];
    Db::of(env)?.run(sql, &binds).await.map(|_| ())
}

/// The oldest that are not booked.
pub async fn unbooked(env: &Env, limit: u64) -> Result<Vec<OpenCall>, LedgerError> {
    let sql = "SELECT id, user_id, calls, prompt, completion, at_ms FROM open_calls \
               WHERE booked_at_ms IS NULL ORDER BY at_ms LIMIT ?1";
    Db::background(env)?.all(sql, &[limit.into()]).await
}

/// Notes that the account has booked one.
pub async fn booked(env: &Env, id: &str, now: Millis) -> Result<(), LedgerError> {
    let sql = "UPDATE open_calls SET booked_at_ms = ?2 WHERE id = ?1 AND booked_at_ms IS NULL";
    let binds = [id.into(), now.0.into()];
    Db::background(env)?.run(sql, &binds).await.map(|_| ())
}
