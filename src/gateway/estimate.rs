//! How many tokens a text is, without the model's own tokenizer.
//!
//! Tokenizers differ between models and their tables are larger than this whole program, so the text is
//! read character by character and each class of character has its price. The prices are fitted to
//! `tests/corpus/tokens.json`, there to the more wasteful of two tokenizers: an estimate reserves
//! tokens, and what was reserved too much comes back when the provider's own count arrives.

use serde_json::{Map, Value};

/// What one picture is counted as, whatever its size; providers charge between 85 and about 1,600.
pub const IMAGE_TOKENS: u64 = 1_000;

/// No byte of a request makes more tokens of prompt and choices than this. The dearest are pictures, and old
/// completions of a long list of short prompts with 128 choices each.
pub const MOST_TOKENS_A_BYTE: u64 = 128;

/// A message's frame: its role and the marks around it.
const MESSAGE_OVERHEAD: u64 = 4;

/// Every prompt ends with the mark that opens the answer.
const PROMPT_OVERHEAD: u64 = 3;

/// What a tool's frame costs beside its definition.
const TOOL_OVERHEAD: u64 = 8;

/// Base64 characters of a recording that make one token (compressed speech, ten tokens a second).
const AUDIO_CHARS_PER_TOKEN: u64 = 500;

/// Base64 characters of a document that make one token (a page of text in a PDF).
const FILE_CHARS_PER_TOKEN: u64 = 32;

/// Estimated tokens of a text, rounded up.
pub fn estimate_tokens(text: &str) -> u64 {
    let mut counter = TokenCounter::default();
    counter.push(text);
    counter.tokens()
}

/// Estimated tokens of all a request's body makes the model read: texts, roles, tool definitions, the
/// schema of the answer, pictures and files. The provider's own fields beside these cost nothing.
pub fn estimate_prompt(body: &Map<String, Value>) -> u64 {
    body.iter().fold(PROMPT_OVERHEAD, |sum, (field, value)| {
        sum.saturating_add(match field.as_str() {
            "messages" | "input" => estimate_messages(value),
            "system" | "prompt" | "instructions" | "suffix" => estimate_content(value),
            "tools" | "functions" => estimate_tools(value),
            "response_format" | "text" => estimate_json(value),
            _ => 0,
        })
    })
}

/// Estimated tokens of a text, a message, a content part or a list of them, as a model reads it.
pub fn estimate_content(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => estimate_string(text),
        Value::Array(items) => total(items.iter().map(estimate_content)),
        Value::Object(part) => estimate_part(part),
    }
}

fn estimate_messages(value: &Value) -> u64 {
    match value {
        Value::Array(items) => total(items.iter().map(|item| match item {
            Value::Object(part) => MESSAGE_OVERHEAD.saturating_add(estimate_part(part)),
            // The inputs of embeddings and the token lists of old completions have no frame.
            bare => estimate_content(bare),
        })),
        single => estimate_content(single),
    }
}

fn estimate_tools(value: &Value) -> u64 {
    let Value::Array(tools) = value else {
        return estimate_json(value);
    };
    total(
        tools
            .iter()
            .map(|tool| TOOL_OVERHEAD.saturating_add(estimate_json(tool))),
    )
}

fn estimate_part(part: &Map<String, Value>) -> u64 {
    let text_of = |field: &str| part.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = text_of("type");
    if matches!(kind, "image_url" | "input_image" | "image") {
        return IMAGE_TOKENS;
    }
    let is_plain = kind == "text" || text_of("media_type").starts_with("text/");
    total(
        part.iter()
            .map(|(field, value)| match (field.as_str(), value) {
                (field, _) if is_label(field) => 0,
                ("input_audio", value) => longest_text(value).div_ceil(AUDIO_CHARS_PER_TOKEN),
                ("data" | "file_data", Value::String(data))
                    if !is_plain && !data.starts_with("data:") =>
                {
                    length(data).div_ceil(FILE_CHARS_PER_TOKEN)
                }
                ("input", Value::Object(_)) => estimate_json(value),
                (_, value) => estimate_content(value),
            }),
    )
}

