//! What callers ask of a model and what providers answer, as bytes of any kind (see [`crate::fuzzing`]).

use serde_json::{Map, Value};

use super::Dialect;
use super::meter::{Feed, MeterPolicy, Settled, StreamEnd, StreamMeter};
use super::request::{LlmRequest, SimpleQuery};
use super::sse::{EVENT_CAP, Event, EventScanner, Scanned};
use super::usage::{self, Usage};
use crate::fuzzing::choose;
use crate::json::{MAX_DEPTH, parse_strict};

const STREAMING: [Dialect; 4] = [
    Dialect::ChatCompletions,
    Dialect::Completions,
    Dialect::Messages,
    Dialect::Responses,
];
const BUDGETS: [Option<u64>; 4] = [None, None, Some(20), Some(200)];
/// Most bytes of an event that the second scanner reads, so that some pass it.
const SMALL_CAP: usize = 64;

/// Streams: dialect, budget and piece size, a byte each, then the provider's bytes. What the caller gets and
/// what is charged is the same however the bytes are cut, and nothing is lost or made up on the way.
pub fn sse(bytes: &[u8]) {
    let Some((dialect, bytes)) = choose(bytes, &STREAMING) else {
        return;
    };
    let Some((token_budget, bytes)) = choose(bytes, &BUDGETS) else {
        return;
    };
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let policy = MeterPolicy {
        hide_usage: size.is_multiple_of(2),
        prompt_estimate: 7,
        token_budget,
    };
    let whole = metered(dialect, policy, &[bytes]);
    let pieces: Vec<_> = bytes.chunks(usize::from(size).max(1)).collect();
    assert!(
        whole == metered(dialect, policy, &pieces),
        "cuts change the reading"
    );
    if !policy.hide_usage && token_budget.is_none() {
        assert!(bytes.starts_with(&whole.passed), "bytes were changed");
        assert!(whole.feed == Feed::Continue);
    }
    if policy.hide_usage && token_budget.is_none() {
        assert!(whole.passed.len() <= bytes.len());
    }
    assert!(whole.settled.usage.total() >= whole.settled.usage.prompt);
    scanned_alike(bytes, &pieces);
}

#[derive(PartialEq)]
struct Metered {
    feed: Feed,
    passed: Vec<u8>,
    ending: Vec<u8>,
    settled: Settled,
}

fn metered(dialect: Dialect, policy: MeterPolicy, pieces: &[&[u8]]) -> Metered {
    let mut meter = StreamMeter::new(dialect, policy);
    let (mut passed, mut ending) = (Vec::new(), Vec::new());
    let mut feed = Feed::Continue;
    for piece in pieces {
        feed = meter.feed(piece, &mut passed);
        if feed == Feed::Cut {
            break;
        }
    }
    let settled = meter.finish(StreamEnd::Complete, &mut ending);
    Metered {
        feed,
        passed,
        ending,
        settled,
    }
}

/// Name and data of an event; `None` for one that is too large to be read.
type Read = Option<(String, String)>;

fn scanned_alike(bytes: &[u8], pieces: &[&[u8]]) {
    for cap in [SMALL_CAP, EVENT_CAP] {
        let (events, given) = scanned(&[bytes], cap);
        assert!(given == bytes, "the scanner loses bytes");
        assert!(
            (events, given) == scanned(pieces, cap),
            "cuts change the events"
        );
    }
}

fn scanned(pieces: &[&[u8]], cap: usize) -> (Vec<Read>, Vec<u8>) {
    let mut scanner = EventScanner::new(cap);
    let (mut events, mut given) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while let Some(found) = scanner.next(&mut rest) {
            match found {
                Scanned::Whole(raw) => {
                    let event = Event::parse(raw);
                    given.extend_from_slice(raw);
                    events.push(Some((event.name.into_owned(), event.data.into_owned())));
                }
                Scanned::Unread { raw, ends, .. } => {
                    given.extend_from_slice(raw);
                    if ends {
                        events.push(None);
                    }
                }
            }
        }
        assert!(rest.is_empty());
    }
    if let Some(event) = scanner.rest() {
        given.extend_from_slice(event.raw);
        events.push(Some((event.name.into_owned(), event.data.into_owned())));
    }
    (events, given)
}

