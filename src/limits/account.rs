use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use super::decide::minute;
use super::latency::Took;
use super::lease::Leases;
use super::quota::{Crossing, Quota};
use super::reservation::{Metered, OperationKey, Outcome, Reservation, Reservations, SettleResult};
use super::totals::{DayBook, Totals};
use super::window::WindowLog;
use super::{
    EndpointLimit, Lane, Limits, LocalDate, Millis, OperationId, Period, PolicyName, ResetMode,
    Span, billing_month, calendar_day,
};

/// Most hand-overs of refusals, and most jobs, that are told apart.
const MOST_NOTED: usize = 32;
/// Most crossings that wait to be taken.
const MOST_CROSSINGS: usize = 16;

/// Everything one user has used, and the judge of what they still may.
///
/// Time only matters when the account is touched: whatever ended since the last touch (days, months,
/// leases, calls in a window) is dealt with then, as of its own time.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Account {
    pub(super) daily: Quota,
    pub(super) degraded: Quota,
    pub(super) monthly: Quota,
    pub(super) rate: Bucket,
    pub(super) tokens_per_minute: Bucket,
    pub(super) reservations: Reservations,
    pub(super) window: WindowLog,
    pub(super) endpoints: BTreeMap<String, WindowLog>,
    pub(super) days: DayBook,
    /// Thresholds worth a notification, as last seen.
    pub(super) notify_at_permille: Vec<u32>,
    pub(super) crossings: Vec<Crossing>,
    /// What was handed out ahead; stored behind the rest.
    #[serde(skip)]
    pub(super) leases: Leases,
    /// Hand-overs of refusals and jobs that were counted; stored behind the rest.
    #[serde(skip)]
    pub(super) noted: Vec<OperationKey>,
    /// Pages of windows that are no more.
    #[serde(skip)]
    pub(super) orphans: Vec<(PolicyName, u64)>,
}

/// Where the quotas of an account stand, for the ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuotaSnapshot {
    /// Grows with every change.
    pub seq: u64,
    /// Calls of the current day, by the plan's rule.
    pub daily_used: u64,
    /// That day.
    pub day: Period,
    /// Tokens of the current month.
    pub monthly_used: u64,
    /// That month.
    pub month: Period,
}

impl Account {
    /// An account that has used nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// An account as the ledger knows it: the last sequence number, calls of the day and tokens of the
    /// month that began at the given instants, and the totals of the last days.
    pub fn restore(
        seq: u64,
        daily: Option<(u64, Millis)>,
        monthly: Option<(u64, Millis)>,
        days: impl IntoIterator<Item = Totals>,
    ) -> Self {
        let known = |(used, since)| Quota::known(used, since);
        Self {
            daily: daily.map(known).unwrap_or_default(),
            monthly: monthly.map(known).unwrap_or_default(),
            days: DayBook::known(seq, days),
            ..Self::default()
        }
    }

    /// Books what a call has used, or gives its quotas back. The truth about a call whose lease has
    /// ended replaces what was presumed then.
    ///
    /// Tokens count in the month of the call, if that still runs; above the reservation, in full. `rate`,
    /// `window` and `endpoint:*` give nothing back.
    pub fn settle(
        &mut self,
        now: Millis,
        operation: &OperationId,
        outcome: Outcome,
    ) -> SettleResult {
        self.reclaim(now);
        let released = outcome == Outcome::Released;
        let key = OperationKey::of(operation);
        let (reservation, booked) = match self.reservations.close(now, key, released) {
            Ok(closed) => closed,
            Err(result) => return result,
        };
        if let Some(booked) = booked {
            self.unbook(&reservation, booked);
        }
        match outcome {
            Outcome::Used {
                prompt,
                completion,
                estimated,
            } => {
                let used = Metered { prompt, completion };
                self.book(now, &reservation, used, booked, estimated);
            }
            Outcome::Released => self.release(now, &reservation, booked),
        }
        self.note_crossings(now);
        SettleResult::Settled
    }

    /// Notes what a call under way has used so far and renews its lease. `false`: there is no such call,
    /// or it is over; whoever carries it on should stop.
    pub fn checkpoint(
        &mut self,
        now: Millis,
        operation: &OperationId,
        prompt: u64,
        completion: u64,
        lease: Span,
    ) -> bool {
        self.reclaim(now);
        let key = OperationKey::of(operation);
        let Some(reservation) = self.reservations.find_open(key) else {
            return false;
        };
        let before = reservation.metered.unwrap_or_default();
        reservation.metered = Some(before.max(Metered { prompt, completion }));
        reservation.renew(now, lease);
        true
    }

    /// Ends the calls whose lease is over: what they are known to have used is booked, at least their
    /// prompt; and what was handed out ahead and did not come back. Whether there were any.
    pub fn reclaim(&mut self, now: Millis) -> bool {
        let lost = self.lapse_leases(now);
        let lapsed = self.reservations.lapse(now);
        for reservation in &lapsed {
            let presumed = reservation.presumed();
            self.book(reservation.expires_at, reservation, presumed, None, true);
        }
        let any = lost || !lapsed.is_empty();
        if any {
            self.note_crossings(now);
        }
        any
    }