/// Fields that direct the provider and are no text for the model.
fn is_label(field: &str) -> bool {
    matches!(
        field,
        "type"
            | "role"
            | "id"
            | "call_id"
            | "tool_call_id"
            | "tool_use_id"
            | "file_id"
            | "status"
            | "media_type"
            | "detail"
            | "cache_control"
            | "signature"
            | "encrypted_content"
            | "index"
            | "annotations"
            | "logprobs"
            | "finish_reason"
    )
}

fn estimate_string(text: &str) -> u64 {
    let Some(rest) = text.strip_prefix("data:") else {
        return estimate_tokens(text);
    };
    if rest.starts_with("image/") {
        IMAGE_TOKENS
    } else if rest.starts_with("audio/") {
        length(rest).div_ceil(AUDIO_CHARS_PER_TOKEN)
    } else if rest.starts_with("application/") {
        length(rest).div_ceil(FILE_CHARS_PER_TOKEN)
    } else {
        estimate_tokens(text)
    }
}

/// Estimated tokens of a value's JSON text.
fn estimate_json(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(number) => estimate_tokens(&number.to_string()),
        Value::String(text) => estimate_string(text).saturating_add(1),
        Value::Array(items) => total(items.iter().map(estimate_json)).saturating_add(1),
        Value::Object(members) => total(members.iter().map(|(key, value)| {
            // The quotes and the colon.
            estimate_tokens(key)
                .saturating_add(2)
                .saturating_add(estimate_json(value))
        }))
        .saturating_add(1),
    }
}

fn longest_text(value: &Value) -> u64 {
    match value {
        Value::String(text) => length(text),
        Value::Object(members) => members.values().map(longest_text).max().unwrap_or(0),
        _ => 0,
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn total(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::saturating_add)
}

/// Counts a text that arrives in pieces; where it was cut makes no difference to the result.
#[derive(Debug, Clone, Default)]
pub struct TokenCounter {
    cents: u64,
    least_cents: u64,
    last: Option<char>,
    class: Class,
    run: u64,
}

impl TokenCounter {
    /// Reads the next piece.
    pub fn push(&mut self, text: &str) {
        for c in text.chars() {
            self.step(c);
        }
    }

    /// Tokens so far, rounded up.
    pub fn tokens(&self) -> u64 {
        self.cents.div_ceil(100)
    }

    /// Tokens the text has at the least, with whatever tokenizer, rounded up.
    pub fn least_tokens(&self) -> u64 {
        self.least_cents.div_ceil(100)
    }

    fn step(&mut self, c: char) {
        let class = Class::of(c);
        let continues = class == self.class && !self.starts_new_word(c);
        let index = if continues {
            self.run.saturating_add(1)
        } else {
            1
        };
        let price = self.price(class, index, c);
        self.cents = self.cents.saturating_add(price);
        self.least_cents = self
            .least_cents
            .saturating_add(least_price(class, c, price));
        self.run = index;
        self.class = class;
        self.last = Some(c);
    }

    /// `fooBar` is two words; `Foo` is one.
    fn starts_new_word(&self, c: char) -> bool {
        self.class == Class::Letter
            && c.is_ascii_uppercase()
            && self.last.is_some_and(|last| last.is_ascii_lowercase())
    }

    /// Hundredths of a token for `c`, the `index`-th of its run, counted from 1.
    fn price(&self, class: Class, index: u64, c: char) -> u64 {
        match class {
            Class::Letter => self.letter_price(index, c),
            Class::Digit => self.digit_price(index),
            // One space belongs to the word after it.
            Class::Space if index == 2 => 100,
            Class::Space => 0,
            Class::Tab if index == 1 => 60,
            Class::Tab => 0,
            Class::Newline if matches!(self.class, Class::Newline | Class::Punctuation) => 0,
            Class::Newline => 100,
            Class::Punctuation => self.punctuation_price(index, c),
            Class::Flat(price) => u64::from(price),
        }
    }

    fn letter_price(&self, index: u64, c: char) -> u64 {
        match index {
            // A mark right before a word is often one token with it: `.len`, `_id`, `(self`.
            1 if self.class == Class::Punctuation && self.run == 1 => 70,
            // Case that changes after a letter or two is no camelCase but a random string.
            1 if self.class == Class::Letter && self.run <= 2 => 150,
            // An accent breaks a word, but not into whole tokens.
            1 if self.last.is_some_and(is_accented) => 35,
            1 => 100,
            3.. if c.is_ascii_lowercase() && self.last_is_upper() => 75,
            _ if c.is_ascii_uppercase() => 38,
            2..=5 => 0,
            _ => 15,
        }
    }

    fn digit_price(&self, index: u64) -> u64 {
        let group = if index % 3 == 1 { 100 } else { 0 };
        // Unlike a word, a number never takes the space before it along.
        let space = if index == 1 && self.class == Class::Space && self.run == 1 {
            100
        } else {
            0
        };
        group + space
    }

    fn punctuation_price(&self, index: u64, c: char) -> u64 {
        match index {
            1 => 100,
            _ if self.last == Some(c) => 15,
            // Runs that source code and JSON are full of are single tokens: `":"`, `});`.
            _ if "\":,;{}[]()".contains(c) => 28,
            _ => 65,
        }
    }

    fn last_is_upper(&self) -> bool {
        self.last.is_some_and(|last| last.is_ascii_uppercase())
    }
}

const fn is_accented(c: char) -> bool {
    matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Class {
    #[default]
    Newline,
    Space,
    Tab,
    Letter,
    Digit,
    Punctuation,
    /// Each character costs the same, in hundredths of a token.
    Flat(u16),
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' | 'A'..='Z' => Self::Letter,
            '0'..='9' => Self::Digit,
            ' ' => Self::Space,
            '\t' => Self::Tab,
            '\n' | '\r' => Self::Newline,
            '\0'..='\u{7f}' => Self::Punctuation,
            _ => Self::Flat(flat_price(u32::from(c))),
        }
    }
}

