//! Small JSON documents of others: an identity provider's keys, a provider's list of models, what a name resolves to.

use futures::StreamExt;
use serde_json::Value;
use worker::{
    AbortController, AbortSignal, CacheMode, Fetch, Headers, Request, RequestInit, RequestRedirect,
    Response,
};

use crate::budget::within;
use crate::json::parse_strict;
use crate::limits::Span;

/// Largest document that is read, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// The document at `url`, which has all of `time` to arrive; the error says in a word what was wrong. A redirect is not
/// followed.
pub async fn json(url: &str, headers: &[(&str, &str)], time: Span) -> Result<Value, &'static str> {
    let abort = AbortController::default();
    let signal = abort.signal();
    within(time, read(url, headers, &signal))
        .await
        .unwrap_or_else(|_| {
            abort.abort();
            Err("timed out")
        })
}

async fn read(
    url: &str,
    headers: &[(&str, &str)],
    signal: &AbortSignal,
) -> Result<Value, &'static str> {
    let request = request(url, headers).map_err(|_| "not a request")?;
    let sent = Fetch::Request(request).send_with_signal(signal).await;
    let response = sent.map_err(|_| "out of reach")?;
    if response.status_code() != 200 {
        return Err("status");
    }
    parse_strict(&body(response).await?).map_err(|_| "not JSON")
}

fn request(url: &str, named: &[(&str, &str)]) -> worker::Result<Request> {
    let headers = Headers::new();
    headers.set("accept", "application/json")?;
    for (name, value) in named {
        headers.set(name, value)?;
    }
    let mut init = RequestInit::new();
    init.with_headers(headers)
        .with_redirect(RequestRedirect::Manual)
        .with_cache(CacheMode::NoStore);
    Request::new_with_init(url, &init)
}

async fn body(mut response: Response) -> Result<Vec<u8>, &'static str> {
    let mut stream = response.stream().map_err(|_| "no body")?;
    let mut body = Vec::new();
    while let Some(chunk) = stream.next().await {
        body.extend(chunk.map_err(|_| "broke off")?);
        if body.len() > MAX_BYTES {
            return Err("too large");
        }
    }
    Ok(body)
}
