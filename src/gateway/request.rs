//! What a caller asks of a model: read once, checked, and written anew for the provider, so that what
//! was checked is what is sent. Fields the gateway has no opinion on pass through as they are.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::Dialect;
use super::estimate::estimate_prompt;
use crate::json::{JsonError, parse_strict};

/// Longest name of a model, in characters.
const MAX_MODEL: usize = 256;

/// Most answers one prompt may ask for.
const MAX_CHOICES: u64 = 128;

/// Largest integer that every JSON reader agrees on.
const MAX_INTEGER: u64 = 1 << 53;

/// Every spelling of the completion's bound. A provider may obey any of them, so all are read.
const BOUNDS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// Fields by which some providers pick another model than `model`.
const OTHER_MODELS: [&str; 7] = [
    "models",
    "fallbacks",
    "fallback_models",
    "fallback",
    "route",
    "preset",
    "engine",
];

/// Input that is refused before anything is charged for it: 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest {
    /// What is wrong, in a sentence.
    pub message: String,
    /// Which field.
    pub param: Option<String>,
    /// Machine-readable reason.
    pub code: &'static str,
}

impl InvalidRequest {
    fn new(field: &str, code: &'static str, what: &str) -> Self {
        Self {
            message: format!("`{field}` {what}."),
            param: Some(field.to_owned()),
            code,
        }
    }

    fn missing(field: &str) -> Self {
        Self::new(field, "missing_required_parameter", "is required")
    }

    fn wrong_type(field: &str, expected: &str) -> Self {
        Self::new(field, "invalid_type", &format!("must be {expected}"))
    }

    fn wrong_value(field: &str, what: &str) -> Self {
        Self::new(field, "invalid_value", what)
    }
}

impl From<JsonError> for InvalidRequest {
    fn from(error: JsonError) -> Self {
        let message = error.to_string();
        match error {
            JsonError::DuplicateKey(key) => Self {
                message,
                param: Some(key),
                code: "duplicate_key",
            },
            _ => Self {
                message,
                param: None,
                code: "invalid_json",
            },
        }
    }
}

/// A call of one of the LLM routes.
#[derive(Debug, Clone)]
pub struct LlmRequest {
    dialect: Dialect,
    body: Map<String, Value>,
    model: String,
    stream: bool,
    wants_usage: bool,
    max_tokens: Option<u64>,
    choices: u64,
    prompt_tokens: u64,
}

impl LlmRequest {
    /// Reads and checks a body.
    pub fn parse(dialect: Dialect, body: &[u8]) -> Result<Self, InvalidRequest> {
        match parse_strict(body)? {
            Value::Object(body) => Self::of_body(dialect, body),
            _ => Err(InvalidRequest {
                message: "The body must be a JSON object.".to_owned(),
                param: None,
                code: "invalid_json",
            }),
        }
    }

    fn of_body(dialect: Dialect, body: Map<String, Value>) -> Result<Self, InvalidRequest> {
        let model = read_model(&body)?;
        let stream = read_stream(dialect, &body)?;
        let include_usage = read_include_usage(dialect, &body)?;
        let max_tokens = read_max_tokens(dialect, &body)?;
        let choices = read_choices(dialect, &body)?;
        check_prompt(dialect, &body)?;
        Ok(Self {
            dialect,
            model,
            stream,
            wants_usage: include_usage || !dialect.has_choices(),
            max_tokens,
            choices,
            prompt_tokens: estimate_prompt(&body),
            body,
        })
    }

    /// Which API was called.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The model as the caller named it.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether the answer is to come as events.
    pub const fn stream(&self) -> bool {
        self.stream
    }

    /// Whether a stream shows its usage: by request on chat and completions, always elsewhere.
    pub const fn wants_usage(&self) -> bool {
        self.wants_usage
    }

    /// The completion's bound per choice: the largest of all the caller gave; `None`: none given.
    pub const fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    /// How many answers are asked for, over all prompts of the call.
    pub const fn choices(&self) -> u64 {
        self.choices
    }