    /// When the first lease ends, for whoever sets an alarm.
    pub fn next_lease_end(&self) -> Option<Millis> {
        let ends = [self.reservations.first_end(), self.leases.first_end()];
        ends.into_iter().flatten().min()
    }

    fn book(
        &mut self,
        now: Millis,
        reservation: &Reservation,
        used: Metered,
        booked: Option<Metered>,
        estimated: bool,
    ) {
        self.monthly.book(reservation.month, used.total());
        self.square_minute(now, reservation, used.total(), booked);
        let totals = self.days.on(reservation.day);
        totals.add_tokens(used);
        if estimated {
            totals.estimated_calls = totals.estimated_calls.saturating_add(1);
        }
    }

    fn unbook(&mut self, reservation: &Reservation, booked: Metered) {
        self.monthly.give_back(reservation.month, booked.total());
        let totals = self.days.on(reservation.day);
        totals.take_tokens(booked);
        totals.estimated_calls = totals.estimated_calls.saturating_sub(1);
    }

    fn release(&mut self, now: Millis, reservation: &Reservation, booked: Option<Metered>) {
        self.square_minute(now, reservation, 0, booked);
        self.uncount(reservation);
    }

    fn uncount(&mut self, reservation: &Reservation) {
        let degraded = reservation.grant.lane == Lane::Degraded;
        let quota = if degraded {
            &mut self.degraded
        } else {
            &mut self.daily
        };
        quota.give_back(reservation.quota_day, reservation.cost);
        let totals = self.days.on(reservation.day);
        totals.calls = totals.calls.saturating_sub(1);
        totals.degraded = totals.degraded.saturating_sub(u64::from(degraded));
    }

    /// As if a lapsed call had never been, but for the short limits.
    pub(super) fn undo_lapsed(&mut self, lapsed: &Reservation) {
        self.unbook(lapsed, lapsed.presumed());
        self.uncount(lapsed);
    }

    /// As it was before [`Account::undo_lapsed`].
    pub(super) fn redo_lapsed(&mut self, lapsed: &Reservation) {
        let presumed = lapsed.presumed();
        self.monthly.book(lapsed.month, presumed.total());
        let degraded = lapsed.grant.lane == Lane::Degraded;
        let quota = if degraded {
            &mut self.degraded
        } else {
            &mut self.daily
        };
        quota.book(lapsed.quota_day, lapsed.cost);
        let totals = self.days.on(lapsed.day);
        totals.add_tokens(presumed);
        totals.estimated_calls = totals.estimated_calls.saturating_add(1);
        totals.calls = totals.calls.saturating_add(1);
        totals.degraded = totals.degraded.saturating_add(u64::from(degraded));
    }

    /// Tokens a minute were taken before they were used: the difference is given back, or owed.
    fn square_minute(
        &mut self,
        now: Millis,
        reservation: &Reservation,
        used: u64,
        booked: Option<Metered>,
    ) {
        let Some(reserved) = reservation.per_minute else {
            return;
        };
        let taken = booked.map_or(reserved, Metered::total);
        if used > taken {
            self.tokens_per_minute.book(now, used - taken);
        } else {
            self.tokens_per_minute.give_back(now, taken - used);
        }
    }

    /// Brings everything to `now` under the limits in force.
    pub(super) fn touch(&mut self, now: Millis, limits: &Limits) {
        self.touch_counters(now, limits);
        self.window.touch(now, limits.window);
        for (name, log) in &mut self.endpoints {
            let limit = limits.endpoints.iter().find(|e| e.name == *name);
            log.touch(now, limit.map(|e| e.window));
        }
        self.drop_endpoints(&limits.endpoints);
        self.notify_at_permille
            .clone_from(&limits.notify_at_permille);
        self.note_crossings(now);
    }

    pub(super) fn touch_counters(&mut self, now: Millis, limits: &Limits) {
        self.reclaim(now);
        let reset = limits.reset;
        match reset.mode {
            ResetMode::Calendar => {
                let day = |at| calendar_day(reset.timezone, at);
                self.daily.touch(now, limits.daily, day);
                self.degraded.touch(now, None, day);
            }
            ResetMode::Rolling => {
                self.daily.touch_rolling(now, limits.daily);
                self.degraded.touch_rolling(now, None);
            }
        }
        let month = |at| billing_month(reset.timezone, reset.billing_day, at);
        self.monthly.touch(now, limits.monthly_tokens, month);
        self.rate.touch(now, limits.rate);
        self.tokens_per_minute
            .touch(now, limits.tokens_per_minute.map(minute));
    }

    /// Endpoints that have no limit any more are forgotten with their last call.
    fn drop_endpoints(&mut self, limited: &[EndpointLimit]) {
        let orphans = &mut self.orphans;
        self.endpoints.retain(|name, log| {
            let keep = !log.is_empty() || limited.iter().any(|e| e.name == *name);
            if !keep {
                let policy = PolicyName::Endpoint(name.clone());
                let (_, dropped) = log.take_changes();
                orphans.extend(dropped.into_iter().map(|page| (policy.clone(), page)));
            }
            keep
        });
    }

