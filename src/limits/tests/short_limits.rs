use super::*;

#[test]
fn a_burst_passes_and_then_calls_come_evenly() {
    let limits = Limits {
        rate: bucket_of(5, 5),
        ..unlimited()
    };
    let mut account = Account::new();
    for index in 0..5 {
        passes(&mut account, NOON, &limits, &arrival(index));
    }
    let violation = refused(&mut account, NOON, &limits, &arrival("x"));
    assert_eq!(violation.policy, PolicyName::Rate);
    assert_eq!(violation.cause, Cause::Spent);
    assert_eq!((violation.limit, violation.remaining), (5, 0));
    assert_eq!(violation.wait, Span::seconds(12));
    assert_eq!(violation.resets_at, NOON.plus(Span::seconds(12)));
    wait_is_exact(&account, NOON, &limits, &arrival("x"));
}

#[test]
fn a_call_may_weigh_more_than_one() {
    let limits = Limits {
        rate: bucket_of(10, 60),
        window: window_of(10, Span::hours(1)),
        daily: Some(10),
        endpoints: vec![endpoint_of("export", 10, Span::hours(1))],
        ..unlimited()
    };
    let mut account = Account::new();
    let heavy = |name| Call {
        cost: 4,
        endpoint: Some("export".into()),
        ..dispatch(name)
    };
    passes(&mut account, NOON, &limits, &heavy("a"));
    passes(&mut account, NOON, &limits, &heavy("b"));
    for name in [
        PolicyName::Rate,
        PolicyName::Window,
        PolicyName::Daily,
        PolicyName::Endpoint("export".into()),
    ] {
        assert_eq!(line(&account, NOON, &limits, name).remaining, 2);
    }
    let all = refusal(&mut account, NOON, &limits, &heavy("c"));
    assert_eq!(all.violations.len(), 4);
    let waits: Vec<_> = all.violations.iter().map(|v| v.wait).collect();
    assert!(waits.is_sorted_by(|a, b| a >= b), "{waits:?}");
    assert_eq!(all.decisive().unwrap().policy, PolicyName::Daily);
}

#[test]
fn a_cost_above_the_whole_limit_is_no_wait() {
    let cases = [
        (
            PolicyName::Rate,
            Limits {
                rate: bucket_of(3, 60),
                ..unlimited()
            },
        ),
        (
            PolicyName::Window,
            Limits {
                window: window_of(3, DAY),
                ..unlimited()
            },
        ),
        (
            PolicyName::Daily,
            Limits {
                daily: Some(3),
                ..unlimited()
            },
        ),
        (
            PolicyName::Endpoint("e".into()),
            Limits {
                endpoints: vec![endpoint_of("e", 3, DAY)],
                ..unlimited()
            },
        ),
    ];
    for (policy, limits) in cases {
        let call = Call {
            cost: 4,
            endpoint: Some("e".into()),
            ..dispatch("a")
        };
        let expected = Rejection::ExceedsQuota {
            policy,
            limit: 3,
            cost: 4,
        };
        assert_eq!(
            rejected(&mut Account::new(), NOON, &limits, &call),
            expected
        );
    }
}

#[test]
fn a_refused_call_costs_nothing_anywhere() {
    // Endpoint 2 a minute, bucket 10 a minute, 10 a day: of 6 calls to the endpoint 2 pass.
    let limits = Limits {
        rate: bucket_of(10, 10),
        daily: Some(10),
        endpoints: vec![endpoint_of("embeddings", 2, Span::minutes(1))],
        ..unlimited()
    };
    let mut account = Account::new();
    let embeddings = |name: i32| Call {
        endpoint: Some("embeddings".into()),
        ..dispatch(name)
    };
    let verdicts: Vec<_> = (0..6)
        .map(|index| account.admit(NOON, &limits, &embeddings(index)))
        .collect();
    let passed = verdicts
        .iter()
        .filter(|v| matches!(v, Verdict::Admitted(_)));
    assert_eq!(passed.count(), 2);
    passes(&mut account, NOON, &limits, &dispatch("chat"));
    assert_eq!(line(&account, NOON, &limits, PolicyName::Daily).used, 3);
    assert_eq!(line(&account, NOON, &limits, PolicyName::Rate).remaining, 7);
}

#[test]
fn a_bucket_that_refuses_leaves_day_and_endpoint_alone() {
    let limits = Limits {
        rate: bucket_of(1, 1),
        daily: Some(10),
        endpoints: vec![endpoint_of("e", 5, Span::minutes(1))],
        ..unlimited()
    };
    let mut account = Account::new();
    let call = |name: i32| Call {
        endpoint: Some("e".into()),
        ..dispatch(name)
    };
    passes(&mut account, NOON, &limits, &call(0));
    let before = account.view(NOON, &limits);
    for index in 1..10 {
        refused(&mut account, NOON, &limits, &call(index));
    }
    assert_eq!(account.view(NOON, &limits), before);
}

