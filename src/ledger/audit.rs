//! `audit`: who changed what. An entry is written in the same transaction as the change it tells of.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use worker::{D1PreparedStatement, Env};

use super::db::Bind;
use super::{Db, LedgerError};
use crate::http::page::Page;

/// Who writes at the operator's desk.
const ACTOR: &str = "admin";

/// One change.
pub struct Entry<'a> {
    /// When, RFC 3339.
    pub at: &'a str,
    /// What was done, such as `plan.update`.
    pub action: &'static str,
    /// To which plan, user, key, model or route.
    pub target: &'a str,
    /// What it was before; `None`: it was not there.
    pub before: Option<Value>,
    /// What it is now; `None`: it is gone.
    pub after: Option<Value>,
}

/// One row, as the operator reads it.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct Row {
    /// Grows with every entry.
    #[serde(serialize_with = "as_text")]
    pub id: u64,
    at: String,
    actor: String,
    action: String,
    target: String,
    before: Value,
    after: Value,
}

#[derive(Deserialize)]
struct Stored {
    id: u64,
    at: String,
    actor: String,
    action: String,
    target: String,
    before: Option<String>,
    after: Option<String>,
}

/// The statement that writes an entry.
pub fn always(db: &Db, entry: &Entry<'_>) -> Result<D1PreparedStatement, LedgerError> {
    when(db, entry, "SELECT 1", &[])
}

/// The statement that writes an entry if the query `condition` finds a row; its parameters are `?7` and
/// on. It stands before the change in the transaction, so it has to ask for what the change asks for.
pub fn when(
    db: &Db,
    entry: &Entry<'_>,
    condition: &str,
    binds: &[Bind<'_>],
) -> Result<D1PreparedStatement, LedgerError> {
    let sql = format!(
        "INSERT INTO audit (at, actor, action, target, before, after) \
         SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS ({condition})"
    );
    let (before, after) = (text(entry.before.as_ref()), text(entry.after.as_ref()));
    let mut all: Vec<Bind<'_>> = vec![
        entry.at.into(),
        ACTOR.into(),
        entry.action.into(),
        entry.target.into(),
        before.as_deref().into(),
        after.as_deref().into(),
    ];
    all.extend(binds.iter().copied());
    db.statement(&sql, &all)
}

/// Writes an entry of its own, for what is not changed in the ledger.
pub async fn write(env: &Env, entry: &Entry<'_>) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    db.batch(vec![always(&db, entry)?]).await.map(|_| ())
}

/// The newest entries first.
pub async fn page(env: &Env, page: &Page) -> Result<Vec<Row>, LedgerError> {
    let sql = "SELECT id, at, actor, action, target, before, after FROM audit \
               WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2";
    let after = page.after.as_ref().map(|(id, _)| *id);
    let rows = Db::of(env)?
        .all::<Stored>(sql, &[after.into(), page.fetch().into()])
        .await?;
    Ok(rows.into_iter().map(Stored::row).collect())
}

/// Ids are opaque strings on the outside.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn as_text<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn text(value: Option<&Value>) -> Option<String> {
    value.map(ToString::to_string)
}

impl Stored {
    /// History is shown as it was written: what can't be read as JSON is shown as text.
    fn row(self) -> Row {
        let json = |text: Option<String>| {
            let value = text.map(|t| serde_json::from_str(&t).unwrap_or(Value::String(t)));
            value.unwrap_or_default()
        };
        Row {
            id: self.id,
            at: self.at,
            actor: self.actor,
            action: self.action,
            target: self.target,
            before: json(self.before),
            after: json(self.after),
        }
    }
}
