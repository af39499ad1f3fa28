//! One admitted call and its provider: sending it, and taking the whole of an answer that is no stream.

use futures::future::{Either, select};
use serde::Deserialize;
use serde_json::Value;
use web_sys::AbortSignal;
use worker::AbortController;

use super::exchange::Body;
use super::hangup::HangUp;
use super::mock_upstream;
use super::models::Target;
use super::request::LlmRequest;
use super::session::Pass;
use super::upstream::{self, Answer, NoAnswer, Upstream};
use super::usage::{self, Usage};
use super::workers_ai;
use crate::http::ApiError;
use crate::limits::Span;

/// A call that was admitted.
pub struct Dispatch {
    /// What the caller asked for.
    pub request: LlmRequest,
    /// Where it goes.
    pub target: Target,
    /// What it may use.
    pub pass: Pass,
}

/// The whole of a provider's answer.
pub struct Completed {
    /// Its bytes, as they came: one JSON value.
    pub bytes: Vec<u8>,
    /// What it used.
    pub usage: Usage,
}

impl Dispatch {
    /// Sends it and waits for the head of the answer, or for all of one that is no stream. `headers` are the
    /// caller's; most of them stay here.
    pub async fn open(
        &self,
        headers: &[(String, String)],
        signal: &AbortSignal,
        timeout: Span,
    ) -> Result<Answer, NoAnswer> {
        let Self {
            request,
            target,
            pass,
        } = self;
        match &target.upstream {
            Upstream::Mock => {
                let model = &target.upstream_model;
                let answer = mock_upstream::answer(request, model, pass.max_tokens, timeout);
                unless(signal, answer).await
            }
            Upstream::WorkersAi(ai) => {
                let model = &target.upstream_model;
                let answer = workers_ai::answer(ai, request, model, pass.max_tokens, timeout);
                unless(signal, answer).await
            }
            Upstream::Http { base_url, auth } => {
                let sending = upstream::Sending {
                    base_url,
                    auth,
                    dialect: request.dialect(),
                    caller_headers: headers,
                    model: &target.model,
                };
                let body = request.to_upstream(&target.upstream_model, pass.max_tokens);
                let whole = !request.stream();
                let sent = upstream::send(&sending, &body, whole, signal, timeout).await;
                if !sent
                    .as_ref()
                    .is_err_and(|error| self.minds_being_asked_for_usage(error))
                {
                    return sent;
                }
                let body =
                    request.to_upstream_without_usage(&target.upstream_model, pass.max_tokens);
                upstream::send(&sending, &body, whole, signal, timeout).await
            }
        }
    }

    /// Some providers refuse a field the caller never sent: the demand for usage. The answer is then metered
    /// by its text.
    fn minds_being_asked_for_usage(&self, error: &NoAnswer) -> bool {
        let NoAnswer::Failed(ApiError::Invalid { message, param, .. }) = error else {
            return false;
        };
        let names_it =
            |text: &str| text.contains("stream_options") || text.contains("include_usage");
        let is_ours = self.request.asks_for_usage_itself();
        is_ours && (names_it(message) || param.as_deref().is_some_and(names_it))
    }

    /// Takes the whole of an answer that is no stream.
    pub async fn whole(
        &self,
        body: Body,
        signal: &AbortSignal,
        timeout: Span,
    ) -> Result<Completed, NoAnswer> {
        let bytes = upstream::collect(body, signal, timeout).await?;
        let usage = self.usage(&bytes)?;
        Ok(Completed { bytes, usage })
    }

    fn usage(&self, answer: &[u8]) -> Result<Usage, ApiError> {
        let json = summary(answer).ok_or_else(upstream::garbage)?;
        if is_failure(&json) {
            return Err(upstream::failure(500, None, answer, &self.target.model));
        }
        if let Some(usage) = usage::of_answer(self.request.dialect(), &json) {
            return Ok(usage);
        }
        let json: Value = serde_json::from_slice(answer).map_err(|_| upstream::garbage())?;
        Ok(usage::of_answer(self.request.dialect(), &json)
            .unwrap_or_else(|| usage::estimated(self.request.prompt_tokens(), &json)))
    }

    /// From the first byte up to the last one down, for a call that nobody waits for.
    pub async fn complete(
        &self,
        headers: &[(String, String)],
        timeout: Span,
    ) -> Result<Completed, ApiError> {
        let abort = AbortController::default();
        let signal = abort.signal();
        let completed = match self.open(headers, &signal, timeout).await {
            Ok(answer) => self.whole(answer.body, &signal, timeout).await,
            Err(none) => Err(none),
        };
        completed.map_err(|none| match none {
            NoAnswer::Failed(error) => error,
            // Nobody aborts it.
            NoAnswer::CallerLeft => upstream::timed_out(),
        })
    }
}

/// What is asked of an answer first. Its text, which is most of it, is not kept.
#[derive(Deserialize)]
struct Summary {
    usage: Option<Value>,
    error: Option<Value>,
    object: Option<Value>,
}

/// The fields of [`Summary`] that an answer has; all its fields, where that is not so plain. `None`: it is no
/// JSON object.
fn summary(answer: &[u8]) -> Option<Value> {
    if answer.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let Ok(summary) = serde_json::from_slice::<Summary>(answer) else {
        return serde_json::from_slice(answer).ok();
    };
    let Summary {
        usage,
        error,
        object,
    } = summary;
    let fields = [("usage", usage), ("error", error), ("object", object)];
    let told = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Some(Value::Object(told.collect()))
}

/// What comes of `answer`, unless the signal ends it first.
async fn unless<T>(
    signal: &AbortSignal,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, NoAnswer> {
    match select(Box::pin(answer), HangUp::of(signal)).await {
        Either::Left((answer, _)) => Ok(answer?),
        Either::Right(_) => Err(NoAnswer::CallerLeft),
    }
}

/// An error told with a good status; a response of the Responses API may have failed by itself.
fn is_failure(answer: &Value) -> bool {
    answer.get("error").is_some_and(Value::is_object)
        && answer
            .get("object")
            .is_none_or(|object| object != "response")
}
