//! When a plan's refusals are worth an alert. Pure: sums in, a verdict out.

use serde_json::{Value, json};

use crate::ledger::alerts::{PlanCount, Snapshot};
use crate::limits::{Millis, Span};

/// How long a rate has to stay above its bound.
const SUSTAINED: Span = Span::hours(1);

/// How a plan's refusal rate was over the last hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hour {
    /// Calls that were decided.
    pub calls: u64,
    /// Those that were refused.
    pub refused: u64,
}

impl Hour {
    /// The hour in an alert's words.
    #[allow(clippy::cast_precision_loss)]
    pub fn detail(&self, bound: f64) -> Value {
        let rate = self.refused as f64 / self.calls.max(1) as f64;
        json!({"calls": self.calls, "refused": self.refused, "rate": rate, "threshold": bound})
    }
}

/// The last hour of a plan, if its refusal rate was above `bound` in every part of it that had calls.
/// Snapshots are sorted by time; without one that is an hour old nothing is known of a whole hour.
pub fn refused_for_an_hour(
    snapshots: &[Snapshot],
    plan: &str,
    bound: f64,
    now: Millis,
) -> Option<Hour> {
    let begin = snapshots
        .iter()
        .rposition(|s| now.since(s.at) >= SUSTAINED)?;
    let hour = snapshots.get(begin..)?;
    let of = |snapshot: &Snapshot| snapshot.plans.get(plan).copied().unwrap_or_default();
    let mut whole = Hour {
        calls: 0,
        refused: 0,
    };
    for pair in hour.windows(2) {
        let [before, after] = pair else {
            continue;
        };
        let (calls, refused) = moved(of(before), of(after));
        if calls > 0 && !is_above(calls, refused, bound) {
            return None;
        }
        whole.calls = whole.calls.saturating_add(calls);
        whole.refused = whole.refused.saturating_add(refused);
    }
    (whole.calls > 0).then_some(whole)
}

const fn moved(before: PlanCount, after: PlanCount) -> (u64, u64) {
    let calls = after.calls.saturating_sub(before.calls);
    let refused = after.refused.saturating_sub(before.refused);
    (calls, refused)
}

#[allow(clippy::cast_precision_loss)]
fn is_above(calls: u64, refused: u64, bound: f64) -> bool {
    refused as f64 > bound * calls as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn at(minutes: u64, calls: u64, refused: u64) -> Snapshot {
        let count = PlanCount {
            calls,
            refused,
            failed_open: 0,
        };
        let plans = BTreeMap::from([("free".to_owned(), count)]);
        Snapshot {
            at: Millis(minutes * 60_000),
            plans,
        }
    }

    fn verdict(snapshots: &[Snapshot], minutes: u64) -> Option<Hour> {
        refused_for_an_hour(snapshots, "free", 0.1, Millis(minutes * 60_000))
    }

    #[test]
    fn a_whole_hour_above_the_bound_is_an_alert() {
        let snapshots = [at(0, 100, 0), at(30, 200, 20), at(60, 300, 40)];
        assert_eq!(
            verdict(&snapshots, 60),
            Some(Hour {
                calls: 200,
                refused: 40
            })
        );
    }

    #[test]
    fn less_than_an_hour_a_calm_part_or_no_call_is_none() {
        assert_eq!(verdict(&[at(0, 0, 0), at(59, 100, 90)], 59), None);
        assert_eq!(
            verdict(&[at(0, 0, 0), at(30, 100, 90), at(60, 200, 100)], 60),
            None
        );
        assert_eq!(verdict(&[at(0, 9, 9), at(60, 9, 9)], 60), None);
        assert_eq!(verdict(&[at(0, 0, 0), at(60, 100, 10)], 60), None);
        assert_eq!(verdict(&[], 60), None);
    }

    #[test]
    fn a_plan_that_was_not_there_had_done_nothing() {
        let empty = Snapshot {
            at: Millis(0),
            plans: BTreeMap::new(),
        };
        assert!(verdict(&[empty, at(60, 10, 9)], 60).is_some());
    }
}
