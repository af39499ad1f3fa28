//! Refusals that accounts were sure of, given again by this isolate without asking: whoever has used up
//! their quota costs nobody a hop. An entry lives three seconds at most, so whatever an operator changes
//! is in force within five; in the isolate that carried it out, at once.
//!
//! What was refused here is counted here and handed to the account about a second later, so that it is
//! counted like any other refusal. An isolate that ends before it has handed its counts over loses them:
//! about a second's worth.

mod counts;

use std::cell::RefCell;
use std::collections::HashMap;

pub use counts::hand_over;

use self::counts::Counts;
use super::wire::{Ask, Asker, Snapshot};
use crate::limits::{
    Call, Cause, Millis, PolicyName, Rejection, Span, Unit, Verdict, Violation, Work,
};

/// How long an entry lives at most.
const MEMORY: Span = Span::seconds(3);
/// Most users of whom one isolate remembers refusals, and as many whose counts wait.
const MOST_USERS: usize = 1_000;
/// Most refusals of one user: one for each route, model and size that they call with.
const MOST_ENTRIES: usize = 8;

thread_local! {
    static MEMORIES: RefCell<Memory> = RefCell::new(Memory::default());
}

/// What an isolate knows of refusals.
#[derive(Default)]
struct Memory {
    users: HashMap<String, Vec<Entry>>,
    counts: Counts,
    /// Grows with every change that an operator made here: what was asked before is not believed.
    changes: u64,
}

/// A verdict out of memory, as its account would give it now.
pub struct Recalled {
    /// What becomes of the call.
    pub verdict: Verdict,
    /// How the user stands.
    pub standing: Snapshot,
    /// Whether the caller has to see to it that the counts are handed over.
    pub begins: bool,
    /// For how long others are refused alike, whatever they say.
    pub sure: Option<Sure>,
}

/// A refusal that is sure to be repeated whatever a call says, if it goes the same way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sure {
    /// When it was recalled.
    pub at: Millis,
    /// Until when it holds.
    pub until: Millis,
    /// Most tokens of prompt and choices that such a call may have.
    pub room: u64,
    changes: u64,
}

impl Sure {
    /// The same, but no longer than for `span`.
    pub fn at_most(self, span: Span) -> Self {
        Self {
            until: self.until.min(self.at.plus(span)),
            ..self
        }
    }
}

/// One refusal, and the call it was given to.
struct Entry {
    key_id: Option<String>,
    plan_claim: Option<String>,
    call: Call,
    verdict: Verdict,
    standing: Snapshot,
    /// When its answer was here: later than the account's own clock said.
    heard: Millis,
    until: Millis,
}

/// When a call set out for its account.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    at: Millis,
    changes: u64,
}

/// A call is about to ask its account.
pub fn depart(now: Millis) -> Departure {
    MEMORIES.with_borrow(|memory| memory.depart(now))
}

/// Remembers a verdict that its account is sure of for as long as `holds`.
pub fn remember(
    departure: Departure,
    heard: Millis,
    (user, asker): (&str, &Asker),
    call: &Call,
    verdict: &Verdict,
    standing: &Snapshot,
    holds: Span,
) {
    let entry = Entry {
        key_id: asker.key_id.clone(),
        plan_claim: asker.plan_claim.clone(),
        call: call.clone(),
        verdict: verdict.clone(),
        standing: standing.clone(),
        heard,
        until: departure.at.plus(holds.min(MEMORY)),
    };
    MEMORIES.with_borrow_mut(|memory| memory.remember(departure, user, entry));
}

/// The verdict on a call that is sure to be refused, counted.
pub fn recall(user: &str, asker: &Asker, call: &Call, now: Millis) -> Option<Recalled> {
    MEMORIES.with_borrow_mut(|memory| memory.recall(user, asker, call, now))
}

/// Whether a refusal still holds of which its account was sure; if so, it is counted once more under
/// `reason`. Not before counts are on their way to the account anyway.
pub fn again(sure: Sure, user: &str, reason: &str, now: Millis) -> bool {
    MEMORIES.with_borrow_mut(|memory| {
        let holds = memory.changes == sure.changes && sure.until.is_ahead(now, MEMORY);
        holds && memory.counts.note_more(user, reason, now)
    })
}

