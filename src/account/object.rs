//! The Durable Object around [`limits::Account`]: it loads, decides, stores and publishes. Between a
//! decision's first read and its last write nothing is awaited, which is what makes it atomic.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::try_join;
use serde::{Deserialize, Serialize};
use worker::{DurableObject, Env, Method, Request, Response, State, durable_object};

use super::restore;
use super::wire::{Answer, Ask, Asker, Counted, Drift, DriftKind, Message, Snapshot};
use crate::auth::provision;
use crate::clock;
use crate::http::limit_headers::rfc3339;
use crate::ledger::hot::Hot;
use crate::ledger::usage::{Published, Start};
use crate::ledger::{self, LedgerError, usage};
use crate::limits::{
    self, DegradedLane, Limits, Millis, OperationId, Outcome, PolicyName, Returned, SettleResult,
    Span, Verdict,
};
use crate::notify::{self, Notice};
use crate::plans::{Plan, Standing, Strategy, cache};
use crate::settings::{Settings, WindowDefault};

/// How far back days are read when an account starts from the ledger; late settlements are booked there.
const KEPT_DAYS: Span = Span::hours(72);
/// The plan of users who are created without one.
const DEFAULT_PLAN: &str = "free";
/// How soon the alarm hands over what the user has to be told.
const NEWS: Span = Span::seconds(1);
/// An alarm that is later than this was lost.
const ALARM_LATE: Span = Span::seconds(30);
/// How soon the alarm tries again when the ledger fails; twice as long after each failure.
const OUTBOX_RETRY: Span = Span::seconds(2);
/// How often that doubles.
const MAX_DOUBLINGS: u32 = 5;
/// How long a revoked key is remembered: longer than any cache believes in it.
const REVOKED_MEMORY: Span = Span::hours(24 * 7);
/// How soon an account that could not start from the ledger tries that again.
const START_RETRY: Span = Span::seconds(1);
/// How often a comparison with the ledger begins anew because calls came meanwhile.
const COMPARISONS: u32 = 4;
/// After this long without a call an account that has published everything frees its storage.
const IDLE: Span = Span::hours(24);

/// One user's account.
#[durable_object(alarm)]
pub struct Account {
    core: Core,
}

/// What the handlers share.
struct Core {
    state: State,
    env: Env,
    live: RefCell<Option<Live>>,
    armed_for: Cell<Option<Millis>>,
    failures: Cell<u32>,
    /// Until when the ledger is not asked for a start again.
    no_start_until: Cell<Millis>,
    /// Since when the oldest change waits for the ledger.
    waiting_since: Cell<Option<Millis>>,
}

/// The account in memory; dropped whenever it might not be what is stored.
struct Live {
    law: limits::Account,
    known: Known,
    hot: Hot,
    /// The limits in force, as long as nothing they come from has changed.
    force: Option<Rc<Force>>,
    /// The sliding window of plans that set none.
    window_default: Option<WindowDefault>,
    /// Refusals were counted, or the ledger has confirmed something: neither is worth a write of its own.
    unsaved: bool,
    known_unsaved: bool,
    /// How often the operator has told of a change since this was loaded.
    told: u64,
    /// The ledger's row as this account has last written or read it; `None`: not since it was loaded.
    published: Option<Published>,
}

/// How the user stands, as last told by the ledger or the operator.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Known {
    standing: Option<Standing>,
    /// Whose account this is: an alarm that wakes it is not told.
    #[serde(default)]
    user: String,
    #[serde(default)]
    revoked: BTreeMap<String, Millis>,
    /// What the user has to be told and the queue has not taken yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notices: Vec<Notice>,
}

/// A plan in force, and the limits that follow.
struct Force {
    source: Rc<Plan>,
    version: u64,
    plan: Plan,
    limits: Limits,
}

/// Why the account can't answer.
enum Fault {
    /// Its storage is empty and the ledger is out: it would start from zero.
    NotReady,
    /// Its own storage failed; what is in memory is not to be trusted.
    Storage(worker::Error),
}

impl From<worker::Error> for Fault {
    fn from(error: worker::Error) -> Self {
        Self::Storage(error)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotReady => f.write_str("the ledger is out of reach"),
            Self::Storage(_) => f.write_str("the account's own storage failed"),
        }
    }
}

