use std::borrow::Cow;

use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen;

use super::lines;
use crate::gateway::again::Again;

#[wasm_bindgen(module = "/js/wire.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    fn answer(status: u16, head: &str, body: &JsValue) -> Result<web_sys::Response, JsValue>;
    #[wasm_bindgen(catch, js_name = answerBytes)]
    fn answer_bytes(status: u16, head: &str, body: &[u8]) -> Result<web_sys::Response, JsValue>;
}

/// An answer before it becomes the platform's: status, headers, body.
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    headers: Vec<(Cow<'static, str>, String)>,
    body: Body,
    /// What the caller is told elsewhere, if at all.
    pub notes: Notes,
}

/// What is known of an answer beside it.
#[derive(Default)]
pub struct Notes {
    /// The plan in force.
    pub plan: Option<String>,
    /// The policy that refused.
    pub policy: Option<String>,
    /// What is sure of the calls that follow it.
    pub again: Option<Box<Again>>,
}

enum Body {
    Empty,
    Bytes(Vec<u8>),
    Stream(web_sys::ReadableStream),
}

impl Reply {
    /// No content.
    pub fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::Empty,
            notes: Notes::default(),
        }
    }

    /// A JSON body. Every body type of ours serializes; one that didn't would be an empty object.
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).unwrap_or_else(|_| b"{}".to_vec());
        Self::bytes(status, "application/json", bytes)
    }

    /// Bytes of a given type.
    pub fn bytes(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let mut reply = Self::empty(status);
        reply.set("content-type", content_type);
        reply.body = Body::Bytes(body);
        reply
    }

    /// A body that arrives over time.
    pub fn stream(status: u16, body: web_sys::ReadableStream) -> Self {
        let mut reply = Self::empty(status);
        reply.body = Body::Stream(body);
        reply
    }

    /// Sets one header, replacing what was there.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let name = name.into();
        self.headers.retain(|(n, _)| *n != name);
        self.headers.push((name, value.into()));
    }

    /// Adds one header beside those of the same name.
    pub fn append(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.headers.push((name.into(), value.into()));
    }

    /// Sets several headers.
    pub fn set_all<N: Into<Cow<'static, str>>>(
        &mut self,
        headers: impl IntoIterator<Item = (N, String)>,
    ) {
        for (name, value) in headers {
            self.set(name, value);
        }
    }

    /// The value of one header.
    pub fn get(&self, name: &str) -> Option<&str> {
        lines::find(&self.headers, name)
    }

    /// The body, if it is a text that is here.
    pub fn text(&self) -> Option<&str> {
        match &self.body {
            Body::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            Body::Empty | Body::Stream(_) => None,
        }
    }

    /// Every header.
    pub fn headers(&self) -> &[(Cow<'static, str>, String)] {
        &self.headers
    }

    /// The platform's answer.
    pub fn into_response(self) -> worker::Result<web_sys::Response> {
        let head = lines::write(&self.headers);
        let answered = match self.body {
            Body::Empty => answer(self.status, &head, &JsValue::NULL),
            Body::Bytes(bytes) => answer_bytes(self.status, &head, &bytes),
            Body::Stream(stream) => answer(self.status, &head, &stream),
        };
        Ok(answered?)
    }
}
