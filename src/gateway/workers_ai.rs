//! Workers AI, which is reached through a binding and not over HTTP. It speaks a language of its own, so its
//! answers are told in OpenAI's.

mod tell;

use std::fmt;

use futures::StreamExt;
use serde_json::{Map, Value, json};
use web_sys::ReadableStream;
use worker::wasm_bindgen::{JsCast, JsValue};
use worker::wasm_bindgen_futures::JsFuture;
use worker::{Env, Response, ResponseBody};

use super::Dialect;
use super::request::LlmRequest;
use super::upstream::{self, Answer, Broken};
use crate::budget::within;
use crate::http::ApiError;
use crate::limits::Span;
use tell::{Frame, Teller};

/// Fields of OpenAI's that Workers AI has no word for.
const UNKNOWN_THERE: [&str; 7] = [
    "model",
    "stream_options",
    "n",
    "best_of",
    "user",
    "store",
    "metadata",
];

/// The `AI` binding.
#[derive(Clone)]
pub struct Ai(JsValue);

impl fmt::Debug for Ai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ai")
    }
}

impl Ai {
    /// The binding, if the operator has set it up.
    pub fn of(env: &Env) -> Option<Self> {
        let binding = js_sys::Reflect::get(env.as_ref(), &JsValue::from("AI")).ok()?;
        binding.is_object().then_some(Self(binding))
    }

    /// The crate's own binding hands nested JSON over as a `Map`, which arrives as `{}`; text does not.
    async fn run(&self, model: &str, input: &Value) -> Result<JsValue, JsValue> {
        let run = js_sys::Reflect::get(&self.0, &JsValue::from("run"))?;
        let input = js_sys::JSON::parse(&input.to_string())?;
        let arguments = js_sys::Array::of2(&JsValue::from(model), &input);
        let run: js_sys::Function = run.dyn_into()?;
        let running = js_sys::Reflect::apply(&run, &self.0, &arguments)?;
        JsFuture::from(js_sys::Promise::resolve(&running)).await
    }
}

/// Workers AI's answer, in the dialect it was asked in.
pub async fn answer(
    ai: &Ai,
    request: &LlmRequest,
    model: &str,
    max_tokens: Option<u64>,
    timeout: Span,
) -> Result<Answer, ApiError> {
    let input = input(request, model, max_tokens)?;
    let ran = within(timeout, ai.run(model, &input)).await;
    let output = ran.map_err(|_| upstream::timed_out())?;
    let output = output.map_err(|error| failure(&words(&error), model))?;
    let frame = Frame::of(request, model, max_tokens);
    match output.dyn_into::<ReadableStream>() {
        Ok(events) => stream(events, frame),
        Err(whole_answer) => whole(&whole_answer, &frame),
    }
}

fn stream(events: ReadableStream, frame: Frame) -> Result<Answer, ApiError> {
    let response = Response::from_body(ResponseBody::Stream(events));
    let mut response = response.map_err(|_| upstream::garbage())?;
    let bytes = response.stream().map_err(|_| upstream::garbage())?;
    let mut teller = Teller::new(frame);
    let told = bytes.map(move |chunk| chunk.map(|chunk| teller.feed(&chunk)).map_err(|_| Broken));
    Answer::good("text/event-stream", told.boxed_local())
}

fn whole(output: &JsValue, frame: &Frame) -> Result<Answer, ApiError> {
    let text = js_sys::JSON::stringify(output)
        .ok()
        .and_then(|text| text.as_string());
    let output: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    let told = output
        .and_then(|output| frame.whole(&output))
        .ok_or_else(upstream::garbage)?;
    let bytes = Ok::<_, Broken>(told.to_string().into_bytes());
    let chunks = futures::stream::iter([bytes]);
    Answer::good("application/json", chunks.boxed_local())
}

