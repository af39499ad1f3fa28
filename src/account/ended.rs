//! Calls that have ended and whose account has not heard of it. The next message of this isolate to the account
//! tells it along, whoever sends it; where none sets out within [`RIDE`], one is sent for it alone. So a user
//! who calls often costs one message a call, and whatever the account is asked from here, it knows by then
//! all that has ended here.
//!
//! What waits is plain data, and each call's own task sees to it that it is told. An isolate that ends
//! before loses what waited: then the reservations of these calls end by their leases.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use worker::{Delay, Env};

use super::client;
use super::wire::{Ask, Asker, Ended};
use crate::clock;
use crate::limits::{Millis, OperationId, Span};
use crate::settings::Settings;

/// How long an end waits for a message that takes it along.
const RIDE: Duration = Duration::from_millis(25);
/// Most ends that one message takes along.
const MOST: usize = 64;
/// How often a message is sent for one end.
const TRIES: u64 = 4;
/// A message whose sender has not come back with it for this long is lost.
const LOST: Span = Span::seconds(6);
/// Whoever ought to have told of it by then is gone, and its call's reservation ends by itself.
const GONE: Span = Span::minutes(3);

thread_local! {
    static BOOK: RefCell<Book> = RefCell::new(Book::default());
}

/// What waits, by user.
#[derive(Default)]
struct Book {
    users: HashMap<String, Vec<Waiting>>,
}

struct Waiting {
    ended: Ended,
    since: Millis,
    /// When it set out with a message, if it did.
    sent: Option<Millis>,
}

/// A call of `user` has ended: the next message takes that along.
pub fn note(user: &str, ended: Ended, now: Millis) {
    BOOK.with_borrow_mut(|book| book.note(user, ended, now));
}

/// What a message to `user`'s account takes along. With `all`, also what others are about to tell: it counts
/// once.
pub fn take(user: &str, all: bool, now: Millis) -> Vec<Ended> {
    BOOK.with_borrow_mut(|book| book.take(user, all, now))
}

/// The account has answered, or whether it has heard is not known: then it is told again.
pub fn arrive(user: &str, told: &[Ended], heard: bool) {
    if !told.is_empty() {
        BOOK.with_borrow_mut(|book| book.arrive(user, told, heard));
    }
}

/// Sees to it that the account hears of the end of a call. `false`: it is out of reach, and nothing waits any
/// more.
pub async fn tell(env: &Env, user: &str, operation: &OperationId) -> bool {
    Delay::from(RIDE).await;
    for attempt in 0..TRIES {
        loop {
            let now = clock::now(&Settings::of(env));
            match BOOK.with_borrow(|book| book.is_on_its_way(user, operation, now)) {
                None => return true,
                Some(false) => break,
                Some(true) => Delay::from(RIDE).await,
            }
        }
        if client::ask(env, user, Asker::default(), Ask::Hear)
            .await
            .is_err()
        {
            Delay::from(Duration::from_millis(200 << attempt)).await;
        }
    }
    !BOOK.with_borrow_mut(|book| book.forget(user, operation))
}

impl Book {
    fn note(&mut self, user: &str, ended: Ended, now: Millis) {
        let waiting = Waiting {
            ended,
            since: now,
            sent: None,
        };
        if let Some(theirs) = self.users.get_mut(user) {
            theirs.push(waiting);
            return;
        }
        self.users.retain(|_, theirs| {
            theirs.retain(|one| now.since(one.since) < GONE);
            !theirs.is_empty()
        });
        self.users.insert(user.to_owned(), vec![waiting]);
    }

    fn take(&mut self, user: &str, all: bool, now: Millis) -> Vec<Ended> {
        let theirs = self.users.get_mut(user).into_iter().flatten();
        let here = theirs.filter(|one| all || !one.is_on_its_way(now));
        let taken = here.take(MOST).map(|one| {
            one.sent = Some(now);
            one.ended.clone()
        });
        taken.collect()
    }

    fn arrive(&mut self, user: &str, told: &[Ended], heard: bool) {
        let Some(theirs) = self.users.get_mut(user) else {
            return;
        };
        let is_told = |one: &Waiting| told.iter().any(|t| t.operation == one.ended.operation);
        if heard {
            theirs.retain(|one| !is_told(one));
        } else {
            for one in theirs.iter_mut().filter(|one| is_told(one)) {
                one.sent = None;
            }
        }
        if theirs.is_empty() {
            self.users.remove(user);
        }
    }

