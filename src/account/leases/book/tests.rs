use super::*;
use crate::limits::{Terms, Tokens, Work};
use crate::plans::{OnOutage, OverQuota};

const NOON: Millis = Millis(1_700_000_000_000);
const MINUTE: Span = Span::minutes(1);

fn id(name: &str) -> OperationId {
    OperationId(name.to_owned())
}

fn handed(lease: &str) -> (Handed, Snapshot) {
    let handed = Handed {
        lease: id(lease),
        calls: 100,
        tokens: None,
        lasts: Span::seconds(4),
        terms: Terms::default(),
    };
    let standing = Snapshot {
        now: NOON,
        plan_id: "p".into(),
        plan_name: "P".into(),
        over_quota: OverQuota::default(),
        on_outage: OnOutage::default(),
        blocked: false,
        allowed_models: None,
        policies: Vec::new(),
    };
    (handed, standing)
}

/// A book with a lease in it, under which the call `op` is under way.
fn book() -> Book {
    let mut book = Book::default();
    let departure = book.depart("u", &Asker::default(), NOON).unwrap();
    let lease = Some(handed("lease"));
    assert!(book.arrive("u", &Asker::default(), departure, NOON, lease));
    let call = Call {
        operation: id("op"),
        work: Work::Dispatch(Tokens {
            prompt: 1,
            max_tokens: None,
            choices: 1,
        }),
        cost: 1,
        endpoint: None,
        model: None,
        degrade: None,
        lease: MINUTE,
    };
    assert!(book.admit("u", &Asker::default(), &call, NOON).is_some());
    book
}

fn settle(book: &mut Book) -> Settled {
    let outcome = Outcome::Used {
        prompt: 1,
        completion: 9,
        estimated: false,
    };
    book.settle("u", &id("op"), outcome, Took::default(), NOON)
}

fn checkpoint(book: &mut Book, completion: u64) -> bool {
    let used = Metered {
        prompt: 1,
        completion,
    };
    book.checkpoint("u", &id("op"), used, MINUTE, NOON)
}

#[test]
fn a_checkpoint_calls_the_lease_back() {
    let mut book = book();
    assert_eq!(book.look("u", &Asker::default(), NOON), Some(false));
    assert!(checkpoint(&mut book, 500));
    assert_eq!(book.look("u", &Asker::default(), NOON), Some(true));
    let (returned, _) = book.send("u", &Asker::default(), NOON).unwrap();
    let metered = returned.open.first().and_then(|open| open.metered);
    assert_eq!(metered.map(|metered| metered.completion), Some(500));
}

#[test]
fn a_call_that_ends_while_its_lease_is_on_its_way_follows_it() {
    let mut book = book();
    book.send("u", &Asker::default(), NOON).unwrap();
    assert!(
        checkpoint(&mut book, 1),
        "the account would not know it yet"
    );
    let follows = |book: &mut Book| book.came("u", &id("lease"), true);
    assert!(follows(&mut book).is_empty());
    assert!(!checkpoint(&mut book, 2), "it has arrived");
    assert_eq!(settle(&mut book), Settled::Elsewhere);

    let mut book = self::book();
    book.send("u", &Asker::default(), NOON).unwrap();
    checkpoint(&mut book, 1);
    assert_eq!(settle(&mut book), Settled::Follows);
    let ids: Vec<_> = follows(&mut book)
        .into_iter()
        .map(|one| one.operation)
        .collect();
    assert_eq!(ids, [id("op")]);
}

#[test]
fn one_that_was_not_delivered_waits_for_the_next_who_comes() {
    let nobody = Asker::default();
    let mut book = book();
    book.send("u", &nobody, NOON).unwrap();
    assert!(book.claim("u", NOON).is_none(), "somebody carries it");
    assert!(!book.is_lost("u", &nobody, NOON));

    assert!(book.came("u", &id("lease"), false).is_empty());
    assert!(book.is_lost("u", &nobody, NOON));
    assert_eq!(settle(&mut book), Settled::Follows);
    assert!(book.depart("u", &nobody, NOON).is_none());
    let (_, returned) = book.claim("u", NOON).unwrap();
    assert_eq!(returned.lease, id("lease"));
    assert!(book.claim("u", NOON).is_none(), "once at a time");

    let gone = NOON.plus(CARRYING);
    assert!(book.claim("u", gone).is_some(), "its carrier is gone");
    assert_eq!(book.came("u", &id("lease"), true).len(), 1);
    assert!(book.claim("u", gone.plus(CARRYING)).is_none());
    assert!(book.depart("u", &nobody, gone).is_some());
}

#[test]
fn a_lease_that_nobody_heard_of_goes_back_unspent() {
    let nobody = Asker::default();
    let mut book = Book::default();
    book.depart("u", &nobody, NOON).unwrap();
    book.miss("u", &nobody, &id("op"), NOON);
    let (_, returned) = book.claim("u", NOON).unwrap();
    assert_eq!(returned, Returned::unspent(id("op")));
}

#[test]
fn what_an_operator_ended_is_spent_no_more_and_still_comes_back() {
    let other = Asker {
        key_id: Some("k".into()),
        ..Asker::default()
    };
    let mut book = book();
    book.end("u");
    assert_eq!(book.look("u", &Asker::default(), NOON), Some(true));
    book.depart("u", &other, NOON).unwrap();
    assert!(book.send("u", &Asker::default(), NOON).is_some());
}
