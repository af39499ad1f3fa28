//! What the clock does for notifications: lost messages are sent again, and old rows deleted.

use serde_json::json;
use worker::Env;

use super::message::NoticeMessage;
use crate::ledger::{LedgerError, notifications};
use crate::limits::{Millis, Span};

/// How long a notification is kept.
pub const KEPT: Span = Span::hours(24 * 90);
/// How long after its time a delivery counts as forgotten by the queue.
const LOST_AFTER: Span = Span::minutes(15);
/// Most messages sent again at one time.
const MOST_RESENT: u64 = 100;

/// Everything the clock does for notifications. What fails now is done at its next tick.
pub async fn tick(env: &Env, now: Millis) {
    for (what, done) in [
        ("resend", resend_lost(env, now).await),
        ("retention", retention(env, now).await),
    ] {
        if let Err(error) = done {
            worker::console_warn!(
                "{}",
                json!({"event": "notify_upkeep", "what": what, "error": error.to_string()})
            );
        }
    }
}

/// Sends the messages of deliveries again that should have been tried a while ago; gives how many.
pub async fn resend_lost(env: &Env, now: Millis) -> Result<usize, LedgerError> {
    let lost = notifications::overdue(env, now.minus(LOST_AFTER), MOST_RESENT).await?;
    let mut sent = 0;
    for delivery in lost {
        let message = NoticeMessage::Delivery {
            id: delivery.notification_id,
            channel: delivery.channel,
            attempt: delivery.attempts,
        };
        if message.send(env, Span::ZERO).await.is_err() {
            break;
        }
        sent += 1;
    }
    Ok(sent)
}

/// Deletes notifications that are kept no longer; gives how many.
pub async fn retention(env: &Env, now: Millis) -> Result<usize, LedgerError> {
    notifications::delete_before(env, now.minus(KEPT)).await
}
