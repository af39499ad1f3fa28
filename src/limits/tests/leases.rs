//! Leases: what is handed out ahead is never spent twice, whatever becomes of it.

use proptest::prelude::*;

use super::*;

const SECOND: Span = Span::seconds(1);

fn roomy() -> Limits {
    Limits {
        daily: Some(1_000),
        ..unlimited()
    }
}

/// Calls one by one until a lease is handed out.
fn leased(account: &mut Account, now: Millis, limits: &Limits) -> Holding {
    for index in 0..10 {
        let call = ask(format!("first-{index}"), 5, 5);
        passes(account, now, limits, &call);
        if let Some(handed) = account.lease(now, limits, &call) {
            account.settle(now, &call.operation, used(5, 5));
            return Holding::new(handed, now);
        }
        account.settle(now, &call.operation, used(5, 5));
    }
    panic!("no lease");
}

#[track_caller]
fn spend(holding: &mut Holding, now: Millis, name: impl ToString) -> OperationId {
    let call = ask(name, 5, 5);
    assert!(holding.admit(now, &call).is_some(), "should have passed");
    call.operation
}

fn daily(account: &Account, now: Millis, limits: &Limits) -> (u64, u64, u64) {
    let view = line(account, now, limits, PolicyName::Daily);
    (view.used, view.reserved, view.remaining)
}

#[test]
fn only_who_calls_often_gets_one() {
    let limits = roomy();
    let mut account = Account::new();
    for index in 0..20 {
        let now = NOON.plus(Span(index * 700));
        let call = dispatch(index);
        passes(&mut account, now, &limits, &call);
        assert_eq!(account.lease(now, &limits, &call), None);
        account.settle(now, &call.operation, used(0, 0));
    }
    leased(&mut account, NOON.plus(Span::minutes(1)), &limits);
}

#[test]
fn nobody_near_a_limit_gets_one() {
    let near = [
        Limits {
            daily: Some(35),
            ..unlimited()
        },
        Limits {
            rate: bucket_of(30, 60),
            ..unlimited()
        },
        Limits {
            window: window_of(30, Span::hours(1)),
            ..unlimited()
        },
        Limits {
            monthly_tokens: Some(300),
            ..unlimited()
        },
        Limits {
            tokens_per_minute: Some(300),
            ..unlimited()
        },
    ];
    for limits in near {
        let mut account = Account::new();
        for index in 0..10 {
            let call = ask(index, 5, 5);
            passes(&mut account, NOON, &limits, &call);
            assert_eq!(account.lease(NOON, &limits, &call), None, "{limits:?}");
            account.settle(NOON, &call.operation, used(5, 5));
        }
    }
}

#[test]
fn shadow_plans_slots_limited_endpoints_and_the_end_of_a_day_get_none() {
    let none = |limits: Limits, now: Millis| {
        let mut account = Account::new();
        for index in 0..10 {
            let call = Call {
                endpoint: Some("e".into()),
                ..ask(index, 5, 5)
            };
            passes(&mut account, now, &limits, &call);
            assert_eq!(account.lease(now, &limits, &call), None);
            account.settle(now, &call.operation, used(5, 5));
        }
    };
    none(
        Limits {
            shadow: true,
            ..roomy()
        },
        NOON,
    );
    none(
        Limits {
            max_concurrent: Some(1_000),
            ..roomy()
        },
        NOON,
    );
    let endpoints = vec![endpoint_of("e", 1_000, Span::hours(1))];
    none(
        Limits {
            endpoints,
            ..roomy()
        },
        NOON,
    );
    none(roomy(), Millis(NOON.plus(Span::hours(12)).0 - 500));
}

