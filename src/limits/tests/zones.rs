//! Time zones, against another library with tables of its own.

use chrono::{NaiveDateTime, Offset, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};
use proptest::prelude::*;

use super::*;

/// 2000 to 2025: what was law by then is the same in every edition of the tables; of earlier times they still learn.
fn instants() -> impl Strategy<Value = i64> {
    946_684_800_i64..1_735_689_600
}

fn local(seconds: i64) -> NaiveDateTime {
    chrono::DateTime::from_timestamp(seconds, 0)
        .unwrap()
        .naive_utc()
}

fn known() -> impl Iterator<Item = (Zone, Tz)> {
    let both = |other: &Tz| Some((Zone::named(other.name())?, *other));
    TZ_VARIANTS.iter().filter_map(both)
}

#[test]
fn every_name_is_known_and_only_as_it_is_written() {
    let strange: Vec<_> = TZ_VARIANTS
        .iter()
        .filter(|tz| Zone::named(tz.name()).is_none())
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert_eq!(zone("Europe/Berlin").to_string(), "Europe/Berlin");
    for none in ["europe/berlin", "Mars/Olympus", "", "UTC ", "+01:00"] {
        assert_eq!(Zone::named(none), None, "{none}");
    }
}

#[test]
fn a_zone_is_written_by_its_name() {
    let json = serde_json::to_string(&zone("Asia/Tokyo")).unwrap();
    assert_eq!(json, r#""Asia/Tokyo""#);
    assert_eq!(
        serde_json::from_str::<Zone>(&json).unwrap(),
        zone("Asia/Tokyo")
    );
    assert!(serde_json::from_str::<Zone>(r#""Mars/Olympus""#).is_err());
}

#[test]
fn rules_go_on_beyond_the_tables() {
    let summer = |year: i32| {
        let noon = chrono::NaiveDate::from_ymd_opt(year, 7, 1).unwrap();
        let noon = noon.and_hms_opt(12, 0, 0).unwrap().and_utc();
        Millis(noon.timestamp_millis().cast_unsigned())
    };
    for year in [2026, 2040, 2500, 9999] {
        assert_eq!(
            zone("Europe/Berlin").offset_at(summer(year)),
            2 * 3_600_000,
            "{year}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn clocks_show_what_others_say(seconds in instants()) {
        let now = Millis(seconds.cast_unsigned() * 1_000);
        for (zone, other) in known() {
            let offset = other.offset_from_utc_datetime(&local(seconds)).fix();
            prop_assert_eq!(zone.offset_at(now), i64::from(offset.local_minus_utc()) * 1_000, "{}", zone);
        }
    }

    #[test]
    fn what_they_show_they_show_first_when_others_say(seconds in instants()) {
        let shown = local(seconds / 900 * 900);
        for (zone, other) in known() {
            let first = other.from_local_datetime(&shown).earliest();
            let first = first.map(|at| Millis(u64::try_from(at.timestamp_millis()).unwrap_or(0)));
            prop_assert_eq!(zone.first_at(shown), first, "{}", zone);
        }
    }
}
