//! `api_keys`.

use serde::Deserialize;
use worker::Env;

use super::audit::{self, Entry};
use super::{Db, LedgerError};
use crate::auth::{KeyRecord, Scope};
use crate::http::page::Page;
use crate::limits::Millis;

/// A key, as the operator sees it: everything but the key itself, which is nowhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its id.
    pub key_id: String,
    /// Hex of its HMAC; no answer shows it.
    pub hash: String,
    /// Its last four digits.
    pub last4: String,
    /// Its user.
    pub user_id: String,
    /// What it is for, in the operator's words.
    pub name: Option<String>,
    /// What it may do.
    pub scope: Scope,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it ends by itself.
    pub expires_at: Option<Millis>,
    /// When it was revoked; may be yet to come.
    pub revoked_at: Option<Millis>,
}

/// The columns of [`Row`].
const SELECT: &str = "SELECT key_id, key_hash, last4, user_id, name, scope, created_at, \
                      expires_at_ms, revoked_at_ms FROM api_keys";

#[derive(Deserialize)]
struct Row {
    key_id: String,
    key_hash: String,
    last4: String,
    user_id: String,
    name: Option<String>,
    scope: String,
    created_at: String,
    expires_at_ms: Option<u64>,
    revoked_at_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Known {
    key_id: String,
    user_id: String,
    scope: String,
    plan_id: String,
    expires_at_ms: Option<u64>,
    revoked_at_ms: Option<u64>,
}

/// The key with this hash, good or not. A blocked user's names no plan: while the account store is out,
/// which alone knows of the block, the plan is what lets a call pass.
pub async fn by_hash(env: &Env, hash: &str) -> Result<Option<KeyRecord>, LedgerError> {
    let sql = "SELECT k.key_id, k.user_id, k.scope, \
                 CASE u.status WHEN 'active' THEN u.plan_id ELSE '' END AS plan_id, \
                 k.expires_at_ms, k.revoked_at_ms \
               FROM api_keys k JOIN users u USING (user_id) WHERE k.key_hash = ?1";
    let row = Db::of(env)?.first::<Known>(sql, &[hash.into()]).await?;
    Ok(row.map(|row| KeyRecord {
        key_id: row.key_id,
        user_id: row.user_id,
        scope: scope(&row.scope),
        plan_id: row.plan_id,
        expires_at_ms: row.expires_at_ms,
        revoked_at_ms: row.revoked_at_ms,
    }))
}

/// The key with this id.
pub async fn one(env: &Env, key_id: &str) -> Result<Option<Key>, LedgerError> {
    let sql = format!("{SELECT} WHERE key_id = ?1");
    let row = Db::of(env)?.first::<Row>(&sql, &[key_id.into()]).await?;
    Ok(row.map(Row::key))
}

/// A user's keys by id, revoked ones too.
pub async fn page(env: &Env, user_id: &str, page: &Page) -> Result<Vec<Key>, LedgerError> {
    let sql = format!(
        "{SELECT} WHERE user_id = ?1 AND (?2 IS NULL OR key_id > ?2) ORDER BY key_id LIMIT ?3"
    );
    let binds = [user_id.into(), page.after_id().into(), page.fetch().into()];
    let rows = Db::of(env)?.all::<Row>(&sql, &binds).await?;
    Ok(rows.into_iter().map(Row::key).collect())
}

/// A user's keys that are still good at `now`, by id.
pub async fn good(
    env: &Env,
    user_id: &str,
    now: Millis,
    page: &Page,
) -> Result<Vec<Key>, LedgerError> {
    let sql = format!(
        "{SELECT} WHERE user_id = ?1 AND (?2 IS NULL OR key_id > ?2) \
           AND (revoked_at_ms IS NULL OR revoked_at_ms > ?4) \
           AND (expires_at_ms IS NULL OR expires_at_ms > ?4) ORDER BY key_id LIMIT ?3"
    );
    let binds = [
        user_id.into(),
        page.after_id().into(),
        page.fetch().into(),
        now.0.into(),
    ];
    let rows = Db::of(env)?.all::<Row>(&sql, &binds).await?;
    Ok(rows.into_iter().map(Row::key).collect())
}

/// Hashes of all keys a user has.
pub async fn hashes(env: &Env, user_id: &str) -> Result<Vec<String>, LedgerError> {
    let sql = format!("{SELECT} WHERE user_id = ?1");
    let rows = Db::of(env)?.all::<Row>(&sql, &[user_id.into()]).await?;
    Ok(rows.into_iter().map(|row| row.key_hash).collect())
}

/// Writes a new key; a [`LedgerError::Constraint`] says that its user is gone.
pub async fn create(env: &Env, key: &Key, entry: &Entry<'_>) -> Result<(), LedgerError> {
    let db = Db::of(env)?;
    let insertion = insert(&db, key, None)?;
    db.change(audit::always(&db, entry)?, insertion)
        .await
        .map(|_| ())
}

/// Revokes a key from `at` on; `false` if it already was, by then or sooner.
pub async fn revoke(
    env: &Env,
    key_id: &str,
    at: Millis,
    entry: &Entry<'_>,
) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let audited = audit::when(
        &db,
        entry,
        "SELECT 1 FROM api_keys WHERE key_id = ?7 \
         AND (revoked_at_ms IS NULL OR revoked_at_ms > ?8)",
        &[key_id.into(), at.0.into()],
    )?;
    let sql = "UPDATE api_keys SET revoked_at_ms = ?2 \
               WHERE key_id = ?1 AND (revoked_at_ms IS NULL OR revoked_at_ms > ?2)";
    db.change(audited, db.statement(sql, &[key_id.into(), at.0.into()])?)
        .await
}

