use proptest::prelude::*;

use super::super::window::WindowLog;
use super::*;

const HOUR: Span = Span::hours(1);

/// What is used of a window, worked out from every call that was counted.
fn used(calls: &[(Millis, u64)], now: Millis, span: Span) -> u64 {
    let held = calls.iter().filter(|(at, _)| at.plus(span) > now);
    held.map(|(_, cost)| cost).sum()
}

/// Tries a call; whether it passed.
fn tries(log: &mut WindowLog, now: Millis, limit: WindowLimit, cost: u64) -> bool {
    log.touch(now, Some(limit));
    let passes = log.wait(now, limit, cost) == Span::ZERO;
    if passes {
        log.count(now, limit, cost);
    }
    passes
}

proptest! {
    /// A small window is exact: it lets pass what the calls so far allow, and its wait is exact.
    #[test]
    fn a_small_window_is_exact(
        max_requests in 1_u64..200,
        span in prop_oneof![Just(Span(1_000)), Just(Span(7)), Just(HOUR)],
        calls in prop::collection::vec((0_u64..3, 1_u64..5), 1..300),
    ) {
        let limit = WindowLimit { max_requests, span };
        let mut log = WindowLog::default();
        let mut passed = Vec::new();
        let mut now = NOON;
        for (wait, cost) in calls {
            now = now.plus(Span(wait * span.0 / 100));
            let cost = cost.min(max_requests);
            let fits = |at| used(&passed, at, span) + cost <= max_requests;
            log.touch(now, Some(limit));
            prop_assert_eq!(log.used(now, limit), used(&passed, now, span));
            let wait = log.wait(now, limit, cost);
            prop_assert_eq!(wait == Span::ZERO, fits(now));
            if wait > Span::ZERO {
                prop_assert!(fits(now.plus(wait)) && !fits(now.plus(Span(wait.0 - 1))));
            }
            if tries(&mut log, now, limit, cost) {
                passed.push((now, cost));
            }
        }
    }

    /// A large window never lets pass more than it may, and refuses nothing that a window longer by
    /// 1/512 lets pass.
    #[test]
    fn a_large_window_errs_by_a_512th_at_most(
        max_requests in 1_100_u64..1_400,
        calls in prop::collection::vec((0_u64..40_000, 1_u64..30), 100..400),
    ) {
        let limit = WindowLimit { max_requests, span: HOUR };
        let longer = Span(HOUR.0 + HOUR.0.div_ceil(512));
        let mut log = WindowLog::default();
        let mut passed = Vec::new();
        let mut now = NOON;
        for (wait, cost) in calls {
            now = now.plus(Span(wait));
            let certain = used(&passed, now, longer) + cost <= max_requests;
            let possible = used(&passed, now, HOUR) + cost <= max_requests;
            let refused_for = { log.touch(now, Some(limit)); log.wait(now, limit, cost) };
            if refused_for > Span::ZERO {
                let then = now.plus(refused_for);
                prop_assert_eq!(log.wait(then, limit, cost), Span::ZERO);
                prop_assert!(log.wait(Millis(then.0 - 1), limit, cost) > Span::ZERO);
            }
            let passes = tries(&mut log, now, limit, cost);
            prop_assert!(passes || !certain);
            prop_assert!(!passes || possible);
            if passes {
                passed.push((now, cost));
            }
        }
    }

    /// Storing and reading it at any moment changes nothing, and no entry is lost with a page.
    #[test]
    fn pages_are_only_a_way_to_store_it(
        max_requests in prop_oneof![Just(300_u64), Just(5_000)],
        calls in prop::collection::vec((0_u64..8_000, 1_u64..4, any::<bool>()), 1..500),
    ) {
        let limits = Limits { window: window_of(max_requests, HOUR), ..unlimited() };
        let mut pages = storage::Pages::default();
        let mut kept = Account::new();
        let mut stored = Account::new();
        let mut now = NOON;
        for (index, (wait, cost, store)) in calls.into_iter().enumerate() {
            now = now.plus(Span(wait));
            let call = Call { cost, ..arrival(index) };
            prop_assert_eq!(kept.admit(now, &limits, &call), stored.admit(now, &limits, &call));
            if store {
                stored = stored_and_read(&mut stored, &mut pages);
            }
            prop_assert_eq!(kept.view(now, &limits), stored.view(now, &limits));
        }
    }
}

