use futures::channel::oneshot;

use crate::account::client::{self, OutOfReach};
use crate::account::wire::{Answer, Ask, Asker, Snapshot};
use crate::account::{leases, open, refusals};
use crate::auth::{self, Caller};
use crate::clock;
use crate::http::limit_headers::{Meters, Refused};
use crate::http::router::Call;
use crate::http::{ApiError, Reply, Shape, ids};
use crate::limits::{
    self, Admission, Cause, Lane, Millis, OperationId, PolicyName, Rejection, Span, Verdict, Work,
};
use crate::observe::Stage;

/// One authenticated call of the data plane: who calls, and what its answer will say of limits.
pub struct Session {
    /// The call.
    pub call: Call,
    /// Who calls.
    pub caller: Caller,
    /// How the user stands, once their account was asked.
    pub standing: Option<Snapshot>,
    /// What a refusal out of memory says of other calls.
    pub(super) sure: Option<refusals::Sure>,
    meters: Option<Meters>,
    decision: &'static str,
    shadow: Vec<PolicyName>,
}

/// A call that may be dispatched.
pub struct Pass {
    /// What to settle or release; `None` while the account store is out.
    pub operation: Option<OperationId>,
    /// What to book once it is back, in that case.
    pub passed_open: Option<OperationId>,
    /// The completion bound to send upstream, per choice.
    pub max_tokens: Option<u64>,
    /// Tokens it may use in all; `None` is unlimited.
    pub budget: Option<u64>,
    /// The cheaper model it goes to instead.
    pub degraded_to: Option<String>,
}

impl Pass {
    /// What an admission lets a call do.
    pub fn of(admission: Admission, standing: &Snapshot) -> Self {
        let degraded_to = match admission.lane {
            Lane::Main => None,
            Lane::Degraded => standing.over_quota.degrade_model.clone(),
        };
        Self {
            operation: admission.reservation,
            passed_open: None,
            max_tokens: admission.max_tokens,
            budget: admission.reserved_tokens,
            degraded_to,
        }
    }
}

/// How long a reservation outlives the time a provider has for its first byte.
const LEASE_MARGIN: Span = Span::seconds(30);

impl Session {
    /// Authenticates a call.
    pub async fn open(call: Call) -> Result<Self, ApiError> {
        let caller = auth::authenticate(&call.request, &call.env, &call.settings, call.now).await?;
        Ok(Self {
            call,
            caller,
            standing: None,
            sure: None,
            meters: None,
            decision: "allowed",
            shadow: Vec::new(),
        })
    }

    /// The call's answer, with what it says of limits.
    pub fn close(&self, outcome: Result<Reply, ApiError>) -> Reply {
        let mut reply = self.closed(outcome);
        reply.notes.plan = self
            .standing
            .as_ref()
            .map(|standing| standing.plan_id.clone());
        reply
    }

    fn closed(&self, outcome: Result<Reply, ApiError>) -> Reply {
        let shape = self.call.shape;
        let mut reply = match &outcome {
            Err(ApiError::Refused(refused)) => {
                let mut reply = ApiError::Refused(refused.clone()).reply(shape, &self.call.id);
                reply.set_all(refused.headers(self.family()));
                reply.set("x-sluice-decision", "refused");
                reply.notes.policy = refused.policies().next().map(ToString::to_string);
                return reply;
            }
            Err(error) => error.reply(shape, &self.call.id),
            Ok(_) => match outcome {
                Ok(reply) => reply,
                Err(error) => error.reply(shape, &self.call.id),
            },
        };
        if let Some(meters) = &self.meters {
            reply.set_all(meters.headers(self.family()));
            reply.set("x-sluice-decision", self.decision);
        }
        if !self.shadow.is_empty() {
            let names: Vec<_> = self.shadow.iter().map(ToString::to_string).collect();
            reply.set("x-sluice-shadow", names.join(", "));
        }
        reply
    }

    /// Counts a call whose input is wrong against the short limits, and gives the error to answer: the
    /// input's, unless a limit refuses.
    pub async fn input_error(&mut self, endpoint: Option<&str>, error: ApiError) -> ApiError {
        match self.arrive(endpoint).await {
            Ok(()) => error,
            Err(refused) => refused,
        }
    }