    /// Notes thresholds that were passed. Those of a period that is over interest nobody.
    pub(super) fn note_crossings(&mut self, now: Millis) {
        let quotas = [
            (PolicyName::Daily, &mut self.daily),
            (PolicyName::MonthlyTokens, &mut self.monthly),
        ];
        for (policy, quota) in quotas {
            if quota.period(now).end > now {
                let crossings = quota.take_crossings(&policy, &self.notify_at_permille);
                self.crossings.extend(crossings);
            }
        }
        let too_many = self.crossings.len().saturating_sub(MOST_CROSSINGS);
        self.crossings.drain(..too_many);
    }

    /// The thresholds passed since this was last asked: each once a period. They are stored with the
    /// account until they are taken.
    pub fn take_crossings(&mut self) -> Vec<Crossing> {
        std::mem::take(&mut self.crossings)
    }

    /// Where the quotas stand, as of the last touch.
    pub fn quota_snapshot(&self, now: Millis) -> QuotaSnapshot {
        QuotaSnapshot {
            seq: self.days.seq(),
            daily_used: self.daily.used(),
            day: self.daily.period(now),
            monthly_used: self.monthly.used(),
            month: self.monthly.period(now),
        }
    }

    /// The days that changed since the ledger was last told.
    pub fn unflushed(&self) -> Vec<Totals> {
        self.days.unflushed()
    }

    /// Whether the ledger has to be told something.
    pub const fn has_unflushed(&self) -> bool {
        self.days.has_unflushed()
    }

    /// Whether the user has passed thresholds that nobody has taken up.
    pub fn has_crossings(&self) -> bool {
        !self.crossings.is_empty()
    }

    /// The ledger knows everything up to `seq`.
    pub fn flushed(&mut self, seq: u64) {
        self.days.flushed(seq);
    }

    /// Up to which sequence number the ledger has seen everything.
    pub const fn flushed_seq(&self) -> u64 {
        self.days.flushed_seq()
    }

    /// Tells the ledger everything again, under a sequence number above `seq` and all before.
    pub fn tell_again(&mut self, seq: u64) {
        self.days.tell_again(seq);
    }

    /// Counts refusals that were decided without the account, by reason. `false`: they were handed over
    /// before.
    pub fn note_refused(
        &mut self,
        now: Millis,
        limits: &Limits,
        operation: &OperationId,
        counts: &BTreeMap<String, u64>,
    ) -> bool {
        if !self.note(OperationKey::of(operation)) {
            return false;
        }
        let date = today(now, limits);
        for (reason, count) in counts {
            self.days.refuse_elsewhere(date, reason, *count);
        }
        true
    }

    /// Counts how long a call waited that was just settled.
    pub fn note_took(&mut self, now: Millis, limits: &Limits, took: Took) {
        if !took.is_unknown() {
            self.days.took(today(now, limits), took);
        }
    }

    /// Counts that a call became a job, and was not refused. `false`: that is known.
    pub fn note_queued(&mut self, now: Millis, limits: &Limits, operation: &OperationId) -> bool {
        let key = OperationKey::of(operation);
        let is_new = self.note(key);
        if is_new {
            self.days.queue(key, today(now, limits));
        }
        is_new
    }

    /// Whether nothing was counted under this id before.
    fn note(&mut self, key: OperationKey) -> bool {
        if self.noted.contains(&key) {
            return false;
        }
        self.noted.push(key);
        let too_many = self.noted.len().saturating_sub(MOST_NOTED);
        self.noted.drain(..too_many);
        true
    }

    /// Since when nothing in it matters that the ledger doesn't know: it may be forgotten, and restored
    /// later. `None`: not yet.
    pub fn idle_since(&self, now: Millis) -> Option<Millis> {
        let busy =
            !self.reservations.is_idle() || self.has_unflushed() || !self.crossings.is_empty();
        if busy || !self.leases.are_in() {
            return None;
        }
        let endpoints = self.endpoints.values().map(WindowLog::empty_at);
        let ends = [
            self.daily.pools_end_at(),
            self.monthly.pools_end_at(),
            self.degraded_ends_at(),
            self.rate.full_at()?,
            self.tokens_per_minute.full_at()?,
            self.window.empty_at(),
            self.reservations.forgotten_at(),
            self.leases.forgotten_at(),
        ];
        let last = ends.into_iter().chain(endpoints).max()?;
        (last <= now).then_some(last)
    }

    /// The ledger doesn't know of degraded calls.
    fn degraded_ends_at(&self) -> Millis {
        if self.degraded.used() == 0 {
            return Millis(0);
        }
        self.degraded.ends_at()
    }
}

/// The local date of the ledger's rows.
pub fn today(now: Millis, limits: &Limits) -> LocalDate {
    LocalDate::at(limits.reset.timezone, now)
}
