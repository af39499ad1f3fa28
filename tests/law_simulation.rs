//! Many users over some days, none of whom ever gets more than their plan: every call, settlement and
//! loss is kept book of here too, by other means than the account's.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "shared/random.rs"]
mod random;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use sluice::limits::{
    Account, BucketLimit, Call, Holding, Limits, MaxTokensMode, Millis, OperationId, Outcome,
    Reset, Span, StoredPage, Tokens, Verdict, WindowLimit, Work, Zone, billing_month, calendar_day,
};

use random::Random;

fn named(zone: &str) -> Zone {
    Zone::named(zone).unwrap()
}

const USERS: usize = 100_000;
const EVENTS: u64 = 400_000;
const DAYS: u64 = 3;
/// 2026-06-29 00:00:00 UTC: the third day is in another month.
const START: Millis = Millis(1_782_691_200_000);
const LEASE: Span = Span::minutes(2);
/// Where the calls of one user arrive.
const ISOLATES: usize = 3;
/// The users who call most, by leases.
const BUSY: usize = 10;
/// Calls that the busiest users make in one go.
const BURST: u64 = 12;

/// The user of an event: the `n`th most eager one makes a `n`th of the calls of the first.
struct Zipf(Vec<f64>);

impl Zipf {
    fn of(count: usize) -> Self {
        let mut sum = 0.0;
        let shares = (1..=count).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self(shares.collect())
    }

    fn pick(&self, random: &mut Random) -> usize {
        let total = self.0.last().unwrap();
        let at = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * total;
        self.0
            .partition_point(|share| *share <= at)
            .min(self.0.len() - 1)
    }
}

fn plan(
    daily: u64,
    month: u64,
    rate: u64,
    window: u64,
    concurrent: Option<u64>,
    zone: Zone,
) -> Limits {
    Limits {
        daily: Some(daily),
        monthly_tokens: Some(month),
        max_tokens_per_request: Some(1_000),
        max_tokens_mode: MaxTokensMode::Clamp,
        allowed_models: None,
        rate: Some(BucketLimit {
            capacity: rate,
            refill_per_minute: rate,
        }),
        window: Some(WindowLimit {
            max_requests: window,
            span: Span::hours(5),
        }),
        tokens_per_minute: None,
        max_concurrent: concurrent,
        endpoints: Vec::new(),
        reset: Reset {
            timezone: zone,
            ..Reset::default()
        },
        notify_at_permille: vec![800, 1_000],
        shadow: false,
        blocked: false,
    }
}

/// What one user got, worked out call by call.
#[derive(Default)]
struct Book {
    day: Millis,
    calls: u64,
    month: Millis,
    tokens: u64,
    window: VecDeque<Millis>,
    open: HashMap<u64, Open>,
    rate: VecDeque<Millis>,
}

struct Open {
    lease_end: Millis,
    day: Millis,
    month: Millis,
    prompt: u64,
}

impl Book {
    fn turn(&mut self, now: Millis, limits: &Limits) {
        let day = calendar_day(limits.reset.timezone, now).start;
        if day != self.day {
            (self.day, self.calls) = (day, 0);
        }
        let month = billing_month(limits.reset.timezone, 1, now).start;
        if month != self.month {
            (self.month, self.tokens) = (month, 0);
        }
        let lapsed: Vec<_> = self
            .open
            .extract_if(|_, open| open.lease_end <= now)
            .collect();
        for (_, open) in lapsed {
            self.spend(&open, open.prompt);
        }
        let span = limits.window.unwrap().span;
        while self.window.front().is_some_and(|at| at.plus(span) <= now) {
            self.window.pop_front();
        }
    }

    fn spend(&mut self, open: &Open, tokens: u64) {
        if open.month == self.month {
            self.tokens += tokens;
        }
    }

    fn pass(&mut self, now: Millis, operation: u64, prompt: u64) {
        self.calls += 1;
        self.window.push_back(now);
        self.rate.push_back(now);
        let (day, month) = (self.day, self.month);
        let open = Open {
            lease_end: now.plus(LEASE),
            day,
            month,
            prompt,
        };
        self.open.insert(operation, open);
    }

    fn settle(&mut self, operation: u64, outcome: Outcome) {
        let Some(open) = self.open.remove(&operation) else {
            return;
        };
        match outcome {
            Outcome::Used {
                prompt, completion, ..
            } => self.spend(&open, prompt + completion),
            Outcome::Released if open.day == self.day => self.calls -= 1,
            Outcome::Released => {}
        }
    }

