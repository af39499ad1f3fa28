use std::collections::BTreeMap;

use chrono::{DateTime, Datelike};

use super::super::*;

/// What the model says of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    Pass {
        lane: Lane,
        max_tokens: Option<u64>,
        reserved_tokens: Option<u64>,
        replayed: bool,
    },
    Refused(BTreeMap<PolicyName, Cause>),
    Rejected(Rejection),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Open,
    Settled(u64),
    Released,
    Lapsed(u64),
}

/// A dispatched call.
#[derive(Clone, Debug)]
struct Past {
    operation: OperationId,
    at: Millis,
    answer: Expected,
    lane: Lane,
    cost: u64,
    prompt: u64,
    tokens: u64,
    metered: Option<(u64, u64)>,
    lease_end: Millis,
    per_minute: Option<u64>,
    state: State,
    ended: Millis,
    /// Days and months the operator forgot no longer count it.
    counts_for_day: bool,
    counts_for_month: bool,
}

/// A bucket as everything that was ever taken and given back, and the rates in force since when.
#[derive(Clone, Debug, Default)]
struct History {
    amounts: Vec<(Millis, i128)>,
    rates: Vec<(Millis, u64)>,
}

impl History {
    fn rate_is(&mut self, now: Millis, rate: u64) {
        if self.rates.last().is_none_or(|(_, last)| *last != rate) {
            self.rates.push((now, rate));
        }
    }

    /// What refilled from `from` to `to`, in 60,000ths.
    fn refilled(&self, from: Millis, to: Millis) -> i128 {
        let mut sum = 0;
        for (index, (begin, rate)) in self.rates.iter().enumerate() {
            let end = self.rates.get(index + 1).map_or(to, |next| next.0.min(to));
            sum += i128::from(end.since(from.max(*begin)).0) * i128::from(*rate);
        }
        sum
    }

    fn missing(&self, now: Millis) -> i128 {
        let mut sum = 0;
        let mut most = 0;
        for (at, amount) in self.amounts.iter().rev() {
            sum += amount * 60_000;
            most = most.max(sum - self.refilled(*at, now));
        }
        most
    }

    fn holds(&self, now: Millis, capacity: u64, cost: u64) -> bool {
        self.missing(now) + i128::from(cost) * 60_000 <= i128::from(capacity) * 60_000
    }

    fn used(&self, now: Millis) -> u64 {
        u64::try_from((self.missing(now) + 59_999) / 60_000).unwrap()
    }

    fn take(&mut self, now: Millis, amount: i128) {
        self.amounts.push((now, amount));
    }
}

/// Calls in a window, as far as they have not left it.
#[derive(Clone, Debug, Default)]
struct Calls(Vec<(Millis, u64)>, Span);

impl Calls {
    fn used(&self, now: Millis, span: Span) -> u64 {
        let held = self.0.iter().filter(|(at, _)| at.plus(span) > now);
        held.map(|(_, cost)| cost).sum()
    }

    /// Forgets calls by the span in force, or else by the last that was.
    fn touch(&mut self, now: Millis, limit: Option<WindowLimit>) {
        self.1 = limit.map_or(self.1, |l| l.span);
        self.0.retain(|(at, _)| at.plus(self.1) > now);
    }
}

#[derive(Debug, Default)]
pub struct Model {
    calls: Vec<Past>,
    rate: History,
    minute: History,
    window: Calls,
    endpoint: Calls,
}

fn day(at: Millis) -> u64 {
    at.0 / 86_400_000
}

fn month(at: Millis) -> (i32, u32) {
    let at = DateTime::from_timestamp_millis(at.0 as i64).unwrap();
    (at.year(), at.month())
}

struct Wanted<'a> {
    call: &'a Call,
    dispatch: Option<(Tokens, Lane)>,
}

impl Model {
    pub fn open(&self) -> usize {
        self.calls.iter().filter(|c| c.state == State::Open).count()
    }

