use proptest::prelude::*;

use super::*;

fn limits() -> Limits {
    Limits {
        daily: Some(3),
        rate: bucket_of(5, 5),
        window: window_of(50, Span::hours(1)),
        max_concurrent: Some(2),
        ..unlimited()
    }
}

#[test]
fn a_clock_that_steps_back_over_midnight_stays_in_the_new_day() {
    let mut account = Account::new();
    let midnight = NOON.plus(Span::hours(12));
    passes(&mut account, midnight, &limits(), &dispatch("a"));
    let before = Millis(midnight.0 - 5_000);
    let view = line(&account, before, &limits(), PolicyName::Daily);
    assert_eq!((view.used, view.resets_at), (1, midnight.plus(DAY)));
    passes(&mut account, before, &limits(), &dispatch("b"));
    account.settle(before, &id("a"), used(0, 0));
    account.settle(before, &id("b"), used(0, 0));
    passes(&mut account, before, &limits(), &dispatch("c"));
    let violation = refused(&mut account, before, &limits(), &dispatch("d"));
    assert_eq!(violation.resets_at, midnight.plus(DAY));
    assert_eq!(violation.wait, Span(DAY.0 + 5_000));
}

#[test]
fn an_operator_brings_a_day_back_that_a_wrong_clock_has_moved_ahead() {
    let mut account = Account::new();
    let wrong = NOON.plus(Span(DAY.0 * 365));
    for index in 0..2 {
        passes(&mut account, wrong, &limits(), &dispatch(index));
        account.settle(wrong, &id(index), used(0, 0));
    }
    assert_eq!(line(&account, NOON, &limits(), PolicyName::Daily).used, 2);
    account.reset(NOON, &limits(), &[PolicyName::Daily]);
    let view = line(&account, NOON, &limits(), PolicyName::Daily);
    assert_eq!((view.used, view.resets_at), (0, NOON.plus(Span::hours(12))));
}

#[test]
fn stepping_back_refills_no_bucket_and_holds_it_no_longer_than_a_full_refill() {
    let limits = Limits {
        rate: bucket_of(5, 5),
        ..unlimited()
    };
    let mut account = Account::new();
    for index in 0..5 {
        passes(&mut account, NOON, &limits, &arrival(index));
    }
    let back = NOON.minus(Span::hours(1));
    let violation = refused(&mut account, back, &limits, &arrival("x"));
    assert_eq!(violation.wait, Span::seconds(60 + 12));
    wait_is_exact(&account, back, &limits, &arrival("x"));
}

#[test]
fn a_clock_that_goes_to_and_fro_refills_nothing_twice() {
    let limits = Limits {
        rate: bucket_of(5, 5),
        ..unlimited()
    };
    let mut account = Account::new();
    for index in 0..5 {
        passes(&mut account, NOON, &limits, &arrival(index));
    }
    for _ in 0..20 {
        let ahead = NOON.plus(Span::seconds(11));
        refused(&mut account, ahead, &limits, &arrival("x"));
        refused(&mut account, NOON, &limits, &arrival("x"));
    }
    passes(
        &mut account,
        NOON.plus(Span::seconds(12)),
        &limits,
        &arrival("x"),
    );
}

#[test]
fn calls_from_the_future_leave_a_window_one_span_from_now() {
    let hour = Span::hours(1);
    let limits = Limits {
        window: window_of(200, hour),
        ..unlimited()
    };
    let mut account = Account::new();
    let mut pages = storage::Pages::default();
    let wrong = NOON.plus(Span(DAY.0 * 365));
    for index in 0..200 {
        passes(
            &mut account,
            wrong.plus(Span(index)),
            &limits,
            &arrival(index),
        );
    }
    account = stored_and_read(&mut account, &mut pages);
    let view = line(&account, NOON, &limits, PolicyName::Window);
    assert_eq!((view.used, view.resets_at), (200, NOON.plus(hour)));
    let violation = refused(&mut account, NOON, &limits, &arrival("x"));
    assert_eq!(violation.wait, hour);
    account = stored_and_read(&mut account, &mut pages);
    assert_eq!(line(&account, NOON, &limits, PolicyName::Window).used, 200);
    passes(&mut account, NOON.plus(hour), &limits, &arrival("x"));
    assert_eq!(
        line(&account, NOON.plus(hour), &limits, PolicyName::Window).used,
        1
    );
}

#[test]
fn a_lease_lasts_no_longer_than_it_was_given() {
    let mut account = Account::new();
    let wrong = NOON.plus(Span(DAY.0 * 365));
    let free = Limits {
        max_concurrent: Some(1),
        ..unlimited()
    };
    passes(&mut account, wrong, &free, &dispatch("a"));
    refused(&mut account, NOON, &free, &dispatch("b"));
    passes(&mut account, NOON.plus(LEASE), &free, &dispatch("b"));
}

proptest! {
    /// Under a clock that jumps to and fro nothing breaks, a day's calls never pass its limit, and after
    /// at most the longest wait that every short limit can impose the account is usable again.
    #[test]
    fn a_mad_clock_opens_and_closes_nothing(jumps in prop::collection::vec(-7_200_000_i64..7_200_000, 1..80)) {
        let mut account = Account::new();
        let mut now = NOON;
        let mut latest = calendar_day(Zone::UTC, NOON).start;
        let mut today = 0;
        for (index, jump) in jumps.into_iter().enumerate() {
            now = Millis(now.0.saturating_add_signed(jump));
            let day = calendar_day(Zone::UTC, now).start;
            if day > latest {
                (latest, today) = (day, 0);
            }
            if let Verdict::Admitted(_) = account.admit(now, &limits(), &dispatch(index)) {
                today += 1;
            }
            prop_assert!(today <= 3);
            for view in account.view(now, &limits()) {
                prop_assert!(view.remaining <= view.limit);
            }
        }
        let short = Limits { daily: None, ..limits() };
        account.admit(now, &short, &arrival("touch"));
        let later = now.plus(Span::hours(1));
        passes(&mut account, later, &short, &dispatch("last"));
    }

    /// However often a clock is set back, in true time nobody gets more than without it.
    #[test]
    fn a_clock_set_back_lets_nobody_through_early(
        steps in prop::collection::vec((0_u64..400_000, prop_oneof![3 => Just(0_u64), 1 => 0_u64..7_200_000]), 1..150),
    ) {
        let (capacity, hour) = (3, Span::hours(1));
        let rate = Limits { rate: bucket_of(capacity, 1), ..unlimited() };
        let window = Limits { window: window_of(5, hour), ..unlimited() };
        let mut accounts = [Account::new(), Account::new()];
        let mut passed = [Vec::new(), Vec::new()];
        let (mut truth, mut behind) = (NOON, Span::ZERO);
        for (wait, set_back) in steps {
            truth = truth.plus(Span(wait));
            behind = Span(behind.0 + set_back);
            for (index, limits) in [&rate, &window].into_iter().enumerate() {
                let verdict = accounts[index].admit(truth.minus(behind), limits, &arrival("x"));
                if matches!(verdict, Verdict::Admitted(_)) {
                    passed[index].push(truth);
                }
            }
        }
        for (index, from) in passed[0].iter().enumerate() {
            for (count, to) in passed[0][index..].iter().enumerate() {
                prop_assert!((count as u64 + 1) * 60_000 <= capacity * 60_000 + to.since(*from).0);
            }
        }
        for six in passed[1].windows(6) {
            prop_assert!(six[5].since(six[0]) >= hour);
        }
    }
}
