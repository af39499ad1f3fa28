//! Leases that this isolate holds: most calls of a busy user are decided here, without a hop.
//!
//! What is held is plain data. The call that got a lease keeps it, after its answer: it waits until the lease is
//! over or mostly spent and brings it back, or takes the next one for it. Whatever it finds then is all that
//! the account is told, so a lease that is on its way back is spent no more, and a call that ends meanwhile is
//! settled once it has arrived.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use worker::{Delay, Env};

use super::client;
use super::wire::{Answer, Ask, Asker, Snapshot};
use crate::clock;
use crate::http::ids;
use crate::limits::{
    Admission, Call, Handed, Holding, Millis, OperationId, Outcome, Returned, Span, Took,
};
use crate::settings::Settings;

/// Most users of whom one isolate holds leases.
const MOST_USERS: usize = 1_000;
/// How often a keeper looks whether its lease is due.
const LOOK: Duration = Duration::from_millis(100);
/// How long one call keeps leases: what goes on after an answer has 30 seconds.
const KEEPING: Span = Span::seconds(10);
/// How often a lease is brought back before the account has to end it.
const TRIES: u64 = 4;
/// How long one call at a time may ask for a lease.
const ASKING: Span = Span::seconds(3);
/// A lease whose keeper is this late has lost it.
const LATE: Span = Span(1_000);
/// Where nobody came back with a lease for this long, nobody will.
const GONE: Span = Span::seconds(30);

thread_local! {
    static BOOK: RefCell<Book> = RefCell::new(Book::default());
}

/// Everything held, by user.
#[derive(Default)]
struct Book {
    users: HashMap<String, Vec<Slot>>,
    /// Grows with every change that an operator made here: a lease that was asked for before is not spent.
    changes: u64,
}

/// What one credential of a user holds: a revoked key's lease is nobody else's.
struct Slot {
    key_id: Option<String>,
    plan_claim: Option<String>,
    /// Somebody asks for a lease, until then at most.
    asking_until: Millis,
    held: Option<Held>,
    on_its_way: Option<OnItsWay>,
}

struct Held {
    holding: Holding,
    /// How the user stood when the lease was handed out.
    standing: Snapshot,
    heard: Millis,
}

/// A lease that is being brought back.
struct OnItsWay {
    returned: Returned,
    since: Millis,
    /// What has ended meanwhile.
    late: Vec<Late>,
}

/// A call that ended while its lease was on its way.
struct Late {
    operation: OperationId,
    outcome: Outcome,
    took: Took,
}

/// When a call that may be given a lease set out.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    at: Millis,
    changes: u64,
}

/// What became of a settlement.
pub enum Settled {
    /// It was booked under the lease.
    Here(Box<Snapshot>),
    /// It follows the lease to the account.
    Follows,
    /// The account has to be told.
    Elsewhere,
}

/// Lets a call pass by a lease held here, if one is sure to allow it.
pub fn admit(user: &str, asker: &Asker, call: &Call, now: Millis) -> Option<(Admission, Snapshot)> {
    BOOK.with_borrow_mut(|book| {
        let held = book.slot(user, asker)?.held.as_mut()?;
        let admission = held.holding.admit(now, call)?;
        Some((admission, held.standing_at(now)))
    })
}

/// Whether a call that asks the account may ask for a lease, too: then nobody else does until it has its
/// answer.
pub fn depart(user: &str, asker: &Asker, now: Millis) -> Option<Departure> {
    BOOK.with_borrow_mut(|book| book.depart(user, asker, now))
}

/// Takes what the account said to a call that had asked for a lease. Whether the caller has to keep one.
pub fn arrive(
    user: &str,
    asker: &Asker,
    departure: Departure,
    now: Millis,
    handed: Option<(Handed, Snapshot)>,
) -> bool {
    BOOK.with_borrow_mut(|book| book.arrive(user, asker, departure, now, handed))
}

/// Whether a lease lies here that its keeper has lost: whoever finds it keeps it.
pub fn is_lost(user: &str, asker: &Asker, now: Millis) -> bool {
    BOOK.with_borrow_mut(|book| {
        let held = book.slot(user, asker).and_then(|slot| slot.held.as_ref());
        held.is_some_and(|held| held.holding.overdue(now) > LATE)
    })
}

