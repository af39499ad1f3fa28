//! Reads the meter of a stream while its bytes pass untouched, and ends the stream properly where its
//! provider does not: when a reservation is used up, and when an answer breaks off.
//!
//! An event is forwarded once it is complete. So a stream that is cut or broken never ends in half an
//! event, and a caller loses nothing by it: no client acts on half an event.

mod choices;
mod frame;
mod messages;
mod responses;

use serde::Serialize;
use serde_json::Value;

use super::Dialect;
use super::estimate::TokenCounter;
use super::sse::{EVENT_CAP, Event, EventScanner, Scanned};
use super::usage::{Report, Usage};
use choices::Choices;
use frame::Frame;
use messages::Messages;
use responses::Responses;

/// A Responses stream ends with an event that repeats the whole answer and holds the usage.
const RESPONSES_EVENT_CAP: usize = 1 << 20;

/// What the meter is told before a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeterPolicy {
    /// The caller did not ask for usage: the chunk that has nothing else is left out.
    pub hide_usage: bool,
    /// Estimated tokens of the prompt.
    pub prompt_estimate: u64,
    /// Tokens reserved for prompt and completion; `None` is unlimited.
    pub token_budget: Option<u64>,
}

/// Whether to go on reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// The answer goes on.
    Continue,
    /// The reservation is used up; the end the caller sees is already written.
    Cut,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamEnd {
    /// The provider sent all it had to send.
    Complete,
    /// The connection to the provider broke.
    UpstreamBroke,
    /// The caller hung up.
    CallerLeft,
    /// The caller takes no more bytes.
    WriteFailed,
    /// The provider fell silent.
    TimedOut,
}

/// Why an answer ended, in one vocabulary for all APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// The bound on tokens was reached.
    Length,
    /// The model calls tools.
    ToolCalls,
    /// The provider withholds the rest.
    ContentFilter,
    /// The provider reported an error.
    Error,
    /// No end was seen.
    Truncated,
    /// The provider gave another reason or none.
    Other,
}

/// The reading after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// What is charged.
    pub usage: Usage,
    /// Why the answer ended.
    pub finish: Finish,
    /// Whether the caller got an answer with a proper end, the meter's own cut included.
    pub complete: bool,
}

/// The stream of one API: what its events say, and how it is ended in its own words.
trait Protocol {
    /// Takes in an event and passes on the text it adds to the answer.
    fn read(&mut self, event: &Value, text: &mut dyn FnMut(&str));
    /// Takes in data that is no JSON.
    fn read_mark(&mut self, data: &str);
    /// Takes in an event too large to be read; whether it adds to the answer.
    fn read_unread(&mut self, name: &str) -> bool;
    /// What is known of the answer's end.
    fn progress(&self) -> &Progress;
    /// Whether text may still follow.
    fn is_open(&self) -> bool;
    /// The events that end the answer at its bound.
    fn end_at_bound(&self, usage: &Usage, show_usage: bool) -> String;
    /// The event that tells the caller of a failure.
    fn tell_failure(&self, failure: Failure) -> String;
}

/// What a stream has said of its own end.
#[derive(Debug, Default)]
struct Progress {
    /// The event that ends the answer was there.
    ended: bool,
    /// The provider reported an error, which the caller has seen.
    failed: bool,
    finish: Option<Finish>,
}

/// Why an answer has no end of its own.
#[derive(Debug, Clone, Copy)]
struct Failure {
    code: &'static str,
    message: &'static str,
}

const INCOMPLETE: Failure = Failure {
    code: "upstream_incomplete",
    message: "The provider's stream ended before the answer was complete.",
};

const TIMED_OUT: Failure = Failure {
    code: "upstream_timeout",
    message: "The provider stopped sending before the answer was complete.",
};

/// The meter of one stream.
pub struct StreamMeter {
    scanner: EventScanner,
    reading: Reading,
    was_cut: bool,
    /// The bytes forwarded last lack the blank line that ends an event.
    mid_event: bool,
}

impl StreamMeter {
    /// A meter for a stream of one of the APIs.
    pub fn new(dialect: Dialect, policy: MeterPolicy) -> Self {
        let cap = match dialect {
            Dialect::Responses => RESPONSES_EVENT_CAP,
            _ => EVENT_CAP,
        };
        Self {
            scanner: EventScanner::new(cap),
            reading: Reading::new(dialect, policy),
            was_cut: false,
            mid_event: false,
        }
    }

