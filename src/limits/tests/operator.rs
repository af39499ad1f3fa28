use proptest::prelude::*;

use super::*;

fn limits() -> Limits {
    Limits {
        daily: Some(2),
        monthly_tokens: Some(100),
        rate: bucket_of(20, 1),
        window: window_of(20, Span::hours(1)),
        tokens_per_minute: Some(1_000),
        endpoints: vec![endpoint_of("e", 20, Span::hours(1))],
        ..unlimited()
    }
}

fn daily(account: &Account, now: Millis) -> (u64, u64, u64) {
    let view = line(account, now, &limits(), PolicyName::Daily);
    (view.limit, view.used, view.remaining)
}

fn use_up(account: &mut Account, now: Millis, calls: std::ops::Range<u64>) {
    for index in calls {
        let call = Call {
            endpoint: Some("e".into()),
            ..ask(format!("{}-{index}", now.0), 1, 0)
        };
        passes(account, now, &limits(), &call);
        account.settle(now, &call.operation, used(1, 0));
    }
}

#[test]
fn a_reset_forgets_what_was_used_of_the_named_policies() {
    let mut account = Account::new();
    use_up(&mut account, NOON, 0..2);
    account.reset(NOON, &limits(), &[PolicyName::Daily]);
    assert_eq!(daily(&account, NOON), (2, 0, 2));
    assert_eq!(
        line(&account, NOON, &limits(), PolicyName::Rate).remaining,
        18
    );
    account.reset(NOON, &limits(), &[]);
    for view in account.view(NOON, &limits()) {
        assert_eq!(
            (view.used, view.remaining),
            (0, view.limit),
            "{}",
            view.name
        );
    }
    use_up(&mut account, NOON, 2..4);
}

#[test]
fn calls_under_way_survive_a_reset_and_give_back_nothing_of_it() {
    let limits = Limits {
        daily: Some(10),
        max_concurrent: Some(9),
        ..limits()
    };
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 10, 10));
    passes(&mut account, NOON, &limits, &ask("b", 10, 10));
    account.reset(NOON, &limits, &[]);
    assert_eq!(
        line(&account, NOON, &limits, PolicyName::Concurrency).used,
        2
    );
    passes(&mut account, NOON, &limits, &ask("c", 30, 10));
    // No bonus: neither the day nor the minute sinks below what was used since.
    account.settle(NOON, &id("a"), Outcome::Released);
    assert_eq!(line(&account, NOON, &limits, PolicyName::Daily).used, 1);
    let minute = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!(minute.remaining, 960);
    // What a call used is booked when it settles.
    account.settle(NOON, &id("b"), used(10, 5));
    let month = line(&account, NOON, &limits, PolicyName::MonthlyTokens);
    assert_eq!((month.used, month.reserved), (15, 40));
    let minute = line(&account, NOON, &limits, PolicyName::TokensPerMinute);
    assert_eq!(minute.remaining, 945);
}

#[test]
fn a_correction_after_a_reset_is_no_bonus() {
    let limits = limits();
    let mut account = Account::new();
    passes(&mut account, NOON, &limits, &ask("a", 50, 10));
    let end = NOON.plus(LEASE);
    account.reclaim(end);
    account.reset(end, &limits, &[]);
    passes(&mut account, end, &limits, &ask("b", 40, 0));
    account.settle(end, &id("b"), used(40, 0));
    account.settle(end, &id("a"), used(0, 0));
    let month = line(&account, end, &limits, PolicyName::MonthlyTokens);
    assert_eq!((month.used, month.reserved), (40, 0));
}

#[test]
fn a_reset_begins_the_thresholds_anew() {
    let limits = Limits {
        notify_at_permille: vec![1_000],
        ..limits()
    };
    let mut account = Account::new();
    use_up(&mut account, NOON, 0..2);
    account.admit(NOON, &limits, &arrival("touch"));
    assert_eq!(account.take_crossings().len(), 1);
    account.reset(NOON, &limits, &[PolicyName::Daily]);
    use_up(&mut account, NOON, 5..7);
    account.admit(NOON, &limits, &arrival("touch"));
    assert_eq!(account.take_crossings().len(), 1);
}