#[test]
fn it_never_reaches_into_the_next_day_or_past_a_top_up() {
    let limits = roomy();
    let midnight = NOON.plus(Span::hours(12));
    let mut account = Account::new();
    let mut holding = leased(&mut account, Millis(midnight.0 - 2_000), &limits);
    spend(&mut holding, Millis(midnight.0 - 1), "a");
    assert!(holding.admit(midnight, &ask("b", 5, 5)).is_none());

    let mut account = Account::new();
    let expires = NOON.plus(Span::seconds(2));
    account
        .grant(NOON, &limits, PolicyName::Daily, 5_000, Some(expires))
        .unwrap();
    let mut holding = leased(&mut account, NOON, &limits);
    spend(&mut holding, Millis(expires.0 - 1), "a");
    assert!(holding.admit(expires, &ask("b", 5, 5)).is_none());
}

#[test]
fn what_is_out_counts_as_used_and_what_comes_back_as_it_was_spent() {
    let limits = roomy();
    let mut account = Account::new();
    let mut holding = leased(&mut account, NOON, &limits);
    let (before, held, _) = daily(&account, NOON, &limits);
    assert!(held >= 4);
    assert_eq!(
        daily(&account, NOON, &limits).2,
        1_000 - before - held,
        "held is not left"
    );
    let ended = spend(&mut holding, NOON, "a");
    holding.settle(NOON, &ended, used(7, 8));
    let failed = spend(&mut holding, NOON, "b");
    holding.settle(NOON, &failed, Outcome::Released);
    let open = spend(&mut holding, NOON, "c");
    let later = NOON.plus(SECOND);
    let returned = holding.give_back();
    account.take_back(later, &limits, &returned);
    assert_eq!(
        daily(&account, later, &limits),
        (before + 2, 0, 1_000 - before - 2)
    );
    let totals = &account.unflushed()[0];
    assert_eq!(totals.calls, before + 2);
    let completion = totals.completion_tokens;
    account.take_back(later, &limits, &returned);
    assert_eq!(
        daily(&account, later, &limits).0,
        before + 2,
        "it comes back once"
    );
    assert_eq!(
        account.settle(later, &open, used(5, 4)),
        SettleResult::Settled
    );
    assert_eq!(account.unflushed()[0].completion_tokens, completion + 4);
}

#[test]
fn one_that_never_comes_back_is_booked_in_full_and_put_right_if_it_does() {
    let limits = Limits {
        monthly_tokens: Some(1_000_000),
        ..roomy()
    };
    let mut account = Account::new();
    let mut holding = leased(&mut account, NOON, &limits);
    let (before, held, _) = daily(&account, NOON, &limits);
    let month = line(&account, NOON, &limits, PolicyName::MonthlyTokens);
    let ended = spend(&mut holding, NOON, "a");
    holding.settle(NOON, &ended, used(1, 1));
    let end = account.next_lease_end().unwrap();
    assert!(end <= NOON.plus(Span(LENGTH.0 + GRACE.0)));
    assert!(account.reclaim(end));
    assert_eq!(daily(&account, end, &limits).0, before + held);
    let lapsed = line(&account, end, &limits, PolicyName::MonthlyTokens);
    assert_eq!(lapsed.used, month.used + month.reserved);
    account.take_back(end, &limits, &holding.give_back());
    assert_eq!(daily(&account, end, &limits).0, before + 1);
    let truth = line(&account, end, &limits, PolicyName::MonthlyTokens);
    assert_eq!(truth.used, month.used + 2);
    assert_eq!(account.unflushed()[0].calls, before + 1);
}

#[test]
fn a_refusal_that_only_leases_cause_passes_by_itself_soon() {
    let limits = Limits {
        daily: Some(100),
        ..unlimited()
    };
    let mut account = Account::new();
    let holding = leased(&mut account, NOON, &limits);
    let mut index = 0;
    let violation = loop {
        let call = dispatch(format!("one-{index}"));
        match account.admit(NOON, &limits, &call) {
            Verdict::Admitted(_) => index += 1,
            Verdict::Refused(refusal) => break refusal.decisive().cloned().unwrap(),
            Verdict::Rejected(rejection) => panic!("{rejection:?}"),
        }
    };
    assert_eq!((violation.cause, violation.remaining), (Cause::Held, 0));
    assert!(violation.wait <= Span::seconds(5));
    account.take_back(NOON, &limits, &holding.give_back());
    passes(&mut account, NOON, &limits, &dispatch("again"));
}

