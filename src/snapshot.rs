//! Copies of slowly changing tables in KV: what an isolate starts from that has read nothing yet while the
//! ledger is out. They are written when a table was read and had changed, and never believed while the
//! ledger answers.

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::Env;

use crate::afterwards::afterwards;
use crate::budget::{self, within};
use crate::limits::Span;

thread_local! {
    /// What this isolate knows KV to hold.
    static WRITTEN: RefCell<HashMap<&'static str, String>> = RefCell::new(HashMap::new());
}

/// The copy of this name; `None` if there is none, or none that can be read.
pub async fn read<T: DeserializeOwned>(env: &Env, name: &'static str) -> Option<T> {
    let text = stored(env, name, budget::KV).await?;
    serde_json::from_str(&text).ok()
}

/// Writes the copy in the background if it has changed.
pub fn keep<T: Serialize>(env: &Env, name: &'static str, value: &T) {
    let Ok(text) = serde_json::to_string(value) else {
        return;
    };
    let known = WRITTEN.with_borrow(|written| written.get(name) == Some(&text));
    if !known {
        WRITTEN.with_borrow_mut(|written| written.insert(name, text.clone()));
        let env = env.clone();
        afterwards(async move {
            if write(&env, name, text).await.is_none() {
                WRITTEN.with_borrow_mut(|written| written.remove(name));
            }
        });
    }
}

/// Other isolates read the same table: most often KV has the copy already.
async fn write(env: &Env, name: &'static str, text: String) -> Option<()> {
    if stored(env, name, budget::KV_BACKGROUND).await.as_ref() == Some(&text) {
        return Some(());
    }
    let put = env.kv("CACHE").ok()?.put(&key(name), text).ok()?;
    within(budget::KV_BACKGROUND, put.execute())
        .await
        .ok()?
        .ok()
}

async fn stored(env: &Env, name: &'static str, time: Span) -> Option<String> {
    let kv = env.kv("CACHE").ok()?;
    within(time, kv.get(&key(name)).text()).await.ok()?.ok()?
}

fn key(name: &str) -> String {
    format!("snapshot:{name}")
}
