//! `routes`.

use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{D1PreparedStatement, Env};

use super::audit::{self, Entry};
use super::db::Bind;
use super::{Db, LedgerError};
use crate::http::page::Page;

const COLUMNS: &str =
    "route_id, path_prefix, methods, upstream_url, endpoint, cost, timeout_ms, version, updated_at";
/// The one route, at the version it was read at, as the condition of an audit entry.
const AUDITED: &str = "SELECT 1 FROM routes WHERE route_id = ?7 AND version = ?8";

/// One protected route, as the operator writes it and the ledger keeps it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RouteRow {
    /// Its id.
    pub route_id: String,
    /// Paths that are this one or lie below it are the route's.
    pub path_prefix: String,
    /// Methods that are forwarded; `None`: all.
    pub methods: Option<Vec<String>>,
    /// The operator's service.
    pub upstream_url: String,
    /// Name of the plan's endpoint limit it counts against.
    pub endpoint: Option<String>,
    /// How much of the limits one call takes.
    pub cost: u64,
    /// Time to the service's first byte.
    pub timeout_ms: u64,
    /// Grows with every change.
    pub version: u64,
    /// When the row was last written, RFC 3339.
    pub updated_at: String,
}

#[derive(Deserialize)]
struct Row {
    route_id: String,
    path_prefix: String,
    methods: Option<String>,
    upstream_url: String,
    endpoint: Option<String>,
    cost: u64,
    timeout_ms: u64,
    version: u64,
    updated_at: String,
}

/// Every route, by path prefix. A row that can't be read is left out and logged: its paths are 404,
/// never forwarded by half a rule.
pub async fn all(env: &Env) -> Result<Vec<RouteRow>, LedgerError> {
    let sql = format!("SELECT {COLUMNS} FROM routes ORDER BY path_prefix");
    let rows = Db::of(env)?.all::<Row>(&sql, &[]).await?;
    Ok(rows.into_iter().filter_map(readable).collect())
}

/// The routes by id.
pub async fn page(env: &Env, page: &Page) -> Result<Vec<RouteRow>, LedgerError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM routes WHERE ?1 IS NULL OR route_id > ?1 ORDER BY route_id LIMIT ?2"
    );
    let binds = [page.after_id().into(), page.fetch().into()];
    let rows = Db::of(env)?.all::<Row>(&sql, &binds).await?;
    rows.into_iter().map(Row::route).collect()
}

/// The route of this id.
pub async fn get(env: &Env, route_id: &str) -> Result<Option<RouteRow>, LedgerError> {
    let sql = format!("SELECT {COLUMNS} FROM routes WHERE route_id = ?1");
    let row = Db::of(env)?.first::<Row>(&sql, &[route_id.into()]).await?;
    row.map(Row::route).transpose()
}

/// Writes a new route; a [`LedgerError::Constraint`] says that its id or prefix is taken.
pub async fn create(env: &Env, row: &RouteRow, entry: &Entry<'_>) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    let sql = "INSERT INTO routes (route_id, path_prefix, methods, upstream_url, endpoint, cost, \
                 timeout_ms, updated_at) VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let insertion = row.write(&db, sql, entry)?;
    db.change(audit::always(&db, entry)?, insertion)
        .await
        .map(|_| ())
}

/// Writes a changed route; `false` if it is no longer at its row's version. A
/// [`LedgerError::Constraint`] says that another one has the prefix.
pub async fn update(env: &Env, row: &RouteRow, entry: &Entry<'_>) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let sql = "UPDATE routes SET path_prefix = ?3, methods = ?4, upstream_url = ?5, \
                 endpoint = ?6, cost = ?7, timeout_ms = ?8, updated_at = ?9, \
                 version = version + 1 \
               WHERE route_id = ?1 AND version = ?2";
    let audited = audit::when(&db, entry, AUDITED, &row.at_version())?;
    db.change(audited, row.write(&db, sql, entry)?).await
}

/// Deletes a route; `false` if it is no longer at its row's version.
pub async fn delete(env: &Env, row: &RouteRow, entry: &Entry<'_>) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let sql = "DELETE FROM routes WHERE route_id = ?1 AND version = ?2";
    let audited = audit::when(&db, entry, AUDITED, &row.at_version())?;
    db.change(audited, db.statement(sql, &row.at_version())?)
        .await
}

impl RouteRow {
    fn at_version(&self) -> [Bind<'_>; 2] {
        [(&self.route_id).into(), self.version.into()]
    }

    /// A statement with the row as `?1` to `?9`.
    fn write(
        &self,
        db: &Db,
        sql: &str,
        entry: &Entry<'_>,
    ) -> Result<D1PreparedStatement, LedgerError> {
        let methods = self
            .methods
            .as_ref()
            .map(|methods| json!(methods).to_string());
        let binds = [
            (&self.route_id).into(),
            self.version.into(),
            (&self.path_prefix).into(),
            methods.as_deref().into(),
            (&self.upstream_url).into(),
            self.endpoint.as_deref().into(),
            self.cost.into(),
            self.timeout_ms.into(),
            entry.at.into(),
        ];
        db.statement(sql, &binds)
    }
}

fn readable(row: Row) -> Option<RouteRow> {
    let id = row.route_id.clone();
    match row.route() {
        Ok(route) => Some(route),
        Err(error) => {
            let line = json!({"event": "bad_route", "route": id, "reason": error.to_string()});
            worker::console_error!("{line}");
            None
        }
    }
}

impl Row {
    fn route(self) -> Result<RouteRow, LedgerError> {
        let methods = self
            .methods
            .as_deref()
            .map(serde_json::from_str)
            .transpose();
        let methods = methods.map_err(|e| LedgerError::Broken(format!("routes.methods: {e}")))?;
        Ok(RouteRow {
            route_id: self.route_id,
            path_prefix: self.path_prefix,
            methods,
            upstream_url: self.upstream_url,
            endpoint: self.endpoint,
            cost: self.cost,
            timeout_ms: self.timeout_ms,
            version: self.version,
            updated_at: self.updated_at,
        })
    }
}
