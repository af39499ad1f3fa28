//! The plans as this isolate last read them. An edited plan is in force within [`STALE`] plus one
//! read; while D1 is out, the last known plans stay in force.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use worker::Env;

use super::Plan;
use crate::ledger::{self, LedgerError};
use crate::limits::{Millis, Span};

/// How long a read is believed.
const STALE: Span = Span::seconds(5);
/// How soon a failed read is tried again.
const RETRY: Span = Span::seconds(1);

#[derive(Default)]
struct Cache {
    plans: Option<Rc<HashMap<String, Rc<Plan>>>>,
    read_after: Millis,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::new(Cache::default());
}

/// The plan of this id; `None` if there is none. One that isn't remembered may be new, so it is looked
/// for again before anybody is told that it isn't there.
pub async fn plan(env: &Env, id: &str, now: Millis) -> Result<Option<Rc<Plan>>, LedgerError> {
    if let Some(plan) = all(env, now).await?.get(id) {
        return Ok(Some(plan.clone()));
    }
    forget();
    Ok(all(env, now).await?.get(id).cloned())
}

/// All plans by id.
pub async fn all(env: &Env, now: Millis) -> Result<Rc<HashMap<String, Rc<Plan>>>, LedgerError> {
    if let Some(plans) = fresh(now) {
        return Ok(plans);
    }
    match ledger::plans::all(env).await {
        Ok(rows) => Ok(keep(rows, now)),
        Err(e) => last_known(now).ok_or(e),
    }
}

/// Makes this isolate read the plans again at the next call.
pub fn forget() {
    CACHE.with_borrow_mut(|cache| cache.read_after = Millis(0));
}

fn fresh(now: Millis) -> Option<Rc<HashMap<String, Rc<Plan>>>> {
    CACHE.with_borrow(|cache| {
        let plans = cache.plans.as_ref()?;
        let ahead = cache.read_after.since(now);
        (ahead > Span::ZERO && ahead <= STALE).then(|| plans.clone())
    })
}

fn keep(rows: Vec<ledger::plans::StoredPlan>, now: Millis) -> Rc<HashMap<String, Rc<Plan>>> {
    let by_id = rows.into_iter().map(|row| (row.plan.plan_id.clone(), Rc::new(row.plan)));
    let plans = Rc::new(by_id.collect::<HashMap<_, _>>());
    CACHE.with_borrow_mut(|cache| {
        cache.plans = Some(plans.clone());
        cache.read_after = now.plus(STALE);
    });
    plans
}

fn last_known(now: Millis) -> Option<Rc<HashMap<String, Rc<Plan>>>> {
    CACHE.with_borrow_mut(|cache| {
        cache.read_after = now.plus(RETRY);
        cache.plans.clone()
    })
}
