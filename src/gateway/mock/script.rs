use serde_json::Value;

use crate::gateway::Dialect;
use crate::gateway::request::LlmRequest;

/// Longest a mark may make a caller wait.
const MAX_DELAY_MS: u64 = 600_000;

/// What the marks of a prompt ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub slow: u64,
    pub chunk_delay: u64,
    pub fail: Option<u16>,
    pub tokens: Option<u64>,
    pub no_usage: bool,
    pub stop_early: bool,
    pub ignore_max_tokens: bool,
    pub hang: bool,
}

impl Script {
    /// Reads the marks; what is no mark is text.
    pub fn read(prompt: &str) -> Self {
        let mut script = Self::default();
        for mark in marks(prompt) {
            let (name, value) = mark.split_once(':').unwrap_or((mark, ""));
            let number = value.trim().parse::<u64>().ok();
            match (name.trim(), number) {
                ("slow", Some(ms)) => script.slow = ms.min(MAX_DELAY_MS),
                ("chunk_delay", Some(ms)) => script.chunk_delay = ms.min(MAX_DELAY_MS),
                ("fail", Some(status @ 400..=599)) => script.fail = u16::try_from(status).ok(),
                ("tokens", Some(count)) => script.tokens = Some(count),
                ("no_usage", _) => script.no_usage = true,
                ("stop_early", _) => script.stop_early = true,
                ("ignore_max_tokens", _) => script.ignore_max_tokens = true,
                ("hang", _) => script.hang = true,
                _ => {}
            }
        }
        script
    }
}

/// A prompt as a person would read it.
pub fn without_marks(prompt: &str) -> String {
    let mut text = prompt.to_owned();
    for mark in marks(prompt) {
        text = text.replace(&format!("[[{mark}]]"), "");
    }
    text
}

fn marks(prompt: &str) -> impl Iterator<Item = &str> {
    prompt
        .split("[[")
        .skip(1)
        .filter_map(|rest| rest.split_once("]]"))
        .map(|(mark, _)| mark)
}

/// The text of the last thing the user said.
pub fn last_words(request: &LlmRequest) -> String {
    let field = match request.dialect() {
        Dialect::ChatCompletions | Dialect::Messages | Dialect::CountTokens => "messages",
        Dialect::Completions => "prompt",
        Dialect::Embeddings | Dialect::Responses => "input",
    };
    let mut words = String::new();
    match request.body().get(field) {
        Some(Value::Array(items)) if items.iter().any(Value::is_object) => {
            let said = items
                .iter()
                .rfind(|item| item.get("role").is_some_and(|role| role == "user"));
            collect(said.and_then(|message| message.get("content")), &mut words);
        }
        prompt => collect(prompt, &mut words),
    }
    words
}

fn collect(value: Option<&Value>, words: &mut String) {
    match value {
        Some(Value::String(text)) => {
            if !words.is_empty() {
                words.push(' ');
            }
            words.push_str(text);
        }
        Some(Value::Array(items)) => items.iter().for_each(|item| collect(Some(item), words)),
        Some(Value::Object(part)) => collect(part.get("text"), words),
        _ => {}
    }
}
