//! One HTTP call of a provider, which `js/exchange.js` carries out.

use js_sys::{Array, Promise, Uint8Array};
use web_sys::{AbortSignal, ReadableStream};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsCast, JsValue};
use worker::wasm_bindgen_futures::JsFuture;

use super::stream::{Drained, count, millis};
use crate::http::lines;
use crate::limits::Span;

#[wasm_bindgen(module = "/js/exchange.js")]
extern "C" {
    fn exchange(
        url: &str,
        head: &str,
        body: &[u8],
        signal: &AbortSignal,
        patience: f64,
        most: f64,
    ) -> Promise;
}

/// What is sent.
pub struct Question<'a> {
    /// Where to.
    pub url: &'a str,
    /// With which headers.
    pub headers: &'a [(String, String)],
    /// What.
    pub body: &'a [u8],
}

/// What came back.
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its bytes.
    pub body: Body,
    /// How long its head took.
    pub waited: Span,
}

/// The bytes of an answer.
#[derive(Clone, Debug)]
pub enum Body {
    /// All of them, still where the platform put them.
    Whole(Uint8Array),
    /// As they arrive.
    Stream(ReadableStream),
}

/// Sends a question and waits for the head of its answer; where `most` is given, for all of it, if it is a good
/// one and has no more bytes. Head and body may each take `patience`; `signal` ends it.
pub async fn ask(
    question: &Question<'_>,
    signal: &AbortSignal,
    patience: Span,
    most: Option<usize>,
) -> Result<Response, Drained> {
    let head = lines::write(question.headers);
    let Question { url, body, .. } = question;
    let most = most.map_or(0.0, count);
    let exchanged = exchange(url, &head, body, signal, millis(patience), most);
    let exchanged = JsFuture::from(exchanged).await;
    let exchanged = exchanged.map_err(|_| Drained::Broke)?;
    match exchanged.dyn_ref::<Array>() {
        Some(answer) => read(answer).ok_or(Drained::Broke),
        None => Err(Drained::of(exchanged.as_f64())),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn read(answer: &Array) -> Option<Response> {
    Some(Response {
        status: answer.get(0).as_f64()? as u16,
        headers: lines::read(&answer.get(1).as_string()?),
        body: Body::of(answer.get(2)),
        waited: Span(answer.get(3).as_f64()? as u64),
    })
}

impl Body {
    fn of(body: JsValue) -> Self {
        match body.dyn_into::<ReadableStream>() {
            Ok(stream) => Self::Stream(stream),
            Err(bytes) => Self::Whole(
                bytes
                    .dyn_into()
                    .unwrap_or_else(|_| Uint8Array::new_with_length(0)),
            ),
        }
    }
}