#[test]
fn an_arrival_counts_for_short_limits_only() {
    let limits = Limits {
        rate: bucket_of(10, 10),
        daily: Some(10),
        max_concurrent: Some(1),
        ..unlimited()
    };
    let mut account = Account::new();
    for index in 0..10 {
        let admission = passes(&mut account, NOON, &limits, &arrival(index));
        assert_eq!(admission.reservation, None);
    }
    let violation = refused(&mut account, NOON, &limits, &arrival("x"));
    assert_eq!(violation.policy, PolicyName::Rate);
    assert_eq!(line(&account, NOON, &limits, PolicyName::Daily).used, 0);
}

#[test]
fn an_endpoint_without_a_limit_has_none() {
    let limits = Limits {
        endpoints: vec![endpoint_of("export", 1, DAY)],
        ..unlimited()
    };
    let mut account = Account::new();
    let to = |name: &str, endpoint: &str| Call {
        endpoint: Some(endpoint.into()),
        ..arrival(name)
    };
    passes(&mut account, NOON, &limits, &to("a", "export"));
    refused(&mut account, NOON, &limits, &to("b", "export"));
    passes(&mut account, NOON, &limits, &to("c", "chat"));
    passes(&mut account, NOON, &limits, &arrival("d"));
}

#[test]
fn zero_is_none_and_absent_is_unlimited() {
    let zeros = [
        (
            PolicyName::Daily,
            Limits {
                daily: Some(0),
                ..unlimited()
            },
        ),
        (
            PolicyName::MonthlyTokens,
            Limits {
                monthly_tokens: Some(0),
                ..unlimited()
            },
        ),
        (
            PolicyName::Rate,
            Limits {
                rate: bucket_of(0, 60),
                ..unlimited()
            },
        ),
        (
            PolicyName::Rate,
            Limits {
                rate: bucket_of(0, 0),
                ..unlimited()
            },
        ),
        (
            PolicyName::Window,
            Limits {
                window: window_of(0, DAY),
                ..unlimited()
            },
        ),
        (
            PolicyName::TokensPerMinute,
            Limits {
                tokens_per_minute: Some(0),
                ..unlimited()
            },
        ),
        (
            PolicyName::Concurrency,
            Limits {
                max_concurrent: Some(0),
                ..unlimited()
            },
        ),
        (
            PolicyName::Endpoint("e".into()),
            Limits {
                endpoints: vec![endpoint_of("e", 0, DAY)],
                ..unlimited()
            },
        ),
    ];
    for (policy, limits) in zeros {
        let call = Call {
            endpoint: Some("e".into()),
            ..ask("a", 1, 1)
        };
        let violation = refused(&mut Account::new(), NOON, &limits, &call);
        assert_eq!(
            (violation.policy, violation.cause),
            (policy, Cause::Nothing)
        );
        assert_eq!((violation.limit, violation.remaining), (0, 0));
        assert!(violation.wait > Span::ZERO);
    }
    let mut account = Account::new();
    for index in 0..1_000 {
        passes(&mut account, NOON, &unlimited(), &ask(index, 1_000, 1_000));
    }
}

#[test]
fn a_bucket_without_refill_is_used_once() {
    let limits = Limits {
        rate: bucket_of(1, 0),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &arrival("a"));
    let violation = refused(&mut account, NOON.plus(DAY), &limits, &arrival("b"));
    assert_eq!((violation.cause, violation.wait), (Cause::Nothing, DAY));
}

#[test]
fn calls_that_are_not_limited_are_not_counted_by_short_limits() {
    let limits = Limits {
        rate: bucket_of(1, 1),
        ..unlimited()
    };
    let mut account = Account::new();
    for index in 0..10 {
        passes(&mut account, NOON, &unlimited(), &arrival(index));
    }
    passes(&mut account, NOON, &limits, &arrival("x"));
}

#[test]
fn a_blocked_user_is_told_so_and_charged_nothing() {
    let limits = Limits {
        rate: bucket_of(2, 1),
        ..unlimited()
    };
    let blocked = Limits {
        blocked: true,
        ..limits.clone()
    };
    let mut account = Account::new();
    let before = account.view(NOON, &limits);
    for call in [arrival("a"), dispatch("b")] {
        assert_eq!(
            rejected(&mut account, NOON, &blocked, &call),
            Rejection::Blocked
        );
    }
    assert_eq!(account.view(NOON, &limits), before);
}
