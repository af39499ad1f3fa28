use super::*;

fn capped(cap: u64, mode: MaxTokensMode) -> Limits {
    Limits {
        max_tokens_per_request: Some(cap),
        max_tokens_mode: mode,
        monthly_tokens: Some(1_000_000),
        rate: bucket_of(100, 1),
        ..unlimited()
    }
}

fn asks(max_tokens: Option<u64>, choices: u64) -> Call {
    let tokens = Tokens {
        prompt: 10,
        max_tokens,
        choices,
    };
    call("a", Work::Dispatch(tokens))
}

#[track_caller]
fn granted(limits: &Limits, call: &Call) -> (Option<u64>, Option<u64>) {
    let admission = passes(&mut Account::new(), NOON, limits, call);
    (admission.max_tokens, admission.reserved_tokens)
}

#[test]
fn the_cap_is_for_all_choices_together() {
    let limits = capped(200, MaxTokensMode::Reject);
    assert_eq!(
        granted(&limits, &asks(Some(200), 1)),
        (Some(200), Some(210))
    );
    assert_eq!(granted(&limits, &asks(Some(20), 10)), (Some(20), Some(210)));
    for call in [
        asks(Some(201), 1),
        asks(Some(200), 10),
        asks(Some(u64::MAX), u64::MAX),
    ] {
        let rejection = rejected(&mut Account::new(), NOON, &limits, &call);
        assert_eq!(rejection, Rejection::MaxTokens { cap: 200 });
    }
}

#[test]
fn absent_means_the_cap() {
    let limits = capped(200, MaxTokensMode::Reject);
    assert_eq!(granted(&limits, &asks(None, 1)), (Some(200), Some(210)));
    assert_eq!(granted(&limits, &asks(None, 3)), (Some(66), Some(208)));
}

#[test]
fn a_clamping_plan_lowers() {
    let limits = capped(200, MaxTokensMode::Clamp);
    assert_eq!(
        granted(&limits, &asks(Some(201), 1)),
        (Some(200), Some(210))
    );
    assert_eq!(granted(&limits, &asks(Some(200), 3)), (Some(66), Some(208)));
    let rejection = rejected(&mut Account::new(), NOON, &limits, &asks(Some(1), 201));
    assert_eq!(rejection, Rejection::MaxTokens { cap: 200 });
}

#[test]
fn a_cap_of_zero_lets_nothing_be_completed() {
    for mode in [MaxTokensMode::Reject, MaxTokensMode::Clamp] {
        let limits = capped(0, mode);
        for call in [asks(None, 1), asks(Some(1), 1)] {
            let rejection = rejected(&mut Account::new(), NOON, &limits, &call);
            assert_eq!(rejection, Rejection::MaxTokens { cap: 0 });
        }
        assert_eq!(granted(&limits, &asks(None, 0)), (None, Some(10)));
    }
}

#[test]
fn without_a_cap_a_default_is_reserved_where_tokens_are_limited() {
    let limits = Limits {
        tokens_per_minute: Some(1_000_000),
        ..unlimited()
    };
    let expected = DEFAULT_MAX_TOKENS;
    assert_eq!(
        granted(&limits, &asks(None, 2)),
        (Some(expected), Some(10 + 2 * expected))
    );
    assert_eq!(granted(&limits, &asks(None, 0)), (None, Some(10)));
    assert_eq!(granted(&unlimited(), &asks(None, 1)), (None, None));
    assert_eq!(granted(&unlimited(), &asks(Some(7), 1)), (Some(7), None));
}

#[test]
fn a_model_the_plan_does_not_list_is_not_allowed() {
    let mut limits = unlimited();
    limits.allowed_models = Some(vec![ModelPattern("m-s*".into()), ModelPattern("n".into())]);
    let named = |model: Option<&str>| Call {
        model: model.map(str::to_owned),
        ..dispatch("a")
    };
    for model in [Some("m-small"), Some("m-s"), Some("n"), None] {
        passes(&mut Account::new(), NOON, &limits, &named(model));
    }
    for model in ["m-big", "M-small", " m-small", "nn", ""] {
        let rejection = rejected(&mut Account::new(), NOON, &limits, &named(Some(model)));
        assert_eq!(rejection, Rejection::ModelNotAllowed);
    }
    limits.allowed_models = Some(Vec::new());
    let rejection = rejected(&mut Account::new(), NOON, &limits, &named(Some("n")));
    assert_eq!(rejection, Rejection::ModelNotAllowed);
}

#[test]
fn wrong_input_counts_as_an_arrival_and_never_as_work() {
    let limits = Limits {
        rate: bucket_of(10, 1),
        daily: Some(10),
        max_tokens_per_request: Some(1),
        ..unlimited()
    };
    let mut account = Account::new();
    for _ in 0..10 {
        let rejection = rejected(&mut account, NOON, &limits, &asks(Some(2), 1));
        assert_eq!(rejection, Rejection::MaxTokens { cap: 1 });
    }
    let violation = refused(&mut account, NOON, &limits, &asks(Some(2), 1));
    assert_eq!(violation.policy, PolicyName::Rate);
    assert_eq!(line(&account, NOON, &limits, PolicyName::Daily).used, 0);
}
