//! Time budgets: no dependency may keep a call waiting for ever (design rule 7).

use std::time::Duration;

use futures::future::{Either, select};
use futures::pin_mut;
use thiserror::Error;
use worker::Delay;

use crate::limits::Span;

/// For one look-up in KV.
pub const KV: Span = Span(500);
/// For the same, where nobody waits for it.
pub const KV_BACKGROUND: Span = Span(5_000);
/// For one statement or batch in D1 on the way of a call.
pub const D1: Span = Span(2_000);
/// For the same, shortly after one of them ran out of time.
pub const D1_WARY: Span = Span(300);
/// For one statement or batch in D1 that nobody waits for.
pub const D1_BACKGROUND: Span = Span(10_000);
/// For one message to an account and its answer.
pub const ACCOUNT: Span = Span(2_500);
/// For one message to an account that has to ask the ledger.
pub const ACCOUNT_AND_LEDGER: Span = Span(15_000);
/// For one message to a queue.
pub const QUEUE: Span = Span(2_000);
/// For the provider's list of models, head and body.
pub const CATALOG: Span = Span(2_000);
/// For what the name of a webhook resolves to.
pub const DNS: Span = Span(2_000);
/// For the identity provider's keys, head and body.
pub const JWKS: Span = Span(2_000);

/// The time ran out.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("timed out")]
pub struct TimedOut;

/// The future's output, or [`TimedOut`] once `budget` has passed.
pub async fn within<F: Future>(budget: Span, future: F) -> Result<F::Output, TimedOut> {
    let timer = Delay::from(Duration::from_millis(budget.0));
    pin_mut!(future, timer);
    match select(future, timer).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(_) => Err(TimedOut),
    }
}