#[test]
fn a_top_up_is_for_the_current_period() {
    let mut account = Account::new();
    account
        .grant(NOON, &limits(), PolicyName::Daily, 3, None)
        .unwrap();
    assert_eq!(daily(&account, NOON), (5, 0, 5));
    use_up(&mut account, NOON, 0..5);
    refused(&mut account, NOON, &limits(), &dispatch("x"));
    let tomorrow = NOON.plus(DAY);
    assert_eq!(daily(&account, tomorrow), (2, 0, 2));
}

#[test]
fn a_dated_top_up_loses_what_was_used_of_it() {
    let expires = NOON.plus(Span::hours(60));
    let mut account = Account::new();
    account
        .grant(NOON, &limits(), PolicyName::Daily, 10, Some(expires))
        .unwrap();
    use_up(&mut account, NOON, 0..5);
    assert_eq!(daily(&account, NOON), (12, 5, 7));
    let tomorrow = NOON.plus(DAY);
    assert_eq!(daily(&account, tomorrow), (9, 0, 9));
    use_up(&mut account, tomorrow, 0..1);
    let after = NOON.plus(Span::hours(48));
    assert_eq!(daily(&account, after), (9, 0, 9));
    assert_eq!(daily(&account, Millis(expires.0 - 1)), (9, 0, 9));
    assert_eq!(daily(&account, expires), (2, 0, 2));
}

#[test]
fn what_an_expired_top_up_has_paid_stays_paid() {
    let limits = limits();
    let mut account = Account::new();
    let (soon, late) = (NOON.plus(Span::hours(1)), NOON.plus(Span::hours(99)));
    account
        .grant(NOON, &limits, PolicyName::Daily, 10, Some(late))
        .unwrap();
    account
        .grant(NOON, &limits, PolicyName::Daily, 10, Some(soon))
        .unwrap();
    use_up(&mut account, NOON, 0..6);
    // 2 by the plan, 4 by the first to expire; the other is whole.
    assert_eq!(daily(&account, soon), (16, 6, 10));
    assert_eq!(daily(&account, NOON.plus(DAY)), (12, 0, 12));
}

#[test]
fn a_top_up_of_tokens_lets_larger_calls_pass() {
    let mut account = Account::new();
    let big = ask("a", 150, 10);
    rejected(&mut account, NOON, &limits(), &big);
    let month = PolicyName::MonthlyTokens;
    account
        .grant(NOON, &limits(), month.clone(), 100, None)
        .unwrap();
    passes(&mut account, NOON, &limits(), &big);
    assert_eq!(line(&account, NOON, &limits(), month).remaining, 40);
}

#[test]
fn a_top_up_of_nothing_else() {
    let mut account = Account::new();
    let mut grant = |policy, expires_at| account.grant(NOON, &limits(), policy, 1, expires_at);
    assert_eq!(grant(PolicyName::Rate, None), Err(GrantError::NotAQuota));
    assert_eq!(
        grant(PolicyName::Daily, Some(NOON)),
        Err(GrantError::Expired)
    );
}

#[test]
fn a_thousand_top_ups_are_few_pools_and_nothing_is_lost() {
    let mut account = Account::new();
    for hour in 0..1_000 {
        let expires = NOON.plus(Span::hours(1 + hour));
        account
            .grant(NOON, &limits(), PolicyName::Daily, 1, Some(expires))
            .unwrap();
        account
            .grant(NOON, &limits(), PolicyName::Daily, 1, None)
            .unwrap();
    }
    assert_eq!(daily(&account, NOON).0, 2_002);
    assert!(account.encode().len() < 600, "{}", account.encode().len());
}

