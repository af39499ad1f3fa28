//! What users are told: thresholds of their quota, the end of a job, a block. It is told once, however
//! often it is heard of, since a notice's id is made from what it tells; it goes into the user's inbox,
//! to their webhook and by email where there is one. No call waits for any of that.

pub mod consumer;
mod deliver;
pub mod desk;
mod email;
mod message;
mod notice;
mod resolve;
mod schedule;
pub mod upkeep;
mod webhook;

use worker::Env;

pub use webhook::{Told, post};

pub use message::{Channel, NoticeMessage};
pub use notice::Notice;

use crate::limits::Span;
use crate::queues::{self, NotSent, Queue};

/// Hands a notice to the queue. Doing so twice is doing it once.
pub async fn send(env: &Env, notice: &Notice) -> Result<(), NotSent> {
    NoticeMessage::Notice(notice.clone())
        .send(env, Span::ZERO)
        .await
}

impl NoticeMessage {
    /// Sends it.
    async fn send(&self, env: &Env, delay: Span) -> Result<(), NotSent> {
        queues::send(env, Queue::Notices, self.write().ok_or(NotSent)?, delay).await
    }
}
