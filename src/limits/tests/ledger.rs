use std::collections::BTreeMap;

use super::*;

fn limits() -> Limits {
    Limits {
        daily: Some(5),
        monthly_tokens: Some(1_000),
        ..unlimited()
    }
}

#[test]
fn totals_are_absolute_and_their_number_grows() {
    let mut account = Account::new();
    assert!(!account.has_unflushed());
    passes(&mut account, NOON, &limits(), &ask("a", 10, 20));
    let first = account.quota_snapshot(NOON);
    account.settle(NOON, &id("a"), used(10, 15));
    let second = account.quota_snapshot(NOON);
    assert!(second.seq > first.seq);
    assert_eq!((second.daily_used, second.monthly_used), (1, 25));
    let days = account.unflushed();
    assert_eq!(days.len(), 1);
    assert_eq!(days[0].seq, second.seq);
    assert_eq!(days[0].date.to_string(), "2026-06-15");
    assert_eq!(
        (
            days[0].calls,
            days[0].prompt_tokens,
            days[0].completion_tokens
        ),
        (1, 10, 15)
    );
}

#[test]
fn what_changed_while_it_was_written_stays_unwritten() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 10, 20));
    let written = account.quota_snapshot(NOON).seq;
    passes(&mut account, NOON, &limits(), &ask("b", 10, 20));
    account.flushed(written);
    assert_eq!(account.unflushed()[0].calls, 2);
    account.flushed(account.quota_snapshot(NOON).seq);
    assert!(!account.has_unflushed());
    assert!(account.unflushed().is_empty());
    // A late acknowledgement of an older write takes nothing back.
    account.flushed(written);
    assert!(!account.has_unflushed());
}

#[test]
fn an_arrival_is_nothing_the_ledger_wants_to_know() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &arrival("a"));
    assert!(!account.has_unflushed());
}

#[test]
fn refusals_are_counted_by_reason() {
    let mut account = Account::new();
    for index in 0..7 {
        account.admit(NOON, &limits(), &dispatch(index));
    }
    account.admit(NOON, &limits(), &ask("x", 5_000, 1));
    let elsewhere = BTreeMap::from([("rate".to_owned(), 1)]);
    assert!(account.note_refused(NOON, &limits(), &id("here"), &elsewhere));
    assert!(!account.note_refused(NOON, &limits(), &id("here"), &elsewhere));
    let blocked = Limits {
        blocked: true,
        ..limits()
    };
    account.admit(NOON, &blocked, &arrival("y"));
    let totals = &account.unflushed()[0];
    let counts: Vec<_> = totals
        .refused_by
        .iter()
        .map(|(k, v)| (k.as_str(), *v))
        .collect();
    let expected = [
        ("blocked", 1),
        ("daily", 2),
        ("rate", 1),
        ("request_exceeds_quota", 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!((totals.calls, totals.rejected), (5, 5));
}

#[test]
fn a_call_that_is_asked_again_is_refused_once_and_not_at_all_if_it_passes() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 900));
    for _ in 0..3 {
        refused(&mut account, NOON, &limits(), &ask("b", 100, 900));
    }
    assert_eq!(account.unflushed()[0].rejected, 1);
    account.settle(NOON, &id("a"), used(100, 0));
    passes(&mut account, NOON, &limits(), &ask("b", 100, 900));
    let totals = &account.unflushed()[0];
    assert_eq!((totals.calls, totals.rejected), (2, 0));
    assert!(totals.refused_by.is_empty());
}

#[test]
fn a_refused_call_that_became_a_job_was_not_refused() {
    let mut account = Account::new();
    for index in 0..6 {
        account.admit(NOON, &limits(), &dispatch(index));
    }
    account.admit(NOON, &limits(), &dispatch(6));
    assert!(account.note_queued(NOON, &limits(), &dispatch(5).operation));
    assert!(!account.note_queued(NOON, &limits(), &dispatch(5).operation));
    let totals = &account.unflushed()[0];
    assert_eq!((totals.rejected, totals.queued), (1, 1));
}

#[test]
fn a_refusal_that_nobody_is_told_is_not_counted() {
    let mut account = Account::new();
    for index in 0..5 {
        account.admit(NOON, &limits(), &dispatch(index));
    }
    assert!(
        account
            .admit_silently(NOON, &limits(), &dispatch(5))
            .refused_by()
            .is_some()
    );
    let peeked = account.peek(NOON, &limits(), &dispatch(6));
    assert_eq!(account.unflushed()[0].rejected, 0);
    account.count_refusal(NOON, &limits(), &dispatch(6), &peeked);
    assert_eq!(account.unflushed()[0].rejected, 1);
}

#[test]
fn reasons_do_not_grow_without_bound() {
    let mut account = Account::new();
    for index in 0..1_000 {
        let counts = BTreeMap::from([(format!("reason-{index}"), 1)]);
        account.note_refused(NOON, &limits(), &id(index), &counts);
    }
    let totals = &account.unflushed()[0];
    assert_eq!(totals.rejected, 1_000);
    assert_eq!(totals.refused_by.len(), 33);
    assert_eq!(totals.refused_by["other"], 968);
}

