//! What Workers AI says, in OpenAI's words.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::gateway::Dialect;
use crate::gateway::request::LlmRequest;
use crate::gateway::sse::{EVENT_CAP, Event, EventScanner, Scanned};
use crate::http::ids;

/// Workers AI does not say when an answer was made.
const CREATED: u64 = 1_767_225_600;

/// What every part of one answer repeats.
pub struct Frame {
    dialect: Dialect,
    id: String,
    model: String,
    max_tokens: Option<u64>,
    in_base64: bool,
}

impl Frame {
    /// The frame of the answer to `request`.
    pub fn of(request: &LlmRequest, model: &str, max_tokens: Option<u64>) -> Self {
        let prefix = match request.dialect() {
            Dialect::Completions => "cmpl",
            _ => "chatcmpl",
        };
        let format = request.body().get("encoding_format");
        Self {
            dialect: request.dialect(),
            id: ids::fresh(prefix).unwrap_or_else(|_| prefix.to_owned()),
            model: model.to_owned(),
            max_tokens,
            in_base64: format.is_some_and(|format| format == "base64"),
        }
    }

    /// A whole answer; `None`: it makes no sense.
    pub fn whole(&self, output: &Value) -> Option<Value> {
        if output.get("choices").is_some_and(Value::is_array) {
            return Some(output.clone());
        }
        match self.dialect {
            Dialect::Embeddings => self.embeddings(output),
            _ => self.text(output),
        }
    }

    fn text(&self, output: &Value) -> Option<Value> {
        let content = match output.get("response")? {
            Value::String(text) => json!(text),
            Value::Null => Value::Null,
            // An answer that had to keep to a schema comes parsed.
            parsed => json!(parsed.to_string()),
        };
        let tools = tool_calls(output);
        let usage = output.get("usage").cloned();
        let reason = self.finish_reason(!tools.is_empty(), usage.as_ref());
        let choice = match self.dialect {
            Dialect::Completions => {
                json!({"text": content, "index": 0, "logprobs": null, "finish_reason": reason})
            }
            _ => {
                let mut message = json!({"role": "assistant", "content": content, "refusal": null});
                if let Some(message) = message.as_object_mut().filter(|_| !tools.is_empty()) {
                    message.insert("tool_calls".to_owned(), tools.into());
                }
                json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason})
            }
        };
        let object = match self.dialect {
            Dialect::Completions => "text_completion",
            _ => "chat.completion",
        };
        let mut answer = self.part(object, json!([choice]));
        answer.extend(usage.map(|usage| ("usage".to_owned(), usage)));
        Some(answer.into())
    }

    fn embeddings(&self, output: &Value) -> Option<Value> {
        let vectors = output.get("data")?.as_array()?;
        let data = vectors.iter().enumerate().map(|(index, vector)| {
            json!({"object": "embedding", "index": index, "embedding": self.vector(vector)})
        });
        let data: Vec<Value> = data.collect();
        let mut answer = json!({"object": "list", "data": data, "model": self.model});
        if let (Some(answer), Some(usage)) = (answer.as_object_mut(), output.get("usage")) {
            answer.insert("usage".to_owned(), usage.clone());
        }
        Some(answer)
    }

    fn vector(&self, numbers: &Value) -> Value {
        let Some(numbers) = numbers.as_array().filter(|_| self.in_base64) else {
            return numbers.clone();
        };
        #[allow(clippy::cast_possible_truncation)]
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| (number.as_f64().unwrap_or_default() as f32).to_le_bytes())
            .collect();
        json!(STANDARD.encode(bytes))
    }

    fn part(&self, object: &str, choices: Value) -> Map<String, Value> {
        let mut part = Map::new();
        part.insert("id".to_owned(), json!(self.id));
        part.insert("object".to_owned(), json!(object));
        part.insert("created".to_owned(), json!(CREATED));
        part.insert("model".to_owned(), json!(self.model));
        part.insert("choices".to_owned(), choices);
        part
    }

    /// Workers AI does not say why it stopped.
    fn finish_reason(&self, has_tools: bool, usage: Option<&Value>) -> &'static str {
        let written = usage
            .and_then(|usage| usage.get("completion_tokens"))
            .and_then(Value::as_u64);
        match (written, self.max_tokens) {
            _ if has_tools => "tool_calls",
            (Some(written), Some(most)) if written >= most => "length",
            _ => "stop",
        }
    }
}

fn tool_calls(output: &Value) -> Vec<Value> {
    let calls = output
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let told = calls.enumerate().map(|(index, call)| {
        let function = call.get("function").unwrap_or(call);
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(parsed) => parsed.to_string(),
            None => "{}".to_owned(),
        };
        let id = call
            .get("id")
            .cloned()
            .unwrap_or_else(|| json!(format!("call_{index}")));
        json!({"id": id, "type": "function",
            "function": {"name": function.get("name"), "arguments": arguments}})
    });
    told.collect()
}

/// Tells a stream event by event.
pub struct Teller {
    frame: Frame,
    scanner: EventScanner,
    usage: Option<Value>,
    tools: usize,
    begun: bool,
    ended: bool,
}

impl Teller {
    /// A teller of an answer that has not begun.
    pub fn new(frame: Frame) -> Self {
        Self {
            frame,
            scanner: EventScanner::new(EVENT_CAP),
            usage: None,
            tools: 0,
            begun: false,
            ended: false,
        }
    }

