//! A dispatched call from the first byte up to the last one down. All of it runs as one task that
//! outlives the answer, so that a caller who hangs up leaves no reservation behind: whatever way a call
//! ends, it ends here and is settled once.

use std::cell::RefCell;
use std::rc::Rc;

use futures::channel::oneshot;
use futures::future::{Either, join, select};
use js_sys::Uint8Array;
use serde_json::json;
use web_sys::{AbortSignal, ReadableStream};
use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen::prelude::Closure;
use worker::{AbortController, Env};

use super::complete::Dispatch;
use super::exchange::Body;
use super::hangup::HangUp;
use super::meter::{Feed, MeterPolicy, Settled, StreamEnd, StreamMeter};
use super::session::{Pass, Session};
use super::stream::{Drained, Feeder, Pipe};
use super::upstream::{self, Answer, NoAnswer};
use super::usage::Usage;
use crate::account::client::{self, OutOfReach};
use crate::account::leases::{self, Settled as BookedBy};
use crate::account::wire::{self, Ask, Asker, Ended, Snapshot};
use crate::account::{ended, open};
use crate::afterwards::afterwards;
use crate::clock;
use crate::http::router::Handled;
use crate::http::{ApiError, Reply};
use crate::limits::{Metered, Millis, OperationId, Outcome, Span};
use crate::observe::{Stage, Timing};
use crate::settings::Settings;

/// Sends a dispatched call to its provider and gives the answer as soon as it begins.
pub async fn run(session: &mut Session, dispatch: Dispatch) -> Handled {
    let (tell, told) = oneshot::channel();
    let task = Task {
        account: AccountLink::of(session, &dispatch.pass),
        settings: session.call.settings.clone(),
        headers: session.call.request.headers().to_vec(),
        dispatch,
        began: clock::now(&session.call.settings),
        left: session.call.request.raw().signal(),
    };
    session.call.context.wait_until(task.run(tell));
    let head = told.await.map_err(|_| ApiError::Unavailable("gateway"))?;
    if let Some(standing) = head.standing {
        session.stand(standing);
    }
    head.outcome
}

/// Gives back what a call reserved that was never dispatched.
pub async fn release(session: &Session, pass: &Pass) {
    AccountLink::of(session, pass)
        .settle(Outcome::Released)
        .await;
}

/// What the caller is told while the task goes on.
struct Head {
    outcome: Handled,
    /// Newer than the admission's, after something was given back.
    standing: Option<Snapshot>,
}

struct Task {
    dispatch: Dispatch,
    account: AccountLink,
    settings: Rc<Settings>,
    headers: Vec<(String, String)>,
    /// When the call was let through, or a little later.
    began: Millis,
    /// Aborted when the caller leaves.
    left: AbortSignal,
}

impl Task {
    async fn run(self, tell: oneshot::Sender<Head>) {
        if self.dispatch.request.stream() {
            self.stream(tell).await;
        } else {
            self.whole(tell).await;
        }
    }

    /// Sends the call and waits for the head of its answer.
    async fn open(&self, signal: &AbortSignal) -> Result<Answer, NoAnswer> {
        let sent = clock::now(&self.settings);
        let timeout = self.settings.upstream_timeout;
        let opened = self.dispatch.open(&self.headers, signal, timeout).await;
        let waited = opened.as_ref().ok().and_then(|answer| answer.waited);
        let waited = waited.unwrap_or_else(|| clock::now(&self.settings).since(sent));
        self.account.waited(waited);
        match opened {
            Ok(answer) if !answer.fits(self.dispatch.request.stream()) => {
                Err(upstream::garbage().into())
            }
            opened => opened,
        }
    }

    /// There is nothing to pass on.
    async fn end_without(&self, why: NoAnswer, tell: oneshot::Sender<Head>) {
        match why {
            NoAnswer::CallerLeft => self.settle(self.prompt_only()).await,
            NoAnswer::Failed(error) => self.give_back(error, tell).await,
        }
    }

    /// The provider failed before it answered: everything but the short limits is given back.
    async fn give_back(&self, error: ApiError, tell: oneshot::Sender<Head>) {
        let standing = self.account.settle(Outcome::Released).await;
        // The caller may be gone; there is nobody left to tell.
        let _ = tell.send(Head {
            outcome: Err(error),
            standing,
        });
    }

