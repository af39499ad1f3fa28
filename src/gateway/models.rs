//! Model names: resolved once, so that what was checked is what is sent (design rule 11).

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};
use worker::Env;

use super::catalog;
use super::mock;
use super::session::Session;
use super::upstream::{self, Upstream};
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::LedgerError;
use crate::ledger::{self, models::ModelRow};
use crate::limits::{Millis, ModelPattern, allows_model};
use crate::plans;
use crate::remembered::Remembered;
use crate::remembered::table::{self, Memory, Table};
use crate::settings::Settings;

/// The endpoint name of the model list.
const ENDPOINT: &str = "models";

/// Where a model's calls go.
#[derive(Clone, Debug)]
pub struct Target {
    /// The model's own name, aliases resolved: this one is checked against the plan.
    pub model: String,
    /// What the provider calls it.
    pub upstream_model: String,
    /// The provider.
    pub upstream: Upstream,
}

type Rows = Vec<ModelRow>;

thread_local! {
    static CACHE: RefCell<Remembered<Rows>> = const { RefCell::new(Remembered::new()) };
}

struct InLedger;

impl Table for InLedger {
    type Rows = Rows;
    type Content = Rows;
    const COPY: &'static str = "models";

    fn memory() -> Memory<Rows> {
        &CACHE
    }

    async fn rows(env: &Env) -> Result<Rows, LedgerError> {
        ledger::models::all(env).await
    }

    fn content(rows: Rows) -> Rows {
        rows
    }
}

/// The one target behind a name.
pub async fn resolve(call: &Call, name: &str) -> Result<Target, ApiError> {
    find(&call.env, &call.settings, call.now, name).await
}

/// The one target behind a name, for work that no call waits for.
pub async fn find(
    env: &Env,
    settings: &Settings,
    now: Millis,
    name: &str,
) -> Result<Target, ApiError> {
    let rows = rows(env, now).await?;
    match rows.iter().find(|row| row.is_called(name)) {
        Some(row) => Ok(Target {
            model: row.model.clone(),
            upstream_model: row
                .upstream_model
                .clone()
                .unwrap_or_else(|| row.model.clone()),
            upstream: upstream::of_row(env, settings, row)?,
        }),
        None => Ok(Target {
            model: name.to_owned(),
            upstream_model: name.to_owned(),
            upstream: upstream::default(settings),
        }),
    }
}

/// The model of a simple query that names none: the first that the caller's plan allows and whose provider can be asked.
/// `None`: there is none that the gateway knows of.
pub async fn default_model(session: &Session) -> Result<Option<String>, ApiError> {
    let call = &session.call;
    let allowed = allowed_by_plan(session).await;
    let rows = rows(&call.env, call.now).await?;
    let can_be_asked = |name: &String| match rows.iter().find(|row| row.model == *name) {
        Some(row) => upstream::of_row(&call.env, &call.settings, row).is_ok(),
        None => true,
    };
    let named = named(call, &rows, allowed.as_deref());
    if let Some(first) = named.into_iter().find(can_be_asked) {
        return Ok(Some(first));
    }
    let others = catalog::names(call).await;
    Ok(others
        .iter()
        .find(|name| allows_model(allowed.as_deref(), Some(name)))
        .cloned())
}

/// As far as it is known without the account, which has the last word: users may have overrides.
async fn allowed_by_plan(session: &Session) -> Option<Vec<ModelPattern>> {
    let id = session.caller.plan_hint.as_ref()?;
    let plan = plans::cache::plan(&session.call.env, id, session.call.now).await;
    plan.ok()??.allowed_models.clone()
}

/// `GET /v1/models`.
pub async fn list(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = usable(&mut session).await.map(|models| {
        let data: Vec<_> = models.iter().map(|m| object(m)).collect();
        Reply::json(
            200,
            &json!({
                "object": "list",
                "data": data,
                "has_more": false,
                "first_id": models.first(),
                "last_id": models.last(),
            }),
        )
    });
    Ok(session.close(outcome))
}

/// `GET /v1/models/{id}`.
pub async fn one(call: Call, id: &str) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = look_up(&mut session, id).await;
    Ok(session.close(outcome))
}

/// An alias is told by the name of its model.
async fn look_up(session: &mut Session, id: &str) -> Handled {
    let models = usable(session).await?;
    let rows = rows(&session.call.env, session.call.now).await?;
    let name = rows.iter().find(|row| row.is_called(id));
    let name = name.map_or(id, |row| &row.model);
    let found = models.iter().find(|model| *model == name);
    let model = found.ok_or_else(|| ApiError::NotFound {
        message: "There is no such model, or your plan does not allow it.".to_owned(),
        code: "model_not_found",
    })?;
    Ok(Reply::json(200, &object(model)))
}

/// Makes this isolate read the rows again at the next call.
pub fn forget() {
    table::forget::<InLedger>();
}

async fn usable(session: &mut Session) -> Result<Vec<String>, ApiError> {
    session.arrive(Some(ENDPOINT)).await?;
    let allowed = session
        .standing
        .as_ref()
        .and_then(|s| s.allowed_models.clone());
    known(&session.call, allowed.as_deref()).await
}

/// Every model there is a name for, as far as the plan allows it.
async fn known(call: &Call, allowed: Option<&[ModelPattern]>) -> Result<Vec<String>, ApiError> {
    let rows = rows(&call.env, call.now).await?;
    let mut names = named(call, &rows, allowed);
    let others = catalog::names(call).await;
    names.extend(
        others
            .iter()
            .filter(|name| allows_model(allowed, Some(name)))
            .cloned(),
    );
    names.sort();
    names.dedup();
    Ok(names)
}

/// The models that rows, the plan and the mock name, rows first.
fn named(call: &Call, rows: &[ModelRow], allowed: Option<&[ModelPattern]>) -> Vec<String> {
    let mut names: Vec<String> = rows.iter().map(|row| row.model.clone()).collect();
    let exact = allowed
        .unwrap_or_default()
        .iter()
        .filter(|pattern| !pattern.0.ends_with('*'));
    names.extend(exact.map(|pattern| pattern.0.clone()));
    if call.settings.upstream_base_url.is_none() {
        names.extend(mock::MODELS.map(str::to_owned));
    }
    names.retain(|name| allows_model(allowed, Some(name)));
    names
}

/// A body that both SDK families read.
fn object(model: &str) -> Value {
    json!({
        "id": model,
        "object": "model",
        "created": 1_767_225_600,
        "owned_by": "sluice",
        "type": "model",
        "display_name": model,
        "created_at": "2026-01-01T00:00:00Z",
    })
}

/// The rows, seconds old; while the ledger is out, the last known ones or the copy in KV. An isolate that
/// has neither can't tell an alias from a name and says so.
async fn rows(env: &Env, now: Millis) -> Result<Rc<Rows>, ApiError> {
    let rows = table::current::<InLedger>(env, now).await;
    rows.map_err(|_| ApiError::Unavailable("models"))
}