/// Tokenizers differ little on ASCII and up to sixfold on the scripts that older ones never learned.
const fn least_price(class: Class, c: char, price: u64) -> u64 {
    match (class, c) {
        (Class::Flat(_), '\u{3000}'..='\u{ffff}') => price / 2,
        (Class::Flat(_), _) => price / 8,
        _ => price.saturating_mul(5) / 8,
    }
}

/// Prices of all that is not ASCII, by Unicode block.
fn flat_price(code: u32) -> u16 {
    match code {
        0x0080..=0x00BF => 100,                   // Latin signs
        0x00C0..=0x00FF => 85,                    // Western European letters
        0x0100..=0x024F => 115,                   // Central European, Turkish
        0x0250..=0x036F => 120,                   // phonetic letters, combining accents
        0x0370..=0x03FF => 95,                    // Greek
        0x0400..=0x052F => 52,                    // Cyrillic
        0x0530..=0x058F => 200,                   // Armenian
        0x0590..=0x05FF => 115,                   // Hebrew
        0x0600..=0x06FF => 82,                    // Arabic, Persian
        0x0900..=0x097F => 115,                   // Devanagari
        0x0980..=0x0DFF => 155,                   // the other scripts of India
        0x0E00..=0x0E7F => 95,                    // Thai
        0x10A0..=0x10FF => 205,                   // Georgian
        0x1E00..=0x1EFF => 135,                   // Vietnamese
        0x2000..=0x206F => 100,                   // typographic marks, joiners
        0x2070..=0x2BFF => 170,                   // currency, arrows, symbols
        0x3000..=0x303F | 0xFF00..=0xFFEF => 100, // marks and wide forms of East Asia
        0x3040..=0x30FF => 95,                    // kana
        0x3400..=0x4DBF => 250,                   // rare ideographs
        0x4E00..=0x9FFF => 118,                   // ideographs
        0xAC00..=0xD7AF => 120,                   // Hangul
        0xFE00..=0xFE0F => 100,                   // variation selectors
        // Elsewhere tokenizers fall back to the bytes.
        0x1F000..=0x1FAFF => 270, // emoji
        0x0000..=0x07FF => 200,
        0x0800..=0xFFFF => 300,
        _ => 400,
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
