//! What operators and outages change from outside.

use super::account::today;
use super::quota::GrantError;
use super::reservation::{Metered, OperationKey};
use super::{Account, Limits, Millis, OperationId, PolicyName};

impl Account {
    /// Forgets what was used of these policies; of all, if none is named. Calls under way go on: what
    /// they use is booked when they settle, and a release gives back nothing that was forgotten.
    pub fn reset(&mut self, now: Millis, limits: &Limits, policies: &[PolicyName]) {
        self.touch(now, limits);
        if policies.is_empty() {
            self.reset_all();
        }
        for policy in policies {
            self.reset_one(policy);
        }
        self.touch(now, limits);
        self.days.change();
    }

    fn reset_all(&mut self) {
        let plain = [
            PolicyName::Daily,
            PolicyName::Degraded,
            PolicyName::MonthlyTokens,
            PolicyName::Rate,
            PolicyName::Window,
            PolicyName::TokensPerMinute,
        ];
        let endpoints: Vec<_> = self
            .endpoints
            .keys()
            .cloned()
            .map(PolicyName::Endpoint)
            .collect();
        for policy in plain.iter().chain(&endpoints) {
            self.reset_one(policy);
        }
    }

    fn reset_one(&mut self, policy: &PolicyName) {
        match policy {
            PolicyName::Daily => self.daily.reset(),
            PolicyName::Degraded => self.degraded.reset(),
            PolicyName::MonthlyTokens => self.monthly.reset(),
            PolicyName::Rate => self.rate.fill(),
            PolicyName::Window => self.window.clear(),
            PolicyName::TokensPerMinute => self.tokens_per_minute.fill(),
            PolicyName::Concurrency => {}
            PolicyName::Endpoint(name) => {
                if let Some(log) = self.endpoints.get_mut(name) {
                    log.clear();
                }
            }
        }
        self.reservations.forgive(policy);
        self.leases.forgive(policy);
    }

    /// Tops a quota up until `expires_at`, or for its current period. What a period uses beyond the
    /// plan's limit is gone from the top-up when the period ends; the rest stays until it expires.
    pub fn grant(
        &mut self,
        now: Millis,
        limits: &Limits,
        policy: PolicyName,
        amount: u64,
        expires_at: Option<Millis>,
    ) -> Result<(), GrantError> {
        self.touch(now, limits);
        let quota = match policy {
            PolicyName::Daily => &mut self.daily,
            PolicyName::MonthlyTokens => &mut self.monthly,
            _ => return Err(GrantError::NotAQuota),
        };
        quota.grant(now, amount, expires_at)?;
        self.days.change();
        Ok(())
    }

    /// Sets what is used of a quota, as it was found to be. `false`: the policy is no quota.
    pub fn set_used(&mut self, policy: &PolicyName, used: u64) -> bool {
        match policy {
            PolicyName::Daily => self.daily.set_used(used),
            PolicyName::Degraded => self.degraded.set_used(used),
            PolicyName::MonthlyTokens => self.monthly.set_used(used),
            _ => return false,
        }
        self.days.change();
        true
    }

    /// Notes that calls of this account passed without waiting for its word.
    pub fn note_failed_open(&mut self, now: Millis, limits: &Limits, calls: u64) {
        let totals = self.days.on(today(now, limits));
        totals.failed_open = totals.failed_open.saturating_add(calls);
    }

    /// Books calls that passed while the account was out of reach and ended at `at`, once an operation. Quotas count them if
    /// their period has not ended since; short limits have forgotten them. `false`: they were booked before.
    pub fn book_open(
        &mut self,
        now: Millis,
        limits: &Limits,
        operation: &OperationId,
        calls: u64,
        used: Metered,
        at: Millis,
    ) -> bool {
        self.touch(now, limits);
        let key = OperationKey::of(operation);
        if self.reservations.knows(key) {
            return false;
        }
        self.reservations.remember_booked(now, key);
        // The account may have refused the call when it was too late to say so.
        self.days.passes_after_all(key);
        if self.daily.began().is_none_or(|began| began <= at) {
            self.daily.charge(now, calls);
        }
        if self.monthly.began().is_none_or(|began| began <= at) {
            self.monthly.charge(now, used.total());
        }
        let totals = self.days.on(today(at, limits));
        totals.calls = totals.calls.saturating_add(calls);
        totals.failed_open = totals.failed_open.saturating_add(calls);
        totals.add_tokens(used);
        self.note_crossings(now);
        true
    }
}
