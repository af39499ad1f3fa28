//! The decision: every limit is judged, none is charged.

use super::bucket::{Bucket, NEVER};
use super::reservation::{MOST_OPEN, OperationKey};
use super::window::WindowLog;
use super::{
    Account, BucketLimit, Cause, EndpointLimit, Lane, Limits, Millis, Period, PolicyName, Refusal,
    Rejection, Span, Tokens, Violation, WindowLimit,
};

/// Completion tokens a choice that are reserved and asked for if nobody sets a bound but tokens are
/// limited.
pub const DEFAULT_MAX_TOKENS: u64 = 4_096;
/// How long those wait to whom a limit of zero gives nothing.
const NOTHING: Span = Span::minutes(1);
/// Bounds of the wait for tokens that others hold.
const HELD: (Span, Span) = (Span::seconds(1), Span::seconds(5));
/// Bounds of the wait for a free slot.
const SLOT: (Span, Span) = (Span::seconds(1), Span::seconds(3));

/// What a call asks of the limits.
#[derive(Clone, Copy)]
pub struct Demand<'a> {
    /// How much it takes of limits that count calls.
    pub cost: u64,
    /// Where it goes, if that may have a limit of its own.
    pub endpoint: Option<&'a str>,
    /// What its dispatch asks; `None` for a mere arrival.
    pub dispatch: Option<Dispatch>,
}

/// What a dispatched call asks of the limits besides.
#[derive(Clone, Copy)]
pub struct Dispatch {
    /// Which call it is.
    pub key: OperationKey,
    /// Which way it would go.
    pub way: Way,
    /// Tokens, as far as the plan lets a request have them.
    pub tokens: Tokens,
}

/// Which way a call would go, and by which quotas.
#[derive(Clone, Copy)]
pub enum Way {
    /// By those of the plan.
    Main,
    /// By the ceiling of the cheaper model alone.
    Degraded {
        /// Calls a day; `None` is unlimited.
        daily_limit: Option<u64>,
    },
}

impl Way {
    /// Its name outside.
    pub const fn lane(self) -> Lane {
        match self {
            Self::Main => Lane::Main,
            Self::Degraded { .. } => Lane::Degraded,
        }
    }
}

/// What becomes of it.
pub enum Ruling {
    /// It passes, with this many tokens a choice.
    Pass(Option<u64>),
    /// Not now.
    Refuse(Refusal),
    /// Never.
    Never(Rejection),
}

/// Why one policy is against it.
enum Objection {
    Wait(Violation),
    Never(Rejection),
}

type Judgement = Result<(), Objection>;

/// Tokens of a call, prompt included, and the least of them that make any sense.
struct Need {
    full: u64,
    least: u64,
}

impl Need {
    const fn of(tokens: Tokens) -> Self {
        let completion = match tokens.max_tokens {
            Some(max) => max.saturating_mul(tokens.choices),
            None => 0,
        };
        Self {
            full: tokens.prompt.saturating_add(completion),
            least: tokens.prompt.saturating_add(tokens.choices),
        }
    }
}

/// Tokens reserved for a call, prompt included.
pub const fn need(tokens: Tokens) -> u64 {
    Need::of(tokens).full
}

/// The tokens with as much completion as fits into `room`, which has to hold the least.
const fn lowered(tokens: Tokens, room: u64) -> Tokens {
    if tokens.choices == 0 {
        return tokens;
    }
    Tokens {
        max_tokens: Some(room.saturating_sub(tokens.prompt) / tokens.choices),
        ..tokens
    }
}

impl Account {
    /// Judges every limit. Expects the account to have been touched at `now`.
    pub(super) fn decide(&self, now: Millis, limits: &Limits, demand: Demand<'_>) -> Ruling {
        let mut objections = Vec::new();
        let mut granted = None;
        if let Some(dispatch) = demand.dispatch {
            let tokens = self.judge_dispatch(now, limits, demand.cost, dispatch, &mut objections);
            granted = tokens.max_tokens;
        }
        objections.extend(self.judge_rate(now, limits, demand.cost).err());
        objections.extend(self.judge_window(now, limits, demand.cost).err());
        objections.extend(self.judge_endpoint(now, limits, demand).err());
        ruling(objections, granted)
    }

