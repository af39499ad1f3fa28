//! Carries out what the built-in mock model plans, as if it were a provider.

use std::time::Duration;

use futures::{StreamExt, stream};
use worker::Delay;

use super::mock::{self, MockOutcome};
use super::request::LlmRequest;
use super::upstream::{self, Answer, Broken};
use crate::http::ApiError;
use crate::limits::Span;

/// The mock is the same every time, its `created` included.
const CREATED: u64 = 1_767_225_600;

/// The mock's answer.
pub async fn answer(
    request: &LlmRequest,
    model: &str,
    max_tokens: Option<u64>,
    timeout: Span,
) -> Result<Answer, ApiError> {
    let plan = mock::plan(request, model, max_tokens, CREATED);
    let silent = plan.outcome == MockOutcome::Hang || plan.delay_ms > timeout.0;
    pause(if silent { timeout.0 } else { plan.delay_ms }).await;
    if silent {
        return Err(upstream::timed_out());
    }
    match plan.outcome {
        MockOutcome::Answer(body) => good("application/json", vec![body], 0),
        MockOutcome::Stream(events) => good("text/event-stream", events, plan.chunk_delay_ms),
        MockOutcome::Failure { status, body } => {
            Err(upstream::failure(status, None, body.as_bytes(), model))
        }
        MockOutcome::Hang => Err(upstream::timed_out()),
    }
}

fn good(content_type: &str, parts: Vec<String>, delay_ms: u64) -> Result<Answer, ApiError> {
    let chunks = stream::iter(parts.into_iter().enumerate()).then(move |(i, part)| async move {
        if i > 0 {
            pause(delay_ms).await;
        }
        Ok::<_, Broken>(part.into_bytes())
    });
    Answer::good(content_type, chunks.boxed_local())
}

async fn pause(ms: u64) {
    if ms > 0 {
        Delay::from(Duration::from_millis(ms)).await;
    }
}
