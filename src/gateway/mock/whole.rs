use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Reply, fingerprint};
use crate::gateway::Dialect;
use crate::gateway::request::LlmRequest;

/// Numbers in an embedding whose length nobody asked for.
const DIMENSIONS: u64 = 32;

/// Most numbers in an embedding.
const MAX_DIMENSIONS: u64 = 4_096;

/// The body of an answer that does not stream; one that is to stop early is cut in half.
pub fn body(reply: &Reply, request: &LlmRequest) -> String {
    let mut body = match reply.dialect {
        Dialect::ChatCompletions => chat(reply),
        Dialect::Completions => completion(reply),
        Dialect::Embeddings => embeddings(reply, request),
        Dialect::Responses => response(reply),
        Dialect::Messages => message(reply),
        Dialect::CountTokens => super::count_tokens(request),
    };
    if let Some(body) = body.as_object_mut().filter(|_| reply.no_usage) {
        body.shift_remove("usage");
    }
    let mut text = body.to_string();
    if reply.stop_early {
        text = text.chars().take(text.chars().count() / 2).collect();
    }
    text
}

/// Why a choice of chat or completions ended.
pub const fn finish_reason(reply: &Reply) -> &'static str {
    if reply.is_cut { "length" } else { "stop" }
}

/// Usage as chat and completions tell it.
pub fn chat_usage(reply: &Reply) -> Value {
    let usage = &reply.usage;
    json!({"prompt_tokens": usage.prompt, "completion_tokens": usage.completion,
        "total_tokens": usage.total()})
}

/// A finished response, as the Responses API tells it whole and in its last event.
pub fn response(reply: &Reply) -> Value {
    let usage = &reply.usage;
    let details = reply.is_cut.then(|| json!({"reason": "max_output_tokens"}));
    json!({
        "id": format!("resp_{}", reply.id),
        "object": "response",
        "created_at": reply.created,
        "status": status(reply),
        "error": null,
        "incomplete_details": details,
        "instructions": null,
        "metadata": {},
        "model": reply.model,
        "output": [output_item(reply)],
        "parallel_tool_calls": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total(),
        },
    })
}

/// How a response of the Responses API ended.
pub const fn status(reply: &Reply) -> &'static str {
    if reply.is_cut {
        "incomplete"
    } else {
        "completed"
    }
}

/// The one item a response consists of.
pub fn output_item(reply: &Reply) -> Value {
    json!({"id": format!("msg_{}", reply.id), "type": "message", "status": status(reply),
        "role": "assistant", "content": [output_part(&reply.text())]})
}

/// A text within an item of a response.
pub fn output_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

/// Why a message of Anthropic's API ended.
pub const fn stop_reason(reply: &Reply) -> &'static str {
    if reply.is_cut {
        "max_tokens"
    } else {
        "end_turn"
    }
}

fn chat(reply: &Reply) -> Value {
    let text = reply.text();
    let choice = |index| {
        json!({"index": index, "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": null, "finish_reason": finish_reason(reply)})
    };
    json!({
        "id": format!("chatcmpl-{}", reply.id),
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": (0..reply.choices).map(choice).collect::<Vec<_>>(),
        "usage": chat_usage(reply),
    })
}

fn completion(reply: &Reply) -> Value {
    let text = reply.text();
    let choice = |index| json!({"text": text, "index": index, "logprobs": null, "finish_reason": finish_reason(reply)});
    json!({
        "id": format!("cmpl-{}", reply.id),
        "object": "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": (0..reply.choices).map(choice).collect::<Vec<_>>(),
        "usage": chat_usage(reply),
    })
}

fn message(reply: &Reply) -> Value {
    json!({
        "id": format!("msg_{}", reply.id),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [{"type": "text", "text": reply.text()}],
        "stop_reason": stop_reason(reply),
        "stop_sequence": null,
        "usage": {"input_tokens": reply.usage.prompt, "output_tokens": reply.usage.completion},
    })
}

fn embeddings(reply: &Reply, request: &LlmRequest) -> Value {
    let body = request.body();
    let dimensions = body
        .get("dimensions")
        .and_then(Value::as_u64)
        .unwrap_or(DIMENSIONS);
    let dimensions = dimensions.clamp(1, MAX_DIMENSIONS);
    let in_base64 = body
        .get("encoding_format")
        .is_some_and(|format| format == "base64");
    let data: Vec<Value> = inputs(body.get("input"))
        .into_iter()
        .enumerate()
        .map(|(index, input)| {
            let vector = direction(&input.to_string(), dimensions);
            let embedding = if in_base64 {
                let bytes: Vec<u8> = vector
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect();
                json!(STANDARD.encode(bytes))
            } else {
                json!(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    json!({
        "object": "list",
        "model": reply.model,
        "data": data,
        "usage": {"prompt_tokens": reply.usage.prompt, "total_tokens": reply.usage.prompt},
    })
}

/// A list of numbers is one input in tokens; any other list has one input an item.
fn inputs(input: Option<&Value>) -> Vec<&Value> {
    match input {
        Some(Value::Array(items)) if !items.iter().all(Value::is_number) => items.iter().collect(),
        Some(single) => vec![single],
        None => Vec::new(),
    }
}

/// A vector of length one that depends on the text alone.
fn direction(text: &str, dimensions: u64) -> Vec<f32> {
    let numbers: Vec<f32> = (0..dimensions)
        .map(|at| {
            let bits = fingerprint(&[text, &at.to_string()]) >> 48;
            f32::from(u16::try_from(bits).unwrap_or(0)) / 32_768.0 - 1.0
        })
        .collect();
    let length = numbers
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt()
        .max(f32::MIN_POSITIVE);
    numbers.into_iter().map(|number| number / length).collect()
}