/// Whole answers: a dialect's byte, then a provider's JSON. A reading is never made of nothing, and no sum
/// of it wraps.
pub fn answer(bytes: &[u8]) {
    let Some((dialect, bytes)) = choose(bytes, &Dialect::ALL) else {
        return;
    };
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let estimate = usage::estimated(7, &json);
    assert!(estimate.estimated && estimate.prompt == 7);
    let Some(usage) = usage::of_answer(dialect, &json) else {
        return;
    };
    let Usage {
        prompt, completion, ..
    } = usage;
    assert!(!usage.estimated && usage.total() > 0);
    assert!(
        usage.total() == prompt + completion,
        "no sum comes near the end of u64"
    );
    let said = json.to_string();
    assert!(
        said.contains("tokens"),
        "no usage without a number of tokens"
    );
}

/// Bodies: dialect and cap, a byte each, then a caller's JSON. What was checked is what is sent: whoever
/// reads the body for the provider finds the model, the bounds and the number of choices that were judged.
pub fn body(bytes: &[u8]) {
    let Some((dialect, bytes)) = choose(bytes, &Dialect::ALL) else {
        return;
    };
    let Some((cap, bytes)) = choose(bytes, &[None, Some(1), Some(100), Some(1 << 53)]) else {
        return;
    };
    let Ok(request) = LlmRequest::parse(dialect, bytes) else {
        return;
    };
    assert!(!request.model().is_empty() && request.choices() >= 1);
    sent_as_checked(&request, cap);
}

fn sent_as_checked(request: &LlmRequest, cap: Option<u64>) {
    let dialect = request.dialect();
    let bodies = [
        (
            request.to_upstream("target", cap),
            request.stream() && dialect.has_choices(),
        ),
        (request.to_upstream_without_usage("target", cap), false),
    ];
    for (sent, asks_for_usage) in bodies {
        let read = LlmRequest::parse(dialect, &sent);
        assert!(read.is_ok(), "what is sent is not what would be taken");
        let Ok(read) = read else {
            return;
        };
        assert!(read.model() == "target");
        assert!(read.stream() == request.stream());
        assert!(read.choices() == request.choices());
        assert!(!asks_for_usage || read.wants_usage());
        match cap.filter(|_| dialect.can_stream()) {
            // Whatever bound the provider obeys, it is one that was reserved.
            Some(cap) => {
                assert!(read.max_tokens() == Some(request.max_tokens().unwrap_or(cap).min(cap)))
            }
            None => assert!(read.max_tokens() == request.max_tokens()),
        }
        assert!(
            others(request.body()) == others(read.body()),
            "fields nobody has an opinion on change"
        );
    }
}

/// The fields that pass through, but for numbers with a fraction, whose last digit may be written otherwise.
fn others(body: &Map<String, Value>) -> Vec<(String, String)> {
    let ours = [
        "model",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
    ];
    let pass = body
        .iter()
        .filter(|(name, _)| !ours.contains(&name.as_str()));
    let mut fields: Vec<_> = pass
        .map(|(name, value)| (name.clone(), without_fractions(value).to_string()))
        .collect();
    fields.sort();
    fields
}

fn without_fractions(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::Null,
        Value::Array(items) => items.iter().map(without_fractions).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), without_fractions(value)))
            .collect(),
        plain => plain.clone(),
    }
}

/// The simple door: what it takes becomes a chat that is checked like any other.
pub fn query(bytes: &[u8]) {
    let Ok(query) = SimpleQuery::parse(bytes) else {
        return;
    };
    if let Ok(request) = query.into_chat(Some("default".to_owned())) {
        assert!(request.dialect() == Dialect::ChatCompletions && !request.stream());
        assert!(request.body().contains_key("messages"));
        sent_as_checked(&request, Some(50));
    }
}

/// Any JSON: what is taken is taken alike when it is written again, and is never deeper than it may be.
pub fn json(bytes: &[u8]) {
    let Ok(value) = parse_strict(bytes) else {
        return;
    };
    assert!(serde_json::from_slice::<Value>(bytes).is_ok());
    assert!(depth(&value) <= MAX_DEPTH);
    let again = parse_strict(value.to_string().as_bytes());
    assert!(again.is_ok_and(|again| without_fractions(&again) == without_fractions(&value)));
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or(0)
}