    /// Judges what only dispatched calls are held to, and gives the tokens it may use.
    fn judge_dispatch(
        &self,
        now: Millis,
        limits: &Limits,
        cost: u64,
        dispatch: Dispatch,
        objections: &mut Vec<Objection>,
    ) -> Tokens {
        let mut tokens = dispatch.tokens;
        match dispatch.way {
            Way::Main => {
                objections.extend(self.judge_daily(now, cost).err());
                match self.fit_month(now, limits, tokens) {
                    Ok(fitting) => tokens = fitting,
                    Err(objection) => objections.push(objection),
                }
            }
            Way::Degraded { daily_limit } => {
                objections.extend(self.judge_degraded(now, daily_limit, cost).err());
            }
        }
        match self.fit_minute(now, limits, tokens) {
            Ok(fitting) => tokens = fitting,
            Err(objection) => objections.push(objection),
        }
        objections.extend(self.judge_slots(now, limits, dispatch.key).err());
        tokens
    }

    fn judge_daily(&self, now: Millis, cost: u64) -> Judgement {
        let period = self.daily.period(now);
        let (limit, used) = (self.daily.limit(), self.daily.used());
        self.beside_leases(now, self.held_by_leases().daily, |held| {
            let used = used.saturating_add(held);
            judge_calls(PolicyName::Daily, now, period, limit, used, cost)
        })
    }

    /// Judges with what leases hold counted as used. Where only they refuse, that passes by itself: they
    /// come back within seconds.
    fn beside_leases(&self, now: Millis, held: u64, judge: impl Fn(u64) -> Judgement) -> Judgement {
        let with = judge(held);
        let Err(Objection::Wait(with)) = with else {
            return with;
        };
        if held == 0 {
            return Err(Objection::Wait(with));
        }
        let back_in = self.leases.last_end().unwrap_or(now).since(now);
        let (cause, wait) = match judge(0) {
            Ok(()) => (Cause::Held, self.held_wait(now).min(with.wait)),
            Err(Objection::Wait(without)) => {
                (without.cause, with.wait.min(back_in).max(without.wait))
            }
            Err(never) => return Err(never),
        };
        let resets_at = if with.policy.is_quota() {
            with.resets_at
        } else {
            now.plus(wait)
        };
        Err(Objection::Wait(Violation {
            cause,
            wait,
            resets_at,
            ..with
        }))
    }

    fn judge_degraded(&self, now: Millis, limit: Option<u64>, cost: u64) -> Judgement {
        let period = self.degraded.period(now);
        judge_calls(
            PolicyName::Degraded,
            now,
            period,
            limit,
            self.degraded.used(),
            cost,
        )
    }

    /// The tokens, lowered to what is left of the month. A shadow plan lowers nothing.
    fn fit_month(&self, now: Millis, limits: &Limits, tokens: Tokens) -> Result<Tokens, Objection> {
        let Some(limit) = self.monthly.limit() else {
            return Ok(tokens);
        };
        let Need { full, least } = Need::of(tokens);
        let unspent = limit.saturating_sub(self.monthly.used());
        let left = unspent
            .saturating_sub(self.reservations.held(self.monthly.began()))
            .saturating_sub(self.held_by_leases().month);
        if full <= left {
            return Ok(tokens);
        }
        if least <= left {
            return Ok(if limits.shadow {
                tokens
            } else {
                lowered(tokens, left)
            });
        }
        if limit > 0 && least > limit {
            return Err(exceeds(PolicyName::MonthlyTokens, limit, least));
        }
        let period = self.monthly.period(now);
        let (cause, wait) = match limit {
            0 => (Cause::Nothing, period.end.since(now)),
            _ if least <= unspent => (Cause::Held, self.held_wait(now)),
            _ => (Cause::Spent, period.end.since(now)),
        };
        Err(Objection::Wait(Violation {
            policy: PolicyName::MonthlyTokens,
            cause,
            limit,
            remaining: left,
            wait,
            resets_at: period.end,
        }))
    }

