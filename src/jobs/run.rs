use std::rc::Rc;

use serde_json::{Value, json};
use worker::Env;

use super::kept::{self, KeptAnswer};
use super::schedule;
use crate::account::client;
use crate::account::wire::{Answer, Ask, Asker};
use crate::budget::within;
use crate::gateway::{self, Dialect, Dispatch, LlmRequest, Pass};
use crate::http::{ApiError, Shape};
use crate::ledger::jobs::{Ending, JobStatus, Work};
use crate::limits::{self, Millis, OperationId, Outcome, Rejection, Span, Took, Verdict};
use crate::settings::Settings;

/// Longest a provider may take for one job, whatever the time-out says: a consumer has 15 minutes.
const LONGEST_RUN: Span = Span::minutes(10);
/// How long a claim outlives the provider's time, to store and settle.
const LEASE_MARGIN: Span = Span::seconds(60);
/// How long a reservation outlives the claim: by then a job whose consumer ended runs again, and is not
/// charged a second time.
const RESERVATION_MARGIN: Span = Span::minutes(30);
/// Largest answer that is stored; a row of the ledger holds 2 MB in all.
const MAX_RESULT: usize = 1 << 20;

/// How a claimed job goes on.
pub enum Next {
    /// A limit refuses it until then.
    Wait(Millis),
    /// The provider failed; what was charged is given back, and it is tried again after this.
    Again(Span),
    /// Something of ours was out.
    Fault,
    /// It has come to its end.
    End(Box<Ending>),
}

impl Next {
    fn end(ending: Ending) -> Self {
        Self::End(Box::new(ending))
    }
}

/// One run of a claimed job.
pub struct Run<'a> {
    /// The bindings.
    pub env: &'a Env,
    /// The settings.
    pub settings: Rc<Settings>,
    /// When it began.
    pub now: Millis,
    /// The job, as it was before it was claimed.
    pub job: &'a Work,
}

/// What keeps a run from going on.
type Stopped = Next;

impl Run<'_> {
    /// How long a consumer may have a job.
    pub fn lease(settings: &Settings) -> Span {
        Span(provider_time(settings).0.saturating_add(LEASE_MARGIN.0))
    }

    /// Runs the job as far as it gets now.
    pub async fn go(&self) -> Next {
        match self.try_to_end().await {
            Ok(ending) => Next::end(ending),
            Err(next) => next,
        }
    }

    async fn try_to_end(&self) -> Result<Ending, Stopped> {
        self.still_wanted()?;
        self.give_back_last_round().await?;
        if self.job.attempts > 0
            && let Some(answer) = kept::get(self.env, &self.job.job_id, self.job.round).await
        {
            return Ok(succeeded(answer));
        }
        let request = self.request()?;
        let target = self.find(request.model()).await?;
        let pass = self.admit(&request, &target.model).await?;
        let target = match &pass.degraded_to {
            Some(model) => self.find(model).await?,
            None => target,
        };
        let dispatch = Dispatch {
            request,
            target,
            pass,
        };
        let time = provider_time(&self.settings);
        let headers: Vec<(String, String)> =
            serde_json::from_str(&self.job.headers).unwrap_or_default();
        let complete = dispatch.complete(&headers, self.settings.upstream_timeout.min(time));
        match within(time, complete).await {
            Ok(Ok(completed)) => self.answered(completed),
            Ok(Err(error)) => Err(self.provider_failed(&error)),
            Err(_) => Err(self.provider_failed(&gateway::timed_out())),
        }
    }

    fn still_wanted(&self) -> Result<(), Stopped> {
        let ended = |status, code, message: &str| {
            Next::end(Ending {
                status,
                result: None,
                error: Some(error_json(code, "invalid_request_error", message)),
                used: None,
            })
        };
        if self.job.has_user == 0 {
            return Err(ended(
                JobStatus::Failed,
                "user_deleted",
                "The user is no longer there.",
            ));
        }
        if self.job.has_key == 0 {
            let message = "The API key the job was sent with was revoked.";
            return Err(ended(JobStatus::Failed, "key_revoked", message));
        }
        if self.now.0 >= self.job.expires_at_ms {
            let message = "The job could not be run before it expired.";
            return Err(ended(JobStatus::Expired, "job_expired", message));
        }
        Ok(())
    }

    /// Normally that was done when the round ended; a consumer that ended in between has not done it.
    async fn give_back_last_round(&self) -> Result<(), Stopped> {
        match self.job.round.checked_sub(1) {
            None => Ok(()),
            Some(last) => give_back(self.env, self.job, last)
                .await
                .map_err(|_| Next::Fault),
        }
    }

    fn request(&self) -> Result<LlmRequest, Stopped> {
        let dialect = Dialect::of_path(&self.job.path);
        let request = dialect.and_then(|d| LlmRequest::parse(d, self.job.body.as_bytes()).ok());
        request.ok_or_else(|| {
            Next::end(failed(&ApiError::invalid(
                "The request is no longer understood.",
            )))
        })
    }

    async fn find(&self, model: &str) -> Result<gateway::models::Target, Stopped> {
        let found = gateway::models::find(self.env, &self.settings, self.now, model).await;
        found.map_err(|error| match error {
            ApiError::Unavailable(_) => Next::Fault,
            other => Next::end(failed(&other)),
        })
    }

    async fn admit(&self, request: &LlmRequest, model: &str) -> Result<Pass, Stopped> {
        let lease = Self::lease(&self.settings)
            .0
            .saturating_add(RESERVATION_MARGIN.0);
        let call = limits::Call {
            operation: operation(&self.job.job_id, self.job.round),
            work: gateway::work(request),
            cost: 1,
            endpoint: Some(self.job.endpoint.clone()),
            model: Some(model.to_owned()),
            degrade: None,
            lease: Span(lease),
        };
        let asker = Asker {
            key_id: self.job.key_id.clone(),
            plan_claim: self.job.plan_claim.clone(),
            silent: true,
            ..Asker::default()
        };
        match client::ask(self.env, &self.job.user_id, asker, Ask::Admit(call)).await {
            Ok(Answer::Decided {
                verdict: Verdict::Admitted(admission),
                standing,
                ..
            }) => Ok(Pass::of(admission, &standing)),
            Ok(Answer::Decided {
                verdict: Verdict::Refused(refusal),
                ..
            }) => {
                let violation = refusal.decisive().ok_or(Next::Fault)?;
                let until = schedule::after_refusal(&self.job.job_id, violation, self.now);
                Err(Next::Wait(until))
            }
            Ok(Answer::Decided {
                verdict: Verdict::Rejected(rejection),
                ..
            }) => Err(rejected(&rejection)),
            Ok(Answer::KeyRevoked) => Err(Next::end(failed(&ApiError::BadCredential("revoked")))),
            Ok(Answer::NoSuchUser) => {
                Err(Next::end(failed(&ApiError::BadCredential("unknown user"))))
            }
            _ => Err(Next::Fault),
        }
    }

    fn answered(&self, completed: gateway::Completed) -> Result<Ending, Stopped> {
        let gateway::Completed { bytes, usage } = completed;
        let used = Some((usage.prompt, usage.completion, usage.estimated));
        match String::from_utf8(bytes) {
            Ok(text) if text.len() <= MAX_RESULT => Ok(Ending {
                status: JobStatus::Succeeded,
                result: Some(text),
                error: None,
                used,
            }),
            _ => {
                let message = format!("The answer is larger than {MAX_RESULT} bytes.");
                let error = error_json("result_too_large", "server_error", &message);
                Ok(Ending {
                    status: JobStatus::Failed,
                    result: None,
                    error: Some(error),
                    used,
                })
            }
        }
    }

    fn provider_failed(&self, error: &ApiError) -> Stopped {
        let attempts = self.job.attempts.saturating_add(1);
        match error {
            ApiError::Upstream {
                retry_after: Some(seconds),
                ..
            } if attempts < schedule::MOST_ATTEMPTS => {
                Next::Again(schedule::after_failure(attempts, Some(*seconds)))
            }
            other => Next::end(failed(other)),
        }
    }
}

