use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{DONE, Failure, Finish, Progress, Protocol, data_event};
use crate::gateway::Dialect;
use crate::gateway::usage::Usage;

/// Streams of chat and completions: chunks of `choices`, then `[DONE]`.
pub struct Choices {
    object: &'static str,
    /// `id`, `created` and `model` of the answer.
    identity: Map<String, Value>,
    /// Choices that have begun, and whether they go on.
    open: BTreeMap<u64, bool>,
    done: bool,
    progress: Progress,
}

impl Choices {
    /// A stream that has not begun.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            object: match dialect {
                Dialect::Completions => "text_completion",
                _ => "chat.completion.chunk",
            },
            identity: Map::new(),
            open: BTreeMap::new(),
            done: false,
            progress: Progress::default(),
        }
    }

    fn read_choice(&mut self, choice: &Value, text: &mut dyn FnMut(&str)) {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        if let Some(words) = choice.get("text").and_then(Value::as_str) {
            text(words);
        }
        if let Some(delta) = choice.get("delta") {
            read_delta(delta, text);
        }
        let reason = choice.get("finish_reason").and_then(Value::as_str);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.open.insert(index, false);
            self.progress.finish = Some(finish_of(reason));
        } else {
            // What is finished stays so: usage may follow in an empty delta.
            self.open.entry(index).or_insert(true);
        }
        self.progress.ended = self.done || self.open_choices().next().is_none();
    }

    fn open_choices(&self) -> impl Iterator<Item = u64> {
        self.open
            .iter()
            .filter(|(_, goes_on)| **goes_on)
            .map(|(index, _)| *index)
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let mut chunk = self.identity.clone();
        chunk.insert("object".to_owned(), self.object.into());
        chunk.insert("choices".to_owned(), choices);
        chunk
    }

    fn end_of_choice(&self, index: u64) -> Value {
        match self.object {
            "text_completion" => {
                json!({"text": "", "index": index, "logprobs": null, "finish_reason": "length"})
            }
            _ => json!({"index": index, "delta": {}, "logprobs": null, "finish_reason": "length"}),
        }
    }
}

impl Protocol for Choices {
    fn read(&mut self, event: &Value, text: &mut dyn FnMut(&str)) {
        if event.get("error").is_some_and(|error| !error.is_null()) {
            self.progress.failed = true;
        }
        for field in ["id", "created", "model"] {
            if let Some(value) = event
                .get(field)
                .filter(|_| !self.identity.contains_key(field))
            {
                self.identity.insert(field.to_owned(), value.clone());
            }
        }
        for choice in event
            .get("choices")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.read_choice(choice, text);
        }
    }

    fn read_mark(&mut self, data: &str) {
        if data == DONE {
            self.done = true;
            self.progress.ended = true;
        }
    }

    fn read_unread(&mut self, _name: &str) -> bool {
        // Which choice it belongs to is unknown; nearly always there is but one.
        self.open.entry(0).or_insert(true);
        true
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn is_open(&self) -> bool {
        !self.done && self.open_choices().next().is_some()
    }

    fn end_at_bound(&self, usage: &Usage, show_usage: bool) -> String {
        let ends = self
            .open_choices()
            .map(|index| self.chunk(json!([self.end_of_choice(index)])));
        let mut events: String = ends.map(|chunk| data_event(&chunk.into())).collect();
        if show_usage {
            let mut chunk = self.chunk(json!([]));
            let usage = json!({"prompt_tokens": usage.prompt, "completion_tokens": usage.completion,
                "total_tokens": usage.total()});
            chunk.insert("usage".to_owned(), usage);
            events.push_str(&data_event(&chunk.into()));
        }
        events.push_str(&format!("data: {DONE}\n\n"));
        events
    }

    fn tell_failure(&self, failure: Failure) -> String {
        data_event(
            &json!({"error": {"message": failure.message, "type": "server_error",
            "param": null, "code": failure.code}}),
        )
    }
}

/// Everything in a delta that the model wrote, reasoning and the arguments of tools included.
fn read_delta(delta: &Value, text: &mut dyn FnMut(&str)) {
    for field in ["content", "refusal", "reasoning_content", "reasoning"] {
        if let Some(words) = delta.get(field).and_then(Value::as_str) {
            text(words);
        }
    }
    let tools = delta
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let functions = tools
        .filter_map(|tool| tool.get("function"))
        .chain(delta.get("function_call"));
    for function in functions {
        for field in ["name", "arguments"] {
            if let Some(words) = function.get(field).and_then(Value::as_str) {
                text(words);
            }
        }
    }
}

fn finish_of(reason: &str) -> Finish {
    match reason {
        "stop" => Finish::Stop,
        "length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "content_filter" => Finish::ContentFilter,
        "error" => Finish::Error,
        _ => Finish::Other,
    }
}