#[test]
fn a_settlement_is_booked_to_the_day_of_the_call() {
    let mut account = Account::new();
    let midnight = NOON.plus(Span::hours(12));
    let late = Millis(midnight.0 - 1_000);
    passes(&mut account, late, &limits(), &ask("a", 10, 20));
    account.flushed(account.quota_snapshot(late).seq);
    passes(&mut account, midnight, &limits(), &ask("b", 1, 1));
    account.settle(midnight, &id("a"), used(10, 20));
    let days = account.unflushed();
    let rows: Vec<_> = days
        .iter()
        .map(|d| (d.date.to_string(), d.calls, d.prompt_tokens))
        .collect();
    let expected = [
        ("2026-06-15".to_owned(), 1, 10),
        ("2026-06-16".to_owned(), 1, 0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn days_wait_for_the_ledger_but_not_for_ever() {
    let mut account = Account::new();
    for day in 0..20 {
        let now = NOON.plus(Span(DAY.0 * day));
        passes(&mut account, now, &limits(), &dispatch(day));
        account.settle(now, &id(day), used(0, 0));
    }
    assert_eq!(account.unflushed().len(), 8);
    let now = NOON.plus(Span(DAY.0 * 20));
    account.flushed(account.quota_snapshot(now).seq);
    passes(&mut account, now, &limits(), &dispatch("x"));
    assert_eq!(account.unflushed().len(), 1);
}

#[test]
fn totals_that_are_gone_are_never_begun_anew() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &dispatch("a"));
    account.admit(NOON.minus(Span(DAY.0 * 9)), &limits(), &dispatch("b"));
    let days = account.unflushed();
    assert_eq!(days.len(), 1);
    assert_eq!(
        (days[0].date.to_string().as_str(), days[0].calls),
        ("2026-06-15", 2)
    );
}

#[test]
fn an_account_starts_where_the_ledger_left_it() {
    let limits = limits();
    let mut account = Account::new();
    for index in 0..3 {
        passes(&mut account, NOON, &limits, &ask(index, 10, 20));
        account.settle(NOON, &id(index), used(10, 20));
    }
    let known = account.quota_snapshot(NOON);
    let days = account.unflushed();
    let mut restored = Account::restore(
        known.seq,
        Some((known.daily_used, known.day.start)),
        Some((known.monthly_used, known.month.start)),
        days,
    );
    assert!(!restored.has_unflushed());
    assert_eq!(restored.view(NOON, &limits), account.view(NOON, &limits));
    passes(&mut restored, NOON, &limits, &dispatch("x"));
    assert!(restored.quota_snapshot(NOON).seq > known.seq);
    assert_eq!(restored.unflushed()[0].calls, 4);
    let tomorrow = NOON.plus(DAY);
    assert_eq!(
        line(&restored, tomorrow, &limits, PolicyName::Daily).used,
        0
    );
    assert_eq!(
        line(&restored, tomorrow, &limits, PolicyName::MonthlyTokens).used,
        90
    );
}

#[test]
fn top_ups_and_the_cheaper_lane_survive_the_ledger() {
    let limits = Limits {
        daily: Some(2),
        ..limits()
    };
    let mut account = Account::new();
    let until = NOON.plus(Span::hours(48));
    account
        .grant(NOON, &limits, PolicyName::Daily, 2, Some(until))
        .unwrap();
    for index in 0..3 {
        passes(&mut account, NOON, &limits, &dispatch(index));
    }
    let told = account.beyond();
    let hex: String = told.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "01010180e8cfc4ec3380a0e9edec3303010201020180b4cfabed330000000000"
    );
    let known = account.quota_snapshot(NOON);
    let restored = || {
        let daily = Some((known.daily_used, known.day.start));
        let mut restored = Account::restore(known.seq, daily, None, account.unflushed());
        restored.restore_beyond(&told);
        restored
    };
    for later in [NOON, NOON.plus(Span::hours(24))] {
        let (mut lost, mut kept) = (restored(), account.clone());
        let seen = |a: &mut Account| {
            a.admit(later, &limits, &dispatch("x"));
            let line = line(a, later, &limits, PolicyName::Daily);
            (line.limit, line.used)
        };
        assert_eq!(
            seen(&mut lost),
            seen(&mut kept),
            "one of the two is used up by tomorrow"
        );
    }
    assert!(Account::new().beyond().is_empty());
    for damaged in [&told[..told.len() / 2], &[9], &[]] {
        let mut account = Account::new();
        account.restore_beyond(damaged);
        assert_eq!(account, Account::new());
    }
}

#[test]
fn a_rolling_day_survives_the_ledger() {
    let mut limits = limits();
    limits.reset.mode = ResetMode::Rolling;
    let mut account = Account::restore(1, Some((5, NOON)), None, None);
    let violation = refused(
        &mut account,
        NOON.plus(Span::hours(1)),
        &limits,
        &dispatch("a"),
    );
    assert_eq!(violation.wait, Span::hours(23));
    passes(&mut account, NOON.plus(DAY), &limits, &dispatch("a"));
}

#[test]
fn an_account_is_idle_when_all_it_knows_is_in_the_ledger() {
    let limits = Limits {
        rate: bucket_of(2, 1),
        window: window_of(10, Span::hours(5)),
        ..limits()
    };
    let mut account = Account::new();
    assert_eq!(account.idle_since(NOON), Some(Millis(0)));
    passes(&mut account, NOON, &limits, &dispatch("a"));
    account.flushed(account.quota_snapshot(NOON).seq);
    let never = NOON.plus(DAY);
    assert_eq!(account.idle_since(never), None);
    account.settle(NOON, &id("a"), used(0, 0));
    assert_eq!(account.idle_since(never), None);
    account.flushed(account.quota_snapshot(NOON).seq);
    let end = NOON.plus(Span::hours(5));
    assert_eq!(account.idle_since(Millis(end.0 - 1)), None);
    assert_eq!(account.idle_since(end), Some(end));
    let top_up = NOON.plus(Span::hours(100));
    account
        .grant(end, &limits, PolicyName::Daily, 1, Some(top_up))
        .unwrap();
    account.flushed(account.quota_snapshot(end).seq);
    assert_eq!(account.idle_since(end.plus(DAY)), None);
    assert_eq!(account.idle_since(top_up), Some(top_up));
}