/// What was asked of an account may have undone its refusals.
pub fn heed(user: &str, ask: &Ask) {
    let may_undo = matches!(
        ask,
        Ask::Adopt(_) | Ask::Revoke { .. } | Ask::Reset(_) | Ask::Grant { .. }
    );
    if may_undo {
        MEMORIES.with_borrow_mut(|memory| memory.forget(Some(user)));
    }
}

/// A plan has changed: nobody's refusals are believed any more.
pub fn forget_all() {
    MEMORIES.with_borrow_mut(|memory| memory.forget(None));
}

impl Memory {
    const fn depart(&self, at: Millis) -> Departure {
        Departure {
            at,
            changes: self.changes,
        }
    }

    fn remember(&mut self, departure: Departure, user: &str, entry: Entry) {
        if departure.changes != self.changes {
            return;
        }
        let now = entry.heard;
        if self.users.len() >= MOST_USERS && !self.users.contains_key(user) {
            self.users
                .retain(|_, entries| entries.iter().any(|e| e.lives(now)));
            if self.users.len() >= MOST_USERS {
                return;
            }
        }
        let entries = self.users.entry(user.to_owned()).or_default();
        entries.retain(|e| e.lives(now) && !e.is_replaced_by(&entry));
        if entries.len() >= MOST_ENTRIES {
            entries.remove(0);
        }
        entries.push(entry);
    }

    fn recall(&mut self, user: &str, asker: &Asker, call: &Call, now: Millis) -> Option<Recalled> {
        let entries = self.users.get(user)?;
        let entry = entries
            .iter()
            .find(|e| e.lives(now) && e.covers(asker, call))?;
        let reason = entry.verdict.refused_by()?;
        let begins = self.counts.note(user, asker, reason, now)?;
        let (verdict, standing) = entry.as_of(now);
        let sure = entry.room().map(|room| Sure {
            at: now,
            until: entry.until,
            room,
            changes: self.changes,
        });
        Some(Recalled {
            verdict,
            standing,
            begins,
            sure,
        })
    }

    fn forget(&mut self, user: Option<&str>) {
        self.changes += 1;
        match user {
            Some(user) => drop(self.users.remove(user)),
            None => self.users.clear(),
        }
    }
}

impl Entry {
    fn lives(&self, now: Millis) -> bool {
        self.until.is_ahead(now, MEMORY)
    }

    fn is_of(&self, key_id: Option<&String>, plan_claim: Option<&String>) -> bool {
        self.key_id.as_ref() == key_id && self.plan_claim.as_ref() == plan_claim
    }

    fn is_replaced_by(&self, newer: &Self) -> bool {
        self.is_of(newer.key_id.as_ref(), newer.plan_claim.as_ref())
            && self.covers_call(&newer.call)
    }

    fn covers(&self, asker: &Asker, call: &Call) -> bool {
        self.is_of(asker.key_id.as_ref(), asker.plan_claim.as_ref()) && self.covers_call(call)
    }

    /// Whether the same policies refuse `call`, and no other: it takes the same way, costs the same, and
    /// asks for no more tokens than were asked for before, where tokens are limited at all.
    fn covers_call(&self, call: &Call) -> bool {
        if self.verdict == Verdict::Rejected(Rejection::Blocked) {
            return true;
        }
        let same_way = (&self.call.endpoint, &self.call.model, self.call.cost)
            == (&call.endpoint, &call.model, call.cost);
        same_way
            && match (self.call.work, call.work) {
                (Work::Arrival, Work::Arrival) => true,
                (Work::Dispatch(known), Work::Dispatch(asked)) => {
                    let same_bound =
                        (known.max_tokens, known.choices) == (asked.max_tokens, asked.choices);
                    let least = asked.prompt.saturating_add(asked.choices);
                    let fits = || self.room().is_some_and(|room| least <= room);
                    same_bound && (asked.prompt <= known.prompt || !self.limits_tokens() || fits())
                }
                _ => false,
            }
    }