    fn held_wait(&self, now: Millis) -> Span {
        let (shortest, longest) = HELD;
        let end = self.next_lease_end().unwrap_or(now);
        end.since(now).clamp(shortest, longest)
    }

    /// The tokens, lowered to what a minute ever holds, if they are there now. A shadow plan lowers
    /// nothing.
    fn fit_minute(
        &self,
        now: Millis,
        limits: &Limits,
        tokens: Tokens,
    ) -> Result<Tokens, Objection> {
        let Some(capacity) = limits.tokens_per_minute else {
            return Ok(tokens);
        };
        let Need { full, least } = Need::of(tokens);
        if full == 0 {
            return Ok(tokens);
        }
        if capacity > 0 && full > capacity && least > capacity {
            return Err(exceeds(PolicyName::TokensPerMinute, capacity, least));
        }
        let fitting = if full > capacity {
            lowered(tokens, capacity)
        } else {
            tokens
        };
        let bucket = &self.tokens_per_minute;
        let limit = minute(capacity);
        let policy = PolicyName::TokensPerMinute;
        self.beside_leases(now, self.held_by_leases().per_minute, |held| {
            judge_bucket(policy.clone(), now, bucket, limit, held, need(fitting))
        })?;
        Ok(if limits.shadow { tokens } else { fitting })
    }

    fn judge_slots(&self, now: Millis, limits: &Limits, key: OperationKey) -> Judgement {
        let limit = limits
            .max_concurrent
            .unwrap_or(u64::MAX)
            .min(MOST_OPEN as u64);
        let open = self.reservations.count();
        let maybe_open = open.saturating_add(self.held_by_leases().calls);
        if open < limit && maybe_open < MOST_OPEN as u64 {
            return Ok(());
        }
        let (cause, wait) = if limit == 0 {
            (Cause::Nothing, NOTHING)
        } else {
            (Cause::Held, self.slot_wait(now, key))
        };
        Err(Objection::Wait(Violation {
            policy: PolicyName::Concurrency,
            cause,
            limit,
            remaining: 0,
            wait,
            resets_at: now.plus(wait),
        }))
    }

    /// Spread, so that those who wait don't all come back at once.
    fn slot_wait(&self, now: Millis, key: OperationKey) -> Span {
        let (shortest, longest) = SLOT;
        let jitter = Span(shortest.0 + key.spread(longest.0 - shortest.0 + 1));
        let first_end = self.reservations.first_end().unwrap_or(now);
        jitter.min(first_end.since(now)).max(Span(1))
    }

    fn judge_rate(&self, now: Millis, limits: &Limits, cost: u64) -> Judgement {
        match limits.rate {
            Some(limit) => self.beside_leases(now, self.held_by_leases().rate, |held| {
                judge_bucket(PolicyName::Rate, now, &self.rate, limit, held, cost)
            }),
            None => Ok(()),
        }
    }

    fn judge_window(&self, now: Millis, limits: &Limits, cost: u64) -> Judgement {
        match limits.window {
            Some(limit) => self.beside_leases(now, self.held_by_leases().window, |held| {
                judge_window(PolicyName::Window, now, &self.window, limit, held, cost)
            }),
            None => Ok(()),
        }
    }

    fn judge_endpoint(&self, now: Millis, limits: &Limits, demand: Demand<'_>) -> Judgement {
        let Some(endpoint) = endpoint_limit(limits, demand.endpoint) else {
            return Ok(());
        };
        let unused = WindowLog::default();
        let log = self.endpoints.get(&endpoint.name).unwrap_or(&unused);
        let policy = PolicyName::Endpoint(endpoint.name.clone());
        judge_window(policy, now, log, endpoint.window, 0, demand.cost)
    }
}

