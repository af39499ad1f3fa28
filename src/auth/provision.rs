use std::cell::Cell;

use crate::limits::Millis;

/// Users one isolate may make a minute. Whoever can sign tokens, or stands in a trusted front, could
/// otherwise fill the ledger with users in a moment.
const PER_MINUTE: u32 = 60;

/// How many users were made in which minute.
#[derive(Clone, Copy, Default)]
struct Made {
    minute: u64,
    count: u32,
}

thread_local! {
    static MADE: Cell<Made> = Cell::default();
}

/// Whether one more user may be made now; counts them if so.
pub fn may_provision(now: Millis) -> bool {
    let (made, allowed) = MADE.get().one_more(now);
    MADE.set(made);
    allowed
}

impl Made {
    fn one_more(self, now: Millis) -> (Self, bool) {
        let minute = now.0 / 60_000;
        let made = if minute > self.minute {
            Self { minute, count: 0 }
        } else {
            self
        };
        let allowed = made.count < PER_MINUTE;
        let count = made.count.saturating_add(u32::from(allowed));
        (Self { count, ..made }, allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Millis = Millis(1_800_000_000_000);

    #[test]
    fn sixty_a_minute() {
        let allowed = |now| (0..100).filter(|_| may_provision(now)).count();
        assert_eq!(allowed(START), 60);
        assert_eq!(allowed(Millis(START.0 + 59_999)), 0);
        assert_eq!(allowed(Millis(START.0 + 60_000)), 60);
        assert_eq!(allowed(START), 0);
    }
}
