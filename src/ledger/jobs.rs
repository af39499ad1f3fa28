//! `jobs`. Every change of a job's state is one conditional write, so that of two consumers only one
//! makes it, and of two deliveries of a message only the first.

use serde::Deserialize;
use serde_json::{Value, json};
use worker::Env;

use super::audit::{self, Entry};
use super::db::{Bind, changes};
use super::{Db, LedgerError};
use crate::http::page::Page;
use crate::limits::Millis;

/// Most rows one statement deletes.
const CHUNK: u64 = 1_000;

/// Where a job is on its way.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// It waits.
    Queued,
    /// A consumer has it.
    Running,
    /// Its result is there.
    Succeeded,
    /// It can't be done; its error says why.
    Failed,
    /// Its user took it back.
    Cancelled,
    /// Its time ran out before it could be done.
    Expired,
}

impl JobStatus {
    /// The word for it, here and in answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// The status of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        use JobStatus::{Cancelled, Expired, Failed, Queued, Running, Succeeded};
        [Queued, Running, Succeeded, Failed, Cancelled, Expired]
            .into_iter()
            .find(|status| status.word() == word)
    }
}

/// A job that is about to wait.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// Its id, which is also what it is charged under.
    pub job_id: String,
    /// Whose it is.
    pub user_id: String,
    /// The API key that was shown.
    pub key_id: Option<String>,
    /// A plan named by the credential's issuer.
    pub plan_claim: Option<String>,
    /// Path of the API.
    pub path: String,
    /// Name by which a plan limits that API.
    pub endpoint: String,
    /// The caller's headers that go up to a provider.
    pub headers: Vec<(String, String)>,
    /// The body, checked.
    pub body: String,
    /// When it came.
    pub created_at: Millis,
    /// Before when it is not tried.
    pub not_before: Millis,
    /// From when on it is no longer tried.
    pub expires_at: Millis,
}

/// A job as its user and the operator see it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct JobRow {
    /// Its id.
    pub job_id: String,
    /// Whose it is.
    pub user_id: String,
    /// Where it is on its way.
    pub status: JobStatus,
    /// When it came, Unix milliseconds, as all instants here.
    pub created_at_ms: u64,
    /// Before when it is not tried.
    pub not_before_ms: u64,
    /// From when on it is no longer tried.
    pub expires_at_ms: u64,
    /// When it came to its end.
    pub finished_at_ms: Option<u64>,
    /// Runs that got as far as the provider.
    pub attempts: u64,
    /// The provider's answer, JSON.
    pub result: Option<String>,
    /// Why it failed, JSON.
    pub error: Option<String>,
}

/// A job as its consumer needs it, with what has become of its key and its user.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Work {
    /// Its id.
    pub job_id: String,
    /// Whose it is.
    pub user_id: String,
    /// The API key that was shown.
    pub key_id: Option<String>,
    /// A plan named by the credential's issuer.
    pub plan_claim: Option<String>,
    /// Path of the API.
    pub path: String,
    /// Name by which a plan limits that API.
    pub endpoint: String,
    /// The caller's headers that go up to a provider, JSON.
    pub headers: String,
    /// The body.
    pub body: String,
    /// Where it is on its way.
    pub status: JobStatus,
    /// Before when it is not tried.
    pub not_before_ms: u64,
    /// From when on it is no longer tried.
    pub expires_at_ms: u64,
    /// Runs that got as far as the provider.
    pub attempts: u64,
    /// Runs that were given back.
    pub round: u64,
    /// Number of the newest message.
    pub ticket: u64,
    /// Until when a consumer may have it.
    pub lease_until_ms: u64,
    /// 1: settled, and the user is told.
    pub closed: u64,
    /// Prompt tokens it used.
    pub prompt_tokens: Option<u64>,
    /// Completion tokens it used.
    pub completion_tokens: Option<u64>,
    /// 1: they are an estimate.
    pub estimated: Option<u64>,
    /// 1: its user is still there.
    pub has_user: u64,
    /// 1: its key is still good, or it had none.
    pub has_key: u64,
}

