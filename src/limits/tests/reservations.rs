use super::*;

fn limits() -> Limits {
    Limits {
        daily: Some(10),
        monthly_tokens: Some(1_000),
        tokens_per_minute: Some(1_000),
        max_concurrent: Some(2),
        ..unlimited()
    }
}

#[track_caller]
fn month(account: &Account, now: Millis) -> (u64, u64) {
    let view = line(account, now, &limits(), PolicyName::MonthlyTokens);
    (view.used, view.reserved)
}

#[track_caller]
fn day(account: &Account, now: Millis) -> u64 {
    line(account, now, &limits(), PolicyName::Daily).used
}

#[test]
fn a_settlement_books_the_truth_once() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    assert_eq!(month(&account, NOON), (0, 300));
    let results = [1, 2, 3].map(|_| account.settle(NOON, &id("a"), used(90, 60)));
    let again = SettleResult::Already;
    assert_eq!(results, [SettleResult::Settled, again, again]);
    assert_eq!(month(&account, NOON), (150, 0));
    assert_eq!(
        account.settle(NOON, &id("b"), used(1, 1)),
        SettleResult::Unknown
    );
}

#[test]
fn more_than_was_reserved_is_booked_in_full() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    account.settle(NOON, &id("a"), used(100, 5_000));
    assert_eq!(month(&account, NOON), (5_100, 0));
    let view = line(&account, NOON, &limits(), PolicyName::MonthlyTokens);
    assert_eq!(view.remaining, 0);
}

#[test]
fn a_release_gives_the_quotas_back_once_and_the_short_limits_nothing() {
    let limits = Limits {
        rate: bucket_of(5, 1),
        ..limits()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 100, 200));
    passes(&mut account, NOON, &limits, &ask("b", 100, 200));
    assert_eq!(
        account.settle(NOON, &id("a"), Outcome::Released),
        SettleResult::Settled
    );
    for _ in 0..3 {
        let result = account.settle(NOON, &id("a"), Outcome::Released);
        assert_eq!(result, SettleResult::Already);
    }
    assert_eq!(day(&account, NOON), 1);
    assert_eq!(month(&account, NOON), (0, 300));
    assert_eq!(line(&account, NOON, &limits, PolicyName::Rate).remaining, 3);
    let view = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!(view.remaining, 700);
}

/// A call of 23:59:58 whose failure arrives on the next day.
#[test]
fn a_late_release_gives_the_next_day_nothing() {
    let midnight = NOON.plus(Span::hours(12));
    for touched_before in [true, false] {
        let mut account = Account::new();
        let late = Millis(midnight.0 - 2_000);
        passes(&mut account, late, &limits(), &ask("a", 10, 10));
        let after = midnight.plus(Span::seconds(3));
        if touched_before {
            account.admit(after, &limits(), &arrival("touch"));
        }
        account.settle(after, &id("a"), Outcome::Released);
        assert_eq!(day(&account, after), 0);
        for index in 0..10 {
            passes(&mut account, after, &limits(), &ask(index, 1, 1));
            account.settle(after, &id(index), used(1, 1));
        }
        refused(&mut account, after, &limits(), &ask("x", 1, 1));
    }
}

#[test]
fn a_late_settlement_stays_in_its_month() {
    // 2026-06-30T23:59:59Z
    let eve = Millis(1_782_863_999_000);
    let new_year = eve.plus(Span::seconds(2));
    let mut account = Account::new();
    passes(&mut account, eve, &limits(), &ask("a", 100, 200));
    account.admit(new_year, &limits(), &arrival("touch"));
    assert_eq!(month(&account, new_year), (0, 0));
    assert_eq!(
        account.settle(new_year, &id("a"), used(100, 200)),
        SettleResult::Settled
    );
    assert_eq!(month(&account, new_year), (0, 0));
    let days = account.unflushed();
    let june = days
        .iter()
        .find(|d| d.date.to_string() == "2026-06-30")
        .unwrap();
    assert_eq!((june.prompt_tokens, june.completion_tokens), (100, 200));
}

