//! Rows that are kept no longer are deleted, a few at a time: one long statement would keep every call
//! waiting.

use worker::Env;

use super::{Db, LedgerError};
use crate::http::limit_headers::rfc3339;
use crate::limits::{Millis, Span};

/// How long days of usage and the audit are kept.
const HISTORY: Span = Span::hours(24 * 400);
/// How long alerts are kept after they are over, and drifts.
const INCIDENTS: Span = Span::hours(24 * 90);
/// How long booked calls and snapshots are kept.
const TRACES: Span = Span::hours(24 * 7);
/// Most rows of one table that one round deletes.
const CHUNK: u64 = 1_000;

/// One round of deletion; gives how many rows are gone. Days are only deleted after they were folded.
pub async fn round(env: &Env, now: Millis) -> Result<usize, LedgerError> {
    let db = Db::background(env)?;
    let (history, incidents, traces) =
        (now.minus(HISTORY), now.minus(INCIDENTS), now.minus(TRACES));
    let history_text = rfc3339(history);
    let day = history_text.get(..10).unwrap_or_default();
    let mut gone = db
        .run(
            "DELETE FROM daily_usage WHERE (user_id, date) IN (\
               SELECT user_id, date FROM daily_usage WHERE date < ?1 AND date <= COALESCE(\
                 (SELECT value FROM observe_state WHERE name = 'folded_until'), '') LIMIT ?2)",
            &[day.into(), CHUNK.into()],
        )
        .await?;
    gone += db
        .run(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= ( \
               SELECT COALESCE(MAX(id), 0) FROM (SELECT id, at FROM audit ORDER BY id LIMIT ?2) \
               WHERE at < ?1))",
            &[(&history_text).into(), CHUNK.into()],
        )
        .await?;
    let timed = [
        (
            "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE closed_at_ms < ?1 LIMIT ?2)",
            incidents,
        ),
        (
            "DELETE FROM drifts WHERE id IN (SELECT id FROM drifts WHERE at_ms < ?1 LIMIT ?2)",
            incidents,
        ),
        (
            "DELETE FROM open_calls WHERE id IN (SELECT id FROM open_calls WHERE at_ms < ?1 LIMIT ?2)",
            traces,
        ),
        (
            "DELETE FROM snapshots WHERE at_ms IN (SELECT at_ms FROM snapshots WHERE at_ms < ?1 LIMIT ?2)",
            traces,
        ),
    ];
    for (sql, before) in timed {
        gone += db.run(sql, &[before.0.into(), CHUNK.into()]).await?;
    }
    Ok(gone)
}