impl From<LedgerError> for Fault {
    fn from(_: LedgerError) -> Self {
        Self::NotReady
    }
}

impl DurableObject for Account {
    fn new(state: State, env: Env) -> Self {
        let core = Core {
            state,
            env,
            live: RefCell::new(None),
            armed_for: Cell::new(None),
            failures: Cell::new(0),
            no_start_until: Cell::new(Millis(0)),
            waiting_since: Cell::new(None),
        };
        Self { core }
    }

    async fn fetch(&self, mut request: Request) -> worker::Result<Response> {
        if request.method() != Method::Post {
            return Response::error("POST only", 405);
        }
        let message: Message = match serde_json::from_slice(&request.bytes().await?) {
            Ok(message) => message,
            Err(e) => return Response::from_json(&Answer::Refused(e.to_string())),
        };
        match self.core.answer(message).await {
            Ok(answer) => Response::from_json(&answer),
            Err(Fault::NotReady) => Response::from_json(&Answer::NotReady),
            Err(Fault::Storage(error)) => {
                self.core.live.replace(None);
                Err(error)
            }
        }
    }

    async fn alarm(&self) -> worker::Result<Response> {
        self.core.armed_for.set(None);
        if let Err(Fault::Storage(error)) = self.core.wake().await {
            self.core.live.replace(None);
            return Err(error);
        }
        Response::empty()
    }
}

impl Core {
    fn now(&self) -> Millis {
        clock::now(&Settings::of(&self.env))
    }

    async fn answer(&self, message: Message) -> Result<Answer, Fault> {
        let Message {
            user, asker, ask, ..
        } = message;
        self.load(&user).await?;
        self.with_live(|live, _| live.belongs_to(&user))?;
        if ask == Ask::Reconcile {
            return self.reconcile(&user).await;
        }
        // These need no plan: what is adopted may lead away from one that is gone.
        if matches!(ask, Ask::Adopt(_) | Ask::Revoke { .. }) {
            let answer = self.without_plan(ask, &user)?;
            if self.with_live(|live, _| !live.known.notices.is_empty())? {
                self.after(Effect::Stored).await?;
            }
            return Ok(answer);
        }
        if !self.knows_user()? && !self.look_for_user(&user, &asker).await? {
            return Ok(Answer::NoRoom);
        }
        let Some(plan_id) = self.plan_id(&asker) else {
            return self.without_plan(ask, &user);
        };
        let Some(plan) = cache::plan(&self.env, &plan_id, self.now()).await? else {
            return Ok(Answer::NoSuchPlan);
        };
        let answer = self.with_live(|live, now| live.answer(plan, &asker, ask, now))?;
        let (answer, effect) = answer?;
        self.after(effect).await?;
        Ok(answer)
    }

    /// What an account without a user or a plan can still be told.
    fn without_plan(&self, ask: Ask, user: &str) -> Result<Answer, Fault> {
        match ask {
            Ask::Adopt(standing) => self.with_live(|live, now| live.adopt(standing, user, now))?,
            Ask::Revoke { key_id, at } => {
                self.with_live(|live, now| live.revoke(key_id, at, now))?
            }
            _ => Ok(Answer::NoSuchUser),
        }
    }

    /// The alarm publishes: one transaction for all that changes until then, and nobody waits in memory.
    async fn after(&self, effect: Effect) -> Result<(), Fault> {
        if effect == Effect::None {
            return Ok(());
        }
        if self.waiting_since.get().is_none() {
            self.waiting_since.set(Some(self.now()));
        }
        let delay = Settings::of(&self.env).ledger_delay;
        let has_news = self.with_live(|live, _| live.has_news())?;
        self.arm(if has_news { delay.min(NEWS) } else { delay })
            .await
    }

    fn with_live<T>(&self, act: impl FnOnce(&mut Live, Millis) -> T) -> Result<T, Fault> {
        let now = self.now();
        let mut slot = self.live.borrow_mut();
        slot.as_mut()
            .map(|live| act(live, now))
            .ok_or(Fault::NotReady)
    }

    fn knows_user(&self) -> Result<bool, Fault> {
        self.with_live(|live, _| live.known.standing.is_some())
    }

