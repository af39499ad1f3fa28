//! The built-in mock model: it answers any model name in every API, the same way every time, without a
//! network. What it does is steered by marks in the last thing the user says:
//!
//! | mark | effect |
//! |---|---|
//! | `[[slow:500]]` | milliseconds before the first byte |
//! | `[[chunk_delay:50]]` | milliseconds between the events of a stream |
//! | `[[tokens:300]]` | an answer of exactly so many tokens, unless bounded |
//! | `[[ignore_max_tokens]]` | an answer past its bound |
//! | `[[no_usage]]` | an answer that does not say what it used |
//! | `[[stop_early]]` | an answer that breaks off |
//! | `[[fail:503]]` | an error with this status |
//! | `[[hang]]` | no answer at all |

mod script;
mod stream;
mod whole;

use serde_json::{Value, json};

use super::Dialect;
use super::estimate::TokenCounter;
use super::request::LlmRequest;
use super::usage::Usage;
use script::Script;

/// The models that are listed where no others are configured.
pub const MODELS: [&str; 2] = [SMALL, "mock-large"];

/// The one that answers who names none.
pub const SMALL: &str = "mock-small";

/// Longest answer, so that a mark cannot exhaust the memory.
const MAX_ANSWER: u64 = 20_000;

/// How much of the prompt an answer repeats.
const MAX_ECHO_CHARS: usize = 400;

/// What to do for one call.
#[derive(Debug, Clone, PartialEq)]
pub struct MockPlan {
    /// Milliseconds before the first byte.
    pub delay_ms: u64,
    /// Milliseconds between the events of a stream.
    pub chunk_delay_ms: u64,
    /// What is answered then.
    pub outcome: MockOutcome,
}

/// What the mock answers.
#[derive(Debug, Clone, PartialEq)]
pub enum MockOutcome {
    /// A JSON body, with status 200.
    Answer(String),
    /// The server-sent events of a stream, with status 200; each ends with its blank line.
    Stream(Vec<String>),
    /// An error.
    Failure {
        /// Its HTTP status.
        status: u16,
        /// Its JSON body.
        body: String,
    },
    /// Nothing, ever.
    Hang,
}

/// Decides what a call gets. `max_tokens` bounds each choice; `created` is the time in Unix seconds that the
/// answer carries.
pub fn plan(request: &LlmRequest, model: &str, max_tokens: Option<u64>, created: u64) -> MockPlan {
    let prompt = script::last_words(request);
    let script = Script::read(&prompt);
    let outcome = if script.hang {
        MockOutcome::Hang
    } else if let Some(status) = script.fail {
        MockOutcome::Failure {
            status,
            body: failure(request.dialect(), status),
        }
    } else {
        let bound = max_tokens.filter(|_| !script.ignore_max_tokens);
        let reply = Reply::to(request, model, &script, bound, created, &prompt);
        if request.stream() {
            MockOutcome::Stream(stream::events(&reply))
        } else {
            MockOutcome::Answer(whole::body(&reply, request))
        }
    };
    MockPlan {
        delay_ms: script.slow,
        chunk_delay_ms: script.chunk_delay,
        outcome,
    }
}

/// What a count of a prompt is answered.
pub fn count_tokens(request: &LlmRequest) -> Value {
    json!({"input_tokens": request.prompt_tokens()})
}

/// Everything an answer is made of, whichever API it is told in.
struct Reply {
    dialect: Dialect,
    /// The unique part of all ids.
    id: String,
    model: String,
    created: u64,
    choices: u64,
    /// The text of each choice; a stream sends piece by piece.
    pieces: Vec<String>,
    /// The bound cut the text short.
    is_cut: bool,
    usage: Usage,
    no_usage: bool,
    stop_early: bool,
}

impl Reply {
    fn to(
        request: &LlmRequest,
        model: &str,
        script: &Script,
        bound: Option<u64>,
        created: u64,
        prompt: &str,
    ) -> Self {
        let (pieces, tokens, is_cut) = compose(script, prompt, bound.unwrap_or(MAX_ANSWER));
        Self {
            dialect: request.dialect(),
            id: format!("mock{:016x}", fingerprint(&[model, prompt])),
            model: model.to_owned(),
            created,
            choices: request.choices(),
            pieces,
            is_cut,
            usage: Usage {
                prompt: request.prompt_tokens(),
                completion: tokens.saturating_mul(request.choices()),
                estimated: false,
            },
            no_usage: script.no_usage,
            stop_early: script.stop_early,
        }
    }

    fn text(&self) -> String {
        self.pieces.concat()
    }
}

/// The pieces of an answer of at most `bound` tokens, their tokens, and whether there were to be more.
fn compose(script: &Script, prompt: &str, bound: u64) -> (Vec<String>, u64, bool) {
    let wanted = match script.tokens {
        Some(count) => filler(count.min(MAX_ANSWER)),
        None => echo(prompt),
    };
    let mut counter = TokenCounter::default();
    let mut pieces = Vec::new();
    let mut tokens = 0;
    for piece in wanted {
        counter.push(&piece);
        if counter.tokens() > bound {
            return (pieces, tokens, true);
        }
        tokens = counter.tokens();
        pieces.push(piece);
    }
    (pieces, tokens, false)
}

/// Words of one token each.
fn filler(count: u64) -> Vec<String> {
    const WORDS: [&str; 8] = ["the", "river", "runs", "past", "the", "old", "mill", "and"];
    let words = WORDS.iter().cycle().zip(0..count);
    words
        .map(|(word, index)| {
            if index == 0 {
                (*word).to_owned()
            } else {
                format!(" {word}")
            }
        })
        .collect()
}

fn echo(prompt: &str) -> Vec<String> {
    let said: String = script::without_marks(prompt)
        .chars()
        .take(MAX_ECHO_CHARS)
        .collect();
    pieces_of(&format!("You said: {}", said.trim()))
}

/// Cuts before every space, and within what has none for long.
fn pieces_of(text: &str) -> Vec<String> {
    const LONGEST: usize = 8;
    let mut pieces: Vec<String> = Vec::new();
    for c in text.chars() {
        match pieces.last_mut() {
            Some(piece) if c != ' ' && piece.chars().count() < LONGEST => piece.push(c),
            _ => pieces.push(c.to_string()),
        }
    }
    pieces
}

fn failure(dialect: Dialect, status: u16) -> String {
    let message = format!("The mock model was told to fail with {status}.");
    match dialect {
        Dialect::Messages | Dialect::CountTokens => {
            json!({"type": "error", "error": {"type": "api_error", "message": message}})
        }
        _ => json!({"error": {"message": message, "type": "server_error", "param": null,
            "code": "mock_failure"}}),
    }
    .to_string()
}

/// FNV-1a over all parts: the same call has the same ids.
fn fingerprint(parts: &[&str]) -> u64 {
    parts
        .iter()
        .flat_map(|part| part.bytes().chain([0xff]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

#[cfg(test)]
#[path = "mock_tests.rs"]
mod tests;