    /// Estimated tokens of the prompt.
    pub const fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// All the caller sent, for whoever answers in place of a provider.
    pub const fn body(&self) -> &Map<String, Value> {
        &self.body
    }

    /// The body for the provider: its own name of the model, no bound above `max_tokens`, and for streams
    /// the demand for usage.
    pub fn to_upstream(&self, model: &str, max_tokens: Option<u64>) -> Vec<u8> {
        let mut changes = self.changes(model, max_tokens);
        if self.stream && self.dialect.has_choices() {
            let options = with_usage(self.body.get("stream_options"));
            changes.insert("stream_options".to_owned(), options);
        }
        self.serialise(&changes)
    }

    /// Whether the demand for usage is the gateway's and not the caller's.
    pub const fn asks_for_usage_itself(&self) -> bool {
        self.stream && !self.wants_usage
    }

    /// Like [`Self::to_upstream`], for a provider that refuses to be asked for usage; `stream_options` stay
    /// as the caller sent them.
    pub fn to_upstream_without_usage(&self, model: &str, max_tokens: Option<u64>) -> Vec<u8> {
        self.serialise(&self.changes(model, max_tokens))
    }

    /// The caller's fields with the provider's name of the model and no bound above `max_tokens`.
    pub fn bounded(&self, model: &str, max_tokens: Option<u64>) -> Map<String, Value> {
        let mut body = self.body.clone();
        body.extend(self.changes(model, max_tokens));
        body
    }

    fn changes(&self, model: &str, max_tokens: Option<u64>) -> Map<String, Value> {
        let mut changes = Map::new();
        changes.insert("model".to_owned(), model.into());
        if let Some(most) = max_tokens.filter(|_| self.dialect.can_stream()) {
            let bounds = lowered_bounds(&self.body, most, default_bound(self.dialect, model));
            changes.extend(bounds);
        }
        changes
    }

    fn serialise(&self, changes: &Map<String, Value>) -> Vec<u8> {
        let changed = Changed {
            body: &self.body,
            changes,
        };
        // What was JSON is JSON.
        serde_json::to_vec(&changed).unwrap_or_default()
    }
}

/// A body with some of its fields replaced and others added, none of which is copied.
struct Changed<'a> {
    body: &'a Map<String, Value>,
    changes: &'a Map<String, Value>,
}

impl Serialize for Changed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { body, changes } = self;
        let replaced = body
            .iter()
            .map(|(field, value)| (field, changes.get(field).unwrap_or(value)));
        let added = changes
            .iter()
            .filter(|(field, _)| !body.contains_key(*field));
        serializer.collect_map(replaced.chain(added))
    }
}

/// Each bound the caller gave, lowered; one of the gateway's, if they gave none.
fn lowered_bounds(body: &Map<String, Value>, most: u64, default_field: &str) -> Map<String, Value> {
    let own = |field: &&str| body.get(*field).and_then(Value::as_u64);
    let mut bounds: Map<String, Value> = BOUNDS
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), own(field)?.min(most).into())))
        .collect();
    if bounds.is_empty() {
        bounds.insert(default_field.to_owned(), most.into());
    }
    bounds
}

/// Models that reason refuse `max_tokens` on the chat route.
fn default_bound(dialect: Dialect, model: &str) -> &'static str {
    let name = model
        .rsplit('/')
        .next()
        .unwrap_or(model)
        .to_ascii_lowercase();
    let reasons = ["o1", "o3", "o4", "gpt-5"]
        .iter()
        .any(|family| name.starts_with(family));
    match dialect {
        Dialect::Responses => "max_output_tokens",
        Dialect::ChatCompletions if reasons => "max_completion_tokens",
        _ => "max_tokens",
    }
}

/// Stream options that ask for usage, too.
fn with_usage(options: Option<&Value>) -> Value {
    let mut options = options
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    options.insert("include_usage".to_owned(), true.into());
    options.into()
}