#[test]
fn a_call_nobody_settles_pays_its_prompt_and_frees_its_slot() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    passes(&mut account, NOON, &limits(), &ask("b", 100, 200));
    refused(&mut account, NOON, &limits(), &ask("c", 1, 1));
    let end = NOON.plus(LEASE);
    let before = Millis(end.0 - 1);
    refused(&mut account.clone(), before, &limits(), &ask("c", 1, 1));
    assert_eq!(month(&account, end), (200, 0));
    assert_eq!(day(&account, end), 2);
    passes(&mut account, end, &limits(), &ask("c", 1, 1));
    assert_eq!(month(&account, end), (200, 2));
    let totals = &account.unflushed()[0];
    assert_eq!((totals.prompt_tokens, totals.estimated_calls), (200, 2));
}

#[test]
fn the_truth_replaces_what_was_presumed() {
    let end = NOON.plus(LEASE);
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    assert!(account.reclaim(end));
    assert!(!account.reclaim(end));
    assert_eq!(month(&account, end), (100, 0));
    let results = [1, 2].map(|_| account.settle(end, &id("a"), used(80, 150)));
    assert_eq!(results, [SettleResult::Settled, SettleResult::Already]);
    assert_eq!(month(&account, end), (230, 0));
    let totals = &account.unflushed()[0];
    assert_eq!((totals.prompt_tokens, totals.completion_tokens), (80, 150));
    assert_eq!((totals.calls, totals.estimated_calls), (1, 0));
}

#[test]
fn a_release_after_the_lease_takes_the_presumption_back() {
    let end = NOON.plus(LEASE);
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    account.reclaim(end);
    account.settle(end, &id("a"), Outcome::Released);
    assert_eq!((month(&account, end), day(&account, end)), ((0, 0), 0));
    let totals = &account.unflushed()[0];
    assert_eq!(
        (totals.calls, totals.prompt_tokens, totals.estimated_calls),
        (0, 0, 0)
    );
}

#[test]
fn a_checkpoint_renews_the_lease_and_is_what_a_lost_call_pays() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    let minute = NOON.plus(Span::minutes(1));
    assert!(account.checkpoint(minute, &id("a"), 90, 40, LEASE));
    // A late, older checkpoint takes nothing back.
    assert!(account.checkpoint(minute, &id("a"), 90, 10, Span::ZERO));
    assert_eq!(month(&account, NOON.plus(LEASE)), (0, 300));
    let end = minute.plus(LEASE);
    assert_eq!(month(&account, end), (130, 0));
    assert!(!account.checkpoint(end, &id("a"), 90, 50, LEASE));
    assert!(!account.checkpoint(end, &id("nobody"), 1, 1, LEASE));
    assert_eq!(month(&account, end), (130, 0));
}

#[test]
fn what_was_metered_beyond_the_reservation_is_held_too() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 200));
    account.checkpoint(NOON, &id("a"), 100, 700, LEASE);
    assert_eq!(month(&account, NOON), (0, 800));
}

#[test]
fn the_same_operation_is_charged_once() {
    let mut account = Account::new();
    let first = passes(&mut account, NOON, &limits(), &ask("job", 100, 200));
    let before = account.view(NOON, &limits());
    for _ in 0..3 {
        let again = passes(&mut account, NOON, &limits(), &ask("job", 100, 200));
        assert!(again.replayed);
        assert_eq!(
            Admission {
                replayed: false,
                ..again
            },
            first
        );
    }
    assert_eq!(account.view(NOON, &limits()), before);
    account.settle(NOON, &id("job"), used(100, 200));
    assert!(passes(&mut account, NOON, &limits(), &ask("job", 100, 200)).replayed);
    assert_eq!(
        account.settle(NOON, &id("job"), used(9, 9)),
        SettleResult::Already
    );
    assert_eq!((month(&account, NOON), day(&account, NOON)), ((300, 0), 1));
}

