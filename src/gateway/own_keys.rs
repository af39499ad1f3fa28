//! `GET /api/keys`: a user's own keys, to be recognised by their last digits. It spends nothing.

use serde_json::{Value, json};

use super::session::Session;
use crate::http::limit_headers::rfc3339;
use crate::http::page::Page;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::keys::{self, Key};

/// The keys that are still good.
pub async fn own_keys(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = list(&mut session).await;
    Ok(session.close(outcome))
}

async fn list(session: &mut Session) -> Handled {
    session.view().await?;
    let call = &session.call;
    let url = call.request.url()?;
    let page = Page::of(&url)?;
    let rows = keys::good(&call.env, &session.caller.user_id, call.now, &page).await;
    let rows = rows.map_err(|_| ApiError::Unavailable("keys"))?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |key| (0, &key.key_id), body),
    ))
}

fn body(key: &Key) -> Value {
    json!({
        "key_id": key.key_id,
        "name": key.name,
        "last4": key.last4,
        "created_at": key.created_at,
        "expires_at": key.expires_at.map(rfc3339),
    })
}