/// How a job comes to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// Succeeded, failed or expired.
    pub status: JobStatus,
    /// The provider's answer, JSON.
    pub result: Option<String>,
    /// Why it failed.
    pub error: Option<Value>,
    /// Prompt tokens, completion tokens, and whether they are an estimate; `None`: nothing was used.
    pub used: Option<(u64, u64, bool)>,
}

/// A job whose message may be lost.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Overdue {
    /// Its id.
    pub job_id: String,
    /// Number of its newest message.
    pub ticket: u64,
}

const ROW: &str = "job_id, user_id, status, created_at_ms, not_before_ms, expires_at_ms, \
    finished_at_ms, attempts, result, error";

/// One that no provider has seen has nothing to settle.
const TAKE_BACK: &str = "UPDATE jobs SET closed = (status = 'queued' AND round = 0), \
      status = 'cancelled', finished_at_ms = ?2 WHERE job_id = ?1 AND finished_at_ms IS NULL";

/// Adds a job, unless its user has `limit` of them under way; `false` then.
pub async fn insert(env: &Env, job: &NewJob, limit: Option<u64>) -> Result<bool, LedgerError> {
    let sql = "INSERT INTO jobs (job_id, user_id, key_id, plan_claim, path, endpoint, body, \
                 created_at_ms, not_before_ms, expires_at_ms, headers) \
               SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?12 WHERE ?11 IS NULL OR ?11 > \
                 (SELECT COUNT(*) FROM jobs WHERE user_id = ?2 AND finished_at_ms IS NULL)";
    let headers = json!(job.headers).to_string();
    let binds = [
        (&job.job_id).into(),
        (&job.user_id).into(),
        job.key_id.as_deref().into(),
        job.plan_claim.as_deref().into(),
        (&job.path).into(),
        (&job.endpoint).into(),
        (&job.body).into(),
        job.created_at.0.into(),
        job.not_before.0.into(),
        job.expires_at.0.into(),
        limit.into(),
        (&headers).into(),
    ];
    Ok(Db::of(env)?.run(sql, &binds).await? > 0)
}

/// Takes back a job whose message the queue did not take.
pub async fn withdraw(env: &Env, job_id: &str) -> Result<(), LedgerError> {
    let sql = "DELETE FROM jobs WHERE job_id = ?1 AND status = 'queued'";
    Db::background(env)?
        .run(sql, &[job_id.into()])
        .await
        .map(|_| ())
}

/// Notes that the queue has taken the job's first message.
pub async fn accept(env: &Env, job_id: &str) -> Result<(), LedgerError> {
    let sql = "UPDATE jobs SET ticket = 1 WHERE job_id = ?1 AND ticket = 0";
    Db::background(env)?
        .run(sql, &[job_id.into()])
        .await
        .map(|_| ())
}

/// A user's job; `None` also if it is somebody else's.
pub async fn one(env: &Env, user_id: &str, job_id: &str) -> Result<Option<JobRow>, LedgerError> {
    let sql = format!("SELECT {ROW} FROM jobs WHERE job_id = ?1 AND user_id = ?2");
    Db::of(env)?
        .first(&sql, &[job_id.into(), user_id.into()])
        .await
}

/// Jobs, newest first: of one user or of all, of one status or of any.
pub async fn list(
    env: &Env,
    user_id: Option<&str>,
    status: Option<JobStatus>,
    page: &Page,
) -> Result<Vec<JobRow>, LedgerError> {
    let whose = if user_id.is_some() {
        "user_id = ?1"
    } else {
        "?1 IS NULL"
    };
    let sql = format!(
        "SELECT {ROW} FROM jobs WHERE {whose} AND (?2 IS NULL OR status = ?2) \
           AND (?3 IS NULL OR (created_at_ms, job_id) < (?3, ?4)) \
         ORDER BY created_at_ms DESC, job_id DESC LIMIT ?5"
    );
    let after = page.after.as_ref();
    let binds = [
        user_id.into(),
        status.map(JobStatus::word).into(),
        after.map(|(at, _)| *at).into(),
        after.map(|(_, id)| id.as_str()).into(),
        page.fetch().into(),
    ];
    Db::of(env)?.all(&sql, &binds).await
}

