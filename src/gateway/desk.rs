//! The caller's own desk: what they may still do and what they did. It spends nothing.

use serde_json::{Value, json};

use super::session::Session;
use crate::http::limit_headers::rfc3339;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::usage;
use crate::limits::PolicyView;
use crate::plans::{cache, next_above};

/// Days shown when the caller asks for no span.
const DEFAULT_DAYS: i64 = 30;

/// `GET /api/quota`: the truth, also when everything is used up.
pub async fn quota(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = quota_body(&mut session).await;
    Ok(session.close(outcome))
}

async fn quota_body(session: &mut Session) -> Handled {
    let snapshot = session.view().await?;
    let mut body = quota_json(&session.caller.user_id, &snapshot);
    let next = next_plan(&session.call, &snapshot.plan_id).await;
    if let (Some(fields), Some(next)) = (body.as_object_mut(), next) {
        fields.insert("next_plan".to_owned(), next);
    }
    Ok(Reply::json(200, &body))
}

/// What the plan one step up has more of. A quota is answered without it while the plans can't be read.
async fn next_plan(call: &Call, plan_id: &str) -> Option<Value> {
    let all = cache::all(&call.env, call.now).await.ok()?;
    let next = next_above(all.get(plan_id)?, all.values().map(AsRef::as_ref))?;
    Some(json!({
        "plan_id": next.plan_id,
        "name": next.name,
        "daily_limit": next.daily_limit,
        "monthly_token_limit": next.monthly_token_limit,
    }))
}

/// The body of a quota answer, alike for its user and for the operator.
pub fn quota_json(user_id: &str, snapshot: &crate::account::wire::Snapshot) -> Value {
    json!({
        "object": "quota",
        "user_id": user_id,
        "plan": {"plan_id": snapshot.plan_id, "name": snapshot.plan_name},
        "as_of": rfc3339(snapshot.now),
        "policies": policies_json(snapshot),
        "blocked": snapshot.blocked,
    })
}

/// Every limited policy, as the quota shows it.
pub fn policies_json(snapshot: &crate::account::wire::Snapshot) -> Vec<Value> {
    snapshot.policies.iter().map(policy).collect()
}

fn policy(view: &PolicyView) -> Value {
    json!({
        "name": view.name,
        "kind": view.kind,
        "unit": view.unit,
        "limit": view.limit,
        "used": view.used,
        "reserved": view.reserved,
        "remaining": view.remaining,
        "window_seconds": view.window.map(|w| w.seconds_ceil()),
        "resets_at": rfc3339(view.resets_at),
    })
}

/// `GET /api/usage?from=&to=`: one row a day.
pub async fn usage(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = usage_body(&mut session).await;
    Ok(session.close(outcome))
}

async fn usage_body(session: &mut Session) -> Handled {
    let (from, to) = span(&session.call)?;
    session.view().await?;
    let rows = usage::days(&session.call.env, &session.caller.user_id, &from, &to).await;
    let rows = rows.map_err(|_| ApiError::Unavailable("usage"))?;
    Ok(Reply::json(
        200,
        &json!({"data": rows, "next_cursor": null}),
    ))
}

/// The days asked for, `from` and `to` included; by default the last thirty.
pub fn span(call: &Call) -> Result<(String, String), ApiError> {
    let url = call.request.url()?;
    let asked = |name: &str| {
        let pair = url.query_pairs().find(|(key, _)| key == name);
        pair.map(|(_, value)| date(name, &value)).transpose()
    };
    let today = chrono::DateTime::from_timestamp_millis(call.now.0.cast_signed())
        .unwrap_or_default()
        .date_naive();
    // A day on either side covers every time zone.
    let to = asked("to")?.unwrap_or(today + chrono::Duration::days(1));
    let from = asked("from")?.unwrap_or(to - chrono::Duration::days(DEFAULT_DAYS));
    if from > to || to.signed_duration_since(from).num_days() > 366 {
        return Err(ApiError::invalid_field(
            "from",
            "`from` must be at most 366 days before `to`.",
        ));
    }
    Ok((from.to_string(), to.to_string()))
}

fn date(name: &str, text: &str) -> Result<chrono::NaiveDate, ApiError> {
    let day = text.get(..10).unwrap_or(text);
    day.parse().map_err(|_| {
        ApiError::invalid_field(name, format!("`{name}` must be a date such as 2026-06-22."))
    })
}
