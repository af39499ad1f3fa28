//! What the clock does for the operator: books what passed during outages, compares accounts with the
//! ledger, raises and clears alerts, adds up old days and deletes what is kept no longer. What fails now is
//! done at the next tick.

use serde_json::json;
use worker::Env;

use super::{alerts, reconcile};
use crate::account::open;
use crate::http::limit_headers::rfc3339;
use crate::ledger::{LedgerError, metrics, retention};
use crate::limits::{Millis, Span};
use crate::settings::Settings;

/// Most calls of outages booked at one time.
const MOST_BOOKED: u64 = 200;
/// Days are added up when no account publishes to them any more.
const FOLD_AFTER: Span = Span::hours(24 * 10);
/// Most days added up, and most rounds of deletion, at one time.
const MOST_ROUNDS: usize = 10;

/// Everything the clock does here.
pub async fn tick(env: &Env, now: Millis) {
    let settings = Settings::of(env);
    note(
        "book_open_calls",
        open::book_written(env, MOST_BOOKED, now).await.map(|_| ()),
    );
    note("reconcile", reconcile::tick(env, now).await);
    note("alerts", alerts::tick(env, &settings, now).await);
    note("fold", fold(env, now).await);
    note("retention", retain(env, now).await);
}

async fn fold(env: &Env, now: Millis) -> Result<(), LedgerError> {
    let before = rfc3339(now.minus(FOLD_AFTER));
    let before = before.get(..10).unwrap_or_default();
    for _ in 0..MOST_ROUNDS {
        if !metrics::fold_one_day(env, before).await? {
            break;
        }
    }
    Ok(())
}

async fn retain(env: &Env, now: Millis) -> Result<(), LedgerError> {
    for _ in 0..MOST_ROUNDS {
        if retention::round(env, now).await? == 0 {
            break;
        }
    }
    Ok(())
}

fn note(what: &str, done: Result<(), LedgerError>) {
    if let Err(error) = done {
        worker::console_warn!(
            "{}",
            json!({"event": "observe_upkeep", "what": what, "error": error.to_string()})
        );
    }
}
