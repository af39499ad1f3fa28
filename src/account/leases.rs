//! Leases that this isolate holds: most calls of a busy user are decided here, without a hop.
//!
//! What is held is plain data. The call that got a lease keeps it, after its answer: it waits until the lease is
//! over or mostly spent, or until what was used under it has to be told, and brings it back, or takes the next one
//! for it. Whatever it finds then is all that the account is told, so a lease that is on its way back is spent no
//! more, and what its calls have to say meanwhile follows it there. One that can't be delivered waits here until
//! somebody comes who tries again.

mod book;

use std::cell::RefCell;
use std::time::Duration;

use futures::future::join_all;
use worker::{Delay, Env};

use self::book::Book;
pub use self::book::{Departure, Settled};
use super::client::{self, OutOfReach};
use super::wire::{Answer, Ask, Asker, Ended, Snapshot};
use super::{ended, open};
use crate::clock;
use crate::http::ids;
use crate::limits::{
    Admission, Call, Handed, Metered, Millis, OperationId, Outcome, Returned, Span, Took,
};
use crate::settings::Settings;

/// How often a keeper looks whether its lease is due.
const LOOK: Duration = Duration::from_millis(100);
/// How long one call keeps leases: what goes on after an answer has 30 seconds.
const KEEPING: Span = Span::seconds(10);
/// How often somebody tries in a row to deliver a lease, and what follows it.
const TRIES: u32 = 4;

thread_local! {
    static BOOK: RefCell<Book> = RefCell::new(Book::default());
}

/// Lets a call pass by a lease held here, if one is sure to allow it.
pub fn admit(user: &str, asker: &Asker, call: &Call, now: Millis) -> Option<(Admission, Snapshot)> {
    BOOK.with_borrow_mut(|book| book.admit(user, asker, call, now))
}

/// Whether a call that asks the account may ask for a lease, too: then nobody else does until it has its
/// answer.
pub fn depart(user: &str, asker: &Asker, now: Millis) -> Option<Departure> {
    BOOK.with_borrow_mut(|book| book.depart(user, asker, now))
}

/// Asks the account whether a call may pass, and for a lease along. What it hands out is taken, or, where no answer
/// came, noted to go back unspent: so this has to run to its end, whether or not the caller is still there. Gives the
/// answer, and whether there is a lease to be kept.
pub async fn ask(
    env: &Env,
    user: &str,
    asker: &Asker,
    call: Call,
    departure: Departure,
) -> (Result<Answer, OutOfReach>, bool) {
    let operation = call.operation.clone();
    let asks = Asker {
        may_lease: true,
        ..asker.clone()
    };
    let mut answer = client::ask(env, user, asks, Ask::Admit(call)).await;
    let came = now(env);
    let handed = match &mut answer {
        Ok(Answer::Decided {
            lease, standing, ..
        }) => lease.take().map(|lease| (lease, standing.clone())),
        Ok(_) => None,
        Err(OutOfReach) => {
            BOOK.with_borrow_mut(|book| book.miss(user, asker, &operation, came));
            return (answer, false);
        }
    };
    let keeps = BOOK.with_borrow_mut(|book| book.arrive(user, asker, departure, came, handed));
    (answer, keeps)
}

/// Whether a lease lies here that its keeper has lost, or that could not be delivered: whoever finds it keeps
/// it.
pub fn is_lost(user: &str, asker: &Asker, now: Millis) -> bool {
    BOOK.with_borrow_mut(|book| book.is_lost(user, asker, now))
}

/// Settles a call where its lease is.
pub fn settle(
    user: &str,
    operation: &OperationId,
    outcome: Outcome,
    took: Took,
    now: Millis,
) -> Settled {
    BOOK.with_borrow_mut(|book| book.settle(user, operation, outcome, took, now))
}

/// Notes where its lease is what a call has used so far, and that it may take `lease` longer: the account hears
/// of it with the lease, which comes back now. `false`: the account has to be told.
pub fn checkpoint(
    user: &str,
    operation: &OperationId,
    used: Metered,
    lease: Span,
    now: Millis,
) -> bool {
    BOOK.with_borrow_mut(|book| book.checkpoint(user, operation, used, lease, now))
}

/// What was asked of an account may have changed its limits: nothing handed out before is spent any more.
pub fn heed(user: &str, ask: &Ask) {
    let changes = matches!(
        ask,
        Ask::Adopt(_) | Ask::Revoke { .. } | Ask::Reset(_) | Ask::Grant { .. }
    );
    if changes {
        BOOK.with_borrow_mut(|book| book.end(user));
    }
}

