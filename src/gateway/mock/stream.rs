use serde_json::{Value, json};

use super::{Reply, whole};
use crate::gateway::Dialect;

/// The events of an answer; one that is to stop early lacks the second half.
pub fn events(reply: &Reply) -> Vec<String> {
    let mut events = match reply.dialect {
        Dialect::Messages => message(reply).iter().map(named).collect(),
        Dialect::Responses => response(reply).iter().map(named).collect(),
        _ => choices(reply),
    };
    if reply.stop_early {
        events.truncate(events.len() / 2);
    }
    events
}

fn named(event: &Value) -> String {
    let name = event
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    format!("event: {name}\ndata: {event}\n\n")
}

fn choices(reply: &Reply) -> Vec<String> {
    let mut chunks = Vec::new();
    for index in 0..reply.choices {
        if reply.dialect == Dialect::ChatCompletions {
            chunks.push(chunk(
                reply,
                json!([delta(index, json!({"role": "assistant", "content": ""}))]),
            ));
        }
        for piece in &reply.pieces {
            chunks.push(chunk(reply, json!([text_choice(reply, index, piece)])));
        }
        chunks.push(chunk(reply, json!([last_choice(reply, index)])));
    }
    if !reply.no_usage {
        let mut last = chunk(reply, json!([]));
        if let Some(last) = last.as_object_mut() {
            last.insert("usage".to_owned(), whole::chat_usage(reply));
        }
        chunks.push(last);
    }
    let events = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn chunk(reply: &Reply, choices: Value) -> Value {
    let (prefix, object) = match reply.dialect {
        Dialect::Completions => ("cmpl", "text_completion"),
        _ => ("chatcmpl", "chat.completion.chunk"),
    };
    json!({"id": format!("{prefix}-{}", reply.id), "object": object, "created": reply.created,
        "model": reply.model, "choices": choices})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null})
}

fn text_choice(reply: &Reply, index: u64, piece: &str) -> Value {
    match reply.dialect {
        Dialect::Completions => {
            json!({"text": piece, "index": index, "logprobs": null, "finish_reason": null})
        }
        _ => delta(index, json!({"content": piece})),
    }
}

fn last_choice(reply: &Reply, index: u64) -> Value {
    let mut choice = match reply.dialect {
        Dialect::Completions => text_choice(reply, index, ""),
        _ => delta(index, json!({})),
    };
    if let Some(choice) = choice.as_object_mut() {
        choice.insert(
            "finish_reason".to_owned(),
            whole::finish_reason(reply).into(),
        );
    }
    choice
}

fn message(reply: &Reply) -> Vec<Value> {
    let input =
        (!reply.no_usage).then(|| json!({"input_tokens": reply.usage.prompt, "output_tokens": 1}));
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": format!("msg_{}", reply.id),
            "type": "message", "role": "assistant", "model": reply.model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": input}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ];
    events.extend(reply.pieces.iter().map(|piece| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    }));
    let output = (!reply.no_usage).then(|| json!({"output_tokens": reply.usage.completion}));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "usage": output,
            "delta": {"stop_reason": whole::stop_reason(reply), "stop_sequence": null}}),
        json!({"type": "message_stop"}),
    ]);
    events
}

fn response(reply: &Reply) -> Vec<Value> {
    let item_id = format!("msg_{}", reply.id);
    let text = reply.text();
    let begun = with(
        whole::response(reply),
        &[
            ("status", json!("in_progress")),
            ("incomplete_details", json!(null)),
            ("output", json!([])),
            ("usage", json!(null)),
        ],
    );
    let item = whole::output_item(reply);
    let empty_item = with(
        item.clone(),
        &[("status", json!("in_progress")), ("content", json!([]))],
    );
    let place = |kind: &str, member: &str, value: Value| json!({"type": kind, "item_id": item_id, "output_index": 0, "content_index": 0, member: value});
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": empty_item}),
        place(
            "response.content_part.added",
            "part",
            whole::output_part(""),
        ),
    ];
    events.extend(
        reply
            .pieces
            .iter()
            .map(|piece| place("response.output_text.delta", "delta", json!(piece))),
    );
    let mut ended = whole::response(reply);
    if reply.no_usage {
        ended = with(ended, &[("usage", json!(null))]);
    }
    events.extend([
        place("response.output_text.done", "text", json!(text)),
        place(
            "response.content_part.done",
            "part",
            whole::output_part(&text),
        ),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": format!("response.{}", whole::status(reply)), "response": ended}),
    ]);
    let numbered = events.into_iter().zip(0u64..);
    numbered
        .map(|(event, number)| with(event, &[("sequence_number", json!(number))]))
        .collect()
}

fn with(mut object: Value, members: &[(&str, Value)]) -> Value {
    for (name, value) in members {
        if let Some(object) = object.as_object_mut() {
            object.insert((*name).to_owned(), value.clone());
        }
    }
    object
}
