//! What this isolate holds of every user.

use std::collections::HashMap;

use crate::account::wire::{Asker, Ended, Snapshot};
use crate::limits::{
    Admission, Call, Handed, Holding, LAPSED_FOR, Metered, Millis, OperationId, Outcome, Returned,
    Span, Took,
};

/// Most users of whom one isolate holds leases.
const MOST_USERS: usize = 1_000;
/// How long one call at a time may ask for a lease.
const ASKING: Span = Span::seconds(3);
/// A lease whose keeper is this late has lost it.
const LATE: Span = Span(1_000);
/// Longest that somebody tries to deliver a lease.
const CARRYING: Span = Span::seconds(15);

/// Everything held, by user.
#[derive(Default)]
pub struct Book {
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
    on_their_way: Vec<OnItsWay>,
}

struct Held {
    holding: Holding,
    /// How the user stood when the lease was handed out.
    standing: Snapshot,
    heard: Millis,
}

/// A lease that is being brought back, or waits for somebody who tries that again.
struct OnItsWay {
    returned: Returned,
    since: Millis,
    /// Until when somebody is believed to carry it.
    carried_until: Millis,
    /// Its calls that have ended meanwhile.
    follows: Vec<Ended>,
}

/// When a call that may be given a lease set out.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    at: Millis,
    changes: u64,
}

/// What became of a settlement.
#[derive(Debug, PartialEq)]
pub enum Settled {
    /// It was booked under the lease.
    Here(Box<Snapshot>),
    /// It follows the lease to the account.
    Follows,
    /// The account has to be told.
    Elsewhere,
}

impl Book {
    /// Lets a call pass by a lease, if one is sure to allow it.
    pub fn admit(
        &mut self,
        user: &str,
        asker: &Asker,
        call: &Call,
        now: Millis,
    ) -> Option<(Admission, Snapshot)> {
        let held = self.slot(user, asker)?.held.as_mut()?;
        let admission = held.holding.admit(now, call)?;
        Some((admission, held.standing_at(now)))
    }

    /// Books a call where its lease is.
    pub fn settle(
        &mut self,
        user: &str,
        operation: &OperationId,
        outcome: Outcome,
        took: Took,
        now: Millis,
    ) -> Settled {
        for slot in self.users.get_mut(user).into_iter().flatten() {
            if let Some(held) = &mut slot.held
                && held.holding.settle(now, operation, outcome)
            {
                held.holding.note_took(took);
                return Settled::Here(Box::new(held.standing_at(now)));
            }
            if let Some(way) = slot.way_of(operation) {
                way.follows.push(Ended {
                    operation: operation.clone(),
                    outcome,
                    took,
                });
                return Settled::Follows;
            }
        }
        Settled::Elsewhere
    }

    /// Notes where its lease is what a call has used so far. `false`: the account has to be told.
    pub fn checkpoint(
        &mut self,
        user: &str,
        operation: &OperationId,
        used: Metered,
        lease: Span,
        now: Millis,
    ) -> bool {
        for slot in self.users.get_mut(user).into_iter().flatten() {
            if let Some(held) = &mut slot.held
                && held.holding.checkpoint(now, operation, used, lease)
            {
                return true;
            }
            // The account doesn't know it before the lease has arrived; what it has used is said again by then.
            if slot.way_of(operation).is_some() {
                return true;
            }
        }
        false
    }

