use serde::{Deserialize, Serialize};

use super::{BucketLimit, Millis, Span};

/// Bucket content is counted in 60,000ths: what refills a minute in calls, refills a millisecond in
/// these. Nothing is ever rounded.
const UNITS: u128 = 60_000;
/// How long a bucket that never refills makes its callers wait before they ask again.
pub const NEVER: Span = Span::hours(24);

/// A token bucket: what is missing until it is full.
///
/// It keeps what was taken, not what is left, so that an edited capacity keeps the usage. A clock that
/// steps back refills nothing until it has caught up, but for no longer than a full refill takes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Bucket {
    missing: u128,
    at: Millis,
    refill: u64,
}

impl Bucket {
    /// Brings it to `now`, at the rate that was in force, and takes note of the one that is.
    pub fn touch(&mut self, now: Millis, limit: Option<BucketLimit>) {
        self.advance(now);
        if let Some(limit) = limit {
            self.refill = limit.refill_per_minute;
            let latest = now.plus(Span(self.time_for(units(limit.capacity))));
            self.at = self.at.min(latest);
        }
    }

    fn advance(&mut self, now: Millis) {
        let refilled = u128::from(now.since(self.at).0).saturating_mul(self.refill.into());
        self.missing = self.missing.saturating_sub(refilled);
        self.at = if self.missing == 0 {
            now
        } else {
            self.at.max(now)
        };
    }

    /// How long until `cost` can be taken; zero if it can be now. `None`: never.
    /// Expects [`Bucket::touch`] at `now`.
    pub fn wait(&self, now: Millis, capacity: u64, cost: u64) -> Option<Span> {
        let after = self.missing.saturating_add(units(cost));
        let short = after.saturating_sub(units(capacity));
        if short == 0 {
            return Some(Span::ZERO);
        }
        self.full_refill_of(now, short)
    }

    /// How long until it is full; `None`: never.
    pub fn wait_until_full(&self, now: Millis) -> Option<Span> {
        if self.missing == 0 {
            return Some(Span::ZERO);
        }
        self.full_refill_of(now, self.missing)
    }

    fn full_refill_of(&self, now: Millis, short: u128) -> Option<Span> {
        (self.refill > 0).then(|| Span(self.at.since(now).0.saturating_add(self.time_for(short))))
    }

    fn time_for(&self, amount: u128) -> u64 {
        match u128::from(self.refill) {
            0 => 0,
            refill => u64::try_from(amount.div_ceil(refill)).unwrap_or(u64::MAX),
        }
    }

    /// Takes `cost`, into debt if it isn't there.
    pub fn take(&mut self, cost: u64) {
        self.missing = self.missing.saturating_add(units(cost));
    }

    /// Takes `cost`, but no more than is there.
    pub fn take_what_is_there(&mut self, capacity: u64, cost: u64) -> u64 {
        let taken = cost.min(self.left(capacity));
        self.take(taken);
        taken
    }

    /// Gives back `amount` at `now`; a bucket is never more than full.
    pub fn give_back(&mut self, now: Millis, amount: u64) {
        self.advance(now);
        self.missing = self.missing.saturating_sub(units(amount));
    }

    /// Takes `amount` at `now` that nobody asked for before it was used.
    pub fn book(&mut self, now: Millis, amount: u64) {
        self.advance(now);
        self.take(amount);
    }

    /// Fills it.
    pub fn fill(&mut self) {
        self.missing = 0;
    }

    /// Whole tokens missing, a begun one included.
    pub fn used(&self) -> u64 {
        u64::try_from(self.missing.div_ceil(UNITS)).unwrap_or(u64::MAX)
    }

    /// Whole tokens left.
    pub fn left(&self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.used())
    }

    /// The instant it is full, at the rate last in force; `None`: never.
    pub fn full_at(&self) -> Option<Millis> {
        self.wait_until_full(self.at).map(|wait| self.at.plus(wait))
    }
}

const fn units(amount: u64) -> u128 {
    amount as u128 * UNITS
}
