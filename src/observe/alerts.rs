//! Alerts: raised by the clock once, cleared when what they tell of is over, listed by
//! `GET /admin/alerts`, and told to `ALERT_WEBHOOK_URL` where that is set.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use worker::Env;

use super::rules;
use crate::admin::{Visit, failed};
use crate::http::limit_headers::rfc3339;
use crate::http::router::Handled;
use crate::http::{ApiError, Reply, ids};
use crate::ledger::alerts::{self, AlertRow, Which};
use crate::ledger::{LedgerError, metrics, reconcile};
use crate::limits::{Millis, Span};
use crate::notify::{self, Notice, Told};
use crate::settings::Settings;

/// How far back snapshots are read: an hour, and as much as a late clock needs.
const SNAPSHOTS: Span = Span::hours(3);
/// How long calls that passed without their account keep an alert open.
const OPEN_SPAN: Span = Span::minutes(15);
/// How long dead messages and failed jobs do.
const DEAD_SPAN: Span = Span::hours(24);
/// How long drift does.
const DRIFT_SPAN: Span = Span::hours(1);
/// The longest a change may wait for its publication, milliseconds.
const LAG_BOUND: Span = Span::minutes(1);
/// Most alerts one tick tells the webhook of.
const MOST_TOLD: u64 = 20;

/// What is wrong now.
struct Finding {
    kind: &'static str,
    subject: String,
    detail: Value,
}

impl Finding {
    fn new(kind: &'static str, subject: &str, detail: Value) -> Self {
        Self {
            kind,
            subject: subject.to_owned(),
            detail,
        }
    }
}

/// `GET /admin/alerts`.
pub async fn list(visit: &Visit) -> Handled {
    let page = visit.page()?;
    let which = match visit.query("status")?.as_deref() {
        None => Which::All,
        Some("open") => Which::Open,
        Some("closed") => Which::Closed,
        Some(_) => {
            let words = "`status` must be `open` or `closed`.";
            return Err(ApiError::invalid_field("status", words));
        }
    };
    let rows = alerts::page(&visit.call.env, which, &page)
        .await
        .map_err(failed)?;
    let answer = page.answer(rows, |row| (row.opened_at_ms, row.id.as_str()), shown);
    Ok(Reply::json(200, &answer))
}

/// Compares what is wrong now with the alerts that are open.
pub async fn tick(env: &Env, settings: &Settings, now: Millis) -> Result<(), LedgerError> {
    let findings = findings(env, settings, now).await?;
    let found: BTreeSet<_> = findings
        .iter()
        .map(|f| (f.kind, f.subject.as_str()))
        .collect();
    for alert in alerts::open(env).await? {
        if !found.contains(&(alert.kind.as_str(), alert.subject.as_str())) {
            alerts::clear(env, &alert.id, now).await?;
            log("alert_cleared", &alert.id, &alert.kind, &alert.subject);
        }
    }
    for finding in &findings {
        let id = ids::fresh("alert").map_err(|e| LedgerError::Broken(e.to_string()))?;
        let Finding {
            kind,
            subject,
            detail,
        } = finding;
        if alerts::raise(env, &id, kind, subject, detail, now).await? {
            log("alert_raised", &id, kind, subject);
        }
    }
    tell(env, settings, now).await
}

async fn findings(
    env: &Env,
    settings: &Settings,
    now: Millis,
) -> Result<Vec<Finding>, LedgerError> {
    let mut found = refusals(env, settings.alert_refusal_rate, now).await?;
    let open = alerts::open_seconds(env, now.minus(OPEN_SPAN)).await?;
    if open.calls > 0 {
        let detail = json!({"calls": open.calls, "seconds": open.seconds});
        found.push(Finding::new("failed_open", "accounts", detail));
    }
    for (queue, dead) in alerts::dead_since(env, now.minus(DEAD_SPAN)).await? {
        found.push(Finding::new("dead_letter", &queue, json!({"count": dead})));
    }
    let lag = metrics::lag(env, now).await?;
    if lag > LAG_BOUND.0 {
        found.push(Finding::new("ledger_lag", "ledger", json!({"lag_ms": lag})));
    }
    for (kind, users) in reconcile::since(env, now.minus(DRIFT_SPAN)).await? {
        found.push(Finding::new("drift", &kind, json!({"users": users})));
    }
    Ok(found)
}

async fn refusals(env: &Env, bound: f64, now: Millis) -> Result<Vec<Finding>, LedgerError> {
    let current = alerts::take_snapshot(env, now).await?;
    let snapshots = alerts::snapshots(env, now.minus(SNAPSHOTS)).await?;
    let finding = |plan: &String| {
        let hour = rules::refused_for_an_hour(&snapshots, plan, bound, now)?;
        Some(Finding::new("refusal_rate", plan, hour.detail(bound)))
    };
    Ok(current.plans.keys().filter_map(finding).collect())
}

/// Tells the webhook of every alert whose state it has not heard of. What it does not take it is told at
/// the next tick.
async fn tell(env: &Env, settings: &Settings, now: Millis) -> Result<(), LedgerError> {
    let (Some(url), Some(secret)) = (&settings.alert_webhook_url, &settings.webhook_secret) else {
        return Ok(());
    };
    for alert in alerts::untold(env, MOST_TOLD).await? {
        let (state, at) = match alert.closed_at_ms {
            Some(at) => ("cleared", at),
            None => ("raised", alert.opened_at_ms),
        };
        let notice = Notice::alert(&alert.id, state, Millis(at), shown(&alert));
        match notify::post(url, &notice, secret, now).await {
            Ok(Told::Yes | Told::Gone) => alerts::told(env, &alert).await?,
            Ok(Told::No(..)) | Err(_) => break,
        }
    }
    Ok(())
}

fn shown(alert: &AlertRow) -> Value {
    json!({
        "id": alert.id,
        "kind": alert.kind,
        "subject": alert.subject,
        "opened_at": rfc3339(Millis(alert.opened_at_ms)),
        "closed_at": alert.closed_at_ms.map(|at| rfc3339(Millis(at))),
        "detail": serde_json::from_str::<Value>(&alert.detail).unwrap_or_default(),
    })
}

fn log(event: &str, id: &str, kind: &str, subject: &str) {
    worker::console_warn!(
        "{}",
        json!({"event": event, "id": id, "kind": kind, "subject": subject})
    );
}