/// Takes a job back. One that runs may be charged for what it has used by then; its result is dropped.
/// `false`: it had come to its end, or is not there.
pub async fn cancel(
    env: &Env,
    user_id: &str,
    job_id: &str,
    now: Millis,
) -> Result<bool, LedgerError> {
    let sql = format!("{TAKE_BACK} AND user_id = ?3");
    let binds = [job_id.into(), now.0.into(), user_id.into()];
    Ok(Db::of(env)?.run(&sql, &binds).await? > 0)
}

/// The same, whoever it belongs to, written into the audit.
pub async fn cancel_any(
    env: &Env,
    job_id: &str,
    now: Millis,
    entry: &Entry<'_>,
) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let open = "SELECT 1 FROM jobs WHERE job_id = ?7 AND finished_at_ms IS NULL";
    let audited = audit::when(&db, entry, open, &[job_id.into()])?;
    let taken_back = db.statement(TAKE_BACK, &[job_id.into(), now.0.into()])?;
    db.change(audited, taken_back).await
}

/// Everything about a job.
pub async fn load(env: &Env, job_id: &str, now: Millis) -> Result<Option<Work>, LedgerError> {
    let sql = "SELECT j.job_id, j.user_id, j.key_id, j.plan_claim, j.path, j.endpoint, j.headers, j.body, \
                 j.status, j.not_before_ms, j.expires_at_ms, j.attempts, j.round, j.ticket, \
                 j.lease_until_ms, j.closed, j.prompt_tokens, j.completion_tokens, j.estimated, \
                 u.user_id IS NOT NULL AS has_user, \
                 j.key_id IS NULL OR (k.key_id IS NOT NULL AND (k.revoked_at_ms IS NULL OR k.revoked_at_ms > ?2)) AS has_key \
               FROM jobs j LEFT JOIN users u ON u.user_id = j.user_id \
                 LEFT JOIN api_keys k ON k.key_id = j.key_id \
               WHERE j.job_id = ?1";
    Db::background(env)?
        .first(sql, &[job_id.into(), now.0.into()])
        .await
}

/// Takes a job that is due and that nobody has; `false` if somebody else did.
pub async fn claim(
    env: &Env,
    job: &Work,
    claim: &str,
    lease_until: Millis,
    now: Millis,
) -> Result<bool, LedgerError> {
    let sql = "UPDATE jobs SET status = 'running', claim = ?2, lease_until_ms = ?3, \
                 attempts = attempts + 1 \
               WHERE job_id = ?1 AND finished_at_ms IS NULL AND lease_until_ms <= ?4 \
                 AND MIN(not_before_ms, expires_at_ms) <= ?4 AND round = ?5";
    let binds = [
        (&job.job_id).into(),
        claim.into(),
        lease_until.0.into(),
        now.0.into(),
        job.round.into(),
    ];
    Ok(Db::background(env)?.run(sql, &binds).await? > 0)
}

/// Gives back a job that could not run yet: that was no attempt. `false`: somebody else has taken it
/// since.
pub async fn wait(
    env: &Env,
    job_id: &str,
    claim: &str,
    not_before: Millis,
    ticket: u64,
) -> Result<bool, LedgerError> {
    give_back(
        env,
        job_id,
        claim,
        not_before,
        ticket,
        "attempts = attempts - 1",
    )
    .await
}

