//! Telling accounts of changes. The ledger has them already; what is told here makes them bite at once,
//! however busy the user is.

use worker::Env;

use crate::account::client::{self, OutOfReach};
use crate::account::wire::{Answer, Ask, Asker};
use crate::auth;
use crate::budget::{self, within};
use crate::http::ApiError;
use crate::http::router::Call;
use crate::limits::Span;

/// How often the operator's own call tries.
const TRIES: u32 = 3;
/// How long it tries.
const PATIENCE: Span = Span(3_000);
/// How often it is tried after the answer.
const LATER_TRIES: u32 = 6;

/// Tells a user's account what the ledger already holds. If that fails it is tried on after the answer,
/// and the operator is told to repeat the change.
pub async fn in_force(call: &Call, user: &str, ask: Ask) -> Result<Answer, ApiError> {
    match asked(&call.env, user, &ask).await {
        Ok(answer) => Ok(answer),
        Err(OutOfReach) => {
            later(call, user, ask);
            Err(ApiError::NotYetInForce)
        }
    }
}

/// Asks a user's account something that may be asked twice.
pub async fn asked(env: &Env, user: &str, ask: &Ask) -> Result<Answer, OutOfReach> {
    let asker = Asker::default();
    let tries = client::insist(env, user, &asker, ask, TRIES);
    within(PATIENCE, tries).await.unwrap_or(Err(OutOfReach))
}

/// Goes on telling a user's account after the answer.
pub fn later(call: &Call, user: &str, ask: Ask) {
    let (env, user) = (call.env.clone(), user.to_owned());
    call.context.wait_until(async move {
        let told = client::insist(&env, &user, &Asker::default(), &ask, LATER_TRIES).await;
        if told.is_err() {
            worker::console_error!("{{\"event\":\"account_not_told\"}}");
        }
    });
}

/// Takes keys out of every cache this call can reach; caches elsewhere end by themselves, and the account
/// knows better all the while.
pub async fn forget_keys<'a>(env: &Env, hashes: impl IntoIterator<Item = &'a String>) {
    let Ok(kv) = env.kv("CACHE") else {
        return;
    };
    for hash in hashes {
        // The ledger and the account have the last word: a copy that stays is only slower to end.
        let _ = within(budget::KV, kv.delete(&auth::kv_name(hash))).await;
    }
}
