//! What an account does when it is asked something.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Effect, Fault, Force, Live};
use crate::account::wire::{Answer, Ask, Asker, Ended, Message, Snapshot};
use crate::limits::{
    self, DegradedLane, Limits, Metered, Millis, OperationId, Outcome, Returned, SettleResult,
    Verdict,
};
use crate::plans::{Plan, Strategy};

type Done = Result<(Answer, Effect), Fault>;

impl Live {
    /// Answers a message, after what it tells along was booked: one write for both.
    pub(super) fn answer(&mut self, plan: Rc<Plan>, message: Message, now: Millis) -> Done {
        let Message {
            ask, asker, ended, ..
        } = message;
        let force = self.force(plan);
        let booked = self.book(&ended, now);
        let (answer, effect) = self.answer_to(&force, &asker, ask, now)?;
        let effect = match effect {
            Effect::Stored => effect,
            _ if booked => self.stored(true)?,
            _ => effect,
        };
        Ok((answer, effect))
    }

    /// Books calls that have ended, with a write of their own.
    pub(super) fn book_apart(&mut self, ended: &[Ended], now: Millis) -> Result<Effect, Fault> {
        let booked = self.book(ended, now);
        self.stored(booked)
    }

    /// Whether any of them was not booked before.
    fn book(&mut self, ended: &[Ended], now: Millis) -> bool {
        let force = self.force.clone();
        let mut booked = false;
        for one in ended {
            if self.law.settle(now, &one.operation, one.outcome) == SettleResult::Settled {
                booked = true;
                if let Some(force) = &force {
                    self.law.note_took(now, &force.limits, one.took);
                }
            }
        }
        booked
    }

    fn answer_to(&mut self, force: &Force, asker: &Asker, ask: Ask, now: Millis) -> Done {
        if !is_about_the_past(&ask) && self.key_is_revoked(asker, now) {
            return Ok((Answer::KeyRevoked, Effect::None));
        }
        match ask {
            Ask::Hear => Ok((Answer::Done(true), Effect::None)),
            Ask::Admit(call) => self.admit(force, asker, call, now),
            Ask::Peek(call) => Ok(self.peek(force, asker, call, now)),
            Ask::TakeBack { returned, next } => {
                let next = next.filter(|_| !self.key_is_revoked(asker, now));
                self.take_back(force, &returned, next.as_ref(), now)
            }
            Ask::Settle {
                operation,
                outcome,
                took,
            } => {
                let ended = Ended {
                    operation,
                    outcome,
                    took,
                };
                let effect = self.book_apart(&[ended], now)?;
                Ok((Answer::Stands(self.snapshot(force, now)), effect))
            }
            Ask::Conclude { operation, outcome } => {
                let result = self.law.settle(now, &operation, outcome);
                let effect = self.stored(result == SettleResult::Settled)?;
                let known = result != SettleResult::Unknown;
                let standing = self.snapshot(force, now);
                Ok((Answer::Concluded { known, standing }, effect))
            }
            Ask::Checkpoint {
                operation,
                prompt,
                completion,
                lease,
            } => {
                let open = self
                    .law
                    .checkpoint(now, &operation, prompt, completion, lease);
                Ok((Answer::Done(open), self.stored(open)?))
            }
            Ask::View => Ok((Answer::Stands(self.snapshot(force, now)), Effect::None)),
            // Done before a plan was looked for.
            Ask::Adopt(_) | Ask::Revoke { .. } | Ask::Reconcile => {
                Ok((Answer::Done(false), Effect::None))
            }
            Ask::Reset(policies) => {
                self.law.reset(now, &force.limits, &policies);
                let effect = self.stored(true)?;
                Ok((Answer::Stands(self.snapshot(force, now)), effect))
            }
            Ask::Grant {
                policy,
                amount,
                expires_at,
            } => {
                match self
                    .law
                    .grant(now, &force.limits, policy, amount, expires_at)
                {
                    Ok(()) => {
                        let effect = self.stored(true)?;
                        Ok((Answer::Stands(self.snapshot(force, now)), effect))
                    }
                    Err(reason) => Ok((Answer::Refused(reason.to_string()), Effect::None)),
                }
            }
            Ask::BookOpen {
                operation,
                calls,
                prompt,
                completion,
                at,
            } => {
                let used = Metered { prompt, completion };
                let booked = self.book_open(&force.limits, &operation, calls, used, at, now);
                Ok((Answer::Done(booked), self.stored(booked)?))
            }
            Ask::NoteQueued(operation) => {
                let is_new = self.law.note_queued(now, &force.limits, &operation);
                Ok((Answer::Done(is_new), self.stored(is_new)?))
            }
            Ask::NoteRefused { operation, counts } => {
                Ok(self.note_refused(&force.limits, &operation, &counts, now))
            }
        }
    }