    /// Whether the account has to remember the call, by time.
    pub fn remembers(&self, now: Millis, call: &Call) -> bool {
        let past = self
            .calls
            .iter()
            .rev()
            .find(|c| c.operation == call.operation);
        past.is_some_and(|c| c.state == State::Open || now.since(c.ended) < Span::minutes(15))
    }

    fn lapse(&mut self, now: Millis) {
        let open = self.calls.iter_mut().filter(|c| c.state == State::Open);
        let mut ended: Vec<_> = open.filter(|c| c.lease_end <= now).collect();
        ended.sort_by_key(|c| c.lease_end);
        for call in ended {
            let booked = call.metered.map_or(call.prompt, |(p, c)| p + c);
            call.state = State::Lapsed(booked);
            call.ended = now;
            if let Some(taken) = call.per_minute {
                let difference = i128::from(booked) - i128::from(taken);
                self.minute.take(call.lease_end, difference);
            }
        }
    }

    fn touch(&mut self, now: Millis, limits: &Limits) {
        self.lapse(now);
        if let Some(limit) = limits.rate {
            self.rate.rate_is(now, limit.refill_per_minute);
        }
        if let Some(limit) = limits.tokens_per_minute {
            self.minute.rate_is(now, limit);
        }
        self.window.touch(now, limits.window);
        self.endpoint
            .touch(now, limits.endpoints.first().map(|e| e.window));
    }

    pub fn admit(&mut self, now: Millis, limits: &Limits, call: &Call) -> Expected {
        self.touch(now, limits);
        let Work::Dispatch(asked) = call.work else {
            return self.arrive(now, limits, call);
        };
        let known = self
            .calls
            .iter()
            .rposition(|c| c.operation == call.operation);
        let Some(index) = known else {
            return self.admit_new(now, limits, call, asked);
        };
        let past = &mut self.calls[index];
        let state = past.state;
        match state {
            State::Open => past.lease_end = past.lease_end.max(now.plus(call.lease)),
            State::Settled(_) => {}
            // It is decided as if it had never been; the short limits don't forget.
            State::Released | State::Lapsed(_) => {
                past.state = State::Released;
                let answer = self.admit_new(now, limits, call, asked);
                if !matches!(answer, Expected::Pass { .. }) {
                    self.calls[index].state = state;
                }
                return answer;
            }
        }
        replayed(&past.answer)
    }

    fn admit_new(&mut self, now: Millis, limits: &Limits, call: &Call, asked: Tokens) -> Expected {
        let Some(tokens) = capped(limits, asked) else {
            let cap = limits.max_tokens_per_request.unwrap();
            return self.reject(now, limits, call, Rejection::MaxTokens { cap });
        };
        let wanted = |lane| Wanted {
            call,
            dispatch: Some((tokens, lane)),
        };
        match self.decide(now, limits, &wanted(Lane::Main)) {
            Ok(max_tokens) => self.pass(now, limits, call, tokens, max_tokens, Lane::Main),
            Err(Expected::Rejected(rejection)) => self.reject(now, limits, call, rejection),
            Err(refused) => {
                if call.degrade.is_some() && only_quotas(&refused) {
                    let degraded = self.decide(now, limits, &wanted(Lane::Degraded));
                    if let Ok(max_tokens) = degraded {
                        return self.pass(now, limits, call, tokens, max_tokens, Lane::Degraded);
                    }
                }
                refused
            }
        }
    }

    fn arrive(&mut self, now: Millis, limits: &Limits, call: &Call) -> Expected {
        match self.decide(
            now,
            limits,
            &Wanted {
                call,
                dispatch: None,
            },
        ) {
            Ok(_) => {
                self.charge_short(now, limits, call);
                Expected::Pass {
                    lane: Lane::Main,
                    max_tokens: None,
                    reserved_tokens: None,
                    replayed: false,
                }
            }
            Err(other) => other,
        }
    }

    fn reject(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        rejection: Rejection,
    ) -> Expected {
        match self.arrive(now, limits, call) {
            Expected::Refused(policies) => Expected::Refused(policies),
            _ => Expected::Rejected(rejection),
        }
    }

