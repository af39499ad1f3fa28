use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Millis, Span, WindowLimit};

/// Limits up to this many calls are counted exactly, call by call.
const EXACT: u64 = 1_024;
/// Above, calls share sub-windows of this part of the span.
const PARTS: u64 = 512;
/// Entries a page; only the last, open page is written with every call.
const PAGE: usize = 64;

/// Calls made within one millisecond, or, in a large window, within one sub-window.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// When they count as made; never before they were.
    pub at: Millis,
    /// What they cost together.
    pub cost: u64,
}

/// A full page of entries, which changes no more.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Page {
    number: u64,
    entries: Vec<Entry>,
    cost: u64,
}

/// A true sliding window: the costs of all calls in the span that ends now.
///
/// A call at `t` counts up to but without `t + span`, so no span of that length, wherever it begins,
/// sees more than the limit. Windows of more than 1,024 calls count them in sub-windows of 1/512 of the
/// span, each as if made at its end: a call counts longer by less than that, which only ever refuses.
/// Where a clock steps back, calls from its future count as made now.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct WindowLog {
    span: Span,
    #[serde(serialize_with = "numbers_of", deserialize_with = "empty_pages")]
    pages: VecDeque<Page>,
    #[serde(with = "packed")]
    tail: Vec<Entry>,
    next_page: u64,
    #[serde(skip)]
    written: BTreeSet<u64>,
    #[serde(skip)]
    dropped: BTreeSet<u64>,
}

impl WindowLog {
    /// Forgets calls that have left the window.
    pub fn touch(&mut self, now: Millis, limit: Option<WindowLimit>) {
        if let Some(limit) = limit {
            self.span = length(limit);
            self.pull_back(self.stamp(now, limit));
        } else {
            self.pull_back(now.plus(part(self.span)));
        }
        let held = |entry: &Entry| entry.is_held(now, self.span);
        while let Some(page) = self.pages.front() {
            if page.entries.last().is_some_and(held) {
                break;
            }
            self.dropped.insert(page.number);
            self.pages.pop_front();
        }
        let gone = self.tail.iter().take_while(|e| !held(e)).count();
        self.tail.drain(..gone);
    }

    /// The cost of all calls in the window.
    pub fn used(&self, now: Millis, limit: WindowLimit) -> u64 {
        let held = |entry: &Entry| entry.is_held(now, length(limit));
        let pages = self.pages.iter().map(|page| match page.entries.first() {
            Some(first) if held(first) => page.cost,
            _ => cost(page.entries.iter().filter(|e| held(e))),
        });
        let tail = cost(self.tail.iter().filter(|e| held(e)));
        pages.fold(tail, u64::saturating_add)
    }