    async fn whole(&self, tell: oneshot::Sender<Head>) {
        match self.taken_whole().await {
            Err(why) => self.end_without(why, tell).await,
            Ok((reply, usage)) => {
                let _ = tell.send(Head {
                    outcome: Ok(reply),
                    standing: None,
                });
                self.settle(usage).await;
            }
        }
    }

    async fn taken_whole(&self) -> Result<(Reply, Usage), NoAnswer> {
        let Answer {
            status,
            headers,
            body,
            ..
        } = self.open(&self.left).await?;
        // What is not here yet by then would outlast the reservation.
        let until = self.began.plus(self.settings.upstream_timeout).plus(MORE);
        let timeout = until.since(clock::now(&self.settings));
        let whole = self.dispatch.whole(body, &self.left, timeout).await?;
        let mut reply = Reply::bytes(status, "application/json", whole.bytes);
        reply.set_all(headers);
        Ok((reply, whole.usage))
    }

    async fn stream(&self, tell: oneshot::Sender<Head>) {
        let abort = AbortController::default();
        let mut left = HangUp::of(&self.left);
        let opened = match select(Box::pin(self.open(&abort.signal())), &mut left).await {
            Either::Left((opened, _)) => opened,
            Either::Right(_) => Err(NoAnswer::CallerLeft),
        };
        match opened {
            Ok(answer) => self.pass_on(answer, abort, left, tell).await,
            Err(why) => {
                abort.abort();
                self.end_without(why, tell).await;
            }
        }
    }

    async fn pass_on(
        &self,
        answer: Answer,
        abort: AbortController,
        mut left: HangUp,
        tell: oneshot::Sender<Head>,
    ) {
        let Body::Stream(body) = answer.body else {
            return self.give_back(upstream::garbage(), tell).await;
        };
        let Some(pipe) = Pipe::new() else {
            return self.give_back(upstream::garbage(), tell).await;
        };
        let mut reply = Reply::stream(answer.status, pipe.readable());
        reply.set_all(answer.headers);
        reply.set("content-type", "text/event-stream; charset=utf-8");
        reply.set("cache-control", "no-cache, no-store, no-transform");
        let told = tell.send(Head {
            outcome: Ok(reply),
            standing: None,
        });

        let tap = Rc::new(RefCell::new(Tap::of(self)));
        let mut end = match told {
            Ok(()) => {
                let feed = feeder(&tap);
                self.pump(&body, &pipe, &feed, &abort.signal(), &mut left)
                    .await
            }
            Err(_) => Err(StreamEnd::CallerLeft),
        };
        let mut out = std::mem::take(&mut tap.borrow_mut().out);
        if end == Ok(Feed::Cut)
            && let Err(how) = pipe.write(&mut out, &mut left).await
        {
            end = Err(how);
        }
        // Before anything else can run: a caller who left ends the pump by this.
        if end != Ok(Feed::Continue) {
            abort.abort();
        }
        let end = end.err().unwrap_or(StreamEnd::Complete);
        let settled = tap.borrow_mut().meter.finish(end, &mut out);
        self.note(end, settled);
        let rest = async {
            if pipe.write(&mut out, &mut left).await.is_ok() {
                pipe.close().await;
            }
        };
        // At the same time, and settled first: what this isolate is asked from then on counts the call.
        join(self.settle(settled.usage), rest).await;
    }

    /// Passes the answer on until its end ([`Feed::Continue`]), the end of its budget ([`Feed::Cut`]), or
    /// an early one.
    async fn pump(
        &self,
        body: &ReadableStream,
        pipe: &Pipe,
        feed: &Feeder,
        signal: &AbortSignal,
        left: &mut HangUp,
    ) -> Result<Feed, StreamEnd> {
        let pump = Box::pin(pipe.pump(body, self.settings.upstream_timeout, signal, feed));
        let Either::Left((drained, _)) = select(pump, left).await else {
            return Err(StreamEnd::CallerLeft);
        };
        match drained {
            Drained::Complete => Ok(Feed::Continue),
            Drained::Stopped => Ok(Feed::Cut),
            Drained::Broke => Err(StreamEnd::UpstreamBroke),
            Drained::TimedOut => Err(StreamEnd::TimedOut),
            Drained::WriteFailed => Err(StreamEnd::WriteFailed),
            Drained::Aborted => Err(StreamEnd::CallerLeft),
        }
    }

