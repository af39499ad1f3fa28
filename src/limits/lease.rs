//! Leases: calls and tokens handed out ahead, so that most calls of a busy user far from every limit are
//! decided where they arrive.
//!
//! A lease is like a call under way that may become many: as long as it is out, all it may still spend counts
//! as used in every decision. No counter is touched before it comes back; what was spent is then booked as
//! if it had been spent at that moment, so later than it was and never earlier. One that doesn't come back
//! is booked as fully spent.

use serde::{Deserialize, Serialize};

use super::account::today;
use super::decide::{endpoint_limit, minute};
use super::reservation::{Grant, MOST_OPEN, Metered, OperationKey, Reservation};
use super::{
    Account, Call, Handed, Lane, Limits, LocalDate, Millis, OperationId, Returned, Span, Terms,
    WindowLimit, Work, calendar_day,
};

/// Longest that a lease lasts.
pub const LENGTH: Span = Span::seconds(4);
/// Shorter ones don't pay.
const SHORTEST: Span = Span::seconds(1);
/// How long after its end the account waits for one to come back.
pub const GRACE: Span = Span::seconds(6);
/// Most leases of one account that are out at one time.
const MOST_LEASES: usize = 16;
/// Fewest and most calls that are handed out together.
const CALLS: (u64, u64) = (4, 512);
/// A lease gets at most this part of what is left of any policy.
const PART_OF_ONE: u64 = 8;
/// All that are out together get at most this part.
const PART_OF_ALL: u64 = 4;
/// So many calls within this time show that a lease pays.
const BUSY: (usize, Span) = (4, Span::seconds(2));
/// Most calls that the pace is measured by.
const MOST_PACE: usize = 64;
/// Most leases that did not come back and are remembered.
const MOST_LAPSED: usize = 32;
/// For how long.
pub const LAPSED_FOR: Span = Span::minutes(15);

/// A lease that is out, or that did not come back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Lease {
    key: OperationKey,
    granted_at: Millis,
    /// Until when it may be spent.
    until: Millis,
    /// Until when it is waited for.
    ends: Millis,
    calls: u64,
    tokens: Option<u64>,
    /// The local day of its calls, for the ledger.
    day: LocalDate,
    /// The day its calls are charged to; `None`: that was forgotten since.
    quota_day: Option<Millis>,
    /// The token month of its calls; `None`: that was forgotten since.
    month: Option<Millis>,
    /// Which short limits count its calls.
    rate: bool,
    window: Option<(u64, Span)>,
    per_minute: bool,
}

/// All leases of an account.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Leases {
    out: Vec<Lease>,
    lapsed: Vec<(Lease, Millis)>,
    /// When the last calls were let through one by one: what shows whether a lease pays.
    #[serde(skip)]
    pace: Vec<Millis>,
}

/// The pace is a convenience of memory, not part of what an account is.
impl PartialEq for Leases {
    fn eq(&self, other: &Self) -> bool {
        (&self.out, &self.lapsed) == (&other.out, &other.lapsed)
    }
}

/// What leases that are out may still spend of each policy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// Of `daily`.
    pub daily: u64,
    /// Of `monthly-tokens`.
    pub month: u64,
    /// Of `rate`.
    pub rate: u64,
    /// Of `window`.
    pub window: u64,
    /// Of `tokens-per-minute`.
    pub per_minute: u64,
    /// Calls that may be under way.
    pub calls: u64,
}

