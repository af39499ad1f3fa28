//! `GET /admin/audit`: who changed what, before and after, the newest first.

use futures::FutureExt;
use serde_json::json;

use super::Route;
use super::visit::{Visit, failed};
use crate::http::Reply;
use crate::http::router::Handled;
use crate::ledger::audit;

/// The routes of the audit.
pub const ROUTES: &[Route] = &[Route::new("GET", "/admin/audit", |visit| {
    list(visit).boxed_local()
})];

async fn list(visit: Visit) -> Handled {
    let page = visit.page()?;
    let rows = audit::page(&visit.call.env, &page).await.map_err(failed)?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |row| (row.id, ""), |row| json!(row)),
    ))
}
