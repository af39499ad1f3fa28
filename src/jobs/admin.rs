//! The operator's view of jobs.

use serde_json::{Value, json};

use super::desk::job_json;
use super::message::TaskMessage;
use super::schedule;
use crate::admin::{Visit, failed};
use crate::http::limit_headers::rfc3339;
use crate::http::router::Handled;
use crate::http::{ApiError, Reply};
use crate::ledger::audit::Entry;
use crate::ledger::dead_letters;
use crate::ledger::jobs::{self, JobRow, JobStatus};
use crate::limits::{Millis, Span};

/// Dead letters shown beside the jobs.
const DEAD_LETTERS: u64 = 50;

/// `GET /admin/jobs?status=&user_id=`: jobs of all users, and the messages nobody could read.
pub async fn list(visit: &Visit) -> Handled {
    let env = &visit.call.env;
    let status = visit
        .query("status")?
        .map(|word| status(&word))
        .transpose()?;
    let user = visit.query("user_id")?;
    let page = visit.page()?;
    let rows = jobs::list(env, user.as_deref(), status, &page)
        .await
        .map_err(failed)?;
    let mut answer = page.answer(rows, JobRow::key, operators_json);
    let letters = dead_letters::newest(env, DEAD_LETTERS)
        .await
        .map_err(failed)?;
    if let Some(fields) = answer.as_object_mut() {
        fields.insert(
            "dead_letters".to_owned(),
            letters.iter().map(letter_json).collect(),
        );
    }
    Ok(Reply::json(200, &answer))
}

/// `POST /admin/jobs/{id}/retry`: lets a job that failed or expired run again.
pub async fn retry(visit: &Visit) -> Handled {
    let (env, id, now) = (&visit.call.env, &visit.id, visit.call.now);
    let before = found(visit).await?;
    let at = visit.now();
    let entry = Entry {
        at: &at,
        action: "job.retry",
        target: id,
        before: Some(json!({"status": before.status})),
        after: Some(json!({"status": JobStatus::Queued})),
    };
    let revived = jobs::revive(env, id, now, schedule::expiry(now), &entry)
        .await
        .map_err(failed)?;
    let job = jobs::load(env, id, now).await.map_err(failed)?;
    let job = job.ok_or_else(|| ApiError::not_found("job"))?;
    if !revived {
        let word = job.status.word();
        let words =
            format!("Only a job that failed or expired can be retried; this one is {word}.");
        return Err(ApiError::Conflict(words));
    }
    // If the queue is out the clean-up sends the message: the job itself is waiting again.
    let _ = TaskMessage::new(id, job.ticket).send(env, Span::ZERO).await;
    let after = jobs::any(env, id).await.map_err(failed)?;
    Ok(Reply::json(200, &operators_json(&after.unwrap_or(before))))
}

/// `POST /admin/jobs/{id}/cancel`: takes back a job that has not come to its end. Twice is once.
pub async fn cancel(visit: &Visit) -> Handled {
    let before = found(visit).await?;
    let at = visit.now();
    let entry = Entry {
        at: &at,
        action: "job.cancel",
        target: &visit.id,
        before: Some(json!({"status": before.status})),
        after: Some(json!({"status": JobStatus::Cancelled})),
    };
    let (env, now) = (&visit.call.env, visit.call.now);
    jobs::cancel_any(env, &visit.id, now, &entry)
        .await
        .map_err(failed)?;
    let job = found(visit).await?;
    match job.status {
        JobStatus::Cancelled => Ok(Reply::json(200, &operators_json(&job))),
        ended => Err(ApiError::Conflict(format!(
            "The job has already {}.",
            ended.word()
        ))),
    }
}

async fn found(visit: &Visit) -> Result<JobRow, ApiError> {
    let job = jobs::any(&visit.call.env, &visit.id)
        .await
        .map_err(failed)?;
    job.ok_or_else(|| ApiError::not_found("job"))
}

fn operators_json(job: &JobRow) -> Value {
    let mut json = job_json(job);
    if let Some(fields) = json.as_object_mut() {
        fields.insert("user_id".to_owned(), json!(job.user_id));
    }
    json
}

fn letter_json(letter: &dead_letters::DeadLetter) -> Value {
    json!({
        "message_id": letter.message_id,
        "queue": letter.queue,
        "body": letter.body,
        "reason": letter.reason,
        "at": rfc3339(Millis(letter.at_ms)),
    })
}

fn status(word: &str) -> Result<JobStatus, ApiError> {
    JobStatus::of_word(word).ok_or_else(|| {
        let words = "`status` must be queued, running, succeeded, failed, cancelled or expired.";
        ApiError::invalid_field("status", words)
    })
}
