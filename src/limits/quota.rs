use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Millis, Period, PolicyName, RollingDay};

/// Most top-ups of one quota that are told apart; beyond, neighbours are merged.
const MOST_POOLS: usize = 32;

/// What is used of a quota in its current period, and the top-ups that raise it.
///
/// The period only moves forward: a clock that steps back stays in it until it is over.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Quota {
    period: Option<Period>,
    used: u64,
    /// The plan's limit, as last seen; `None` is unlimited.
    base: Option<u64>,
    pools: Vec<Pool>,
    /// Use of this period that top-ups had paid for which are no more.
    paid: u64,
    announced: Announced,
}

/// A top-up: what is left of it beyond the current period's use.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct Pool {
    left: u64,
    /// `None`: with the period.
    expires_at: Option<Millis>,
}

/// Which thresholds were announced in the current period.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
enum Announced {
    /// Every one up to this share, in thousandths.
    UpTo(u32),
    /// Not known: whatever is crossed already was announced by somebody.
    Unknown,
}

impl Default for Announced {
    fn default() -> Self {
        Self::UpTo(0)
    }
}

/// A share of a quota was passed, for the first time in its period.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Crossing {
    /// Of which quota.
    pub policy: PolicyName,
    /// The share, in thousandths of the limit.
    pub permille: u32,
    /// Used when it was noticed.
    pub used: u64,
    /// The limit in force, top-ups included.
    pub limit: u64,
    /// The period it happened in.
    pub period_start: Millis,
    /// When that ends.
    pub period_end: Millis,
}

/// Why a top-up can't be made.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum GrantError {
    /// Only `daily` and `monthly-tokens` can be topped up.
    #[error("only daily and monthly-tokens can be topped up")]
    NotAQuota,
    /// It would be over before it begins.
    #[error("expires_at is in the past")]
    Expired,
}

impl Quota {
    /// As the ledger knows it. The thresholds it has passed were announced before.
    pub fn known(used: u64, since: Millis) -> Self {
        let period = Some(Period {
            start: since,
            end: since,
        });
        Self {
            period,
            used,
            announced: Announced::Unknown,
            ..Self::default()
        }
    }

    /// What the ledger's counters don't tell of this quota; `None`: they tell all.
    pub fn beyond(&self) -> Option<&Self> {
        (!self.pools.is_empty() || self.paid > 0).then_some(self)
    }

    /// Takes over the top-ups that `told` has; what is used, and since when, is known better here.
    pub fn adopt_top_ups(&mut self, told: Self) {
        self.base = told.base;
        self.pools = told.pools;
        self.paid = told.paid;
    }

    /// Enters the calendar period that `period_at` tells, and takes note of the plan's limit.
    pub fn touch(&mut self, now: Millis, base: Option<u64>, period_at: impl Fn(Millis) -> Period) {
        self.drop_expired(now);
        let current = period_at(now.max(self.start()));
        match &mut self.period {
            Some(period) if current.start <= period.start => period.end = current.end,
            Some(_) => {
                self.end_period();
                self.period = Some(current);
            }
            None => self.period = Some(current),
        }
        self.base = base;
    }

    /// Ends the rolling day if it is over; the next charge begins another.
    pub fn touch_rolling(&mut self, now: Millis, base: Option<u64>) {
        self.drop_expired(now);
        if let Some(began) = self.period.map(|p| p.start) {
            let day = RollingDay { began };
            self.period = Some(day.period());
            if day.is_over(now) {
                self.end_period();
            }
        }
        self.base = base;
    }

    /// What this period used beyond the plan's limit came out of the top-ups.
    fn end_period(&mut self) {
        self.consume_pools();
        self.pools
            .retain(|pool| pool.left > 0 && pool.expires_at.is_some());
        self.period = None;
        self.used = 0;
        self.paid = 0;
        self.announced = Announced::default();
    }

    fn consume_pools(&mut self) {
        let mut excess = self.excess();
        for pool in &mut self.pools {
            let taken = pool.left.min(excess);
            pool.left -= taken;
            excess -= taken;
        }
    }

    /// A top-up that expires takes along what is left of it; what it has paid for stays paid.
    fn drop_expired(&mut self, now: Millis) {
        let is_over = |pool: &Pool| pool.expires_at.is_some_and(|at| at <= now);
        if !self.pools.iter().any(is_over) {
            return;
        }
        let mut excess = self.excess();
        for pool in &mut self.pools {
            let taken = pool.left.min(excess);
            excess -= taken;
            if is_over(pool) {
                self.paid = self.paid.saturating_add(taken);
            }
        }
        self.pools.retain(|pool| !is_over(pool));
    }

    /// Use beyond the plan's limit that the top-ups at hand pay for.
    fn excess(&self) -> u64 {
        self.base.map_or(0, |base| {
            self.used.saturating_sub(base).saturating_sub(self.paid)
        })
    }

    /// Counts `amount`, beginning a rolling day if none runs.
    pub fn charge(&mut self, now: Millis, amount: u64) {
        let begun = RollingDay { began: now }.period();
        self.period.get_or_insert(begun);
        self.used = self.used.saturating_add(amount);
    }