fn input(request: &LlmRequest, model: &str, max_tokens: Option<u64>) -> Result<Value, ApiError> {
    let words = "is not supported by this model's provider.";
    match request.dialect() {
        Dialect::Embeddings => return Ok(json!({"text": request.body().get("input")})),
        Dialect::ChatCompletions | Dialect::Completions => {}
        _ => {
            return Err(ApiError::invalid_field(
                "model",
                format!("This route {words}"),
            ));
        }
    }
    if request.choices() != 1 {
        return Err(ApiError::invalid_field(
            "n",
            format!("More than one answer {words}"),
        ));
    }
    let mut fields = request.bounded(model, max_tokens);
    fields.retain(|name, _| !UNKNOWN_THERE.contains(&name.as_str()));
    one_bound(&mut fields);
    Ok(fields.into())
}

/// Workers AI knows one name for the bound; under another it would be ignored.
fn one_bound(fields: &mut Map<String, Value>) {
    for newer in ["max_completion_tokens", "max_output_tokens"] {
        let Some(bound) = fields.shift_remove(newer).filter(Value::is_u64) else {
            continue;
        };
        let old = fields.get("max_tokens").and_then(Value::as_u64);
        let largest = old.max(bound.as_u64());
        fields.insert("max_tokens".to_owned(), json!(largest));
    }
}

fn words(error: &JsValue) -> String {
    let message = js_sys::Reflect::get(error, &JsValue::from("message")).ok();
    let message = message.and_then(|message| message.as_string());
    message.or_else(|| error.as_string()).unwrap_or_default()
}

/// The binding throws its errors as words that begin with a number.
fn failure(words: &str, model: &str) -> ApiError {
    let is = |codes: &[&str]| codes.iter().any(|code| words.contains(code));
    let status = if is(&["5007", "No such model", "5018"]) {
        404
    } else if is(&["3040", "3036", "Capacity", "429"]) {
        429
    } else if is(&["5004", "5006", "5021", "3003", "3006"]) {
        400
    } else if is(&["3007", "3046", "408", "timeout", "timed out"]) {
        504
    } else {
        500
    };
    let body = json!({"error": {"message": words}}).to_string();
    upstream::failure(status, None, body.as_bytes(), model)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &Value) -> LlmRequest {
        LlmRequest::parse(Dialect::ChatCompletions, body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_bound_has_one_name_and_what_is_unknown_there_stays_here() {
        let request = request(
            &json!({"model": "a", "messages": [{"role": "user", "content": "hi"}],
            "max_completion_tokens": 90, "max_tokens": 50, "stream": true, "user": "u", "n": 1,
            "stream_options": {"include_usage": true}, "temperature": 0}),
        );
        let input = input(&request, "@cf/x", Some(80)).unwrap();
        assert_eq!(
            input,
            json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 80,
                "stream": true, "temperature": 0})
        );
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let two = json!({"model": "a", "messages": [{"role": "user", "content": "hi"}], "n": 2});
        assert!(input(&request(&two), "@cf/x", None).is_err());
        let message = json!({"model": "a", "messages": [{"role": "user", "content": "hi"}]});
        let message = LlmRequest::parse(Dialect::Messages, message.to_string().as_bytes()).unwrap();
        assert!(input(&message, "@cf/x", None).is_err());
    }

    #[test]
    fn thrown_words_become_statuses() {
        let code = |words: &str| match failure(words, "m") {
            ApiError::Upstream { code, .. }
            | ApiError::Invalid { code, .. }
            | ApiError::NotFound { code, .. } => code,
            _ => "other",
        };
        assert_eq!(
            code("AiError: 5007: No such model @cf/x"),
            "model_not_found"
        );
        assert_eq!(
            code("3040: Capacity temporarily exceeded"),
            "server_is_overloaded"
        );
        assert_eq!(
            code("5006: Error: required properties at '/' are 'prompt'"),
            "upstream_rejected"
        );
        assert_eq!(code("odd"), "upstream_error");
    }
}