#[test]
fn two_calls_in_one_millisecond_are_two() {
    let limit = WindowLimit {
        max_requests: 2,
        span: HOUR,
    };
    let mut log = WindowLog::default();
    assert!(tries(&mut log, NOON, limit, 1));
    assert!(tries(&mut log, NOON, limit, 1));
    assert!(!tries(&mut log, NOON, limit, 1));
}

#[test]
fn it_slides_and_never_jumps() {
    let limit = WindowLimit {
        max_requests: 3,
        span: Span(1_000),
    };
    let mut log = WindowLog::default();
    for at in [0, 400, 900] {
        assert!(tries(&mut log, NOON.plus(Span(at)), limit, 1));
    }
    assert!(!tries(&mut log, NOON.plus(Span(999)), limit, 1));
    assert!(tries(&mut log, NOON.plus(Span(1_000)), limit, 1));
    assert!(!tries(&mut log, NOON.plus(Span(1_399)), limit, 1));
    assert!(tries(&mut log, NOON.plus(Span(1_400)), limit, 1));
}

#[test]
fn an_edited_limit_or_span_keeps_the_calls() {
    let mut log = WindowLog::default();
    let limit = |max_requests, span| WindowLimit { max_requests, span };
    for minute in 0..10 {
        let now = NOON.plus(Span::minutes(minute));
        assert!(tries(&mut log, now, limit(10, HOUR), 1));
    }
    let now = NOON.plus(Span::minutes(10));
    let used = |log: &mut WindowLog, limit| {
        log.touch(now, Some(limit));
        log.used(now, limit)
    };
    assert_eq!(used(&mut log, limit(5, HOUR)), 10);
    assert_eq!(used(&mut log, limit(2_000, Span::hours(5))), 10);
    assert_eq!(used(&mut log, limit(10, Span::minutes(5))), 4);
}

/// The largest window of the plans: what it costs to store, and what a call costs to write.
#[test]
fn ten_thousand_calls_in_five_hours_stay_small() {
    let limits = Limits {
        window: window_of(10_000, Span::hours(5)),
        ..unlimited()
    };
    let mut pages = storage::Pages::default();
    let mut account = Account::new();
    let mut written = 0;
    for index in 0..10_000_u64 {
        let now = NOON.plus(Span(index * 1_799));
        passes(&mut account, now, &limits, &arrival(index));
        let changes = account.take_changes();
        written += changes.pages_written.len();
        pages.apply(changes);
        assert!(account.encode().len() <= 1_024);
    }
    let size = account.encode().len() + pages.size();
    assert!(size <= 4 * 1_024, "{size} bytes");
    assert!(written <= 10, "{written} pages written");
}

/// Most entries one window can have: an exact one, full, whose plan was edited to a large one.
#[test]
fn no_window_is_ever_large() {
    let exact = Limits {
        window: window_of(1_024, Span::hours(5)),
        ..unlimited()
    };
    let large = Limits {
        window: window_of(u64::MAX, Span::hours(5)),
        ..unlimited()
    };
    let mut pages = storage::Pages::default();
    let mut account = Account::new();
    for index in 0..40_000_u64 {
        let now = NOON.plus(Span(index * 400));
        let limits = if index < 1_024 { &exact } else { &large };
        passes(&mut account, now, limits, &arrival(index));
        pages.apply(account.take_changes());
    }
    let size = account.encode().len() + pages.size();
    assert!(size <= 16 * 1_024, "{size} bytes");
}
