use super::account::today;
use super::decide::{DEFAULT_MAX_TOKENS, Demand, Dispatch, Ruling, Way, endpoint_limit, need};
use super::reservation::{Grant, OperationKey, Recall, Reservation};
use super::{
    Account, Admission, Call, Cause, DegradedLane, Lane, Limits, MaxTokensMode, Millis,
    ModelPattern, PolicyName, Refusal, Rejection, Tokens, Verdict, Work,
};

impl Account {
    /// Decides whether a call passes, and charges it if so: all limits or none.
    ///
    /// A call whose input no limit of the plan can ever take still counts as an arrival.
    pub fn admit(&mut self, now: Millis, limits: &Limits, call: &Call) -> Verdict {
        let verdict = self.admit_silently(now, limits, call);
        self.count_refusal(now, limits, call, &verdict);
        verdict
    }

    /// The same, for calls whose refusal nobody is told: it is not counted.
    pub fn admit_silently(&mut self, now: Millis, limits: &Limits, call: &Call) -> Verdict {
        self.touch(now, limits);
        let verdict = if limits.blocked {
            Verdict::Rejected(Rejection::Blocked)
        } else {
            match call.work {
                Work::Arrival => self.admit_arrival(now, limits, call),
                Work::Dispatch(tokens) => self.admit_dispatch(now, limits, call, tokens),
            }
        };
        self.note_crossings(now);
        verdict
    }

    /// Whether a call would pass. Nothing is charged.
    pub fn peek(&self, now: Millis, limits: &Limits, call: &Call) -> Verdict {
        self.clone().admit_silently(now, limits, call)
    }

    fn admit_arrival(&mut self, now: Millis, limits: &Limits, call: &Call) -> Verdict {
        match self.decide(now, limits, arrival(call)) {
            Ruling::Pass(_) => self.pass_arrival(now, limits, call, Vec::new()),
            Ruling::Refuse(refusal) if limits.shadow => {
                self.pass_arrival(now, limits, call, names(&refusal))
            }
            Ruling::Refuse(refusal) => Verdict::Refused(refusal),
            Ruling::Never(rejection) => Verdict::Rejected(rejection),
        }
    }

    fn pass_arrival(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        shadow: Vec<PolicyName>,
    ) -> Verdict {
        self.charge_short(now, limits, arrival(call));
        if let Some(policy) = shadow.first() {
            self.days.on(today(now, limits)).pass_in_shadow(policy);
        }
        Verdict::Admitted(Admission {
            reservation: None,
            max_tokens: None,
            reserved_tokens: None,
            lane: Lane::Main,
            shadow,
            replayed: false,
        })
    }

    fn admit_dispatch(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        asked: Tokens,
    ) -> Verdict {
        let key = OperationKey::of(&call.operation);
        let lapsed = match self.reservations.recall(now, key, call.lease) {
            Recall::Granted(grant) => return admitted(call, grant, Vec::new(), true),
            Recall::Nothing => return self.admit_new(now, limits, call, key, asked),
            Recall::Lapsed(lapsed) => lapsed,
        };
        self.undo_lapsed(&lapsed.reservation);
        let verdict = self.admit_new(now, limits, call, key, asked);
        if !matches!(verdict, Verdict::Admitted(_)) {
            self.redo_lapsed(&lapsed.reservation);
            self.reservations.put_back(lapsed);
        }
        verdict
    }

    fn admit_new(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        key: OperationKey,
        asked: Tokens,
    ) -> Verdict {
        let tokens = match acceptable(Rules::of(limits), call.model.as_deref(), asked) {
            Ok(tokens) => tokens,
            Err(rejection) => return self.reject(now, limits, call, rejection),
        };
        let main = Dispatch {
            key,
            way: Way::Main,
            tokens,
        };
        match self.decide(now, limits, demand(call, main)) {
            Ruling::Pass(max) => self.pass(now, limits, call, main, max, Vec::new()),
            Ruling::Never(rejection) => self.reject(now, limits, call, rejection),
            Ruling::Refuse(refusal) if limits.shadow && !self.reservations.are_full() => {
                self.pass(now, limits, call, main, tokens.max_tokens, names(&refusal))
            }
            Ruling::Refuse(refusal) => self
                .degrade(now, limits, call, &refusal, main)
                .unwrap_or(Verdict::Refused(refusal)),
        }
    }

    /// Counts a rejected call against the short limits; if they refuse it, that is the answer.
    fn reject(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        rejection: Rejection,
    ) -> Verdict {
        match self.admit_arrival(now, limits, call) {
            Verdict::Refused(refusal) => Verdict::Refused(refusal),
            Verdict::Admitted(_) | Verdict::Rejected(_) => Verdict::Rejected(rejection),
        }
    }

