//! The plans as this isolate last read them. An edited plan is in force within seconds; while D1 is out,
//! the last known plans stay in force, and an isolate that knows none takes the copy in KV.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use worker::Env;

use super::Plan;
use crate::ledger::{self, LedgerError};
use crate::limits::Millis;
use crate::remembered::Remembered;
use crate::snapshot;

/// The name of the copy in KV.
const COPY: &str = "plans";

/// Plans by id.
type Plans = HashMap<String, Rc<Plan>>;

thread_local! {
    static CACHE: RefCell<Remembered<Plans>> = const { RefCell::new(Remembered::new()) };
}

/// The plan of this id; `None` if there is none. One that isn't remembered may be new, so it is looked
/// for again before anybody is told that it isn't there.
pub async fn plan(env: &Env, id: &str, now: Millis) -> Result<Option<Rc<Plan>>, LedgerError> {
    if let Some(plan) = all(env, now).await?.get(id) {
        return Ok(Some(plan.clone()));
    }
    Ok(read(env, now).await?.get(id).cloned())
}

/// The plan of this id, if it is known and need not be read again now.
pub fn at_hand(id: &str, now: Millis) -> Option<Rc<Plan>> {
    CACHE.with_borrow(|cache| cache.at_hand(now)?.get(id).cloned())
}

/// All plans by id.
pub async fn all(env: &Env, now: Millis) -> Result<Rc<Plans>, LedgerError> {
    if let Some(plans) = CACHE.with_borrow_mut(|cache| cache.fresh(now)) {
        return Ok(plans);
    }
    match read(env, now).await {
        Ok(plans) => Ok(plans),
        Err(e) => last_known(env, now).await.ok_or(e),
    }
}

/// Makes this isolate read the plans again at the next call.
pub fn forget() {
    CACHE.with_borrow_mut(Remembered::forget);
}

async fn read(env: &Env, now: Millis) -> Result<Rc<Plans>, LedgerError> {
    let rows = ledger::plans::all(env).await?;
    let mut plans: Vec<_> = rows.into_iter().map(|row| row.plan).collect();
    plans.sort_by(|a, b| a.plan_id.cmp(&b.plan_id));
    snapshot::keep(env, COPY, &plans);
    Ok(CACHE.with_borrow_mut(|cache| cache.keep(by_id(plans), now)))
}

async fn last_known(env: &Env, now: Millis) -> Option<Rc<Plans>> {
    if let Some(plans) = CACHE.with_borrow_mut(|cache| cache.last_known(now)) {
        return Some(plans);
    }
    let copy = snapshot::read::<Vec<Plan>>(env, COPY).await?;
    Some(CACHE.with_borrow_mut(|cache| cache.stand_in(by_id(copy), now)))
}

fn by_id(plans: Vec<Plan>) -> Plans {
    plans
        .into_iter()
        .map(|plan| (plan.plan_id.clone(), Rc::new(plan)))
        .collect()
}
