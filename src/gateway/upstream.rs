//! The only client of providers. Caller credentials never go up, a provider's limit headers and cookies
//! never come down, no redirect is followed, and its failures are told in our words.

use futures::stream::LocalBoxStream;
use web_sys::AbortSignal;
use worker::{Env, Response, ResponseBody, Url};

use super::Dialect;
use super::exchange::{self, Body, Question};
use super::headers;
use super::stream::{self, Drained};
use super::workers_ai::Ai;
use crate::http::body::MAX_JSON;
use crate::http::error::RETRY_SOON;
use crate::http::{ApiError, lines};
use crate::ledger::models::{ModelRow, UpstreamKind};
use crate::limits::Span;
use crate::settings::{Secret, Settings};

/// Largest answer that is not a stream.
const MAX_ANSWER: usize = 16 << 20;

/// What Anthropic is told of a caller who names no version.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// A provider.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// A server that speaks the dialect it is asked in.
    Http {
        /// Its address, without a trailing slash.
        base_url: String,
        /// How it wants its key.
        auth: Auth,
    },
    /// Workers AI.
    WorkersAi(Ai),
    /// The built-in mock model.
    Mock,
}

/// How a provider wants its key.
#[derive(Clone, Debug)]
pub enum Auth {
    /// It wants none.
    None,
    /// `Authorization: Bearer`.
    Bearer(Secret),
    /// `x-api-key` and a version, as Anthropic does.
    Anthropic(Secret),
}

/// What came back: a good answer's head and its bytes as they arrive.
pub struct Answer {
    /// Always a success.
    pub status: u16,
    /// Headers that may come down.
    pub headers: Vec<(String, String)>,
    /// The bytes.
    pub body: Body,
    /// How long its head took, where that is known.
    pub waited: Option<Span>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody waits for it any more.
    CallerLeft,
    /// What the caller is told.
    Failed(ApiError),
}

impl From<ApiError> for NoAnswer {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<Drained> for NoAnswer {
    fn from(how: Drained) -> Self {
        Self::Failed(match how {
            Drained::Aborted => return Self::CallerLeft,
            Drained::TimedOut => timed_out(),
            Drained::Stopped => garbage(),
            _ => unreachable(),
        })
    }
}

impl Answer {
    /// The answer of a provider that is not reached over HTTP.
    pub fn good(content_type: &str, body: Chunks) -> Result<Self, ApiError> {
        let made = Response::from_stream(body).map_err(|_| garbage())?;
        Ok(Self {
            status: 200,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body_of(&made).ok_or_else(garbage)?,
            waited: None,
        })
    }

    /// Whether it came in the form that was asked for. Providers are known to leave the type of a stream
    /// out; none calls a stream JSON, or anything else an event stream.
    pub fn fits(&self, asked_for_stream: bool) -> bool {
        let kind = lines::find(&self.headers, "content-type").map(str::to_ascii_lowercase);
        let is = |media: &str| kind.as_ref().is_some_and(|kind| kind.starts_with(media));
        match asked_for_stream {
            true => !is("application/json"),
            false => !is("text/event-stream"),
        }
    }
}

/// What is sent, and where to.
pub struct Sending<'a> {
    /// The provider's address.
    pub base_url: &'a str,
    /// How it wants its key.
    pub auth: &'a Auth,
    /// Which API.
    pub dialect: Dialect,
    /// What the caller sent; most of it stays here.
    pub caller_headers: &'a [(String, String)],
    /// The model's own name, for errors.
    pub model: &'a str,
}

/// Bytes as they arrive; an error is a broken connection.
pub type Chunks = LocalBoxStream<'static, Result<Vec<u8>, Broken>>;

/// The connection to the provider broke.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Broken;

impl From<Broken> for worker::Error {
    fn from(_: Broken) -> Self {
        "the connection to the provider broke".into()
    }
}

/// The provider of models without a row.
pub fn default(settings: &Settings) -> Upstream {
    match &settings.upstream_base_url {
        Some(url) => Upstream::Http {
            base_url: url.clone(),
            auth: settings
                .upstream_api_key
                .clone()
                .map_or(Auth::None, Auth::Bearer),
        },
        None => Upstream::Mock,
    }
}

