//! The queues: how messages are sent, and what becomes of those that arrive. Every message is decided on
//! its own, so that one bad body does not spoil its batch, and the handler never fails: an error from
//! there would end the calls of a whole isolate.

use futures::future::join_all;
use serde_json::json;
use thiserror::Error;
use worker::{
    Env, MessageBatch, MessageBuilder, MessageExt, QueueContentType, QueueRetryOptionsBuilder,
    RawMessage,
};

use crate::budget::{self, within};
use crate::clock;
use crate::ledger::dead_letters;
use crate::limits::Span;
use crate::settings::Settings;
use crate::{jobs, notify};

/// Longest delay of one message; longer waits are chained.
pub const LONGEST_DELAY: Span = Span::hours(12);
/// How soon a message is tried again that could not even be replaced by a new one.
pub const RETRY: Span = Span::seconds(10);
/// Most bytes kept of a message nobody could read.
const KEPT_BYTES: usize = 4_096;

/// A queue of this Worker, by its binding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Queue {
    /// Jobs.
    Tasks,
    /// Notifications.
    Notices,
}

/// The queue did not take a message, or did not say so in time.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("the queue is out of reach")]
pub struct NotSent;

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It is done with.
    Done,
    /// It is delivered again after a while; the platform gives up after a few times.
    Retry(Span),
    /// Nobody can ever do anything with it: it is written down, with the reason.
    Bury(&'static str),
}

/// Sends one message. Bodies are JSON in a string: a structure would lose its maps on the way.
pub async fn send(env: &Env, queue: Queue, text: String, delay: Span) -> Result<(), NotSent> {
    let name = match queue {
        Queue::Tasks => "TASK_QUEUE",
        Queue::Notices => "NOTIFY_QUEUE",
    };
    let delay = u32::try_from(delay.min(LONGEST_DELAY).seconds_ceil()).unwrap_or(0);
    let message = MessageBuilder::new(text)
        .content_type(QueueContentType::Text)
        .delay_seconds(delay)
        .build();
    let queue = env.queue(name).map_err(|_| NotSent)?;
    match within(budget::QUEUE, queue.send(message)).await {
        Ok(Ok(())) => Ok(()),
        failed => {
            let why = failed.map(|error| format!("{error:?}"));
            worker::console_warn!(
                "{}",
                json!({"event": "queue_send_failed", "queue": name, "error": format!("{why:?}")})
            );
            Err(NotSent)
        }
    }
}

/// Deals with a batch. Queues are told apart by their names: `…tasks…`, `…notify…`, and `…-dead` for
/// what the platform gave up delivering.
pub async fn receive(batch: MessageBatch<String>, env: Env) {
    let queue = batch.queue();
    let messages: Vec<_> = batch.raw_iter().collect();
    join_all(
        messages
            .into_iter()
            .map(|message| decide(message, &queue, &env)),
    )
    .await;
}

async fn decide(message: RawMessage, queue: &str, env: &Env) {
    let fate = match message.body().as_string() {
        Some(text) => deal(&text, queue, env).await,
        None => Fate::Bury("not text"),
    };
    let fate = match fate {
        Fate::Bury(reason) => bury(&message, queue, reason, env).await,
        other => other,
    };
    match fate {
        Fate::Retry(wait) => {
            let seconds = u32::try_from(wait.seconds_ceil()).unwrap_or(0);
            let options = QueueRetryOptionsBuilder::new()
                .with_delay_seconds(seconds)
                .build();
            message.retry_with_options(&options);
        }
        Fate::Done | Fate::Bury(_) => message.ack(),
    }
}

async fn deal(text: &str, queue: &str, env: &Env) -> Fate {
    match (queue.contains("notify"), queue.ends_with("-dead")) {
        (false, false) => jobs::consumer::take(env, text).await,
        (false, true) => jobs::consumer::take_dead(env, text).await,
        (true, false) => notify::consumer::take(env, text).await,
        (true, true) => notify::consumer::take_dead(env, text).await,
    }
}

/// Writes down a message nobody can read.
async fn bury(message: &RawMessage, queue: &str, reason: &str, env: &Env) -> Fate {
    let body = message.body();
    let text = body
        .as_string()
        .or_else(|| {
            js_sys::JSON::stringify(&body)
                .ok()
                .and_then(|json| json.as_string())
        })
        .unwrap_or_default();
    let kept: String = text.chars().take(KEPT_BYTES / 4).collect();
    let id = message.id();
    worker::console_error!(
        "{}",
        json!({"event": "dead_letter", "queue": queue, "message": id, "reason": reason})
    );
    let now = clock::now(&Settings::of(env));
    match dead_letters::insert(env, &id, queue, &kept, reason, now).await {
        Ok(()) => Fate::Done,
        Err(_) => Fate::Retry(RETRY),
    }
}