    /// The whole decision again for the cheaper model, if only quotas are used up. There it has a daily
    /// ceiling of its own, and the month is booked but not enforced.
    fn degrade(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        refusal: &Refusal,
        main: Dispatch,
    ) -> Option<Verdict> {
        let lane = call.degrade.as_ref()?;
        if !only_quotas(refusal) || !is_allowed(lane) {
            return None;
        }
        let degraded = Dispatch {
            way: Way::Degraded {
                daily_limit: lane.daily_limit,
            },
            ..main
        };
        match self.decide(now, limits, demand(call, degraded)) {
            Ruling::Pass(max) => Some(self.pass(now, limits, call, degraded, max, Vec::new())),
            Ruling::Refuse(_) | Ruling::Never(_) => None,
        }
    }

    /// Charges a dispatched call and opens its reservation.
    fn pass(
        &mut self,
        now: Millis,
        limits: &Limits,
        call: &Call,
        dispatch: Dispatch,
        max_tokens: Option<u64>,
        shadow: Vec<PolicyName>,
    ) -> Verdict {
        let demand = demand(call, dispatch);
        self.charge_short(now, limits, demand);
        let tokens = need(Tokens {
            max_tokens,
            ..dispatch.tokens
        });
        let lane = dispatch.way.lane();
        let quota = match lane {
            Lane::Main => &mut self.daily,
            Lane::Degraded => &mut self.degraded,
        };
        quota.charge(now, demand.cost);
        let quota_day = quota.began();
        let grant = Grant {
            lane,
            max_tokens,
            reserved_tokens: Rules::of(limits).limits_tokens.then_some(tokens),
        };
        let reservation = Reservation {
            key: dispatch.key,
            grant,
            expires_at: now.plus(call.lease),
            lease: call.lease,
            day: today(now, limits),
            quota_day,
            cost: demand.cost,
            month: self.monthly.began(),
            tokens,
            per_minute: self.take_minute(limits, tokens),
            prompt: dispatch.tokens.prompt,
            metered: None,
        };
        let endpoint = endpoint_limit(limits, demand.endpoint);
        let endpoint = endpoint.map(|limit| limit.name.as_str());
        self.count_pass(&reservation, endpoint, shadow.first());
        self.leases.note_pace(now);
        self.reservations.open(reservation);
        admitted(call, grant, shadow, false)
    }

    fn charge_short(&mut self, now: Millis, limits: &Limits, demand: Demand<'_>) {
        match limits.rate {
            Some(limit) if limits.shadow => {
                self.rate.take_what_is_there(limit.capacity, demand.cost);
            }
            Some(_) => self.rate.take(demand.cost),
            None => {}
        }
        if let Some(limit) = limits.window {
            self.window.count(now, limit, demand.cost);
        }
        if let Some(limit) = endpoint_limit(limits, demand.endpoint) {
            let log = self.endpoints.entry(limit.name.clone()).or_default();
            log.touch(now, Some(limit.window));
            log.count(now, limit.window, demand.cost);
        }
    }

    fn take_minute(&mut self, limits: &Limits, tokens: u64) -> Option<u64> {
        let capacity = limits.tokens_per_minute?;
        if limits.shadow {
            return Some(self.tokens_per_minute.take_what_is_there(capacity, tokens));
        }
        self.tokens_per_minute.take(tokens);
        Some(tokens)
    }

    fn count_pass(
        &mut self,
        reservation: &Reservation,
        endpoint: Option<&str>,
        shadow: Option<&PolicyName>,
    ) {
        self.days.passes_after_all(reservation.key);
        let totals = self.days.on(reservation.day);
        totals.calls = totals.calls.saturating_add(1);
        if reservation.grant.lane == Lane::Degraded {
            totals.degraded = totals.degraded.saturating_add(1);
        }
        if let Some(name) = endpoint {
            totals.pass_endpoint(name);
        }
        if let Some(policy) = shadow {
            totals.pass_in_shadow(policy);
        }
    }

    /// Counts a call that its caller is told was refused; asked again under the same id, once.
    pub fn count_refusal(&mut self, now: Millis, limits: &Limits, call: &Call, verdict: &Verdict) {
        if let Some(reason) = verdict.refused_by() {
            let key = OperationKey::of(&call.operation);
            self.days.refuse(key, today(now, limits), &reason);
        }
    }
}

