//! One admitted call and its provider: sending it, and taking the whole of an answer that is no stream.

use serde_json::Value;
use web_sys::ReadableStream;
use worker::AbortController;

use super::mock_upstream;
use super::models::Target;
use super::request::LlmRequest;
use super::session::Pass;
use super::upstream::{self, Answer, Upstream};
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
    /// Sends it and waits for the head of the answer. `headers` are the caller's; most of them stay here.
    pub async fn open(
        &self,
        headers: &[(String, String)],
        abort: &AbortController,
        timeout: Span,
    ) -> Result<Answer, ApiError> {
        let Self {
            request,
            target,
            pass,
        } = self;
        match &target.upstream {
            Upstream::Mock => {
                mock_upstream::answer(request, &target.upstream_model, pass.max_tokens, timeout)
                    .await
            }
            Upstream::WorkersAi(ai) => {
                workers_ai::answer(
                    ai,
                    request,
                    &target.upstream_model,
                    pass.max_tokens,
                    timeout,
                )
                .await
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
                let sent = upstream::send(&sending, &body, abort, timeout).await;
                if !sent
                    .as_ref()
                    .is_err_and(|error| self.minds_being_asked_for_usage(error))
                {
                    return sent;
                }
                let body =
                    request.to_upstream_without_usage(&target.upstream_model, pass.max_tokens);
                upstream::send(&sending, &body, abort, timeout).await
            }
        }
    }

    /// Some providers refuse a field the caller never sent: the demand for usage. The answer is then metered
    /// by its text.
    fn minds_being_asked_for_usage(&self, error: &ApiError) -> bool {
        let ApiError::Invalid { message, param, .. } = error else {
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
        body: &ReadableStream,
        abort: &AbortController,
        timeout: Span,
    ) -> Result<Completed, ApiError> {
        let bytes = upstream::collect(body, abort, timeout).await?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|_| upstream::garbage())?;
        if !json.is_object() {
            return Err(upstream::garbage());
        }
        if is_failure(&json) {
            return Err(upstream::failure(500, None, &bytes, &self.target.model));
        }
        let usage = usage::of_answer(self.request.dialect(), &json)
            .unwrap_or_else(|| usage::estimated(self.request.prompt_tokens(), &json));
        Ok(Completed { bytes, usage })
    }

    /// From the first byte up to the last one down, for a call that nobody waits for.
    pub async fn complete(
        &self,
        headers: &[(String, String)],
        timeout: Span,
    ) -> Result<Completed, ApiError> {
        let abort = AbortController::default();
        let answer = self.open(headers, &abort, timeout).await?;
        self.whole(&answer.body, &abort, timeout).await
    }
}

/// An error told with a good status; a response of the Responses API may have failed by itself.
fn is_failure(answer: &Value) -> bool {
    answer.get("error").is_some_and(Value::is_object)
        && answer
            .get("object")
            .is_none_or(|object| object != "response")
}