impl Leases {
    /// Whether there is nothing to be stored.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.lapsed.is_empty()
    }

    /// Whether none is out.
    pub fn are_in(&self) -> bool {
        self.out.is_empty()
    }

    /// When the first that is out is waited for no longer.
    pub fn first_end(&self) -> Option<Millis> {
        self.out.iter().map(|lease| lease.ends).min()
    }

    /// When the last that is out is waited for no longer.
    pub fn last_end(&self) -> Option<Millis> {
        self.out.iter().map(|lease| lease.ends).max()
    }

    /// When the last that did not come back is forgotten.
    pub fn forgotten_at(&self) -> Millis {
        let last = self.lapsed.iter().map(|(_, at)| *at).max();
        last.map_or(Millis(0), |at| at.plus(LAPSED_FOR))
    }

    /// What is out, of the day and the month that began then.
    pub fn held(&self, day: Option<Millis>, month: Option<Millis>) -> Held {
        let mut held = Held::default();
        let add = |to: &mut u64, amount: u64| *to = to.saturating_add(amount);
        for lease in &self.out {
            let tokens = lease.tokens.unwrap_or(0);
            add(&mut held.calls, lease.calls);
            if lease.quota_day.is_some() && lease.quota_day == day {
                add(&mut held.daily, lease.calls);
            }
            if lease.month.is_some() && lease.month == month {
                add(&mut held.month, tokens);
            }
            if lease.rate {
                add(&mut held.rate, lease.calls);
            }
            if lease.window.is_some() {
                add(&mut held.window, lease.calls);
            }
            if lease.per_minute {
                add(&mut held.per_minute, tokens);
            }
        }
        held
    }

    /// A call was let through one by one.
    pub fn note_pace(&mut self, now: Millis) {
        self.pace.push(now);
        self.pace.retain(|at| now.since(*at) < BUSY.1 && *at <= now);
        let too_many = self.pace.len().saturating_sub(MOST_PACE);
        self.pace.drain(..too_many);
    }

    /// Those that are waited for no longer. No clock can make one wait for longer than it was meant to.
    fn take_lapsed(&mut self, now: Millis) -> Vec<Lease> {
        for lease in &mut self.out {
            let furthest = now.plus(lease.ends.since(lease.granted_at));
            lease.ends = lease.ends.min(furthest);
        }
        self.out.extract_if(.., |lease| lease.ends <= now).collect()
    }

    fn remember_lapsed(&mut self, now: Millis, lease: Lease) {
        self.lapsed.retain(|(_, at)| now.since(*at) < LAPSED_FOR);
        self.lapsed.push((lease, now));
        let too_many = self.lapsed.len().saturating_sub(MOST_LAPSED);
        self.lapsed.drain(..too_many);
    }

    /// What leases were handed out of `policy` is forgotten with the rest: their calls belong to the time
    /// before.
    pub fn forgive(&mut self, policy: &super::PolicyName) {
        use super::PolicyName as Name;
        for lease in &mut self.out {
            match policy {
                Name::Daily => lease.quota_day = None,
                Name::Rate => lease.rate = false,
                Name::Window => lease.window = None,
                Name::TokensPerMinute => lease.per_minute = false,
                _ => {}
            }
        }
        for (lease, _) in &mut self.lapsed {
            match policy {
                Name::Daily => lease.quota_day = None,
                Name::MonthlyTokens => lease.month = None,
                _ => {}
            }
        }
    }
}

impl Account {
    /// What leases that are out may still spend.
    pub(super) fn held_by_leases(&self) -> Held {
        self.leases.held(self.daily.began(), self.monthly.began())
    }

    /// Hands out a lease after `call` was let through, if the user calls often and is far from every limit.
    /// Asked again for the same call, it hands the same one out again.
    pub fn lease(&mut self, now: Millis, limits: &Limits, call: &Call) -> Option<Handed> {
        let Work::Dispatch(_) = call.work else {
            return None;
        };
        let reserved = self
            .reservations
            .find_open(OperationKey::of(&call.operation))?;
        if reserved.grant.lane != Lane::Main {
            return None;
        }
        let wanted = Wanted {
            id: call.operation.clone(),
            calls: pace_of(self.leases.pace.len(), BUSY.1),
            cost: reserved.cost,
            tokens: reserved.tokens,
        };
        if self.leases.pace.len() < BUSY.0 && self.leases.find(&wanted.id).is_none() {
            return None;
        }
        if endpoint_limit(limits, call.endpoint.as_deref()).is_some() {
            return None;
        }
        self.hand_out(now, limits, wanted)
    }

    /// Takes a lease back and books what was spent of it. `false`: it is not known, or came back before, and
    /// nothing changed.
    pub fn take_back(&mut self, now: Millis, limits: &Limits, returned: &Returned) -> bool {
        self.touch(now, limits);
        let is_new = self.close_lease(now, returned).is_some();
        if is_new {
            self.note_crossings(now);
        }
        is_new
    }

    /// Hands out the lease that follows on one that was taken back, if that was spent. Asked again, which is
    /// where the other one `is_new` no more, it hands out the same one as long as that is out, and no other.
    pub fn follow_on(
        &mut self,
        now: Millis,
        limits: &Limits,
        returned: &Returned,
        is_new: bool,
        id: &OperationId,
    ) -> Option<Handed> {
        let is_out = self.leases.find(id).is_some();
        if returned.spent < CALLS.0 || !(is_new || is_out) {
            return None;
        }
        let wanted = Wanted {
            id: id.clone(),
            calls: pace_of(count(returned.spent), returned.lasted),
            cost: 1,
            tokens: returned.widest,
        };
        self.hand_out(now, limits, wanted)
    }