    /// Takes in bytes of the provider and appends to `out` what goes to the caller.
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Feed {
        let mut rest = chunk;
        while !self.was_cut {
            let Some(found) = self.scanner.next(&mut rest) else {
                return Feed::Continue;
            };
            let (raw, hidden) = match &found {
                Scanned::Whole(raw) => {
                    self.mid_event = false;
                    (*raw, self.reading.take(raw))
                }
                Scanned::Unread { raw, name, ends } => {
                    self.mid_event = !ends;
                    self.reading.skip(raw, name);
                    (*raw, false)
                }
            };
            if !hidden {
                out.extend_from_slice(raw);
            }
            if self.reading.is_over_budget() {
                self.was_cut = true;
                self.append(&self.reading.end_at_bound(), out);
            }
        }
        Feed::Cut
    }

    /// Tokens used so far.
    pub fn metered(&self) -> Usage {
        self.reading.usage()
    }

    /// Ends the stream; appends to `out` what the caller still gets: the provider's last bytes, and an
    /// error where the answer has no end.
    pub fn finish(&mut self, end: StreamEnd, out: &mut Vec<u8>) -> Settled {
        let failure = match end {
            StreamEnd::Complete | StreamEnd::UpstreamBroke => Some(INCOMPLETE),
            StreamEnd::TimedOut => Some(TIMED_OUT),
            StreamEnd::CallerLeft | StreamEnd::WriteFailed => None,
        };
        if let Some(failure) = failure.filter(|_| !self.was_cut) {
            self.flush(out);
            let progress = self.reading.protocol.progress();
            if !progress.ended && !progress.failed {
                self.append(&self.reading.protocol.tell_failure(failure), out);
            }
        }
        self.settled()
    }

    /// Forwards an event that lacks nothing but its blank line; half an event is of no use.
    fn flush(&mut self, out: &mut Vec<u8>) {
        let Some(event) = self.scanner.rest() else {
            return;
        };
        if is_whole(&event) && !self.reading.read(&event) {
            out.extend_from_slice(event.raw);
            self.mid_event = true;
        }
    }

    fn append(&self, events: &str, out: &mut Vec<u8>) {
        if self.mid_event {
            out.extend_from_slice(b"\n\n");
        }
        out.extend_from_slice(events.as_bytes());
    }

    fn settled(&self) -> Settled {
        let progress = self.reading.protocol.progress();
        let complete = progress.ended || self.was_cut;
        Settled {
            usage: self.reading.usage(),
            finish: match progress.finish {
                _ if self.was_cut => Finish::Length,
                _ if progress.failed => Finish::Error,
                _ if !complete => Finish::Truncated,
                finish => finish.unwrap_or(Finish::Other),
            },
            complete,
        }
    }
}