    fn assert_within(&mut self, now: Millis, limits: &Limits) {
        assert!(self.calls <= limits.daily.unwrap());
        assert!(self.tokens <= limits.monthly_tokens.unwrap());
        assert!(self.window.len() as u64 <= limits.window.unwrap().max_requests);
        assert!(self.open.len() as u64 <= limits.max_concurrent.unwrap_or(u64::MAX));
        // Any `2 x capacity` calls in a row take at least the minute in which the second half refills.
        let capacity = limits.rate.unwrap().capacity as usize;
        while self.rate.len() > 2 * capacity {
            let first = self.rate.pop_front().unwrap();
            assert!(now.since(first) >= Span::minutes(1));
        }
    }
}

struct User {
    account: Account,
    pages: HashMap<String, StoredPage>,
    book: Book,
    plan: usize,
    holdings: [Option<Holding>; ISOLATES],
}

impl User {
    /// Stores what a call has changed and, now and then, reads all of it back.
    fn store(&mut self, read_back: bool) {
        let changes = self.account.take_changes();
        for page in changes.pages_written {
            self.pages.insert(page.key.to_string(), page);
        }
        for key in changes.pages_dropped {
            self.pages.remove(&key.to_string());
        }
        if read_back {
            let pages = self.pages.values().cloned().collect();
            self.account = Account::decode(&self.account.encode(), pages).unwrap();
        }
    }

    fn stored_bytes(&self) -> usize {
        let pages = self
            .pages
            .iter()
            .map(|(key, page)| key.len() + page.bytes.len());
        self.account.encode().len() + pages.sum::<usize>()
    }
}

struct Simulation {
    users: HashMap<usize, User>,
    plans: Vec<Limits>,
    random: Random,
    /// Settlements under way: when, whose, which.
    due: BinaryHeap<Reverse<(Millis, usize, u64, u64)>>,
    passed: u64,
    refused: u64,
    by_lease: u64,
    lost: u64,
}

impl Simulation {
    fn new() -> Self {
        let plans = vec![
            plan(10, 20_000, 5, 500, Some(2), Zone::UTC),
            plan(
                1_000,
                2_000_000,
                60,
                800,
                Some(8),
                named("America/New_York"),
            ),
            plan(
                100_000,
                1_000_000_000,
                600,
                10_000,
                Some(100),
                named("Asia/Tokyo"),
            ),
            plan(9_000, 8_000_000, 400, 5_000, None, named("Asia/Tokyo")),
        ];
        Self {
            users: HashMap::new(),
            plans,
            random: Random(1),
            due: BinaryHeap::new(),
            passed: 0,
            refused: 0,
            by_lease: 0,
            lost: 0,
        }
    }

    fn run(&mut self) {
        let zipf = Zipf::of(USERS);
        let step = DAYS * 24 * 3_600_000 / EVENTS;
        for event in 0..EVENTS {
            let now = Millis(START.0 + event * step + self.random.below(step / 2));
            self.settle_until(now);
            let user = zipf.pick(&mut self.random);
            self.call(user, now, event);
            for more in 1..if user < BUSY { BURST } else { 1 } {
                let at = now.plus(Span(more * step / 2 / BURST));
                self.settle_until(at);
                self.call(user, at, event + more * EVENTS);
            }
        }
    }

    /// Now and then an isolate brings its lease back, or is lost with it.
    fn keep(&mut self, index: usize, isolate: usize, now: Millis) {
        let Some(user) = self.users.get_mut(&index) else {
            return;
        };
        let due = |holding: &mut Holding| holding.is_due(now);
        let Some(holding) = user.holdings[isolate].take_if(due) else {
            return;
        };
        if self.random.below(50) == 0 {
            self.lost += 1;
            return;
        }
        let limits = &self.plans[user.plan];
        let id = OperationId(format!("next-{index}-{isolate}-{}", now.0));
        let returned = holding.give_back();
        let is_new = user.account.take_back(now, limits, &returned);
        let handed = user.account.follow_on(now, limits, &returned, is_new, &id);
        user.holdings[isolate] = handed.map(|handed| Holding::new(handed, now));
    }

