//! Taking a job in: its row first, then its message, and 202 only after the queue has accepted.

use serde_json::json;
use worker::Env;

use super::message::TaskMessage;
use crate::budget::within;
use crate::http::router::Call;
use crate::ledger::LedgerError;
use crate::ledger::jobs::{self, NewJob};
use crate::limits::{Millis, Span};

/// For the row and the message together; the caller waits for both.
const BUDGET: Span = Span(2_500);
/// How often a row is withdrawn or confirmed before that is left to the clean-up.
const TRIES: u32 = 4;

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotTaken {
    /// Its user has as many under way as they may.
    Full,
    /// The ledger or the queue is out.
    OutOfReach,
}

/// Takes a job in, unless its user has `limit` of them under way. If anything fails nothing is left
/// behind, as far as the ledger can be reached; a row that stays is never run, since only a row whose
/// message was accepted is looked for when its message is lost.
pub async fn submit(call: &Call, job: &NewJob, limit: Option<u64>) -> Result<(), NotTaken> {
    let taken = within(BUDGET, put(&call.env, job, limit, call.now)).await;
    let (env, id) = (call.env.clone(), job.job_id.clone());
    match taken {
        Ok(Ok(())) => {
            call.context
                .wait_until(async move { retried(|| jobs::accept(&env, &id)).await });
            Ok(())
        }
        Ok(Err(NotTaken::Full)) => Err(NotTaken::Full),
        Ok(Err(NotTaken::OutOfReach)) | Err(_) => {
            call.context
                .wait_until(async move { retried(|| jobs::withdraw(&env, &id)).await });
            Err(NotTaken::OutOfReach)
        }
    }
}

async fn put(env: &Env, job: &NewJob, limit: Option<u64>, now: Millis) -> Result<(), NotTaken> {
    match jobs::insert(env, job, limit).await {
        Ok(true) => {}
        Ok(false) => return Err(NotTaken::Full),
        Err(_) => return Err(NotTaken::OutOfReach),
    }
    let message = TaskMessage::new(&job.job_id, 1);
    let sent = message.send(env, job.not_before.since(now)).await;
    sent.map_err(|_| NotTaken::OutOfReach)
}

async fn retried<F: Future<Output = Result<(), LedgerError>>>(write: impl Fn() -> F) {
    for attempt in 0..TRIES {
        if write().await.is_ok() {
            return;
        }
        let wait = std::time::Duration::from_millis(250 << attempt);
        worker::Delay::from(wait).await;
    }
    worker::console_warn!("{}", json!({"event": "job_row_not_written"}));
}