/// Gives back a job whose provider failed: the next attempt is charged anew. `false`: somebody else has
/// taken it since.
pub async fn again(
    env: &Env,
    job_id: &str,
    claim: &str,
    not_before: Millis,
    ticket: u64,
) -> Result<bool, LedgerError> {
    give_back(env, job_id, claim, not_before, ticket, "round = round + 1").await
}

async fn give_back(
    env: &Env,
    job_id: &str,
    claim: &str,
    not_before: Millis,
    ticket: u64,
    change: &str,
) -> Result<bool, LedgerError> {
    let sql = format!(
        "UPDATE jobs SET status = 'queued', claim = NULL, lease_until_ms = 0, not_before_ms = ?3, \
           ticket = MAX(ticket, ?4), {change} \
         WHERE job_id = ?1 AND claim = ?2 AND finished_at_ms IS NULL"
    );
    let binds = [
        job_id.into(),
        claim.into(),
        not_before.0.into(),
        ticket.into(),
    ];
    Ok(Db::background(env)?.run(&sql, &binds).await? > 0)
}

/// Notes that a newer message is under way, so that older ones are passed over.
pub async fn hand_on(env: &Env, job_id: &str, ticket: u64) -> Result<(), LedgerError> {
    let sql = "UPDATE jobs SET ticket = ?2 WHERE job_id = ?1 AND ticket < ?2";
    Db::background(env)?
        .run(sql, &[job_id.into(), ticket.into()])
        .await
        .map(|_| ())
}

/// Brings a claimed job to its end. One that was cancelled meanwhile stays cancelled, without a result,
/// and only learns what it has used. `false`: somebody else brought it to its end.
pub async fn finish(
    env: &Env,
    job_id: &str,
    claim: &str,
    ending: &Ending,
    now: Millis,
) -> Result<bool, LedgerError> {
    let sql = "UPDATE jobs SET \
                 result = CASE status WHEN 'cancelled' THEN NULL ELSE ?4 END, \
                 error = CASE status WHEN 'cancelled' THEN NULL ELSE ?5 END, \
                 status = CASE status WHEN 'cancelled' THEN status ELSE ?3 END, \
                 finished_at_ms = COALESCE(finished_at_ms, ?9), lease_until_ms = 0, \
                 prompt_tokens = ?6, completion_tokens = ?7, estimated = ?8 \
               WHERE job_id = ?1 AND claim = ?2 AND closed = 0 \
                 AND (finished_at_ms IS NULL OR (status = 'cancelled' AND prompt_tokens IS NULL))";
    let error = ending.error.as_ref().map(Value::to_string);
    let binds = [
        job_id.into(),
        claim.into(),
        ending.status.word().into(),
        ending.result.as_deref().into(),
        error.as_deref().into(),
        ending.used.map(|(prompt, _, _)| prompt).into(),
        ending.used.map(|(_, completion, _)| completion).into(),
        ending
            .used
            .map(|(_, _, estimated)| u64::from(estimated))
            .into(),
        now.0.into(),
    ];
    Ok(Db::background(env)?.run(sql, &binds).await? > 0)
}

/// Whose claim a finished job was ended under, if it is finished.
pub async fn claimed_by(env: &Env, job_id: &str) -> Result<Option<String>, LedgerError> {
    #[derive(Deserialize)]
    struct Claim {
        claim: Option<String>,
    }
    let sql = "SELECT claim FROM jobs WHERE job_id = ?1 AND finished_at_ms IS NOT NULL";
    let row: Option<Claim> = Db::background(env)?.first(sql, &[job_id.into()]).await?;
    Ok(row.and_then(|row| row.claim))
}

/// Ends a job that no consumer could bring to its end; `false` if one has it now, or has ended it.
pub async fn give_up(
    env: &Env,
    job_id: &str,
    error: &Value,
    now: Millis,
) -> Result<bool, LedgerError> {
    let sql = "UPDATE jobs SET status = 'failed', error = ?2, finished_at_ms = ?3, claim = NULL \
               WHERE job_id = ?1 AND finished_at_ms IS NULL AND lease_until_ms <= ?3";
    let error = error.to_string();
    let binds = [job_id.into(), (&error).into(), now.0.into()];
    Ok(Db::background(env)?.run(sql, &binds).await? > 0)
}

