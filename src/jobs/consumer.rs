//! The consumer of the task queue: from a message to what is done about its job.

use std::rc::Rc;

use serde_json::json;
use worker::Env;

use super::kept::{self, KeptAnswer};
use super::message::TaskMessage;
use super::run::{self, Next, Run, error_json};
use super::schedule::{self, Step};
use crate::clock;
use crate::http::ids;
use crate::ledger::jobs::{self, Ending, JobStatus, Work};
use crate::limits::{Millis, Span};
use crate::notify::{self, Notice};
use crate::queues::{Fate, RETRY};
use crate::settings::Settings;

/// How often a result is stored before the job is left to another delivery.
const STORE_TRIES: u32 = 4;

/// Deals with one message of the task queue.
pub async fn take(env: &Env, text: &str) -> Fate {
    let Some(message) = TaskMessage::read(text) else {
        return Fate::Bury("not a task message");
    };
    let consumer = Consumer::of(env, message);
    match jobs::load(env, &consumer.message.job, consumer.now()).await {
        Ok(Some(job)) => consumer.look(job).await,
        // The queue was slow to say that it took it, so the caller was told that it did not.
        Ok(None) => Fate::Done,
        Err(_) => consumer.fault().await,
    }
}

/// Deals with one message the platform gave up delivering: its job fails, and the operator may have it
/// retried.
pub async fn take_dead(env: &Env, text: &str) -> Fate {
    let Some(message) = TaskMessage::read(text) else {
        return Fate::Bury("not a task message");
    };
    let consumer = Consumer::of(env, message);
    match jobs::load(env, &consumer.message.job, consumer.now()).await {
        Ok(Some(job)) => match schedule::step(&job, u64::MAX, consumer.now()) {
            Step::Drop => Fate::Done,
            Step::Wait(lease) if job.status == JobStatus::Running => Fate::Retry(lease),
            // It only waits, and the queue was out: nothing is wrong with the job.
            Step::Wait(span) => consumer.later(span).await,
            Step::Run => consumer.give_up(&job).await,
            Step::Close => consumer.close(&job, used(&job)).await,
        },
        Ok(None) => Fate::Done,
        Err(_) => Fate::Retry(RETRY),
    }
}

struct Consumer<'a> {
    env: &'a Env,
    settings: Rc<Settings>,
    message: TaskMessage,
}

impl<'a> Consumer<'a> {
    fn of(env: &'a Env, message: TaskMessage) -> Self {
        Self {
            env,
            settings: Settings::of(env),
            message,
        }
    }

    fn now(&self) -> Millis {
        clock::now(&self.settings)
    }

    async fn look(&self, job: Work) -> Fate {
        match schedule::step(&job, self.message.ticket, self.now()) {
            Step::Drop => Fate::Done,
            Step::Wait(span) => self.later(span).await,
            Step::Close => self.close(&job, used(&job)).await,
            Step::Run => self.run(&job).await,
        }
    }

    async fn run(&self, job: &Work) -> Fate {
        let Ok(claim) = ids::fresh("claim") else {
            return Fate::Retry(RETRY);
        };
        let now = self.now();
        let lease = Run::lease(&self.settings);
        match jobs::claim(self.env, job, &claim, now.plus(lease), now).await {
            Ok(true) => {}
            // Somebody else has it; if they end in the middle, this message is needed after all.
            Ok(false) => return self.later(lease).await,
            // It may have been written all the same.
            Err(_) => return self.put_back(&claim, now).await,
        }
        let run = Run {
            env: self.env,
            settings: self.settings.clone(),
            now,
            job,
        };
        match run.go().await {
            Next::Wait(until) => self.wait(&claim, until).await,
            Next::Again(pause) => self.again(job, &claim, pause).await,
            Next::Fault => self.put_back(&claim, now).await,
            Next::End(ending) => self.end(job, &claim, *ending).await,
        }
    }

    /// A limit refuses the job: it waits, and that is no attempt.
    async fn wait(&self, claim: &str, until: Millis) -> Fate {
        let next = self.message.successor();
        let sent = next.send(self.env, until.since(self.now())).await.is_ok();
        let ticket = if sent {
            next.ticket
        } else {
            self.message.ticket
        };
        // If this fails too, the lease ends the claim.
        let _ = jobs::wait(self.env, &self.message.job, claim, until, ticket).await;
        done_if(sent)
    }

    /// Something of ours was out: as if the job had not been claimed.
    async fn put_back(&self, claim: &str, until: Millis) -> Fate {
        let ticket = self.message.ticket;
        let _ = jobs::wait(self.env, &self.message.job, claim, until, ticket).await;
        self.fault().await
    }

