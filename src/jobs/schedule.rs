//! When a job is tried. Everything here is a pure function, so that two consumers agree.

use crate::ledger::jobs::{JobStatus, Work};
use crate::limits::{Millis, Span, Violation};

/// How long a job may wait beyond the first moment it could run.
const PATIENCE: Span = Span::hours(24 * 7);
/// Over how long jobs that wait for one reset are spread after it.
const SPREAD: Span = Span::minutes(5);
/// Over how long jobs that wait for a short limit are spread.
const SHORT_SPREAD: Span = Span::seconds(15);
/// First wait after the provider failed; it doubles.
const BACKOFF: Span = Span::seconds(30);
/// First wait after something of ours was out; it doubles, up to [`LONGEST_FAULT_WAIT`].
const FAULT_WAIT: Span = Span::seconds(5);
const LONGEST_FAULT_WAIT: Span = Span::hours(1);
/// Runs that may get as far as the provider.
pub const MOST_ATTEMPTS: u64 = 5;
/// Messages in a row that found something of ours out, before the job is given up: more than half a day.
pub const MOST_FAULTS: u32 = 20;

/// What a message leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing is left to do, or a newer message is under way.
    Drop,
    /// The job came to its end, but was not settled or its user not told.
    Close,
    /// It is not its time yet: look again after this.
    Wait(Span),
    /// Take it.
    Run,
}

/// What a message with this ticket leads to.
pub fn step(job: &Work, ticket: u64, now: Millis) -> Step {
    match job.status {
        JobStatus::Queued | JobStatus::Running if ticket < job.ticket => Step::Drop,
        JobStatus::Queued | JobStatus::Running => {
            let not_before = job.not_before_ms.min(job.expires_at_ms);
            let due = Millis(not_before.max(job.lease_until_ms));
            match due.since(now) {
                Span::ZERO => Step::Run,
                wait => Step::Wait(wait),
            }
        }
        _ if job.closed == 1 => Step::Drop,
        _ => Step::Close,
    }
}

/// When a job that `violation` refuses is tried again. Jobs that wait for one reset are spread over the
/// minutes after it, each by its own id, so that nobody's many jobs keep another's one from running.
pub fn after_refusal(job_id: &str, violation: &Violation, now: Millis) -> Millis {
    let spread = if violation.policy.is_quota() {
        SPREAD
    } else {
        SHORT_SPREAD
    };
    let wait = violation.wait.max(Span::seconds(1));
    now.plus(wait).plus(jitter(job_id, violation, spread))
}

/// From when on a job is no longer tried.
pub const fn expiry(not_before: Millis) -> Millis {
    not_before.plus(PATIENCE)
}

/// How long to wait after a provider's failure number `attempts`, counted from 1.
pub fn after_failure(attempts: u64, provider_says: Option<u64>) -> Span {
    let doubled = doubled(BACKOFF, attempts.saturating_sub(1));
    doubled.max(Span::seconds(provider_says.unwrap_or(0)))
}

/// How long to wait when something of ours was out for the `faults`th time in a row.
pub fn after_fault(faults: u32) -> Span {
    doubled(FAULT_WAIT, u64::from(faults)).min(LONGEST_FAULT_WAIT)
}

fn doubled(first: Span, times: u64) -> Span {
    let factor = 1u64
        .checked_shl(u32::try_from(times).unwrap_or(u32::MAX))
        .unwrap_or(u64::MAX);
    Span(first.0.saturating_mul(factor))
}