    fn meter(&self) -> StreamMeter {
        let Dispatch { request, pass, .. } = &self.dispatch;
        StreamMeter::new(
            request.dialect(),
            MeterPolicy {
                hide_usage: !request.wants_usage(),
                prompt_estimate: request.prompt_tokens(),
                token_budget: pass.budget,
            },
        )
    }

    /// One line for every stream that did not end as it should have.
    fn note(&self, end: StreamEnd, settled: Settled) {
        if settled.complete && end == StreamEnd::Complete {
            return;
        }
        let Usage {
            prompt,
            completion,
            estimated,
        } = settled.usage;
        let line = json!({"event": "stream_ended_early", "end": end, "finish": settled.finish,
            "complete": settled.complete, "model": self.dispatch.target.model,
            "prompt_tokens": prompt, "completion_tokens": completion, "estimated": estimated});
        worker::console_warn!("{line}");
    }

    /// What a call has used whose caller left before any of the answer was seen.
    fn prompt_only(&self) -> Usage {
        Usage {
            prompt: self.dispatch.request.prompt_tokens(),
            completion: 0,
            estimated: true,
        }
    }

    async fn settle(&self, usage: Usage) {
        let outcome = Outcome::Used {
            prompt: usage.prompt,
            completion: usage.completion,
            estimated: usage.estimated,
        };
        self.account.settle(outcome).await;
    }
}

/// What sees every chunk of a stream on its way.
struct Tap {
    meter: StreamMeter,
    checkpoint: Checkpoint,
    account: AccountLink,
    settings: Rc<Settings>,
    /// What goes to the caller and was not handed on yet.
    out: Vec<u8>,
}

fn feeder(tap: &Rc<RefCell<Tap>>) -> Feeder {
    let tap = tap.clone();
    Closure::new(move |chunk| tap.borrow_mut().feed(chunk))
}

impl Tap {
    fn of(task: &Task) -> Self {
        let meter = task.meter();
        Self {
            checkpoint: Checkpoint {
                at: clock::now(&task.settings),
                renewed: task.began,
                metered: meter.metered().total(),
            },
            meter,
            account: task.account.clone(),
            settings: task.settings.clone(),
            out: Vec::new(),
        }
    }

    /// What the caller gets of a chunk; most often that is just this chunk.
    fn feed(&mut self, chunk: Uint8Array) -> JsValue {
        let bytes = chunk.to_vec();
        let fed = self.meter.feed(&bytes, &mut self.out);
        self.tell_account();
        if fed == Feed::Cut {
            return JsValue::NULL;
        }
        let out = if self.out.is_empty() {
            JsValue::UNDEFINED
        } else if self.out == bytes {
            chunk.into()
        } else {
            Uint8Array::from(self.out.as_slice()).into()
        };
        self.out.clear();
        out
    }

    /// A reading of the meter on the way, sent without waiting: the settlement follows anyway.
    fn tell_account(&mut self) {
        let used = self.meter.metered();
        if !self
            .checkpoint
            .is_due(clock::now(&self.settings), used.total())
        {
            return;
        }
        let account = self.account.clone();
        afterwards(async move {
            account.checkpoint(used.prompt, used.completion).await;
        });
    }
}

/// The caller's account, as far as one dispatched call needs it.
#[derive(Clone)]
pub struct AccountLink {
    env: Env,
    user: String,
    asker: Asker,
    operation: Option<OperationId>,
    passed_open: Option<OperationId>,
    timing: Rc<Timing>,
}

/// How often a settlement is tried before it is written down to be told later.
const SETTLE_TRIES: u32 = 4;

impl AccountLink {
    /// What `session`'s account knows of a call that passed.
    pub fn of(session: &Session, pass: &Pass) -> Self {
        Self {
            env: session.call.env.clone(),
            user: session.caller.user_id.clone(),
            asker: session.asker(),
            operation: pass.operation.clone(),
            passed_open: pass.passed_open.clone(),
            timing: session.call.timing.clone(),
        }
    }

    /// Notes how long the provider took to begin its answer.
    pub fn waited(&self, span: Span) {
        self.timing.note(Stage::Upstream, span);
    }

