use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime};
use serde::{Deserialize, Serialize};

use super::zone::WIDEST_JUMP;
use super::{Millis, Span, Zone};

/// Instants past the year 9999 are taken for its end: no calendar reaches further.
const LAST: u64 = 253_402_300_799_999;

/// A stretch of time in which a quota counts, from `start` up to but without `end`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Period {
    /// Its first instant, which also tells it from others.
    pub start: Millis,
    /// The first instant after it.
    pub end: Millis,
}

impl Period {
    /// How long it is: 23 or 25 hours for some days.
    pub const fn length(self) -> Span {
        self.end.since(self.start)
    }
}

/// The local calendar day around `now`. It begins at the first midnight of its date, or, where clocks
/// jump over midnight, with its first instant; a midnight that comes twice begins it once.
pub fn calendar_day(timezone: Zone, now: Millis) -> Period {
    let date = local_date(timezone, now);
    enclosing(now, |days| first_instant(timezone, shifted(date, days)))
}

/// The token month around `now`: from the local `billing_day` to the next, clamped in short months, so
/// that 31 means the last of each.
pub fn billing_month(timezone: Zone, billing_day: u8, now: Millis) -> Period {
    let date = local_date(timezone, now);
    let month = i64::from(date.year()) * 12 + i64::from(date.month0());
    enclosing(now, |months| {
        first_instant(timezone, anchored(month + months, billing_day))
    })
}

/// A day of 24 hours that begins with a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RollingDay {
    /// When its first call was charged.
    pub began: Millis,
}

impl RollingDay {
    /// How long every rolling day is.
    pub const LENGTH: Span = Span::hours(24);

    /// Its period.
    pub const fn period(self) -> Period {
        Period {
            start: self.began,
            end: self.began.plus(Self::LENGTH),
        }
    }

    /// Whether it is over; the next one begins with the next charged call.
    pub fn is_over(self, now: Millis) -> bool {
        self.period().end <= now
    }
}

/// A calendar date, as days since 1970-01-01; shown as `2026-06-22`.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct LocalDate(i32);

impl LocalDate {
    /// The date in `timezone` at `now`.
    pub fn at(timezone: Zone, now: Millis) -> Self {
        Self::from_naive(local_date(timezone, now))
    }

    fn from_naive(date: NaiveDate) -> Self {
        Self(date.to_epoch_days())
    }
}

impl fmt::Display for LocalDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NaiveDate::from_epoch_days(self.0)
            .unwrap_or_default()
            .fmt(f)
    }
}

impl FromStr for LocalDate {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::from_naive)
    }
}

/// The stretch around `now` between two neighbours of a rising row of boundaries; the 0th is near.
fn enclosing(now: Millis, boundary: impl Fn(i64) -> Millis) -> Period {
    let now = Millis(now.0.min(LAST));
    let mut at = 0;
    while at > -3 && boundary(at) > now {
        at -= 1;
    }
    while at < 3 && boundary(at + 1) <= now {
        at += 1;
    }
    Period {
        start: boundary(at),
        end: boundary(at + 1),
    }
}

fn local_date(timezone: Zone, now: Millis) -> NaiveDate {
    let now = Millis(now.0.min(LAST));
    let millis = i64::try_from(now.0).unwrap_or_default();
    DateTime::from_timestamp_millis(millis + timezone.offset_at(now))
        .unwrap_or_default()
        .date_naive()
}

fn shifted(date: NaiveDate, days: i64) -> NaiveDate {
    let distance = Days::new(days.unsigned_abs());
    let moved = if days < 0 {
        date.checked_sub_days(distance)
    } else {
        date.checked_add_days(distance)
    };
    moved.unwrap_or(date)
}

/// The billing day in a month counted from the year 0.
fn anchored(month: i64, billing_day: u8) -> NaiveDate {
    let year = i32::try_from(month.div_euclid(12)).unwrap_or_default();
    let month = u32::try_from(month.rem_euclid(12)).unwrap_or_default() + 1;
    (1..=u32::from(billing_day.clamp(1, 31)))
        .rev()
        .find_map(|day| NaiveDate::from_ymd_opt(year, month, day))
        .unwrap_or_default()
}

/// The first instant at which the local calendar shows `date` or a later one.
fn first_instant(timezone: Zone, date: NaiveDate) -> Millis {
    let midnight = date.and_time(NaiveTime::MIN);
    let shown = timezone.first_at(midnight);
    shown.unwrap_or_else(|| end_of_gap(timezone, date))
}

/// The instant at which clocks jump over the midnight that begins `date`. Around a jump forward the
/// local time only rises, so halving finds it.
fn end_of_gap(timezone: Zone, date: NaiveDate) -> Millis {
    let as_utc = millis(date.and_time(NaiveTime::MIN).and_utc().timestamp_millis());
    let mut before = as_utc.minus(WIDEST_JUMP);
    let mut after = as_utc.plus(WIDEST_JUMP);
    while after.since(before) > Span(1) {
        let middle = before.plus(Span(after.since(before).0 / 2));
        if local_date(timezone, middle) < date {
            before = middle;
        } else {
            after = middle;
        }
    }
    after
}

/// Instants before the epoch are taken for it.
fn millis(timestamp: i64) -> Millis {
    Millis(u64::try_from(timestamp).unwrap_or_default())
}
