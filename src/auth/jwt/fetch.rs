use futures::StreamExt;
use worker::{
    AbortController, AbortSignal, CacheMode, Fetch, Headers, Request, RequestInit, RequestRedirect,
    Response, Url,
};

use super::keys::KeySet;
use crate::budget::{self, within};
use crate::json::parse_strict;

/// Largest key set that is read.
const MAX_BYTES: usize = 256 << 10;

/// The keys at `url`, or `None`: slow, out of reach, too large, or no keys at all. A redirect is not followed.
pub async fn keys(url: &Url) -> Option<KeySet> {
    let abort = AbortController::default();
    let signal = abort.signal();
    let read = within(budget::JWKS, read(url, &signal)).await;
    let keys = read.unwrap_or_else(|_| {
        abort.abort();
        Err("timed out")
    });
    keys.inspect_err(|why| {
        worker::console_warn!("{{\"event\":\"jwks_fetch_failed\",\"why\":\"{why}\"}}");
    })
    .ok()
}

async fn read(url: &Url, signal: &AbortSignal) -> Result<KeySet, &'static str> {
    let request = request(url).map_err(|_| "not a request")?;
    let sent = Fetch::Request(request).send_with_signal(signal).await;
    let response = sent.map_err(|_| "out of reach")?;
    if response.status_code() != 200 {
        return Err("status");
    }
    let json = parse_strict(&body(response).await?).map_err(|_| "not JSON")?;
    KeySet::of_json(&json).ok_or("no usable keys")
}

fn request(url: &Url) -> worker::Result<Request> {
    let headers = Headers::new();
    headers.set("accept", "application/json")?;
    let mut init = RequestInit::new();
    init.with_headers(headers)
        .with_redirect(RequestRedirect::Manual)
        .with_cache(CacheMode::NoStore);
    Request::new_with_init(url.as_str(), &init)
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
