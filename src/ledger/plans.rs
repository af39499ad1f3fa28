//! `plans`.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use worker::Env;

use super::audit::{self, Entry};
use super::db::Bind;
use super::{Db, LedgerError};
use crate::http::page::Page;
use crate::plans::Plan;

/// The columns that hold the plan itself; its JSON has fields of the same names.
const FIELDS: [&str; 17] = [
    "plan_id",
    "name",
    "daily_limit",
    "monthly_token_limit",
    "max_tokens_per_request",
    "max_tokens_mode",
    "allowed_models",
    "rate",
    "window",
    "tokens_per_minute",
    "max_concurrent",
    "endpoints",
    "reset",
    "over_quota",
    "notify_at",
    "on_outage",
    "shadow",
];
/// The one plan, at the version it was read at; in statements that stand for themselves.
const AT_VERSION: &str = "plan_id = ?1 AND version = ?2";
/// The same, as the condition of an audit entry.
const AUDITED: &str = "SELECT 1 FROM plans WHERE plan_id = ?7 AND version = ?8";

#[derive(Deserialize)]
struct Row {
    plan_id: String,
    name: String,
    daily_limit: Option<u64>,
    monthly_token_limit: Option<u64>,
    max_tokens_per_request: Option<u64>,
    max_tokens_mode: String,
    allowed_models: Option<String>,
    rate: Option<String>,
    window: String,
    tokens_per_minute: Option<u64>,
    max_concurrent: Option<u64>,
    endpoints: String,
    reset: String,
    over_quota: String,
    notify_at: String,
    on_outage: String,
    shadow: u64,
    version: u64,
    updated_at: String,
}

/// A plan with the version of its row.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPlan {
    /// The plan.
    pub plan: Plan,
    /// Grows with every change.
    pub version: u64,
    /// When it was last changed, RFC 3339.
    pub updated_at: String,
}

/// A row that an operator has made invalid by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct BadPlan {
    /// Its id.
    pub plan_id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Every plan. A row that an operator has made invalid by hand is left out and logged: its users are
/// told 503 rather than let through or charged by half a plan.
pub async fn all(env: &Env) -> Result<Vec<StoredPlan>, LedgerError> {
    let sql = format!("{} FROM plans", select());
    let rows = Db::of(env)?.all::<Row>(&sql, &[]).await?;
    Ok(rows.into_iter().filter_map(read).collect())
}

/// One plan.
pub async fn one(env: &Env, plan_id: &str) -> Result<Option<StoredPlan>, LedgerError> {
    let sql = format!("{} FROM plans WHERE plan_id = ?1", select());
    let row = Db::of(env)?.first::<Row>(&sql, &[plan_id.into()]).await?;
    Ok(row.and_then(read))
}

/// The plans by id; of a row that can't be read, its id and what is wrong with it.
pub async fn page(env: &Env, page: &Page) -> Result<Vec<Result<StoredPlan, BadPlan>>, LedgerError> {
    let sql = format!(
        "{} FROM plans WHERE ?1 IS NULL OR plan_id > ?1 ORDER BY plan_id LIMIT ?2",
        select()
    );
    let binds = [page.after_id().into(), page.fetch().into()];
    let rows = Db::of(env)?.all::<Row>(&sql, &binds).await?;
    Ok(rows.into_iter().map(Row::stored).collect())
}

/// Writes a new plan; a [`LedgerError::Constraint`] says that its id is taken.
pub async fn create(env: &Env, plan: &Plan, entry: &Entry<'_>) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    let cells = cells(plan)?;
    let mut binds: Vec<_> = cells.iter().map(Cell::bind).collect();
    binds.push(entry.at.into());
    let sql = format!(
        "INSERT INTO plans ({}, updated_at) VALUES ({}, ?18)",
        FIELDS.join(", "),
        numbered(1)
    );
    let insertion = db.statement(&sql, &binds)?;
    db.change(audit::always(&db, entry)?, insertion)
        .await
        .map(|_| ())
}

/// Writes a changed plan; `false` if it is no longer at `version`.
pub async fn update(
    env: &Env,
    plan: &Plan,
    version: u64,
    entry: &Entry<'_>,
) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let cells = cells(plan)?;
    let mut binds: Vec<Bind<'_>> = vec![(&plan.plan_id).into(), version.into(), entry.at.into()];
    binds.extend(cells.iter().map(Cell::bind));
    let sql = format!(
        "UPDATE plans SET ({}, updated_at, version) = ({}, ?3, version + 1) WHERE {AT_VERSION}",
        FIELDS.join(", "),
        numbered(4)
    );
    let audited = audit::when(
        &db,
        entry,
        AUDITED,
        &[(&plan.plan_id).into(), version.into()],
    )?;
    db.change(audited, db.statement(&sql, &binds)?).await
}