    fn close_lease(&mut self, now: Millis, returned: &Returned) -> Option<()> {
        let key = OperationKey::of(&returned.lease);
        if let Some(index) = self.leases.out.iter().position(|lease| lease.key == key) {
            let lease = self.leases.out.remove(index);
            self.book_short(now, &lease, returned.spent, returned.tokens());
            self.book_returned(now, &lease, returned, lease.per_minute);
            return Some(());
        }
        let index = self
            .leases
            .lapsed
            .iter()
            .position(|(lease, _)| lease.key == key)?;
        let (lease, _) = self.leases.lapsed.remove(index);
        // It was booked in full when it was waited for no longer. The quotas are put right; the short
        // limits have gone by that, and stay.
        self.unbook_lapsed(&lease);
        self.book_returned(now, &lease, returned, false);
        Some(())
    }

    /// Ends the leases that are waited for no longer: whoever has them may have spent them. Whether there
    /// were any.
    pub(super) fn lapse_leases(&mut self, now: Millis) -> bool {
        let lapsed = self.leases.take_lapsed(now);
        let any = !lapsed.is_empty();
        for lease in lapsed {
            let tokens = lease.tokens.unwrap_or(0);
            self.book_short(lease.ends, &lease, lease.calls, tokens);
            self.daily.book(lease.quota_day, lease.calls);
            self.monthly.book(lease.month, tokens);
            let totals = self.days.on(lease.day);
            totals.calls = totals.calls.saturating_add(lease.calls);
            totals.add_tokens(lease.presumed());
            totals.estimated_calls = totals.estimated_calls.saturating_add(lease.calls);
            self.leases.remember_lapsed(now, lease);
        }
        any
    }

    fn unbook_lapsed(&mut self, lease: &Lease) {
        self.daily.give_back(lease.quota_day, lease.calls);
        self.monthly
            .give_back(lease.month, lease.tokens.unwrap_or(0));
        let totals = self.days.on(lease.day);
        totals.calls = totals.calls.saturating_sub(lease.calls);
        totals.take_tokens(lease.presumed());
        totals.estimated_calls = totals.estimated_calls.saturating_sub(lease.calls);
    }

    fn book_short(&mut self, now: Millis, lease: &Lease, calls: u64, tokens: u64) {
        if lease.rate {
            self.rate.book(now, calls);
        }
        if let Some((max_requests, span)) = lease.window
            && calls > 0
        {
            let limit = WindowLimit { max_requests, span };
            self.window.count_late(now, limit, calls);
        }
        if lease.per_minute {
            self.tokens_per_minute.book(now, tokens);
        }
    }

    fn book_returned(&mut self, now: Millis, lease: &Lease, returned: &Returned, minute: bool) {
        let counted = returned.spent.saturating_sub(returned.released);
        let used = Metered {
            prompt: returned.prompt,
            completion: returned.completion,
        };
        self.daily.book(lease.quota_day, counted);
        self.monthly.book(lease.month, used.total());
        let totals = self.days.on(lease.day);
        totals.add_tokens(used);
        totals.calls = totals
            .calls
            .saturating_add(returned.ended)
            .saturating_add(returned.open.len() as u64);
        totals.estimated_calls = totals.estimated_calls.saturating_add(returned.estimated);
        totals.latency.add(&returned.waits);
        for open in &returned.open {
            self.reservations.open(Reservation {
                key: OperationKey::of(&open.operation),
                grant: Grant {
                    lane: Lane::Main,
                    max_tokens: open.max_tokens,
                    reserved_tokens: lease.tokens.map(|_| open.tokens),
                },
                expires_at: now.plus(open.lease),
                lease: open.lease,
                day: lease.day,
                quota_day: lease.quota_day,
                cost: open.cost,
                month: lease.month,
                tokens: open.tokens,
                per_minute: minute.then_some(open.tokens),
                prompt: open.prompt,
                metered: open.metered,
            });
        }
    }

    /// Expects the account to have been touched at `now`.
    fn hand_out(&mut self, now: Millis, limits: &Limits, wanted: Wanted) -> Option<Handed> {
        if let Some(lease) = self.leases.find(&wanted.id) {
            return Some(handed(now, limits, wanted.id, lease));
        }
        if limits.shadow || limits.blocked || limits.max_concurrent.is_some() {
            return None;
        }
        let day_end = calendar_day(limits.reset.timezone, now).end;
        let until = [
            day_end,
            self.daily.stable_until(now),
            self.monthly.stable_until(now),
        ]
        .into_iter()
        .fold(now.plus(LENGTH), Millis::min);
        if until.since(now) < SHORTEST || self.leases.out.len() >= MOST_LEASES {
            return None;
        }
        let (calls, tokens) = self.size(now, limits, &wanted)?;
        let lease = Lease {
            key: OperationKey::of(&wanted.id),
            granted_at: now,
            until,
            ends: until.plus(GRACE),
            calls,
            tokens,
            day: today(now, limits),
            quota_day: self.daily.began(),
            month: self.monthly.began(),
            rate: limits.rate.is_some(),
            window: limits.window.map(|w| (w.max_requests, w.span)),
            per_minute: limits.tokens_per_minute.is_some(),
        };
        let handed = handed(now, limits, wanted.id, &lease);
        self.leases.out.push(lease);
        Some(handed)
    }