/// Where the default provider lists its models, and the `Authorization` it wants.
pub fn models_of_default(settings: &Settings) -> Option<(String, Option<String>)> {
    let Upstream::Http { base_url, auth } = default(settings) else {
        return None;
    };
    let authorization = match auth {
        Auth::Bearer(key) => Some(format!("Bearer {}", key.reveal())),
        Auth::None | Auth::Anthropic(_) => None,
    };
    Some((
        format!("{}/v1/models", without_version(&base_url)),
        authorization,
    ))
}

/// The provider a row names.
pub fn of_row(env: &Env, settings: &Settings, row: &ModelRow) -> Result<Upstream, ApiError> {
    let key = row
        .secret_name
        .as_deref()
        .map(|name| secret(env, name))
        .transpose()?;
    let default_base = match row.upstream {
        UpstreamKind::Mock => return Ok(Upstream::Mock),
        UpstreamKind::WorkersAi => {
            let ai = Ai::of(env).ok_or(ApiError::Misconfigured("Workers AI is not bound"))?;
            return Ok(Upstream::WorkersAi(ai));
        }
        UpstreamKind::OpenAi => settings.upstream_base_url.as_deref(),
        UpstreamKind::Anthropic => Some("https://api.anthropic.com"),
    };
    if row.upstream == UpstreamKind::OpenAi && row.base_url.is_none() && key.is_none() {
        return match default(settings) {
            Upstream::Mock => Err(ApiError::Misconfigured("the model has no base_url")),
            provider => Ok(provider),
        };
    }
    let base_url = row.base_url.as_deref().or(default_base);
    let base_url = base_url.ok_or(ApiError::Misconfigured("the model has no base_url"))?;
    Ok(Upstream::Http {
        base_url: base_url.trim_end_matches('/').to_owned(),
        auth: match (row.upstream, key) {
            (_, None) => Auth::None,
            (UpstreamKind::Anthropic, Some(key)) => Auth::Anthropic(key),
            (_, Some(key)) => Auth::Bearer(key),
        },
    })
}

fn secret(env: &Env, name: &str) -> Result<Secret, ApiError> {
    Secret::named(env, name).ok_or(ApiError::Misconfigured("a model's secret is not set"))
}

/// Sends a body to an HTTP provider and waits for the head of its answer; for all of it, if a `whole` one is wanted.
pub async fn send(
    sending: &Sending<'_>,
    body: &[u8],
    whole: bool,
    signal: &AbortSignal,
    timeout: Span,
) -> Result<Answer, NoAnswer> {
    let url = url(sending.base_url, sending.dialect);
    let question = Question {
        url: &url,
        headers: &headers_of(sending),
        body,
    };
    let most = whole.then_some(MAX_ANSWER);
    let response = match exchange::ask(&question, signal, timeout, most).await {
        Err(Drained::Broke) if Url::parse(&url).is_err() => {
            return Err(ApiError::Misconfigured("the provider's address is not a URL").into());
        }
        response => response?,
    };
    match response.status {
        200..=299 => Ok(Answer {
            status: response.status,
            headers: headers::to_caller(&response.headers),
            body: response.body,
            waited: Some(response.waited),
        }),
        _ => Err(translate(response, signal, sending.model).await.into()),
    }
}

/// The whole of an answer that is not a stream.
pub async fn collect(body: Body, signal: &AbortSignal, timeout: Span) -> Result<Vec<u8>, NoAnswer> {
    match body {
        Body::Whole(bytes) => Ok(bytes.to_vec()),
        Body::Stream(body) => Ok(stream::collect(&body, timeout, signal, MAX_ANSWER).await?),
    }
}

/// The provider's answer makes no sense.
pub fn garbage() -> ApiError {
    upstream_error(
        502,
        "The provider's answer could not be read.",
        "upstream_invalid_answer",
        Some(1),
    )
}

