//! Server-sent events out of bytes that are cut anywhere. The bytes themselves stay as they are: an event
//! comes with the exact bytes it was made of, its blank line included.

use std::borrow::Cow;

/// Most bytes of one event that are kept to be read.
pub const EVENT_CAP: usize = 256 << 10;

/// One complete event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// All its bytes.
    pub raw: &'a [u8],
    /// The `event` field; empty without one.
    pub name: Cow<'a, str>,
    /// The `data` lines, joined; empty for comments.
    pub data: Cow<'a, str>,
}

impl<'a> Event<'a> {
    /// Reads the bytes of one event.
    pub fn parse(raw: &'a [u8]) -> Self {
        let mut name: &[u8] = &[];
        let mut data: Option<Cow<'_, [u8]>> = None;
        let text = raw.strip_prefix(b"\xef\xbb\xbf").unwrap_or(raw);
        // A CRLF splits into a line and an empty one, which says nothing.
        for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
            match field(line) {
                (b"event", value) => name = value,
                (b"data", value) => match &mut data {
                    None => data = Some(Cow::Borrowed(value)),
                    Some(lines) => {
                        let lines = lines.to_mut();
                        lines.push(b'\n');
                        lines.extend_from_slice(value);
                    }
                },
                _ => {}
            }
        }
        Self {
            raw,
            name: String::from_utf8_lossy(name),
            data: match data.unwrap_or_default() {
                Cow::Borrowed(line) => String::from_utf8_lossy(line),
                Cow::Owned(lines) => String::from_utf8_lossy(&lines).into_owned().into(),
            },
        }
    }
}

/// What the scanner found.
#[derive(Debug, PartialEq, Eq)]
pub enum Scanned<'a> {
    /// All the bytes of an event, which is to be read.
    Whole(&'a [u8]),
    /// The next bytes of an event too large to be kept.
    Unread {
        /// These bytes.
        raw: &'a [u8],
        /// The `event` field, if it came before the data.
        name: Cow<'a, str>,
        /// Whether the event ends with them.
        ends: bool,
    },
}

/// Finds events. Of one that is not complete yet, little more than the cap is kept.
#[derive(Debug)]
pub struct EventScanner {
    cap: usize,
    lines: Lines,
    held: Vec<u8>,
    /// What is held was given out and goes with the next call.
    spent: bool,
    /// The current event passed the cap; this is its name.
    unread: Option<String>,
}

impl EventScanner {
    /// A scanner that reads events of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            lines: Lines::default(),
            held: Vec::new(),
            spent: false,
            unread: None,
        }
    }

    /// Takes the next finding off the front of `rest`; `None`: all of it was taken and more is needed.
    pub fn next<'a, 'b: 'a>(&'a mut self, rest: &mut &'b [u8]) -> Option<Scanned<'a>> {
        if std::mem::take(&mut self.spent) {
            self.held.clear();
        }
        let (length, ends) = self.lines.event_end(rest);
        let (head, tail) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        *rest = tail;
        if let Some(name) = self.unread.take() {
            self.unread = (!ends).then(|| name.clone());
            let more = ends || !head.is_empty();
            return more.then_some(Scanned::Unread {
                raw: head,
                name: name.into(),
                ends,
            });
        }
        if ends && self.held.is_empty() {
            return Some(whole(head, self.cap));
        }
        self.held.extend_from_slice(head);
        if ends {
            self.spent = true;
            return Some(whole(&self.held, self.cap));
        }
        if self.held.len() <= self.cap {
            return None;
        }
        self.spent = true;
        let name = Event::parse(&self.held).name;
        self.unread = Some(name.clone().into_owned());
        Some(Scanned::Unread {
            raw: &self.held,
            name,
            ends: false,
        })
    }

    /// What is left once the bytes have ended: an event without its blank line.
    pub fn rest(&self) -> Option<Event<'_>> {
        (!self.spent && !self.held.is_empty()).then(|| Event::parse(&self.held))
    }
}

/// Whether an event came in one piece or in many makes no difference to its being read.
fn whole(raw: &[u8], cap: usize) -> Scanned<'_> {
    if raw.len() <= cap {
        return Scanned::Whole(raw);
    }
    Scanned::Unread {
        raw,
        name: Event::parse(raw).name,
        ends: true,
    }
}

/// Where in the lines the scan is. Lines end with LF, CR or CRLF.
#[derive(Debug)]
struct Lines {
    /// Nothing of the current line was seen.
    at_start: bool,
    /// A CR was the last byte: a LF would belong to it.
    after_cr: bool,
    /// That CR ended an empty line.
    blank: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            at_start: true,
            after_cr: false,
            blank: false,
        }
    }
}

impl Lines {
    /// How many of `bytes` belong to the current event, and whether it ends with them.
    fn event_end(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if std::mem::take(&mut self.after_cr) {
                let blank = std::mem::take(&mut self.blank);
                at += usize::from(byte == b'\n');
                if blank {
                    return (at, true);
                }
                if byte == b'\n' {
                    continue;
                }
            }
            match byte {
                b'\n' => {
                    at += 1;
                    if std::mem::replace(&mut self.at_start, true) {
                        return (at, true);
                    }
                }
                b'\r' => {
                    at += 1;
                    self.after_cr = true;
                    self.blank = std::mem::replace(&mut self.at_start, true);
                }
                _ => {
                    self.at_start = false;
                    at = line_end(bytes, at);
                }
            }
        }
        (at, false)
    }
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    let line = bytes.get(from..).unwrap_or_default();
    let length = line.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    length.map_or(bytes.len(), |length| from.saturating_add(length))
}