#[test]
fn a_rolling_day_that_has_not_begun_can_be_topped_up() {
    let mut limits = limits();
    limits.reset.mode = ResetMode::Rolling;
    let mut account = Account::new();
    account
        .grant(NOON, &limits, PolicyName::Daily, 1, None)
        .unwrap();
    let later = NOON.plus(Span::hours(50));
    account.admit(later, &limits, &arrival("touch"));
    assert_eq!(line(&account, later, &limits, PolicyName::Daily).limit, 3);
    passes(&mut account, later, &limits, &ask("a", 1, 0));
    let next = later.plus(DAY);
    assert_eq!(line(&account, next, &limits, PolicyName::Daily).limit, 2);
}

#[test]
fn calls_let_through_during_an_outage_are_booked_once() {
    let mut account = Account::new();
    let booked = [1, 2].map(|_| account.book_open(NOON, &limits(), &id("open"), 3, OPEN, NOON));
    assert_eq!(booked, [true, false]);
    assert_eq!(daily(&account, NOON), (2, 3, 0));
    assert_eq!(
        line(&account, NOON, &limits(), PolicyName::MonthlyTokens).used,
        50
    );
    let totals = &account.unflushed()[0];
    assert_eq!((totals.calls, totals.failed_open), (3, 3));
    assert_eq!((totals.prompt_tokens, totals.completion_tokens), (20, 30));
}

const OPEN: Metered = Metered {
    prompt: 20,
    completion: 30,
};

#[test]
fn calls_of_an_outage_that_are_booked_late_are_of_the_day_they_ended_on() {
    let mut account = Account::new();
    passes(&mut account, NOON, &limits(), &ask("a", 1, 0));
    let tomorrow = NOON.plus(DAY);
    passes(&mut account, tomorrow, &limits(), &ask("b", 1, 0));
    assert!(account.book_open(tomorrow, &limits(), &id("open"), 3, OPEN, NOON));
    assert_eq!(daily(&account, tomorrow), (2, 1, 1));
    let days: Vec<_> = account
        .unflushed()
        .iter()
        .map(|day| (day.calls, day.failed_open))
        .collect();
    assert_eq!(days, [(4, 3), (1, 0)]);
}

#[test]
fn an_operator_may_correct_what_is_used() {
    let mut account = Account::new();
    use_up(&mut account, NOON, 0..2);
    assert!(account.set_used(&PolicyName::Daily, 1));
    assert!(!account.set_used(&PolicyName::Rate, 1));
    assert_eq!(daily(&account, NOON), (2, 1, 1));
}

proptest! {
    /// Top-ups give what they hold once, however they overlap, and are refused to nobody before that.
    #[test]
    fn top_ups_are_used_once(
        steps in prop::collection::vec((0_u64..40, 0_u64..4, prop::option::of(1_u64..100)), 1..60),
    ) {
        let limits = Limits { daily: Some(2), ..unlimited() };
        let mut account = Account::new();
        let (mut now, mut today, mut name) = (NOON, (NOON.0 / DAY.0, 0_u64), 0);
        let (mut granted, mut above) = (Vec::new(), 0);
        for (hours, amount, lasts) in steps {
            now = now.plus(Span::hours(hours));
            if now.0 / DAY.0 > today.0 {
                today = (now.0 / DAY.0, 0);
            }
            let expires = lasts.map(|hours| now.plus(Span::hours(hours)));
            account.grant(now, &limits, PolicyName::Daily, amount, expires).unwrap();
            let with_day = Millis((today.0 + 1) * DAY.0);
            granted.push((expires.unwrap_or(with_day), amount));
            for _ in 0..3 {
                name += 1;
                let passes = matches!(account.admit(now, &limits, &dispatch(name)), Verdict::Admitted(_));
                if passes {
                    today.1 += 1;
                    above += u64::from(today.1 > 2);
                    prop_assert!(above <= granted.iter().map(|(_, amount)| amount).sum());
                } else {
                    let alive = granted.iter().filter(|(expires, _)| *expires > now);
                    prop_assert!(today.1 >= 2);
                    prop_assert!(alive.map(|(_, amount)| amount).sum::<u64>() <= above);
                }
            }
        }
    }
}