    /// Whether a message has taken it along; `None`: nothing is known of it any more, for it was heard.
    fn is_on_its_way(&self, user: &str, operation: &OperationId, now: Millis) -> Option<bool> {
        let mut theirs = self.users.get(user)?.iter();
        let one = theirs.find(|one| one.ended.operation == *operation)?;
        Some(one.is_on_its_way(now))
    }

    /// Whether it still waited.
    fn forget(&mut self, user: &str, operation: &OperationId) -> bool {
        let Some(theirs) = self.users.get_mut(user) else {
            return false;
        };
        let before = theirs.len();
        theirs.retain(|one| one.ended.operation != *operation);
        let waited = theirs.len() < before;
        if theirs.is_empty() {
            self.users.remove(user);
        }
        waited
    }
}

impl Waiting {
    /// A clock that steps back makes nothing travel longer.
    fn is_on_its_way(&self, now: Millis) -> bool {
        self.sent
            .is_some_and(|sent| sent <= now && now.since(sent) < LOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Outcome, Took};

    const NOW: Millis = Millis(1_000_000);

    fn ended(id: &str) -> Ended {
        Ended {
            operation: OperationId(id.into()),
            outcome: Outcome::Released,
            took: Took::default(),
        }
    }

    fn waiting(ids: &[&str]) -> Book {
        let mut book = Book::default();
        for id in ids {
            book.note("u", ended(id), NOW);
        }
        book
    }

    fn ids(taken: &[Ended]) -> Vec<&str> {
        taken.iter().map(|one| one.operation.0.as_str()).collect()
    }

    fn on_its_way(book: &Book, id: &str, now: Millis) -> Option<bool> {
        book.is_on_its_way("u", &OperationId(id.into()), now)
    }

    #[test]
    fn a_message_takes_along_what_waits_and_no_other_does() {
        let mut book = waiting(&["a", "b"]);
        assert!(book.take("v", false, NOW).is_empty());
        let taken = book.take("u", false, NOW);
        assert_eq!(ids(&taken), ["a", "b"]);
        assert!(book.take("u", false, NOW).is_empty());
        assert_eq!(on_its_way(&book, "a", NOW), Some(true));
        book.arrive("u", &taken, true);
        assert_eq!(on_its_way(&book, "a", NOW), None);
        assert!(book.users.is_empty());
    }

    #[test]
    fn what_was_not_heard_is_told_again() {
        let mut book = waiting(&["a"]);
        let taken = book.take("u", false, NOW);
        book.note("u", ended("b"), NOW);
        book.arrive("u", &taken, false);
        assert_eq!(on_its_way(&book, "a", NOW), Some(false));
        assert_eq!(ids(&book.take("u", false, NOW)), ["a", "b"]);
    }

    #[test]
    fn whoever_wants_all_known_tells_what_others_are_about_to_tell() {
        let mut book = waiting(&["a"]);
        book.take("u", false, NOW);
        assert_eq!(ids(&book.take("u", true, NOW)), ["a"]);
    }

    #[test]
    fn a_message_nobody_came_back_with_is_lost() {
        let mut book = waiting(&["a"]);
        book.take("u", false, NOW);
        assert!(book.take("u", false, NOW.plus(Span(5_999))).is_empty());
        assert_eq!(ids(&book.take("u", false, NOW.plus(LOST))), ["a"]);
        assert_eq!(on_its_way(&book, "a", NOW), Some(false), "stepped back");
    }

    #[test]
    fn nothing_waits_for_ever() {
        let mut book = waiting(&["a"]);
        book.note("v", ended("b"), NOW.plus(GONE));
        assert_eq!(on_its_way(&book, "a", NOW), None);
        assert!(!book.forget("u", &OperationId("a".into())));
        assert!(book.forget("v", &OperationId("b".into())));
        assert!(book.users.is_empty());
    }

    #[test]
    fn one_message_takes_so_many_along() {
        let ids: Vec<_> = (0..MOST + 1).map(|n| n.to_string()).collect();
        let mut book = waiting(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(book.take("u", false, NOW).len(), MOST);
        assert_eq!(book.take("u", false, NOW).len(), 1);
    }
}
