use serde_json::{Map, Value, json};

use super::{Failure, Finish, Progress, Protocol, typed_event};
use crate::gateway::usage::Usage;

/// Streams of the Responses API: typed, numbered events; the last one says how it ended.
#[derive(Default)]
pub struct Responses {
    /// `id`, `created_at` and `model` of the response.
    identity: Map<String, Value>,
    next_number: u64,
    progress: Progress,
}

impl Responses {
    fn identify(&mut self, event: &Value) {
        let Some(response) = event.get("response").filter(|_| self.identity.is_empty()) else {
            return;
        };
        for field in ["id", "created_at", "model"] {
            if let Some(value) = response.get(field) {
                self.identity.insert(field.to_owned(), value.clone());
            }
        }
    }

    fn end(&mut self, kind: &str, reason: Option<&str>) {
        let finish = match (kind, reason) {
            ("response.completed", _) => Finish::Stop,
            ("response.incomplete", Some("content_filter")) => Finish::ContentFilter,
            ("response.incomplete", Some("max_output_tokens") | None) => Finish::Length,
            ("response.incomplete", _) => Finish::Other,
            ("response.failed", _) => {
                self.progress.failed = true;
                Finish::Error
            }
            _ => return,
        };
        self.progress.finish = Some(finish);
        self.progress.ended = true;
    }

    /// The event that ends the response with this `status` and these members.
    fn last_event(&self, status: &str, members: Value) -> String {
        let mut response = json!({"id": "", "object": "response", "created_at": 0, "status": status,
            "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "model": "",
            "output": [], "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto",
            "tools": [], "top_p": null, "usage": null});
        let members = members
            .as_object()
            .into_iter()
            .flatten()
            .chain(&self.identity);
        for (field, value) in members {
            if let Some(response) = response.as_object_mut() {
                response.insert(field.clone(), value.clone());
            }
        }
        typed_event(&json!({"type": format!("response.{status}"),
            "sequence_number": self.next_number, "response": response}))
    }
}

impl Protocol for Responses {
    fn read(&mut self, event: &Value, text: &mut dyn FnMut(&str)) {
        let number = event.get("sequence_number").and_then(Value::as_u64);
        self.next_number = number.map_or(self.next_number, |number| number.saturating_add(1));
        self.identify(event);
        let kind = event
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let delta = event.get("delta").and_then(Value::as_str);
        if let Some(words) = delta.filter(|_| kind.ends_with(".delta")) {
            text(words);
        }
        if kind == "error" || event.get("error").is_some_and(Value::is_object) {
            self.progress.failed = true;
        }
        let reason = event
            .pointer("/response/incomplete_details/reason")
            .and_then(Value::as_str);
        self.end(kind, reason);
    }

    fn read_mark(&mut self, _data: &str) {}

    /// Only deltas add to the answer; the large events repeat it.
    fn read_unread(&mut self, name: &str) -> bool {
        self.end(name, None);
        name.ends_with(".delta")
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn is_open(&self) -> bool {
        !self.progress.ended
    }

    fn end_at_bound(&self, usage: &Usage, _show_usage: bool) -> String {
        self.last_event(
            "incomplete",
            json!({
                "incomplete_details": {"reason": "max_output_tokens"},
                "usage": {
                    "input_tokens": usage.prompt,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": usage.completion,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": usage.total(),
                },
            }),
        )
    }

    /// The clients' types know no codes but OpenAI's own.
    fn tell_failure(&self, failure: Failure) -> String {
        let message = format!("{} ({})", failure.message, failure.code);
        self.last_event(
            "failed",
            json!({"error": {"code": "server_error", "message": message}}),
        )
    }
}