    fn plan_id(&self, asker: &Asker) -> Option<String> {
        let slot = self.live.borrow();
        let standing = slot.as_ref()?.known.standing.as_ref()?;
        Some(
            asker
                .plan_claim
                .clone()
                .unwrap_or_else(|| standing.plan_id.clone()),
        )
    }

    /// Brings the account into memory: from its own storage, or, if that is empty, from the ledger.
    async fn load(&self, user: &str) -> Result<(), Fault> {
        if self.load_stored()? {
            return Ok(());
        }
        let (standing, (start, days)) = self.start_from_ledger(user).await?;
        // Another message may have loaded it meanwhile, and even charged it.
        if self.live.borrow().is_none() {
            let hot = Hot::open(&self.state.storage())?;
            let known = Known {
                standing,
                ..Known::default()
            };
            let published = start.as_ref().map(published);
            let law = restore::from_ledger(start, days);
            self.live.replace(Some(Live {
                published,
                ..self.live(law, known, hot)
            }));
        }
        Ok(())
    }

    /// What the ledger knows of the user. After it failed, whoever comes next is not kept waiting for it.
    async fn start_from_ledger(&self, user: &str) -> Result<(Option<Standing>, FromLedger), Fault> {
        let now = self.now();
        if now < self.no_start_until.get() {
            return Err(Fault::NotReady);
        }
        let since = rfc3339(now.minus(KEPT_DAYS));
        let since = since.get(..10).unwrap_or_default();
        let standing = ledger::users::standing(&self.env, user);
        let read = try_join(standing, usage::start(&self.env, user, since)).await;
        if read.is_err() {
            self.no_start_until.set(self.now().plus(START_RETRY));
        }
        Ok(read?)
    }

    /// Whether the account is in memory now, without asking the ledger.
    fn load_stored(&self) -> Result<bool, Fault> {
        if self.live.borrow().is_some() {
            return Ok(true);
        }
        let hot = Hot::open(&self.state.storage())?;
        let Some(stored) = hot.load()? else {
            return Ok(false);
        };
        let law = restore::from_storage(&stored)
            .map_err(|e| worker::Error::from(format!("the stored account can't be read: {e}")))?;
        let known = serde_json::from_slice(&stored.standing).unwrap_or_default();
        self.live.replace(Some(Live {
            known_unsaved: false,
            ..self.live(law, known, hot)
        }));
        Ok(true)
    }

    fn live(&self, law: limits::Account, known: Known, hot: Hot) -> Live {
        Live {
            law,
            known,
            hot,
            force: None,
            window_default: Settings::of(&self.env).window,
            unsaved: false,
            known_unsaved: true,
            told: 0,
            published: None,
        }
    }

    /// Somebody who wasn't there when this account was loaded may have been created since.
    /// `false`: too many were created within this minute.
    async fn look_for_user(&self, user: &str, asker: &Asker) -> Result<bool, Fault> {
        let told = self.with_live(|live, _| live.told)?;
        let mut standing = ledger::users::standing(&self.env, user).await?;
        if standing.is_none() && asker.provision {
            if !provision::may_provision(self.now()) {
                return Ok(false);
            }
            self.provision(user, asker).await?;
            standing = ledger::users::standing(&self.env, user).await?;
        }
        self.with_live(|live, _| {
            // What was read is older than what the operator has said meanwhile.
            if live.told == told {
                live.known.standing = standing;
                live.known_unsaved = true;
            }
            true
        })
    }

    async fn provision(&self, user: &str, asker: &Asker) -> Result<(), Fault> {
        let claimed = asker.plan_claim.as_deref().unwrap_or(DEFAULT_PLAN);
        let plan = match cache::plan(&self.env, claimed, self.now()).await? {
            Some(_) => claimed,
            None => DEFAULT_PLAN,
        };
        let now = rfc3339(self.now());
        ledger::users::provision(&self.env, user, plan, &now).await?;
        Ok(())
    }

    /// Hands what the user has to be told to the queue. A notice is stored until the queue has taken it.
    async fn hand_over_notices(&self, user: &str) -> Result<(), Fault> {
        for notice in self.with_live(|live, now| live.unsent(user, now))?? {
            notify::send(&self.env, &notice)
                .await
                .map_err(|_| Fault::NotReady)?;
            self.with_live(|live, _| live.sent(&notice.id))??;
        }
        Ok(())
    }