fn headers_of(sending: &Sending<'_>) -> Vec<(String, String)> {
    let mut headers = headers::to_upstream(sending.caller_headers);
    headers.retain(|(name, _)| name != "content-type");
    let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
    add("content-type", "application/json");
    match sending.auth {
        Auth::None => {}
        Auth::Bearer(key) => add("authorization", &format!("Bearer {}", key.reveal())),
        Auth::Anthropic(key) => {
            add("x-api-key", key.reveal());
            if lines::find(&headers, "anthropic-version").is_none() {
                headers.push(("anthropic-version".to_owned(), ANTHROPIC_VERSION.to_owned()));
            }
        }
    }
    headers
}

/// A base URL may or may not already end in the `/v1` that the path begins with.
fn url(base_url: &str, dialect: Dialect) -> String {
    format!("{}{}", without_version(base_url), dialect.path())
}

fn without_version(base_url: &str) -> &str {
    base_url.strip_suffix("/v1").unwrap_or(base_url)
}

fn body_of(response: &Response) -> Option<Body> {
    match response.body() {
        ResponseBody::Stream(body) => Some(Body::Stream(body.clone())),
        _ => None,
    }
}

async fn translate(response: exchange::Response, signal: &AbortSignal, model: &str) -> ApiError {
    let exchange::Response {
        status,
        headers,
        body,
        ..
    } = response;
    let body = match status {
        400..=499 => collect(body, signal, Span::seconds(5)).await,
        _ => Ok(Vec::new()),
    };
    failure(
        status,
        retry_after(&headers),
        &body.unwrap_or_default(),
        model,
    )
}

/// A provider's refusal in our words: its 401 is our fault, not the caller's; its 429 is its own
/// limit, not the plan's.
pub fn failure(status: u16, retry_after: Option<u64>, body: &[u8], model: &str) -> ApiError {
    let soon = Some(retry_after.unwrap_or(RETRY_SOON));
    match status {
        401 | 403 => upstream_error(
            502,
            "The provider does not accept the gateway's credential.",
            "upstream_auth_failed",
            None,
        ),
        404 => ApiError::NotFound {
            message: format!("The provider does not know the model `{model}`."),
            code: "model_not_found",
        },
        413 => ApiError::TooLarge { limit: MAX_JSON },
        400 | 409 | 415 | 422 => refused_input(body),
        429 | 503 | 529 => upstream_error(
            503,
            "The provider is overloaded. Please try again soon.",
            "server_is_overloaded",
            soon,
        ),
        408 | 504 => timed_out(),
        300..=399 => upstream_error(
            502,
            "The provider answered with a redirect, which is not followed.",
            "upstream_redirect",
            None,
        ),
        _ => upstream_error(502, "The provider failed.", "upstream_error", soon),
    }
}

/// What the provider says of wrong input is worth passing on: it names the caller's own fields.
fn refused_input(body: &[u8]) -> ApiError {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = json.pointer("/error/message").and_then(|m| m.as_str());
    let param = json.pointer("/error/param").and_then(|p| p.as_str());
    let message = message.unwrap_or("The provider refused the request.");
    ApiError::Invalid {
        message: message.chars().take(1_000).collect(),
        param: param.map(str::to_owned),
        code: "upstream_rejected",
    }
}

/// The provider's wait as far as an SDK's caller would bear it.
fn retry_after(headers: &[(String, String)]) -> Option<u64> {
    let header = lines::find(headers, "retry-after")?;
    let seconds = header.trim().parse::<u64>().ok()?;
    Some(seconds.clamp(1, 30))
}

fn unreachable() -> ApiError {
    upstream_error(
        502,
        "The provider is out of reach.",
        "upstream_unreachable",
        Some(2),
    )
}

/// The provider took too long.
pub fn timed_out() -> ApiError {
    upstream_error(
        504,
        "The provider took too long.",
        "upstream_timeout",
        Some(2),
    )
}

fn upstream_error(
    status: u16,
    message: &str,
    code: &'static str,
    retry_after: Option<u64>,
) -> ApiError {
    ApiError::Upstream {
        status,
        message: message.to_owned(),
        code,
        retry_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_with_or_without_v1_is_the_same() {
        let expected = "https://api.example/v1/chat/completions";
        for base in ["https://api.example", "https://api.example/v1"] {
            assert_eq!(url(base, Dialect::ChatCompletions), expected);
        }
    }
}