    /// Counts `amount` for the period that began at `start`, if that is still the current one.
    pub fn book(&mut self, start: Option<Millis>, amount: u64) {
        if start.is_some() && start == self.period.map(|p| p.start) {
            self.used = self.used.saturating_add(amount);
        }
    }

    /// Takes `amount` back from the period that began at `start`, if that is still the current one.
    pub fn give_back(&mut self, start: Option<Millis>, amount: u64) {
        if start.is_some() && start == self.period.map(|p| p.start) {
            self.used = self.used.saturating_sub(amount);
        }
    }

    /// Raises the limit by `amount` until `expires_at`, or for the current period.
    pub fn grant(
        &mut self,
        now: Millis,
        amount: u64,
        expires_at: Option<Millis>,
    ) -> Result<(), GrantError> {
        if expires_at.is_some_and(|at| at <= now) {
            return Err(GrantError::Expired);
        }
        match self.pools.iter_mut().find(|p| p.expires_at == expires_at) {
            Some(pool) => pool.left = pool.left.saturating_add(amount),
            None if amount > 0 => self.pools.push(Pool {
                left: amount,
                expires_at,
            }),
            None => {}
        }
        self.order_pools();
        self.merge_pools();
        Ok(())
    }

    /// What expires first is used first.
    fn order_pools(&mut self) {
        let with_period = self.period.map_or(Millis(u64::MAX), |p| p.end);
        self.pools
            .sort_by_key(|p| p.expires_at.unwrap_or(with_period));
    }

    /// Of too many top-ups the two that expire closest together become one, which lasts as long as the
    /// longer.
    fn merge_pools(&mut self) {
        while self.pools.len() > MOST_POOLS {
            let dated = |pool: &Pool| pool.expires_at.map_or(u64::MAX, |at| at.0);
            let gaps = self
                .pools
                .windows(2)
                .enumerate()
                .filter_map(|(index, pair)| match pair {
                    [a, b] if a.expires_at.is_some() && b.expires_at.is_some() => {
                        Some((dated(b) - dated(a), index))
                    }
                    _ => None,
                });
            let Some((_, index)) = gaps.min() else {
                break;
            };
            let merged = self.pools.remove(index);
            if let Some(next) = self.pools.get_mut(index) {
                next.left = next.left.saturating_add(merged.left);
            }
        }
    }

    /// Forgets what was used. The period in force at `now` begins anew at the next touch, also if a
    /// wrong clock had moved it ahead.
    pub fn reset(&mut self) {
        self.period = None;
        self.used = 0;
        self.paid = 0;
        self.announced = Announced::default();
    }

    /// Sets what is used, as an operator has found it out.
    pub fn set_used(&mut self, used: u64) {
        self.used = used;
    }

    /// The thresholds that were passed and not yet announced, lowest first.
    pub fn take_crossings(&mut self, policy: &PolicyName, permilles: &[u32]) -> Vec<Crossing> {
        let (Some(limit), Some(period)) = (self.limit(), self.period) else {
            return Vec::new();
        };
        let reached = |permille: u32| {
            let share = u128::from(limit) * u128::from(permille);
            permille > 0 && limit > 0 && u128::from(self.used) * 1_000 >= share
        };
        let mut passed: Vec<u32> = permilles.iter().copied().filter(|p| reached(*p)).collect();
        passed.sort_unstable();
        passed.dedup();
        let before = self.announced;
        let highest = passed.last().copied().unwrap_or(0);
        let Announced::UpTo(announced) = before else {
            self.announced = Announced::UpTo(highest);
            return Vec::new();
        };
        self.announced = Announced::UpTo(announced.max(highest));
        let fresh = passed.into_iter().filter(|permille| *permille > announced);
        fresh
            .map(|permille| Crossing {
                policy: policy.clone(),
                permille,
                used: self.used,
                limit,
                period_start: period.start,
                period_end: period.end,
            })
            .collect()
    }

    /// The limit in force, top-ups included; `None` is unlimited.
    pub fn limit(&self) -> Option<u64> {
        let base = self.base?.saturating_add(self.paid);
        let pools = self.pools.iter().map(|p| p.left);
        Some(pools.fold(base, u64::saturating_add))
    }

    /// Used so far in the current period.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// The running period, or the one a call made now would begin.
    pub fn period(&self, now: Millis) -> Period {
        let begun = RollingDay { began: now }.period();
        self.period.unwrap_or(begun)
    }

    /// Until when nothing but use changes what is left: the end of its period, or of a top-up.
    pub fn stable_until(&self, now: Millis) -> Millis {
        let ends = self.pools.iter().filter_map(|pool| pool.expires_at);
        ends.fold(self.period(now).end, Millis::min)
    }

    /// The first instant of the running period.
    pub fn began(&self) -> Option<Millis> {
        self.period.map(|p| p.start)
    }

    /// When the current period is over.
    pub fn ends_at(&self) -> Millis {
        self.period.map_or(Millis(0), |p| p.end)
    }

    /// When its last top-up is over.
    pub fn pools_end_at(&self) -> Millis {
        let end = self.period.map_or(Millis(u64::MAX), |p| p.end);
        let pools = self.pools.iter().map(|p| p.expires_at.unwrap_or(end));
        pools.max().unwrap_or(Millis(0))
    }

    fn start(&self) -> Millis {
        self.began().unwrap_or(Millis(0))
    }
}
