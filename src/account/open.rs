//! Calls that pass while the account store is out: a small local cap a user and isolate, and what they used
//! is booked when the store is back. Until then it stands in the ledger, and if that is out too, in the
//! memory of this isolate; whoever gets through first, this isolate or the clock, books it, under the same
//! operation.

use std::cell::RefCell;
use std::collections::HashMap;

use worker::Env;

use super::client;
use super::wire::{Answer, Ask, Asker};
use crate::afterwards::afterwards;
use crate::auth::Caller;
use crate::http::ApiError;
use crate::http::limit_headers::Meters;
use crate::http::router::Call;
use crate::ledger::LedgerError;
use crate::ledger::open_calls::{self, OpenCall};
use crate::limits::{
    self, Bounds, Millis, OperationId, Outcome, PolicyKind, PolicyName, PolicyView, Span, Took,
    Unit,
};
use crate::plans::{OnOutage, cache};

/// Most users whose calls one isolate counts during an outage.
const CAPACITY: usize = 10_000;
/// The span of the local cap.
const MINUTE: Span = Span::minutes(1);
/// How often a booking is tried at once; afterwards the user's next call or the clock does it.
const BOOKING_TRIES: u32 = 5;
/// How often what a refused call may hold is given back.
const RELEASE_TRIES: u32 = 3;
/// Most bookings that one isolate remembers.
const MOST_UNBOOKED: usize = 10_000;

/// A booking that the account has not confirmed.
#[derive(Clone)]
struct Unbooked {
    call: OpenCall,
    /// Whether the ledger has it, too.
    written: bool,
}

#[derive(Default)]
struct Local {
    /// When the current minute of each user began, and the calls in it.
    passed: HashMap<String, (Millis, u64)>,
    /// By operation.
    unbooked: HashMap<String, Unbooked>,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::default());
}

/// Lets a call pass without its account, if the user's plan says so and the local cap isn't reached.
/// The meters are those of the local cap, the only limit in force beside what the plan says of one request.
pub async fn pass(
    call: &Call,
    caller: &Caller,
    asked: &limits::Call,
) -> Result<(Meters, Bounds), ApiError> {
    let out = ApiError::Unavailable("accounts");
    let plan_id = caller.plan_hint.as_deref().ok_or(out.clone())?;
    let plans = cache::all(&call.env, call.now).await;
    let plan = plans.ok().and_then(|plans| plans.get(plan_id).cloned());
    let plan = plan.ok_or(out.clone())?;
    let bounds = limits::bounds(&plan.limits(None, false), asked).map_err(|_| out.clone())?;
    if plan.on_outage == OnOutage::Closed {
        return Err(out);
    }
    let cap = call.settings.outage_local_per_minute;
    let (began, used) = take(&caller.user_id, call.now, cap).ok_or(out)?;
    let meters = Meters {
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
    };
    Ok((meters, bounds))
}

/// Books what a call used that passed during an outage, or sees to it that it will be.
/// `operation` is the one under which the account was asked in vain: it may have heard it.
pub async fn book(env: &Env, user: &str, operation: &OperationId, outcome: &Outcome, now: Millis) {
    later(env, user, operation, outcome, 1, now).await;
}

/// Sees to it that the account will hear how a call ended which it had admitted, and so counted, before it
/// was out of reach.
pub async fn owe(env: &Env, user: &str, operation: &OperationId, outcome: &Outcome, now: Millis) {
    later(env, user, operation, outcome, 0, now).await;
}

async fn later(
    env: &Env,
    user: &str,
    operation: &OperationId,
    outcome: &Outcome,
    calls: u64,
    now: Millis,
) {
    let Outcome::Used {
        prompt, completion, ..
    } = *outcome
    else {
        return release(env, user, operation);
    };
    let (id, user_id, at_ms) = (operation.0.clone(), user.to_owned(), now.0);
    let call = OpenCall {
        id,
        user_id,
        calls,
        prompt,
        completion,
        at_ms,
    };
    remember(Unbooked {
        call: call.clone(),
        written: false,
    });
    write_down(env, &call).await;
    let env = env.clone();
    afterwards(async move { retry(&env, &call.id, now).await });
}

/// Books what this isolate still has of `user`, whose account has just answered.
pub fn catch_up(call: &Call, user: &str) {
    let waiting: Vec<_> = LOCAL.with_borrow(|local| {
        let theirs = local
            .unbooked
            .values()
            .filter(|one| one.call.user_id == user);
        theirs.map(|one| one.call.id.clone()).collect()
    });
    if waiting.is_empty() {
        return;
    }
    let (env, now) = (call.env.clone(), call.now);
    call.context.wait_until(async move {
        for id in waiting {
            settle(&env, &id, now).await;
        }
    });
}