#[test]
fn a_reset_is_not_undone_by_what_comes_back() {
    let limits = Limits {
        rate: bucket_of(1_000, 1),
        window: window_of(1_000, Span::hours(1)),
        ..roomy()
    };
    let mut account = Account::new();
    let mut holding = leased(&mut account, NOON, &limits);
    spend(&mut holding, NOON, "a");
    account.reset(NOON, &limits, &[]);
    account.take_back(NOON, &limits, &holding.give_back());
    for view in account.view(NOON, &limits) {
        assert_eq!((view.used, view.reserved), (0, 0), "{view:?}");
    }
}

#[test]
fn the_next_one_follows_while_traffic_is_high_and_is_handed_out_once() {
    let limits = roomy();
    let mut account = Account::new();
    let mut holding = leased(&mut account, NOON, &limits);
    for index in 0..4 {
        let operation = spend(&mut holding, NOON, index);
        holding.settle(NOON, &operation, used(1, 1));
    }
    let later = NOON.plus(SECOND);
    let returned = holding.give_back();
    let next = id("next");
    let mut follow = |limits: &Limits, returned: &Returned, next: &OperationId| {
        let is_new = account.take_back(later, limits, returned);
        account.follow_on(later, limits, returned, is_new, next)
    };
    let first = follow(&limits, &returned, &next);
    let again = follow(&limits, &returned, &next);
    assert!(first.is_some());
    assert_eq!(first, again);
    let mut busy = Holding::new(first.unwrap(), later);
    for index in 10..14 {
        spend(&mut busy, later, index);
    }
    let blocked = Limits {
        blocked: true,
        ..limits.clone()
    };
    let second = busy.give_back();
    assert_eq!(follow(&blocked, &second, &id("second")), None);
    let late = follow(&limits, &returned, &next);
    assert_eq!(late, None, "a late message finds the lease back already");
    assert_eq!(daily(&account, later, &limits).1, 0);
}

#[test]
fn an_idle_one_has_no_follower() {
    let limits = roomy();
    let mut account = Account::new();
    let returned = leased(&mut account, NOON, &limits).give_back();
    assert!(account.take_back(NOON, &limits, &returned));
    assert_eq!(
        account.follow_on(NOON, &limits, &returned, true, &id("next")),
        None
    );
}

#[test]
fn what_is_used_under_it_is_told_within_two_seconds_and_a_checkpoint_at_once() {
    let limits = roomy();
    let mut account = Account::new();
    let mut holding = leased(&mut account, NOON, &limits);
    let short = spend(&mut holding, NOON, "short");
    let long = spend(&mut holding, NOON, "long");
    let mut other = holding.clone();
    let later = NOON.plus(SECOND);
    assert!(!holding.is_due(later.plus(Span::seconds(2))));

    holding.settle(later, &short, used(5, 5));
    assert!(!holding.is_due(later.plus(Span(1_999))));
    let due = later.plus(Span::seconds(2));
    assert!(holding.is_due(due));
    assert_eq!(holding.overdue(due.plus(Span(1_500))), Span(1_500));
    assert!(holding.lasts(due), "calls pass until it is on its way");

    other.settle(later, &short, used(5, 5));
    assert!(!other.is_due(later));
    let so_far = Metered {
        prompt: 5,
        completion: 500,
    };
    assert!(other.checkpoint(later, &long, so_far, Span::minutes(3)));
    assert!(other.is_due(later));
    account.take_back(later, &limits, &other.give_back());
    let before = account.unflushed()[0].completion_tokens;
    let lease_end = later.plus(Span::minutes(3));
    assert!(!account.reclaim(Millis(lease_end.0 - 1)));
    assert!(account.reclaim(lease_end));
    assert_eq!(account.unflushed()[0].completion_tokens, before + 500);
}