    /// Most tokens of prompt and choices with which a call is refused by the same quotas, whatever else it
    /// says: there is nothing left of one of them for longer than any minute's limit takes to fill up again, so
    /// that only the month could refuse longer. `None`: it depends on the call.
    fn room(&self) -> Option<u64> {
        let Verdict::Refused(refusal) = &self.verdict else {
            return None;
        };
        let decisive = refusal.decisive()?;
        let spent = decisive.policy.is_quota()
            && decisive.cause != Cause::Held
            && decisive.remaining == 0
            && decisive.wait >= Span::minutes(1);
        let is_month = |name: &PolicyName| *name == PolicyName::MonthlyTokens;
        let month_refuses = refusal.violations.iter().any(|v| is_month(&v.policy));
        let mut policies = self.standing.policies.iter();
        let month = policies.find(|policy| is_month(&policy.name) && !month_refuses);
        spent.then(|| month.map_or(u64::MAX, |month| month.remaining))
    }

    fn limits_tokens(&self) -> bool {
        let mut policies = self.standing.policies.iter();
        policies.any(|policy| policy.unit == Unit::Tokens)
    }

    /// The answer as the account would give it now, or a moment ago: never earlier than the truth.
    fn as_of(&self, now: Millis) -> (Verdict, Snapshot) {
        let passed = now.since(self.heard);
        let mut standing = self.standing.clone();
        standing.now = standing.now.plus(passed);
        let mut verdict = self.verdict.clone();
        if let Verdict::Refused(refusal) = &mut verdict {
            for violation in &mut refusal.violations {
                count_down(violation, passed, standing.now);
            }
        }
        (verdict, standing)
    }
}