    /// The chunks that `bytes` complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut rest = bytes;
        let mut data = Vec::new();
        while let Some(found) = self.scanner.next(&mut rest) {
            if let Scanned::Whole(raw) = found {
                data.push(Event::parse(raw).data.trim().to_owned());
            }
        }
        data.iter()
            .map(|data| self.tell(data))
            .collect::<String>()
            .into_bytes()
    }

    fn tell(&mut self, data: &str) -> String {
        if data == "[DONE]" {
            return self.end();
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            return String::new();
        };
        if event.get("choices").is_some() || event.get("error").is_some() {
            let reason = event.pointer("/choices/0/finish_reason");
            self.ended |= reason.is_some_and(Value::is_string);
            return format!("data: {event}\n\n");
        }
        if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
            self.usage = Some(usage.clone());
        }
        self.say(&event)
    }

    fn say(&mut self, event: &Value) -> String {
        let words = match event.get("response") {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            // A token that is a number comes as one.
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let mut told = String::new();
        if let Some(words) = words {
            told.push_str(&self.chunk(json!({"content": words}), None));
        }
        for mut call in tool_calls(event) {
            if let Some(call) = call.as_object_mut() {
                call.insert("index".to_owned(), json!(self.tools));
            }
            self.tools = self.tools.saturating_add(1);
            told.push_str(&self.chunk(json!({"tool_calls": [call]}), None));
        }
        told
    }

    fn end(&mut self) -> String {
        let mut told = String::new();
        if !std::mem::replace(&mut self.ended, true) {
            let reason = self
                .frame
                .finish_reason(self.tools > 0, self.usage.as_ref());
            told.push_str(&self.chunk(json!({}), Some(reason)));
        }
        if let Some(usage) = self.usage.take() {
            let mut last = self.frame.part(self.object(), json!([]));
            last.insert("usage".to_owned(), usage);
            told.push_str(&format!("data: {}\n\n", Value::Object(last)));
        }
        told + "data: [DONE]\n\n"
    }

    fn chunk(&mut self, mut delta: Value, reason: Option<&str>) -> String {
        if let Some(delta) = delta.as_object_mut().filter(|_| !self.begun) {
            delta.insert("role".to_owned(), json!("assistant"));
        }
        self.begun = true;
        let choice = match self.frame.dialect {
            Dialect::Completions => {
                let text = delta.get("content").cloned().unwrap_or_else(|| json!(""));
                json!({"text": text, "index": 0, "logprobs": null, "finish_reason": reason})
            }
            _ => json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}),
        };
        let part = self.frame.part(self.object(), json!([choice]));
        format!("data: {}\n\n", Value::Object(part))
    }

    const fn object(&self) -> &'static str {
        match self.frame.dialect {
            Dialect::Completions => "text_completion",
            _ => "chat.completion.chunk",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(max_tokens: Option<u64>) -> Frame {
        Frame {
            dialect: Dialect::ChatCompletions,
            id: "chatcmpl-1".to_owned(),
            model: "@cf/x".to_owned(),
            max_tokens,
            in_base64: false,
        }
    }

    fn told(stream: &str, size: usize) -> Vec<Value> {
        let mut teller = Teller::new(frame(Some(2)));
        let told: Vec<u8> = stream
            .as_bytes()
            .chunks(size)
            .flat_map(|c| teller.feed(c))
            .collect();
        let told = String::from_utf8(told).unwrap();
        assert!(told.ends_with("data: [DONE]\n\n"));
        let data = told
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: {"));
        data.map(|data| serde_json::from_str(&format!("{{{data}")).unwrap())
            .collect()
    }

    #[test]
    fn a_stream_is_told_in_chunks_wherever_it_is_cut() {
        let stream = "data: {\"response\":\"Hi\",\"p\":\"ab\"}\n\ndata: {\"response\":7}\n\n\
            data: {\"response\":\"\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
        for size in [1, 7, 1_000] {
            let chunks = told(stream, size);
            assert_eq!(
                chunks[0]["choices"][0]["delta"],
                json!({"content": "Hi", "role": "assistant"})
            );
            assert_eq!(chunks[1]["choices"][0]["delta"], json!({"content": "7"}));
            assert_eq!(chunks[2]["choices"][0]["finish_reason"], "length");
            assert_eq!(chunks[3]["usage"]["completion_tokens"], 2);
            assert_eq!(chunks.len(), 4);
        }
    }

    #[test]
    fn chunks_that_are_openais_already_pass() {
        let chunk =
            "{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";
        let chunks = told(&format!("data: {chunk}\n\ndata: [DONE]\n\n"), 1_000);
        assert_eq!(chunks, [serde_json::from_str::<Value>(chunk).unwrap()]);
    }

    #[test]
    fn whole_answers_with_text_and_tools() {
        let output =
            json!({"response": "Hi", "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
        let answer = frame(Some(9)).whole(&output).unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], "Hi");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let output =
            json!({"response": null, "tool_calls": [{"name": "f", "arguments": {"a": 1}}]});
        let choice = &frame(None).whole(&output).unwrap()["choices"][0];
        assert_eq!(
            choice["message"]["tool_calls"][0]["function"]["arguments"],
            "{\"a\":1}"
        );
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(frame(None).whole(&json!({"odd": 1})), None);
    }
}
