use super::*;

fn two_slots() -> Limits {
    Limits {
        max_concurrent: Some(2),
        ..unlimited()
    }
}

#[test]
fn a_slot_is_free_again_when_its_call_ends() {
    let mut account = Account::new();
    passes(&mut account, NOON, &two_slots(), &dispatch("a"));
    passes(&mut account, NOON, &two_slots(), &dispatch("b"));
    let violation = refused(&mut account, NOON, &two_slots(), &dispatch("c"));
    assert_eq!(violation.policy, PolicyName::Concurrency);
    assert_eq!(violation.cause, Cause::Held);
    let view = line(&account, NOON, &two_slots(), PolicyName::Concurrency);
    assert_eq!((view.used, view.remaining, view.window), (2, 0, None));
    account.settle(NOON, &id("a"), Outcome::Released);
    passes(&mut account, NOON, &two_slots(), &dispatch("c"));
}

#[test]
fn waits_are_spread_between_one_and_three_seconds() {
    let mut account = Account::new();
    passes(&mut account, NOON, &two_slots(), &dispatch("a"));
    passes(&mut account, NOON, &two_slots(), &dispatch("b"));
    let waits: Vec<_> = (0..200)
        .map(|index| refused(&mut account, NOON, &two_slots(), &dispatch(index)).wait)
        .collect();
    let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!(*least >= Span::seconds(1) && *most <= Span::seconds(3));
    assert!(*most > Span(2_500) && *least < Span(1_500));
    let again = refused(&mut account, NOON, &two_slots(), &dispatch(7)).wait;
    assert_eq!(again, waits[7]);
    // Nobody waits longer than the first lease lasts.
    let nearly = NOON.plus(Span(LEASE.0 - 10));
    let wait = refused(&mut account, nearly, &two_slots(), &dispatch("x")).wait;
    assert_eq!(wait, Span(10));
    passes(
        &mut account,
        nearly.plus(wait),
        &two_slots(),
        &dispatch("x"),
    );
}

#[test]
fn no_slot_leaks() {
    let mut account = Account::new();
    for round in 0..500_u64 {
        let now = NOON.plus(Span(round * LEASE.0));
        for slot in 0..2 {
            let name = format!("{round}/{slot}");
            passes(&mut account, now, &two_slots(), &dispatch(&name));
            match round % 3 {
                0 => {}
                1 => drop(account.settle(now, &id(name), used(1, 1))),
                _ => drop(account.settle(now, &id(name), Outcome::Released)),
            }
        }
    }
}

#[test]
fn a_call_that_is_asked_again_takes_one_slot() {
    let mut account = Account::new();
    for _ in 0..5 {
        passes(&mut account, NOON, &two_slots(), &dispatch("a"));
    }
    passes(&mut account, NOON, &two_slots(), &dispatch("b"));
    refused(&mut account, NOON, &two_slots(), &dispatch("c"));
}

#[test]
fn even_an_unlimited_plan_has_so_many_calls_under_way_as_can_be_stored() {
    let mut account = Account::new();
    for index in 0..4_096 {
        passes(&mut account, NOON, &unlimited(), &dispatch(index));
    }
    let shadow = Limits {
        shadow: true,
        ..unlimited()
    };
    refused(&mut account, NOON, &shadow, &dispatch("x"));
    let violation = refused(&mut account, NOON, &unlimited(), &dispatch("x"));
    assert_eq!((violation.limit, violation.cause), (4_096, Cause::Held));
    assert!(
        account.encode().len() < 400_000,
        "{}",
        account.encode().len()
    );
    passes(&mut account, NOON.plus(LEASE), &unlimited(), &dispatch("x"));
    assert!(
        account.encode().len() < 20_000,
        "{}",
        account.encode().len()
    );
}