/// A job whose upstream failed got its quota back, so its next attempt has to pay again.
#[test]
fn a_released_operation_that_comes_again_pays_again() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("job", 100, 200));
    account.settle(NOON, &id("job"), Outcome::Released);
    assert_eq!(day(&account, NOON), 0);
    assert!(!passes(&mut account, NOON, &limits(), &ask("job", 100, 200)).replayed);
    assert_eq!((month(&account, NOON), day(&account, NOON)), ((0, 300), 1));
    assert_eq!(
        account.settle(NOON, &id("job"), used(1, 1)),
        SettleResult::Settled
    );
    assert_eq!(day(&account, NOON), 1);
}

/// What a lapsed call held has gone to others; to ask again is to ask anew, for one charge in all.
#[test]
fn a_lapsed_operation_that_comes_again_is_decided_anew() {
    let end = NOON.plus(LEASE);
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("job", 100, 700));
    account.reclaim(end);
    let later = end.plus(Span::minutes(1));
    passes(&mut account.clone(), later, &limits(), &ask("other", 1, 1));
    let again = passes(&mut account, later, &limits(), &ask("job", 100, 700));
    assert!(!again.replayed);
    assert_eq!(
        (month(&account, later), day(&account, later)),
        ((0, 800), 1)
    );
    assert!(account.checkpoint(later, &id("job"), 100, 1, LEASE));
    account.settle(later, &id("job"), used(100, 300));
    assert_eq!(
        (month(&account, later), day(&account, later)),
        ((400, 0), 1)
    );
    let totals = &account.unflushed()[0];
    assert_eq!(
        (totals.calls, totals.prompt_tokens, totals.estimated_calls),
        (1, 100, 0)
    );
}

#[test]
fn a_lapsed_operation_gets_nothing_that_others_have_used_since() {
    let end = NOON.plus(LEASE);
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("job", 100, 800));
    passes(&mut account, end, &limits(), &ask("other", 100, 800));
    let before = account.view(end, &limits());
    refused(&mut account, end, &limits(), &ask("job", 100, 800));
    assert_eq!(account.view(end, &limits()), before);
    account.settle(end, &id("other"), used(100, 800));
    assert_eq!(
        account.settle(end, &id("job"), used(100, 5)),
        SettleResult::Settled
    );
    assert_eq!(month(&account, end), (1_005, 0));
}

#[test]
fn an_operation_under_way_that_comes_again_renews_its_lease() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("job", 1, 1));
    let minute = NOON.plus(Span::minutes(1));
    assert!(passes(&mut account, minute, &limits(), &ask("job", 1, 1)).replayed);
    assert!(!account.reclaim(NOON.plus(LEASE)));
    assert!(account.reclaim(minute.plus(LEASE)));
}

#[test]
fn a_refused_operation_may_try_again() {
    let limits = Limits {
        daily: Some(1),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &dispatch("a"));
    refused(&mut account, NOON, &limits, &dispatch("b"));
    assert!(!passes(&mut account, NOON.plus(DAY), &limits, &dispatch("b")).replayed);
}

#[test]
fn the_last_128_operations_of_15_minutes_are_remembered() {
    let mut account = Account::new();
    for index in 0..129 {
        passes(&mut account, NOON, &unlimited(), &dispatch(index));
        account.settle(NOON, &id(index), used(0, 0));
    }
    assert_eq!(
        account.settle(NOON, &id(0), used(0, 0)),
        SettleResult::Unknown
    );
    assert_eq!(
        account.settle(NOON, &id(1), used(0, 0)),
        SettleResult::Already
    );
    assert!(
        account.encode().len() <= 3 * 1_024,
        "{}",
        account.encode().len()
    );
    let later = NOON.plus(Span::minutes(15));
    passes(&mut account, later, &unlimited(), &dispatch("x"));
    account.settle(later, &id("x"), used(0, 0));
    assert_eq!(
        account.settle(later, &id(128), used(0, 0)),
        SettleResult::Unknown
    );
}

#[test]
fn an_id_of_any_length_costs_the_same() {
    let mut account = Account::new();
    let short = account.encode().len();
    passes(
        &mut account,
        NOON,
        &unlimited(),
        &dispatch("x".repeat(100_000)),
    );
    assert!(account.encode().len() < short + 200);
}