    /// Counts a call that dispatches nothing chargeable.
    pub async fn arrive(&mut self, endpoint: Option<&str>) -> Result<(), ApiError> {
        let call = limits::Call {
            operation: self.operation()?,
            work: Work::Arrival,
            cost: 1,
            endpoint: endpoint.map(str::to_owned),
            model: None,
            degrade: None,
            lease: Span::ZERO,
        };
        self.admit(call).await.map(|_| ())
    }

    /// Whether a call of this gateway's own making may be dispatched: by the account's word, or by the
    /// refusal that it was sure of a moment ago.
    pub async fn admit(&mut self, call: limits::Call) -> Result<Pass, ApiError> {
        let (user, asker) = (&self.caller.user_id, self.asker());
        let now = clock::now(&self.call.settings);
        if let Some((admission, standing)) = leases::admit(user, &asker, &call, now) {
            return self.apply(Verdict::Admitted(admission), standing);
        }
        if let Some(recalled) = refusals::recall(user, &asker, &call, now) {
            if recalled.begins {
                let counted = refusals::hand_over(self.call.env.clone(), user.clone());
                self.call.context.wait_until(counted);
            }
            self.sure = recalled.sure;
            return self.apply(recalled.verdict, recalled.standing);
        }
        if leases::is_lost(user, &asker, now) {
            self.keep_lease();
        }
        let leases = self.call.settings.leases;
        let departure = leases.then(|| leases::depart(user, &asker, now)).flatten();
        let operation = call.operation.clone();
        let decided = self.ask_to_pass(call, departure).await;
        if let Err(ApiError::Unavailable(_)) = decided {
            self.give_back(operation);
        }
        decided
    }

    /// Looks after the lease that this isolate holds for the caller, beyond this call.
    fn keep_lease(&self) {
        let (env, user) = (self.call.env.clone(), self.caller.user_id.clone());
        let keep = leases::keep(env, user, self.asker());
        self.call.context.wait_until(keep);
    }

    /// Asks the account whether a call may be dispatched that somebody else makes. They may ask again under the same id,
    /// so that nothing is given back where no answer came.
    pub async fn decide(&mut self, call: limits::Call) -> Result<Pass, ApiError> {
        self.ask_to_pass(call, None).await
    }

    async fn ask_to_pass(
        &mut self,
        call: limits::Call,
        for_lease: Option<leases::Departure>,
    ) -> Result<Pass, ApiError> {
        let departure = refusals::depart(clock::now(&self.call.settings));
        let mut answer = match for_lease {
            Some(departure) => self.ask_for_lease(call.clone(), departure).await,
            None => self.ask(Ask::Admit(call.clone())).await,
        };
        for _ in 0..HELD_RETRIES {
            if !answer.as_ref().is_ok_and(only_held) {
                break;
            }
            worker::Delay::from(HELD_PAUSE).await;
            answer = self.ask(Ask::Admit(call.clone())).await;
        }
        match answer {
            Ok(Answer::Decided {
                verdict,
                standing,
                holds,
                ..
            }) => {
                if let Some(holds) = holds {
                    let heard = clock::now(&self.call.settings);
                    let who = (self.caller.user_id.as_str(), &self.asker());
                    refusals::remember(departure, heard, who, &call, &verdict, &standing, holds);
                }
                self.apply(verdict, standing)
            }
            Ok(other) => Err(self.denied(&other)),
            Err(OutOfReach) => self.without_account(&call).await,
        }
    }

    /// The call is done later; its answer says so.
    pub fn queued(&mut self) {
        self.decision = "queued";
        self.shadow.clear();
    }

    /// Asks the account whether a call would pass; charges and counts nothing.
    pub async fn peek(&mut self, call: limits::Call) -> Result<Pass, ApiError> {
        let asker = Asker {
            silent: true,
            ..self.asker()
        };
        self.peek_as(asker, call).await
    }

