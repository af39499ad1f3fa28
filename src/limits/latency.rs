//! How long calls waited, counted in fixed buckets.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Span;

/// Upper ends of the buckets in milliseconds; a last one has no end.
pub const BUCKETS: [u64; 13] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 120_000,
];
/// The bucket without an end, where buckets have names.
pub const ENDLESS: &str = "inf";
/// The sum of all waits, beside the buckets.
pub const SUM: &str = "sum";

/// What one call has waited for, as far as it is known.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Took {
    /// Its account.
    pub account: Option<Span>,
    /// Its provider, until the answer began.
    pub upstream: Option<Span>,
}

impl Took {
    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// The waits of many calls.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Latency {
    account: Histogram,
    upstream: Histogram,
}

impl Latency {
    /// Adds a call.
    pub fn note(&mut self, took: Took) {
        for (histogram, span) in [
            (&mut self.account, took.account),
            (&mut self.upstream, took.upstream),
        ] {
            if let Some(span) = span {
                histogram.note(span);
            }
        }
    }

    /// Every number in its place, for the wire; none, if no call was added.
    pub fn to_row(&self) -> Vec<u64> {
        if self.is_empty() {
            return Vec::new();
        }
        let of = |one: &Histogram| one.counts.into_iter().chain([one.sum]).collect::<Vec<_>>();
        [of(&self.account), of(&self.upstream)].concat()
    }

    /// From such a row.
    pub fn of_row(row: &[u64]) -> Self {
        let mut latency = Self::default();
        let slots = [&mut latency.account, &mut latency.upstream];
        let slots = slots.into_iter().flat_map(|one| {
            let sum = std::iter::once(&mut one.sum);
            one.counts.iter_mut().chain(sum)
        });
        for (slot, count) in slots.zip(row) {
            *slot = *count;
        }
        latency
    }

    /// Adds all calls of another.
    pub fn add(&mut self, other: &Self) {
        self.account.add(&other.account);
        self.upstream.add(&other.upstream);
    }

    /// Whether no call was added.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As the ledger has it: an object of what was waited for, and each a count by bucket, the sum among them.
    /// What is zero is left out.
    pub fn to_json(&self) -> Value {
        let stages = [("account", &self.account), ("upstream", &self.upstream)];
        let json = stages.map(|(stage, histogram)| (stage.to_owned(), histogram.to_json()));
        json.into_iter()
            .filter(|(_, counts)| counts != &Value::Object(Map::new()))
            .collect()
    }

    /// From what the ledger has; what it can't mean is passed over.
    pub fn of_json(json: &Value) -> Self {
        let of = |stage| json.get(stage).map(Histogram::of_json);
        Self {
            account: of("account").unwrap_or_default(),
            upstream: of("upstream").unwrap_or_default(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Histogram {
    counts: [u64; BUCKETS.len() + 1],
    sum: u64,
}

impl Histogram {
    fn note(&mut self, span: Span) {
        let bucket = BUCKETS.iter().position(|end| span.0 <= *end);
        if let Some(count) = self.counts.get_mut(bucket.unwrap_or(BUCKETS.len())) {
            *count = count.saturating_add(1);
        }
        self.sum = self.sum.saturating_add(span.0);
    }

    fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    fn to_json(&self) -> Value {
        let named = names().zip(self.counts);
        named
            .chain([(SUM.to_owned(), self.sum)])
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name, Value::from(count)))
            .collect()
    }

    fn of_json(json: &Value) -> Self {
        let count = |name: &str| json.get(name).and_then(Value::as_u64).unwrap_or(0);
        let mut histogram = Self {
            sum: count(SUM),
            ..Self::default()
        };
        for (name, slot) in names().zip(&mut histogram.counts) {
            *slot = count(&name);
        }
        histogram
    }
}

/// The buckets' names in their order.
fn names() -> impl Iterator<Item = String> {
    let ends = BUCKETS.iter().map(ToString::to_string);
    ends.chain([ENDLESS.to_owned()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn took(account: u64, upstream: u64) -> Took {
        Took {
            account: Some(Span(account)),
            upstream: Some(Span(upstream)),
        }
    }

    #[test]
    fn a_wait_is_in_the_first_bucket_that_holds_it() {
        let mut latency = Latency::default();
        latency.note(took(5, 6));
        latency.note(took(0, 120_001));
        latency.note(Took::default());
        let text = latency.to_json().to_string();
        let expected = r#"{"account":{"5":2,"sum":5},"upstream":{"10":1,"inf":1,"sum":120007}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_row_has_every_number() {
        let mut latency = Latency::default();
        assert!(latency.to_row().is_empty());
        latency.note(took(5, 120_001));
        latency.note(took(0, 6));
        assert_eq!(Latency::of_row(&latency.to_row()), latency);
        assert_eq!(Latency::of_row(&[]), Latency::default());
    }

    #[test]
    fn what_is_added_together_is_what_was_noted_together() {
        let (mut one, mut other, mut both) = <(Latency, Latency, Latency)>::default();
        for (latency, took) in [(&mut one, took(3, 300)), (&mut other, took(3, 90))] {
            latency.note(took);
            both.note(took);
        }
        one.add(&other);
        assert_eq!(one, both);
    }

    proptest! {
        #[test]
        fn the_ledger_gives_back_what_it_was_told(waits in prop::collection::vec(any::<(u32, u32)>(), 0..20)) {
            let mut latency = Latency::default();
            for (account, upstream) in waits {
                latency.note(took(account.into(), upstream.into()));
            }
            prop_assert_eq!(Latency::of_json(&latency.to_json()), latency);
        }
    }
}