/// The limit of an endpoint, if it has one of its own.
pub fn endpoint_limit<'a>(limits: &'a Limits, name: Option<&str>) -> Option<&'a EndpointLimit> {
    let name = name?;
    limits.endpoints.iter().find(|e| e.name == name)
}

/// `tokens-per-minute` as a bucket that holds one minute's worth.
pub const fn minute(tokens: u64) -> BucketLimit {
    BucketLimit {
        capacity: tokens,
        refill_per_minute: tokens,
    }
}

fn judge_calls(
    policy: PolicyName,
    now: Millis,
    period: Period,
    limit: Option<u64>,
    used: u64,
    cost: u64,
) -> Judgement {
    let Some(limit) = limit else {
        return Ok(());
    };
    let remaining = limit.saturating_sub(used);
    if cost <= remaining {
        return Ok(());
    }
    if limit > 0 && cost > limit {
        return Err(exceeds(policy, limit, cost));
    }
    Err(Objection::Wait(Violation {
        policy,
        cause: if limit == 0 {
            Cause::Nothing
        } else {
            Cause::Spent
        },
        limit,
        remaining,
        wait: period.end.since(now),
        resets_at: period.end,
    }))
}

fn judge_bucket(
    policy: PolicyName,
    now: Millis,
    bucket: &Bucket,
    limit: BucketLimit,
    held: u64,
    cost: u64,
) -> Judgement {
    let capacity = limit.capacity;
    if capacity > 0 && cost > capacity {
        return Err(exceeds(policy, capacity, cost));
    }
    let (cause, wait) = match bucket.wait(now, capacity, cost.saturating_add(held)) {
        _ if capacity == 0 => (Cause::Nothing, NOTHING),
        Some(Span::ZERO) => return Ok(()),
        Some(wait) => (Cause::Spent, wait),
        None => (Cause::Nothing, NEVER),
    };
    Err(Objection::Wait(Violation {
        policy,
        cause,
        limit: capacity,
        remaining: bucket.left(capacity).saturating_sub(held),
        wait,
        resets_at: now.plus(wait),
    }))
}

fn judge_window(
    policy: PolicyName,
    now: Millis,
    log: &WindowLog,
    limit: WindowLimit,
    held: u64,
    cost: u64,
) -> Judgement {
    let most = limit.max_requests;
    if most > 0 && cost > most {
        return Err(exceeds(policy, most, cost));
    }
    let (cause, wait) = match log.wait(now, limit, cost.saturating_add(held)) {
        _ if most == 0 => (Cause::Nothing, limit.span.max(Span(1))),
        Span::ZERO => return Ok(()),
        wait => (Cause::Spent, wait),
    };
    Err(Objection::Wait(Violation {
        policy,
        cause,
        limit: most,
        remaining: most
            .saturating_sub(log.used(now, limit))
            .saturating_sub(held),
        wait,
        resets_at: now.plus(wait),
    }))
}

const fn exceeds(policy: PolicyName, limit: u64, cost: u64) -> Objection {
    Objection::Never(Rejection::ExceedsQuota {
        policy,
        limit,
        cost,
    })
}

/// A call that one policy can never let through is told that, whatever the others say.
fn ruling(objections: Vec<Objection>, granted: Option<u64>) -> Ruling {
    let mut violations = Vec::new();
    for objection in objections {
        match objection {
            Objection::Never(rejection) => return Ruling::Never(rejection),
            Objection::Wait(violation) => violations.push(violation),
        }
    }
    if violations.is_empty() {
        return Ruling::Pass(granted);
    }
    violations.sort_by_key(|v| std::cmp::Reverse(v.wait));
    Ruling::Refuse(Refusal { violations })
}
