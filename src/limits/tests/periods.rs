use chrono::DateTime;
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Millis {
    let instant = DateTime::parse_from_rfc3339(text).unwrap();
    Millis(u64::try_from(instant.timestamp_millis()).unwrap())
}

#[track_caller]
fn day_is(zone: Zone, now: &str, start: &str, end: &str) {
    let period = calendar_day(zone, at(now));
    let expected = Period {
        start: at(start),
        end: at(end),
    };
    assert_eq!(period, expected, "{zone} {now}");
}

#[track_caller]
fn month_is(billing_day: u8, now: &str, start: &str, end: &str) {
    let period = billing_month(Zone::UTC, billing_day, at(now));
    let expected = Period {
        start: at(start),
        end: at(end),
    };
    assert_eq!(period, expected, "{billing_day} {now}");
}

#[test]
fn a_utc_day_ends_at_midnight() {
    let (start, end) = ("2026-06-21T00:00:00Z", "2026-06-22T00:00:00Z");
    day_is(Zone::UTC, "2026-06-21T00:00:00Z", start, end);
    day_is(Zone::UTC, "2026-06-21T23:59:59.999Z", start, end);
    day_is(Zone::UTC, end, end, "2026-06-23T00:00:00Z");
}

#[test]
fn tokyo_resets_at_three_in_the_afternoon() {
    let zone = zone("Asia/Tokyo");
    let (start, end) = ("2026-06-21T15:00:00Z", "2026-06-22T15:00:00Z");
    day_is(zone, "2026-06-22T14:59:59.999Z", start, end);
    day_is(zone, start, start, end);
}

#[test]
fn days_with_daylight_saving_have_23_and_25_hours() {
    let zone = zone("America/New_York");
    let short = ("2025-03-09T05:00:00Z", "2025-03-10T04:00:00Z");
    day_is(zone, "2025-03-09T12:00:00Z", short.0, short.1);
    let long = ("2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z");
    for now in ["2025-11-02T05:30:00Z", "2025-11-02T06:30:00Z"] {
        day_is(zone, now, long.0, long.1);
    }
}

#[test]
fn a_day_whose_midnight_does_not_exist_begins_after_the_gap() {
    let zone = zone("America/Sao_Paulo");
    let start = "2018-11-04T03:00:00Z";
    day_is(zone, "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", start);
    day_is(zone, start, start, "2018-11-05T02:00:00Z");
}

#[test]
fn a_midnight_that_comes_twice_begins_the_day_once() {
    let havana = zone("America/Havana");
    let day = ("2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z");
    for now in [day.0, "2025-11-02T04:30:00Z", "2025-11-02T05:30:00Z"] {
        day_is(havana, now, day.0, day.1);
    }
    // Clocks went from 00:01 back to 23:01 of the day before.
    let newfoundland = zone("America/St_Johns");
    let day = ("2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z");
    for now in [day.0, "2006-10-29T02:31:00Z", "2006-10-29T03:15:00Z"] {
        day_is(newfoundland, now, day.0, day.1);
    }
}

#[test]
fn a_day_that_was_left_out_is_nobodys() {
    let start = "2011-12-30T10:00:00Z";
    let zone = zone("Pacific/Apia");
    day_is(zone, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", start);
    day_is(zone, start, start, "2011-12-31T10:00:00Z");
}

#[test]
fn months_are_calendar_months() {
    month_is(
        1,
        "2025-01-31T12:00:00Z",
        "2025-01-01T00:00:00Z",
        "2025-02-01T00:00:00Z",
    );
    month_is(
        1,
        "2024-02-29T23:59:59Z",
        "2024-02-01T00:00:00Z",
        "2024-03-01T00:00:00Z",
    );
    month_is(
        1,
        "2025-12-31T23:59:59Z",
        "2025-12-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
    );
}

#[test]
fn a_month_anchored_on_the_31st_is_clamped_and_comes_back() {
    let starts = [
        "2025-01-31T00:00:00Z",
        "2025-02-28T00:00:00Z",
        "2025-03-31T00:00:00Z",
        "2025-04-30T00:00:00Z",
        "2025-05-31T00:00:00Z",
    ];
    for pair in starts.windows(2) {
        month_is(31, pair[0], pair[0], pair[1]);
    }
    month_is(
        31,
        "2024-02-29T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "2024-03-31T00:00:00Z",
    );
    month_is(
        30,
        "2024-02-28T23:59:59Z",
        "2024-01-30T00:00:00Z",
        "2024-02-29T00:00:00Z",
    );
}

#[test]
fn billing_days_that_are_none_are_taken_for_the_nearest() {
    let now = "2025-02-10T00:00:00Z";
    month_is(0, now, "2025-02-01T00:00:00Z", "2025-03-01T00:00:00Z");
    month_is(99, now, "2025-01-31T00:00:00Z", "2025-02-28T00:00:00Z");
}

#[test]
fn a_local_date_is_written_as_people_write_it() {
    let date = LocalDate::at(zone("Asia/Tokyo"), at("2026-06-21T15:00:00Z"));
    assert_eq!(date.to_string(), "2026-06-22");
    assert_eq!("2026-06-22".parse(), Ok(date));
    assert!("yesterday".parse::<LocalDate>().is_err());
}

#[test]
fn instants_no_calendar_reaches_do_not_break_anything() {
    for now in [Millis(0), Millis(u64::MAX), Millis(253_402_300_800_000)] {
        for zone in [Zone::UTC, zone("Pacific/Apia"), zone("America/New_York")] {
            calendar_day(zone, now);
            billing_month(zone, 31, now);
            let _ = LocalDate::at(zone, now).to_string();
        }
    }
}

const ZONES: [&str; 12] = [
    "UTC",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Asia/Beirut",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
    "Asia/Tehran",
];

/// 1990 to 2035.
fn instants() -> impl Strategy<Value = Millis> {
    (631_152_000_000_u64..2_051_222_400_000).prop_map(Millis)
}

proptest! {
    /// Days and months hold their instants and follow one another without gap or overlap.
    #[test]
    fn periods_tile_time(name in prop::sample::select(&ZONES[..]), now in instants(), billing_day in 1_u8..=31) {
        let zone = zone(name);
        let day = |at| calendar_day(zone, at);
        let month = |at| billing_month(zone, billing_day, at);
        let periods: [&dyn Fn(Millis) -> Period; 2] = [&day, &month];
        for period_at in periods {
            let period = period_at(now);
            prop_assert!(period.start <= now && now < period.end);
            prop_assert_eq!(period_at(period.start), period);
            prop_assert_eq!(period_at(Millis(period.end.0 - 1)), period);
            prop_assert_eq!(period_at(period.end).start, period.end);
            prop_assert_eq!(period_at(Millis(period.start.0 - 1)).end, period.start);
        }
    }

    /// A day is as long as days are, and nearly all of it shows its own date.
    #[test]
    fn a_day_is_its_local_date(name in prop::sample::select(&ZONES[..]), now in instants()) {
        let zone = zone(name);
        let day = calendar_day(zone, now);
        prop_assert!(day.length() >= Span::hours(22) && day.length() <= Span::hours(26));
        let noon = Millis(day.start.0 + day.length().0 / 2);
        let date = LocalDate::at(zone, noon);
        prop_assert_eq!(LocalDate::at(zone, day.start), date);
        prop_assert!(LocalDate::at(zone, Millis(day.start.0 - 1)) < date);
    }
}
