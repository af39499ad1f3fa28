use super::*;

fn ten_a_day() -> Limits {
    Limits {
        daily: Some(10),
        ..unlimited()
    }
}

fn thousand_a_month() -> Limits {
    Limits {
        monthly_tokens: Some(1_000),
        ..unlimited()
    }
}

#[test]
fn sixty_at_once_are_ten() {
    let limits = ten_a_day();
    let mut account = Account::new();
    let verdicts = (0..60).map(|index| account.admit(NOON, &limits, &dispatch(index)));
    let passed = verdicts
        .filter(|v| matches!(v, Verdict::Admitted(_)))
        .count();
    assert_eq!(passed, 10);
    assert_eq!(
        line(&account, NOON, &limits, PolicyName::Daily).remaining,
        0
    );
}

#[test]
fn the_day_ends_at_midnight_to_the_millisecond() {
    let limits = ten_a_day();
    let mut account = Account::new();
    for index in 0..10 {
        passes(&mut account, NOON, &limits, &dispatch(index));
    }
    let violation = refused(&mut account, NOON, &limits, &dispatch("x"));
    assert_eq!(violation.cause, Cause::Spent);
    assert_eq!(violation.wait, Span::hours(12));
    assert_eq!(violation.resets_at, NOON.plus(Span::hours(12)));
    wait_is_exact(&account, NOON, &limits, &dispatch("x"));
}

#[test]
fn a_refusal_never_moves_a_reset() {
    let limits = ten_a_day();
    let mut account = Account::new();
    for index in 0..500 {
        account.admit(NOON.plus(Span::minutes(index)), &limits, &dispatch(index));
    }
    let violation = refused(&mut account, NOON, &limits, &dispatch("x"));
    assert_eq!(violation.resets_at, NOON.plus(Span::hours(12)));
}

#[test]
fn days_are_those_of_the_plans_zone() {
    let mut limits = ten_a_day();
    limits.reset.timezone = zone("Asia/Tokyo");
    limits.daily = Some(1);
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &dispatch("a"));
    let violation = refused(&mut account, NOON, &limits, &dispatch("b"));
    assert_eq!(violation.resets_at, NOON.plus(Span::hours(3)));
    wait_is_exact(&account, NOON, &limits, &dispatch("b"));
}

#[test]
fn a_rolling_day_begins_with_its_first_call() {
    let mut limits = ten_a_day();
    limits.reset.mode = ResetMode::Rolling;
    limits.daily = Some(2);
    let mut account = Account::new();
    let view = line(&account, NOON, &limits, PolicyName::Daily);
    assert_eq!(view.resets_at, NOON.plus(DAY));
    passes(&mut account, NOON, &limits, &dispatch("a"));
    let later = NOON.plus(Span::hours(20));
    passes(&mut account, later, &limits, &dispatch("b"));
    let violation = refused(&mut account, later, &limits, &dispatch("c"));
    assert_eq!(violation.wait, Span::hours(4));
    wait_is_exact(&account, later, &limits, &dispatch("c"));
    // The next one begins with its own first call, not where the last one ended.
    let next = NOON.plus(Span::hours(40));
    refused(
        &mut account.clone(),
        Millis(NOON.0 + DAY.0 - 1),
        &limits,
        &dispatch("d"),
    );
    passes(&mut account, next, &limits, &dispatch("d"));
    let view = line(&account, next, &limits, PolicyName::Daily);
    assert_eq!((view.used, view.resets_at), (1, next.plus(DAY)));
}

#[test]
fn every_counter_has_a_period_of_its_own() {
    let limits = Limits {
        daily: Some(1),
        monthly_tokens: Some(10),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 5, 5));
    account.settle(NOON, &id("a"), used(5, 5));
    let tomorrow = NOON.plus(DAY);
    let all = refusal(&mut account, tomorrow, &limits, &ask("b", 5, 5));
    let names: Vec<_> = all.violations.iter().map(|v| v.policy.clone()).collect();
    assert_eq!(names, [PolicyName::MonthlyTokens]);
    // 2026-07-01T00:00:01Z
    let next_month = Millis(1_782_864_001_000);
    passes(&mut account, next_month, &limits, &ask("c", 5, 5));
}

