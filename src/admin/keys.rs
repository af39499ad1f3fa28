//! `/admin/users/{user_id}/keys` and `/admin/keys`.

use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::visit::{self, Visit, conflicts, failed};
use super::{Route, input, push, users};
use crate::account::wire::Ask;
use crate::auth::key::ApiKey;
use crate::auth::{self, Scope};
use crate::http::limit_headers::rfc3339;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply, ids};
use crate::ledger::audit::Entry;
use crate::ledger::keys::{self, Key};
use crate::limits::{Millis, Span};

/// The routes of keys.
pub const ROUTES: &[Route] = &[
    Route::new("GET", "/admin/users/{user_id}/keys", |visit| {
        list(visit).boxed_local()
    }),
    Route::new("POST", "/admin/users/{user_id}/keys", |visit| {
        create(visit).boxed_local()
    }),
    Route::new("DELETE", "/admin/keys/{key_id}", |visit| {
        revoke(visit).boxed_local()
    }),
    Route::new("POST", "/admin/keys/{key_id}/rotate", |visit| {
        rotate(visit).boxed_local()
    }),
];

/// Longest time that a rotated key lives on beside the new one: 30 days.
const MAX_OVERLAP_SECONDS: u64 = 30 * 24 * 3_600;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKey {
    #[cfg_attr(test, schemars(length(min = 1, max = 200)))]
    name: Option<String>,
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    expires_at: Option<String>,
    #[serde(default)]
    scope: Scope,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotation {
    #[serde(default)]
    #[cfg_attr(test, schemars(range(max = 2_592_000)))]
    overlap_seconds: u64,
}

async fn list(visit: Visit) -> Handled {
    let page = visit.page()?;
    users::found(&visit).await?;
    let rows = keys::page(&visit.call.env, &visit.id, &page)
        .await
        .map_err(failed)?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |key| (0, &key.key_id), body),
    ))
}

async fn create(mut visit: Visit) -> Handled {
    let new: NewKey = visit.body().await?;
    if let Some(name) = &new.name {
        input::check_name("name", name)?;
    }
    let expires_at = new.expires_at.as_deref();
    let expires_at = expires_at.map(|at| input::future("expires_at", at, visit.call.now));
    let expires_at = expires_at.transpose()?;
    let user = users::found(&visit).await?;
    let (secret, hash) = fresh(&visit.call)?;
    let now = visit.now();
    let key = Key {
        key_id: key_id()?,
        hash,
        last4: secret.last4().to_owned(),
        user_id: user.user_id,
        name: new.name,
        scope: new.scope,
        created_at: now.clone(),
        expires_at,
        revoked_at: None,
    };
    let entry = Entry {
        at: &now,
        action: "key.create",
        target: &key.key_id,
        before: None,
        after: Some(body(&key)),
    };
    let created = keys::create(&visit.call.env, &key, &entry).await;
    created.map_err(|e| conflicts(e, "The user was deleted meanwhile."))?;
    Ok(Reply::json(201, &with_secret(&key, &secret)))
}

/// Revokes a key from now on; of one that is revoked already, its account is told again.
async fn revoke(visit: Visit) -> Handled {
    let old = found(&visit).await?;
    let at = visit.call.now;
    let revoked = Key {
        revoked_at: Some(at),
        ..old.clone()
    };
    let now = visit.now();
    let entry = Entry {
        at: &now,
        action: "key.revoke",
        target: &old.key_id,
        before: Some(body(&old)),
        after: Some(body(&revoked)),
    };
    keys::revoke(&visit.call.env, &old.key_id, at, &entry)
        .await
        .map_err(failed)?;
    end(&visit.call, &old).await;
    let at = old.revoked_at.map_or(at, |earlier| earlier.min(at));
    let ask = Ask::Revoke {
        key_id: old.key_id,
        at,
    };
    push::in_force(&visit.call, &old.user_id, ask).await?;
    Ok(Reply::empty(204))
}

/// A new key in the place of an old one, which lives on for `overlap_seconds`. The account is told first:
/// a rotation it could not hear of leaves nothing behind, and above all no key that nobody was shown.
async fn rotate(mut visit: Visit) -> Handled {
    let Rotation { overlap_seconds } = visit.body().await?;
    if overlap_seconds > MAX_OVERLAP_SECONDS {
        return Err(input::refused(
            "overlap_seconds",
            "must be at most 2592000, which is 30 days",
        ));
    }
    let old = found(&visit).await?;
    rotatable(&old, visit.call.now)?;
    let ends = visit.call.now.plus(Span::seconds(overlap_seconds));
    let (secret, hash) = fresh(&visit.call)?;
    let now = visit.now();
    let new = Key {
        key_id: key_id()?,
        hash,
        last4: secret.last4().to_owned(),
        created_at: now.clone(),
        ..old.clone()
    };
    let entry = Entry {
        at: &now,
        action: "key.rotate",
        target: &old.key_id,
        before: Some(body(&old)),
        after: Some(body(&new)),
    };
    let ask = Ask::Revoke {
        key_id: old.key_id.clone(),
        at: ends,
    };
    let told = push::asked(&visit.call.env, &old.user_id, &ask).await;
    told.map_err(|_| ApiError::Unavailable("accounts"))?;
    let rotated = keys::rotate(&visit.call.env, &old, &new, ends, &entry).await;
    if !rotated.map_err(|e| conflicts(e, "The user was deleted meanwhile."))? {
        return Err(visit::busy());
    }
    end(&visit.call, &old).await;
    Ok(Reply::json(201, &with_secret(&new, &secret)))
}

async fn found(visit: &Visit) -> Result<Key, ApiError> {
    let key = keys::one(&visit.call.env, &visit.id)
        .await
        .map_err(failed)?;
    key.ok_or_else(|| ApiError::not_found("key"))
}

fn rotatable(key: &Key, now: Millis) -> Result<(), ApiError> {
    let conflict = |message: &str| Err(ApiError::Conflict(message.to_owned()));
    if key.revoked_at.is_some() {
        return conflict("The key is revoked already; make a new one.");
    }
    if key.expires_at.is_some_and(|at| at <= now) {
        return conflict("The key has expired; make a new one.");
    }
    Ok(())
}

/// Takes a key out of the caches, so that it is read again as the ledger has it now.
async fn end(call: &Call, key: &Key) {
    push::forget_keys(&call.env, [&key.hash]).await;
    auth::forget(&key.key_id);
}

fn fresh(call: &Call) -> Result<(ApiKey, String), ApiError> {
    let pepper = call.settings.key_pepper.as_ref();
    let pepper = pepper.ok_or(ApiError::Misconfigured("KEY_PEPPER is not set"))?;
    let key = ApiKey::generate().map_err(|_| ApiError::Misconfigured("no random numbers"))?;
    let hash = key
        .hash(pepper)
        .ok_or(ApiError::Misconfigured("KEY_PEPPER"))?;
    Ok((key, hash))
}

fn key_id() -> Result<String, ApiError> {
    ids::fresh("key").map_err(|_| ApiError::Misconfigured("no random numbers"))
}

fn body(key: &Key) -> Value {
    json!({
        "key_id": key.key_id,
        "user_id": key.user_id,
        "name": key.name,
        "scope": key.scope,
        "last4": key.last4,
        "created_at": key.created_at,
        "expires_at": key.expires_at.map(rfc3339),
        "revoked_at": key.revoked_at.map(rfc3339),
    })
}

/// The one answer that shows the key itself.
fn with_secret(key: &Key, secret: &ApiKey) -> Value {
    let mut shown = body(key);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("key".into(), json!(secret.reveal()));
    }
    shown
}