    /// How long until `cost` has room, with no other calls; zero if it has now. A cost above the limit
    /// gets the time until the window is empty.
    pub fn wait(&self, now: Millis, limit: WindowLimit, cost: u64) -> Span {
        let mut over = self
            .used(now, limit)
            .saturating_add(cost)
            .saturating_sub(limit.max_requests);
        let mut wait = Span::ZERO;
        let latest = self.stamp(now, limit);
        for entry in self.entries().filter(|e| e.is_held(now, length(limit))) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(entry.cost);
            wait = entry.at.min(latest).plus(length(limit)).since(now);
        }
        wait
    }

    /// How long until the window is empty.
    pub fn wait_until_empty(&self, now: Millis, limit: WindowLimit) -> Span {
        self.wait(now, limit, u64::MAX)
    }

    /// Counts a call. Expects [`WindowLog::touch`] at `now`.
    pub fn count(&mut self, now: Millis, limit: WindowLimit, cost: u64) {
        let at = self.stamp(now, limit);
        match self.tail.last_mut() {
            Some(last) if last.at == at => last.cost = last.cost.saturating_add(cost),
            _ => self.tail.push(Entry { at, cost }),
        }
        if self.tail.len() >= PAGE {
            self.seal();
        }
    }

    /// Counts calls that were made up to `at` and not counted then: not earlier than anything that was.
    pub fn count_late(&mut self, at: Millis, limit: WindowLimit, cost: u64) {
        let sealed = self.pages.back().and_then(|page| page.entries.last());
        let last = self.tail.last().or(sealed).map_or(at, |entry| entry.at);
        self.count(at.max(last), limit, cost);
    }

    fn seal(&mut self) {
        let page = Page::new(self.next_page, std::mem::take(&mut self.tail));
        self.written.insert(page.number);
        self.pages.push_back(page);
        self.next_page += 1;
    }

    /// Forgets all calls.
    pub fn clear(&mut self) {
        self.dropped.extend(self.pages.iter().map(|p| p.number));
        self.pages.clear();
        self.tail.clear();
    }

    /// The instant the window is empty, by the span last in force.
    pub fn empty_at(&self) -> Millis {
        self.entries()
            .last()
            .map_or(Millis(0), |last| last.at.plus(self.span))
    }

    /// Whether nothing is left in it.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.tail.is_empty()
    }

    /// Pages to store and pages to delete since the last time this was asked.
    pub fn take_changes(&mut self) -> (Vec<(u64, Vec<u8>)>, BTreeSet<u64>) {
        let written = std::mem::take(&mut self.written);
        let pages = self.pages.iter().filter(|p| written.contains(&p.number));
        let pages = pages.map(|p| (p.number, pack(&p.entries))).collect();
        (pages, std::mem::take(&mut self.dropped))
    }

    /// The numbers of the pages it needs to be whole.
    pub fn page_numbers(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|p| p.number)
    }

    /// Puts a stored page in its place; `false` if the bytes can't be read.
    pub fn restore_page(&mut self, number: u64, bytes: &[u8]) -> bool {
        let page = self.pages.iter_mut().find(|p| p.number == number);
        match (page, unpack(bytes)) {
            (Some(page), Some(entries)) => {
                *page = Page::new(number, entries);
                true
            }
            _ => false,
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        let sealed = self.pages.iter().flat_map(|p| p.entries.iter());
        sealed.chain(&self.tail).copied()
    }

    /// When a call made now counts as made.
    fn stamp(&self, now: Millis, limit: WindowLimit) -> Millis {
        let entries = self.pages.len() * PAGE + self.tail.len();
        if limit.max_requests <= EXACT && entries < EXACT as usize + PAGE {
            return now;
        }
        let part = part(length(limit)).0;
        Millis(now.0.div_ceil(part).saturating_mul(part))
    }

    /// No call was made later than now, whatever the clock said then.
    fn pull_back(&mut self, latest: Millis) {
        for page in self.pages.iter_mut().rev() {
            if !pull_back(&mut page.entries, latest) {
                break;
            }
            self.written.insert(page.number);
        }
        pull_back(&mut self.tail, latest);
    }
}

impl Page {
    fn new(number: u64, entries: Vec<Entry>) -> Self {
        let cost = cost(&entries);
        Self {
            number,
            entries,
            cost,
        }
    }
}

impl Entry {
    fn is_held(self, now: Millis, span: Span) -> bool {
        self.at.plus(span) > now
    }
}

fn cost<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> u64 {
    let entries = entries.into_iter();
    entries.fold(0, |sum, entry| sum.saturating_add(entry.cost))
}

/// The length of a sub-window.
fn part(span: Span) -> Span {
    Span(span.0.div_ceil(PARTS).max(1))
}

fn length(limit: WindowLimit) -> Span {
    limit.span.max(Span(1))
}

fn pull_back(entries: &mut [Entry], latest: Millis) -> bool {
    let late = entries.iter_mut().rev().take_while(|e| e.at > latest);
    late.map(|entry| entry.at = latest).count() > 0
}

fn pack(entries: &[Entry]) -> Vec<u8> {
    postcard::to_allocvec(&Packed(entries.to_vec())).unwrap_or_default()
}

fn unpack(bytes: &[u8]) -> Option<Vec<Entry>> {
    postcard::from_bytes::<Packed>(bytes).ok().map(|p| p.0)
}

#[derive(Deserialize, Serialize)]
struct Packed(#[serde(with = "packed")] Vec<Entry>);

/// Entries as distances from one another: 4 bytes instead of 8.
mod packed {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Entry, Millis, Span};

    pub fn serialize<S: Serializer>(entries: &[Entry], serializer: S) -> Result<S::Ok, S::Error> {
        let mut before = Millis(0);
        serializer.collect_seq(entries.iter().map(|entry| {
            let distance = entry.at.since(before);
            before = entry.at;
            (distance, entry.cost)
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
        let mut before = Millis(0);
        let packed = Vec::<(Span, u64)>::deserialize(deserializer)?;
        let entries = packed.into_iter().map(|(distance, cost)| {
            before = before.plus(distance);
            Entry { at: before, cost }
        });
        Ok(entries.collect())
    }
}

fn numbers_of<S: Serializer>(pages: &VecDeque<Page>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pages.iter().map(|p| p.number))
}

fn empty_pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VecDeque<Page>, D::Error> {
    let numbers = Vec::<u64>::deserialize(deserializer)?;
    Ok(numbers
        .into_iter()
        .map(|n| Page::new(n, Vec::new()))
        .collect())
}
