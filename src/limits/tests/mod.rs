//! The law, rule by rule, and against a slow obvious model.

mod account_model;
mod bucket;
mod clock;
mod concurrency;
mod degraded;
mod firm;
mod leases;
mod ledger;
mod max_tokens;
mod operator;
mod periods;
mod quotas;
mod reservations;
mod shadow;
mod short_limits;
mod storage;
mod thresholds;
mod views;
mod window;
mod zones;

use super::*;

/// 2026-06-15 12:00:00 UTC, a Monday.
const NOON: Millis = Millis(1_781_524_800_000);
const DAY: Span = Span::hours(24);
const LEASE: Span = Span::minutes(2);

/// Nothing is limited.
fn unlimited() -> Limits {
    Limits {
        daily: None,
        monthly_tokens: None,
        max_tokens_per_request: None,
        max_tokens_mode: MaxTokensMode::Reject,
        allowed_models: None,
        rate: None,
        window: None,
        tokens_per_minute: None,
        max_concurrent: None,
        endpoints: Vec::new(),
        reset: Reset::default(),
        notify_at_permille: Vec::new(),
        shadow: false,
        blocked: false,
    }
}

fn bucket_of(capacity: u64, refill_per_minute: u64) -> Option<BucketLimit> {
    Some(BucketLimit {
        capacity,
        refill_per_minute,
    })
}

fn window_of(max_requests: u64, span: Span) -> Option<WindowLimit> {
    Some(WindowLimit { max_requests, span })
}

fn endpoint_of(name: &str, max_requests: u64, span: Span) -> EndpointLimit {
    EndpointLimit {
        name: name.into(),
        window: WindowLimit { max_requests, span },
    }
}

fn id(name: impl ToString) -> OperationId {
    OperationId(name.to_string())
}

fn tokens(prompt: u64, max_tokens: u64) -> Tokens {
    Tokens {
        prompt,
        max_tokens: Some(max_tokens),
        choices: 1,
    }
}

fn call(name: impl ToString, work: Work) -> Call {
    Call {
        operation: id(name),
        work,
        cost: 1,
        endpoint: None,
        model: Some("m-small".into()),
        degrade: None,
        lease: LEASE,
    }
}

fn dispatch(name: impl ToString) -> Call {
    call(name, Work::Dispatch(Tokens::default()))
}

fn ask(name: impl ToString, prompt: u64, max_tokens: u64) -> Call {
    call(name, Work::Dispatch(tokens(prompt, max_tokens)))
}

fn arrival(name: impl ToString) -> Call {
    call(name, Work::Arrival)
}

fn used(prompt: u64, completion: u64) -> Outcome {
    Outcome::Used {
        prompt,
        completion,
        estimated: false,
    }
}

#[track_caller]
fn passes(account: &mut Account, now: Millis, limits: &Limits, call: &Call) -> Admission {
    match account.admit(now, limits, call) {
        Verdict::Admitted(admission) => admission,
        other => panic!("should have passed: {other:?}"),
    }
}

#[track_caller]
fn refused(account: &mut Account, now: Millis, limits: &Limits, call: &Call) -> Violation {
    let refusal = refusal(account, now, limits, call);
    refusal.decisive().cloned().unwrap()
}

#[track_caller]
fn refusal(account: &mut Account, now: Millis, limits: &Limits, call: &Call) -> Refusal {
    match account.admit(now, limits, call) {
        Verdict::Refused(refusal) => refusal,
        other => panic!("should have been refused: {other:?}"),
    }
}

#[track_caller]
fn rejected(account: &mut Account, now: Millis, limits: &Limits, call: &Call) -> Rejection {
    match account.admit(now, limits, call) {
        Verdict::Rejected(rejection) => rejection,
        other => panic!("should have been rejected: {other:?}"),
    }
}

#[track_caller]
fn line(account: &Account, now: Millis, limits: &Limits, name: PolicyName) -> PolicyView {
    let views = account.view(now, limits);
    views.into_iter().find(|v| v.name == name).unwrap()
}

/// A refused call is refused until its wait is over, to the millisecond.
#[track_caller]
fn wait_is_exact(account: &Account, now: Millis, limits: &Limits, call: &Call) {
    let wait = refused(&mut account.clone(), now, limits, call).wait;
    assert!(wait > Span::ZERO);
    let before = now.plus(Span(wait.0 - 1));
    refused(&mut account.clone(), before, limits, call);
    passes(&mut account.clone(), now.plus(wait), limits, call);
}

/// What an account is after it was stored and read again.
fn stored_and_read(account: &mut Account, pages: &mut storage::Pages) -> Account {
    pages.apply(account.take_changes());
    Account::decode(&account.encode(), pages.all()).unwrap()
}

#[track_caller]
fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap()
}
