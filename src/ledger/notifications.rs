//! `notifications` and `deliveries`.

use serde::Deserialize;
use serde_json::json;
use worker::Env;

use super::{Db, LedgerError};
use crate::http::limit_headers::rfc3339;
use crate::http::page::Page;
use crate::limits::Millis;
use crate::notify::{Channel, Notice};

/// Most rows one statement deletes.
const CHUNK: u64 = 5_000;

/// A notification as its user sees it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct NotificationRow {
    /// Its id.
    pub notification_id: String,
    /// Who is told.
    pub user_id: String,
    /// What kind of news it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The news, JSON.
    pub data: String,
    /// When it happened, Unix milliseconds.
    pub created_at_ms: u64,
    /// When its user read it.
    pub read_at_ms: Option<u64>,
}

/// A notification on its way by one channel.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Parcel {
    /// Its id.
    pub notification_id: String,
    /// Who is told.
    pub user_id: String,
    /// What kind of news it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The news, JSON.
    pub data: String,
    /// When it happened.
    pub created_at_ms: u64,
    /// pending, delivered or failed.
    pub status: String,
    /// Attempts so far.
    pub attempts: u64,
    /// When the next is due.
    pub next_attempt_at_ms: u64,
    /// The user's webhook, as it is now.
    pub webhook_url: Option<String>,
    /// Their address, as it is now.
    pub email: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome<'a> {
    /// pending, delivered or failed.
    pub status: &'static str,
    /// What the receiver said.
    pub answer: Option<&'a str>,
    /// When the next attempt is due.
    pub next: Option<Millis>,
}

/// A delivery whose message may be lost.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Overdue {
    /// The notification.
    pub notification_id: String,
    /// The way.
    pub channel: Channel,
    /// Attempts so far.
    pub attempts: u64,
}

const ROW: &str = "notification_id, user_id, type, data, created_at_ms, read_at_ms";

const INSERT: &str = "INSERT INTO notifications (notification_id, user_id, type, data, created_at_ms) \
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (notification_id) DO NOTHING";

/// Writes a notification down and opens its deliveries, by the channels its user has. Once, however
/// often it is heard of.
pub async fn insert(env: &Env, notice: &Notice, email: bool) -> Result<(), LedgerError> {
    let db = Db::background(env)?;
    let mut statements = vec![insertion(&db, notice)?];
    let channels = [("webhook", "webhook_url", true), ("email", "email", email)];
    for (channel, column, _) in channels.into_iter().filter(|(_, _, on)| *on) {
        let sql = format!(
            "INSERT INTO deliveries (notification_id, channel, next_attempt_at_ms) \
             SELECT ?1, ?2, 0 FROM users WHERE user_id = ?3 AND {column} IS NOT NULL \
             ON CONFLICT (notification_id, channel) DO NOTHING"
        );
        let binds = [(&notice.id).into(), channel.into(), (&notice.user).into()];
        statements.push(db.statement(&sql, &binds)?);
    }
    db.batch(statements).await.map(|_| ())
}

fn insertion(db: &Db, notice: &Notice) -> Result<worker::D1PreparedStatement, LedgerError> {
    let data = serde_json::Value::Object(notice.data.clone()).to_string();
    let binds = [
        (&notice.id).into(),
        (&notice.user).into(),
        (&notice.kind).into(),
        (&data).into(),
        notice.at.0.into(),
    ];
    db.statement(INSERT, &binds)
}

/// A user's notifications, newest first.
pub async fn list(
    env: &Env,
    user_id: &str,
    page: &Page,
) -> Result<Vec<NotificationRow>, LedgerError> {
    let sql = format!(
        "SELECT {ROW} FROM notifications WHERE user_id = ?1 \
           AND (?2 IS NULL OR (created_at_ms, notification_id) < (?2, ?3)) \
         ORDER BY created_at_ms DESC, notification_id DESC LIMIT ?4"
    );
    let after = page.after.as_ref();
    let binds = [
        user_id.into(),
        after.map(|(at, _)| *at).into(),
        after.map(|(_, id)| id.as_str()).into(),
        page.fetch().into(),
    ];
    Db::of(env)?.all(&sql, &binds).await
}

/// Notes that a user has read a notification; `None` if it is not theirs.
pub async fn read(
    env: &Env,
    user_id: &str,
    id: &str,
    now: Millis,
) -> Result<Option<NotificationRow>, LedgerError> {
    let sql = format!(
        "UPDATE notifications SET read_at_ms = COALESCE(read_at_ms, ?3) \
         WHERE notification_id = ?1 AND user_id = ?2 RETURNING {ROW}"
    );
    Db::of(env)?
        .first(&sql, &[id.into(), user_id.into(), now.0.into()])
        .await
}