/// Deletes a plan; `false` if it is no longer at `version`. A [`LedgerError::Constraint`] says that users
/// hold it.
pub async fn delete(
    env: &Env,
    plan_id: &str,
    version: u64,
    entry: &Entry<'_>,
) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let binds = [plan_id.into(), version.into()];
    let audited = audit::when(&db, entry, AUDITED, &binds)?;
    let deletion = db.statement(&format!("DELETE FROM plans WHERE {AT_VERSION}"), &binds)?;
    db.change(audited, deletion).await
}

fn select() -> String {
    format!("SELECT {}, version, updated_at", FIELDS.join(", "))
}

/// `?from, ?from+1, …`, one for each field.
fn numbered(from: usize) -> String {
    let names: Vec<_> = (from..from + FIELDS.len())
        .map(|n| format!("?{n}"))
        .collect();
    names.join(", ")
}

/// A column's value: lists and objects are kept as JSON text.
enum Cell {
    Text(Option<String>),
    Int(Option<u64>),
}

impl Cell {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Text(None),
            Value::Bool(flag) => Self::Int(Some(u64::from(*flag))),
            Value::Number(number) => Self::Int(number.as_u64()),
            Value::String(text) => Self::Text(Some(text.clone())),
            Value::Array(_) | Value::Object(_) => Self::Text(Some(value.to_string())),
        }
    }

    fn bind(&self) -> Bind<'_> {
        match self {
            Self::Text(text) => text.as_deref().into(),
            Self::Int(number) => (*number).into(),
        }
    }
}

fn cells(plan: &Plan) -> Result<Vec<Cell>, LedgerError> {
    let value = serde_json::to_value(plan)
        .map_err(|e| LedgerError::Broken(format!("a plan that is no JSON: {e}")))?;
    let cell = |name: &&str| match (*name, value.get(*name)) {
        // The one field whose absence and `null` differ, so both are words here.
        ("window", None) => Cell::Text(Some("default".to_owned())),
        ("window", Some(window)) => Cell::Text(Some(window.to_string())),
        (_, field) => Cell::of(field.unwrap_or(&Value::Null)),
    };
    Ok(FIELDS.iter().map(cell).collect())
}

fn read(row: Row) -> Option<StoredPlan> {
    match row.stored() {
        Ok(plan) => Some(plan),
        Err(BadPlan { plan_id, reason }) => {
            let line = json!({"event": "bad_plan", "plan": plan_id, "reason": reason});
            worker::console_error!("{line}");
            None
        }
    }
}

impl Row {
    fn stored(self) -> Result<StoredPlan, BadPlan> {
        let plan_id = self.plan_id.clone();
        self.valid().map_err(|reason| BadPlan { plan_id, reason })
    }

    fn valid(self) -> Result<StoredPlan, String> {
        let mut fields = Map::new();
        fields.insert("plan_id".into(), json!(self.plan_id));
        fields.insert("name".into(), json!(self.name));
        fields.insert("daily_limit".into(), json!(self.daily_limit));
        fields.insert(
            "monthly_token_limit".into(),
            json!(self.monthly_token_limit),
        );
        fields.insert(
            "max_tokens_per_request".into(),
            json!(self.max_tokens_per_request),
        );
        fields.insert("max_tokens_mode".into(), json!(self.max_tokens_mode));
        fields.insert(
            "allowed_models".into(),
            nested(self.allowed_models.as_deref())?,
        );
        fields.insert("rate".into(), nested(self.rate.as_deref())?);
        if self.window != "default" {
            fields.insert("window".into(), nested(Some(&self.window))?);
        }
        fields.insert("tokens_per_minute".into(), json!(self.tokens_per_minute));
        fields.insert("max_concurrent".into(), json!(self.max_concurrent));
        fields.insert("endpoints".into(), nested(Some(&self.endpoints))?);
        fields.insert("reset".into(), nested(Some(&self.reset))?);
        fields.insert("over_quota".into(), nested(Some(&self.over_quota))?);
        fields.insert("notify_at".into(), nested(Some(&self.notify_at))?);
        fields.insert("on_outage".into(), json!(self.on_outage));
        fields.insert("shadow".into(), json!(self.shadow != 0));
        let plan = Plan::from_value(Value::Object(fields)).map_err(|e| e.to_string())?;
        Ok(StoredPlan {
            plan,
            version: self.version,
            updated_at: self.updated_at,
        })
    }
}

fn nested(text: Option<&str>) -> Result<Value, String> {
    text.map_or(Ok(Value::Null), |t| {
        serde_json::from_str(t).map_err(|e| e.to_string())
    })
}
