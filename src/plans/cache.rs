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
use crate::remembered::table::{self, Memory, Table};

/// Plans by id.
type Plans = HashMap<String, Rc<Plan>>;

thread_local! {
    static CACHE: RefCell<Remembered<Plans>> = const { RefCell::new(Remembered::new()) };
}

struct InLedger;

impl Table for InLedger {
    type Rows = Vec<Plan>;
    type Content = Plans;
    const COPY: &'static str = "plans";

    fn memory() -> Memory<Plans> {
        &CACHE
    }

    async fn rows(env: &Env) -> Result<Vec<Plan>, LedgerError> {
        let rows = ledger::plans::all(env).await?;
        let mut plans: Vec<_> = rows.into_iter().map(|row| row.plan).collect();
        plans.sort_by(|a, b| a.plan_id.cmp(&b.plan_id));
        Ok(plans)
    }

    fn content(plans: Vec<Plan>) -> Plans {
        plans
            .into_iter()
            .map(|plan| (plan.plan_id.clone(), Rc::new(plan)))
            .collect()
    }
}

/// The plan of this id; `None` if there is none. One that isn't remembered may be new, so it is looked
/// for again before anybody is told that it isn't there.
pub async fn plan(env: &Env, id: &str, now: Millis) -> Result<Option<Rc<Plan>>, LedgerError> {
    if let Some(plan) = all(env, now).await?.get(id) {
        return Ok(Some(plan.clone()));
    }
    let plans = table::anew::<InLedger>(env, now).await?;
    Ok(plans.get(id).cloned())
}

/// The plan of this id, if it is known and need not be read first.
pub fn at_hand(env: &Env, id: &str, now: Millis) -> Option<Rc<Plan>> {
    table::at_hand::<InLedger>(env, now)?.get(id).cloned()
}

/// All plans by id.
pub async fn all(env: &Env, now: Millis) -> Result<Rc<Plans>, LedgerError> {
    table::current::<InLedger>(env, now).await
}

/// Makes this isolate read the plans again at the next call.
pub fn forget() {
    table::forget::<InLedger>();
}