    fn call(&mut self, index: usize, now: Millis, operation: u64) {
        let user = self.users.entry(index).or_insert_with(|| User {
            account: Account::new(),
            pages: HashMap::new(),
            book: Book::default(),
            holdings: Default::default(),
            plan: if index < BUSY {
                3
            } else if index < 20 {
                2
            } else {
                usize::from(index.is_multiple_of(10))
            },
        });
        let limits = &self.plans[user.plan];
        let prompt = 1 + self.random.below(300);
        let call = Call {
            operation: OperationId(operation.to_string()),
            work: Work::Dispatch(Tokens {
                prompt,
                max_tokens: Some(500),
                choices: 1,
            }),
            cost: 1,
            endpoint: None,
            model: None,
            degrade: None,
            lease: LEASE,
        };
        user.book.turn(now, limits);
        let isolate = usize::try_from(operation).unwrap() % ISOLATES;
        let here = user.holdings[isolate].as_mut();
        let by_lease = here.and_then(|holding| holding.admit(now, &call));
        self.by_lease += u64::from(by_lease.is_some());
        let verdict =
            by_lease.map_or_else(|| user.account.admit(now, limits, &call), Verdict::Admitted);
        match verdict {
            Verdict::Admitted(admission) => {
                if user.holdings[isolate].is_none() {
                    let handed = user.account.lease(now, limits, &call);
                    user.holdings[isolate] = handed.map(|handed| Holding::new(handed, now));
                }
                self.passed += 1;
                user.book.pass(now, operation, prompt);
                user.book.assert_within(now, limits);
                let completion = self.random.below(admission.max_tokens.unwrap() + 1);
                if self.random.below(100) > 0 {
                    let end = now.plus(Span(self.random.below(150_000)));
                    let used = (prompt << 32) + completion;
                    self.due.push(Reverse((end, index, operation, used)));
                }
            }
            Verdict::Refused(_) => self.refused += 1,
            Verdict::Rejected(rejection) => panic!("{rejection:?}"),
        }
        user.store(operation.is_multiple_of(50));
        self.keep(index, isolate, now);
    }

    fn settle_until(&mut self, now: Millis) {
        while let Some(Reverse((at, index, operation, used))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            self.settle(at, index, operation, used);
        }
    }

    fn settle(&mut self, at: Millis, index: usize, operation: u64, used: u64) {
        let outcome = if self.random.below(20) == 0 {
            Outcome::Released
        } else {
            let (prompt, completion) = (used >> 32, used & 0xffff_ffff);
            Outcome::Used {
                prompt,
                completion,
                estimated: false,
            }
        };
        let user = self.users.get_mut(&index).unwrap();
        user.book.turn(at, &self.plans[user.plan]);
        // A settlement after the lease corrects what was presumed; the book leaves that out.
        if user.book.open.contains_key(&operation) {
            let id = OperationId(operation.to_string());
            let mut here = user.holdings.iter_mut().flatten();
            if !here.any(|holding| holding.settle(at, &id, outcome)) {
                user.account.settle(at, &id, outcome);
            }
            user.book.settle(operation, outcome);
        }
    }

    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self.users.values().map(User::stored_bytes).collect();
        sizes.sort_unstable();
        sizes
    }
}

#[test]
fn a_hundred_thousand_users_stay_within_their_plans() {
    let mut simulation = Simulation::new();
    simulation.run();
    let sizes = simulation.sizes();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    let p99 = sizes[sizes.len() * 99 / 100];
    let most = sizes[sizes.len() - 1];
    println!(
        "{} users: {} calls passed, {} of them by a lease, {} refused, {} leases lost; \
         bytes stored a user: mean {mean}, p99 {p99}, max {most}",
        sizes.len(),
        simulation.passed,
        simulation.by_lease,
        simulation.refused,
        simulation.lost,
    );
    assert!(simulation.by_lease > 50_000 && simulation.lost > 100);
    assert!(simulation.refused > 1_000 && simulation.passed > 100_000);
    assert!(most <= 16 * 1_024);
    for (index, user) in &simulation.users {
        let limits = &simulation.plans[user.plan];
        let end = Millis(START.0 + DAYS * 24 * 3_600_000);
        let views = user.account.view(end, limits);
        assert!(
            views.iter().all(|v| v.used <= v.limit),
            "user {index}: {views:?}"
        );
    }
}
