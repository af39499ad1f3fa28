use futures::future::{Either, select};
use js_sys::{Array, Function, Promise, Reflect, Uint8Array};
use web_sys::{AbortSignal, ReadableStream, TransformStream, WritableStreamDefaultWriter};
use worker::wasm_bindgen::prelude::{Closure, wasm_bindgen};
use worker::wasm_bindgen::{self, JsCast, JsValue};
use worker::wasm_bindgen_futures::JsFuture;

use super::hangup::HangUp;
use super::meter::StreamEnd;
use crate::limits::Span;

#[wasm_bindgen(module = "/js/streams.js")]
extern "C" {
    #[wasm_bindgen(js_name = pump)]
    fn js_pump(
        source: &ReadableStream,
        writer: &WritableStreamDefaultWriter,
        patience: f64,
        signal: &AbortSignal,
        feed: &Feeder,
    ) -> Promise;

    #[wasm_bindgen(js_name = collect)]
    fn js_collect(
        source: &ReadableStream,
        patience: f64,
        signal: &AbortSignal,
        most: f64,
    ) -> Promise;
}

/// Takes a chunk and gives what the caller gets of it: bytes, `undefined` for nothing yet, `null` for
/// nothing any more.
pub type Feeder = Closure<dyn FnMut(Uint8Array) -> JsValue>;

/// How a provider's stream ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drained {
    /// By its proper end.
    Complete,
    /// The connection broke.
    Broke,
    /// The next chunk took too long.
    TimedOut,
    /// Whoever took its bytes wanted no more.
    Stopped,
    /// The caller's end took no more.
    WriteFailed,
    /// By the signal.
    Aborted,
}

impl Drained {
    /// The number that `js/streams.js` tells it by.
    pub fn of(told: Option<f64>) -> Self {
        const COMPLETE: f64 = 0.0;
        const TIMED_OUT: f64 = 2.0;
        const STOPPED: f64 = 3.0;
        const WRITE_FAILED: f64 = 4.0;
        const ABORTED: f64 = 5.0;
        match told {
            Some(COMPLETE) => Self::Complete,
            Some(TIMED_OUT) => Self::TimedOut,
            Some(STOPPED) => Self::Stopped,
            Some(WRITE_FAILED) => Self::WriteFailed,
            Some(ABORTED) => Self::Aborted,
            _ => Self::Broke,
        }
    }
}

/// The whole of a stream, unless it has more than `most` bytes ([`Drained::Stopped`]) or no end.
pub async fn collect(
    source: &ReadableStream,
    patience: Span,
    signal: &AbortSignal,
    most: usize,
) -> Result<Vec<u8>, Drained> {
    let collected = js_collect(source, millis(patience), signal, count(most));
    let collected = JsFuture::from(collected).await;
    let collected = collected.map_err(|_| Drained::Broke)?;
    match collected.dyn_ref::<Uint8Array>() {
        Some(bytes) => Ok(bytes.to_vec()),
        None => Err(Drained::of(collected.as_f64())),
    }
}

/// Two ends of a body: what is written into one comes out of the other, which the caller reads.
///
/// The tap on a stream stays behind this type, so that it can be swapped when the platform offers a
/// cheaper one that still tells of a caller who left.
pub struct Pipe {
    readable: ReadableStream,
    writer: WritableStreamDefaultWriter,
}

impl Pipe {
    /// An empty pipe.
    pub fn new() -> Option<Self> {
        let pipe = identity()?;
        Some(Self {
            readable: pipe.readable(),
            writer: pipe.writable().get_writer().ok()?,
        })
    }

    /// The end the caller reads.
    pub fn readable(&self) -> ReadableStream {
        self.readable.clone()
    }

    /// Passes a provider's stream on as `feed` wants it, no faster than the caller reads. After an abort
    /// `feed` is not called any more.
    pub async fn pump(
        &self,
        source: &ReadableStream,
        patience: Span,
        signal: &AbortSignal,
        feed: &Feeder,
    ) -> Drained {
        let pumped = js_pump(source, &self.writer, millis(patience), signal, feed);
        Drained::of(
            JsFuture::from(pumped)
                .await
                .ok()
                .and_then(|how| how.as_f64()),
        )
    }

    /// Writes and empties `bytes`, no faster than the caller reads.
    pub async fn write(&self, bytes: &mut Vec<u8>, left: &mut HangUp) -> Result<(), StreamEnd> {
        if bytes.is_empty() {
            return Ok(());
        }
        let chunk = Uint8Array::from(bytes.as_slice());
        bytes.clear();
        let written = JsFuture::from(self.writer.write_with_chunk(&chunk));
        match select(written, left).await {
            Either::Left((Ok(_), _)) => Ok(()),
            Either::Left((Err(_), _)) => Err(StreamEnd::WriteFailed),
            Either::Right(_) => Err(StreamEnd::CallerLeft),
        }
    }

    /// The proper end of the body.
    pub async fn close(&self) {
        // A reader that is gone can't be told that it was all.
        let _ = JsFuture::from(self.writer.close()).await;
    }
}

/// A pipe of the platform's own, which costs a fraction of what a standard `TransformStream` does.
pub fn identity() -> Option<TransformStream> {
    of_class("IdentityTransformStream", &Array::new())
}

/// The same, for a body whose length is known.
pub fn of_length(length: f64) -> Option<TransformStream> {
    of_class("FixedLengthStream", &Array::of1(&length.into()))
}

fn of_class(name: &str, arguments: &Array) -> Option<TransformStream> {
    let class = Reflect::get(&js_sys::global(), &name.into()).ok()?;
    let class = class.dyn_into::<Function>().ok()?;
    let stream = Reflect::construct(&class, arguments).ok()?;
    Some(stream.unchecked_into())
}

#[allow(clippy::cast_precision_loss)]
pub const fn millis(span: Span) -> f64 {
    span.0 as f64
}

#[allow(clippy::cast_precision_loss)]
pub const fn count(number: usize) -> f64 {
    number as f64
}