#[test]
fn a_holding_knows_the_rules_and_the_account_the_rest() {
    let limits = Limits {
        allowed_models: Some(vec![ModelPattern("m-*".into())]),
        max_tokens_per_request: Some(50),
        endpoints: vec![endpoint_of("e", 10, Span::hours(1))],
        monthly_tokens: Some(1_000_000),
        ..roomy()
    };
    let mut account = Account::new();
    let mut holding = leased(&mut account, NOON, &limits);
    let other = |call: Call| call;
    let refused = [
        Call {
            model: Some("x".into()),
            ..ask("a", 1, 1)
        },
        Call {
            endpoint: Some("e".into()),
            ..ask("b", 1, 1)
        },
        Call {
            cost: 10_000,
            ..ask("c", 1, 1)
        },
        ask("d", 1, 51),
        ask("e", 1_000_000, 1),
        arrival("f"),
    ];
    for call in refused.map(other) {
        assert!(holding.admit(NOON, &call).is_none(), "{call:?}");
    }
    let unbounded = Call {
        work: Work::Dispatch(Tokens {
            prompt: 1,
            max_tokens: None,
            choices: 1,
        }),
        ..ask("g", 1, 1)
    };
    let capped = holding.admit(NOON, &unbounded);
    assert!(capped.is_none_or(|admission| admission.max_tokens == Some(50)));
}

#[test]
fn the_headers_of_its_calls_go_down_by_what_it_spends() {
    let limits = Limits {
        rate: bucket_of(1_000, 60),
        monthly_tokens: Some(1_000_000),
        ..roomy()
    };
    let mut account = Account::new();
    let before = {
        let mut asked = account.clone();
        leased(&mut asked, NOON, &limits);
        asked
    };
    let mut holding = leased(&mut account, NOON, &limits);
    let at_first = {
        let mut returned = before;
        returned.take_back(NOON, &limits, &holding.clone().give_back());
        returned.view(NOON, &limits)
    };
    let mut last: Vec<u64> = at_first.iter().map(|v| v.remaining).collect();
    for index in 0..4 {
        let operation = spend(&mut holding, NOON, index);
        let now: Vec<_> = holding
            .policies(NOON, &at_first)
            .iter()
            .map(|v| v.remaining)
            .collect();
        assert!(
            now.iter().zip(&last).all(|(now, last)| now < last),
            "{now:?} {last:?}"
        );
        holding.settle(NOON, &operation, used(5, 5));
        last = now;
    }
    let here = holding.policies(NOON, &at_first);
    account.take_back(NOON, &limits, &holding.give_back());
    let there = account.view(NOON, &limits);
    let numbers = |views: &[PolicyView]| -> Vec<_> {
        views
            .iter()
            .map(|v| (v.name.clone(), v.used, v.reserved, v.remaining, v.resets_at))
            .collect()
    };
    assert_eq!(numbers(&here), numbers(&there));
}

/// What may happen to a busy account and the isolates that spend its leases.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Call {
        isolate: usize,
        cost: u64,
        prompt: u64,
        max_tokens: u64,
    },
    Settle {
        which: usize,
        share: u64,
    },
    Release(usize),
    Checkpoint(usize),
    Return {
        isolate: usize,
        again: bool,
    },
    Lose(usize),
    Back(u64),
    Store,
}

const ISOLATES: usize = 4;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let isolate = 0..ISOLATES;
    let step = prop_oneof![
        6 => (0_u64..300).prop_map(Step::Wait),
        2 => (0_u64..6_000).prop_map(Step::Wait),
        1 => (0_u64..40_000).prop_map(Step::Wait),
        40 => (isolate.clone(), 1_u64..3, 0_u64..20, 1_u64..40).prop_map(
            |(isolate, cost, prompt, max_tokens)| Step::Call { isolate, cost, prompt, max_tokens }
        ),
        12 => (0_usize..30, 0_u64..=100).prop_map(|(which, share)| Step::Settle { which, share }),
        2 => (0_usize..30).prop_map(Step::Release),
        1 => (0_usize..30).prop_map(Step::Checkpoint),
        4 => (isolate.clone(), any::<bool>())
            .prop_map(|(isolate, again)| Step::Return { isolate, again }),
        1 => isolate.prop_map(Step::Lose),
        1 => (0_u64..2_000).prop_map(Step::Back),
        2 => Just(Step::Store),
    ];
    prop::collection::vec(step, 50..400)
}

