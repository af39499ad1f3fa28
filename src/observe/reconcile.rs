//! Whether accounts and the ledger agree: `POST /admin/reconcile` compares one user or all, and the clock
//! goes round those who call. What differs is mended by the account itself, and reported.

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use worker::Env;

use crate::account::client;
use crate::account::wire::{Answer, Ask, Asker, Drift};
use crate::admin::{Visit, failed};
use crate::budget;
use crate::http::limit_headers::rfc3339;
use crate::http::router::Handled;
use crate::http::{ApiError, Reply};
use crate::ledger::audit::{self, Entry};
use crate::ledger::{LedgerError, metrics, reconcile};
use crate::limits::{Millis, Span};

/// Accounts compared by one call of the operator; the answer says where to go on.
const SLICE: u64 = 200;
/// Accounts compared by one tick of the clock.
const TICK_SLICE: u64 = 100;
/// Accounts asked at the same time.
const AT_ONCE: usize = 4;
/// Accounts that haven't published for so long have freed their storage.
const BUSY: Span = Span::hours(25);
/// The name under which the clock keeps how far it has come.
const CURSOR: &str = "reconcile_cursor";

/// Which accounts the operator wants compared.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    user_id: Option<String>,
    cursor: Option<String>,
}

/// One account, compared.
struct Compared {
    user_id: String,
    /// `None`: it could not be asked.
    drift: Option<Drift>,
}

/// `POST /admin/reconcile {"user_id"?, "cursor"?}`.
pub async fn post(mut visit: Visit) -> Handled {
    let asked: Asked = visit.body().await?;
    let (env, now) = (visit.call.env.clone(), visit.call.now);
    let one = asked.user_id.is_some();
    let users = match asked.user_id {
        Some(user) => vec![user],
        None => {
            let after = asked.cursor.unwrap_or_default();
            reconcile::users(&env, &after, SLICE)
                .await
                .map_err(failed)?
        }
    };
    let full = !one && u64::try_from(users.len()).is_ok_and(|count| count >= SLICE);
    let next = users.last().filter(|_| full).cloned();
    let compared = compare(&env, users, now).await;
    if one && compared.iter().any(|one| one.drift.is_none()) {
        return Err(ApiError::Unavailable("accounts"));
    }
    for mended in compared.iter().filter(|one| one.has_drifted()) {
        write_audit(&visit, mended).await?;
    }
    Ok(Reply::json(200, &report(&compared, next)))
}

/// An account that the operator had compared, and that was mended.
async fn write_audit(visit: &Visit, mended: &Compared) -> Result<(), ApiError> {
    let drift = mended.drift.as_ref();
    let entry = Entry {
        at: &visit.now(),
        action: "user.reconcile",
        target: &mended.user_id,
        before: drift.map(|drift| json!({"account": drift.account, "ledger": drift.ledger})),
        after: drift.map(|drift| json!({"drift": drift.kind.word()})),
    };
    audit::write(&visit.call.env, &entry).await.map_err(failed)
}

impl Compared {
    fn has_drifted(&self) -> bool {
        let drift = self.drift.as_ref();
        drift.is_some_and(|drift| drift.kind.is_drift())
    }
}

/// One slice of the clock's round.
pub async fn tick(env: &Env, now: Millis) -> Result<(), LedgerError> {
    let after = metrics::state(env, CURSOR).await?.unwrap_or_default();
    let since = rfc3339(now.minus(BUSY));
    let users = reconcile::busy_users(env, &after, &since, TICK_SLICE).await?;
    let full = u64::try_from(users.len()).is_ok_and(|count| count >= TICK_SLICE);
    let next = users.last().filter(|_| full).cloned().unwrap_or_default();
    compare(env, users, now).await;
    if next != after {
        metrics::keep_state(env, CURSOR, &next).await?;
    }
    Ok(())
}

async fn compare(env: &Env, users: Vec<String>, now: Millis) -> Vec<Compared> {
    let asked = users.into_iter().map(|user| compare_one(env, user, now));
    futures::stream::iter(asked)
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn compare_one(env: &Env, user_id: String, now: Millis) -> Compared {
    let budget = budget::ACCOUNT_AND_LEDGER;
    let answer = client::ask_within(budget, env, &user_id, Asker::default(), Ask::Reconcile).await;
    let drift = match answer {
        Ok(Answer::Reconciled(drift)) => Some(drift),
        _ => None,
    };
    if let Some(drift) = drift.as_ref().filter(|drift| drift.kind.is_drift()) {
        let line = json!({"event": "drift", "kind": drift.kind.word()});
        worker::console_warn!("{line}");
        // What is mended is mended, whether or not the note of it is kept.
        let _ = reconcile::note(env, &user_id, drift, now).await;
    }
    Compared { user_id, drift }
}

fn report(compared: &[Compared], next: Option<String>) -> Value {
    let count = |is: fn(&Compared) -> bool| compared.iter().filter(|one| is(one)).count();
    let rows = compared
        .iter()
        .filter(|one| compared.len() == 1 || one.has_drifted());
    json!({
        "checked": count(|one| one.drift.is_some()),
        "drifted": count(Compared::has_drifted),
        "unreachable": count(|one| one.drift.is_none()),
        "data": rows.map(row).collect::<Vec<_>>(),
        "next_cursor": next,
    })
}

fn row(one: &Compared) -> Value {
    let drift = one.drift.as_ref();
    json!({
        "user_id": one.user_id,
        "drift": drift.map(|drift| drift.kind.word()),
        "account": drift.map(|drift| drift.account),
        "ledger": drift.and_then(|drift| drift.ledger),
    })
}
