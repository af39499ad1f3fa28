//! How every policy stands, without spending anything.

use super::bucket::{Bucket, NEVER};
use super::decide::minute;
use super::quota::Quota;
use super::reservation::Reservations;
use super::window::WindowLog;
use super::{
    Account, BucketLimit, Limits, Millis, PolicyKind, PolicyName, PolicyView, Span, Unit,
    WindowLimit,
};

impl Account {
    /// How every limited policy stands at `now`; right also if nothing has touched the account since a
    /// period or lease ended.
    pub fn view(&self, now: Millis, limits: &Limits) -> Vec<PolicyView> {
        let touched = self.counters_at(now, limits);
        let leased = touched.held_by_leases();
        let reservations = if self.has_ended(now) {
            &touched.reservations
        } else {
            &self.reservations
        };
        let open = reservations.count();
        let held = reservations.held(touched.monthly.began());
        let held = held.saturating_add(leased.month);
        let held_per_minute = reservations.held_per_minute();
        let mut views = Vec::new();
        views.extend(quota(
            PolicyName::Daily,
            Unit::Requests,
            &touched.daily,
            now,
            leased.daily,
        ));
        views.extend(quota(
            PolicyName::MonthlyTokens,
            Unit::Tokens,
            &touched.monthly,
            now,
            held,
        ));
        views.extend(limits.rate.map(|limit| {
            bucket(
                PolicyName::Rate,
                Unit::Requests,
                &touched.rate,
                limit,
                now,
                (0, leased.rate),
            )
        }));
        views.extend(
            limits
                .window
                .map(|limit| self.window_at(&touched.window, limit, leased.window, now)),
        );
        views.extend(limits.tokens_per_minute.map(|limit| {
            let (policy, limit) = (PolicyName::TokensPerMinute, minute(limit));
            bucket(
                policy,
                Unit::Tokens,
                &touched.tokens_per_minute,
                limit,
                now,
                (held_per_minute, leased.per_minute),
            )
        }));
        views.extend(limits.max_concurrent.map(|limit| slots(limit, open, now)));
        let unused = WindowLog::default();
        views.extend(limits.endpoints.iter().map(|endpoint| {
            let log = self.endpoints.get(&endpoint.name).unwrap_or(&unused);
            window(
                PolicyName::Endpoint(endpoint.name.clone()),
                log,
                endpoint.window,
                now,
            )
        }));
        views
    }

    /// The window as it is, and what was booked late into `since`.
    fn window_at(
        &self,
        since: &WindowLog,
        limit: WindowLimit,
        held: u64,
        now: Millis,
    ) -> PolicyView {
        let view = window(PolicyName::Window, &self.window, limit, now);
        let late = since.used(now, limit);
        PolicyView {
            used: view.used.saturating_add(late),
            reserved: held,
            remaining: view.remaining.saturating_sub(late).saturating_sub(held),
            resets_at: view
                .resets_at
                .max(now.plus(since.wait_until_empty(now, limit))),
            ..view
        }
    }

    /// Whether a call or a lease has to be booked as presumed.
    fn has_ended(&self, now: Millis) -> bool {
        self.next_lease_end().is_some_and(|end| end <= now)
    }

    /// A copy of all that isn't a window, brought to `now`. Windows are read as they are; in the copy's is
    /// only what leases that did not come back are booked with. Reservations are many, and copied only where
    /// one has ended.
    fn counters_at(&self, now: Millis, limits: &Limits) -> Self {
        let reservations = if self.has_ended(now) {
            self.reservations.clone()
        } else {
            Reservations::default()
        };
        let mut touched = Self {
            daily: self.daily.clone(),
            monthly: self.monthly.clone(),
            rate: self.rate.clone(),
            tokens_per_minute: self.tokens_per_minute.clone(),
            reservations,
            leases: self.leases.clone(),
            ..Self::default()
        };
        touched.touch_counters(now, limits);
        touched
    }
}

fn quota(
    name: PolicyName,
    unit: Unit,
    quota: &Quota,
    now: Millis,
    reserved: u64,
) -> Option<PolicyView> {
    let limit = quota.limit()?;
    let period = quota.period(now);
    Some(PolicyView {
        name,
        kind: PolicyKind::Fixed,
        unit,
        limit,
        used: quota.used(),
        reserved,
        remaining: limit.saturating_sub(quota.used()).saturating_sub(reserved),
        window: Some(period.length()),
        resets_at: period.end,
    })
}

fn bucket(
    name: PolicyName,
    unit: Unit,
    bucket: &Bucket,
    limit: BucketLimit,
    now: Millis,
    (held, leased): (u64, u64),
) -> PolicyView {
    let taken = bucket.used();
    let reserved = held.min(taken);
    let until_full = bucket.wait_until_full(now).unwrap_or(NEVER);
    PolicyView {
        name,
        kind: PolicyKind::Bucket,
        unit,
        limit: limit.capacity,
        used: taken - reserved,
        reserved: reserved.saturating_add(leased),
        remaining: bucket.left(limit.capacity).saturating_sub(leased),
        window: Some(time_to_fill(limit)),
        resets_at: now.plus(until_full),
    }
}

/// The time in which a bucket refills from empty: what it allows, it allows once in that time.
fn time_to_fill(limit: BucketLimit) -> Span {
    match limit.refill_per_minute {
        0 => NEVER,
        refill => Span(limit.capacity.saturating_mul(60_000).div_ceil(refill)),
    }
}

fn window(name: PolicyName, log: &WindowLog, limit: WindowLimit, now: Millis) -> PolicyView {
    let used = log.used(now, limit);
    PolicyView {
        name,
        kind: PolicyKind::Sliding,
        unit: Unit::Requests,
        limit: limit.max_requests,
        used,
        reserved: 0,
        remaining: limit.max_requests.saturating_sub(used),
        window: Some(limit.span),
        resets_at: now.plus(log.wait_until_empty(now, limit)),
    }
}

const fn slots(limit: u64, open: u64, now: Millis) -> PolicyView {
    PolicyView {
        name: PolicyName::Concurrency,
        kind: PolicyKind::Concurrency,
        unit: Unit::ConcurrentRequests,
        limit,
        used: open,
        reserved: 0,
        remaining: limit.saturating_sub(open),
        window: None,
        resets_at: now,
    }
}
