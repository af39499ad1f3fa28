//! A call as it came. Its head is read from the platform once: every single look would cost more than
//! all of it.

use std::borrow::Cow;

use wasm_bindgen::prelude::wasm_bindgen;
use worker::{FromRequest, Url, wasm_bindgen};

use super::{ApiError, lines};

#[wasm_bindgen(module = "/js/wire.js")]
extern "C" {
    #[wasm_bindgen(js_name = requestHead)]
    fn request_head(request: &web_sys::Request) -> String;
}

/// A request and its head.
pub struct Incoming {
    raw: web_sys::Request,
    head: Head,
}

/// What a request begins with.
struct Head {
    method: String,
    url: String,
    path: String,
    headers: Vec<(String, String)>,
}

impl Incoming {
    /// Its method, as it was written.
    pub fn method(&self) -> &str {
        &self.head.method
    }

    /// The URL, as text.
    pub fn address(&self) -> &str {
        &self.head.url
    }

    /// The URL.
    pub fn url(&self) -> Result<Url, ApiError> {
        Url::parse(&self.head.url).map_err(|_| ApiError::invalid("The URL is malformed."))
    }

    /// The path of the URL.
    pub fn path(&self) -> &str {
        &self.head.path
    }

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        lines::find(&self.head.headers, name)
    }

    /// Names in lower case and values of all headers.
    pub fn headers(&self) -> &[(String, String)] {
        &self.head.headers
    }

    /// The platform's own.
    pub const fn raw(&self) -> &web_sys::Request {
        &self.raw
    }
}

impl From<web_sys::Request> for Incoming {
    fn from(raw: web_sys::Request) -> Self {
        let head = Head::of(&request_head(&raw));
        Self { raw, head }
    }
}

impl FromRequest for Incoming {
    fn from_raw(request: web_sys::Request) -> Result<Self, impl Into<Box<dyn std::error::Error>>> {
        Ok::<_, worker::Error>(request.into())
    }
}

impl Head {
    fn of(text: &str) -> Self {
        let (method, rest) = text.split_once('\n').unwrap_or_default();
        let (url, headers) = rest.split_once('\n').unwrap_or_default();
        Self {
            method: method.to_owned(),
            url: url.to_owned(),
            path: path_of(url).into_owned(),
            headers: lines::read(headers),
        }
    }
}

/// The path of a URL; that of a plain one without the trouble of reading all of it.
fn path_of(url: &str) -> Cow<'_, str> {
    if let Some(path) = plain_path(url) {
        return Cow::Borrowed(path);
    }
    let url = Url::parse(url);
    Cow::Owned(url.map_or_else(|_| "/".to_owned(), |url| url.path().to_owned()))
}

/// A path without anything that could mean something else: no escapes, no dots, no backslashes.
fn plain_path(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let path = rest.get(rest.find(['/', '\\', '?', '#'])?..)?;
    let path = path.get(..path.find(['?', '#']).unwrap_or(path.len()))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-');
    (path.starts_with('/') && path.bytes().all(plain)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_from_its_lines() {
        let head = Head::of("POST\nhttps://g/v1/x?a=b\naccept\n*/*\n");
        let Head {
            method,
            url,
            path,
            headers,
        } = head;
        assert_eq!(
            (method.as_str(), url.as_str(), path.as_str()),
            ("POST", "https://g/v1/x?a=b", "/v1/x")
        );
        assert_eq!(headers, [("accept".to_owned(), "*/*".to_owned())]);
    }

    #[test]
    fn a_path_is_the_same_by_the_short_way() {
        for url in [
            "https://g",
            "https://g/",
            "https://g/v1/models",
            "https://g/v1/models/?x=/y",
            "https://g/a/../b",
            "https://g/a/%2e%2e/b",
            "https://g/a\\b",
            "https://g\\a/b",
            "https://g?x=/y",
            "https://g#/y",
            "https://g/ü//x",
            "http://u:p@g:1/a-b_c#f",
        ] {
            let parsed = Url::parse(url).unwrap();
            assert_eq!(path_of(url), parsed.path(), "{url}");
        }
    }
}
