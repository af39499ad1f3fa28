//! How many calls this isolate has refused by itself, until the accounts know.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use worker::{Delay, Env};

use super::{MEMORIES, MOST_USERS};
use crate::account::client;
use crate::account::wire::{Ask, Asker};
use crate::http::ids;
use crate::limits::{Millis, OperationId, Span};

/// How long counts are gathered before they are handed over.
const GATHER: Duration = Duration::from_millis(1_000);
/// How often a hand-over is tried; what the account hasn't heard then goes along with the next one.
const TRIES: u64 = 4;
/// After this long a hand-over that nobody has heard of again is taken for lost, and another begins.
const HANDING: Span = Span::seconds(20);
/// Most batches that one event hands over: it lives half a minute beyond its answer, and the next goes on.
const MOST_BATCHES: usize = 10;
/// Most reasons of one user that are told apart before they are handed over.
const MOST_REASONS: usize = 64;

/// Counts by user.
#[derive(Default)]
pub(super) struct Counts(HashMap<String, Waiting>);

#[derive(Default)]
struct Waiting {
    plan_claim: Option<String>,
    counts: BTreeMap<String, u64>,
    /// Handed over already, but not known to have arrived: goes out again under the same name.
    unconfirmed: Option<Batch>,
    /// Somebody is handing over, until then at most.
    handing_until: Millis,
}

/// Counts that are handed over under one name.
#[derive(Clone, Debug, PartialEq)]
struct Batch {
    operation: OperationId,
    counts: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts one refusal. Whether its caller is the one to hand the counts over; `None`: there is no room,
    /// and the call has to ask its account.
    pub(super) fn note(
        &mut self,
        user: &str,
        asker: &Asker,
        reason: String,
        now: Millis,
    ) -> Option<bool> {
        if self.0.len() >= MOST_USERS && !self.0.contains_key(user) {
            return None;
        }
        let waiting = self.0.entry(user.to_owned()).or_default();
        if waiting.counts.len() >= MOST_REASONS && !waiting.counts.contains_key(&reason) {
            return None;
        }
        waiting.plan_claim.clone_from(&asker.plan_claim);
        *waiting.counts.entry(reason).or_default() += 1;
        let begins = !waiting.is_handed_over(now);
        if begins {
            waiting.handing_until = now.plus(HANDING);
        }
        Some(begins)
    }

    /// Counts one refusal more where others for the same reason wait for a hand-over that is under way; whether
    /// there are any.
    pub(super) fn note_more(&mut self, user: &str, reason: &str, now: Millis) -> bool {
        let Some(waiting) = self.0.get_mut(user) else {
            return false;
        };
        let under_way = waiting.is_handed_over(now);
        let count = waiting.counts.get_mut(reason).filter(|_| under_way);
        count.map(|count| *count += 1).is_some()
    }

    /// What is to be handed over next: the same again, until it is known to have arrived.
    fn next(
        &mut self,
        user: &str,
        fresh: impl FnOnce() -> Option<OperationId>,
    ) -> Option<(Batch, Asker)> {
        let waiting = self.0.get_mut(user)?;
        if waiting.unconfirmed.is_none() && !waiting.counts.is_empty() {
            waiting.unconfirmed = Some(Batch {
                operation: fresh()?,
                counts: std::mem::take(&mut waiting.counts),
            });
        }
        let asker = Asker {
            plan_claim: waiting.plan_claim.clone(),
            ..Asker::default()
        };
        waiting.unconfirmed.clone().map(|batch| (batch, asker))
    }

    /// A batch has arrived; another may be on its way by now.
    fn arrived(&mut self, user: &str, operation: &OperationId) {
        if let Some(waiting) = self.0.get_mut(user) {
            let other = |batch: &Batch| batch.operation != *operation;
            waiting.unconfirmed = waiting.unconfirmed.take().filter(other);
        }
    }

    /// The hand-over is over; who refuses next begins another.
    fn over(&mut self, user: &str) {
        if let Some(waiting) = self.0.get_mut(user) {
            waiting.handing_until = Millis(0);
            if waiting.counts.is_empty() && waiting.unconfirmed.is_none() {
                self.0.remove(user);
            }
        }
    }
}

impl Waiting {
    /// Whether somebody hands them over who may still be heard of.
    fn is_handed_over(&self, now: Millis) -> bool {
        self.handing_until.is_ahead(now, HANDING)
    }
}

