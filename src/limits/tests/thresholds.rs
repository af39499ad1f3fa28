use super::*;

fn limits() -> Limits {
    Limits {
        daily: Some(100),
        monthly_tokens: Some(1_000),
        notify_at_permille: vec![800, 1_000],
        ..unlimited()
    }
}

fn shares(account: &mut Account) -> Vec<(PolicyName, u32)> {
    let crossings = account.take_crossings().into_iter();
    crossings.map(|c| (c.policy, c.permille)).collect()
}

fn run(account: &mut Account, now: Millis, limits: &Limits, calls: std::ops::Range<u64>) {
    for index in calls {
        account.admit(now, limits, &dispatch(index));
    }
}

#[test]
fn each_threshold_is_told_once() {
    let mut account = Account::new();
    run(&mut account, NOON, &limits(), 0..79);
    assert_eq!(shares(&mut account), []);
    run(&mut account, NOON, &limits(), 79..80);
    let crossing = account.take_crossings().remove(0);
    let expected = Crossing {
        policy: PolicyName::Daily,
        permille: 800,
        used: 80,
        limit: 100,
        period_start: NOON.minus(Span::hours(12)),
        period_end: NOON.plus(Span::hours(12)),
    };
    assert_eq!(crossing, expected);
    // To the limit, and far beyond it in refusals.
    run(&mut account, NOON, &limits(), 80..300);
    assert_eq!(shares(&mut account), [(PolicyName::Daily, 1_000)]);
    let tomorrow = NOON.plus(DAY);
    run(&mut account, tomorrow, &limits(), 300..380);
    assert_eq!(shares(&mut account), [(PolicyName::Daily, 800)]);
}

#[test]
fn a_jump_across_several_tells_each() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 500, 500));
    account.settle(NOON, &id("a"), used(500, 500));
    let month = PolicyName::MonthlyTokens;
    assert_eq!(shares(&mut account), [(month.clone(), 800), (month, 1_000)]);
}

#[test]
fn a_release_and_another_call_cross_nothing_again() {
    let mut account = Account::new();
    run(&mut account, NOON, &limits(), 0..80);
    assert_eq!(shares(&mut account).len(), 1);
    account.settle(NOON, &id(79), Outcome::Released);
    run(&mut account, NOON, &limits(), 80..85);
    assert_eq!(shares(&mut account), []);
}

#[test]
fn a_lowered_limit_crosses_at_the_next_touch() {
    let mut account = Account::new();
    run(&mut account, NOON, &limits(), 0..50);
    let lowered = Limits {
        daily: Some(60),
        ..limits()
    };
    for index in 0..5 {
        account.admit(NOON, &lowered, &arrival(index));
    }
    assert_eq!(shares(&mut account), [(PolicyName::Daily, 800)]);
    run(&mut account, NOON, &limits(), 50..90);
    assert_eq!(shares(&mut account), []);
}

#[test]
fn a_settlement_crosses_without_another_call() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 100, 900));
    assert_eq!(shares(&mut account), []);
    account.settle(NOON, &id("a"), used(100, 750));
    assert_eq!(shares(&mut account), [(PolicyName::MonthlyTokens, 800)]);
}

#[test]
fn a_lost_call_crosses_when_its_lease_ends() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 850, 100));
    account.reclaim(NOON.plus(LEASE));
    assert_eq!(shares(&mut account), [(PolicyName::MonthlyTokens, 800)]);
}

#[test]
fn a_month_that_is_over_interests_nobody() {
    // 2026-06-30T23:59:59Z
    let eve = Millis(1_782_863_999_000);
    let mut account = Account::new();
    passes(&mut account, eve, &limits(), &ask("a", 100, 900));
    account.settle(eve.plus(Span::seconds(5)), &id("a"), used(100, 900));
    assert_eq!(shares(&mut account), []);
}

#[test]
fn an_untaken_crossing_is_stored() {
    let mut account = Account::new();
    run(&mut account, NOON, &limits(), 0..80);
    let mut read = Account::decode(&account.encode(), Vec::new()).unwrap();
    assert_eq!(shares(&mut read), [(PolicyName::Daily, 800)]);
    let mut read = Account::decode(&read.encode(), Vec::new()).unwrap();
    assert_eq!(shares(&mut read), []);
}

#[test]
fn what_was_crossed_before_a_restart_from_the_ledger_is_not_told_again() {
    let day = NOON.minus(Span::hours(12));
    let mut account = Account::restore(7, Some((85, day)), None, None);
    run(&mut account, NOON, &limits(), 0..5);
    assert_eq!(shares(&mut account), []);
    run(&mut account, NOON, &limits(), 5..15);
    assert_eq!(shares(&mut account), [(PolicyName::Daily, 1_000)]);
}

#[test]
fn a_top_up_moves_the_thresholds() {
    let mut account = Account::new();
    account
        .grant(NOON, &limits(), PolicyName::Daily, 100, None)
        .unwrap();
    run(&mut account, NOON, &limits(), 0..159);
    assert_eq!(shares(&mut account), []);
    run(&mut account, NOON, &limits(), 159..160);
    assert_eq!(account.take_crossings()[0].limit, 200);
}

#[test]
fn a_limit_of_zero_has_no_thresholds() {
    let none = Limits {
        daily: Some(0),
        notify_at_permille: vec![0, 800],
        ..unlimited()
    };
    let mut account = Account::new();
    run(&mut account, NOON, &none, 0..3);
    assert_eq!(shares(&mut account), []);
}
