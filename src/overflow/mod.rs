//! What becomes of a call that its user's quota doesn't let pass (design rule 8): it is refused, sent to
//! a cheaper model, or done later. The cheaper model is decided in the account, with all other limits;
//! here it is decided which calls wait. Only a used-up quota is worth waiting for: short limits pass by
//! themselves and are refused.
//!
//! A 202 breaks every SDK, so on `/v1/*` a call waits only if its caller asked for that by
//! `Prefer: respond-async` (RFC 7240); with that header a call within quota becomes a job as well, and
//! runs at once. `wait=` in the header is passed over.

mod prefer;

use serde_json::json;

pub use prefer::prefers_async;

use crate::account::client;
use crate::account::wire::Ask;
use crate::gateway::{LlmRequest, Session, headers_to_upstream};
use crate::http::limit_headers::{Refused, rfc3339};
use crate::http::router::Handled;
use crate::http::{ApiError, Reply, ids};
use crate::jobs::submit::{self, NotTaken};
use crate::jobs::{MAX_BODY, desk, schedule};
use crate::ledger::jobs::NewJob;
use crate::limits::{self, Cause, Millis, OperationId};
use crate::plans::Strategy;

/// The one door that answers 202 without being asked to.
const SIMPLE_DOOR: &str = "/api/ai/query";
/// How often an account is told of a job.
const TRIES: u32 = 4;

/// What a call that waits is about.
pub struct Later<'a> {
    /// The request, checked.
    pub request: &'a LlmRequest,
    /// Name by which a plan limits the endpoint.
    pub endpoint: &'a str,
    /// Under which its account was asked.
    pub operation: OperationId,
}

/// A call that `refused` keeps from passing now: it waits if its plan and its caller let it, else it is
/// refused.
pub async fn refused(session: &mut Session, refused: Box<Refused>, later: Later<'_>) -> Handled {
    let asked = prefers_async(&session.call.request);
    let body = later.body();
    if !may_wait(session, &refused)
        || !(asked || session.call.request.path() == SIMPLE_DOOR)
        || body.len() > MAX_BODY
    {
        return Err(ApiError::Refused(refused));
    }
    let job = later.job(session, body)?;
    let Some(violation) = refused.decisive() else {
        return Err(ApiError::Refused(refused));
    };
    let not_before = schedule::after_refusal(&job.job_id, violation, session.call.now);
    let job = NewJob {
        not_before,
        expires_at: schedule::expiry(not_before),
        ..job
    };
    match submit::submit(&session.call, &job, queue_limit(session)).await {
        Ok(()) => {
            note(session, later.operation);
            let message = "Request queued due to quota limit.";
            Ok(accepted(session, &job, message, asked))
        }
        Err(NotTaken::Full) => Err(ApiError::Refused(refused)),
        Err(NotTaken::OutOfReach) => Err(ApiError::Unavailable("queue")),
    }
}

/// A call whose caller asked not to wait for it: it becomes a job, which runs at once if the quota lets
/// it. Nothing is charged before it runs.
pub async fn now_or_later(session: &mut Session, call: limits::Call, later: Later<'_>) -> Handled {
    let body = later.body();
    if body.len() > MAX_BODY {
        let too_large = ApiError::TooLarge { limit: MAX_BODY };
        return Err(session.input_error(Some(later.endpoint), too_large).await);
    }
    match session.decide_for_later(call).await {
        Ok(_) => {}
        Err(ApiError::Refused(why)) => return refused(session, why, later).await,
        Err(ApiError::Unavailable(what)) => return Err(ApiError::Unavailable(what)),
        Err(never) => return Err(session.input_error(Some(later.endpoint), never).await),
    }
    let job = later.job(session, body)?;
    let limit = queue_limit(session);
    match submit::submit(&session.call, &job, limit).await {
        Ok(()) => {
            note(session, later.operation);
            Ok(accepted(session, &job, "Request queued.", true))
        }
        Err(NotTaken::Full) => Err(ApiError::QueueFull {
            limit: limit.unwrap_or(0),
        }),
        Err(NotTaken::OutOfReach) => Err(ApiError::Unavailable("queue")),
    }
}

impl Later<'_> {
    /// The request as it was checked, so that what was checked is what runs.
    fn body(&self) -> Vec<u8> {
        self.request.to_upstream(self.request.model(), None)
    }

    /// The job, due now.
    fn job(&self, session: &Session, body: Vec<u8>) -> Result<NewJob, ApiError> {
        let id = ids::fresh("job").map_err(|_| ApiError::Misconfigured("no random numbers"))?;
        let body =
            String::from_utf8(body).map_err(|_| ApiError::invalid("The body is not UTF-8."))?;
        let asker = session.asker();
        Ok(NewJob {
            job_id: id,
            user_id: session.caller.user_id.clone(),
            key_id: asker.key_id,
            plan_claim: asker.plan_claim,
            path: self.request.dialect().path().to_owned(),
            endpoint: self.endpoint.to_owned(),
            headers: headers_to_upstream(session.call.request.headers()),
            body,
            created_at: session.call.now,
            not_before: session.call.now,
            expires_at: schedule::expiry(session.call.now),
        })
    }
}

/// Whether the plan lets calls wait, and waiting helps: a quota of zero never comes back.
fn may_wait(session: &Session, refused: &Refused) -> bool {
    let queues = session.standing.as_ref().map(|s| s.over_quota.strategy) == Some(Strategy::Queue);
    let helps = refused
        .decisive()
        .is_some_and(|violation| violation.cause != Cause::Nothing);
    queues && helps && refused.is_quota() && refused.policies().all(limits::PolicyName::is_quota)
}

fn queue_limit(session: &Session) -> Option<u64> {
    session
        .standing
        .as_ref()
        .map_or(Some(0), |standing| standing.over_quota.queue_limit)
}

/// Counts the call as a job, and not as refused, after the answer.
fn note(session: &Session, operation: OperationId) {
    let (env, user, asker) = (
        session.call.env.clone(),
        session.caller.user_id.clone(),
        session.asker(),
    );
    session.call.context.wait_until(async move {
        // Only statistics: nothing is lost but a number.
        let _ = client::insist(&env, &user, &asker, &Ask::NoteQueued(operation), TRIES).await;
    });
}

fn accepted(session: &mut Session, job: &NewJob, message: &str, asked: bool) -> Reply {
    session.queued();
    let mut body = desk::fresh(job);
    if let Some(fields) = body.as_object_mut() {
        fields.insert("message".to_owned(), json!(message));
        fields.insert(
            "estimatedProcessAt".to_owned(),
            json!(rfc3339(job.not_before)),
        );
    }
    let mut reply = Reply::json(202, &body);
    reply.set("location", format!("/api/jobs/{}", job.job_id));
    reply.set(
        "retry-after",
        seconds_until(job.not_before, session.call.now).to_string(),
    );
    if asked {
        reply.set("preference-applied", "respond-async");
    }
    reply.append("vary", "Prefer");
    reply
}

fn seconds_until(then: Millis, now: Millis) -> u64 {
    then.since(now).seconds_ceil().max(1)
}
