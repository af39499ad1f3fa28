//! What an isolate has read of a slowly changing table, and believes for a while. While the ledger is out
//! the last known value stays in force; one reader asks at a time, and the others go on with what they
//! have.

use std::rc::Rc;

use crate::budget;
use crate::limits::{Millis, Span};

/// How long a read is believed.
const STALE: Span = Span::seconds(5);
/// How soon after its beginning a failed read is tried again.
const RETRY: Span = Span::seconds(3);

/// A value that was read, and from when on it is to be read again.
pub struct Remembered<T> {
    value: Option<Rc<T>>,
    read_after: Millis,
    /// Somebody is reading it, until then at most.
    reading_until: Millis,
}

impl<T> Remembered<T> {
    /// Nothing was read yet.
    pub const fn new() -> Self {
        Self {
            value: None,
            read_after: Millis(0),
            reading_until: Millis(0),
        }
    }

    /// The value, if it need not be read now; else the caller is the one who reads it.
    pub fn fresh(&mut self, now: Millis) -> Option<Rc<T>> {
        if let Some(value) = self.at_hand(now) {
            return Some(value.clone());
        }
        self.reading_until = now.plus(budget::D1);
        None
    }

    /// The value, if it need not be read now; nobody is about to read it for that.
    pub fn at_hand(&self, now: Millis) -> Option<&Rc<T>> {
        let believed = ahead(self.read_after, now, STALE);
        let being_read = ahead(self.reading_until, now, budget::D1);
        self.value.as_ref().filter(|_| believed || being_read)
    }

    /// Takes what was read.
    pub fn keep(&mut self, value: T, now: Millis) -> Rc<T> {
        let value = Rc::new(value);
        self.value = Some(value.clone());
        self.read_after = now.plus(STALE);
        self.reading_until = Millis(0);
        value
    }

    /// The last known value, after a read that failed.
    pub fn last_known(&mut self, now: Millis) -> Option<Rc<T>> {
        self.read_after = now.plus(RETRY);
        self.reading_until = Millis(0);
        self.value.clone()
    }

    /// Takes a copy from elsewhere, after a read that failed.
    pub fn stand_in(&mut self, value: T, now: Millis) -> Rc<T> {
        let value = self.keep(value, now);
        self.read_after = now.plus(RETRY);
        value
    }

    /// Makes the next one read it again.
    pub const fn forget(&mut self) {
        self.read_after = Millis(0);
        self.reading_until = Millis(0);
    }
}

/// Whether `until` lies ahead, and no further than a clock that was not set back can explain.
fn ahead(until: Millis, now: Millis, most: Span) -> bool {
    let ahead = until.since(now);
    ahead > Span::ZERO && ahead <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_believed_for_five_seconds() {
        let mut seen = Remembered::new();
        assert_eq!(seen.fresh(Millis(1_000)), None);
        seen.keep(7, Millis(1_000));
        assert_eq!(seen.fresh(Millis(5_999)).as_deref(), Some(&7));
        assert_eq!(seen.at_hand(Millis(6_000)), None);
        assert_eq!(seen.fresh(Millis(6_000)), None);
    }

    #[test]
    fn one_reads_while_the_others_go_on() {
        let mut seen = Remembered::new();
        seen.keep(7, Millis(1_000));
        assert_eq!(seen.fresh(Millis(7_000)), None);
        assert!(seen.fresh(Millis(7_001)).is_some());
        assert_eq!(seen.fresh(Millis(9_000)), None);
        seen.forget();
        assert_eq!(seen.fresh(Millis(9_001)), None);
    }

    #[test]
    fn after_a_failure_the_last_known_value_stays() {
        let mut seen = Remembered::new();
        assert_eq!(seen.last_known(Millis(0)), None);
        seen.keep(7, Millis(1_000));
        assert_eq!(seen.last_known(Millis(7_000)).as_deref(), Some(&7));
        assert!(seen.fresh(Millis(9_999)).is_some());
        assert_eq!(seen.fresh(Millis(10_000)), None);
    }
}
