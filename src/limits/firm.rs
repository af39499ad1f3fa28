//! How long a refusal is sure to be repeated, word for word: so long it need not be asked for again.

use super::decide::endpoint_limit;
use super::{
    Account, Call, Cause, Limits, Millis, PolicyName, Refusal, Rejection, Span, Verdict, Violation,
    Work,
};

/// A block lasts until somebody lifts it.
const UNTIL_LIFTED: Span = Span::hours(24);

impl Account {
    /// How long every further call like a refused one is refused by the same policies with the same numbers,
    /// whatever other calls do meanwhile; only an operator can change that. `None`: not for a moment.
    ///
    /// Expects the verdict that was just given at `now`.
    pub fn refusal_holds(
        &self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        verdict: &Verdict,
    ) -> Option<Span> {
        match verdict {
            Verdict::Rejected(Rejection::Blocked) => Some(UNTIL_LIFTED),
            Verdict::Refused(refusal) if !limits.shadow => {
                self.all_hold(now, limits, call, refusal)
            }
            _ => None,
        }
    }

    fn all_hold(
        &self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        refusal: &Refusal,
    ) -> Option<Span> {
        // What leases don't spend comes back, to every policy.
        if !self.leases.is_empty() {
            return None;
        }
        let quota = refusal.violations.iter().any(|v| v.policy.is_quota());
        if quota && call.degrade.is_some() {
            return None;
        }
        let holds = refusal
            .violations
            .iter()
            .map(|violation| self.holds(now, limits, call, violation));
        let shortest = holds.collect::<Option<Vec<_>>>()?.into_iter().min()?;
        (shortest > Span::ZERO).then_some(shortest)
    }

    fn holds(
        &self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        violation: &Violation,
    ) -> Option<Span> {
        let next_unit = violation.remaining.saturating_add(1);
        match &violation.policy {
            // What calls under way may still give back could let the next one pass.
            PolicyName::Daily | PolicyName::MonthlyTokens => {
                let is_over = violation.remaining == 0 && violation.cause != Cause::Held;
                let dispatched = matches!(call.work, Work::Dispatch(_));
                (is_over && dispatched && self.reservations.owe_nothing()).then_some(violation.wait)
            }
            _ if violation.cause == Cause::Nothing => Some(violation.wait),
            PolicyName::Rate => {
                let capacity = limits.rate?.capacity;
                self.rate.wait(now, capacity, next_unit)
            }
            PolicyName::Window => Some(self.window.wait(now, limits.window?, next_unit)),
            PolicyName::Endpoint(name) => {
                let limit = endpoint_limit(limits, Some(name))?;
                let log = self.endpoints.get(name)?;
                Some(log.wait(now, limit.window, next_unit))
            }
            PolicyName::Degraded | PolicyName::TokensPerMinute | PolicyName::Concurrency => None,
        }
    }
}
