//! How long a refusal is sure to be repeated.

use super::*;

fn holds(account: &mut Account, now: Millis, limits: &Limits, call: &Call) -> Option<Span> {
    let verdict = account.admit(now, limits, call);
    assert!(
        !matches!(verdict, Verdict::Admitted(_)),
        "should have been refused"
    );
    account.refusal_holds(now, limits, call, &verdict)
}

/// A day's two calls, both settled.
fn exhausted(limits: &Limits) -> Account {
    let mut account = Account::new();
    for name in ["a", "b"] {
        passes(&mut account, NOON, limits, &dispatch(name));
        account.settle(NOON, &id(name), used(1, 1));
    }
    account
}

fn two_a_day() -> Limits {
    Limits {
        daily: Some(2),
        ..unlimited()
    }
}

#[test]
fn a_used_up_day_holds_until_it_ends() {
    let limits = two_a_day();
    let mut account = exhausted(&limits);
    let hold = holds(&mut account, NOON, &limits, &dispatch("c"));
    assert_eq!(hold, Some(Span::hours(12)));
}

#[test]
fn nothing_holds_that_a_call_under_way_may_give_back() {
    let limits = two_a_day();
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &dispatch("a"));
    passes(&mut account, NOON, &limits, &dispatch("b"));
    account.settle(NOON, &id("a"), used(1, 1));
    assert_eq!(holds(&mut account, NOON, &limits, &dispatch("c")), None);
    let lapsed = NOON.plus(LEASE);
    assert_eq!(holds(&mut account, lapsed, &limits, &dispatch("d")), None);
    account.settle(lapsed, &id("b"), used(1, 1));
    assert!(holds(&mut account, lapsed, &limits, &dispatch("e")).is_some());
}

#[test]
fn a_call_that_costs_more_than_is_left_says_nothing_of_others() {
    let limits = two_a_day();
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &dispatch("a"));
    account.settle(NOON, &id("a"), used(1, 1));
    let dear = Call {
        cost: 2,
        ..dispatch("b")
    };
    assert_eq!(holds(&mut account, NOON, &limits, &dear), None);
}

#[test]
fn a_month_holds_only_when_nothing_at_all_is_left() {
    let limits = Limits {
        monthly_tokens: Some(100),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 10, 80));
    assert_eq!(holds(&mut account, NOON, &limits, &ask("b", 20, 80)), None);
    account.settle(NOON, &id("a"), used(10, 80));
    assert_eq!(holds(&mut account, NOON, &limits, &ask("c", 20, 80)), None);
    passes(&mut account, NOON, &limits, &ask("d", 5, 5));
    account.settle(NOON, &id("d"), used(5, 5));
    assert!(holds(&mut account, NOON, &limits, &ask("e", 1, 1)).is_some());
}

#[test]
fn a_bucket_holds_until_its_next_whole_token_and_a_window_until_its_next_call() {
    let limits = Limits {
        rate: bucket_of(2, 30),
        window: window_of(2, Span::minutes(5)),
        ..unlimited()
    };
    let mut account = Account::new();
    for index in 0..2 {
        passes(&mut account, NOON, &limits, &arrival(index));
    }
    // Both refuse; the bucket is the first to change its mind.
    let later = NOON.plus(Span(500));
    let hold = holds(&mut account, later, &limits, &arrival("c"));
    assert_eq!(hold, Some(Span(1_500)));
    let later = NOON.plus(Span(2_000));
    let hold = holds(&mut account, later, &limits, &arrival("c"));
    assert_eq!(hold, Some(Span(298_000)));
}

#[test]
fn an_endpoint_holds_like_a_window() {
    let limits = Limits {
        endpoints: vec![endpoint_of("e", 1, Span::minutes(5))],
        ..unlimited()
    };
    let mut account = Account::new();
    let call = Call {
        endpoint: Some("e".into()),
        ..arrival("a")
    };
    passes(&mut account, NOON, &limits, &call);
    assert_eq!(
        holds(&mut account, NOON, &limits, &call),
        Some(Span::minutes(5))
    );
}

#[test]
fn what_depends_on_others_or_on_size_holds_not_at_all() {
    let limits = Limits {
        tokens_per_minute: Some(100),
        max_concurrent: Some(1),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 50, 40));
    assert_eq!(holds(&mut account, NOON, &limits, &ask("b", 1, 1)), None);
    account.settle(NOON, &id("a"), used(50, 40));
    assert_eq!(holds(&mut account, NOON, &limits, &ask("c", 50, 40)), None);
    let never = ask("d", 1_000, 1);
    assert_eq!(holds(&mut account, NOON, &limits, &never), None);
}

#[test]
fn a_quota_that_has_a_cheaper_way_does_not_hold_but_a_short_limit_does() {
    let limits = Limits {
        rate: bucket_of(5, 1),
        ..two_a_day()
    };
    let mut account = exhausted(&limits);
    let degradable = |name| Call {
        degrade: Some(DegradedLane {
            model: "m-cheap".into(),
            daily_limit: Some(1),
            allowed_models: None,
        }),
        ..dispatch(name)
    };
    passes(&mut account, NOON, &limits, &degradable("c"));
    account.settle(NOON, &id("c"), used(1, 1));
    assert_eq!(holds(&mut account, NOON, &limits, &degradable("d")), None);
    let roomy = Limits {
        daily: Some(100),
        ..limits
    };
    for name in ["e", "f"] {
        passes(&mut account, NOON, &roomy, &degradable(name));
    }
    let hold = holds(&mut account, NOON, &roomy, &degradable("g"));
    assert_eq!(hold, Some(Span::minutes(1)));
}

#[test]
fn a_block_holds_and_a_limit_of_nothing_too() {
    let blocked = Limits {
        blocked: true,
        ..unlimited()
    };
    let mut account = Account::new();
    assert!(holds(&mut account, NOON, &blocked, &dispatch("a")).is_some());
    let nothing = Limits {
        daily: Some(0),
        rate: bucket_of(0, 0),
        window: window_of(0, Span::hours(1)),
        ..unlimited()
    };
    let hold = holds(&mut account, NOON, &nothing, &dispatch("a"));
    assert_eq!(hold, Some(Span::minutes(1)));
}
