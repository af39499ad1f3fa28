use super::*;

fn limits() -> Limits {
    Limits {
        daily: Some(2),
        monthly_tokens: Some(1_000),
        rate: bucket_of(6, 1),
        ..unlimited()
    }
}

fn cheaper(name: impl ToString, daily_limit: Option<u64>) -> Call {
    let lane = DegradedLane {
        model: "m-cheap".into(),
        daily_limit,
        allowed_models: None,
    };
    Call {
        degrade: Some(lane),
        ..ask(name, 10, 20)
    }
}

#[test]
fn over_its_quota_a_call_goes_the_cheaper_way_up_to_its_ceiling() {
    let mut account = Account::new();
    let lanes: Vec<_> = (0..4)
        .map(|index| passes(&mut account, NOON, &limits(), &cheaper(index, Some(2))).lane)
        .collect();
    assert_eq!(
        lanes,
        [Lane::Main, Lane::Main, Lane::Degraded, Lane::Degraded]
    );
    let violation = refused(&mut account, NOON, &limits(), &cheaper("x", Some(2)));
    assert_eq!(violation.policy, PolicyName::Daily);
    assert_eq!(line(&account, NOON, &limits(), PolicyName::Daily).used, 2);
    let totals = &account.unflushed()[0];
    assert_eq!((totals.calls, totals.degraded, totals.rejected), (4, 2, 1));
    let tomorrow = NOON.plus(DAY);
    assert_eq!(
        passes(&mut account, tomorrow, &limits(), &cheaper("y", Some(2))).lane,
        Lane::Main
    );
}

#[test]
fn the_month_is_booked_truthfully_and_not_enforced() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 500, 500));
    account.settle(NOON, &id("a"), used(500, 500));
    let admission = passes(&mut account, NOON, &limits(), &cheaper("b", None));
    assert_eq!(admission.lane, Lane::Degraded);
    assert_eq!(
        (admission.max_tokens, admission.reserved_tokens),
        (Some(20), Some(30))
    );
    account.settle(NOON, &id("b"), used(10, 15));
    assert_eq!(
        line(&account, NOON, &limits(), PolicyName::MonthlyTokens).used,
        1_025
    );
}

#[test]
fn short_limits_and_held_tokens_are_never_degraded() {
    let tight = Limits {
        rate: bucket_of(1, 1),
        daily: Some(1),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &tight, &cheaper("a", None));
    let all = refusal(&mut account, NOON, &tight, &cheaper("b", None));
    assert_eq!(all.violations.len(), 2);

    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 500, 500));
    let violation = refused(&mut account, NOON, &limits(), &cheaper("b", None));
    assert_eq!(violation.cause, Cause::Held);
}

#[test]
fn the_cheaper_model_has_to_be_allowed() {
    let limits = Limits {
        daily: Some(0),
        ..unlimited()
    };
    let mut call = cheaper("a", None);
    let lane = call.degrade.as_mut().unwrap();
    lane.allowed_models = Some(vec![ModelPattern("m-small".into())]);
    let violation = refused(&mut Account::new(), NOON, &limits, &call);
    assert_eq!(violation.policy, PolicyName::Daily);
    let lane = call.degrade.as_mut().unwrap();
    lane.allowed_models = Some(vec![ModelPattern("m-*".into())]);
    assert_eq!(
        passes(&mut Account::new(), NOON, &limits, &call).lane,
        Lane::Degraded
    );
}

#[test]
fn a_released_degraded_call_gives_its_own_ceiling_back() {
    let limits = Limits {
        daily: Some(1),
        ..unlimited()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &cheaper("a", Some(1)));
    passes(&mut account, NOON, &limits, &cheaper("b", Some(1)));
    refused(&mut account, NOON, &limits, &cheaper("c", Some(1)));
    account.settle(NOON, &id("b"), Outcome::Released);
    assert_eq!(line(&account, NOON, &limits, PolicyName::Daily).used, 1);
    let admission = passes(&mut account, NOON, &limits, &cheaper("c", Some(1)));
    assert_eq!(admission.lane, Lane::Degraded);
    assert_eq!(account.unflushed()[0].degraded, 1);
}

#[test]
fn a_ceiling_of_zero_is_none() {
    let limits = Limits {
        daily: Some(0),
        ..unlimited()
    };
    let violation = refused(&mut Account::new(), NOON, &limits, &cheaper("a", Some(0)));
    assert_eq!(violation.policy, PolicyName::Daily);
}
