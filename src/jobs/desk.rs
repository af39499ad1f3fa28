//! The caller's own jobs: `/api/jobs`.

use serde_json::{Value, json};

use crate::gateway::Session;
use crate::http::limit_headers::rfc3339;
use crate::http::page::Page;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::jobs::{self, JobRow, JobStatus, NewJob};
use crate::limits::Millis;

/// Seconds after which it is worth asking again for a job that runs.
const POLL: u64 = 5;

/// `GET /api/jobs`.
pub async fn list(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = list_body(&mut session).await;
    Ok(session.close(outcome))
}

async fn list_body(session: &mut Session) -> Handled {
    let url = session.call.request.url()?;
    let page = Page::of(&url)?;
    session.view().await?;
    let user = Some(session.caller.user_id.as_str());
    let rows = jobs::list(&session.call.env, user, None, &page)
        .await
        .map_err(|_| out())?;
    Ok(Reply::json(200, &page.answer(rows, JobRow::key, job_json)))
}

/// `GET /api/jobs/{id}`.
pub async fn one(call: Call, id: &str) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = show(&mut session, id).await;
    Ok(session.close(outcome))
}

/// `DELETE /api/jobs/{id}`.
pub async fn take_back(call: Call, id: &str) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = cancel(&mut session, id).await;
    Ok(session.close(outcome))
}

async fn show(session: &mut Session, id: &str) -> Handled {
    session.view().await?;
    let job = find(session, id).await?;
    let mut reply = Reply::json(200, &job_json(&job));
    if job.finished_at_ms.is_none() {
        let wait = Millis(job.not_before_ms)
            .since(session.call.now)
            .seconds_ceil();
        reply.set("retry-after", wait.max(POLL).to_string());
    }
    Ok(reply)
}

/// Taking back a job twice is taking it back; one that came to another end can't be.
async fn cancel(session: &mut Session, id: &str) -> Handled {
    session.view().await?;
    let (env, user) = (&session.call.env, &session.caller.user_id);
    jobs::cancel(env, user, id, session.call.now)
        .await
        .map_err(|_| out())?;
    let job = find(session, id).await?;
    match job.status {
        JobStatus::Cancelled => Ok(Reply::json(200, &job_json(&job))),
        ended => Err(ApiError::Conflict(format!(
            "The job has already {}.",
            ended.word()
        ))),
    }
}

async fn find(session: &Session, id: &str) -> Result<JobRow, ApiError> {
    let found = jobs::one(&session.call.env, &session.caller.user_id, id).await;
    found
        .map_err(|_| out())?
        .ok_or_else(|| ApiError::not_found("job"))
}

impl JobRow {
    /// Its place in a list.
    pub fn key(&self) -> (u64, &str) {
        (self.created_at_ms, &self.job_id)
    }
}

/// A job as its user sees it.
pub fn job_json(job: &JobRow) -> Value {
    json!({
        "id": job.job_id,
        "object": "job",
        "status": job.status,
        "created_at": rfc3339(Millis(job.created_at_ms)),
        "not_before": rfc3339(Millis(job.not_before_ms)),
        "expires_at": rfc3339(Millis(job.expires_at_ms)),
        "finished_at": job.finished_at_ms.map(|at| rfc3339(Millis(at))),
        "attempts": job.attempts,
        "result": job.result.as_deref().and_then(parsed),
        "error": job.error.as_deref().and_then(parsed),
    })
}

/// A job that was just taken in.
pub fn fresh(job: &NewJob) -> Value {
    job_json(&JobRow {
        job_id: job.job_id.clone(),
        user_id: job.user_id.clone(),
        status: JobStatus::Queued,
        created_at_ms: job.created_at.0,
        not_before_ms: job.not_before.0,
        expires_at_ms: job.expires_at.0,
        finished_at_ms: None,
        attempts: 0,
        result: None,
        error: None,
    })
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

const fn out() -> ApiError {
    ApiError::Unavailable("jobs")
}
