//! The Worker's side of the hop: one message to a user's account, within a time budget.

use std::time::Duration;

use js_sys::{Promise, Uint8Array};
use serde_json::json;
use thiserror::Error;
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast};
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Delay, Env};

use super::wire::{Answer, Ask, Asker, Message};
use super::{ended, leases, refusals};
use crate::budget;
use crate::clock;
use crate::limits::Span;
use crate::settings::Settings;

#[wasm_bindgen(module = "/js/account.js")]
extern "C" {
    #[wasm_bindgen(js_name = ask)]
    fn js_ask(env: &Env, user: &str, message: &[u8], budget: f64, again: bool) -> Promise;
}

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
    let all = wants_all_known(&ask);
    if all {
        // Boxed: bringing leases back asks, too.
        Box::pin(leases::call_in(env, user)).await;
    }
    let ended = ended::take(user, all, clock::now(&Settings::of(env)));
    let message = Message::new(user, asker, ask, ended);
    let answer = deliver(budget, env, &message).await;
    ended::arrive(user, &message.ended, answer.is_ok());
    refusals::heed(user, &message.ask);
    leases::heed(user, &message.ask);
    answer
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
/// most asks name an operation and count once.
async fn deliver(budget: Span, env: &Env, message: &Message) -> Result<Answer, OutOfReach> {
    let again = counts_once(&message.ask);
    let told = js_ask(
        env,
        &message.user,
        &message.encode(),
        budget.as_f64(),
        again,
    );
    let told = JsFuture::from(told).await.unwrap_or_default();
    let error = match told.dyn_ref::<Uint8Array>() {
        Some(bytes) => match Answer::decode(&bytes.to_vec()) {
            Some(Answer::NotReady) => return Err(OutOfReach),
            Some(answer) => return Ok(answer),
            None => "its answer can't be read".to_owned(),
        },
        None => told.as_string().unwrap_or_else(|| "timed out".to_owned()),
    };
    worker::console_warn!("{}", json!({"event": "account_hop_failed", "error": error}));
    Err(OutOfReach)
}

const fn counts_once(ask: &Ask) -> bool {
    !matches!(ask, Ask::Grant { .. })
}