    fn admit(&mut self, force: &Force, asker: &Asker, call: limits::Call, now: Millis) -> Done {
        let call = with_lane(call, &force.plan);
        let verdict = if asker.silent {
            self.law.admit_silently(now, &force.limits, &call)
        } else {
            self.law.admit(now, &force.limits, &call)
        };
        let standing = self.snapshot(force, now);
        let passes = matches!(verdict, Verdict::Admitted(_));
        let lease = (passes && asker.may_lease)
            .then(|| self.law.lease(now, &force.limits, &call))
            .flatten();
        let effect = match verdict {
            Verdict::Admitted(_) | Verdict::Rejected(_) => self.stored(true)?,
            // A refusal is counted, but a flood of them must not cost a write each.
            Verdict::Refused(_) => {
                self.unsaved = true;
                Effect::Counted
            }
        };
        let holds = self
            .law
            .refusal_holds(now, &force.limits, &call, &verdict)
            .filter(|_| !may_wait(&force.plan, &verdict));
        let decided = Answer::Decided {
            verdict,
            standing,
            holds,
            lease,
        };
        Ok((decided, effect))
    }

    fn peek(
        &mut self,
        force: &Force,
        asker: &Asker,
        call: limits::Call,
        now: Millis,
    ) -> (Answer, Effect) {
        let call = with_lane(call, &force.plan);
        let verdict = self.law.peek(now, &force.limits, &call);
        let counts = !asker.silent && verdict.refused_by().is_some();
        if counts {
            self.law.count_refusal(now, &force.limits, &call, &verdict);
            self.unsaved = true;
        }
        let decided = Answer::Decided {
            verdict,
            standing: self.snapshot(force, now),
            holds: None,
            lease: None,
        };
        (
            decided,
            if counts {
                Effect::Counted
            } else {
                Effect::None
            },
        )
    }

    /// How the user stands is told without the lease that follows: whoever holds it knows what they hold.
    fn take_back(
        &mut self,
        force: &Force,
        returned: &Returned,
        next: Option<&OperationId>,
        now: Millis,
    ) -> Done {
        let is_new = self.law.take_back(now, &force.limits, returned);
        let standing = self.snapshot(force, now);
        let limits = &force.limits;
        let lease = next.and_then(|id| self.law.follow_on(now, limits, returned, is_new, id));
        let effect = self.stored(true)?;
        Ok((Answer::TakenBack { standing, lease }, effect))
    }

    /// They are counted like any other refusal: in memory, without a write of their own.
    fn note_refused(
        &mut self,
        limits: &Limits,
        operation: &OperationId,
        counts: &BTreeMap<String, u64>,
        now: Millis,
    ) -> (Answer, Effect) {
        let fresh = self.law.note_refused(now, limits, operation, counts);
        self.unsaved |= fresh;
        let effect = if fresh { Effect::Counted } else { Effect::None };
        (Answer::Done(fresh), effect)
    }

    /// Books calls that passed while this account was out of reach. It may have heard of such a call after
    /// all, when nobody waited for its answer any more: then that is the call to be settled.
    fn book_open(
        &mut self,
        limits: &Limits,
        operation: &OperationId,
        calls: u64,
        used: Metered,
        at: Millis,
        now: Millis,
    ) -> bool {
        let outcome = Outcome::Used {
            prompt: used.prompt,
            completion: used.completion,
            estimated: false,
        };
        match self.law.settle(now, operation, outcome) {
            // It was admitted, and so long ago that it is forgotten: it was settled, or ended by its lease.
            SettleResult::Unknown if calls == 0 => false,
            SettleResult::Unknown => self.law.book_open(now, limits, operation, calls, used, at),
            SettleResult::Settled => {
                self.law.note_failed_open(at, limits, calls);
                true
            }
            _ => false,
        }
    }

    fn snapshot(&self, force: &Force, now: Millis) -> Snapshot {
        Snapshot {
            now,
            plan_id: force.plan.plan_id.clone(),
            plan_name: force.plan.name.clone(),
            over_quota: force.plan.over_quota.clone(),
            on_outage: force.plan.on_outage,
            blocked: force.limits.blocked,
            allowed_models: force.plan.allowed_models.clone(),
            policies: self.law.view(now, &force.limits),
        }
    }

    fn stored(&mut self, changed: bool) -> Result<Effect, Fault> {
        if !changed {
            return Ok(Effect::None);
        }
        self.save()?;
        Ok(Effect::Stored)
    }
}

/// Whether it is about calls that passed before: they are booked whatever has become of the key since.
const fn is_about_the_past(ask: &Ask) -> bool {
    matches!(
        ask,
        Ask::Settle { .. }
            | Ask::Conclude { .. }
            | Ask::Checkpoint { .. }
            | Ask::TakeBack { .. }
            | Ask::Hear
    )
}

/// Whether a call that only a quota refuses becomes a job, or goes another way.
fn may_wait(plan: &Plan, verdict: &Verdict) -> bool {
    let Verdict::Refused(refusal) = verdict else {
        return false;
    };
    let quota = refusal.violations.iter().any(|v| v.policy.is_quota());
    quota && plan.over_quota.strategy != Strategy::Reject
}

/// The cheaper way, where the plan has one and the call names a model.
fn with_lane(mut call: limits::Call, plan: &Plan) -> limits::Call {
    let over = &plan.over_quota;
    if let (Strategy::Degrade, Some(model), Some(_)) =
        (over.strategy, &over.degrade_model, &call.model)
    {
        call.degrade = Some(DegradedLane {
            model: model.clone(),
            daily_limit: over.degrade_daily_limit,
            allowed_models: None,
        });
    }
    call
}