    /// Asks the account whether a call would pass that is done later; charges nothing, but if it is refused it counts as
    /// a refused call.
    pub async fn decide_for_later(&mut self, call: limits::Call) -> Result<Pass, ApiError> {
        self.peek_as(self.asker(), call).await
    }

    async fn peek_as(&mut self, asker: Asker, call: limits::Call) -> Result<Pass, ApiError> {
        match self.ask_as(asker, Ask::Peek(call)).await {
            Ok(Answer::Decided {
                verdict, standing, ..
            }) => self.apply(verdict, standing),
            Ok(other) => Err(self.denied(&other)),
            Err(OutOfReach) => Err(ApiError::Unavailable("accounts")),
        }
    }

    /// One message to the caller's account.
    pub async fn ask(&self, ask: Ask) -> Result<Answer, OutOfReach> {
        self.ask_as(self.asker(), ask).await
    }

    /// Asks whether a call may be dispatched, and for a lease along, which is kept beyond this call. A caller who hangs up
    /// does not end that.
    async fn ask_for_lease(
        &self,
        call: limits::Call,
        departure: leases::Departure,
    ) -> Result<Answer, OutOfReach> {
        let asked = clock::now(&self.call.settings);
        let (env, user, asker) = (
            self.call.env.clone(),
            self.caller.user_id.clone(),
            self.asker(),
        );
        let (tell, told) = oneshot::channel();
        self.call.context.wait_until(async move {
            let (answer, keeps) = leases::ask(&env, &user, &asker, call, departure).await;
            // The caller may be gone; there is nobody left to tell.
            let _ = tell.send(answer);
            if keeps {
                leases::keep(env, user, asker).await;
            }
        });
        let answer = told.await.unwrap_or(Err(OutOfReach));
        self.heard(asked, &answer);
        answer
    }

    async fn ask_as(&self, asker: Asker, ask: Ask) -> Result<Answer, OutOfReach> {
        let asked = clock::now(&self.call.settings);
        let answer = client::ask(&self.call.env, &self.caller.user_id, asker, ask).await;
        self.heard(asked, &answer);
        answer
    }

    fn heard(&self, asked: Millis, answer: &Result<Answer, OutOfReach>) {
        self.call
            .timing
            .note(Stage::Account, clock::now(&self.call.settings).since(asked));
        if answer.is_ok() {
            open::catch_up(&self.call, &self.caller.user_id);
        }
    }

    /// How the user stands; spends nothing.
    pub async fn view(&mut self) -> Result<Snapshot, ApiError> {
        match self.ask(Ask::View).await {
            Ok(Answer::Stands(snapshot)) => {
                self.stand(snapshot.clone());
                Ok(snapshot)
            }
            Ok(other) => Err(self.denied(&other)),
            Err(OutOfReach) => Err(ApiError::Unavailable("accounts")),
        }
    }

    /// A fresh operation id.
    pub fn operation(&self) -> Result<OperationId, ApiError> {
        let id = ids::fresh("op").map_err(|_| ApiError::Misconfigured("no random numbers"))?;
        Ok(OperationId(id))
    }

    /// How long a dispatched call may take without another word.
    pub fn lease(&self) -> Span {
        Span(
            self.call
                .settings
                .upstream_timeout
                .0
                .saturating_add(LEASE_MARGIN.0),
        )
    }

    /// Whether it is known how anybody stands.
    pub const fn stands(&self) -> bool {
        self.meters.is_some()
    }

    /// Takes a newer snapshot for the answer's headers.
    pub fn stand(&mut self, snapshot: Snapshot) {
        self.meters = Some(Meters {
            now: snapshot.now,
            user: self.caller.user_id.clone(),
            policies: snapshot.policies.clone(),
        });
        self.standing = Some(snapshot);
    }

    /// Who asks, in messages to the account.
    pub fn asker(&self) -> Asker {
        Asker {
            key_id: self.caller.key_id.clone(),
            plan_claim: self.caller.plan_claim.clone(),
            provision: self.caller.provision,
            ..Asker::default()
        }
    }

    fn family(&self) -> Option<Shape> {
        let path = self.call.request.path();
        path.starts_with("/v1/").then_some(self.call.shape)
    }

