use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use worker::Env;

use super::key::ApiKey;
use super::{Caller, Scope};
use crate::afterwards::afterwards;
use crate::budget::{self, within};
use crate::http::ApiError;
use crate::ledger;
use crate::limits::Millis;
use crate::remembered::{Known, Reading, Remembered};
use crate::settings::Settings;

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

/// Keys by their hash.
type Seen = HashMap<String, Remembered<KeyRecord>>;

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::new(HashMap::new());
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
    let record = match believed(&hash, env, now) {
        Some(record) => record,
        None => {
            let reading = begin(&hash, now);
            remember(&hash, read(&hash, env).await?, reading)
        }
    };
    admit(&record, now)
}

/// Forgets a key in this isolate, after its account said that it was revoked.
pub fn forget(key_id: &str) {
    SEEN.with_borrow_mut(|seen| {
        let is_it = |record: Rc<KeyRecord>| record.key_id == key_id;
        let all = seen.values_mut();
        all.filter(|known| known.last().is_some_and(is_it))
            .for_each(Remembered::forget);
    });
}

/// The name of a key's record in KV.
pub fn kv_name(hash: &str) -> String {
    format!("key:{hash}")
}

/// What this isolate believes of a key; before long it is read again, behind the answer. The account ends a revoked one
/// sooner.
fn believed(hash: &str, env: &Env, now: Millis) -> Option<Rc<KeyRecord>> {
    match SEEN.with_borrow(|seen| seen.get(hash).map(|record| record.known(now)))? {
        Known::Fresh(record) => Some(record),
        Known::Due(record) => {
            read_behind(hash, env.clone(), now);
            Some(record)
        }
        Known::Late(_) | Known::Nothing => None,
    }
}

fn read_behind(hash: &str, env: Env, now: Millis) {
    let reading = begin(hash, now);
    let hash = hash.to_owned();
    afterwards(async move {
        match read(&hash, &env).await {
            Ok(record) => drop(remember(&hash, record, reading)),
            Err(ApiError::BadCredential(_)) => {
                drop(SEEN.with_borrow_mut(|seen| seen.remove(&hash)))
            }
            // What is believed is so until its time is over.
            Err(_) => {}
        }
    });
}

/// Notes that the caller reads a key from now on.
fn begin(hash: &str, now: Millis) -> Reading {
    SEEN.with_borrow_mut(|seen| match seen.get_mut(hash) {
        Some(known) => known.begin(now),
        None => Remembered::<KeyRecord>::new().begin(now),
    })
}

async fn read(hash: &str, env: &Env) -> Result<KeyRecord, ApiError> {
    if let Some(record) = from_kv(hash, env).await {
        return Ok(record);
    }
    let row = ledger::keys::by_hash(env, hash).await;
    let row = row.map_err(|_| ApiError::Unavailable("keys"))?;
    let record = row.ok_or(ApiError::BadCredential("unknown"))?;
    to_kv(hash, &record, env).await;
    Ok(record)
}

fn admit(record: &KeyRecord, now: Millis) -> Result<Caller, ApiError> {
    if record.revoked_at_ms.is_some_and(|at| at <= now.0) {
        return Err(ApiError::BadCredential("revoked"));
    }
    if record.expires_at_ms.is_some_and(|at| at <= now.0) {
        return Err(ApiError::BadCredential("expired"));
    }
    Ok(Caller {
        user_id: record.user_id.clone(),
        key_id: Some(record.key_id.clone()),
        scope: record.scope,
        plan_hint: Some(record.plan_id.clone()),
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

/// Keeps what was read, unless there is no room for it.
fn remember(hash: &str, record: KeyRecord, reading: Reading) -> Rc<KeyRecord> {
    SEEN.with_borrow_mut(|seen| {
        if let Some(known) = seen.get_mut(hash) {
            return known.keep(record, reading);
        }
        if seen.len() >= CAPACITY {
            seen.retain(|_, known| known.known(reading.began) != Known::Nothing);
        }
        let mut known = Remembered::new();
        let record = known.keep(record, reading);
        if seen.len() < CAPACITY {
            seen.insert(hash.to_owned(), known);
        }
        record
    })
}