    /// The tokens a choice it may use, or why it doesn't pass.
    fn decide(
        &self,
        now: Millis,
        limits: &Limits,
        wanted: &Wanted<'_>,
    ) -> Result<Option<u64>, Expected> {
        let mut refused = BTreeMap::new();
        let cost = wanted.call.cost;
        let mut max_tokens = None;
        if let Some((tokens, lane)) = wanted.dispatch {
            max_tokens = self.decide_dispatch(now, limits, cost, tokens, lane, &mut refused)?;
        }
        if let Some(limit) = limits.rate {
            never(PolicyName::Rate, limit.capacity, cost)?;
            if !self.rate.holds(now, limit.capacity, cost) {
                refused.insert(PolicyName::Rate, Cause::Spent);
            }
        }
        if let Some(limit) = limits.window {
            never(PolicyName::Window, limit.max_requests, cost)?;
            if self.window.used(now, limit.span) + cost > limit.max_requests {
                refused.insert(PolicyName::Window, Cause::Spent);
            }
        }
        if let (Some(_), Some(limit)) = (&wanted.call.endpoint, limits.endpoints.first()) {
            let policy = PolicyName::Endpoint("e".into());
            never(policy.clone(), limit.window.max_requests, cost)?;
            if self.endpoint.used(now, limit.window.span) + cost > limit.window.max_requests {
                refused.insert(policy, Cause::Spent);
            }
        }
        if refused.is_empty() {
            Ok(max_tokens)
        } else {
            Err(Expected::Refused(refused))
        }
    }

    fn decide_dispatch(
        &self,
        now: Millis,
        limits: &Limits,
        cost: u64,
        tokens: Tokens,
        lane: Lane,
        refused: &mut BTreeMap<PolicyName, Cause>,
    ) -> Result<Option<u64>, Expected> {
        let (policy, limit) = match lane {
            Lane::Main => (PolicyName::Daily, limits.daily),
            Lane::Degraded => (PolicyName::Degraded, Some(5)),
        };
        if let Some(limit) = limit {
            never(policy.clone(), limit, cost)?;
            if self.calls_today(now, lane) + cost > limit {
                refused.insert(policy, Cause::Spent);
            }
        }
        let least = tokens.prompt + tokens.choices;
        let mut max_tokens = tokens.max_tokens;
        if let (Lane::Main, Some(limit)) = (lane, limits.monthly_tokens) {
            let (used, held) = self.month(now);
            let left = limit.saturating_sub(used).saturating_sub(held);
            if total(tokens, max_tokens) > left {
                if least <= left {
                    max_tokens = Some((left - tokens.prompt) / tokens.choices);
                } else {
                    never(PolicyName::MonthlyTokens, limit, least)?;
                    let only_held = least <= limit.saturating_sub(used);
                    let cause = if only_held { Cause::Held } else { Cause::Spent };
                    refused.insert(PolicyName::MonthlyTokens, cause);
                }
            }
        }
        if let Some(capacity) = limits.tokens_per_minute {
            if total(tokens, max_tokens) > capacity {
                never(PolicyName::TokensPerMinute, capacity, least)?;
                max_tokens = Some((capacity - tokens.prompt) / tokens.choices);
            }
            let need = total(tokens, max_tokens);
            if need > 0 && !self.minute.holds(now, capacity, need) {
                refused.insert(PolicyName::TokensPerMinute, Cause::Spent);
            }
        }
        if limits
            .max_concurrent
            .is_some_and(|most| self.open() as u64 >= most)
        {
            refused.insert(PolicyName::Concurrency, Cause::Held);
        }
        Ok(max_tokens)
    }