    fn apply(&mut self, verdict: Verdict, standing: Snapshot) -> Result<Pass, ApiError> {
        self.stand(standing.clone());
        match verdict {
            Verdict::Admitted(admission) => Ok(self.passed(admission, &standing)),
            Verdict::Refused(refusal) => {
                let meters = self.meters.clone();
                let refused = meters.and_then(|m| Refused::new(m, refusal));
                let refused = refused.ok_or(ApiError::Unavailable("accounts"))?;
                self.decision = "refused";
                Err(ApiError::Refused(Box::new(refused)))
            }
            Verdict::Rejected(rejection) => {
                self.decision = "refused";
                Err(rejected(&rejection))
            }
        }
    }

    fn passed(&mut self, admission: Admission, standing: &Snapshot) -> Pass {
        let shadow = admission.shadow.clone();
        let pass = Pass::of(admission, standing);
        self.decision = match (&pass.degraded_to, shadow.is_empty()) {
            (Some(_), _) => "degraded",
            (None, false) => "shadow",
            (None, true) => "allowed",
        };
        self.shadow = shadow;
        pass
    }

    /// The account store is out: the plan decides (design rule 7).
    async fn without_account(&mut self, call: &limits::Call) -> Result<Pass, ApiError> {
        let (meters, bounds) = open::pass(&self.call, &self.caller, call).await?;
        self.decision = "open";
        self.meters = Some(meters);
        Ok(Pass {
            operation: None,
            passed_open: Some(call.operation.clone()),
            max_tokens: bounds.max_tokens,
            budget: bounds.in_all,
            degraded_to: None,
        })
    }

    /// Sees to it that a call costs nothing that was refused although its account may have let it through.
    fn give_back(&self, operation: OperationId) {
        let (env, user) = (self.call.env.clone(), self.caller.user_id.clone());
        self.call.context.wait_until(async move {
            open::give_back(&env, &user, &operation).await;
        });
    }

    /// What an account's answer means that decides nothing.
    pub fn denied(&self, answer: &Answer) -> ApiError {
        match answer {
            Answer::KeyRevoked => {
                if let Some(key_id) = &self.caller.key_id {
                    auth::forget(key_id);
                }
                ApiError::BadCredential("revoked")
            }
            Answer::NoSuchUser => ApiError::BadCredential("unknown user"),
            Answer::NoRoom => ApiError::Unavailable("new users"),
            Answer::NoSuchPlan => ApiError::Unavailable("plans"),
            _ => ApiError::Unavailable("accounts"),
        }
    }
}

/// Settling runs after the answer, so a caller's next call may arrive before it: one who calls strictly
/// one after the other must not be refused for what their own last call still holds.
const HELD_RETRIES: usize = 3;
const HELD_PAUSE: std::time::Duration = std::time::Duration::from_millis(60);

fn only_held(answer: &Answer) -> bool {
    let Answer::Decided {
        verdict: Verdict::Refused(refusal),
        ..
    } = answer
    else {
        return false;
    };
    refusal.violations.iter().all(|v| v.cause == Cause::Held)
}

/// Why a call can never pass as it is, for its caller.
pub fn rejected(rejection: &Rejection) -> ApiError {
    match rejection {
        Rejection::Blocked => ApiError::Forbidden {
            message: "This user is blocked.".to_owned(),
            code: "user_blocked",
        },
        Rejection::ModelNotAllowed => ApiError::Forbidden {
            message: "Your plan does not allow this model.".to_owned(),
            code: "model_not_allowed",
        },
        Rejection::MaxTokens { cap } => ApiError::Invalid {
            message: format!("Your plan allows {cap} tokens a request."),
            param: Some("max_tokens".to_owned()),
            code: "max_tokens_exceeded",
        },
        Rejection::ExceedsQuota {
            policy,
            limit,
            cost,
        } => ApiError::Invalid {
            message: format!(
                "This request costs {cost}, more than `{policy}` ever allows ({limit})."
            ),
            param: None,
            code: "request_exceeds_quota",
        },
    }
}