/// Settles a call where its lease is.
pub fn settle(
    user: &str,
    operation: &OperationId,
    outcome: Outcome,
    took: Took,
    now: Millis,
) -> Settled {
    BOOK.with_borrow_mut(|book| {
        for slot in book.users.get_mut(user).into_iter().flatten() {
            if let Some(held) = &mut slot.held
                && held.holding.settle(operation, outcome)
            {
                held.holding.note_took(took);
                return Settled::Here(Box::new(held.standing_at(now)));
            }
            if let Some(way) = &mut slot.on_its_way
                && way.returned.open.iter().any(|o| o.operation == *operation)
            {
                way.late.push(Late {
                    operation: operation.clone(),
                    outcome,
                    took,
                });
                return Settled::Follows;
            }
        }
        Settled::Elsewhere
    })
}

/// Notes where its lease is what a call has used so far. `false`: the account has to be told.
pub fn checkpoint(user: &str, operation: &OperationId, prompt: u64, completion: u64) -> bool {
    BOOK.with_borrow_mut(|book| {
        let slots = book.users.get_mut(user).into_iter().flatten();
        let mut held = slots.filter_map(|slot| slot.held.as_mut());
        held.any(|held| held.holding.checkpoint(operation, prompt, completion))
    })
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
    BOOK.with_borrow_mut(|book| {
        let users: Vec<_> = book.users.keys().cloned().collect();
        users.iter().for_each(|user| book.end(user));
    });
}

/// Keeps a lease until it is due, and the ones that follow on it while calls are many.
pub async fn keep(env: Env, user: String, asker: Asker) {
    let began = now(&env);
    loop {
        Delay::from(LOOK).await;
        let here = now(&env);
        match BOOK.with_borrow_mut(|book| book.look(&user, &asker, here)) {
            None => return,
            Some(false) => {}
            Some(true) => {
                let follow = here.since(began) < KEEPING;
                if !bring_back(&env, &user, &asker, follow).await {
                    return;
                }
            }
        }
    }
}

/// Brings back all that is held of a user, so that the account knows everything that this isolate knows.
pub async fn call_in(env: &Env, user: &str) {
    let askers = BOOK.with_borrow(|book| book.holders(user));
    for asker in askers {
        bring_back(env, user, &asker, false).await;
    }
}

/// Brings one lease back. Whether another one follows on it.
async fn bring_back(env: &Env, user: &str, asker: &Asker, follow: bool) -> bool {
    let next = follow.then(|| ids::fresh("op").ok().map(OperationId));
    let next = next.flatten();
    let departed = now(env);
    let Some((returned, departure)) = BOOK.with_borrow_mut(|book| book.send(user, asker, departed))
    else {
        return false;
    };
    let answer = deliver(env, user, asker, returned, next).await;
    let came = now(env);
    let handed = match answer {
        Some(Answer::TakenBack {
            standing,
            lease: Some(lease),
        }) => Some((lease, standing)),
        _ => None,
    };
    let follows = handed.is_some();
    let late = BOOK.with_borrow_mut(|book| {
        let late = book.came(user, asker);
        book.arrive(user, asker, departure, came, handed);
        late
    });
    for call in late {
        settle_late(env, user, call).await;
    }
    follows
}

async fn deliver(
    env: &Env,
    user: &str,
    asker: &Asker,
    returned: Returned,
    next: Option<OperationId>,
) -> Option<Answer> {
    for attempt in 0..TRIES {
        let ask = Ask::TakeBack {
            returned: Box::new(returned.clone()),
            next: next.clone(),
        };
        match client::ask(env, user, asker.clone(), ask).await {
            Ok(answer) => return Some(answer),
            Err(_) => Delay::from(Duration::from_millis(200 << attempt)).await,
        }
    }
    worker::console_warn!("{{\"event\":\"lease_not_brought_back\"}}");
    None
}

async fn settle_late(env: &Env, user: &str, late: Late) {
    for attempt in 0..TRIES {
        let ask = Ask::Settle {
            operation: late.operation.clone(),
            outcome: late.outcome,
            took: late.took,
        };
        if client::ask(env, user, Asker::default(), ask).await.is_ok() {
            return;
        }
        Delay::from(Duration::from_millis(200 << attempt)).await;
    }
}

fn now(env: &Env) -> Millis {
    clock::now(&Settings::of(env))
}

impl Book {
    fn slot(&mut self, user: &str, asker: &Asker) -> Option<&mut Slot> {
        let mut slots = self.users.get_mut(user)?.iter_mut();
        slots.find(|slot| slot.is_of(asker))
    }