    /// Publishes what the ledger has not seen; `false` if there was nothing.
    async fn publish(&self, user: &str) -> Result<bool, Fault> {
        if !self.with_live(|live, _| live.law.has_unflushed())? {
            return Ok(false);
        }
        if !self.with_live(|live, _| live.force.is_some())? {
            self.find_force().await?;
        }
        let Some(mut batch) = self.with_live(Live::unpublished)?? else {
            return Ok(false);
        };
        let now = self.now();
        let waiting = self.waiting_since.take();
        let meant = Settings::of(&self.env).ledger_delay;
        batch.quotas.lag_ms = waiting.map_or(0, |since| now.since(since.plus(meant)).0);
        let Batch {
            quotas,
            days,
            published,
        } = &batch;
        let done = usage::publish(&self.env, user, quotas, days, *published, &rfc3339(now)).await;
        let adopted = match done {
            Ok(true) => Ok(false),
            Ok(false) => self.adopt_edit(user, &batch).await,
            Err(e) => Err(e.into()),
        };
        if adopted.is_err() {
            self.waiting_since.set(waiting.or(Some(now)));
        }
        if !adopted? {
            self.with_live(|live, _| live.published_as(quotas))?;
        }
        Ok(true)
    }

    /// The ledger did not take the counters: either it has them already, or somebody has written others
    /// into it. Whether it was that; what was used since they were last published is added to them.
    async fn adopt_edit(&self, user: &str, batch: &Batch) -> Result<bool, Fault> {
        let row = usage::row(&self.env, user).await?.ok_or(Fault::NotReady)?;
        let is_edit = |before: &Published| row.seq == before.seq && published(&row) != *before;
        let Some(before) = batch.published.filter(is_edit) else {
            // Neither: then it said it had written what it hasn't.
            return if row.seq < batch.quotas.seq {
                Err(Fault::NotReady)
            } else {
                Ok(false)
            };
        };
        let account = self.with_live(|live, now| live.adopt_row(&row, before, now))??;
        let drift = Drift {
            kind: DriftKind::LedgerEdited,
            account,
            ledger: Some(counted(&row)),
        };
        // Only the report of it can be lost.
        let _ = ledger::reconcile::note(&self.env, user, &drift, self.now()).await;
        Ok(true)
    }

    /// Compares the account with the ledger and mends what differs. A comparison holds only if no call
    /// came while the row was read.
    async fn reconcile(&self, user: &str) -> Result<Answer, Fault> {
        for _ in 0..COMPARISONS {
            self.publish(user).await?;
            let flushed = self.with_live(|live, _| live.law.flushed_seq())?;
            let row = usage::row(&self.env, user).await?;
            let drift = self.with_live(|live, now| live.compare(row.as_ref(), flushed, now))??;
            let Some(drift) = drift else {
                continue;
            };
            if drift.kind.is_drift() {
                self.after(Effect::Stored).await?;
            }
            return Ok(Answer::Reconciled(drift));
        }
        let account = self.with_live(|live, now| live.counted(now))?;
        Ok(Answer::Reconciled(Drift {
            kind: DriftKind::Busy,
            account,
            ledger: None,
        }))
    }

    /// After a start by the alarm nothing has said yet which plan is in force.
    async fn find_force(&self) -> Result<(), Fault> {
        let plan_id = self.plan_id(&Asker::default()).ok_or(Fault::NotReady)?;
        let plan = cache::plan(&self.env, &plan_id, self.now()).await?;
        let plan = plan.ok_or(Fault::NotReady)?;
        self.with_live(|live, _| live.force(plan)).map(|_| ())
    }

    /// What the alarm is for: the outbox, leases that nobody ended, and making room.
    async fn wake(&self) -> Result<(), Fault> {
        if !self.load_stored()? {
            return Ok(());
        }
        let user = self.user()?;
        self.with_live(|live, now| live.reclaim(now))??;
        let told = self.hand_over_notices(&user).await;
        if let Err(fault) = self.publish(&user).await.and(told) {
            worker::console_warn!("{{\"event\":\"outbox_waits\",\"why\":\"{fault}\"}}");
            let failures = self.failures.get();
            self.failures
                .set(failures.saturating_add(1).min(MAX_DOUBLINGS));
            return self.arm(Span(OUTBOX_RETRY.0 << failures)).await;
        }
        self.failures.set(0);
        self.with_live(|live, _| live.save_rest())??;
        let delay = Settings::of(&self.env).ledger_delay;
        match self.with_live(|live, now| live.next_wake(delay, now))? {
            Some(wait) => self.arm(wait).await,
            None => self.forget_everything().await,
        }
    }

