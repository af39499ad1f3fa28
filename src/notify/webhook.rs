//! Webhooks by the Standard Webhooks scheme: `webhook-id` stays the same over all attempts,
//! `webhook-timestamp` is that of the attempt, and `webhook-signature` covers both and the body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use thiserror::Error;
use worker::wasm_bindgen::JsValue;
use worker::{AbortController, Fetch, Headers, Method, Request, RequestInit, RequestRedirect};

use super::Notice;
use crate::budget::within;
use crate::http::limit_headers::rfc3339;
use crate::limits::{Millis, Span};
use crate::settings::Secret;

/// For a receiver's answer.
const BUDGET: Span = Span::seconds(15);
/// Shortest and longest key of the scheme, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// What a receiver said.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// It has the notice.
    Yes,
    /// It is gone for good.
    Gone,
    /// It has it not, for this reason, and may want to be left alone a while.
    No(String, Option<Span>),
}

/// `WEBHOOK_SECRET` is not `whsec_` and the base64 of 24 to 64 bytes.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("WEBHOOK_SECRET is not `whsec_` and the base64 of 24 to 64 bytes")]
pub struct BadSecret;

/// Sends a notice to `url` once.
pub async fn post(
    url: &str,
    notice: &Notice,
    secret: &Secret,
    now: Millis,
) -> Result<Told, BadSecret> {
    let body = payload(notice);
    let seconds = now.0 / 1_000;
    let signature = sign(secret.reveal(), &notice.id, seconds, &body)?;
    let Ok(request) = request(url, &notice.id, seconds, &signature, &body) else {
        return Ok(Told::No("the address is not a URL".to_owned(), None));
    };
    let abort = AbortController::default();
    let signal = abort.signal();
    let fetch = Fetch::Request(request);
    match within(BUDGET, fetch.send_with_signal(&signal)).await {
        Ok(Ok(response)) => {
            let wait = response.headers().get("retry-after").ok().flatten();
            let said = judge(response.status_code(), wait.as_deref());
            // Its body interests nobody.
            abort.abort();
            Ok(said)
        }
        Ok(Err(_)) => Ok(Told::No("out of reach".to_owned(), None)),
        Err(_) => {
            abort.abort();
            Ok(Told::No("timed out".to_owned(), None))
        }
    }
}

/// Only 2xx is success; a redirect is none, and is not followed.
fn judge(status: u16, retry_after: Option<&str>) -> Told {
    match status {
        200..=299 => Told::Yes,
        410 => Told::Gone,
        429 | 503 => {
            let seconds = retry_after.and_then(|text| text.trim().parse().ok());
            Told::No(status.to_string(), seconds.map(Span::seconds))
        }
        _ => Told::No(status.to_string(), None),
    }
}

fn payload(notice: &Notice) -> String {
    json!({"type": notice.kind, "timestamp": rfc3339(notice.at), "data": notice.data}).to_string()
}

fn request(
    url: &str,
    id: &str,
    seconds: u64,
    signature: &str,
    body: &str,
) -> worker::Result<Request> {
    let headers = Headers::new();
    headers.set("content-type", "application/json")?;
    headers.set("user-agent", "sluice-webhooks/1")?;
    headers.set("webhook-id", id)?;
    headers.set("webhook-timestamp", &seconds.to_string())?;
    headers.set("webhook-signature", signature)?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_headers(headers)
        .with_redirect(RequestRedirect::Manual)
        .with_body(Some(JsValue::from_str(body)));
    Request::new_with_init(url, &init)
}

/// The signature: `v1,` and the base64 of HMAC-SHA-256 over id, time and body, joined by points.
fn sign(secret: &str, id: &str, seconds: u64, body: &str) -> Result<String, BadSecret> {
    let encoded = secret.strip_prefix("whsec_").ok_or(BadSecret)?;
    let key = STANDARD.decode(encoded).map_err(|_| BadSecret)?;
    if !KEY_BYTES.contains(&key.len()) {
        return Err(BadSecret);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| BadSecret)?;
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    Ok(format!(
        "v1,{}",
        STANDARD.encode(mac.finalize().into_bytes())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_ZWRnZS1nYXRld2F5LWRlbW8tc2VjcmV0LTMyYnl0ZXM=";

    /// Verified with two other implementations of the scheme.
    #[test]
    fn the_known_vector() {
        let body = concat!(
            r#"{"type":"job.completed","timestamp":"2026-09-21T14:13:20Z","#,
            r#""data":{"job_id":"job_01JEXAMPLE","status":"completed"}}"#
        );
        let signature = sign(
            SECRET,
            "msg_01JEXAMPLE0000000000000001",
            1_790_000_000,
            body,
        );
        assert_eq!(
            signature.unwrap(),
            "v1,bPIL0+oAe4lHuufjszLPk25PlflEXMm3g25AqYA4x/I="
        );
    }

    #[test]
    fn a_secret_that_is_none_signs_nothing() {
        for bad in [
            "",
            "whsec_",
            "whsec_!!",
            "whsec_c2hvcnQ=",
            &SECRET["whsec_".len()..],
        ] {
            assert_eq!(sign(bad, "id", 1, ""), Err(BadSecret), "{bad}");
        }
    }

    #[test]
    fn only_2xx_is_success() {
        assert_eq!(judge(204, None), Told::Yes);
        assert_eq!(judge(410, None), Told::Gone);
        assert_eq!(judge(302, Some("7")), Told::No("302".into(), None));
        assert_eq!(
            judge(503, Some("7")),
            Told::No("503".into(), Some(Span::seconds(7)))
        );
        assert_eq!(judge(429, Some("soon")), Told::No("429".into(), None));
    }
}
