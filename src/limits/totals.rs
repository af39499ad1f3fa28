use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::latency::{Latency, Took};
use super::reservation::{Metered, OperationKey};
use super::{LocalDate, PolicyName};

/// Most days that wait for the ledger; after an outage of more than that the oldest are lost.
const MOST_DAYS: usize = 8;
/// Days that are kept although the ledger has them: late settlements are booked to them.
const KEPT_DAYS: usize = 2;
/// Most reasons of refusal, and most endpoints, that a day tells apart.
const MOST_REASONS: usize = 32;
/// Where further ones are counted.
const OTHER: &str = "other";
/// Refusals that can still be taken back, and are not counted again.
const RECENT: usize = 128;

/// What a user did on one local day: totals, never differences.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Totals {
    /// Which day, in the plan's time zone.
    pub date: LocalDate,
    /// Calls dispatched and not given back, degraded and failed-open ones among them.
    pub calls: u64,
    /// Calls refused, for whatever reason.
    pub rejected: u64,
    /// Calls that went to the cheaper model.
    pub degraded: u64,
    /// Calls that became jobs.
    pub queued: u64,
    /// Calls that passed while the account store was out.
    pub failed_open: u64,
    /// Prompt tokens used.
    pub prompt_tokens: u64,
    /// Completion tokens used.
    pub completion_tokens: u64,
    /// Calls whose tokens are an estimate.
    pub estimated_calls: u64,
    /// Refusals by policy or other reason.
    pub refused_by: BTreeMap<String, u64>,
    /// The account's sequence number when these last changed.
    pub seq: u64,
    /// How long calls waited. It came later, and is stored behind all days.
    #[serde(skip)]
    pub latency: Latency,
    /// Calls that passed, by the endpoint whose own limit let them, and, as `shadow:{policy}`, by the policy that would
    /// have refused them if the plan did not only watch. Stored behind all days, too.
    #[serde(skip)]
    pub passed_by: BTreeMap<String, u64>,
}

/// What came later than the days, of one of them.
pub type Later = (LocalDate, Latency, BTreeMap<String, u64>);

impl Totals {
    fn refuse(&mut self, reason: &str, count: u64) {
        tally(&mut self.refused_by, reason, count);
        self.rejected = self.rejected.saturating_add(count);
    }

    /// Counts a call that the limit of its endpoint let through.
    pub(super) fn pass_endpoint(&mut self, name: &str) {
        tally(&mut self.passed_by, name, 1);
    }

    /// Counts a call that passed although this policy, first of all, would have refused it.
    pub(super) fn pass_in_shadow(&mut self, policy: &PolicyName) {
        tally(&mut self.passed_by, &format!("shadow:{policy}"), 1);
    }

    fn take_back(&mut self, reason: &str) {
        if let Some(count) = self.refused_by.get_mut(reason) {
            *count = count.saturating_sub(1);
            self.rejected = self.rejected.saturating_sub(1);
        }
        self.refused_by.retain(|_, count| *count > 0);
    }

    pub(super) fn add_tokens(&mut self, used: Metered) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(used.prompt);
        self.completion_tokens = self.completion_tokens.saturating_add(used.completion);
    }

    pub(super) fn take_tokens(&mut self, used: Metered) {
        self.prompt_tokens = self.prompt_tokens.saturating_sub(used.prompt);
        self.completion_tokens = self.completion_tokens.saturating_sub(used.completion);
    }
}

fn tally(counts: &mut BTreeMap<String, u64>, key: &str, count: u64) {
    let known = counts.contains_key(key);
    let full = counts.len() >= MOST_REASONS;
    let key = if known || !full { key } else { OTHER };
    let counted = counts.entry(key.to_owned()).or_default();
    *counted = counted.saturating_add(count);
}

/// A refusal that was counted, but may turn out to have been none.
#[derive(Clone, Debug, PartialEq)]
struct Refused {
    key: OperationKey,
    date: LocalDate,
    reason: String,
}

/// The days of an account that the ledger may not have seen yet.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DayBook {
    days: BTreeMap<LocalDate, Totals>,
    seq: u64,
    flushed: u64,
    #[serde(skip)]
    recent: VecDeque<Refused>,
}

/// Recent refusals are a convenience of memory, not part of what an account is.
impl PartialEq for DayBook {
    fn eq(&self, other: &Self) -> bool {
        (&self.days, self.seq, self.flushed) == (&other.days, other.seq, other.flushed)
    }
}

