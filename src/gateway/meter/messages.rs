use serde_json::{Map, Value, json};

use super::{Failure, Finish, Progress, Protocol, typed_event};
use crate::gateway::usage::Usage;

/// Streams of Anthropic's messages: blocks of content between `message_start` and `message_stop`.
#[derive(Default)]
pub struct Messages {
    /// The usage the stream began with; its output count is a placeholder.
    usage_at_start: Map<String, Value>,
    /// The block that was begun and not ended.
    block: Option<u64>,
    progress: Progress,
}

impl Messages {
    fn read_delta(event: &Value, text: &mut dyn FnMut(&str)) {
        for field in ["text", "partial_json", "thinking"] {
            if let Some(words) = event
                .get("delta")
                .and_then(|d| d.get(field))
                .and_then(Value::as_str)
            {
                text(words);
            }
        }
    }

    fn begin_block(&mut self, event: &Value, text: &mut dyn FnMut(&str)) {
        self.block = event.get("index").and_then(Value::as_u64).or(Some(0));
        for field in ["text", "name", "thinking"] {
            let block = event.get("content_block");
            if let Some(words) = block
                .and_then(|block| block.get(field))
                .and_then(Value::as_str)
            {
                text(words);
            }
        }
    }
}

impl Protocol for Messages {
    fn read(&mut self, event: &Value, text: &mut dyn FnMut(&str)) {
        match event
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "message_start" => {
                let usage = event.pointer("/message/usage").and_then(Value::as_object);
                self.usage_at_start = usage.cloned().unwrap_or_default();
            }
            "content_block_start" => self.begin_block(event, text),
            "content_block_delta" => Self::read_delta(event, text),
            "content_block_stop" => self.block = None,
            "message_delta" => {
                let reason = event.pointer("/delta/stop_reason").and_then(Value::as_str);
                self.progress.finish = reason.map(finish_of).or(self.progress.finish);
            }
            "message_stop" => self.progress.ended = true,
            "error" => self.progress.failed = true,
            _ => {}
        }
    }

    fn read_mark(&mut self, _data: &str) {}

    fn read_unread(&mut self, name: &str) -> bool {
        name.starts_with("content_block")
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn is_open(&self) -> bool {
        !self.progress.ended && self.progress.finish.is_none()
    }

    fn end_at_bound(&self, usage: &Usage, _show_usage: bool) -> String {
        let end_of_block = self
            .block
            .map(|index| json!({"type": "content_block_stop", "index": index}));
        // Some clients read the input only here, so it is said again.
        let mut total = self.usage_at_start.clone();
        total.entry("input_tokens").or_insert(usage.prompt.into());
        total.insert("output_tokens".to_owned(), usage.completion.into());
        let end_of_message = json!({"type": "message_delta",
            "delta": {"stop_reason": "max_tokens", "stop_sequence": null}, "usage": total});
        let events = end_of_block
            .into_iter()
            .chain([end_of_message, json!({"type": "message_stop"})]);
        events.map(|event| typed_event(&event)).collect()
    }

    fn tell_failure(&self, failure: Failure) -> String {
        typed_event(&json!({"type": "error", "error": {"type": "api_error",
            "message": failure.message, "details": {"error_code": failure.code}}}))
    }
}

fn finish_of(reason: &str) -> Finish {
    match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "tool_use" => Finish::ToolCalls,
        "refusal" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}