fn is_whole(event: &Event<'_>) -> bool {
    let data = event.data.trim();
    data.is_empty() || data == DONE || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

/// The mark that ends the streams of chat and completions.
const DONE: &str = "[DONE]";

/// What has been read of a stream: by the provider's numbers up to its last report, by text since.
struct Reading {
    dialect: Dialect,
    policy: MeterPolicy,
    protocol: Box<dyn Protocol>,
    prompt: Option<u64>,
    completion: Option<u64>,
    since: Relayed,
    /// Of the event before, if it had but one text and no numbers.
    frame: Option<Frame>,
}

impl Reading {
    fn new(dialect: Dialect, policy: MeterPolicy) -> Self {
        Self {
            dialect,
            policy,
            protocol: match dialect {
                Dialect::Messages => Box::new(Messages::default()),
                Dialect::Responses => Box::new(Responses::default()),
                _ => Box::new(Choices::new(dialect)),
            },
            prompt: None,
            completion: None,
            since: Relayed::default(),
            frame: None,
        }
    }

    /// Takes in the bytes of an event; whether it is kept from the caller.
    fn take(&mut self, raw: &[u8]) -> bool {
        // What says the same but for its text changes nothing else.
        if let Some(text) = self.frame.as_ref().and_then(|frame| frame.text_of(raw)) {
            self.since.push(text);
            return false;
        }
        self.read(&Event::parse(raw))
    }

    /// Takes in an event; whether it is kept from the caller.
    fn read(&mut self, event: &Event<'_>) -> bool {
        self.frame = None;
        let data = event.data.trim();
        if data.is_empty() {
            return false;
        }
        let Ok(json) = serde_json::from_str::<Value>(data) else {
            self.protocol.read_mark(data);
            return false;
        };
        let since = &mut self.since;
        let (mut texts, mut last) = (0_usize, String::new());
        self.protocol.read(&json, &mut |text| {
            since.push(text);
            texts = texts.saturating_add(1);
            text.clone_into(&mut last);
        });
        match Report::of(self.dialect, &json) {
            Some(report) => self.believe(report),
            // The events of responses are numbered: no two have the same frame.
            None if texts == 1 && self.dialect != Dialect::Responses => {
                self.frame = Frame::around(&last, event.raw);
            }
            None => {}
        }
        self.policy.hide_usage && self.dialect.has_choices() && is_usage_chunk(&json)
    }

    fn skip(&mut self, raw: &[u8], name: &str) {
        self.frame = None;
        if self.protocol.read_unread(name) {
            self.since.unread_bytes = self.since.unread_bytes.saturating_add(raw.len());
        }
    }

    /// A report replaces all that was counted before it, an earlier report included.
    fn believe(&mut self, report: Report) {
        self.prompt = match self.dialect {
            // A later report may leave out the cache fields of the first.
            Dialect::Messages => report.prompt.max(self.prompt),
            _ => report.prompt.or(self.prompt),
        };
        let completion = report.completion(self.prompt());
        // Some providers fill in zero until they know.
        let is_placeholder = completion == Some(0) && self.since.least() > 0;
        if completion.is_some() && !is_placeholder {
            self.completion = completion;
            self.since = Relayed::default();
        }
    }

    fn prompt(&self) -> u64 {
        self.prompt.unwrap_or(self.policy.prompt_estimate)
    }

    fn usage(&self) -> Usage {
        let since = self.since.likely();
        let reported = self.completion.unwrap_or(0);
        let likely = reported.saturating_add(since);
        Usage {
            prompt: self.prompt(),
            completion: match self.allowed() {
                // A guess from text does not say that a provider broke its bound; what was surely written does.
                Some(allowed) => likely.min(allowed.max(self.written())),
                None => likely,
            },
            estimated: self.prompt.is_none() || self.completion.is_none() || since > 0,
        }
    }

    /// Tokens the completion may have.
    fn allowed(&self) -> Option<u64> {
        let budget = self.policy.token_budget?;
        Some(budget.saturating_sub(self.policy.prompt_estimate))
    }

    /// Tokens that were surely written.
    fn written(&self) -> u64 {
        self.completion
            .unwrap_or(0)
            .saturating_add(self.since.least())
    }

    /// The prompt's share of the budget was an estimate, so only the completion is held to its own: who
    /// keeps to `max_tokens` is never cut because the prompt was longer than it looked.
    fn is_over_budget(&self) -> bool {
        self.protocol.is_open()
            && self
                .allowed()
                .is_some_and(|allowed| self.written() > allowed)
    }

    fn end_at_bound(&self) -> String {
        self.protocol
            .end_at_bound(&self.usage(), !self.policy.hide_usage)
    }
}

/// The chunk that callers who index `choices[0]` stumble over.
fn is_usage_chunk(chunk: &Value) -> bool {
    let no_choices = chunk
        .get("choices")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty);
    no_choices && chunk.get("usage").is_some_and(|usage| !usage.is_null())
}

/// Text that was relayed and not yet reported on.
#[derive(Debug, Default)]
struct Relayed {
    pieces: u64,
    text: TokenCounter,
    unread_bytes: usize,
}

impl Relayed {
    fn push(&mut self, text: &str) {
        if !text.is_empty() {
            self.pieces = self.pieces.saturating_add(1);
            self.text.push(text);
        }
    }

    /// Most providers send one token a piece. Where the number of pieces agrees with the text it is
    /// the better count; where it does not, the pieces are something else.
    fn likely(&self) -> u64 {
        let estimate = self.text.tokens();
        let plausible = self.text.least_tokens()..=estimate.saturating_mul(3) / 2;
        let tokens = if plausible.contains(&self.pieces) {
            self.pieces
        } else {
            estimate
        };
        tokens.saturating_add(self.unread())
    }

    /// What was written at the least, as far as text can tell: an honest provider must not be cut because
    /// its tokens are longer than most.
    fn least(&self) -> u64 {
        let tokens = self
            .pieces
            .min(self.text.tokens())
            .max(self.text.least_tokens());
        tokens.saturating_add(self.unread())
    }

    fn unread(&self) -> u64 {
        u64::try_from(self.unread_bytes).unwrap_or(u64::MAX) / 4
    }
}

/// One event without a name.
fn data_event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// One event named after the `type` of its data.
fn typed_event(data: &Value) -> String {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