/// Puts `new` in the place of a key that ends `at`; `false` if that one was revoked meanwhile.
pub async fn rotate(
    env: &Env,
    old: &Key,
    new: &Key,
    at: Millis,
    entry: &Entry<'_>,
) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let unrevoked = "SELECT 1 FROM api_keys WHERE key_id = ?7 AND revoked_at_ms IS NULL";
    let audited = audit::when(&db, entry, unrevoked, &[(&old.key_id).into()])?;
    let sql = "UPDATE api_keys SET revoked_at_ms = ?2 \
               WHERE key_id = ?1 AND revoked_at_ms IS NULL";
    let revocation = db.statement(sql, &[(&old.key_id).into(), at.0.into()])?;
    let results = db
        .batch(vec![audited, insert(&db, new, Some(old))?, revocation])
        .await?;
    Ok(results
        .last()
        .is_some_and(|result| super::db::changes(result) > 0))
}

/// The statement that writes a key; one in the place of another only if that one is not revoked.
fn insert(
    db: &Db,
    key: &Key,
    instead_of: Option<&Key>,
) -> Result<worker::D1PreparedStatement, LedgerError> {
    let sql = "INSERT INTO api_keys \
                 (key_id, key_hash, last4, user_id, name, scope, created_at, expires_at_ms) \
               SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE ?9 IS NULL OR EXISTS \
                 (SELECT 1 FROM api_keys WHERE key_id = ?9 AND revoked_at_ms IS NULL)";
    let binds = [
        (&key.key_id).into(),
        (&key.hash).into(),
        (&key.last4).into(),
        (&key.user_id).into(),
        key.name.as_deref().into(),
        key.scope.word().into(),
        (&key.created_at).into(),
        key.expires_at.map(|at| at.0).into(),
        instead_of.map(|old| old.key_id.as_str()).into(),
    ];
    db.statement(sql, &binds)
}

/// What isn't known to be a service key may only do what a user's may.
fn scope(word: &str) -> Scope {
    if word == Scope::Service.word() {
        Scope::Service
    } else {
        Scope::User
    }
}

impl Row {
    fn key(self) -> Key {
        Key {
            key_id: self.key_id,
            hash: self.key_hash,
            last4: self.last4,
            user_id: self.user_id,
            name: self.name,
            scope: scope(&self.scope),
            created_at: self.created_at,
            expires_at: self.expires_at_ms.map(Millis),
            revoked_at: self.revoked_at_ms.map(Millis),
        }
    }
}