fn read_model(body: &Map<String, Value>) -> Result<String, InvalidRequest> {
    for field in OTHER_MODELS {
        if present(body, field).is_some() {
            let what = "is not supported: a call names one model, in `model`";
            return Err(InvalidRequest::new(field, "unsupported_parameter", what));
        }
    }
    let model = match present(body, "model") {
        None => return Err(InvalidRequest::missing("model")),
        Some(Value::String(model)) => model,
        Some(_) => return Err(InvalidRequest::wrong_type("model", "a string")),
    };
    if model.is_empty() || model.chars().count() > MAX_MODEL {
        let what = format!("must be 1 to {MAX_MODEL} characters long");
        return Err(InvalidRequest::wrong_value("model", &what));
    }
    if model.trim() != model || model.chars().any(is_invisible) {
        let what = "must not have invisible characters or white space around it";
        return Err(InvalidRequest::wrong_value("model", what));
    }
    Ok(model.clone())
}

/// Characters that make two names look the same.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

fn read_stream(dialect: Dialect, body: &Map<String, Value>) -> Result<bool, InvalidRequest> {
    let stream = read_bool(body, "stream", "stream")?;
    if stream && !dialect.can_stream() {
        return Err(InvalidRequest::wrong_value(
            "stream",
            "is not supported on this route",
        ));
    }
    if dialect == Dialect::Responses && read_bool(body, "background", "background")? {
        let what = "is not supported: its answer could only be fetched past the gateway";
        return Err(InvalidRequest::new(
            "background",
            "unsupported_parameter",
            what,
        ));
    }
    Ok(stream)
}

fn read_include_usage(dialect: Dialect, body: &Map<String, Value>) -> Result<bool, InvalidRequest> {
    if !dialect.has_choices() {
        return Ok(false);
    }
    match present(body, "stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) => {
            read_bool(options, "include_usage", "stream_options.include_usage")
        }
        Some(_) => Err(InvalidRequest::wrong_type("stream_options", "an object")),
    }
}

fn read_max_tokens(
    dialect: Dialect,
    body: &Map<String, Value>,
) -> Result<Option<u64>, InvalidRequest> {
    if !dialect.can_stream() {
        return Ok(None);
    }
    let mut largest = None;
    for field in BOUNDS {
        largest = largest.max(read_count(body, field, MAX_INTEGER)?);
    }
    Ok(largest)
}

fn read_choices(dialect: Dialect, body: &Map<String, Value>) -> Result<u64, InvalidRequest> {
    if !dialect.has_choices() {
        return Ok(1);
    }
    let n = read_count(body, "n", MAX_CHOICES)?;
    let best_of = read_count(body, "best_of", MAX_CHOICES)?;
    let each = n.max(best_of).unwrap_or(1);
    Ok(each.saturating_mul(prompts(dialect, body)))
}

/// Old completions answer each of a list of prompts.
fn prompts(dialect: Dialect, body: &Map<String, Value>) -> u64 {
    match body.get("prompt") {
        Some(Value::Array(items))
            if dialect == Dialect::Completions && !items.iter().all(Value::is_number) =>
        {
            u64::try_from(items.len()).unwrap_or(u64::MAX)
        }
        _ => 1,
    }
}

fn check_prompt(dialect: Dialect, body: &Map<String, Value>) -> Result<(), InvalidRequest> {
    match dialect {
        Dialect::ChatCompletions | Dialect::Messages | Dialect::CountTokens => check_messages(body),
        Dialect::Completions => check_text_or_list(body, "prompt"),
        Dialect::Embeddings => check_text_or_list(body, "input"),
        Dialect::Responses if body.get("input").is_none_or(Value::is_null) => {
            // These bring a prompt that the provider already has.
            let kept = ["prompt", "previous_response_id", "conversation"];
            match kept.iter().any(|field| present(body, field).is_some()) {
                true => Ok(()),
                false => Err(InvalidRequest::missing("input")),
            }
        }
        Dialect::Responses => check_text_or_list(body, "input"),
    }
}

fn check_messages(body: &Map<String, Value>) -> Result<(), InvalidRequest> {
    let messages = match present(body, "messages") {
        None => return Err(InvalidRequest::missing("messages")),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(InvalidRequest::wrong_type("messages", "an array")),
    };
    if messages.is_empty() {
        return Err(InvalidRequest::wrong_value("messages", "must not be empty"));
    }
    match messages.iter().position(|message| !message.is_object()) {
        Some(at) => Err(InvalidRequest::wrong_type(
            &format!("messages[{at}]"),
            "an object",
        )),
        None => Ok(()),
    }
}