    /// Whether a call may ask for a lease; then nobody else does for a while.
    pub fn depart(&mut self, user: &str, asker: &Asker, now: Millis) -> Option<Departure> {
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

    /// Takes what the account said. Whether somebody has to keep a lease now.
    pub fn arrive(
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
            slot.wait_unspent(handed.lease, now);
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

    /// A lease was asked for and nothing was heard.
    pub fn miss(&mut self, user: &str, asker: &Asker, id: &OperationId, now: Millis) {
        if let Some(slot) = self.slot(user, asker) {
            slot.asking_until = Millis(0);
            slot.wait_unspent(id.clone(), now);
        }
    }

    /// Whether the lease is due; `None`: there is none.
    pub fn look(&mut self, user: &str, asker: &Asker, now: Millis) -> Option<bool> {
        let held = self.slot(user, asker)?.held.as_ref()?;
        Some(held.holding.is_due(now))
    }

    /// Whether somebody has to look after a lease again.
    pub fn is_lost(&mut self, user: &str, asker: &Asker, now: Millis) -> bool {
        let slots = self.users.get_mut(user);
        slots.into_iter().flatten().any(|slot| {
            let held = slot.held.as_ref().filter(|_| slot.is_of(asker));
            held.is_some_and(|held| held.holding.overdue(now) > LATE) || slot.has_waiting(now)
        })
    }

    /// A lease sets out for its account.
    pub fn send(
        &mut self,
        user: &str,
        asker: &Asker,
        now: Millis,
    ) -> Option<(Returned, Departure)> {
        let changes = self.changes;
        let slot = self.slot(user, asker)?;
        let returned = slot.held.take()?.holding.give_back();
        slot.on_their_way.push(OnItsWay {
            returned: returned.clone(),
            since: now,
            carried_until: now.plus(CARRYING),
            follows: Vec::new(),
        });
        Some((returned, Departure { at: now, changes }))
    }

    /// A lease that waits for somebody to carry it sets out again.
    pub fn claim(&mut self, user: &str, now: Millis) -> Option<(Asker, Returned)> {
        let slots = self.users.get_mut(user)?;
        let slot = slots.iter_mut().find(|slot| slot.has_waiting(now))?;
        let asker = slot.asker();
        let way = slot.on_their_way.iter_mut().find(|way| way.waits(now))?;
        way.carried_until = now.plus(CARRYING);
        Some((asker, way.returned.clone()))
    }

    /// A lease has arrived, and what follows it is told from now on; or it has not, and waits.
    pub fn came(&mut self, user: &str, lease: &OperationId, arrived: bool) -> Vec<Ended> {
        for slot in self.users.get_mut(user).into_iter().flatten() {
            let mut ways = slot.on_their_way.iter_mut().enumerate();
            let Some((index, way)) = ways.find(|(_, way)| way.returned.lease == *lease) else {
                continue;
            };
            if arrived {
                return slot.on_their_way.swap_remove(index).follows;
            }
            way.carried_until = Millis(0);
        }
        Vec::new()
    }

    /// Nothing held of a user is spent any more.
    pub fn end(&mut self, user: &str) {
        self.changes += 1;
        for slot in self.users.get_mut(user).into_iter().flatten() {
            if let Some(held) = &mut slot.held {
                held.holding.end();
            }
        }
    }

    /// Nothing held is spent any more.
    pub fn end_all(&mut self) {
        let users: Vec<_> = self.users.keys().cloned().collect();
        users.iter().for_each(|user| self.end(user));
    }

    /// In whose name leases of a user are held.
    pub fn holders(&self, user: &str) -> Vec<Asker> {
        let slots = self.users.get(user).into_iter().flatten();
        let holders = slots.filter(|slot| slot.held.is_some());
        holders.map(Slot::asker).collect()
    }

    fn slot(&mut self, user: &str, asker: &Asker) -> Option<&mut Slot> {
        let mut slots = self.users.get_mut(user)?.iter_mut();
        slots.find(|slot| slot.is_of(asker))
    }
}

impl Slot {
    fn of(asker: &Asker) -> Self {
        Self {
            key_id: asker.key_id.clone(),
            plan_claim: asker.plan_claim.clone(),
            asking_until: Millis(0),
            held: None,
            on_their_way: Vec::new(),
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
        self.held.is_none() && self.on_their_way.is_empty() && !self.is_asking(now)
    }

    fn is_asking(&self, now: Millis) -> bool {
        self.asking_until.is_ahead(now, ASKING)
    }

    /// The lease under which a call passed that is not held any more.
    fn way_of(&mut self, operation: &OperationId) -> Option<&mut OnItsWay> {
        let mut ways = self.on_their_way.iter_mut();
        ways.find(|way| way.returned.open.iter().any(|o| o.operation == *operation))
    }

    fn has_waiting(&self, now: Millis) -> bool {
        self.on_their_way.iter().any(|way| way.waits(now))
    }

    /// Once the account has forgotten a lease that did not come back, nobody needs to know of it.
    fn is_alive(&self, now: Millis) -> bool {
        let held = self.held.as_ref();
        let holds = held.is_some_and(|held| held.holding.overdue(now) < LAPSED_FOR);
        let mut ways = self.on_their_way.iter();
        self.is_asking(now) || holds || ways.any(|way| now.since(way.since) < LAPSED_FOR)
    }

    fn wait_unspent(&mut self, lease: OperationId, now: Millis) {
        self.on_their_way.push(OnItsWay {
            returned: Returned::unspent(lease),
            since: now,
            carried_until: Millis(0),
            follows: Vec::new(),
        });
    }
}

impl OnItsWay {
    /// Whether nobody carries it, or nobody can be still carrying it.
    fn waits(&self, now: Millis) -> bool {
        !self.carried_until.is_ahead(now, CARRYING)
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

#[cfg(test)]
mod tests;
