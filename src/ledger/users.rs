//! `users`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use worker::Env;

use super::audit::{self, Entry};
use super::{Db, LedgerError};
use crate::http::page::Page;
use crate::plans::{Standing, UserStatus};

/// A user, as the operator sees and changes them.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct User {
    /// Their id.
    pub user_id: String,
    /// Their plan.
    pub plan_id: String,
    /// Where mail to them goes.
    pub email: Option<String>,
    /// Where their notifications are sent.
    pub webhook_url: Option<String>,
    /// Plan fields of their own.
    pub overrides: Map<String, Value>,
    /// Whether they may call at all.
    pub status: UserStatus,
    /// When they were created, RFC 3339.
    pub created_at: String,
    /// When their row was last changed, RFC 3339.
    pub updated_at: String,
    /// Grows with every change.
    pub version: u64,
}

/// The columns of [`Row`].
const SELECT: &str = "SELECT user_id, plan_id, status, email, webhook_url, overrides, version, \
                      created_at, updated_at FROM users";
/// The one user, at the version they were read at, as the condition of an audit entry.
const AUDITED: &str = "SELECT 1 FROM users WHERE user_id = ?7 AND version = ?8";

#[derive(Deserialize)]
struct Row {
    user_id: String,
    plan_id: String,
    status: String,
    email: Option<String>,
    webhook_url: Option<String>,
    overrides: String,
    version: u64,
    created_at: String,
    updated_at: String,
}

/// How a user stands, or `None` if there is no such user.
pub async fn standing(env: &Env, user_id: &str) -> Result<Option<Standing>, LedgerError> {
    Ok(one(env, user_id).await?.map(|user| user.standing()))
}

/// One user.
pub async fn one(env: &Env, user_id: &str) -> Result<Option<User>, LedgerError> {
    let sql = format!("{SELECT} WHERE user_id = ?1");
    let row = Db::of(env)?.first::<Row>(&sql, &[user_id.into()]).await?;
    row.map(Row::user).transpose()
}

/// The users by id: all of them, or those whose id or email begins with `prefix`, or those on a plan.
pub async fn page(
    env: &Env,
    page: &Page,
    prefix: Option<&str>,
    plan_id: Option<&str>,
) -> Result<Vec<User>, LedgerError> {
    // No character sorts after the last one, so the range holds every text with the prefix.
    let end = prefix.map(|p| format!("{p}\u{10ffff}"));
    let sql = format!(
        "{SELECT} WHERE (?1 IS NULL OR user_id > ?1) AND (?3 IS NULL \
           OR (user_id >= ?3 AND user_id < ?4) OR (email >= ?3 AND email < ?4)) \
           AND (?5 IS NULL OR plan_id = ?5) \
         ORDER BY user_id LIMIT ?2"
    );
    let binds = [
        page.after_id().into(),
        page.fetch().into(),
        prefix.into(),
        end.as_deref().into(),
        plan_id.into(),
    ];
    let rows = Db::of(env)?.all::<Row>(&sql, &binds).await?;
    rows.into_iter().map(Row::user).collect()
}

/// Makes a user on their first call; one who is there already stays as they are.
pub async fn provision(
    env: &Env,
    user_id: &str,
    plan_id: &str,
    now: &str,
) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    let sql = "INSERT INTO users (user_id, plan_id, created_at, updated_at) \
               VALUES (?1, ?2, ?3, ?3) ON CONFLICT (user_id) DO NOTHING";
    let statement = db.statement(sql, &[user_id.into(), plan_id.into(), now.into()])?;
    db.batch(vec![statement]).await.map(|_| ())
}

/// Writes a new user; a [`LedgerError::Constraint`] says that the id is taken. The version begins above
/// that of any earlier user of the same id, since every change has its audit entry: the account would
/// take it for an older one otherwise.
pub async fn create(env: &Env, user: &User, entry: &Entry<'_>) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    let sql = "INSERT INTO users (user_id, plan_id, status, email, webhook_url, overrides, \
                 created_at, updated_at, version) \
               SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, COALESCE(MAX(id), 1) FROM audit";
    let overrides = user.overrides_text();
    let binds = [
        (&user.user_id).into(),
        (&user.plan_id).into(),
        user.status.word().into(),
        user.email.as_deref().into(),
        user.webhook_url.as_deref().into(),
        (&overrides).into(),
        entry.at.into(),
    ];
    let insertion = db.statement(sql, &binds)?;
    db.change(audit::always(&db, entry)?, insertion)
        .await
        .map(|_| ())
}

/// Writes a changed user; `false` if they are no longer at the version they were read at.
pub async fn update(env: &Env, user: &User, entry: &Entry<'_>) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let sql = "UPDATE users SET plan_id = ?3, status = ?4, email = ?5, webhook_url = ?6, \
                 overrides = ?7, updated_at = ?8, version = version + 1 \
               WHERE user_id = ?1 AND version = ?2";
    let overrides = user.overrides_text();
    let binds = [
        (&user.user_id).into(),
        user.version.into(),
        (&user.plan_id).into(),
        user.status.word().into(),
        user.email.as_deref().into(),
        user.webhook_url.as_deref().into(),
        (&overrides).into(),
        entry.at.into(),
    ];
    let audited = audit::when(
        &db,
        entry,
        AUDITED,
        &[(&user.user_id).into(), user.version.into()],
    )?;
    db.change(audited, db.statement(sql, &binds)?).await
}

/// Deletes a user with their keys; `false` if they are no longer at the version they were read at. What
/// they have used stays, so that coming back under the same id is no way to a fresh quota.
pub async fn delete(env: &Env, user: &User, entry: &Entry<'_>) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let binds = [(&user.user_id).into(), user.version.into()];
    let deletion = db.statement(
        "DELETE FROM users WHERE user_id = ?1 AND version = ?2",
        &binds,
    )?;
    db.change(audit::when(&db, entry, AUDITED, &binds)?, deletion)
        .await
}

impl User {
    /// What the user's account has to know of this row.
    pub fn standing(&self) -> Standing {
        Standing {
            plan_id: self.plan_id.clone(),
            status: self.status,
            overrides: self.overrides.clone(),
            version: self.version,
        }
    }

    fn overrides_text(&self) -> String {
        Value::Object(self.overrides.clone()).to_string()
    }
}

impl Row {
    fn user(self) -> Result<User, LedgerError> {
        let overrides = serde_json::from_str(&self.overrides)
            .map_err(|e| LedgerError::Broken(format!("users.overrides: {e}")))?;
        let status = match self.status.as_str() {
            "active" => UserStatus::Active,
            _ => UserStatus::Blocked,
        };
        Ok(User {
            user_id: self.user_id,
            plan_id: self.plan_id,
            email: self.email,
            webhook_url: self.webhook_url,
            overrides,
            status,
            created_at: self.created_at,
            updated_at: self.updated_at,
            version: self.version,
        })
    }
}
