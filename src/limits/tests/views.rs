use super::*;

fn everything() -> Limits {
    Limits {
        daily: Some(10),
        monthly_tokens: Some(1_000),
        rate: bucket_of(10, 10),
        window: window_of(500, Span::hours(5)),
        tokens_per_minute: Some(600),
        max_concurrent: Some(3),
        endpoints: vec![
            endpoint_of("export", 5, Span::hours(1)),
            endpoint_of("chat", 7, Span::minutes(1)),
        ],
        ..unlimited()
    }
}

#[test]
fn all_policies_stand_in_their_order() {
    let mut account = Account::new();
    let call = Call {
        endpoint: Some("export".into()),
        ..ask("a", 40, 60)
    };
    passes(&mut account, NOON, &everything(), &call);
    let views = account.view(NOON, &everything());
    let lines: Vec<_> = views
        .iter()
        .map(|v| (v.name.to_string(), v.used, v.reserved, v.remaining))
        .collect();
    let line = |name: &str, used, reserved, remaining| (name.to_owned(), used, reserved, remaining);
    let expected = [
        line("daily", 1, 0, 9),
        line("monthly-tokens", 0, 100, 900),
        line("rate", 1, 0, 9),
        line("window", 1, 0, 499),
        line("tokens-per-minute", 0, 100, 500),
        line("concurrency", 1, 0, 2),
        line("endpoint:export", 1, 0, 4),
        line("endpoint:chat", 0, 0, 7),
    ];
    assert_eq!(lines, expected);
    let ends: Vec<_> = views.iter().map(|v| v.resets_at.since(NOON).0).collect();
    let month = Millis(1_782_864_000_000).since(NOON).0;
    let hour = 3_600_000;
    assert_eq!(
        ends,
        [12 * hour, month, 6_000, 5 * hour, 10_000, 0, hour, 0]
    );
    let windows: Vec<_> = views.iter().map(|v| v.window.map(|w| w.0)).collect();
    let minute = Some(60_000);
    let expected = [
        Some(24 * hour),
        Some(30 * 24 * hour),
        minute,
        Some(5 * hour),
        minute,
        None,
        Some(hour),
        minute,
    ];
    assert_eq!(windows, expected);
}

#[test]
fn what_is_not_limited_is_left_out() {
    assert_eq!(Account::new().view(NOON, &unlimited()), []);
}

#[test]
fn looking_costs_nothing_and_needs_no_touch_to_be_right() {
    let limits = everything();
    let mut account = Account::new();
    for index in 0..3 {
        passes(&mut account, NOON, &limits, &ask(index, 40, 60));
    }
    let before = account.clone();
    for later in [
        0,
        1,
        60_000,
        120_000,
        3_600_000,
        18_000_000,
        86_400_000,
        2_000_000_000,
    ] {
        let now = NOON.plus(Span(later));
        let seen = account.view(now, &limits);
        let mut touched = account.clone();
        touched.reset(now, &limits, &[PolicyName::Concurrency]);
        assert_eq!(seen, touched.view(now, &limits), "after {later} ms");
    }
    assert_eq!(account, before);
}
