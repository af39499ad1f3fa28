//! What an isolate has read and believes for a while. Shortly before that ends, one of those who use it has it read
//! again behind their own answer: whoever comes often enough never waits for it.

pub mod table;

use std::rc::Rc;

use crate::budget;
use crate::limits::{Millis, Span};

/// How long a read is believed.
const STALE: Span = Span::seconds(5);
/// How long what was known before is believed after a read that failed.
const RETRY: Span = Span::seconds(3);
/// How long before the end it is read again.
const AHEAD: Span = Span::seconds(1);
/// A read that has not ended after this is lost; its own budget ends it before.
const READING: Span = Span(budget::D1.0 + 1_000);

/// A value that was read, and until when it is believed.
pub struct Remembered<T> {
    value: Option<Rc<T>>,
    until: Millis,
    /// Somebody is reading it, until then at most.
    reading_until: Millis,
    /// How often it was forgotten: what was being read by then may be of before.
    forgotten: u32,
}

/// What is known, and what has to be done for it.
#[derive(Debug, PartialEq)]
pub enum Known<T> {
    /// It is believed.
    Fresh(Rc<T>),
    /// It is believed, and has to be read again before long.
    Due(Rc<T>),
    /// It is believed no more, and somebody is reading it.
    Late(Rc<T>),
    /// It has to be read.
    Nothing,
}

/// A read that was begun.
#[derive(Clone, Copy)]
pub struct Reading {
    /// When.
    pub began: Millis,
    forgotten: u32,
}

impl<T> Remembered<T> {
    /// Nothing was read yet.
    pub const fn new() -> Self {
        Self {
            value: None,
            until: Millis(0),
            reading_until: Millis(0),
            forgotten: 0,
        }
    }

    /// What is known now.
    pub fn known(&self, now: Millis) -> Known<T> {
        let being_read = self.reading_until.is_ahead(now, READING);
        match &self.value {
            Some(value) if !self.until.is_ahead(now, STALE) => match being_read {
                true => Known::Late(value.clone()),
                false => Known::Nothing,
            },
            Some(value) if self.until.since(now) <= AHEAD && !being_read => {
                Known::Due(value.clone())
            }
            Some(value) => Known::Fresh(value.clone()),
            None => Known::Nothing,
        }
    }

    /// The caller reads it from now on.
    pub fn begin(&mut self, now: Millis) -> Reading {
        self.reading_until = now.plus(READING);
        Reading {
            began: now,
            forgotten: self.forgotten,
        }
    }

    /// Takes what was read.
    pub fn keep(&mut self, value: T, reading: Reading) -> Rc<T> {
        self.take(value, reading, STALE)
    }

    /// Takes a copy from elsewhere, after a read that failed.
    pub fn stand_in(&mut self, value: T, reading: Reading) -> Rc<T> {
        self.take(value, reading, RETRY)
    }

    /// Believes what was known before, after a read that failed.
    pub fn fail(&mut self, reading: Reading) {
        self.believe(reading, RETRY);
    }

    /// The last that was read, believed or not.
    pub fn last(&self) -> Option<Rc<T>> {
        self.value.clone()
    }

    /// Makes the next one read it again.
    pub const fn forget(&mut self) {
        self.until = Millis(0);
        self.reading_until = Millis(0);
        self.forgotten = self.forgotten.wrapping_add(1);
    }

    fn take(&mut self, value: T, reading: Reading, time: Span) -> Rc<T> {
        let value = Rc::new(value);
        if self.value.is_none() || self.is_of_now(reading) {
            self.value = Some(value.clone());
        }
        self.believe(reading, time);
        value
    }

    /// Believes the value from the beginning of a read on.
    fn believe(&mut self, reading: Reading, time: Span) {
        if self.is_of_now(reading) {
            self.until = reading.began.plus(time);
            self.reading_until = Millis(0);
        }
    }

    /// Whether nothing was forgotten since it began.
    const fn is_of_now(&self, reading: Reading) -> bool {
        reading.forgotten == self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was read at one second.
    fn read_at_one() -> Remembered<u32> {
        let mut seen = Remembered::new();
        assert_eq!(seen.known(Millis(1_000)), Known::Nothing);
        let reading = seen.begin(Millis(1_000));
        assert_eq!(*seen.keep(7, reading), 7);
        seen
    }

    #[test]
    fn a_value_is_believed_for_five_seconds_and_read_again_in_the_last() {
        let seen = read_at_one();
        assert_eq!(seen.known(Millis(4_999)), Known::Fresh(Rc::new(7)));
        assert_eq!(seen.known(Millis(5_000)), Known::Due(Rc::new(7)));
        assert_eq!(seen.known(Millis(5_999)), Known::Due(Rc::new(7)));
        assert_eq!(seen.known(Millis(6_000)), Known::Nothing);
    }

    #[test]
    fn one_reads_while_the_others_go_on() {
        let mut seen = read_at_one();
        let reading = seen.begin(Millis(5_500));
        assert_eq!(seen.known(Millis(5_501)), Known::Fresh(Rc::new(7)));
        assert_eq!(seen.known(Millis(8_499)), Known::Late(Rc::new(7)));
        assert_eq!(seen.known(Millis(8_500)), Known::Nothing);
        seen.keep(8, reading);
        assert_eq!(seen.known(Millis(9_499)), Known::Fresh(Rc::new(8)));
        assert_eq!(seen.known(Millis(10_500)), Known::Nothing);
    }

    #[test]
    fn what_is_read_while_it_is_forgotten_is_not_believed() {
        let mut seen = read_at_one();
        let before = seen.begin(Millis(5_000));
        seen.forget();
        assert_eq!(seen.known(Millis(5_001)), Known::Nothing);
        let after = seen.begin(Millis(5_002));
        assert_eq!(*seen.keep(6, before), 6);
        assert_eq!(seen.known(Millis(5_003)), Known::Late(Rc::new(7)));
        seen.keep(8, after);
        seen.keep(6, before);
        assert_eq!(seen.known(Millis(5_004)), Known::Fresh(Rc::new(8)));
        seen.forget();
        seen.fail(before);
        assert_eq!(seen.last().as_deref(), Some(&8));
        assert_eq!(seen.known(Millis(5_005)), Known::Nothing);
    }

    #[test]
    fn after_a_failure_the_last_known_value_stays() {
        let mut seen = Remembered::<u32>::new();
        let reading = seen.begin(Millis(0));
        seen.fail(reading);
        assert_eq!((seen.last(), seen.known(Millis(1))), (None, Known::Nothing));
        let mut seen = read_at_one();
        let reading = seen.begin(Millis(7_000));
        seen.fail(reading);
        assert_eq!(seen.last().as_deref(), Some(&7));
        assert_eq!(seen.known(Millis(8_999)), Known::Fresh(Rc::new(7)));
        assert_eq!(seen.known(Millis(9_999)), Known::Due(Rc::new(7)));
        assert_eq!(seen.known(Millis(10_000)), Known::Nothing);
    }

    #[test]
    fn a_clock_that_is_set_back_ends_belief() {
        let mut seen = read_at_one();
        assert_eq!(seen.known(Millis(900)), Known::Nothing);
        seen.begin(Millis(900));
        assert_eq!(seen.known(Millis(901)), Known::Late(Rc::new(7)));
    }
}