    /// The provider failed. The new round is written down first, so that nobody can run under the old
    /// round's charge once it is given back.
    async fn again(&self, job: &Work, claim: &str, pause: Span) -> Fate {
        let next = self.message.successor();
        let sent = next.send(self.env, pause).await.is_ok();
        let ticket = if sent {
            next.ticket
        } else {
            self.message.ticket
        };
        let until = self.now().plus(pause);
        if jobs::again(self.env, &job.job_id, claim, until, ticket).await == Ok(true) {
            // If the account is out, the next round does this before anything else.
            let _ = run::give_back(self.env, job, job.round).await;
        }
        done_if(sent)
    }

    async fn end(&self, job: &Work, claim: &str, ending: Ending) -> Fate {
        match self.store(job, claim, &ending).await {
            Stored::Yes => self.close(job, ending.used).await,
            Stored::BySomebodyElse => Fate::Done,
            Stored::No => self.later(Run::lease(&self.settings)).await,
        }
    }

    async fn store(&self, job: &Work, claim: &str, ending: &Ending) -> Stored {
        for attempt in 0..STORE_TRIES {
            match jobs::finish(self.env, &job.job_id, claim, ending, self.now()).await {
                Ok(true) => return Stored::Yes,
                // A write that was reported lost may have happened.
                Ok(false) => return self.who_stored(job, claim).await,
                Err(_) => {}
            }
            if attempt == 0
                && let Some(answer) = worth_keeping(ending)
            {
                kept::put(self.env, &job.job_id, job.round, &answer).await;
            }
            pause(Span(200 << attempt)).await;
        }
        worker::console_warn!("{}", json!({"event": "job_not_stored", "job": job.job_id}));
        Stored::No
    }

    async fn who_stored(&self, job: &Work, claim: &str) -> Stored {
        match jobs::claimed_by(self.env, &job.job_id).await {
            Ok(Some(owner)) if owner == claim => Stored::Yes,
            Ok(_) => Stored::BySomebodyElse,
            Err(_) => Stored::No,
        }
    }

    /// Settles a finished job and tells its user. Every part may be done twice.
    async fn close(&self, job: &Work, used: Option<(u64, u64, bool)>) -> Fate {
        if run::settle(self.env, job, used).await.is_err() {
            return self.fault().await;
        }
        let Ok(Some(row)) = jobs::any(self.env, &job.job_id).await else {
            return self.fault().await;
        };
        if row.status != JobStatus::Cancelled {
            let notice = Notice::job_ended(&row);
            if notify::send(self.env, &notice).await.is_err() {
                return self.fault().await;
            }
        }
        match jobs::close(self.env, &job.job_id).await {
            Ok(()) => Fate::Done,
            Err(_) => self.fault().await,
        }
    }

    async fn give_up(&self, job: &Work) -> Fate {
        let message = "The job could not be run. The operator may have it tried again.";
        let error = error_json("dead_lettered", "server_error", message);
        match jobs::give_up(self.env, &job.job_id, &error, self.now()).await {
            Ok(true) => self.close(job, None).await,
            Ok(false) | Err(_) => Fate::Retry(RETRY),
        }
    }

    /// Looks again after `span`, by a message that takes this one's place: waiting must not use up the
    /// times the platform delivers one.
    async fn later(&self, span: Span) -> Fate {
        let next = self.message.successor();
        if next.send(self.env, span).await.is_err() {
            return Fate::Retry(RETRY);
        }
        // Should this fail, two messages lead to the job, and one of them finds it done.
        let _ = jobs::hand_on(self.env, &next.job, next.ticket).await;
        Fate::Done
    }

    /// Something of ours was out: look again soon, then less and less often.
    async fn fault(&self) -> Fate {
        let pause = schedule::after_fault(self.message.faults);
        if self.message.faults >= schedule::MOST_FAULTS {
            return Fate::Retry(pause);
        }
        match self.message.after_fault().send(self.env, pause).await {
            Ok(()) => Fate::Done,
            Err(_) => Fate::Retry(RETRY),
        }
    }
}

enum Stored {
    Yes,
    BySomebodyElse,
    No,
}

const fn done_if(sent: bool) -> Fate {
    if sent { Fate::Done } else { Fate::Retry(RETRY) }
}

fn used(job: &Work) -> Option<(u64, u64, bool)> {
    let (prompt, completion) = (job.prompt_tokens?, job.completion_tokens?);
    Some((prompt, completion, job.estimated == Some(1)))
}

fn worth_keeping(ending: &Ending) -> Option<KeptAnswer> {
    let (prompt, completion, estimated) = ending.used?;
    let result = ending.result.clone()?;
    Some(KeptAnswer {
        result,
        prompt,
        completion,
        estimated,
    })
}

async fn pause(span: Span) {
    worker::Delay::from(std::time::Duration::from_millis(span.0)).await;
}
