//! `dead_letters`: messages no consumer could do anything with.

use serde::{Deserialize, Serialize};
use worker::Env;

use super::{Db, LedgerError};
use crate::limits::Millis;

/// A message nobody could read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeadLetter {
    /// The platform's id of it.
    pub message_id: String,
    /// The queue it came from.
    pub queue: String,
    /// Its beginning.
    pub body: String,
    /// Why nobody could.
    pub reason: String,
    /// When it was written down, Unix milliseconds.
    pub at_ms: u64,
}

/// Writes one down; once, however often it is delivered.
pub async fn insert(
    env: &Env,
    message_id: &str,
    queue: &str,
    body: &str,
    reason: &str,
    now: Millis,
) -> Result<(), LedgerError> {
    let sql = "INSERT INTO dead_letters (message_id, queue, body, reason, at_ms) \
               VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (message_id) DO NOTHING";
    let binds = [
        message_id.into(),
        queue.into(),
        body.into(),
        reason.into(),
        now.0.into(),
    ];
    Db::background(env)?.run(sql, &binds).await.map(|_| ())
}

/// The newest of them.
pub async fn newest(env: &Env, limit: u64) -> Result<Vec<DeadLetter>, LedgerError> {
    let sql = "SELECT message_id, queue, body, reason, at_ms FROM dead_letters \
               ORDER BY at_ms DESC LIMIT ?1";
    Db::of(env)?.all(sql, &[limit.into()]).await
}

/// Deletes those written down before `before`.
pub async fn delete_before(env: &Env, before: Millis) -> Result<usize, LedgerError> {
    let sql = "DELETE FROM dead_letters WHERE at_ms < ?1";
    Db::background(env)?.run(sql, &[before.0.into()]).await
}