/// Where nothing is ever allowed, the wait is a custom, and always the same.
fn count_down(violation: &mut Violation, passed: Span, now: Millis) {
    if violation.cause == Cause::Nothing && !violation.policy.is_quota() {
        violation.resets_at = now.plus(violation.wait);
    } else {
        violation.wait = Span(violation.wait.0.saturating_sub(passed.0).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{OperationId, Refusal, Tokens};
    use crate::plans::OnOutage;

    const NOW: Millis = Millis(1_000_000);

    fn call(prompt: u64) -> Call {
        Call {
            operation: OperationId("op_1".into()),
            work: Work::Dispatch(Tokens {
                prompt,
                max_tokens: Some(10),
                choices: 1,
            }),
            cost: 1,
            endpoint: Some("chat".into()),
            model: Some("m".into()),
            degrade: None,
            lease: Span(1_000),
        }
    }

    fn standing(unit: Unit) -> Snapshot {
        Snapshot {
            now: NOW,
            plan_id: "p".into(),
            plan_name: "P".into(),
            over_quota: crate::plans::OverQuota::default(),
            on_outage: OnOutage::Open,
            blocked: false,
            allowed_models: None,
            policies: vec![crate::limits::PolicyView {
                name: PolicyName::Daily,
                kind: crate::limits::PolicyKind::Fixed,
                unit,
                limit: 10,
                used: 10,
                reserved: 0,
                remaining: 0,
                window: Some(Span::hours(24)),
                resets_at: NOW.plus(Span::hours(1)),
            }],
        }
    }

    fn refusal(policy: PolicyName, cause: Cause, wait: Span) -> Verdict {
        Verdict::Refused(Refusal {
            violations: vec![Violation {
                policy,
                cause,
                limit: 10,
                remaining: 0,
                wait,
                resets_at: NOW.plus(wait),
            }],
        })
    }

    fn entry(verdict: Verdict, unit: Unit, holds: Span) -> Entry {
        Entry {
            key_id: Some("key_1".into()),
            plan_claim: None,
            call: call(100),
            verdict,
            standing: standing(unit),
            heard: NOW.plus(Span(20)),
            until: NOW.plus(holds.min(MEMORY)),
        }
    }

    fn asker(key: &str) -> Asker {
        Asker {
            key_id: Some(key.into()),
            ..Asker::default()
        }
    }

    fn knows_daily(unit: Unit) -> Memory {
        let mut memory = Memory::default();
        let daily = refusal(PolicyName::Daily, Cause::Spent, Span::hours(1));
        let departure = memory.depart(NOW);
        memory.remember(departure, "u", entry(daily, unit, Span::hours(1)));
        memory
    }

    fn recalls(memory: &mut Memory, call: &Call, after: u64) -> Option<Verdict> {
        let at = NOW.plus(Span(after));
        memory
            .recall("u", &asker("key_1"), call, at)
            .map(|recalled| recalled.verdict)
    }

    #[test]
    fn it_lives_three_seconds_from_the_departure_and_a_clock_set_back_ends_it() {
        let mut memory = knows_daily(Unit::Requests);
        assert!(recalls(&mut memory, &call(1), 2_999).is_some());
        assert!(recalls(&mut memory, &call(1), 3_000).is_none());
        let before = Millis(NOW.0 - 1);
        assert!(
            memory
                .recall("u", &asker("key_1"), &call(1), before)
                .is_none()
        );
    }

    #[test]
    fn the_wait_is_counted_down_but_never_below_the_truth() {
        let mut memory = Memory::default();
        let wait = Span(2_500);
        let rate = refusal(PolicyName::Rate, Cause::Spent, wait);
        let departure = memory.depart(NOW);
        memory.remember(departure, "u", entry(rate, Unit::Requests, wait));
        let Some(Verdict::Refused(refusal)) = recalls(&mut memory, &call(1), 1_020) else {
            panic!("should be remembered");
        };
        let violation = refusal.decisive().unwrap();
        assert_eq!(
            (violation.wait, violation.resets_at),
            (Span(1_500), NOW.plus(wait))
        );
        assert!(recalls(&mut memory, &call(1), 2_500).is_none());
    }

    #[test]
    fn a_limit_of_nothing_always_says_the_same() {
        let mut memory = Memory::default();
        let none = refusal(PolicyName::Rate, Cause::Nothing, Span::minutes(1));
        let departure = memory.depart(NOW);
        memory.remember(
            departure,
            "u",
            entry(none, Unit::Requests, Span::minutes(1)),
        );
        let Some(Verdict::Refused(refusal)) = recalls(&mut memory, &call(1), 1_020) else {
            panic!("should be remembered");
        };
        let violation = refusal.decisive().unwrap();
        assert_eq!(violation.wait, Span::minutes(1));
        assert_eq!(violation.resets_at, NOW.plus(Span(61_000)));
    }

    #[test]
    fn another_key_model_endpoint_cost_or_bound_asks_for_itself() {
        let mut memory = knows_daily(Unit::Requests);
        let base = call(100);
        let others = [
            Call {
                model: Some("other".into()),
                ..base.clone()
            },
            Call {
                endpoint: None,
                ..base.clone()
            },
            Call {
                cost: 2,
                ..base.clone()
            },
            Call {
                work: Work::Arrival,
                ..base.clone()
            },
            Call {
                work: Work::Dispatch(Tokens {
                    prompt: 1,
                    max_tokens: None,
                    choices: 1,
                }),
                ..base.clone()
            },
        ];
        for other in &others {
            assert!(recalls(&mut memory, other, 100).is_none(), "{other:?}");
        }
        let at = NOW.plus(Span(100));
        assert!(memory.recall("u", &asker("key_2"), &base, at).is_none());
        assert!(memory.recall("v", &asker("key_1"), &base, at).is_none());
    }

    #[test]
    fn a_longer_prompt_asks_for_itself_where_tokens_are_limited() {
        let knows_rate = |unit| {
            let mut memory = Memory::default();
            let rate = refusal(PolicyName::Rate, Cause::Spent, Span::hours(1));
            let departure = memory.depart(NOW);
            memory.remember(departure, "u", entry(rate, unit, Span::hours(1)));
            memory
        };
        let mut memory = knows_rate(Unit::Tokens);
        assert!(recalls(&mut memory, &call(100), 100).is_some());
        assert!(recalls(&mut memory, &call(101), 100).is_none());
        let mut memory = knows_rate(Unit::Requests);
        assert!(recalls(&mut memory, &call(101), 100).is_some());
    }

    fn daily_beside_a_month(left: u64, violations: Vec<Violation>) -> Entry {
        let verdict = Verdict::Refused(Refusal { violations });
        let mut entry = entry(verdict, Unit::Requests, Span::hours(1));
        entry.standing.policies.push(crate::limits::PolicyView {
            name: PolicyName::MonthlyTokens,
            unit: Unit::Tokens,
            limit: 1_000,
            used: 1_000 - left,
            remaining: left,
            ..entry.standing.policies[0].clone()
        });
        entry
    }

    fn violations(policy: PolicyName, wait: Span) -> Vec<Violation> {
        match refusal(policy, Cause::Spent, wait) {
            Verdict::Refused(refusal) => refusal.violations,
            _ => Vec::new(),
        }
    }

    #[test]
    fn without_a_day_left_prompts_are_alike_for_which_the_month_has_room() {
        let day = || violations(PolicyName::Daily, Span::hours(1));
        let mut memory = Memory::default();
        memory.remember(memory.depart(NOW), "u", daily_beside_a_month(150, day()));
        assert!(recalls(&mut memory, &call(149), 100).is_some());
        assert!(recalls(&mut memory, &call(150), 100).is_none());
        assert_eq!(daily_beside_a_month(150, day()).room(), Some(150));
    }

    #[test]
    fn what_a_call_says_matters_where_another_limit_might_last_longer() {
        let room = |violations| daily_beside_a_month(150, violations).room();
        let month = || violations(PolicyName::MonthlyTokens, Span::hours(500));
        assert_eq!(room(month()), Some(u64::MAX));
        let both = [month(), violations(PolicyName::Daily, Span::hours(1))].concat();
        assert_eq!(room(both), Some(u64::MAX));
        let soon = violations(PolicyName::Daily, Span(59_999));
        assert_eq!(room(soon), None);
        let rate = violations(PolicyName::Rate, Span::hours(1));
        assert_eq!(room(rate), None);
        let mut held = month();
        held[0].cause = Cause::Held;
        assert_eq!(room(held), None);
        let mut some_left = month();
        some_left[0].remaining = 1;
        assert_eq!(room(some_left), None);
    }

    #[test]
    fn what_is_sure_holds_as_long_as_the_entry_and_until_an_operator_changes_something() {
        let mut memory = knows_daily(Unit::Requests);
        let recalled = memory.recall("u", &asker("key_1"), &call(1), NOW);
        let sure = recalled.unwrap().sure.unwrap();
        assert_eq!((sure.at, sure.until), (NOW, NOW.plus(MEMORY)));
        MEMORIES.set(memory);
        assert!(again(sure, "u", "daily", NOW));
        assert!(!again(sure, "u", "daily", sure.until));
        assert!(!again(sure, "v", "daily", NOW));
        heed("w", &Ask::Reset(Vec::new()));
        assert!(!again(sure, "u", "daily", NOW));
    }

    #[test]
    fn a_block_holds_for_everything_this_key_calls() {
        let mut memory = Memory::default();
        let blocked = Verdict::Rejected(Rejection::Blocked);
        let departure = memory.depart(NOW);
        memory.remember(
            departure,
            "u",
            entry(blocked, Unit::Requests, Span::hours(1)),
        );
        let arrival = Call {
            work: Work::Arrival,
            model: None,
            endpoint: None,
            ..call(1)
        };
        assert!(recalls(&mut memory, &arrival, 100).is_some());
    }

    #[test]
    fn an_operators_change_forgets_and_what_was_asked_before_is_not_believed() {
        let mut memory = knows_daily(Unit::Requests);
        let departure = memory.depart(NOW);
        memory.forget(Some("u"));
        assert!(recalls(&mut memory, &call(1), 100).is_none());
        let daily = refusal(PolicyName::Daily, Cause::Spent, Span::hours(1));
        memory.remember(departure, "u", entry(daily, Unit::Requests, Span::hours(1)));
        assert!(recalls(&mut memory, &call(1), 100).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        let daily = || refusal(PolicyName::Daily, Cause::Spent, Span::hours(1));
        for index in 0..2 * MOST_USERS {
            let departure = memory.depart(NOW);
            let one = entry(daily(), Unit::Requests, Span::hours(1));
            memory.remember(departure, &format!("u{index}"), one);
        }
        assert_eq!(memory.users.len(), MOST_USERS);
        for index in 0..2 * MOST_ENTRIES as u64 {
            let departure = memory.depart(NOW);
            let mut one = entry(daily(), Unit::Requests, Span::hours(1));
            one.call.cost = index + 1;
            memory.remember(departure, "u0", one);
        }
        assert_eq!(memory.users["u0"].len(), MOST_ENTRIES);
        let later = NOW.plus(Span::seconds(10));
        let mut fresh = entry(daily(), Unit::Requests, Span::hours(1));
        (fresh.heard, fresh.until) = (later, later.plus(MEMORY));
        memory.remember(memory.depart(later), "new", fresh);
        assert_eq!(memory.users.len(), 1);
    }
}
