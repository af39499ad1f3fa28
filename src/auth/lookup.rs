use std::cell::RefCell;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use worker::Env;

use super::key::ApiKey;
use super::{Caller, Scope};
use crate::budget::{self, within};
use crate::http::ApiError;
use crate::ledger;
use crate::limits::{Millis, Span};
use crate::settings::Settings;

/// How long an isolate believes what it read of a key; the account ends a revoked one sooner.
const MEMORY: Span = Span::seconds(5);
/// How long KV keeps a record nobody renews.
const KV_TTL_SECONDS: u64 = 86_400;
/// Most keys one isolate remembers.
const CAPACITY: usize = 4_096;

/// What is known of one API key: a row of `api_keys`, as KV holds it too.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct KeyRecord {
    /// Its id.
    pub key_id: String,
    /// Its user.
    pub user_id: String,
    /// What it may do.
    pub scope: Scope,
    /// The user's plan when the record was read; used only while the account store is out.
    pub plan_id: String,
    /// When it ends by itself.
    pub expires_at_ms: Option<u64>,
    /// When it was revoked.
    pub revoked_at_ms: Option<u64>,
}

thread_local! {
    static SEEN: RefCell<HashMap<String, (Millis, KeyRecord)>> = RefCell::new(HashMap::new());
}

/// The caller who shows `key`. Unknown, revoked and expired are 401; "could not tell" is 503.
pub async fn key(
    key: &ApiKey,
    env: &Env,
    settings: &Settings,
    now: Millis,
) -> Result<Caller, ApiError> {
    let pepper = settings.key_pepper.as_ref();
    let pepper = pepper.ok_or(ApiError::Misconfigured("KEY_PEPPER is not set"))?;
    let hash = key
        .hash(pepper)
        .ok_or(ApiError::Misconfigured("KEY_PEPPER"))?;
    let record = match remembered(&hash, now) {
        Some(record) => record,
        None => read(&hash, env, now).await?,
    };
    admit(record, now)
}

/// Forgets a key in this isolate, after its account said that it was revoked.
pub fn forget(key_id: &str) {
    SEEN.with_borrow_mut(|seen| seen.retain(|_, (_, record)| record.key_id != key_id));
}

/// The name of a key's record in KV.
pub fn kv_name(hash: &str) -> String {
    format!("key:{hash}")
}

async fn read(hash: &str, env: &Env, now: Millis) -> Result<KeyRecord, ApiError> {
    let record = match from_kv(hash, env).await {
        Some(record) => record,
        None => {
            let row = ledger::keys::by_hash(env, hash).await;
            let row = row.map_err(|_| ApiError::Unavailable("keys"))?;
            let record = row.ok_or(ApiError::BadCredential("unknown"))?;
            to_kv(hash, &record, env).await;
            record
        }
    };
    remember(hash, &record, now);
    Ok(record)
}

fn admit(record: KeyRecord, now: Millis) -> Result<Caller, ApiError> {
    if record.revoked_at_ms.is_some_and(|at| at <= now.0) {
        return Err(ApiError::BadCredential("revoked"));
    }
    if record.expires_at_ms.is_some_and(|at| at <= now.0) {
        return Err(ApiError::BadCredential("expired"));
    }
    Ok(Caller {
        user_id: record.user_id,
        key_id: Some(record.key_id),
        scope: record.scope,
        plan_hint: Some(record.plan_id),
        plan_claim: None,
        provision: false,
    })
}

/// KV out, slow or full of garbage is the same as KV empty: the ledger is asked.
async fn from_kv(hash: &str, env: &Env) -> Option<KeyRecord> {
    let kv = env.kv("CACHE").ok()?;
    let text = within(budget::KV, kv.get(&kv_name(hash)).text()).await;
    serde_json::from_str(&text.ok()?.ok()??).ok()
}

async fn to_kv(hash: &str, record: &KeyRecord, env: &Env) {
    let (Ok(kv), Ok(text)) = (env.kv("CACHE"), serde_json::to_string(record)) else {
        return;
    };
    if let Ok(put) = kv.put(&kv_name(hash), text) {
        let stored = within(budget::KV, put.expiration_ttl(KV_TTL_SECONDS).execute()).await;
        if !matches!(stored, Ok(Ok(()))) {
            worker::console_warn!("{{\"event\":\"kv_put_failed\"}}");
        }
    }
}

fn remembered(hash: &str, now: Millis) -> Option<KeyRecord> {
    SEEN.with_borrow(|seen| {
        let (read_at, record) = seen.get(hash)?;
        (now.since(*read_at) < MEMORY).then(|| record.clone())
    })
}

fn remember(hash: &str, record: &KeyRecord, now: Millis) {
    SEEN.with_borrow_mut(|seen| {
        if seen.len() >= CAPACITY {
            seen.retain(|_, (read_at, _)| now.since(*read_at) < MEMORY);
        }
        if seen.len() < CAPACITY {
            seen.insert(hash.to_owned(), (now, record.clone()));
        }
    });
}
