//! The consumer of the notification queue.

use worker::Env;

use super::deliver::Attempt;
use super::message::{Channel, NoticeMessage};
use super::{Notice, email};
use crate::ledger::LedgerError;
use crate::ledger::notifications;
use crate::limits::Span;
use crate::queues::Fate;

/// How soon news are written down that the ledger did not take.
const LEDGER_OUT: Span = Span::minutes(1);

/// Deals with one message of the notification queue.
pub async fn take(env: &Env, text: &str) -> Fate {
    match NoticeMessage::read(text) {
        Some(NoticeMessage::Notice(notice)) => match write_down(env, &notice).await {
            Ok(()) => first_attempts(env, &notice).await,
            Err(fate) => fate,
        },
        Some(NoticeMessage::Delivery {
            id,
            channel,
            attempt,
        }) => {
            Attempt {
                env,
                id: &id,
                channel,
                number: attempt,
            }
            .make()
            .await
        }
        None => Fate::Bury("not a notification"),
    }
}

/// Deals with one message the platform gave up delivering: news are still written into the inbox, and
/// what is on its way is found again by the clean-up.
pub async fn take_dead(env: &Env, text: &str) -> Fate {
    match NoticeMessage::read(text) {
        Some(NoticeMessage::Notice(notice)) => match write_down(env, &notice).await {
            Ok(()) => Fate::Done,
            Err(fate) => fate,
        },
        Some(NoticeMessage::Delivery { .. }) => Fate::Done,
        None => Fate::Bury("not a notification"),
    }
}

async fn write_down(env: &Env, notice: &Notice) -> Result<(), Fate> {
    match notifications::insert(env, notice, email::is_on(env)).await {
        Ok(()) => Ok(()),
        // The user is no longer there: nobody is left to tell.
        Err(LedgerError::Constraint(_)) => Err(Fate::Done),
        Err(_) => Err(Fate::Retry(LEDGER_OUT)),
    }
}

async fn first_attempts(env: &Env, notice: &Notice) -> Fate {
    let attempt = |channel| Attempt {
        env,
        id: &notice.id,
        channel,
        number: 0,
    };
    let webhook = attempt(Channel::Webhook).make().await;
    let email = attempt(Channel::Email).make().await;
    match webhook {
        Fate::Done => email,
        other => other,
    }
}
