//! What many users ask of the platform, where arithmetic alone does not say it: how many publications the
//! accounts make, and how many calls the leases decide. `npm run scale` prints it with dollars.
//!
//! A user's calls come at random, at one mean rate. They meet the law itself ([`Account`], [`Holding`]); around
//! it stand the rules of `src/account`: when an account is stored, when its alarm wakes it, who asks for a lease
//! and who brings it back. One user of each rate is followed, and what they ask for is added up over everybody.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

#[path = "../tests/shared/random.rs"]
mod random;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{AddAssign, Mul};

use serde_json::json;
use sluice::limits::{
    Account, BucketLimit, Call, Handed, Holding, Limits, MaxTokensMode, Millis, OperationId,
    Outcome, Reset, Span, Tokens, Verdict, Work,
};

use random::Random;

const START: Millis = Millis(1_781_524_800_000);
const PLENTY: u64 = 1_000_000_000_000;
/// As in `src/account/leases.rs`: how often a keeper looks, and for how long.
const LOOK: Span = Span(100);
const KEEPING: Span = Span(10_000);
/// As in `src/account/ended.rs`: how long the end of a call waits for a message that takes it along.
const RIDE: Span = Span(25);
/// As in `src/account/object/upkeep.rs`: after this long without a call an account frees its storage.
const IDLE: Span = Span::hours(24);
/// As in `src/remembered.rs`: how old a key is when an isolate reads it again.
const KEY_IN_ISOLATE: Span = Span::seconds(4);
/// As in `src/auth/lookup.rs`: how long KV remembers whose a key is.
const KEY_IN_KV: Span = Span::hours(24);
/// Nobody's plan allows more calls a second.
const FASTEST: f64 = 100.0;

const USED: Outcome = Outcome::Used {
    prompt: 100,
    completion: 200,
    estimated: false,
};

const USERS: f64 = 10_000_000.0;
const CALLS: f64 = 100_000.0;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Asked {
    calls: f64,
    /// Calls that a lease decided.
    leased: f64,
    /// Messages to accounts, alarms among them.
    object_requests: f64,
    object_rows: f64,
    publications: f64,
    /// Accounts that begin from the ledger, having freed their storage.
    starts: f64,
    kv_reads: f64,
    /// Keys that KV has forgotten: read from the ledger, and written there again.
    kv_writes: f64,
}

impl AddAssign for Asked {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.leased += other.leased;
        self.object_requests += other.object_requests;
        self.object_rows += other.object_rows;
        self.publications += other.publications;
        self.starts += other.starts;
        self.kv_reads += other.kv_reads;
        self.kv_writes += other.kv_writes;
    }
}

impl Mul<f64> for Asked {
    type Output = Self;

    fn mul(self, by: f64) -> Self {
        Self {
            calls: self.calls * by,
            leased: self.leased * by,
            object_requests: self.object_requests * by,
            object_rows: self.object_rows * by,
            publications: self.publications * by,
            starts: self.starts * by,
            kv_reads: self.kv_reads * by,
            kv_writes: self.kv_writes * by,
        }
    }
}