/// A line's name and value; one space after the colon is not part of the value.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let colon = line.iter().position(|byte| *byte == b':');
    let Some((name, value)) = colon.and_then(|at| line.split_at_checked(at)) else {
        return (line, &[]);
    };
    let value = value.strip_prefix(b":").unwrap_or(value);
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name and data of all events, and all bytes given out.
    fn scan(chunks: &[&[u8]], cap: usize) -> (Vec<(String, String)>, Vec<u8>) {
        let mut scanner = EventScanner::new(cap);
        let (mut events, mut bytes) = (Vec::new(), Vec::new());
        for chunk in chunks {
            let mut rest = *chunk;
            while let Some(found) = scanner.next(&mut rest) {
                match found {
                    Scanned::Whole(raw) => {
                        let event = Event::parse(raw);
                        bytes.extend_from_slice(raw);
                        if !event.data.is_empty() || !event.name.is_empty() {
                            events.push((event.name.into_owned(), event.data.into_owned()));
                        }
                    }
                    Scanned::Unread { raw, name, ends } => {
                        bytes.extend_from_slice(raw);
                        if ends {
                            events.push((name.into_owned(), "(unread)".to_owned()));
                        }
                    }
                }
            }
            assert!(rest.is_empty());
        }
        if let Some(event) = scanner.rest() {
            bytes.extend_from_slice(event.raw);
            events.push((event.name.into_owned(), event.data.into_owned()));
        }
        (events, bytes)
    }

    fn events(text: &str) -> Vec<(String, String)> {
        let (events, bytes) = scan(&[text.as_bytes()], EVENT_CAP);
        assert_eq!(bytes, text.as_bytes());
        events
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(name, data)| ((*name).to_owned(), (*data).to_owned()))
            .collect()
    }

    #[test]
    fn lines_end_in_three_ways() {
        let expected = pairs(&[("", "a"), ("x", "b\nc")]);
        for end in ["\n", "\r\n", "\r"] {
            let text = "data: a\n\nevent: x\ndata: b\ndata:c\n\n".replace('\n', end);
            assert_eq!(events(&text), expected, "{text:?}");
        }
    }

    #[test]
    fn fields_are_read_as_browsers_read_them() {
        assert_eq!(events("data:  two\n\n"), pairs(&[("", " two")]));
        assert_eq!(events("data\ndata:x\n\n"), pairs(&[("", "\nx")]));
        assert_eq!(events("id: 1\nretry: 5\nfoo\n: comment\n\n"), pairs(&[]));
        assert_eq!(events("\u{feff}data: x\n\n"), pairs(&[("", "x")]));
        assert_eq!(
            events("event: a\nevent: b\ndata: {\"k\": 1}\n\n"),
            pairs(&[("b", "{\"k\": 1}")])
        );
        assert_eq!(events("\n\n\ndata: x\n\n\n"), pairs(&[("", "x")]));
    }

    #[test]
    fn the_last_event_may_lack_its_blank_line() {
        assert_eq!(
            events("data: a\n\ndata: [DONE]"),
            pairs(&[("", "a"), ("", "[DONE]")])
        );
        assert_eq!(events("data: [DONE]\r"), pairs(&[("", "[DONE]")]));
    }

    #[test]
    fn bytes_that_are_no_text_pass_all_the_same() {
        let (events, bytes) = scan(&[b"data: \xff\xfe\n\n"], EVENT_CAP);
        assert_eq!(bytes, b"data: \xff\xfe\n\n");
        assert_eq!(events, pairs(&[("", "\u{fffd}\u{fffd}")]));
    }

    #[test]
    fn too_large_an_event_passes_unread_however_it_is_cut() {
        let text = format!("event: big\ndata: {}\n\ndata: x\n\n", "y".repeat(100));
        let expected = pairs(&[("big", "(unread)"), ("", "x")]);
        for size in [1, 7, 30, 1_000] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let (events, bytes) = scan(&chunks, 50);
            assert_eq!(
                (events, bytes),
                (expected.clone(), text.clone().into_bytes()),
                "{size}"
            );
        }
    }

    #[test]
    fn no_more_than_the_cap_and_a_chunk_is_held() {
        let mut scanner = EventScanner::new(100);
        for _ in 0..1_000 {
            let mut rest: &[u8] = b"data: no end in sight ";
            while scanner.next(&mut rest).is_some() {}
            assert!(scanner.held.len() <= 100 + 22);
        }
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            lines in prop::collection::vec("(data: |event: |: |)[a-zü日\u{1f980}]{0,6}(\n|\r\n|\r|\n\n|\r\n\r\n|\r\r)", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            cap in prop_oneof![Just(12), Just(EVENT_CAP)],
        ) {
            let text = lines.concat();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|w| &text.as_bytes()[w[0]..w[1]]).collect();
            let (events, bytes) = scan(&chunks, cap);
            prop_assert_eq!(&bytes, text.as_bytes());
            if cap == EVENT_CAP {
                prop_assert_eq!(events, scan(&[text.as_bytes()], cap).0);
            }
        }
    }
}
