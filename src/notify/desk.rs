//! The caller's inbox: `/api/notifications`.

use serde_json::{Value, json};

use crate::gateway::Session;
use crate::http::limit_headers::rfc3339;
use crate::http::page::Page;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::notifications::{self, NotificationRow};
use crate::limits::Millis;

/// `GET /api/notifications`, newest first.
pub async fn list(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = list_body(&mut session).await;
    Ok(session.close(outcome))
}

async fn list_body(session: &mut Session) -> Handled {
    let url = session.call.request.url()?;
    let page = Page::of(&url)?;
    session.view().await?;
    let rows = notifications::list(&session.call.env, &session.caller.user_id, &page).await;
    let rows = rows.map_err(|_| out())?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |row| (row.created_at_ms, &row.notification_id), shown),
    ))
}

/// `POST /api/notifications/{id}/read`. Reading twice is reading once.
pub async fn read(call: Call, id: &str) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = read_body(&mut session, id).await;
    Ok(session.close(outcome))
}

async fn read_body(session: &mut Session, id: &str) -> Handled {
    session.view().await?;
    let (env, user) = (&session.call.env, &session.caller.user_id);
    let row = notifications::read(env, user, id, session.call.now)
        .await
        .map_err(|_| out())?;
    let row = row.ok_or_else(|| ApiError::not_found("notification"))?;
    Ok(Reply::json(200, &shown(&row)))
}

fn shown(row: &NotificationRow) -> Value {
    let notice = row.notice();
    json!({
        "id": notice.id,
        "object": "notification",
        "type": notice.kind,
        "created_at": rfc3339(notice.at),
        "read_at": row.read_at_ms.map(|at| rfc3339(Millis(at))),
        "message": notice.sentence(),
        "data": notice.data,
    })
}

const fn out() -> ApiError {
    ApiError::Unavailable("notifications")
}