    /// Accounts that were stored before they knew whose they are have the name they were made under.
    fn user(&self) -> Result<String, Fault> {
        let known = self.with_live(|live, _| live.known.user.clone())?;
        if !known.is_empty() {
            return Ok(known);
        }
        self.state.id().name().ok_or(Fault::NotReady)
    }

    /// An account nobody uses costs nothing: the ledger knows where it has to start again.
    async fn forget_everything(&self) -> Result<(), Fault> {
        self.live.replace(None);
        self.state.storage().delete_all().await?;
        Ok(())
    }

    async fn arm(&self, wait: Span) -> Result<(), Fault> {
        let now = self.now();
        let at = now.plus(wait);
        let is_soon = |armed: Millis| armed <= at && now.since(armed) < ALARM_LATE;
        if self.armed_for.get().is_some_and(is_soon) {
            return Ok(());
        }
        self.armed_for.set(Some(at));
        self.state
            .storage()
            .set_alarm(Duration::from_millis(wait.0))
            .await?;
        Ok(())
    }
}

/// What remains to be done after an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Effect {
    /// Nothing changed.
    None,
    /// Something was counted in memory only.
    Counted,
    /// The account was stored, and the ledger has to hear of it.
    Stored,
}

/// What the ledger has not seen yet.
struct Batch {
    quotas: usage::Quotas,
    days: Vec<usage::Day>,
    /// The row it follows on.
    published: Option<Published>,
}

/// The counters and the days that an account starts from.
type FromLedger = (Option<Start>, Vec<usage::Day>);

type Done = Result<(Answer, Effect), Fault>;

