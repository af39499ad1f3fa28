//! Slowly changing tables, as this isolate last read them: seconds old; while the ledger is out, the last known ones,
//! or the copy in KV.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::LocalKey;

use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::Env;

use super::{Known, Reading, Remembered};
use crate::afterwards::afterwards;
use crate::ledger::LedgerError;
use crate::limits::Millis;
use crate::snapshot;

/// Where an isolate keeps a table.
pub type Memory<T> = &'static LocalKey<RefCell<Remembered<T>>>;

/// A table of the ledger that an isolate keeps whole.
pub trait Table: 'static {
    /// Its rows, as the copy in KV holds them too.
    type Rows: Serialize + DeserializeOwned;
    /// What is made of them.
    type Content: 'static;
    /// The name of the copy in KV.
    const COPY: &'static str;

    /// Where it is kept.
    fn memory() -> Memory<Self::Content>;
    /// Reads all rows.
    async fn rows(env: &Env) -> Result<Self::Rows, LedgerError>;
    /// What is made of them.
    fn content(rows: Self::Rows) -> Self::Content;
}

/// The table of now.
///
/// # Errors
/// The ledger's, if this isolate has never read the table and there is no copy in KV.
pub async fn current<T: Table>(env: &Env, now: Millis) -> Result<Rc<T::Content>, LedgerError> {
    match at_hand::<T>(env, now) {
        Some(content) => Ok(content),
        None => read_or_last_known::<T>(env, now).await,
    }
}

/// The table, if it need not be read first.
pub fn at_hand<T: Table>(env: &Env, now: Millis) -> Option<Rc<T::Content>> {
    match T::memory().with_borrow(|memory| memory.known(now)) {
        Known::Fresh(content) | Known::Late(content) => Some(content),
        Known::Due(content) => {
            read_behind::<T>(env.clone(), now);
            Some(content)
        }
        Known::Nothing => None,
    }
}

/// The table as the ledger has it.
///
/// # Errors
/// The ledger's.
pub async fn anew<T: Table>(env: &Env, now: Millis) -> Result<Rc<T::Content>, LedgerError> {
    read::<T>(env, begin::<T>(now)).await
}

/// Makes the next one read it again.
pub fn forget<T: Table>() {
    T::memory().with_borrow_mut(Remembered::forget);
}

fn read_behind<T: Table>(env: Env, now: Millis) {
    let reading = begin::<T>(now);
    afterwards(async move {
        // What failed is noted: the last known stays.
        let _ = read::<T>(&env, reading).await;
    });
}

async fn read_or_last_known<T: Table>(
    env: &Env,
    now: Millis,
) -> Result<Rc<T::Content>, LedgerError> {
    let reading = begin::<T>(now);
    let error = match read::<T>(env, reading).await {
        Ok(content) => return Ok(content),
        Err(error) => error,
    };
    if let Some(content) = T::memory().with_borrow(Remembered::last) {
        return Ok(content);
    }
    let copy = snapshot::read::<T::Rows>(env, T::COPY).await.ok_or(error)?;
    let content = T::content(copy);
    Ok(T::memory().with_borrow_mut(|memory| memory.stand_in(content, reading)))
}

async fn read<T: Table>(env: &Env, reading: Reading) -> Result<Rc<T::Content>, LedgerError> {
    let rows = T::rows(env).await.inspect_err(|_| {
        T::memory().with_borrow_mut(|memory| memory.fail(reading));
    })?;
    snapshot::keep(env, T::COPY, &rows);
    let content = T::content(rows);
    Ok(T::memory().with_borrow_mut(|memory| memory.keep(content, reading)))
}

fn begin<T: Table>(now: Millis) -> Reading {
    T::memory().with_borrow_mut(|memory| memory.begin(now))
}
