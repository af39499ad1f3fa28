//! What the clock does for jobs: lost messages are sent again, and old rows deleted.

use serde_json::json;
use worker::Env;

use super::message::TaskMessage;
use crate::ledger::{LedgerError, dead_letters, jobs};
use crate::limits::{Millis, Span};

/// How long a job is kept after it came to its end, with its body and its result.
pub const KEPT: Span = Span::hours(24 * 7);
/// How long after its time a job counts as forgotten by the queue.
const LOST_AFTER: Span = Span::minutes(15);
/// How long a row without an accepted message is kept.
const UNSENT_KEPT: Span = Span::hours(1);
/// Most messages sent again at one time.
const MOST_RESENT: u64 = 100;
/// Most rounds of deletion at one time.
const MOST_CHUNKS: usize = 20;

/// Everything the clock does for jobs. What fails now is done at its next tick.
pub async fn tick(env: &Env, now: Millis) {
    for (what, done) in [
        ("resend", resend_lost(env, now).await),
        ("retention", retention(env, now).await),
    ] {
        if let Err(error) = done {
            worker::console_warn!(
                "{}",
                json!({"event": "jobs_upkeep", "what": what, "error": error.to_string()})
            );
        }
    }
}

/// Sends the messages of jobs again that should have run a while ago; gives how many.
pub async fn resend_lost(env: &Env, now: Millis) -> Result<usize, LedgerError> {
    let lost = jobs::overdue(env, now.minus(LOST_AFTER), MOST_RESENT).await?;
    let mut sent = 0;
    for job in lost {
        let message = TaskMessage::new(&job.job_id, job.ticket);
        if message.send(env, Span::ZERO).await.is_err() {
            break;
        }
        sent += 1;
    }
    Ok(sent)
}

/// Deletes what is kept no longer: finished jobs, rows whose message was never accepted, old dead
/// letters. Gives how many rows.
pub async fn retention(env: &Env, now: Millis) -> Result<usize, LedgerError> {
    let mut deleted = jobs::delete_unsent(env, now.minus(UNSENT_KEPT)).await?;
    deleted += dead_letters::delete_before(env, now.minus(KEPT)).await?;
    for _ in 0..MOST_CHUNKS {
        let finished = jobs::delete_finished(env, now.minus(KEPT)).await?;
        deleted += finished;
        if finished == 0 {
            break;
        }
    }
    Ok(deleted)
}