/// Until the next of calls that come at random, `mean` milliseconds apart.
fn pause(random: &mut Random, mean: f64) -> Span {
    let uniform = ((random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    Span((-uniform.ln() * mean).round() as u64)
}

/// What happens next to a user, in the order of time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    Arrival,
    Answer { call: u64, isolate: usize },
    Ride { isolate: usize },
    Look { isolate: usize, since: Millis },
    Alarm { nth: u64 },
}

/// What the users have in common.
#[derive(Clone, Copy)]
struct Setting {
    /// Where the calls of one user arrive.
    isolates: usize,
    /// How long an account gathers before it publishes (`LEDGER_DELAY_MS`).
    delay: Span,
    /// How long a provider takes to answer.
    answer: Span,
    /// Calls that are followed.
    calls: u64,
}

/// What an isolate knows of the user.
#[derive(Clone, Default)]
struct Isolate {
    lease: Option<Holding>,
    key_until: Millis,
    /// Calls that have ended and whose account has not heard of it.
    ended: Vec<OperationId>,
}

/// One user, their account, and the isolates where their calls arrive.
struct User {
    /// `None`: its storage is empty.
    account: Option<Account>,
    limits: Limits,
    isolates: Vec<Isolate>,
    key_in_kv_until: Millis,
    setting: Setting,
    unsaved: bool,
    publishes_from: Millis,
    armed: Option<Millis>,
    alarms: u64,
    serial: u64,
    events: BinaryHeap<Reverse<(Millis, Event)>>,
    asked: Asked,
}

impl User {
    fn new(setting: Setting) -> Self {
        Self {
            account: None,
            limits: generous(),
            isolates: vec![Isolate::default(); setting.isolates],
            key_in_kv_until: Millis(0),
            setting,
            unsaved: false,
            publishes_from: Millis(0),
            armed: None,
            alarms: 0,
            serial: 0,
            events: BinaryHeap::new(),
            asked: Asked::default(),
        }
    }

    /// Follows the user; for how long, in seconds.
    fn follow(&mut self, rate: f64, random: &mut Random) -> f64 {
        let mut now = START;
        let mut left = self.setting.calls;
        self.later(now, Event::Arrival);
        while left > 0 {
            let Some(Reverse((at, event))) = self.events.pop() else {
                break;
            };
            now = at;
            match event {
                Event::Arrival => {
                    left -= 1;
                    let isolate = random.below(self.isolates.len() as u64) as usize;
                    self.arrive(now, isolate);
                    let pause = pause(random, 1_000.0 / rate);
                    self.later(now.plus(pause), Event::Arrival);
                }
                Event::Answer { call, isolate } => self.answer(now, call, isolate),
                Event::Ride { isolate } if !self.isolates[isolate].ended.is_empty() => {
                    self.tell(now, isolate);
                    self.store(now);
                }
                Event::Ride { .. } => {}
                Event::Look { isolate, since } => self.look(now, isolate, since),
                Event::Alarm { nth } if nth == self.alarms => self.wake(now),
                Event::Alarm { .. } => {}
            }
        }
        now.since(START).0 as f64 / 1_000.0
    }

    fn later(&mut self, at: Millis, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    fn operation(&mut self) -> OperationId {
        self.serial += 1;
        OperationId(format!("op_{}", self.serial))
    }

    fn account(&mut self) -> &mut Account {
        self.asked.starts += f64::from(u8::from(self.account.is_none()));
        self.account.get_or_insert_with(Account::new)
    }

    fn look_up_key(&mut self, now: Millis, isolate: usize) {
        if self.isolates[isolate].key_until > now {
            return;
        }
        self.isolates[isolate].key_until = now.plus(KEY_IN_ISOLATE);
        self.asked.kv_reads += 1.0;
        if self.key_in_kv_until <= now {
            self.key_in_kv_until = now.plus(KEY_IN_KV);
            self.asked.kv_writes += 1.0;
        }
    }

    fn arrive(&mut self, now: Millis, isolate: usize) {
        self.asked.calls += 1.0;
        self.look_up_key(now, isolate);
        let call = Call {
            operation: self.operation(),
            work: Work::Dispatch(Tokens {
                prompt: 100,
                max_tokens: Some(300),
                choices: 1,
            }),
            cost: 1,
            endpoint: None,
            model: None,
            degrade: None,
            lease: Span::minutes(5),
        };
        let answer = Event::Answer {
            call: self.serial,
            isolate,
        };
        self.later(now.plus(self.setting.answer), answer);
        let holding = &mut self.isolates[isolate].lease;
        if holding.as_mut().and_then(|h| h.admit(now, &call)).is_some() {
            self.asked.leased += 1.0;
            return;
        }
        let may_ask = holding.is_none();
        self.tell(now, isolate);
        let limits = self.limits.clone();
        let verdict = self.account().admit(now, &limits, &call);
        assert!(matches!(verdict, Verdict::Admitted(_)), "{verdict:?}");
        let handed = may_ask
            .then(|| self.account().lease(now, &limits, &call))
            .flatten();
        self.hold(now, isolate, handed, now);
        self.store(now);
    }

    fn hold(&mut self, now: Millis, isolate: usize, handed: Option<Handed>, since: Millis) {
        if let Some(handed) = handed {
            self.isolates[isolate].lease = Some(Holding::new(handed, now));
            self.later(now.plus(LOOK), Event::Look { isolate, since });
        }
    }

    fn answer(&mut self, now: Millis, call: u64, isolate: usize) {
        let operation = OperationId(format!("op_{call}"));
        let holding = self.isolates[isolate].lease.as_mut();
        if holding.is_none_or(|held| !held.settle(now, &operation, USED)) {
            self.isolates[isolate].ended.push(operation);
            self.later(now.plus(RIDE), Event::Ride { isolate });
        }
    }

    /// A message takes along what has ended.
    fn tell(&mut self, now: Millis, isolate: usize) {
        for operation in std::mem::take(&mut self.isolates[isolate].ended) {
            self.account().settle(now, &operation, USED);
        }
    }

    fn look(&mut self, now: Millis, isolate: usize, since: Millis) {
        let Some(holding) = &self.isolates[isolate].lease else {
            return;
        };
        if !holding.is_due(now) {
            return self.later(now.plus(LOOK), Event::Look { isolate, since });
        }
        let follows = now.since(since) < KEEPING;
        let returned = self.isolates[isolate].lease.take().unwrap().give_back();
        self.tell(now, isolate);
        let limits = self.limits.clone();
        let is_new = self.account().take_back(now, &limits, &returned);
        let next = follows.then(|| self.operation());
        let handed = next.and_then(|id| {
            let account = self.account();
            account.follow_on(now, &limits, &returned, is_new, &id)
        });
        self.hold(now, isolate, handed, since);
        self.store(now);
    }

    /// A message changed the account: it is stored, and its alarm set if it would wake too late.
    fn store(&mut self, now: Millis) {
        self.asked.object_requests += 1.0;
        self.save();
        self.arm(now.plus(self.setting.delay));
        if self.account().next_lease_end().is_none() {
            self.publish(now);
        }
    }

    /// Not more often than once in `LEDGER_DELAY_MS`.
    fn publish(&mut self, now: Millis) {
        if self.account().has_unflushed() && self.publishes_from <= now {
            let seq = self.account().quota_snapshot(now).seq;
            self.account().flushed(seq);
            self.unsaved = true;
            self.asked.publications += 1.0;
            self.publishes_from = now.plus(self.setting.delay);
        }
    }

    fn save(&mut self) {
        let pages = self.account().take_changes().pages_written.len();
        self.asked.object_rows += 1.0 + pages as f64;
        self.unsaved = false;
    }

    fn arm(&mut self, at: Millis) {
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        self.armed = Some(at);
        self.alarms += 1;
        self.asked.object_rows += 1.0;
        self.later(at, Event::Alarm { nth: self.alarms });
    }

    fn wake(&mut self, now: Millis) {
        self.armed = None;
        self.asked.object_requests += 1.0;
        self.publish(now);
        if self.unsaved {
            self.save();
        }
        if self.account().has_unflushed() {
            return self.arm(self.publishes_from);
        }
        if let Some(end) = self.account().next_lease_end() {
            let wait = end.since(now).max(Span::seconds(1));
            return self.arm(now.plus(wait));
        }
        match self.account().idle_since(now) {
            Some(since) if now.since(since) >= IDLE => self.account = None,
            _ => self.arm(now.plus(IDLE)),
        }
    }
}

/// Every limit that a plan can have without a window's log, none of which anybody comes near.
fn generous() -> Limits {
    Limits {
        daily: Some(PLENTY),
        monthly_tokens: Some(PLENTY),
        max_tokens_per_request: Some(1_000),
        max_tokens_mode: MaxTokensMode::Reject,
        allowed_models: None,
        rate: Some(BucketLimit {
            capacity: 1_000_000,
            refill_per_minute: 1_000_000,
        }),
        window: None,
        tokens_per_minute: Some(PLENTY),
        max_concurrent: None,
        endpoints: Vec::new(),
        reset: Reset::default(),
        notify_at_permille: Vec::new(),
        shadow: false,
        blocked: false,
    }
}

/// What one user of this rate asks for, per second.
fn per_second(rate: f64, setting: Setting) -> Asked {
    let mut user = User::new(setting);
    let seconds = user.follow(rate, &mut Random(1));
    user.asked * (1.0 / seconds)
}

/// Users by how often they call: rates a second, and how many have each.
struct Crowd {
    name: &'static str,
    users: Vec<(f64, f64)>,
}

impl Crowd {
    /// Scaled so that all together make [`CALLS`] calls a second, and nobody more than [`FASTEST`].
    fn of(name: &'static str, weights: &[(f64, f64)]) -> Self {
        let total = |scale: f64| -> f64 {
            let calls = |(rate, users): &(f64, f64)| (rate * scale).min(FASTEST) * users;
            weights.iter().map(calls).sum()
        };
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if total(middle) < CALLS {
                low = middle;
            } else {
                high = middle;
            }
        }
        let scaled = |(rate, users): &(f64, f64)| ((rate * low).min(FASTEST), *users);
        Self {
            name,
            users: weights.iter().map(scaled).collect(),
        }
    }

    /// Everybody calls alike.
    fn even() -> Self {
        Self::of("even", &[(1.0, USERS)])
    }

    /// Most call seldom, some often: the logarithm of the rate is normal, with a standard deviation of 2.
    fn lognormal() -> Self {
        let step = 0.02;
        let strip = |index: i32| {
            let z = f64::from(index) * step;
            let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
            ((2.0 * z).exp(), density * step * USERS)
        };
        Self::of("lognormal", &(-300..=260).map(strip).collect::<Vec<_>>())
    }

    /// The nth calls a nth as often as the first.
    fn zipf() -> Self {
        let bands = 400;
        let edge = |band: i32| USERS.powf(f64::from(band) / f64::from(bands));
        let band = |index: i32| {
            let users = edge(index + 1) - edge(index);
            ((edge(index + 1).ln() - edge(index).ln()) / users, users)
        };
        Self::of("Zipf", &(0..bands).map(band).collect::<Vec<_>>())
    }

    /// What all of them ask for, per second.
    fn asks(&self, setting: Setting) -> Asked {
        let grid = Grid::of(setting);
        let mut sum = Asked::default();
        for (rate, users) in &self.users {
            sum += grid.at(*rate) * *users;
        }
        sum
    }
}

/// Users of rates some way apart; what lies between is interpolated.
struct Grid(Vec<(f64, Asked)>);

impl Grid {
    const PER_DECADE: i32 = 5;

    fn of(setting: Setting) -> Self {
        let rate = |index: i32| 10_f64.powf(f64::from(index) / f64::from(Self::PER_DECADE));
        let rates = (-6 * Self::PER_DECADE..=2 * Self::PER_DECADE).map(rate);
        let asked = rates.map(|rate| (rate, per_call(rate, setting)));
        Self(asked.collect())
    }

    fn at(&self, rate: f64) -> Asked {
        let place = self.0.partition_point(|(one, _)| *one < rate);
        let above = place.clamp(1, self.0.len() - 1);
        let ((low, one), (high, other)) = (self.0[above - 1], self.0[above]);
        let part = ((rate / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
        let mut between = one * (1.0 - part);
        between += other * part;
        between * rate
    }
}

fn per_call(rate: f64, setting: Setting) -> Asked {
    let asked = per_second(rate, setting);
    asked * (1.0 / asked.calls)
}

fn shown(asked: Asked) -> serde_json::Value {
    json!({
        "calls": asked.calls,
        "leased": asked.leased,
        "object_requests": asked.object_requests,
        "object_rows": asked.object_rows,
        "publications": asked.publications,
        "starts": asked.starts,
        "kv_reads": asked.kv_reads,
        "kv_writes": asked.kv_writes,
    })
}

fn main() {
    let usual = Setting {
        isolates: 4,
        delay: Span::seconds(1),
        answer: Span::seconds(2),
        calls: 20_000,
    };
    let mut users = Vec::new();
    for (isolates, answer) in [(1, 200), (1, 2_000), (4, 2_000), (16, 2_000)] {
        for rate in [0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0] {
            let setting = Setting {
                isolates,
                answer: Span(answer),
                ..usual
            };
            let asked = shown(per_call(rate, setting));
            users.push(
                json!({"rate": rate, "isolates": isolates, "answer_ms": answer, "per_call": asked}),
            );
        }
    }
    let mut crowds = Vec::new();
    for crowd in [Crowd::even(), Crowd::lognormal(), Crowd::zipf()] {
        for seconds in [1, 10, 60, 600] {
            let delay = Span::seconds(seconds);
            let asked = shown(crowd.asks(Setting { delay, ..usual }));
            crowds.push(json!({"crowd": crowd.name, "delay_s": seconds, "per_second": asked}));
        }
    }
    println!("{}", json!({"users": users, "crowds": crowds}));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting {
        isolates: 1,
        delay: Span::seconds(1),
        answer: Span(0),
        calls: 1_000,
    };

    /// The row "users in turn" of `npm run bench`: three requests, five rows, one publication a call.
    #[test]
    fn a_call_now_and_then_asks_for_what_the_bench_counts() {
        let asked = per_call(0.01, SETTING);
        assert_eq!(asked.leased, 0.0);
        assert!((asked.object_requests - 3.0).abs() < 0.05, "{asked:?}");
        assert!((asked.object_rows - 5.0).abs() < 0.1, "{asked:?}");
        assert!((asked.publications - 1.0).abs() < 0.05, "{asked:?}");
    }

    #[test]
    fn nobody_publishes_more_than_once_a_second() {
        for rate in [0.1, 1.0, 10.0, 100.0] {
            let isolates = 4;
            let asked = per_second(
                rate,
                Setting {
                    isolates,
                    ..SETTING
                },
            );
            assert!(asked.publications <= 1.01, "{rate}: {asked:?}");
        }
    }

    #[test]
    fn leases_pay_for_those_who_call_often() {
        let (seldom, often) = (per_call(0.1, SETTING), per_call(50.0, SETTING));
        assert!(seldom.leased < 0.1, "{seldom:?}");
        assert!(
            often.leased > 0.9 && often.object_requests < 0.1,
            "{often:?}"
        );
    }

    #[test]
    fn every_crowd_makes_all_calls() {
        for crowd in [Crowd::even(), Crowd::lognormal(), Crowd::zipf()] {
            let users: f64 = crowd.users.iter().map(|(_, users)| users).sum();
            assert!((users / USERS - 1.0).abs() < 0.01, "{} {users}", crowd.name);
            let asked = crowd.asks(Setting {
                calls: 100,
                ..SETTING
            });
            assert!((asked.calls / CALLS - 1.0).abs() < 0.01, "{asked:?}");
        }
    }
}
