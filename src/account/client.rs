//! The Worker's side of the hop: one message to a user's account, within a time budget.

use std::time::Duration;

use serde_json::json;
use thiserror::Error;
use worker::wasm_bindgen::JsValue;
use worker::{Delay, Env, Method, Request, RequestInit};

use super::wire::{Answer, Ask, Asker, Message};
use super::{leases, refusals};
use crate::budget::{self, within};
use crate::limits::Span;

/// The account could not be asked, or its answer did not arrive; the ask may have been carried out.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("the account is out of reach")]
pub struct OutOfReach;

/// Asks `user`'s account.
pub async fn ask(env: &Env, user: &str, asker: Asker, ask: Ask) -> Result<Answer, OutOfReach> {
    ask_within(budget::ACCOUNT, env, user, asker, ask).await
}

/// Asks `user`'s account, with a time budget of its own.
pub async fn ask_within(
    budget: Span,
    env: &Env,
    user: &str,
    asker: Asker,
    ask: Ask,
) -> Result<Answer, OutOfReach> {
    if wants_all_known(&ask) {
        // Boxed: bringing leases back asks, too.
        Box::pin(leases::call_in(env, user)).await;
    }
    let message = Message::new(user, asker, ask);
    let answer = within(budget, deliver(env, &message)).await;
    refusals::heed(user, &message.ask);
    leases::heed(user, &message.ask);
    match answer {
        Ok(Ok(Answer::NotReady)) | Err(_) => Err(OutOfReach),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            worker::console_warn!("{}", json!({"event": "account_hop_failed", "error": error}));
            Err(OutOfReach)
        }
    }
}

/// The first pause between two tries; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks `user`'s account something that may be asked twice, at most `tries` times, while it is out of reach.
pub async fn insist(
    env: &Env,
    user: &str,
    asker: &Asker,
    asked: &Ask,
    tries: u32,
) -> Result<Answer, OutOfReach> {
    for pauses in 0..tries {
        if let Ok(answer) = ask(env, user, asker.clone(), asked.clone()).await {
            return Ok(answer);
        }
        if pauses + 1 < tries {
            Delay::from(PAUSE.saturating_mul(1 << pauses)).await;
        }
    }
    Err(OutOfReach)
}

/// Whether the answer tells how the user stands, or changes it: then what this isolate alone knows comes first.
const fn wants_all_known(ask: &Ask) -> bool {
    matches!(
        ask,
        Ask::View
            | Ask::Peek(_)
            | Ask::Reset(_)
            | Ask::Grant { .. }
            | Ask::Adopt(_)
            | Ask::Revoke { .. }
            | Ask::Reconcile
    )
}

/// Sends a message, and once more if the way to the account broke: it may have been carried out, but
/// most asks name an operation and count once. An account that says it has too much to do is left alone.
async fn deliver(env: &Env, message: &Message) -> Result<Answer, String> {
    match send(env, message).await {
        Err(error) if counts_once(&message.ask) && !error.contains("overloaded") => {
            send(env, message).await
        }
        answer => answer,
    }
}

const fn counts_once(ask: &Ask) -> bool {
    !matches!(ask, Ask::Grant { .. } | Ask::NoteQueued)
}

async fn send(env: &Env, message: &Message) -> Result<Answer, String> {
    let body = serde_json::to_string(message).map_err(|e| e.to_string())?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_body(Some(JsValue::from_str(&body)));
    let request = Request::new_with_init("https://account/", &init).map_err(|e| e.to_string())?;
    let stub = env
        .durable_object("ACCOUNTS")
        .and_then(|accounts| accounts.get_by_name(&message.user))
        .map_err(|e| e.to_string())?;
    let mut response = stub
        .fetch_with_request(request)
        .await
        .map_err(|e| e.to_string())?;
    let bytes = response.bytes().await.map_err(|e| e.to_string())?;
    serde_json::from_slice(&bytes).map_err(|e| e.to_string())
}
