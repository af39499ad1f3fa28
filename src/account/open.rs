//! Calls that pass while the account store is out (design rule 7): a small local cap a user and isolate,
//! and what they used is booked when the store is back.

use std::cell::RefCell;
use std::collections::HashMap;

use worker::Env;

use super::client;
use super::wire::{Answer, Ask, Asker};
use crate::auth::Caller;
use crate::http::limit_headers::Meters;
use crate::http::router::Call;
use crate::http::{ApiError, ids};
use crate::limits::{
    self, Millis, OperationId, Outcome, PolicyKind, PolicyName, PolicyView, Span, Unit, Work,
};
use crate::plans::{OnOutage, Plan, cache};

/// Most users whose calls one isolate counts during an outage.
const CAPACITY: usize = 10_000;
/// The span of the local cap.
const MINUTE: Span = Span::minutes(1);
/// How long bookings wait for the store before another isolate's loss is all that is left.
const BOOKING_TRIES: u32 = 8;

#[derive(Default)]
struct Unbooked {
    calls: u64,
    prompt: u64,
    completion: u64,
}

#[derive(Default)]
struct Local {
    /// When the current minute of each user began, and the calls in it.
    passed: HashMap<String, (Millis, u64)>,
    unbooked: HashMap<String, Unbooked>,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::default());
}

/// Lets a call pass without its account, if the user's plan says so and the local cap isn't reached.
/// The meters are those of the local cap, the only limit in force.
pub async fn pass(
    call: &Call,
    caller: &Caller,
    asked: &limits::Call,
) -> Result<Meters, ApiError> {
    let out = ApiError::Unavailable("accounts");
    let plan_id = caller.plan_hint.as_deref().ok_or(out.clone())?;
    let plans = cache::all(&call.env, call.now).await;
    let plan = plans.ok().and_then(|plans| plans.get(plan_id).cloned());
    let plan = plan.ok_or(out.clone())?;
    if plan.on_outage == OnOutage::Closed || !allows(&plan, asked) {
        return Err(out);
    }
    let cap = call.settings.outage_local_per_minute;
    let (began, used) = take(&caller.user_id, call.now, cap).ok_or(out)?;
    Ok(Meters {
        now: call.now,
        user: caller.user_id.clone(),
        policies: vec![PolicyView {
            name: PolicyName::Rate,
            kind: PolicyKind::Bucket,
            unit: Unit::Requests,
            limit: cap,
            used,
            reserved: 0,
            remaining: cap.saturating_sub(used),
            window: Some(MINUTE),
            resets_at: began.plus(MINUTE),
        }],
    })
}

/// Books what a call used that passed during an outage. It is tried again for a while; an isolate that
/// ends before the store is back loses it.
pub fn book(env: &Env, user: &str, outcome: &Outcome) {
    if let Outcome::Used { prompt, completion, .. } = outcome {
        LOCAL.with_borrow_mut(|local| {
            let unbooked = local.unbooked.entry(user.to_owned()).or_default();
            unbooked.calls += 1;
            unbooked.prompt = unbooked.prompt.saturating_add(*prompt);
            unbooked.completion = unbooked.completion.saturating_add(*completion);
        });
        let (env, user) = (env.clone(), user.to_owned());
        worker::wasm_bindgen_futures::spawn_local(async move { retry_booking(&env, &user).await });
    }
}

async fn retry_booking(env: &Env, user: &str) {
    let Ok(id) = ids::fresh("open") else {
        return;
    };
    let operation = OperationId(id);
    for attempt in 0..BOOKING_TRIES {
        let Some(unbooked) = LOCAL.with_borrow_mut(|local| local.unbooked.remove(user)) else {
            return;
        };
        let ask = Ask::BookOpen {
            operation: operation.clone(),
            calls: unbooked.calls,
            prompt: unbooked.prompt,
            completion: unbooked.completion,
        };
        if let Ok(Answer::Done(_)) = client::ask(env, user, Asker::default(), ask).await {
            return;
        }
        put_back(user, unbooked);
        let wait = std::time::Duration::from_millis(500 << attempt.min(4));
        worker::Delay::from(wait).await;
    }
}

fn put_back(user: &str, unbooked: Unbooked) {
    LOCAL.with_borrow_mut(|local| {
        let slot = local.unbooked.entry(user.to_owned()).or_default();
        slot.calls += unbooked.calls;
        slot.prompt = slot.prompt.saturating_add(unbooked.prompt);
        slot.completion = slot.completion.saturating_add(unbooked.completion);
    });
}

/// Takes one call of the local cap: when the minute began and how many calls it has seen.
fn take(user: &str, now: Millis, cap: u64) -> Option<(Millis, u64)> {
    LOCAL.with_borrow_mut(|local| {
        if local.passed.len() >= CAPACITY {
            local.passed.retain(|_, (began, _)| now.since(*began) < MINUTE);
        }
        if local.passed.len() >= CAPACITY && !local.passed.contains_key(user) {
            return None;
        }
        let (began, used) = local.passed.entry(user.to_owned()).or_insert((now, 0));
        if now.since(*began) >= MINUTE {
            (*began, *used) = (now, 0);
        }
        if *used >= cap {
            return None;
        }
        *used += 1;
        Some((*began, *used))
    })
}

/// What needs no account to be refused is refused during an outage too.
fn allows(plan: &Plan, call: &limits::Call) -> bool {
    let model_ok = match (&plan.allowed_models, &call.model) {
        (Some(patterns), Some(model)) => patterns.iter().any(|p| p.matches(model)),
        _ => true,
    };
    let asked = match call.work {
        Work::Dispatch(tokens) => tokens.max_tokens.map(|m| m.saturating_mul(tokens.choices)),
        Work::Arrival => None,
    };
    let tokens_ok = match (plan.max_tokens_per_request, asked) {
        (Some(cap), Some(asked)) => asked <= cap,
        _ => true,
    };
    model_ok && tokens_ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_cap_holds_a_minute() {
        for _ in 0..3 {
            assert!(take("u", Millis(1_000), 3).is_some());
        }
        assert!(take("u", Millis(60_999), 3).is_none());
        assert!(take("v", Millis(1_000), 3).is_some());
        assert!(take("u", Millis(61_000), 3).is_some());
    }
}