/// A share of `spread`, always the same for one job, policy and reset. Another with every reset, or who was
/// last once would be last for ever.
fn jitter(job_id: &str, violation: &Violation, spread: Span) -> Span {
    // FNV-1a: the standard hasher gives no word that it stays the same.
    let bytes = job_id
        .bytes()
        .chain(violation.policy.to_string().into_bytes())
        .chain(violation.resets_at.0.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of FNV are its worst.
    Span((hash >> 20) % spread.0.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Cause, PolicyName};

    fn job(status: JobStatus) -> Work {
        Work {
            job_id: "job_1".into(),
            user_id: "u".into(),
            key_id: None,
            plan_claim: None,
            path: "/v1/chat/completions".into(),
            endpoint: "chat".into(),
            headers: "[]".into(),
            body: "{}".into(),
            status,
            not_before_ms: 1_000,
            expires_at_ms: 100_000,
            attempts: 0,
            round: 0,
            ticket: 2,
            lease_until_ms: 0,
            closed: 0,
            prompt_tokens: None,
            completion_tokens: None,
            estimated: None,
            has_user: 1,
            has_key: 1,
        }
    }

    fn midnight() -> Violation {
        Violation {
            policy: PolicyName::Daily,
            cause: Cause::Spent,
            limit: 10,
            remaining: 0,
            wait: Span::hours(3),
            resets_at: Millis(Span::hours(3).0),
        }
    }

    #[test]
    fn a_job_is_run_when_it_is_due_and_nobody_has_it() {
        let waiting = job(JobStatus::Queued);
        assert_eq!(step(&waiting, 2, Millis(400)), Step::Wait(Span(600)));
        assert_eq!(step(&waiting, 2, Millis(1_000)), Step::Run);
        assert_eq!(step(&waiting, 3, Millis(1_000)), Step::Run);
        assert_eq!(step(&waiting, 1, Millis(1_000)), Step::Drop);
    }

    #[test]
    fn one_that_somebody_has_is_left_alone_until_the_lease_is_over() {
        let running = Work {
            lease_until_ms: 5_000,
            ..job(JobStatus::Running)
        };
        assert_eq!(step(&running, 2, Millis(4_000)), Step::Wait(Span(1_000)));
        assert_eq!(step(&running, 2, Millis(5_000)), Step::Run);
    }

    #[test]
    fn one_that_expires_before_it_may_run_is_looked_at_then() {
        let late = Work {
            not_before_ms: 200_000,
            ..job(JobStatus::Queued)
        };
        assert_eq!(step(&late, 2, Millis(99_000)), Step::Wait(Span(1_000)));
    }

    #[test]
    fn a_finished_job_is_closed_once() {
        for status in [
            JobStatus::Succeeded,
            JobStatus::Failed,
            JobStatus::Cancelled,
            JobStatus::Expired,
        ] {
            assert_eq!(step(&job(status), 1, Millis(0)), Step::Close);
            assert_eq!(
                step(
                    &Work {
                        closed: 1,
                        ..job(status)
                    },
                    9,
                    Millis(0)
                ),
                Step::Drop
            );
        }
    }

    #[test]
    fn a_thousand_jobs_are_spread_over_the_minutes_after_the_reset() {
        let reset = midnight().resets_at;
        let at = |n: u32| after_refusal(&format!("job_{n}"), &midnight(), Millis(0));
        let mut a_tenth = [0u32; 10];
        for n in 0..1_000 {
            let late = at(n).since(reset);
            assert!(at(n) >= reset && late < SPREAD);
            a_tenth[usize::try_from(late.0 * 10 / SPREAD.0).unwrap()] += 1;
        }
        assert!(
            a_tenth.iter().all(|n| (60..=140).contains(n)),
            "{a_tenth:?}"
        );
        assert_eq!(at(1), at(1));
    }

    #[test]
    fn who_is_last_after_one_reset_need_not_be_last_after_the_next() {
        let tomorrow = Violation {
            resets_at: midnight().resets_at.plus(Span::hours(24)),
            ..midnight()
        };
        let late = |n: u32, violation: &Violation| {
            after_refusal(&format!("job_{n}"), violation, Millis(0)).since(midnight().resets_at)
        };
        let last = (0..1_000).max_by_key(|n| late(*n, &midnight())).unwrap();
        let later = (0..1_000).filter(|n| late(*n, &tomorrow) > late(last, &tomorrow));
        assert!(later.count() > 0);
    }

    #[test]
    fn waits_grow_and_are_bounded() {
        assert_eq!(after_failure(1, None), Span::seconds(30));
        assert_eq!(after_failure(3, Some(7)), Span::seconds(120));
        assert_eq!(after_failure(1, Some(60)), Span::seconds(60));
        assert_eq!(after_fault(0), Span::seconds(5));
        assert_eq!(after_fault(60), Span::hours(1));
        assert_eq!(after_fault(u32::MAX), Span::hours(1));
    }
}