/// A notification on its way, with where its user can be reached now.
pub async fn parcel(env: &Env, id: &str, channel: &str) -> Result<Option<Parcel>, LedgerError> {
    let sql = "SELECT n.notification_id, n.user_id, n.type, n.data, n.created_at_ms, d.status, \
                 d.attempts, d.next_attempt_at_ms, u.webhook_url, u.email \
               FROM deliveries d JOIN notifications n USING (notification_id) \
                 JOIN users u ON u.user_id = n.user_id \
               WHERE d.notification_id = ?1 AND d.channel = ?2";
    Db::background(env)?
        .first(sql, &[id.into(), channel.into()])
        .await
}

/// Takes the attempt after `attempts` others, until `until`; `false` if somebody else has it.
pub async fn begin(
    env: &Env,
    id: &str,
    channel: &str,
    attempts: u64,
    until: Millis,
    now: Millis,
) -> Result<bool, LedgerError> {
    let sql = "UPDATE deliveries SET next_attempt_at_ms = ?4 \
               WHERE notification_id = ?1 AND channel = ?2 AND attempts = ?3 AND status = 'pending' \
                 AND next_attempt_at_ms <= ?5";
    let binds = [
        id.into(),
        channel.into(),
        attempts.into(),
        until.0.into(),
        now.0.into(),
    ];
    Ok(Db::background(env)?.run(sql, &binds).await? > 0)
}

/// Writes down how the attempt after `attempts` others ended; the first word on it counts.
pub async fn record(
    env: &Env,
    id: &str,
    channel: &str,
    attempts: u64,
    outcome: &Outcome<'_>,
) -> Result<(), LedgerError> {
    let sql = "UPDATE deliveries SET status = ?4, last_answer = ?5, attempts = attempts + 1, \
                 next_attempt_at_ms = COALESCE(?6, next_attempt_at_ms) \
               WHERE notification_id = ?1 AND channel = ?2 AND attempts = ?3 AND status = 'pending'";
    let binds = [
        id.into(),
        channel.into(),
        attempts.into(),
        outcome.status.into(),
        outcome.answer.into(),
        outcome.next.map(|at| at.0).into(),
    ];
    Db::background(env)?.run(sql, &binds).await.map(|_| ())
}

/// Takes a webhook that is gone off its user, writes that into their inbox and into the audit.
pub async fn disable_webhook(env: &Env, url: &str, news: &Notice) -> Result<(), LedgerError> {
    let db = Db::background(env)?;
    let at = rfc3339(news.at);
    let before = json!({"webhook_url": url}).to_string();
    let after = json!({"webhook_url": null}).to_string();
    let audit = "INSERT INTO audit (at, actor, action, target, before, after) \
                 SELECT ?3, 'webhook', 'user.update', ?1, ?4, ?5 FROM users \
                 WHERE user_id = ?1 AND webhook_url = ?2";
    let update = "UPDATE users SET webhook_url = NULL, version = version + 1, updated_at = ?3 \
                  WHERE user_id = ?1 AND webhook_url = ?2";
    let user = &news.user;
    let audit_binds = [
        user.into(),
        url.into(),
        (&at).into(),
        (&before).into(),
        (&after).into(),
    ];
    let statements = vec![
        db.statement(audit, &audit_binds)?,
        db.statement(update, &[user.into(), url.into(), (&at).into()])?,
        insertion(&db, news)?,
    ];
    db.batch(statements).await.map(|_| ())
}

/// Deliveries that should have been tried before `before`: their message may be lost.
pub async fn overdue(env: &Env, before: Millis, limit: u64) -> Result<Vec<Overdue>, LedgerError> {
    // A first attempt is due at 0; it counts from when its notification came.
    let sql = "SELECT d.notification_id, d.channel, d.attempts FROM deliveries d \
                 JOIN notifications n USING (notification_id) \
               WHERE d.status = 'pending' AND d.next_attempt_at_ms < ?1 AND n.created_at_ms < ?1 \
               LIMIT ?2";
    Db::background(env)?
        .all(sql, &[before.0.into(), limit.into()])
        .await
}

/// Deletes notifications made before `before`, a bounded number; gives how many.
pub async fn delete_before(env: &Env, before: Millis) -> Result<usize, LedgerError> {
    let sql = "DELETE FROM notifications WHERE notification_id IN \
                 (SELECT notification_id FROM notifications WHERE created_at_ms < ?1 LIMIT ?2)";
    Db::background(env)?
        .run(sql, &[before.0.into(), CHUNK.into()])
        .await
}

impl NotificationRow {
    /// The notice it was made from.
    pub fn notice(&self) -> Notice {
        notice(
            &self.notification_id,
            &self.user_id,
            &self.kind,
            self.created_at_ms,
            &self.data,
        )
    }
}

impl Parcel {
    /// The notice it was made from.
    pub fn notice(&self) -> Notice {
        notice(
            &self.notification_id,
            &self.user_id,
            &self.kind,
            self.created_at_ms,
            &self.data,
        )
    }
}

fn notice(id: &str, user: &str, kind: &str, at: u64, data: &str) -> Notice {
    Notice {
        id: id.to_owned(),
        user: user.to_owned(),
        kind: kind.to_owned(),
        at: Millis(at),
        data: serde_json::from_str(data).unwrap_or_default(),
    }
}