fn plans() -> [Limits; 4] {
    [
        Limits {
            daily: Some(150),
            monthly_tokens: Some(6_000),
            ..unlimited()
        },
        Limits {
            rate: bucket_of(120, 600),
            window: window_of(200, Span::seconds(20)),
            ..unlimited()
        },
        Limits {
            tokens_per_minute: Some(4_000),
            window: window_of(2_000, Span::seconds(30)),
            ..unlimited()
        },
        Limits {
            daily: Some(400),
            monthly_tokens: Some(20_000),
            rate: bucket_of(200, 1_000),
            window: window_of(300, Span::seconds(60)),
            tokens_per_minute: Some(9_000),
            ..unlimited()
        },
    ]
}

/// One call that passed, as the truth remembers it.
#[derive(Clone, Debug)]
struct Passed {
    call: Call,
    isolate: usize,
    at: u64,
    reserved: u64,
    /// Tokens used in the end; `None`: under way, or nobody knows.
    used: Option<u64>,
    released: bool,
}

/// An account, its isolates, and the truth by other means.
struct World {
    limits: Limits,
    account: Account,
    pages: storage::Pages,
    holdings: Vec<Option<Holding>>,
    /// Real time, and how far the account's clock is behind it.
    real: u64,
    behind: u64,
    passed: Vec<Passed>,
    /// What is missing in the true buckets, in 60,000ths, and as of when.
    rate: (u128, u64),
    minute: (u128, u64),
    lost: bool,
    by_lease: usize,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            account: Account::new(),
            pages: storage::Pages::default(),
            holdings: vec![None; ISOLATES],
            real: NOON.0,
            behind: 0,
            passed: Vec::new(),
            rate: (0, 0),
            minute: (0, 0),
            lost: false,
            by_lease: 0,
        }
    }

    fn now(&self) -> Millis {
        Millis(self.real - self.behind)
    }

    /// Every isolate's clock is off by a time of its own.
    fn clock_of(&self, isolate: usize) -> Millis {
        Millis(self.real + 100_000 * isolate as u64)
    }

    fn step(&mut self, step: &Step, index: usize) {
        match *step {
            Step::Wait(ms) => self.real += ms,
            Step::Back(ms) => self.behind += ms,
            Step::Call {
                isolate,
                cost,
                prompt,
                max_tokens,
            } => {
                let call = Call {
                    cost,
                    lease: Span::hours(24),
                    ..ask(format!("{index}"), prompt, max_tokens)
                };
                self.call(isolate, &call);
            }
            Step::Settle { which, share } => {
                if let Some(index) = self.under_way(which) {
                    let used = self.passed[index].reserved * share / 100;
                    self.settle(index, Some(used));
                }
            }
            Step::Release(which) => {
                if let Some(index) = self.under_way(which) {
                    self.settle(index, None);
                }
            }
            Step::Checkpoint(which) => {
                if let Some(index) = self.under_way(which) {
                    self.checkpoint(index);
                }
            }
            Step::Return { isolate, again } => self.give_back(isolate, again, index),
            Step::Lose(isolate) => {
                if self.holdings[isolate].take().is_some() {
                    self.lost = true;
                }
            }
            Step::Store => self.account = stored_and_read(&mut self.account, &mut self.pages),
        }
    }

    fn call(&mut self, isolate: usize, call: &Call) {
        let (here, now) = (self.clock_of(isolate), self.now());
        if let Some(holding) = &mut self.holdings[isolate]
            && let Some(admission) = holding.admit(here, call)
        {
            self.by_lease += 1;
            return self.pass(isolate, call, &admission);
        }
        let verdict = self.account.admit(now, &self.limits, call);
        if let Verdict::Admitted(admission) = verdict {
            self.pass(isolate, call, &admission);
            if self.holdings[isolate].is_none() {
                let handed = self.account.lease(now, &self.limits, call);
                self.holdings[isolate] = handed.map(|handed| Holding::new(handed, here));
            }
        }
    }

    fn pass(&mut self, isolate: usize, call: &Call, admission: &Admission) {
        let Work::Dispatch(tokens) = call.work else {
            return;
        };
        let bound = admission.max_tokens.unwrap_or(0);
        let reserved = tokens.prompt + bound;
        self.passed.push(Passed {
            call: call.clone(),
            isolate,
            at: self.real,
            reserved,
            used: None,
            released: false,
        });
        if let Some(limit) = self.limits.rate {
            refill(&mut self.rate, self.real, limit.refill_per_minute);
            self.rate.0 += u128::from(call.cost) * 60_000;
            assert!(
                self.rate.0 <= u128::from(limit.capacity) * 60_000,
                "rate is overspent"
            );
        }
        if let Some(limit) = self.limits.tokens_per_minute {
            refill(&mut self.minute, self.real, limit);
            self.minute.0 += u128::from(reserved) * 60_000;
            assert!(
                self.minute.0 <= u128::from(limit) * 60_000,
                "tokens a minute are overspent"
            );
        }
        self.check();
    }

    fn check(&self) {
        let calls = self.passed.iter().filter(|p| !p.released);
        let cost: u64 = calls.map(|p| p.call.cost).sum();
        assert!(
            self.limits.daily.is_none_or(|limit| cost <= limit),
            "the day is overspent: {cost}"
        );
        let tokens: u64 = self
            .passed
            .iter()
            .map(|p| p.used.unwrap_or(p.reserved))
            .sum();
        assert!(
            self.limits
                .monthly_tokens
                .is_none_or(|limit| tokens <= limit),
            "the month is overspent: {tokens}"
        );
        if let Some(limit) = self.limits.window {
            let inside = self
                .passed
                .iter()
                .filter(|p| p.at + limit.span.0 > self.real);
            let cost: u64 = inside.map(|p| p.call.cost).sum();
            assert!(
                cost <= limit.max_requests,
                "the window is overspent: {cost}"
            );
        }
    }

    fn under_way(&self, which: usize) -> Option<usize> {
        let open = self.passed.iter().enumerate().rev();
        let mut open = open.filter(|(_, p)| p.used.is_none() && !p.released);
        open.nth(which).map(|(index, _)| index)
    }

    /// A call that says how far it is brings its lease back, as it is.
    fn checkpoint(&mut self, index: usize) {
        let Passed { call, isolate, .. } = self.passed[index].clone();
        let (here, now) = (self.clock_of(isolate), self.now());
        let (so_far, day) = (
            Metered {
                prompt: 0,
                completion: 1,
            },
            Span::hours(24),
        );
        let holding = self.holdings[isolate].as_mut();
        if holding.is_some_and(|h| h.checkpoint(here, &call.operation, so_far, day)) {
            assert!(self.holdings[isolate].as_ref().unwrap().is_due(here));
            return self.give_back(isolate, true, index + 1_000);
        }
        self.account.checkpoint(now, &call.operation, 0, 1, day);
    }

    /// `None`: upstream failed.
    fn settle(&mut self, index: usize, tokens: Option<u64>) {
        let now = self.now();
        let Passed {
            call,
            isolate,
            reserved,
            ..
        } = self.passed[index].clone();
        let outcome = tokens.map_or(Outcome::Released, |tokens| used(0, tokens));
        let clock = self.clock_of(isolate);
        let here = self.holdings[isolate].as_mut();
        let known = here.is_some_and(|h| h.settle(clock, &call.operation, outcome))
            || self.account.settle(now, &call.operation, outcome) == SettleResult::Settled;
        if !known {
            // Lost with its lease: it may have used all that was reserved.
            self.passed[index].used = Some(reserved);
            return;
        }
        self.passed[index].used = Some(tokens.unwrap_or(0));
        self.passed[index].released = tokens.is_none();
        if let Some(limit) = self.limits.tokens_per_minute {
            refill(&mut self.minute, self.real, limit);
            let back = u128::from(reserved - tokens.unwrap_or(0)) * 60_000;
            self.minute.0 = self.minute.0.saturating_sub(back);
        }
    }

    fn give_back(&mut self, isolate: usize, again: bool, index: usize) {
        let Some(holding) = self.holdings[isolate].take() else {
            return;
        };
        let (here, now) = (self.clock_of(isolate), self.now());
        let next = id(format!("next-{index}"));
        let returned = holding.give_back();
        let mut ask = || {
            let (account, limits) = (&mut self.account, &self.limits);
            let is_new = account.take_back(now, limits, &returned);
            again
                .then(|| account.follow_on(now, limits, &returned, is_new, &next))
                .flatten()
        };
        let mut handed = ask();
        if index.is_multiple_of(3) {
            // The answer was lost on its way: asked once more.
            handed = ask();
        }
        self.holdings[isolate] = handed.map(|handed| Holding::new(handed, here));
    }

    /// Everything comes to its end: where nothing was lost, both sides agree to the token.
    fn finish(&mut self) {
        for index in 0..self.passed.len() {
            if self.passed[index].used.is_none() && !self.passed[index].released {
                self.settle(index, Some(1.min(self.passed[index].reserved)));
            }
        }
        for isolate in 0..ISOLATES {
            self.give_back(isolate, false, 1);
        }
        self.real += LENGTH.0 + GRACE.0;
        let now = self.now();
        let views = self.account.view(now, &self.limits);
        let truth = |name: &PolicyName| -> Option<u64> {
            let counted = self.passed.iter().filter(|p| !p.released);
            match name {
                PolicyName::Daily => Some(counted.map(|p| p.call.cost).sum()),
                PolicyName::MonthlyTokens => Some(counted.map(|p| p.used.unwrap()).sum()),
                _ => None,
            }
        };
        for view in views {
            assert_eq!(view.used + view.remaining, view.limit.max(view.used));
            let Some(truth) = truth(&view.name) else {
                continue;
            };
            assert_eq!(view.reserved, 0, "{view:?}");
            if self.lost {
                assert!(view.used >= truth, "{view:?} {truth}");
            } else {
                assert_eq!(view.used, truth, "{view:?}");
            }
        }
    }
}

fn refill((missing, at): &mut (u128, u64), real: u64, per_minute: u64) {
    let refilled = u128::from(real - *at) * u128::from(per_minute);
    *missing = missing.saturating_sub(refilled);
    *at = real;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_ever_overspent(plan in 0_usize..4, steps in steps()) {
        let mut world = World::new(plans()[plan].clone());
        for (index, step) in steps.iter().enumerate() {
            world.step(step, index);
        }
        world.finish();
    }
}

/// The property would hold of an account that never hands out anything, too.
#[test]
fn leases_are_what_most_calls_pass_by() {
    let mut world = World::new(Limits {
        daily: Some(100_000),
        monthly_tokens: Some(10_000_000),
        ..unlimited()
    });
    for index in 0..2_000 {
        world.real += 20;
        let isolate = index % 2;
        world.call(isolate, &ask(index, 5, 5));
        world.settle(index, Some(4));
        let due = |world: &World| {
            let holding = world.holdings[isolate].as_ref();
            holding.is_some_and(|h| h.is_due(world.clock_of(isolate)))
        };
        if due(&world) {
            world.give_back(isolate, true, index);
        }
    }
    assert!(world.by_lease > 1_900, "{}", world.by_lease);
    world.finish();
}