/// Gathers the counts of one user for a moment and hands them to the account, and once more while there are any.
pub async fn hand_over(env: Env, user: String) {
    for _ in 0..MOST_BATCHES {
        Delay::from(GATHER).await;
        let Some((batch, asker)) = next(&user) else {
            break;
        };
        if !deliver(&env, &user, &asker, &batch).await {
            break;
        }
        MEMORIES.with_borrow_mut(|memory| memory.counts.arrived(&user, &batch.operation));
    }
    MEMORIES.with_borrow_mut(|memory| memory.counts.over(&user));
}

fn next(user: &str) -> Option<(Batch, Asker)> {
    let fresh = || ids::fresh("op").ok().map(OperationId);
    MEMORIES.with_borrow_mut(|memory| memory.counts.next(user, fresh))
}

async fn deliver(env: &Env, user: &str, asker: &Asker, batch: &Batch) -> bool {
    for attempt in 0..TRIES {
        let ask = Ask::NoteRefused {
            operation: batch.operation.clone(),
            counts: batch.counts.clone(),
        };
        if client::ask(env, user, asker.clone(), ask).await.is_ok() {
            return true;
        }
        Delay::from(Duration::from_millis(200 << attempt)).await;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    fn note(counts: &mut Counts, reason: &str, now: Millis) -> Option<bool> {
        counts.note("u", &Asker::default(), reason.to_owned(), now)
    }

    fn operation(name: &str) -> impl FnOnce() -> Option<OperationId> {
        let id = OperationId(name.to_owned());
        move || Some(id)
    }

    #[test]
    fn one_hands_over_what_all_have_counted() {
        let mut counts = Counts::default();
        assert_eq!(note(&mut counts, "daily", NOW), Some(true));
        assert_eq!(note(&mut counts, "daily", NOW), Some(false));
        assert_eq!(note(&mut counts, "rate", NOW), Some(false));
        let (batch, _) = counts.next("u", operation("a")).unwrap();
        let expected = [("daily".to_owned(), 2), ("rate".to_owned(), 1)];
        assert_eq!(batch.counts, BTreeMap::from(expected));
        counts.arrived("u", &batch.operation);
        assert!(counts.next("u", operation("b")).is_none());
        counts.over("u");
        assert!(counts.0.is_empty());
    }

    #[test]
    fn one_more_is_counted_only_beside_others_that_are_about_to_be_handed_over() {
        let mut counts = Counts::default();
        assert!(!counts.note_more("u", "daily", NOW));
        note(&mut counts, "daily", NOW);
        assert!(counts.note_more("u", "daily", NOW));
        assert!(!counts.note_more("u", "rate", NOW));
        assert!(!counts.note_more("v", "daily", NOW));
        assert!(!counts.note_more("u", "daily", NOW.plus(HANDING)));
        let (batch, _) = counts.next("u", operation("a")).unwrap();
        assert_eq!(batch.counts["daily"], 2);
        assert!(!counts.note_more("u", "daily", NOW));
    }

    #[test]
    fn what_may_not_have_arrived_goes_out_again_under_its_name_alone() {
        let mut counts = Counts::default();
        note(&mut counts, "daily", NOW);
        let (first, _) = counts.next("u", operation("a")).unwrap();
        counts.over("u");
        assert_eq!(note(&mut counts, "daily", NOW), Some(true));
        let (again, _) = counts.next("u", operation("b")).unwrap();
        assert_eq!(again, first);
        counts.arrived("u", &OperationId("another".to_owned()));
        assert_eq!(counts.next("u", operation("b")).unwrap().0, first);
        counts.arrived("u", &first.operation);
        let (second, _) = counts.next("u", operation("b")).unwrap();
        assert_eq!(second.operation.0, "b");
        assert_eq!(second.counts["daily"], 1);
    }

    #[test]
    fn a_lost_hand_over_is_begun_anew() {
        let mut counts = Counts::default();
        note(&mut counts, "daily", NOW);
        let later = NOW.plus(HANDING);
        assert_eq!(note(&mut counts, "daily", Millis(later.0 - 1)), Some(false));
        assert_eq!(note(&mut counts, "daily", later), Some(true));
    }

    #[test]
    fn without_room_nothing_is_refused_here() {
        let mut counts = Counts::default();
        for index in 0..MOST_REASONS {
            assert!(note(&mut counts, &format!("endpoint:{index}"), NOW).is_some());
        }
        assert_eq!(note(&mut counts, "one more", NOW), None);
        for index in 0..MOST_USERS {
            counts.note(
                &format!("u{index}"),
                &Asker::default(),
                "daily".to_owned(),
                NOW,
            );
        }
        let more = counts.note("more", &Asker::default(), "daily".to_owned(), NOW);
        assert_eq!((counts.0.len(), more), (MOST_USERS, None));
    }
}