/// A plan has changed: nothing handed out before is spent any more.
pub fn end_all() {
    BOOK.with_borrow_mut(Book::end_all);
}

/// Keeps a lease until it is due, and the ones that follow on it while calls are many.
pub async fn keep(env: Env, user: String, asker: Asker) {
    deliver_waiting(&env, &user, TRIES).await;
    let began = now(&env);
    loop {
        Delay::from(LOOK).await;
        let here = now(&env);
        match BOOK.with_borrow_mut(|book| book.look(&user, &asker, here)) {
            None => return,
            Some(false) => {}
            Some(true) => {
                let follow = here.since(began) < KEEPING;
                if !bring_back(&env, &user, &asker, follow, TRIES).await {
                    return;
                }
            }
        }
    }
}

/// Brings back all that is held of a user, so that the account knows everything that this isolate knows. Somebody
/// waits for it: it is tried once.
pub async fn call_in(env: &Env, user: &str) {
    deliver_waiting(env, user, 1).await;
    let askers = BOOK.with_borrow(|book| book.holders(user));
    for asker in askers {
        bring_back(env, user, &asker, false, 1).await;
    }
}

/// Delivers what could not be delivered before, now that somebody is there again: a call that ended is one.
pub async fn follow(env: &Env, user: &str) {
    deliver_waiting(env, user, TRIES).await;
}

async fn deliver_waiting(env: &Env, user: &str, tries: u32) {
    let claim = || BOOK.with_borrow_mut(|book| book.claim(user, now(env)));
    while let Some((asker, returned)) = claim() {
        let id = returned.lease.clone();
        let delivered = deliver(env, user, &asker, returned, None, tries).await;
        let follows = BOOK.with_borrow_mut(|book| book.came(user, &id, delivered.is_ok()));
        if delivered.is_err() {
            return;
        }
        tell(env, user, follows).await;
    }
}

/// Brings one lease back. Whether another one follows on it.
async fn bring_back(env: &Env, user: &str, asker: &Asker, follow: bool, tries: u32) -> bool {
    let next = follow.then(|| ids::fresh("op").ok().map(OperationId));
    let next = next.flatten();
    let departed = now(env);
    let Some((returned, departure)) = BOOK.with_borrow_mut(|book| book.send(user, asker, departed))
    else {
        return false;
    };
    let id = returned.lease.clone();
    let answer = deliver(env, user, asker, returned, next.clone(), tries).await;
    let came = now(env);
    let (follows, keeps) = BOOK.with_borrow_mut(|book| {
        let follows = book.came(user, &id, answer.is_ok());
        let keeps = match (answer, next) {
            (Ok(answer), _) => book.arrive(user, asker, departure, came, follow_on(answer)),
            (Err(OutOfReach), Some(next)) => {
                book.miss(user, asker, &next, came);
                false
            }
            (Err(OutOfReach), None) => false,
        };
        (follows, keeps)
    });
    tell(env, user, follows).await;
    keeps
}

fn follow_on(answer: Answer) -> Option<(Handed, Snapshot)> {
    match answer {
        Answer::TakenBack { standing, lease } => lease.map(|lease| (lease, standing)),
        _ => None,
    }
}

async fn deliver(
    env: &Env,
    user: &str,
    asker: &Asker,
    returned: Returned,
    next: Option<OperationId>,
    tries: u32,
) -> Result<Answer, OutOfReach> {
    let ask = Ask::TakeBack {
        returned: Box::new(returned),
        next,
    };
    let answer = client::insist(env, user, asker, &ask, tries).await;
    if answer.is_err() {
        worker::console_warn!("{{\"event\":\"lease_not_brought_back\"}}");
    }
    answer
}

/// Tells the account what follows a lease that it has taken back, all in one message, or in whichever sets out first.
async fn tell(env: &Env, user: &str, follows: Vec<Ended>) {
    let told_at = now(env);
    for one in &follows {
        ended::note(user, one.clone(), told_at);
    }
    join_all(follows.iter().map(|one| async move {
        if !ended::tell(env, user, &one.operation).await {
            open::owe(env, user, &one.operation, &one.outcome, now(env)).await;
        }
    }))
    .await;
}

fn now(env: &Env) -> Millis {
    clock::now(&Settings::of(env))
}
