//! The ladder of attempts to deliver a notice: at once, then after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h,
//! 14 h, 20 h and 24 h, each up to a tenth later; after that it has failed.

use crate::limits::{Millis, Span};

/// Waits before each attempt.
const LADDER: [Span; 10] = [
    Span::ZERO,
    Span::seconds(5),
    Span::minutes(5),
    Span::minutes(30),
    Span::hours(2),
    Span::hours(5),
    Span::hours(10),
    Span::hours(14),
    Span::hours(20),
    Span::hours(24),
];

/// Longest wait a receiver may ask for.
const LONGEST_WAIT: Span = Span::hours(24);

/// When the attempt after `attempts` failed ones is due; `None`: there is no other. A receiver that says
/// `Retry-After` is left alone that long.
pub fn next_attempt(
    id: &str,
    attempts: u64,
    receiver_says: Option<Span>,
    now: Millis,
) -> Option<Millis> {
    let index = usize::try_from(attempts).unwrap_or(usize::MAX);
    let step = *LADDER.get(index)?;
    let asked = receiver_says.unwrap_or(Span::ZERO).min(LONGEST_WAIT);
    Some(now.plus(step.max(asked)).plus(jitter(id, step)))
}

/// Up to a tenth of a step, always the same for one notice. Its id is a hash already.
fn jitter(id: &str, step: Span) -> Span {
    let share = id
        .bytes()
        .rev()
        .take(4)
        .fold(0u64, |sum, byte| sum * 31 + u64::from(byte))
        % 1_000;
    Span(step.0 / 10 * share / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_is_climbed_once() {
        let waits = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
        for (attempts, seconds) in (1u64..).zip(waits) {
            let at = next_attempt("ntf_1", attempts, None, Millis(0)).unwrap();
            assert!(
                at >= Millis(seconds * 1_000) && at.0 <= seconds * 1_100,
                "{attempts}: {at:?}"
            );
        }
        assert_eq!(next_attempt("ntf_1", 10, None, Millis(0)), None);
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_but_not_for_ever() {
        let at = |says| next_attempt("ntf_1", 1, Some(says), Millis(0)).unwrap();
        assert!(at(Span::minutes(2)) >= Millis(120_000));
        assert!(at(Span::hours(1_000)) <= Millis(Span::hours(24).0 + 1_000));
    }
}
