//! Answers the ledger did not take at once: they are kept in KV, so that the next run need not ask the
//! provider again. It is only a second place: when both are out, the provider is asked again.

use serde::{Deserialize, Serialize};
use worker::Env;

use crate::budget::{self, within};
use crate::limits::Span;

/// How long an answer is kept, in seconds; longer than the ledger may be out before a job is given up.
const KEPT_SECONDS: u64 = 86_400;
/// Nobody waits for this one, so it may take longer than on the way of a call.
const BUDGET: Span = Span(4 * budget::KV.0);

/// A provider's answer and what it used.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct KeptAnswer {
    /// The answer, JSON.
    pub result: String,
    /// Prompt tokens.
    pub prompt: u64,
    /// Completion tokens.
    pub completion: u64,
    /// Whether they are an estimate.
    pub estimated: bool,
}

/// Keeps the answer of a job's run.
pub async fn put(env: &Env, job_id: &str, round: u64, answer: &KeptAnswer) {
    let (Ok(kv), Ok(text)) = (env.kv("CACHE"), serde_json::to_string(answer)) else {
        return;
    };
    if let Ok(put) = kv.put(&name(job_id, round), text) {
        let stored = within(BUDGET, put.expiration_ttl(KEPT_SECONDS).execute()).await;
        if !matches!(stored, Ok(Ok(()))) {
            worker::console_warn!("{{\"event\":\"kv_put_failed\"}}");
        }
    }
}

/// The kept answer of a job's run.
pub async fn get(env: &Env, job_id: &str, round: u64) -> Option<KeptAnswer> {
    let kv = env.kv("CACHE").ok()?;
    let text = within(BUDGET, kv.get(&name(job_id, round)).text()).await;
    serde_json::from_str(&text.ok()?.ok()??).ok()
}

fn name(job_id: &str, round: u64) -> String {
    format!("job:{job_id}:{round}")
}