#[test]
fn a_lowered_limit_shows_the_truth_and_never_less_than_nothing() {
    let mut limits = ten_a_day();
    let mut account = Account::new();
    for index in 0..8 {
        passes(&mut account, NOON, &limits, &dispatch(index));
    }
    limits.daily = Some(5);
    let view = line(&account, NOON, &limits, PolicyName::Daily);
    assert_eq!((view.limit, view.used, view.remaining), (5, 8, 0));
    let violation = refused(&mut account, NOON, &limits, &dispatch("x"));
    assert_eq!(violation.remaining, 0);
    limits.daily = Some(20);
    let view = line(&account, NOON, &limits, PolicyName::Daily);
    assert_eq!(view.remaining, 12);
    passes(&mut account, NOON, &limits, &dispatch("x"));
}

#[test]
fn an_unlimited_plan_counts_for_the_next_one() {
    let mut account = Account::new();
    for index in 0..7 {
        passes(&mut account, NOON, &unlimited(), &ask(index, 50, 50));
        account.settle(NOON, &id(index), used(50, 50));
    }
    let limits = Limits {
        daily: Some(10),
        monthly_tokens: Some(1_000),
        ..unlimited()
    };
    assert_eq!(
        line(&account, NOON, &limits, PolicyName::Daily).remaining,
        3
    );
    assert_eq!(
        line(&account, NOON, &limits, PolicyName::MonthlyTokens).remaining,
        300
    );
}

#[test]
fn the_last_call_is_lowered_to_what_is_left() {
    let limits = thousand_a_month();
    let mut account = Account::new();
    let first = passes(&mut account, NOON, &limits, &ask("a", 100, 700));
    assert_eq!(
        (first.max_tokens, first.reserved_tokens),
        (Some(700), Some(800))
    );
    let second = passes(&mut account, NOON, &limits, &ask("b", 100, 700));
    assert_eq!(
        (second.max_tokens, second.reserved_tokens),
        (Some(100), Some(200))
    );
}

#[test]
fn all_choices_have_to_fit() {
    let limits = thousand_a_month();
    let mut account = Account::new();
    let asked = Tokens {
        prompt: 100,
        max_tokens: Some(500),
        choices: 4,
    };
    let admission = passes(
        &mut account,
        NOON,
        &limits,
        &call("a", Work::Dispatch(asked)),
    );
    assert_eq!(
        (admission.max_tokens, admission.reserved_tokens),
        (Some(225), Some(1_000))
    );
}

#[test]
fn used_up_and_held_by_others_are_told_apart() {
    let limits = thousand_a_month();
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 100, 900));
    let held = refused(&mut account, NOON, &limits, &ask("b", 100, 900));
    assert_eq!((held.cause, held.wait), (Cause::Held, Span::seconds(5)));
    assert_eq!(held.remaining, 0);
    account.settle(NOON, &id("a"), used(100, 850));
    let spent = refused(&mut account, NOON, &limits, &ask("b", 100, 900));
    assert_eq!((spent.cause, spent.remaining), (Cause::Spent, 50));
    wait_is_exact(&account, NOON, &limits, &ask("b", 100, 900));
    let small = passes(&mut account, NOON, &limits, &ask("c", 10, 900));
    assert_eq!(small.max_tokens, Some(40));
}

#[test]
fn worst_cases_do_not_starve_parallel_calls() {
    let limits = Limits {
        monthly_tokens: Some(10_000),
        ..unlimited()
    };
    let mut account = Account::new();
    let mut waiting: Vec<i32> = (0..8).collect();
    for _ in 0..8 {
        let mut running = Vec::new();
        waiting.retain(
            |index| match account.admit(NOON, &limits, &ask(index, 10, 4_000)) {
                Verdict::Admitted(_) => {
                    running.push(*index);
                    false
                }
                Verdict::Refused(refusal) => {
                    let decisive = refusal.decisive().unwrap();
                    assert_eq!(decisive.cause, Cause::Held);
                    assert!(decisive.wait <= Span::seconds(5));
                    true
                }
                Verdict::Rejected(rejection) => panic!("{rejection:?}"),
            },
        );
        assert!(running.len() >= 2 || waiting.is_empty());
        for index in running {
            account.settle(NOON, &id(index), used(10, 40));
        }
    }
    assert!(waiting.is_empty());
    assert_eq!(
        line(&account, NOON, &limits, PolicyName::MonthlyTokens).used,
        400
    );
}