fn check_text_or_list(body: &Map<String, Value>, field: &str) -> Result<(), InvalidRequest> {
    match present(body, field) {
        None => Err(InvalidRequest::missing(field)),
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(items)) if !items.is_empty() => Ok(()),
        Some(Value::Array(_)) => Err(InvalidRequest::wrong_value(field, "must not be empty")),
        Some(_) => Err(InvalidRequest::wrong_type(field, "a string or an array")),
    }
}

/// A field's value; `null` is absent.
fn present<'a>(body: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    body.get(field).filter(|value| !value.is_null())
}

fn read_bool(body: &Map<String, Value>, field: &str, path: &str) -> Result<bool, InvalidRequest> {
    match present(body, field) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(InvalidRequest::wrong_type(path, "a boolean")),
    }
}

/// An integer from 1 to `most`; one that is written with a point or an exponent is none.
fn read_count(
    body: &Map<String, Value>,
    field: &str,
    most: u64,
) -> Result<Option<u64>, InvalidRequest> {
    let value = match present(body, field) {
        None => return Ok(None),
        Some(Value::Number(value)) => value,
        Some(_) => return Err(InvalidRequest::wrong_type(field, "an integer")),
    };
    match value.as_u64() {
        Some(count) if (1..=most).contains(&count) => Ok(Some(count)),
        Some(_) => Err(InvalidRequest::wrong_value(
            field,
            &format!("must be 1 to {most}"),
        )),
        None if value.is_i64() => Err(InvalidRequest::wrong_value(field, "must be at least 1")),
        None => Err(InvalidRequest::wrong_type(field, "an integer")),
    }
}

/// The body of the simple door: a prompt or messages, and little else.
#[derive(Debug, Clone)]
pub struct SimpleQuery {
    body: Map<String, Value>,
}

impl SimpleQuery {
    /// Reads and checks a body; unlike on the other routes an unknown field is an error.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidRequest> {
        let Value::Object(body) = parse_strict(body)? else {
            return Err(InvalidRequest {
                message: "The body must be a JSON object.".to_owned(),
                param: None,
                code: "invalid_json",
            });
        };
        let known = ["prompt", "messages", "model", "max_tokens"];
        if let Some(field) = body.keys().find(|field| !known.contains(&field.as_str())) {
            let field: String = field.chars().take(64).collect();
            return Err(InvalidRequest::new(
                &field,
                "unknown_parameter",
                "is not known here",
            ));
        }
        match (present(&body, "prompt"), present(&body, "messages")) {
            (None, None) => Err(InvalidRequest::missing("prompt")),
            (Some(_), Some(_)) => Err(InvalidRequest::wrong_value(
                "messages",
                "must be absent when there is a `prompt`",
            )),
            (Some(Value::String(prompt)), None) if prompt.is_empty() => {
                Err(InvalidRequest::wrong_value("prompt", "must not be empty"))
            }
            (Some(Value::String(_)), None) | (None, Some(_)) => Ok(Self { body }),
            (Some(_), None) => Err(InvalidRequest::wrong_type("prompt", "a string")),
        }
    }

    /// Whether it says which model is to answer.
    pub fn names_a_model(&self) -> bool {
        present(&self.body, "model").is_some()
    }

    /// The chat it stands for, with `default_model` where it names none.
    pub fn into_chat(self, default_model: Option<String>) -> Result<LlmRequest, InvalidRequest> {
        let names_one = self.names_a_model();
        let mut body = self.body;
        if let Some(model) = default_model.filter(|_| !names_one) {
            body.insert("model".to_owned(), model.into());
        }
        match body.shift_remove("prompt") {
            None | Some(Value::Null) => {}
            Some(prompt) => {
                let message = json!({"role": "user", "content": prompt});
                body.insert("messages".to_owned(), json!([message]));
            }
        }
        LlmRequest::of_body(Dialect::ChatCompletions, body)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