fn admitted(call: &Call, grant: Grant, shadow: Vec<PolicyName>, replayed: bool) -> Verdict {
    Verdict::Admitted(Admission {
        reservation: Some(call.operation.clone()),
        max_tokens: grant.max_tokens,
        reserved_tokens: grant.reserved_tokens,
        lane: grant.lane,
        shadow,
        replayed,
    })
}

fn arrival(call: &Call) -> Demand<'_> {
    Demand {
        cost: call.cost.max(1),
        endpoint: call.endpoint.as_deref(),
        dispatch: None,
    }
}

fn demand(call: &Call, dispatch: Dispatch) -> Demand<'_> {
    Demand {
        dispatch: Some(dispatch),
        ..arrival(call)
    }
}

fn names(refusal: &Refusal) -> Vec<PolicyName> {
    refusal
        .violations
        .iter()
        .map(|v| v.policy.clone())
        .collect()
}

/// What a call is held to that needs no counting.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Models it may name; `None` is all of them.
    pub allowed_models: Option<&'a [ModelPattern]>,
    /// Most completion tokens it may ask for.
    pub most: Option<u64>,
    /// What becomes of one that asks for more.
    pub mode: MaxTokensMode,
    /// Whether tokens are limited, so that every call needs a bound.
    pub limits_tokens: bool,
}

impl<'a> Rules<'a> {
    fn of(limits: &'a Limits) -> Self {
        Self {
            allowed_models: limits.allowed_models.as_deref(),
            most: limits.max_tokens_per_request,
            mode: limits.max_tokens_mode,
            limits_tokens: limits.monthly_tokens.is_some() || limits.tokens_per_minute.is_some(),
        }
    }
}

/// How many tokens a call gets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    /// Of its answer, per choice; `None`: without a bound.
    pub max_tokens: Option<u64>,
    /// Of prompt and answer together; `None`: nothing limits tokens.
    pub in_all: Option<u64>,
}

/// What the plan says of one request alone, for calls that pass without their account.
pub fn bounds(limits: &Limits, call: &Call) -> Result<Bounds, Rejection> {
    let Work::Dispatch(asked) = call.work else {
        return Ok(Bounds::default());
    };
    let rules = Rules::of(limits);
    let counts = rules.limits_tokens || rules.most.is_some();
    let tokens = acceptable(rules, call.model.as_deref(), asked)?;
    Ok(Bounds {
        max_tokens: tokens.max_tokens,
        in_all: counts.then_some(need(tokens)),
    })
}

/// Whether the plan lets the call name its model and ask for its tokens, and the tokens it then gets.
pub fn acceptable(
    rules: Rules<'_>,
    model: Option<&str>,
    asked: Tokens,
) -> Result<Tokens, Rejection> {
    if !allows_model(rules.allowed_models, model) {
        return Err(Rejection::ModelNotAllowed);
    }
    let default = || (rules.limits_tokens && asked.choices > 0).then_some(DEFAULT_MAX_TOKENS);
    let max_tokens = match rules.most {
        Some(cap) => capped(cap, rules.mode, asked)?,
        None => asked.max_tokens.or_else(default),
    };
    Ok(Tokens {
        max_tokens,
        ..asked
    })
}

/// The tokens a choice under the plan's cap for all choices together.
fn capped(cap: u64, mode: MaxTokensMode, asked: Tokens) -> Result<Option<u64>, Rejection> {
    let too_many = Rejection::MaxTokens { cap };
    let choices = asked.choices.max(1);
    let share = cap / choices;
    match asked.max_tokens {
        None if asked.choices == 0 => Ok(None),
        _ if share == 0 => Err(too_many),
        None => Ok(Some(share)),
        Some(max) if max.saturating_mul(choices) <= cap => Ok(Some(max)),
        Some(_) if mode == MaxTokensMode::Clamp => Ok(Some(share)),
        Some(_) => Err(too_many),
    }
}

/// Whether nothing but used-up quotas refuses; all else passes by itself soon.
fn only_quotas(refusal: &Refusal) -> bool {
    let mut violations = refusal.violations.iter();
    violations.all(|v| v.policy.is_quota() && v.cause != Cause::Held)
}

fn is_allowed(lane: &DegradedLane) -> bool {
    allows_model(lane.allowed_models.as_deref(), Some(&lane.model))
}

/// Whether a list of models, where there is one, has this one. A call that names no model needs none.
pub fn allows_model(patterns: Option<&[ModelPattern]>, model: Option<&str>) -> bool {
    match (patterns, model) {
        (Some(patterns), Some(model)) => patterns.iter().any(|p| p.matches(model)),
        _ => true,
    }
}