    fn depart(&mut self, user: &str, asker: &Asker, now: Millis) -> Option<Departure> {
        if self.users.len() >= MOST_USERS && !self.users.contains_key(user) {
            self.users
                .retain(|_, slots| slots.iter().any(|slot| slot.is_alive(now)));
            if self.users.len() >= MOST_USERS {
                return None;
            }
        }
        let slots = self.users.entry(user.to_owned()).or_default();
        slots.retain(|slot| slot.is_of(asker) || slot.is_alive(now));
        if !slots.iter().any(|slot| slot.is_of(asker)) {
            slots.push(Slot::of(asker));
        }
        let slot = slots.iter_mut().find(|slot| slot.is_of(asker))?;
        if !slot.may_ask(now) {
            return None;
        }
        slot.asking_until = now.plus(ASKING);
        Some(Departure {
            at: now,
            changes: self.changes,
        })
    }

    fn arrive(
        &mut self,
        user: &str,
        asker: &Asker,
        departure: Departure,
        now: Millis,
        handed: Option<(Handed, Snapshot)>,
    ) -> bool {
        let changed = departure.changes != self.changes;
        let Some(slot) = self.slot(user, asker) else {
            return false;
        };
        slot.asking_until = Millis(0);
        let Some((handed, standing)) = handed else {
            return false;
        };
        if slot.held.is_some() {
            // It comes back by its end: the account takes it for spent.
            return false;
        }
        let mut holding = Holding::new(handed, departure.at);
        if changed {
            holding.end();
        }
        slot.held = Some(Held {
            holding,
            standing,
            heard: now,
        });
        true
    }

    /// Whether the lease is due; `None`: there is none.
    fn look(&mut self, user: &str, asker: &Asker, now: Millis) -> Option<bool> {
        let held = self.slot(user, asker)?.held.as_ref()?;
        Some(held.holding.is_due(now))
    }

    /// A lease sets out for its account.
    fn send(&mut self, user: &str, asker: &Asker, now: Millis) -> Option<(Returned, Departure)> {
        let changes = self.changes;
        let slot = self.slot(user, asker)?;
        let returned = slot.held.take()?.holding.give_back();
        slot.on_its_way = Some(OnItsWay {
            returned: returned.clone(),
            since: now,
            late: Vec::new(),
        });
        Some((returned, Departure { at: now, changes }))
    }

    /// It has arrived, or never will: what ended on its way.
    fn came(&mut self, user: &str, asker: &Asker) -> Vec<Late> {
        let slot = self.slot(user, asker);
        let way = slot.and_then(|slot| slot.on_its_way.take());
        way.map(|way| way.late).unwrap_or_default()
    }

    fn end(&mut self, user: &str) {
        self.changes += 1;
        for slot in self.users.get_mut(user).into_iter().flatten() {
            if let Some(held) = &mut slot.held {
                held.holding.end();
            }
        }
    }

    fn holders(&self, user: &str) -> Vec<Asker> {
        let slots = self.users.get(user).into_iter().flatten();
        let holders = slots.filter(|slot| slot.held.is_some());
        holders.map(Slot::asker).collect()
    }
}

impl Slot {
    fn of(asker: &Asker) -> Self {
        Self {
            key_id: asker.key_id.clone(),
            plan_claim: asker.plan_claim.clone(),
            asking_until: Millis(0),
            held: None,
            on_its_way: None,
        }
    }

    fn asker(&self) -> Asker {
        Asker {
            key_id: self.key_id.clone(),
            plan_claim: self.plan_claim.clone(),
            ..Asker::default()
        }
    }

    fn is_of(&self, asker: &Asker) -> bool {
        self.key_id == asker.key_id && self.plan_claim == asker.plan_claim
    }

    fn may_ask(&self, now: Millis) -> bool {
        let left = self.asking_until.since(now);
        let asking = left > Span::ZERO && left <= ASKING;
        self.held.is_none() && !self.is_travelling(now) && !asking
    }

    fn is_travelling(&self, now: Millis) -> bool {
        let way = self.on_its_way.as_ref();
        way.is_some_and(|way| now.since(way.since) < GONE)
    }

    fn is_alive(&self, now: Millis) -> bool {
        let held = self.held.as_ref();
        !self.may_ask(now) && held.is_none_or(|held| held.holding.overdue(now) < GONE)
    }
}

impl Held {
    fn standing_at(&self, now: Millis) -> Snapshot {
        let then = self.standing.now.plus(now.since(self.heard));
        Snapshot {
            now: then,
            policies: self.holding.policies(then, &self.standing.policies),
            ..self.standing.clone()
        }
    }
}
