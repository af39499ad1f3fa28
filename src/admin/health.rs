//! `/healthz`: this Worker runs. `/readyz`: it could serve a call now.

use serde_json::json;

use crate::http::Reply;
use crate::http::router::Call;
use crate::plans::cache;

/// Always 200: the Worker answers.
pub fn alive() -> Reply {
    Reply::json(200, &json!({"status": "ok"}))
}

/// 200 if the settings are complete and the ledger answers, else 503 with what is missing.
pub async fn ready(call: &Call) -> Reply {
    let mut problems = call.settings.problems.clone();
    if call.settings.key_pepper.is_none() {
        problems.push("KEY_PEPPER is not set".to_owned());
    }
    if call.settings.admin_token.is_none() {
        problems.push("ADMIN_TOKEN is not set".to_owned());
    }
    if cache::all(&call.env, call.now).await.is_err() {
        problems.push("the ledger is out of reach".to_owned());
    }
    let (status, word) = if problems.is_empty() {
        (200, "ok")
    } else {
        (503, "not ready")
    };
    Reply::json(status, &json!({"status": word, "problems": problems}))
}