impl DayBook {
    /// As the ledger knows it.
    pub fn known(seq: u64, days: impl IntoIterator<Item = Totals>) -> Self {
        let days: BTreeMap<_, _> = days.into_iter().map(|d| (d.date, d)).collect();
        let highest = days.values().map(|d| d.seq).fold(seq, u64::max);
        Self {
            days,
            seq: highest,
            flushed: highest,
            recent: VecDeque::new(),
        }
    }

    /// Something changed that the ledger has to hear of.
    pub fn change(&mut self) {
        self.seq = self.seq.saturating_add(1);
    }

    /// The totals of `date`, about to change. A date that is long gone, or that a clock that stepped
    /// back makes up, is booked to the next one there is: old totals are never begun anew from zero.
    pub fn on(&mut self, date: LocalDate) -> &mut Totals {
        self.change();
        let date = self
            .days
            .range(date..)
            .next()
            .map_or(date, |(kept, _)| *kept);
        self.forget(date);
        let fresh = || Totals {
            date,
            ..Totals::default()
        };
        let totals = self.days.entry(date).or_insert_with(fresh);
        totals.seq = self.seq;
        totals
    }

    /// Counts how long a call waited that has just ended, on the newest day there is.
    pub fn took(&mut self, today: LocalDate, took: Took) {
        let newest = self.days.last_key_value().map_or(today, |(date, _)| *date);
        self.on(newest).latency.note(took);
    }

    /// What is stored apart, by day.
    pub fn later(&self) -> Vec<Later> {
        let days = self.days.iter();
        days.filter(|(_, day)| !day.latency.is_empty() || !day.passed_by.is_empty())
            .map(|(date, day)| (*date, day.latency.clone(), day.passed_by.clone()))
            .collect()
    }

    /// Puts back what was stored apart.
    pub fn restore_later(&mut self, later: Vec<Later>) {
        for (date, latency, passed_by) in later {
            if let Some(day) = self.days.get_mut(&date) {
                day.latency = latency;
                day.passed_by = passed_by;
            }
        }
    }

    /// Makes room for `date`.
    fn forget(&mut self, date: LocalDate) {
        if self.days.contains_key(&date) {
            return;
        }
        let flushed = self.flushed;
        let mut surplus = (self.days.len() + 1).saturating_sub(KEPT_DAYS);
        self.days.retain(|_, day| {
            let old = surplus > 0;
            surplus = surplus.saturating_sub(1);
            !old || day.seq > flushed
        });
        while self.days.len() >= MOST_DAYS {
            self.days.pop_first();
        }
    }

    /// Counts a refused call; asked again under the same id, once.
    pub fn refuse(&mut self, key: OperationKey, date: LocalDate, reason: &str) {
        if self.recent.iter().any(|r| r.key == key) {
            return;
        }
        self.on(date).refuse(reason, 1);
        self.recent.push_back(Refused {
            key,
            date,
            reason: reason.to_owned(),
        });
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Counts refusals that were decided elsewhere.
    pub fn refuse_elsewhere(&mut self, date: LocalDate, reason: &str, count: u64) {
        self.on(date).refuse(reason, count);
    }

    /// A call that was refused a moment ago passes after all.
    pub fn passes_after_all(&mut self, key: OperationKey) {
        let index = self.recent.iter().position(|r| r.key == key);
        if let Some(refused) = index.and_then(|index| self.recent.remove(index)) {
            self.on(refused.date).take_back(&refused.reason);
        }
    }

    /// A call became a job: if it was refused before, it was not.
    pub fn queue(&mut self, key: OperationKey, date: LocalDate) {
        self.passes_after_all(key);
        let totals = self.on(date);
        totals.queued = totals.queued.saturating_add(1);
    }

    /// The days the ledger has not seen as they are.
    pub fn unflushed(&self) -> Vec<Totals> {
        let unseen = self.days.values().filter(|d| d.seq > self.flushed);
        unseen.cloned().collect()
    }

    /// Whether the ledger has not seen everything.
    pub const fn has_unflushed(&self) -> bool {
        self.seq > self.flushed
    }

    /// The ledger has seen everything up to `seq`.
    pub fn flushed(&mut self, seq: u64) {
        self.flushed = self.flushed.max(seq.min(self.seq));
    }

    /// The sequence number of the last change.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Up to which sequence number the ledger has seen everything.
    pub const fn flushed_seq(&self) -> u64 {
        self.flushed
    }

    /// The ledger has forgotten what it was told, or knows better up to `seq`: everything that is kept
    /// here is told again, under a number above both.
    pub fn tell_again(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
        self.change();
        for day in self.days.values_mut() {
            day.seq = self.seq;
        }
    }
}
