use serde::Serialize;
use worker::{Headers, Response, ResponseBuilder};

/// An answer before it becomes the platform's: status, headers, body.
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    /// What the log says of it and the caller is told elsewhere, if at all.
    pub notes: Notes,
}

/// What the log says of an answer.
#[derive(Default)]
pub struct Notes {
    /// The plan in force.
    pub plan: Option<String>,
    /// The policy that refused.
    pub policy: Option<String>,
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
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.to_owned(), value.into()));
    }

    /// Adds one header beside those of the same name.
    pub fn append(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }

    /// Sets several headers.
    pub fn set_all<N: AsRef<str>>(&mut self, headers: impl IntoIterator<Item = (N, String)>) {
        for (name, value) in headers {
            self.set(name.as_ref(), value);
        }
    }

    /// The value of one header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// Every header.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The platform's answer.
    pub fn into_response(self) -> worker::Result<Response> {
        let headers = Headers::new();
        for (name, value) in &self.headers {
            headers.append(name, value)?;
        }
        let builder = ResponseBuilder::new()
            .with_status(self.status)
            .with_headers(headers);
        Ok(match self.body {
            Body::Empty => builder.empty(),
            Body::Bytes(bytes) => builder.fixed(bytes),
            Body::Stream(stream) => builder.stream(stream),
        })
    }
}
