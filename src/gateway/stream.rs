use futures::future::{Either, select};
use web_sys::{ReadableStream, TransformStream, WritableStreamDefaultWriter};
use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen_futures::JsFuture;

use super::hangup::HangUp;
use super::meter::StreamEnd;

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
    pub fn new() -> Result<Self, JsValue> {
        let pipe = TransformStream::new()?;
        Ok(Self {
            readable: pipe.readable(),
            writer: pipe.writable().get_writer()?,
        })
    }

    /// The end the caller reads.
    pub fn readable(&self) -> ReadableStream {
        self.readable.clone()
    }

    /// Writes and empties `bytes`, no faster than the caller reads.
    pub async fn write(&self, bytes: &mut Vec<u8>, left: &mut HangUp) -> Result<(), StreamEnd> {
        if bytes.is_empty() {
            return Ok(());
        }
        let chunk = js_sys::Uint8Array::from(bytes.as_slice());
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
