//! What a decision costs without a platform around it, beside the `governor` crate's limiters.
//!
//! They are not the same thing: governor keeps one GCRA cell in memory and forgets it with the process. An
//! account judges up to seven policies at once, all or nothing, keeps reservations, calendar quotas with their
//! resets and the totals the ledger is told, and writes all of it down after every call (`encode`).

use std::hint::black_box;
use std::num::NonZeroU32;

use criterion::{Criterion, criterion_group, criterion_main};
use governor::{Quota, RateLimiter};
use sluice::limits::{
    Account, BucketLimit, Call, EndpointLimit, Limits, MaxTokensMode, Millis, OperationId, Outcome,
    Reset, Span, Tokens, Verdict, WindowLimit, Work,
};

/// 2026-06-15 12:00:00 UTC.
const NOON: u64 = 1_781_524_800_000;
const PLENTY: u64 = 1_000_000_000_000;

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

/// Every policy there is, none of which refuses.
fn everything() -> Limits {
    let window = WindowLimit {
        max_requests: PLENTY,
        span: Span::minutes(300),
    };
    Limits {
        daily: Some(PLENTY),
        monthly_tokens: Some(PLENTY),
        max_tokens_per_request: Some(1_000),
        rate: rate(),
        window: Some(window),
        tokens_per_minute: Some(PLENTY),
        max_concurrent: Some(100),
        endpoints: vec![EndpointLimit {
            name: "chat".to_owned(),
            window,
        }],
        notify_at_permille: vec![800, 1_000],
        ..unlimited()
    }
}

fn rate() -> Option<BucketLimit> {
    Some(BucketLimit {
        capacity: 1_000_000,
        refill_per_minute: 60_000_000,
    })
}

fn call(operation: u64, work: Work) -> Call {
    Call {
        operation: OperationId(format!("op_{operation}")),
        work,
        cost: 1,
        endpoint: Some("chat".to_owned()),
        model: None,
        degrade: None,
        lease: Span::minutes(2),
    }
}

/// An account and a clock that goes on a millisecond a call.
struct Bench {
    account: Account,
    limits: Limits,
    turn: u64,
}

impl Bench {
    fn of(limits: Limits) -> Self {
        Self {
            account: Account::new(),
            limits,
            turn: 0,
        }
    }

    fn arrive(&mut self) {
        self.turn += 1;
        let now = Millis(NOON + self.turn);
        let verdict = self
            .account
            .admit(now, &self.limits, &call(self.turn, Work::Arrival));
        assert!(matches!(black_box(verdict), Verdict::Admitted(_)));
    }

    fn admit_and_settle(&mut self) {
        self.turn += 1;
        let now = Millis(NOON + self.turn);
        let tokens = Tokens {
            prompt: 40,
            max_tokens: Some(300),
            choices: 1,
        };
        let call = call(self.turn, Work::Dispatch(tokens));
        let verdict = self.account.admit(now, &self.limits, &call);
        assert!(matches!(black_box(verdict), Verdict::Admitted(_)));
        let used = Outcome::Used {
            prompt: 40,
            completion: 24,
            estimated: false,
        };
        black_box(self.account.settle(now, &call.operation, used));
    }

    /// What the object does to keep the account after a change.
    fn write_down(&mut self) {
        black_box(self.account.take_changes());
        black_box(self.account.encode());
    }
}

fn sluice(c: &mut Criterion) {
    let mut group = c.benchmark_group("sluice");
    let mut one = Bench::of(Limits {
        rate: rate(),
        ..unlimited()
    });
    group.bench_function("the bucket alone", |b| b.iter(|| one.arrive()));
    let mut all = Bench::of(everything());
    group.bench_function("all policies, admit and settle", |b| {
        b.iter(|| all.admit_and_settle());
    });
    let mut kept = Bench::of(everything());
    group.bench_function("all policies, admit and settle, written down twice", |b| {
        b.iter(|| {
            kept.admit_and_settle();
            kept.write_down();
            kept.write_down();
        });
    });
    group.finish();
}

fn governor(c: &mut Criterion) {
    let mut group = c.benchmark_group("governor");
    let quota = Quota::per_second(NonZeroU32::MAX);
    let direct = RateLimiter::direct(quota);
    group.bench_function("direct", |b| b.iter(|| black_box(direct.check()).is_ok()));
    let keyed = RateLimiter::keyed(quota);
    let users: Vec<_> = (0..1_000).map(|n| format!("user-{n}")).collect();
    let mut user = users.iter().cycle();
    group.bench_function("keyed, 1,000 users", |b| {
        b.iter(|| {
            user.next()
                .map(|user| black_box(keyed.check_key(user)).is_ok())
        });
    });
    group.finish();
}

criterion_group!(benches, sluice, governor);
criterion_main!(benches);