    fn pass(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        tokens: Tokens,
        max_tokens: Option<u64>,
        lane: Lane,
    ) -> Expected {
        self.charge_short(now, limits, call);
        let need = total(tokens, max_tokens);
        let limited = limits.monthly_tokens.is_some() || limits.tokens_per_minute.is_some();
        let answer = Expected::Pass {
            lane,
            max_tokens,
            reserved_tokens: limited.then_some(need),
            replayed: false,
        };
        let per_minute = limits.tokens_per_minute.map(|_| need);
        if let Some(taken) = per_minute {
            self.minute.take(now, i128::from(taken));
        }
        self.calls.push(Past {
            operation: call.operation.clone(),
            at: now,
            answer: answer.clone(),
            lane,
            cost: call.cost,
            prompt: tokens.prompt,
            tokens: need,
            metered: None,
            lease_end: now.plus(call.lease),
            per_minute,
            state: State::Open,
            ended: now,
            counts_for_day: true,
            counts_for_month: true,
        });
        answer
    }

    fn charge_short(&mut self, now: Millis, limits: &Limits, call: &Call) {
        if limits.rate.is_some() {
            self.rate.take(now, i128::from(call.cost));
        }
        if limits.window.is_some() {
            self.window.0.push((now, call.cost));
        }
        if call.endpoint.is_some() && !limits.endpoints.is_empty() {
            self.endpoint.0.push((now, call.cost));
        }
    }

    pub fn settle(&mut self, now: Millis, call: &Call, outcome: Outcome) -> SettleResult {
        self.lapse(now);
        let past = self
            .calls
            .iter_mut()
            .rev()
            .find(|c| c.operation == call.operation);
        let Some(past) = past else {
            return SettleResult::Unknown;
        };
        let booked = match past.state {
            State::Open => past.per_minute,
            State::Lapsed(booked) => past.per_minute.map(|_| booked),
            State::Settled(_) | State::Released => return SettleResult::Already,
        };
        let (state, used) = match outcome {
            Outcome::Used {
                prompt, completion, ..
            } => (State::Settled(prompt + completion), prompt + completion),
            Outcome::Released => (State::Released, 0),
        };
        // A call that is over keeps the time it ended, by which it is remembered.
        if past.state == State::Open {
            past.ended = now;
        }
        past.state = state;
        if let Some(booked) = booked {
            self.minute.take(now, i128::from(used) - i128::from(booked));
        }
        SettleResult::Settled
    }

    pub fn checkpoint(
        &mut self,
        now: Millis,
        call: &Call,
        prompt: u64,
        completion: u64,
        lease: Span,
    ) -> bool {
        self.lapse(now);
        let past = self
            .calls
            .iter_mut()
            .rev()
            .find(|c| c.operation == call.operation);
        let Some(past) = past.filter(|c| c.state == State::Open) else {
            return false;
        };
        let (p, c) = past.metered.unwrap_or_default();
        past.metered = Some((p.max(prompt), c.max(completion)));
        past.lease_end = past.lease_end.max(now.plus(lease));
        true
    }

    pub fn reset(&mut self, now: Millis, limits: &Limits, policy: &PolicyName) {
        self.touch(now, limits);
        for call in &mut self.calls {
            let over = call.state != State::Open;
            match policy {
                PolicyName::Daily if call.lane == Lane::Main => call.counts_for_day = false,
                PolicyName::Degraded if call.lane == Lane::Degraded => call.counts_for_day = false,
                PolicyName::MonthlyTokens if over => call.counts_for_month = false,
                PolicyName::TokensPerMinute => {
                    call.per_minute = call.per_minute.filter(|_| !over).map(|_| 0);
                }
                _ => {}
            }
        }
        match policy {
            PolicyName::Rate => self.rate.amounts.clear(),
            PolicyName::TokensPerMinute => self.minute.amounts.clear(),
            PolicyName::Window => self.window.0.clear(),
            PolicyName::Endpoint(_) => self.endpoint.0.clear(),
            _ => {}
        }
    }

    fn calls_today(&self, now: Millis, lane: Lane) -> u64 {
        let today = self.calls.iter().filter(|c| {
            c.lane == lane
                && c.counts_for_day
                && c.state != State::Released
                && day(c.at) == day(now)
        });
        today.map(|c| c.cost).sum()
    }