#[test]
fn a_call_larger_than_the_whole_month_is_rejected() {
    let limits = thousand_a_month();
    let expected = Rejection::ExceedsQuota {
        policy: PolicyName::MonthlyTokens,
        limit: 1_000,
        cost: 1_001,
    };
    let mut account = Account::new();
    assert_eq!(
        rejected(&mut account, NOON, &limits, &ask("a", 1_000, 5)),
        expected
    );
    passes(&mut account, NOON, &limits, &ask("b", 999, 5));
}

#[test]
fn a_call_that_fits_to_the_token_is_not_one_that_is_too_large() {
    let limits = thousand_a_month();
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 100, 400));
    let whole = ask("b", 999, 5);
    let held = refused(&mut account, NOON, &limits, &whole);
    assert_eq!(held.cause, Cause::Held);
    account.settle(NOON, &id("a"), used(100, 0));
    let spent = refused(&mut account, NOON, &limits, &whole);
    assert_eq!(spent.cause, Cause::Spent);
    let rest = passes(&mut account, NOON, &limits, &ask("c", 899, 5));
    assert_eq!(rest.max_tokens, Some(1));
    let limits = Limits {
        tokens_per_minute: Some(600),
        ..unlimited()
    };
    let admission = passes(&mut Account::new(), NOON, &limits, &ask("d", 599, 5));
    assert_eq!(
        (admission.max_tokens, admission.reserved_tokens),
        (Some(1), Some(600))
    );
}

#[test]
fn work_without_tokens_needs_none() {
    let limits = Limits {
        monthly_tokens: Some(0),
        tokens_per_minute: Some(0),
        ..unlimited()
    };
    let admission = passes(&mut Account::new(), NOON, &limits, &dispatch("route"));
    assert_eq!(admission.max_tokens, None);
    assert_eq!(admission.reserved_tokens, Some(0));
}

#[test]
fn tokens_a_minute_lower_what_no_minute_holds_and_wait_for_the_rest() {
    let limits = Limits {
        tokens_per_minute: Some(600),
        ..unlimited()
    };
    let mut account = Account::new();
    let first = passes(&mut account, NOON, &limits, &ask("a", 100, 5_000));
    assert_eq!(
        (first.max_tokens, first.reserved_tokens),
        (Some(500), Some(600))
    );
    let violation = refused(&mut account, NOON, &limits, &ask("b", 50, 50));
    assert_eq!(violation.policy, PolicyName::TokensPerMinute);
    assert_eq!(violation.wait, Span::seconds(10));
    wait_is_exact(&account, NOON, &limits, &ask("b", 50, 50));
    // What wasn't used comes back, what was used beyond the reservation is owed.
    account.settle(NOON, &id("a"), used(100, 300));
    let view = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!((view.used, view.reserved, view.remaining), (400, 0, 200));
    passes(&mut account, NOON, &limits, &ask("c", 50, 50));
    account.settle(NOON, &id("c"), used(50, 450));
    let view = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!((view.used, view.remaining), (900, 0));
    assert_eq!(view.resets_at, NOON.plus(Span::seconds(90)));
    let huge = rejected(&mut account, NOON, &limits, &ask("d", 600, 1));
    let expected = Rejection::ExceedsQuota {
        policy: PolicyName::TokensPerMinute,
        limit: 600,
        cost: 601,
    };
    assert_eq!(huge, expected);
}

#[test]
fn the_minute_is_asked_for_what_the_month_leaves() {
    let limits = Limits {
        monthly_tokens: Some(300),
        tokens_per_minute: Some(400),
        ..unlimited()
    };
    let mut account = Account::new();
    let admission = passes(&mut account, NOON, &limits, &ask("a", 100, 5_000));
    assert_eq!(
        (admission.max_tokens, admission.reserved_tokens),
        (Some(200), Some(300))
    );
    let view = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!((view.used, view.reserved, view.remaining), (0, 300, 100));
}
