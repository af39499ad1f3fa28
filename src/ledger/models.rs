//! `models`.

use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{D1PreparedStatement, Env};

use super::audit::{self, Entry};
use super::db::Bind;
use super::{Db, LedgerError};
use crate::http::page::Page;

/// Where one model's calls go.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ModelRow {
    /// Its name here.
    pub model: String,
    /// What kind of provider serves it.
    pub upstream: UpstreamKind,
    /// The provider's address.
    pub base_url: Option<String>,
    /// Name of the Worker secret that holds the provider's key.
    pub secret_name: Option<String>,
    /// What the provider calls it.
    pub upstream_model: Option<String>,
    /// Other names callers may use.
    pub aliases: Vec<String>,
    /// Grows with every change.
    pub version: u64,
    /// When it was last changed, RFC 3339.
    pub updated_at: String,
}

/// The columns of [`Row`].
const SELECT: &str = "SELECT model, upstream, base_url, secret_name, upstream_model, aliases, \
                      version, updated_at FROM models";
/// The one model, at the version it was read at, as the condition of an audit entry.
const AUDITED: &str = "SELECT 1 FROM models WHERE model = ?7 AND version = ?8";

/// A kind of provider.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamKind {
    /// Speaks OpenAI's API.
    #[serde(rename = "openai")]
    OpenAi,
    /// Speaks Anthropic's API.
    Anthropic,
    /// The `AI` binding.
    WorkersAi,
    /// The built-in mock model.
    Mock,
}

impl UpstreamKind {
    /// The word for it in JSON and in the ledger.
    const fn word(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::WorkersAi => "workers-ai",
            Self::Mock => "mock",
        }
    }
}

#[derive(Deserialize)]
struct Row {
    model: String,
    upstream: UpstreamKind,
    base_url: Option<String>,
    secret_name: Option<String>,
    upstream_model: Option<String>,
    aliases: String,
    version: u64,
    updated_at: String,
}

impl ModelRow {
    fn at_version(&self) -> [Bind<'_>; 2] {
        [(&self.model).into(), self.version.into()]
    }

    /// A statement with the row as `?1` to `?8`.
    fn write(
        &self,
        db: &Db,
        sql: &str,
        entry: &Entry<'_>,
    ) -> Result<D1PreparedStatement, LedgerError> {
        let aliases = json!(self.aliases).to_string();
        let binds = [
            (&self.model).into(),
            self.version.into(),
            self.upstream.word().into(),
            self.base_url.as_deref().into(),
            self.secret_name.as_deref().into(),
            self.upstream_model.as_deref().into(),
            (&aliases).into(),
            entry.at.into(),
        ];
        db.statement(sql, &binds)
    }

    /// Whether a caller may mean this model by `name`. Case counts.
    pub fn is_called(&self, name: &str) -> bool {
        self.model == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// Every model, by name.
pub async fn all(env: &Env) -> Result<Vec<ModelRow>, LedgerError> {
    let sql = format!("{SELECT} ORDER BY model");
    let rows = Db::of(env)?.all::<Row>(&sql, &[]).await?;
    rows.into_iter().map(Row::model).collect()
}

/// One model by its own name.
pub async fn one(env: &Env, model: &str) -> Result<Option<ModelRow>, LedgerError> {
    let sql = format!("{SELECT} WHERE model = ?1");
    let row = Db::of(env)?.first::<Row>(&sql, &[model.into()]).await?;
    row.map(Row::model).transpose()
}

/// The models by name.
pub async fn page(env: &Env, page: &Page) -> Result<Vec<ModelRow>, LedgerError> {
    let sql = format!("{SELECT} WHERE ?1 IS NULL OR model > ?1 ORDER BY model LIMIT ?2");
    let binds = [page.after_id().into(), page.fetch().into()];
    let rows = Db::of(env)?.all::<Row>(&sql, &binds).await?;
    rows.into_iter().map(Row::model).collect()
}

/// Another model that already goes by one of this one's names.
pub async fn namesake(env: &Env, row: &ModelRow) -> Result<Option<String>, LedgerError> {
    #[derive(Deserialize)]
    struct Found {
        model: String,
    }
    let sql = "SELECT model FROM models WHERE model <> ?1 AND (\
                 model IN (SELECT value FROM json_each(?2)) OR EXISTS (\
                   SELECT 1 FROM json_each(models.aliases) AS theirs \
                   WHERE theirs.value IN (SELECT value FROM json_each(?2)))) LIMIT 1";
    let names: Vec<_> = row.aliases.iter().chain([&row.model]).collect();
    let names = json!(names).to_string();
    let found = Db::of(env)?
        .first::<Found>(sql, &[(&row.model).into(), (&names).into()])
        .await?;
    Ok(found.map(|found| found.model))
}

/// Writes a new model; a [`LedgerError::Constraint`] says that it is there meanwhile.
pub async fn create(env: &Env, row: &ModelRow, entry: &Entry<'_>) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    let sql = "INSERT INTO models (model, upstream, base_url, secret_name, upstream_model, \
                 aliases, updated_at) VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8)";
    let insertion = row.write(&db, sql, entry)?;
    db.change(audit::always(&db, entry)?, insertion)
        .await
        .map(|_| ())
}

/// Writes a changed model; `false` if it is no longer at its row's version.
pub async fn update(env: &Env, row: &ModelRow, entry: &Entry<'_>) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let sql = "UPDATE models SET upstream = ?3, base_url = ?4, secret_name = ?5, \
                 upstream_model = ?6, aliases = ?7, updated_at = ?8, version = version + 1 \
               WHERE model = ?1 AND version = ?2";
    let audited = audit::when(&db, entry, AUDITED, &row.at_version())?;
    db.change(audited, row.write(&db, sql, entry)?).await
}

/// Deletes a model; `false` if it is no longer at its row's version.
pub async fn delete(env: &Env, row: &ModelRow, entry: &Entry<'_>) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let sql = "DELETE FROM models WHERE model = ?1 AND version = ?2";
    let audited = audit::when(&db, entry, AUDITED, &row.at_version())?;
    db.change(audited, db.statement(sql, &row.at_version())?)
        .await
}

impl Row {
    fn model(self) -> Result<ModelRow, LedgerError> {
        let aliases = serde_json::from_str(&self.aliases)
            .map_err(|e| LedgerError::Broken(format!("models.aliases: {e}")))?;
        Ok(ModelRow {
            model: self.model,
            upstream: self.upstream,
            base_url: self.base_url,
            secret_name: self.secret_name,
            upstream_model: self.upstream_model,
            aliases,
            version: self.version,
            updated_at: self.updated_at,
        })
    }
}