    /// Tokens used and held of the month.
    fn month(&self, now: Millis) -> (u64, u64) {
        let mut sums = (0, 0);
        let this = self
            .calls
            .iter()
            .filter(|c| c.counts_for_month && month(c.at) == month(now));
        for call in this {
            match call.state {
                State::Settled(used) | State::Lapsed(used) => sums.0 += used,
                State::Open => sums.1 += call.tokens.max(call.metered.map_or(0, |(p, c)| p + c)),
                State::Released => {}
            }
        }
        sums
    }

    /// Policies with what is used or held of them, and what is left.
    pub fn view(&self, now: Millis, limits: &Limits) -> Vec<(PolicyName, u64, u64)> {
        let mut model = Self {
            calls: self.calls.clone(),
            rate: self.rate.clone(),
            minute: self.minute.clone(),
            window: self.window.clone(),
            endpoint: self.endpoint.clone(),
        };
        model.touch(now, limits);
        let mut lines = Vec::new();
        let mut line = |policy, limit: Option<u64>, used: u64| {
            lines.extend(limit.map(|limit| (policy, used, limit.saturating_sub(used))));
        };
        let (used, held) = model.month(now);
        line(
            PolicyName::Daily,
            limits.daily,
            model.calls_today(now, Lane::Main),
        );
        line(
            PolicyName::MonthlyTokens,
            limits.monthly_tokens,
            used + held,
        );
        line(
            PolicyName::Rate,
            limits.rate.map(|l| l.capacity),
            model.rate.used(now),
        );
        let span = limits.window.map_or(Span::ZERO, |l| l.span);
        line(
            PolicyName::Window,
            limits.window.map(|l| l.max_requests),
            model.window.used(now, span),
        );
        line(
            PolicyName::TokensPerMinute,
            limits.tokens_per_minute,
            model.minute.used(now),
        );
        line(
            PolicyName::Concurrency,
            limits.max_concurrent,
            model.open() as u64,
        );
        if let Some(limit) = limits.endpoints.first() {
            let used = model.endpoint.used(now, limit.window.span);
            line(
                PolicyName::Endpoint("e".into()),
                Some(limit.window.max_requests),
                used,
            );
        }
        lines
    }
}

fn replayed(answer: &Expected) -> Expected {
    match answer.clone() {
        Expected::Pass {
            lane,
            max_tokens,
            reserved_tokens,
            ..
        } => Expected::Pass {
            lane,
            max_tokens,
            reserved_tokens,
            replayed: true,
        },
        other => other,
    }
}

fn total(tokens: Tokens, max_tokens: Option<u64>) -> u64 {
    tokens.prompt + max_tokens.unwrap_or(0) * tokens.choices
}

fn never(policy: PolicyName, limit: u64, cost: u64) -> Result<(), Expected> {
    if cost > limit {
        return Err(Expected::Rejected(Rejection::ExceedsQuota {
            policy,
            limit,
            cost,
        }));
    }
    Ok(())
}

fn only_quotas(refused: &Expected) -> bool {
    match refused {
        Expected::Refused(policies) => policies
            .iter()
            .all(|(policy, cause)| policy.is_quota() && *cause == Cause::Spent),
        _ => false,
    }
}

/// The tokens under the plan's cap; `None`: they don't fit.
fn capped(limits: &Limits, asked: Tokens) -> Option<Tokens> {
    let Some(cap) = limits.max_tokens_per_request else {
        let limited = limits.monthly_tokens.is_some() || limits.tokens_per_minute.is_some();
        let default = (limited && asked.choices > 0).then_some(4_096);
        return Some(Tokens {
            max_tokens: asked.max_tokens.or(default),
            ..asked
        });
    };
    let choices = asked.choices.max(1);
    let max_tokens = match asked.max_tokens {
        Some(max) if max * choices <= cap => Some(max),
        Some(_) if limits.max_tokens_mode == MaxTokensMode::Reject => return None,
        None if asked.choices == 0 => None,
        _ => Some(cap / choices),
    };
    Some(Tokens {
        max_tokens,
        ..asked
    })
}