/// Books calls that stand in the ledger, of whatever isolate; gives how many.
pub async fn book_written(env: &Env, most: u64, now: Millis) -> Result<usize, LedgerError> {
    // What this isolate alone knows of comes first: nobody else can book it.
    let alone: Vec<_> = LOCAL.with_borrow(|local| {
        let unwritten = local.unbooked.values().filter(|one| !one.written);
        unwritten.map(|one| one.call.id.clone()).collect()
    });
    for id in alone {
        settle(env, &id, now).await;
    }
    let mut booked = 0;
    for call in open_calls::unbooked(env, most).await? {
        if ask_to_book(env, &call).await {
            forget(&call.id);
            open_calls::booked(env, &call.id, now).await?;
            booked += 1;
        }
    }
    Ok(booked)
}

/// Gives back what the account may have reserved for a call that was never done: it may have heard of the
/// call although nobody heard its answer. If it stays out of reach, the lease does it.
pub async fn give_back(env: &Env, user: &str, operation: &OperationId) {
    for attempt in 0..RELEASE_TRIES {
        let wait = std::time::Duration::from_millis(500 << attempt);
        worker::Delay::from(wait).await;
        let ask = Ask::Settle {
            operation: operation.clone(),
            outcome: Outcome::Released,
            took: Took::default(),
        };
        if client::ask(env, user, Asker::default(), ask).await.is_ok() {
            return;
        }
    }
}

fn release(env: &Env, user: &str, operation: &OperationId) {
    let (env, user, operation) = (env.clone(), user.to_owned(), operation.clone());
    afterwards(async move { give_back(&env, &user, &operation).await });
}

async fn retry(env: &Env, id: &str, now: Millis) {
    for attempt in 0..BOOKING_TRIES {
        if settle(env, id, now).await {
            return;
        }
        let wait = std::time::Duration::from_millis(500 << attempt);
        worker::Delay::from(wait).await;
    }
}

/// Tries to book one call, and to write it down if that fails. Whether nothing remains to be done.
async fn settle(env: &Env, id: &str, now: Millis) -> bool {
    let Some(Unbooked { call, written }) = remembered(id) else {
        return true;
    };
    if !ask_to_book(env, &call).await {
        if !written {
            write_down(env, &call).await;
        }
        return false;
    }
    let written = remembered(id).is_none_or(|one| one.written);
    forget(id);
    if written {
        // The clock asks again, and hears that it was booked before.
        let _ = open_calls::booked(env, id, now).await;
    }
    true
}

async fn ask_to_book(env: &Env, call: &OpenCall) -> bool {
    let OpenCall {
        calls,
        prompt,
        completion,
        at_ms,
        ..
    } = *call;
    let operation = OperationId(call.id.clone());
    let ask = Ask::BookOpen {
        operation,
        calls,
        prompt,
        completion,
        at: Millis(at_ms),
    };
    let answer = client::ask(env, &call.user_id, Asker::default(), ask).await;
    matches!(answer, Ok(Answer::Done(_)))
}

async fn write_down(env: &Env, call: &OpenCall) {
    if open_calls::insert(env, call).await.is_ok() {
        LOCAL.with_borrow_mut(|local| {
            if let Some(one) = local.unbooked.get_mut(&call.id) {
                one.written = true;
            }
        });
    }
}

fn remember(one: Unbooked) {
    LOCAL.with_borrow_mut(|local| {
        if local.unbooked.len() >= MOST_UNBOOKED {
            local.unbooked.retain(|_, one| !one.written);
        }
        local.unbooked.insert(one.call.id.clone(), one);
    });
}

fn remembered(id: &str) -> Option<Unbooked> {
    LOCAL.with_borrow(|local| local.unbooked.get(id).cloned())
}

fn forget(id: &str) {
    LOCAL.with_borrow_mut(|local| local.unbooked.remove(id));
}

/// Takes one call of the local cap: when the minute began and how many calls it has seen.
fn take(user: &str, now: Millis, cap: u64) -> Option<(Millis, u64)> {
    LOCAL.with_borrow_mut(|local| {
        if local.passed.len() >= CAPACITY {
            local
                .passed
                .retain(|_, (began, _)| now.since(*began) < MINUTE);
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