    /// How much of what is wanted can be handed out while everybody stays far from every limit.
    fn size(&self, now: Millis, limits: &Limits, wanted: &Wanted) -> Option<(u64, Option<u64>)> {
        let held = self.held_by_leases();
        let unspent = |limit: u64, used: u64| limit.saturating_sub(used);
        let mut calls = Room::unlimited();
        calls.shrink(
            unspent(MOST_OPEN as u64, self.reservations.count()),
            held.calls,
        );
        if let Some(limit) = self.daily.limit() {
            calls.shrink(unspent(limit, self.daily.used()), held.daily);
        }
        if let Some(limit) = limits.rate {
            calls.shrink(self.rate.left(limit.capacity), held.rate);
        }
        if let Some(limit) = limits.window {
            let used = self.window.used(now, limit);
            calls.shrink(unspent(limit.max_requests, used), held.window);
        }
        let mut tokens = Room::unlimited();
        if let Some(limit) = self.monthly.limit() {
            let spoken_for = self
                .monthly
                .used()
                .saturating_add(self.reservations.held(self.monthly.began()));
            tokens.shrink(unspent(limit, spoken_for), held.month);
        }
        if let Some(capacity) = limits.tokens_per_minute {
            let capacity = minute(capacity).capacity;
            tokens.shrink(self.tokens_per_minute.left(capacity), held.per_minute);
        }
        let mut count = wanted
            .calls
            .clamp(CALLS.0, CALLS.1)
            .min(calls.0 / wanted.cost.max(1));
        let limited = limits.monthly_tokens.is_some() || limits.tokens_per_minute.is_some();
        if limited {
            count = count.min(tokens.0 / wanted.tokens.max(1));
        }
        if count < CALLS.0 {
            return None;
        }
        let tokens = limited.then(|| count.saturating_mul(wanted.tokens));
        Some((count.saturating_mul(wanted.cost.max(1)), tokens))
    }
}

/// What a lease is wanted for.
struct Wanted {
    id: OperationId,
    calls: u64,
    /// What one call costs.
    cost: u64,
    /// Tokens that one call wants.
    tokens: u64,
}

/// The most that one more lease may hold.
struct Room(u64);

impl Room {
    const fn unlimited() -> Self {
        Self(u64::MAX)
    }

    /// `unspent` is what all leases together could spend, `held` what those that are out hold of it.
    fn shrink(&mut self, unspent: u64, held: u64) {
        let left = unspent.saturating_sub(held);
        let of_all = (unspent / PART_OF_ALL).saturating_sub(held);
        self.0 = self.0.min(left / PART_OF_ONE).min(of_all);
    }
}

impl Leases {
    fn find(&self, id: &OperationId) -> Option<&Lease> {
        let key = OperationKey::of(id);
        self.out.iter().find(|lease| lease.key == key)
    }
}

impl Lease {
    fn presumed(&self) -> Metered {
        Metered {
            prompt: 0,
            completion: self.tokens.unwrap_or(0),
        }
    }
}

fn handed(now: Millis, limits: &Limits, id: OperationId, lease: &Lease) -> Handed {
    Handed {
        lease: id,
        calls: lease.calls,
        tokens: lease.tokens,
        lasts: lease.until.since(now),
        terms: Terms {
            max_tokens_per_request: limits.max_tokens_per_request,
            max_tokens_mode: limits.max_tokens_mode,
            allowed_models: limits.allowed_models.clone(),
            endpoints: limits.endpoints.iter().map(|e| e.name.clone()).collect(),
        },
    }
}

fn count(calls: u64) -> usize {
    usize::try_from(calls).unwrap_or(usize::MAX)
}

/// Calls in the time of one lease, and a quarter more, where `calls` came in `time`.
fn pace_of(calls: usize, time: Span) -> u64 {
    let in_one = (calls as u64)
        .saturating_mul(LENGTH.0)
        .div_ceil(time.0.max(1));
    in_one.saturating_mul(5) / 4
}
