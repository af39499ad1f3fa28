use super::*;

fn shadowed(limits: Limits) -> Limits {
    Limits {
        shadow: true,
        ..limits
    }
}

#[test]
fn would_be_refusals_are_counted_named_and_let_through() {
    let limits = shadowed(Limits {
        daily: Some(1),
        rate: bucket_of(1, 1),
        window: window_of(1, Span::hours(1)),
        monthly_tokens: Some(100),
        tokens_per_minute: Some(100),
        max_concurrent: Some(1),
        endpoints: vec![endpoint_of("e", 1, Span::hours(1))],
        ..unlimited()
    });
    let mut account = Account::new();
    let call = |name| Call {
        endpoint: Some("e".into()),
        ..ask(name, 50, 50)
    };
    assert_eq!(passes(&mut account, NOON, &limits, &call("a")).shadow, []);
    let second = passes(&mut account, NOON, &limits, &call("b"));
    assert_eq!(second.shadow.len(), 7);
    assert_eq!(second.max_tokens, Some(50));
    for view in account.view(NOON, &limits) {
        assert_eq!(view.remaining, 0, "{}", view.name);
    }
    assert_eq!(line(&account, NOON, &limits, PolicyName::Daily).used, 2);
    let totals = &account.unflushed()[0];
    assert_eq!((totals.calls, totals.rejected), (2, 0));
}

#[test]
fn a_shadow_bucket_goes_no_lower_than_empty() {
    let limits = shadowed(Limits {
        rate: bucket_of(2, 1),
        tokens_per_minute: Some(60),
        ..unlimited()
    });
    let mut account = Account::new();
    for index in 0..50 {
        passes(&mut account, NOON, &limits, &ask(index, 10, 20));
    }
    for index in 0..50 {
        account.settle(NOON, &id(index), used(0, 0));
    }
    // Only what was taken is given back.
    let view = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!((view.used, view.remaining), (0, 60));
    let next = NOON.plus(Span::minutes(1));
    assert_eq!(
        passes(&mut account, next, &limits, &arrival("x")).shadow,
        []
    );
}

#[test]
fn a_shadow_plan_lowers_nothing() {
    let limits = shadowed(Limits {
        monthly_tokens: Some(100),
        tokens_per_minute: Some(200),
        ..unlimited()
    });
    let admission = passes(&mut Account::new(), NOON, &limits, &ask("a", 50, 5_000));
    assert_eq!(admission.max_tokens, Some(5_000));
    assert_eq!(admission.shadow, []);
}

#[test]
fn wrong_input_and_blocked_users_are_turned_away_all_the_same() {
    let limits = shadowed(Limits {
        rate: bucket_of(1, 1),
        max_tokens_per_request: Some(1),
        ..unlimited()
    });
    let mut account = Account::new();
    for _ in 0..3 {
        let rejection = rejected(&mut account, NOON, &limits, &ask("a", 1, 2));
        assert_eq!(rejection, Rejection::MaxTokens { cap: 1 });
    }
    let blocked = Limits {
        blocked: true,
        ..limits
    };
    assert_eq!(
        rejected(&mut account, NOON, &blocked, &arrival("b")),
        Rejection::Blocked
    );
}

#[test]
fn a_shadow_window_stays_bounded() {
    let limits = shadowed(Limits {
        window: window_of(1, Span::hours(5)),
        ..unlimited()
    });
    let mut account = Account::new();
    let mut pages = storage::Pages::default();
    for index in 0..20_000_u64 {
        passes(
            &mut account,
            NOON.plus(Span(index)),
            &limits,
            &arrival(index),
        );
        pages.apply(account.take_changes());
    }
    let size = account.encode().len() + pages.size();
    assert!(size <= 16 * 1_024, "{size} bytes");
    let view = line(
        &account,
        NOON.plus(Span(20_000)),
        &limits,
        PolicyName::Window,
    );
    assert_eq!((view.used, view.remaining), (20_000, 0));
}