/// Settles a finished job: what it used, or that it used nothing. Saying so twice is saying it once.
pub async fn settle(
    env: &Env,
    job: &Work,
    used: Option<(u64, u64, bool)>,
) -> Result<(), client::OutOfReach> {
    let outcome = match used {
        Some((prompt, completion, estimated)) => Outcome::Used {
            prompt,
            completion,
            estimated,
        },
        None => Outcome::Released,
    };
    tell(env, job, job.round, outcome).await
}

/// Gives back what a round was charged.
pub async fn give_back(env: &Env, job: &Work, round: u64) -> Result<(), client::OutOfReach> {
    tell(env, job, round, Outcome::Released).await
}

async fn tell(
    env: &Env,
    job: &Work,
    round: u64,
    outcome: Outcome,
) -> Result<(), client::OutOfReach> {
    let ask = Ask::Settle {
        operation: operation(&job.job_id, round),
        outcome,
        took: Took::default(),
    };
    client::ask(env, &job.user_id, Asker::default(), ask)
        .await
        .map(|_| ())
}

/// What a round of a job is charged under.
fn operation(job_id: &str, round: u64) -> OperationId {
    OperationId(match round {
        0 => job_id.to_owned(),
        round => format!("{job_id}:{round}"),
    })
}

fn provider_time(settings: &Settings) -> Span {
    Span(settings.upstream_timeout.0.saturating_mul(2)).min(LONGEST_RUN)
}

fn succeeded(answer: KeptAnswer) -> Ending {
    Ending {
        status: JobStatus::Succeeded,
        result: Some(answer.result),
        error: None,
        used: Some((answer.prompt, answer.completion, answer.estimated)),
    }
}

fn failed(error: &ApiError) -> Ending {
    let (code, kind) = error.code_and_kind(Shape::OpenAi);
    Ending {
        status: JobStatus::Failed,
        result: None,
        error: Some(error_json(code, kind, &error.to_string())),
        used: None,
    }
}

fn rejected(rejection: &Rejection) -> Stopped {
    Next::end(failed(&gateway::rejected(rejection)))
}

/// A job's error, in the members that errors have everywhere.
pub fn error_json(code: &str, kind: &str, message: &str) -> Value {
    json!({"message": message, "type": kind, "param": null, "code": code})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_is_charged_under_the_jobs_own_id() {
        assert_eq!(operation("job_1", 0).0, "job_1");
        assert_eq!(operation("job_1", 2).0, "job_1:2");
    }

    #[test]
    fn an_error_is_told_as_errors_are_everywhere() {
        let ending = failed(&ApiError::BadCredential("revoked"));
        let error = ending.error.unwrap();
        assert_eq!(error["code"], "invalid_api_key");
        assert_eq!(ending.status, JobStatus::Failed);
    }
}