/// Notes that a finished job is settled and its user told.
pub async fn close(env: &Env, job_id: &str) -> Result<(), LedgerError> {
    let sql = "UPDATE jobs SET closed = 1 WHERE job_id = ?1 AND finished_at_ms IS NOT NULL";
    Db::background(env)?
        .run(sql, &[job_id.into()])
        .await
        .map(|_| ())
}

/// Lets a job that failed or expired wait once more, and writes that into the audit; `false` if it is in
/// no state to be retried.
pub async fn revive(
    env: &Env,
    job_id: &str,
    now: Millis,
    expires_at: Millis,
    entry: &Entry<'_>,
) -> Result<bool, LedgerError> {
    let db = Db::of(env)?;
    let ended = "job_id = ?7 AND status IN ('failed', 'expired') AND closed = 1";
    let condition = format!("SELECT 1 FROM jobs WHERE {ended}");
    let audit = audit::when(&db, entry, &condition, &[job_id.into()])?;
    let sql = "UPDATE jobs SET status = 'queued', finished_at_ms = NULL, error = NULL, result = NULL, \
                 claim = NULL, lease_until_ms = 0, closed = 0, attempts = 0, round = round + 1, \
                 ticket = ticket + 1, not_before_ms = ?2, expires_at_ms = ?3, \
                 prompt_tokens = NULL, completion_tokens = NULL, estimated = NULL \
               WHERE job_id = ?1 AND status IN ('failed', 'expired') AND closed = 1";
    let binds = [job_id.into(), now.0.into(), expires_at.0.into()];
    let results = db.batch(vec![audit, db.statement(sql, &binds)?]).await?;
    Ok(results.last().map_or(0, changes) > 0)
}

/// A job, whoever it belongs to.
pub async fn any(env: &Env, job_id: &str) -> Result<Option<JobRow>, LedgerError> {
    let sql = format!("SELECT {ROW} FROM jobs WHERE job_id = ?1");
    Db::of(env)?.first(&sql, &[job_id.into()]).await
}

/// Jobs that should have run, or been closed, before `before`: their message may be lost.
pub async fn overdue(env: &Env, before: Millis, limit: u64) -> Result<Vec<Overdue>, LedgerError> {
    let sql = "SELECT job_id, ticket FROM jobs \
               WHERE finished_at_ms IS NULL AND not_before_ms < ?1 AND lease_until_ms < ?1 AND ticket > 0 \
               UNION ALL \
               SELECT job_id, ticket FROM jobs WHERE finished_at_ms < ?1 AND closed = 0 \
               LIMIT ?2";
    Db::background(env)?
        .all(sql, &[before.0.into(), limit.into()])
        .await
}

/// Deletes jobs whose message the queue never took, and that nobody was told of.
pub async fn delete_unsent(env: &Env, before: Millis) -> Result<usize, LedgerError> {
    let sql = "DELETE FROM jobs WHERE finished_at_ms IS NULL AND not_before_ms < ?1 \
                 AND ticket = 0 AND attempts = 0 AND status = 'queued'";
    Db::background(env)?.run(sql, &[before.0.into()]).await
}

/// Deletes jobs that came to their end before `before`; gives how many, a bounded number at a time.
pub async fn delete_finished(env: &Env, before: Millis) -> Result<usize, LedgerError> {
    let sql = "DELETE FROM jobs WHERE job_id IN \
                 (SELECT job_id FROM jobs WHERE finished_at_ms < ?1 AND closed = 1 LIMIT ?2)";
    let binds: [Bind<'_>; 2] = [before.0.into(), CHUNK.into()];
    Db::background(env)?.run(sql, &binds).await
}