impl Live {
    fn answer(&mut self, plan: Rc<Plan>, asker: &Asker, ask: Ask, now: Millis) -> Done {
        if !is_about_the_past(&ask) && self.key_is_revoked(asker, now) {
            return Ok((Answer::KeyRevoked, Effect::None));
        }
        let force = self.force(plan);
        match ask {
            Ask::Admit(call) => self.admit(&force, asker, call, now),
            Ask::TakeBack { returned, next } => {
                let next = next.filter(|_| !self.key_is_revoked(asker, now));
                self.take_back(&force, &returned, next.as_ref(), now)
            }
            Ask::Peek(call) => {
                let verdict =
                    self.law
                        .clone()
                        .admit(now, &force.limits, &with_lane(call, &force.plan));
                let standing = self.snapshot(&force, now);
                let decided = Answer::Decided {
                    verdict,
                    standing,
                    holds: None,
                    lease: None,
                };
                Ok((decided, Effect::None))
            }
            Ask::Settle {
                operation,
                outcome,
                took,
            } => {
                let settled = self.law.settle(now, &operation, outcome) == SettleResult::Settled;
                if settled {
                    self.law.note_took(now, &force.limits, took);
                }
                let effect = self.stored(settled)?;
                Ok((Answer::Stands(self.snapshot(&force, now)), effect))
            }
            Ask::Conclude { operation, outcome } => {
                let result = self.law.settle(now, &operation, outcome);
                let effect = self.stored(result == SettleResult::Settled)?;
                let known = result != SettleResult::Unknown;
                let standing = self.snapshot(&force, now);
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
            Ask::View => Ok((Answer::Stands(self.snapshot(&force, now)), Effect::None)),
            // Done before a plan was looked for.
            Ask::Adopt(_) | Ask::Revoke { .. } | Ask::Reconcile => {
                Ok((Answer::Done(false), Effect::None))
            }
            Ask::Reset(policies) => {
                self.law.reset(now, &force.limits, &policies);
                let effect = self.stored(true)?;
                Ok((Answer::Stands(self.snapshot(&force, now)), effect))
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
                        Ok((Answer::Stands(self.snapshot(&force, now)), effect))
                    }
                    Err(reason) => Ok((Answer::Refused(reason.to_string()), Effect::None)),
                }
            }
            Ask::BookOpen {
                operation,
                calls,
                prompt,
                completion,
            } => {
                let booked =
                    self.book_open(&force.limits, &operation, [calls, prompt, completion], now);
                Ok((Answer::Done(booked), self.stored(booked)?))
            }
            Ask::NoteQueued => {
                self.law.note_queued(now, &force.limits);
                Ok((Answer::Done(true), self.stored(true)?))
            }
            Ask::NoteRefused { operation, counts } => {
                Ok(self.note_refused(&force.limits, &operation, &counts, now))
            }
        }
    }

    fn admit(&mut self, force: &Force, asker: &Asker, call: limits::Call, now: Millis) -> Done {
        let call = with_lane(call, &force.plan);
        let verdict = self.law.admit(now, &force.limits, &call);
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

    /// How the user stands is told without the lease that follows: whoever holds it knows what they hold.
    fn take_back(
        &mut self,
        force: &Force,
        returned: &Returned,
        next: Option<&OperationId>,
        now: Millis,
    ) -> Done {
        self.law.take_back(now, &force.limits, returned);
        let standing = self.snapshot(force, now);
        let lease = next.and_then(|id| self.law.follow_on(now, &force.limits, returned, id));
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
        [calls, prompt, completion]: [u64; 3],
        now: Millis,
    ) -> bool {
        let outcome = Outcome::Used {
            prompt,
            completion,
            estimated: false,
        };
        match self.law.settle(now, operation, outcome) {
            SettleResult::Unknown => self
                .law
                .book_open(now, limits, operation, calls, prompt, completion),
            SettleResult::Settled => {
                self.law.note_failed_open(now, limits, calls);
                true
            }
            _ => false,
        }
    }

    fn belongs_to(&mut self, user: &str) {
        if self.known.user != user {
            user.clone_into(&mut self.known.user);
            self.known_unsaved = true;
        }
    }

    /// Whether the user has to be told something.
    fn has_news(&self) -> bool {
        !self.known.notices.is_empty() || self.law.has_crossings()
    }

    /// What the ledger has not seen. What is published is stored first: a stored account must never be
    /// behind the ledger.
    fn unpublished(&mut self, now: Millis) -> Result<Option<Batch>, Fault> {
        let Some(force) = self.force.clone() else {
            return Ok(None);
        };
        self.save_rest()?;
        let snapshot = self.law.quota_snapshot(now);
        Ok(Some(Batch {
            quotas: usage::Quotas {
                plan_id: force.plan.plan_id.clone(),
                daily_limit: force.limits.daily,
                used_today: snapshot.daily_used,
                day_since_ms: snapshot.day.start.0,
                reset_at: rfc3339(snapshot.day.end),
                monthly_token_limit: force.limits.monthly_tokens,
                tokens_used_this_month: snapshot.monthly_used,
                month_since_ms: snapshot.month.start.0,
                month_reset_at: rfc3339(snapshot.month.end),
                seq: snapshot.seq,
                lag_ms: 0,
                beyond: BASE64.encode(self.law.beyond()),
            },
            published: self.published,
            days: self.law.unflushed().iter().map(restore::day).collect(),
        }))
    }

    fn published_as(&mut self, quotas: &usage::Quotas) {
        self.law.flushed(quotas.seq);
        self.unsaved = true;
        self.published = Some(Published {
            used_today: quotas.used_today,
            tokens_used_this_month: quotas.tokens_used_this_month,
            seq: quotas.seq,
        });
    }

    fn counted(&self, now: Millis) -> Counted {
        let stands = self.law.quota_snapshot(now);
        Counted {
            used_today: stands.daily_used,
            tokens_used_this_month: stands.monthly_used,
            seq: stands.seq,
        }
    }

    /// How the account differs from the ledger's row, which was read when the ledger had seen everything
    /// up to `flushed`; `None`: calls came meanwhile.
    fn compare(
        &mut self,
        row: Option<&Start>,
        flushed: u64,
        now: Millis,
    ) -> Result<Option<Drift>, Fault> {
        let account = self.counted(now);
        let seen = row.map_or(0, |row| row.seq);
        let kind = if seen < flushed {
            self.law.tell_again(seen);
            DriftKind::LedgerBehind
        } else if seen > account.seq {
            self.catch_up(row, now);
            DriftKind::AccountBehind
        } else if seen < account.seq {
            return Ok(None);
        } else {
            let told = Published {
                used_today: account.used_today,
                tokens_used_this_month: account.tokens_used_this_month,
                seq: account.seq,
            };
            match row {
                Some(row) if self.differs(row, now) => {
                    self.adopt_row(row, told, now)?;
                    DriftKind::LedgerEdited
                }
                _ => DriftKind::None,
            }
        };
        if kind.is_drift() {
            self.published = row.map(published);
            self.save()?;
        }
        Ok(Some(Drift {
            kind,
            account,
            ledger: row.map(counted),
        }))
    }

    /// Whether the row has other numbers for the periods that run; those of others interest nobody.
    fn differs(&self, row: &Start, now: Millis) -> bool {
        let stands = self.law.quota_snapshot(now);
        (row.day_since_ms == stands.day.start.0 && row.used_today != stands.daily_used)
            || (row.month_since_ms == stands.month.start.0
                && row.tokens_used_this_month != stands.monthly_used)
    }

    /// Takes the ledger's numbers, and adds what was used since the account had published `told`.
    fn adopt_row(&mut self, row: &Start, told: Published, now: Millis) -> Result<Counted, Fault> {
        let before = self.counted(now);
        let stands = self.law.quota_snapshot(now);
        if row.day_since_ms == stands.day.start.0 && row.used_today != told.used_today {
            let since = stands.daily_used.saturating_sub(told.used_today);
            self.law
                .set_used(&PolicyName::Daily, row.used_today.saturating_add(since));
        }
        if row.month_since_ms == stands.month.start.0
            && row.tokens_used_this_month != told.tokens_used_this_month
        {
            let since = stands
                .monthly_used
                .saturating_sub(told.tokens_used_this_month);
            let used = row.tokens_used_this_month.saturating_add(since);
            self.law.set_used(&PolicyName::MonthlyTokens, used);
        }
        self.published = Some(published(row));
        self.save()?;
        Ok(before)
    }

    /// The account has forgotten what it had told the ledger: neither side's use is lost.
    fn catch_up(&mut self, row: Option<&Start>, now: Millis) {
        let Some(row) = row else {
            return;
        };
        let stands = self.law.quota_snapshot(now);
        if row.day_since_ms == stands.day.start.0 {
            self.law
                .set_used(&PolicyName::Daily, row.used_today.max(stands.daily_used));
        }
        if row.month_since_ms == stands.month.start.0 {
            let used = row.tokens_used_this_month.max(stands.monthly_used);
            self.law.set_used(&PolicyName::MonthlyTokens, used);
        }
        self.law.tell_again(row.seq);
    }

    /// What the user has to be told; thresholds that were passed are taken up first.
    fn unsent(&mut self, user: &str, now: Millis) -> Result<Vec<Notice>, Fault> {
        let crossings = self.law.take_crossings();
        if !crossings.is_empty() {
            let notices = crossings
                .iter()
                .map(|crossing| Notice::threshold(user, crossing, now));
            self.known.notices.extend(notices);
            self.known_unsaved = true;
            self.save()?;
        }
        Ok(self.known.notices.clone())
    }

    fn sent(&mut self, id: &str) -> Result<(), Fault> {
        self.known.notices.retain(|notice| notice.id != id);
        self.known_unsaved = true;
        self.save()
    }

    fn reclaim(&mut self, now: Millis) -> Result<(), Fault> {
        if self.law.reclaim(now) {
            self.save()?;
        }
        Ok(())
    }

    /// How long until there is something to do again; `None`: the account may be forgotten.
    fn next_wake(&mut self, ledger_delay: Span, now: Millis) -> Option<Span> {
        if !self.known.notices.is_empty() {
            return Some(OUTBOX_RETRY);
        }
        if self.law.has_unflushed() {
            return Some(ledger_delay);
        }
        if let Some(end) = self.law.next_lease_end() {
            return Some(end.since(now).max(Span::seconds(1)));
        }
        let remembered = |at: &Millis| now.since(*at) < REVOKED_MEMORY;
        match self.law.idle_since(now) {
            _ if self.known.revoked.values().any(remembered) => Some(IDLE),
            Some(since) if now.since(since) >= IDLE => None,
            _ => Some(IDLE),
        }
    }

    fn key_is_revoked(&self, asker: &Asker, now: Millis) -> bool {
        let revoked = asker
            .key_id
            .as_ref()
            .and_then(|id| self.known.revoked.get(id));
        revoked.is_some_and(|at| *at <= now)
    }

    fn revoke(&mut self, key_id: String, at: Millis, now: Millis) -> Result<Answer, Fault> {
        self.known
            .revoked
            .retain(|_, revoked| now.since(*revoked) < REVOKED_MEMORY);
        self.known.revoked.insert(key_id, at);
        self.known_unsaved = true;
        self.save()?;
        Ok(Answer::Done(true))
    }

    /// An older version of the user's row never replaces a newer one.
    fn adopt(
        &mut self,
        standing: Option<Standing>,
        user: &str,
        now: Millis,
    ) -> Result<Answer, Fault> {
        let newer = match (&self.known.standing, &standing) {
            (Some(known), Some(told)) => told.version >= known.version,
            _ => true,
        };
        if newer {
            self.told += 1;
            self.note_block(standing.as_ref(), user, now);
            self.known.standing = standing;
            self.force = None;
            self.known_unsaved = true;
            self.save()?;
        }
        Ok(Answer::Done(newer))
    }

    /// A user who is blocked from now on is told so. An account that has just read the row that it is told
    /// of can't know; telling twice is telling once.
    fn note_block(&mut self, told: Option<&Standing>, user: &str, now: Millis) {
        let Some(told) = told.filter(|told| told.is_blocked()) else {
            return;
        };
        let before = self.known.standing.as_ref();
        if before.is_none_or(|b| !b.is_blocked() || b.version == told.version) {
            self.known
                .notices
                .push(Notice::blocked(user, told.version, now));
        }
    }

    /// The limits in force; made anew when the plan or the user's row has changed. Overrides that no
    /// longer fit an edited plan are passed over: the plan alone holds.
    fn force(&mut self, source: Rc<Plan>) -> Rc<Force> {
        let standing = self.known.standing.as_ref();
        let version = standing.map_or(0, |s| s.version);
        if let Some(force) = &self.force
            && Rc::ptr_eq(&force.source, &source)
            && force.version == version
        {
            return force.clone();
        }
        let plan = standing
            .and_then(|s| s.effective(&source).ok())
            .unwrap_or_else(|| (*source).clone());
        let blocked = standing.is_some_and(Standing::is_blocked);
        let limits = plan.limits(self.window_default, blocked);
        let force = Rc::new(Force {
            source,
            version,
            plan,
            limits,
        });
        self.force = Some(force.clone());
        force
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

    /// Stores what was not worth a write of its own.
    fn save_rest(&mut self) -> Result<(), Fault> {
        if self.unsaved {
            self.save()?;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), Fault> {
        let changes = self.law.take_changes();
        for page in changes.pages_written {
            self.hot.save_page(page.key.to_string(), page.bytes)?;
        }
        for key in changes.pages_dropped {
            self.hot.drop_page(key.to_string())?;
        }
        if self.known_unsaved {
            let body = serde_json::to_vec(&self.known).map_err(worker::Error::from)?;
            self.hot.save_standing(body)?;
        }
        self.hot.save_account(self.law.encode())?;
        self.unsaved = false;
        self.known_unsaved = false;
        Ok(())
    }
}

fn published(row: &Start) -> Published {
    Published {
        used_today: row.used_today,
        tokens_used_this_month: row.tokens_used_this_month,
        seq: row.seq,
    }
}

fn counted(row: &Start) -> Counted {
    Counted {
        used_today: row.used_today,
        tokens_used_this_month: row.tokens_used_this_month,
        seq: row.seq,
    }
}

/// Whether it is about calls that passed before: they are booked whatever has become of the key since.
const fn is_about_the_past(ask: &Ask) -> bool {
    matches!(
        ask,
        Ask::Settle { .. } | Ask::Conclude { .. } | Ask::Checkpoint { .. } | Ask::TakeBack { .. }
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