    /// Says how the call ended, trying again while the account is out of reach.
    pub async fn settle(&self, outcome: Outcome) -> Option<Snapshot> {
        let Some(operation) = &self.operation else {
            if let Some(operation) = &self.passed_open {
                let now = clock::now(&Settings::of(&self.env));
                open::book(&self.env, &self.user, operation, &outcome, now).await;
            }
            return None;
        };
        let now = clock::now(&Settings::of(&self.env));
        let took = self.timing.took();
        match leases::settle(&self.user, operation, outcome, took, now) {
            BookedBy::Here(standing) => return Some(*standing),
            BookedBy::Follows => {
                leases::follow(&self.env, &self.user).await;
                return None;
            }
            BookedBy::Elsewhere => {}
        }
        // Who gets something back is told at once how they stand; all else can wait for the next message.
        if outcome != Outcome::Released {
            let ended = Ended {
                operation: operation.clone(),
                outcome,
                took,
            };
            ended::note(&self.user, ended, now);
            if !ended::tell(&self.env, &self.user, operation).await {
                let now = clock::now(&Settings::of(&self.env));
                open::owe(&self.env, &self.user, operation, &outcome, now).await;
            }
            return None;
        }
        let ask = Ask::Settle {
            operation: operation.clone(),
            outcome,
            took,
        };
        match client::insist(&self.env, &self.user, &self.asker, &ask, SETTLE_TRIES).await {
            Ok(wire::Answer::Stands(standing)) => Some(standing),
            Ok(_) => None,
            Err(OutOfReach) => {
                let now = clock::now(&Settings::of(&self.env));
                open::owe(&self.env, &self.user, operation, &outcome, now).await;
                None
            }
        }
    }

    /// Says what the call has used so far, and that it is still under way.
    pub async fn checkpoint(&self, prompt: u64, completion: u64) {
        let Some(operation) = self.operation.clone() else {
            return;
        };
        let now = clock::now(&Settings::of(&self.env));
        let used = Metered { prompt, completion };
        if leases::checkpoint(&self.user, &operation, used, STREAM_LEASE, now) {
            if leases::is_lost(&self.user, &self.asker, now) {
                leases::keep(self.env.clone(), self.user.clone(), self.asker.clone()).await;
            }
            return;
        }
        let ask = Ask::Checkpoint {
            operation,
            prompt,
            completion,
            lease: STREAM_LEASE,
        };
        // The next checkpoint or the settlement carries the same totals again.
        let _ = client::ask(&self.env, &self.user, self.asker.clone(), ask).await;
    }
}

/// How much longer than its head an answer may take that is wanted whole.
const MORE: Span = Span::seconds(20);

/// How long a stream's reservation lasts after its last checkpoint.
const STREAM_LEASE: Span = Span::seconds(180);

/// When a stream's reading is next worth a message (rule: every 2 s or 500 tokens).
struct Checkpoint {
    /// When the last one was.
    at: Millis,
    /// When the reservation was last prolonged.
    renewed: Millis,
    metered: u64,
}

impl Checkpoint {
    const EVERY: Span = Span::seconds(2);
    const TOKENS: u64 = 500;
    /// A stream that only keeps the connection open, as while a model thinks, keeps its reservation.
    const RENEW: Span = Span::seconds(60);

    fn is_due(&mut self, now: Millis, metered: u64) -> bool {
        let more = metered.saturating_sub(self.metered);
        let waited = now.since(self.at);
        let due = more >= Self::TOKENS
            || (more > 0 && waited >= Self::EVERY)
            || now.since(self.renewed) >= Self::RENEW;
        if due {
            *self = Self {
                at: now,
                renewed: now,
                metered,
            };
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_time_or_by_tokens() {
        let mut checkpoint = Checkpoint {
            at: Millis(0),
            renewed: Millis(0),
            metered: 10,
        };
        assert!(!checkpoint.is_due(Millis(5_000), 10));
        assert!(!checkpoint.is_due(Millis(100), 509));
        assert!(checkpoint.is_due(Millis(100), 510));
        assert!(!checkpoint.is_due(Millis(2_099), 511));
        assert!(checkpoint.is_due(Millis(2_100), 511));
        assert!(!checkpoint.is_due(Millis(62_099), 511));
        assert!(checkpoint.is_due(Millis(62_100), 511));
    }

    #[test]
    fn a_stream_whose_head_was_slow_is_prolonged_soon_without_a_word() {
        let mut checkpoint = Checkpoint {
            at: Millis(100_000),
            renewed: Millis(0),
            metered: 10,
        };
        assert!(checkpoint.is_due(Millis(130_000), 10));
        assert!(!checkpoint.is_due(Millis(160_000), 10));
        assert!(checkpoint.is_due(Millis(190_000), 10));
    }
}
