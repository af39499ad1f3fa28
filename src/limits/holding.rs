//! A lease where it is spent: away from its account, by plain counting.

use super::admit::{Rules, acceptable};
use super::decide::need;
use super::reservation::Metered;
use super::{
    Admission, Call, Handed, Lane, Millis, OpenCall, OperationId, Outcome, PolicyKind, PolicyName,
    PolicyView, Returned, Span, Tokens, Took, Unit, Work,
};

/// Calls within less than this say little of how many will follow.
const PACED: Span = Span(500);
/// Longest that what an ended call has used is known here alone.
const TELL_WITHIN: Span = Span::seconds(2);

/// A lease and what was spent of it so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    handed: Handed,
    until: Millis,
    /// It was ended before that.
    ended: bool,
    /// When what its calls have used has to be told, if they have used anything.
    tell_at: Option<Millis>,
    /// The latest that anybody has seen of the clock.
    seen: Millis,
    departed: Millis,
    calls: u64,
    tokens: Option<u64>,
    returned: Returned,
    open: Vec<OpenCall>,
}

impl Holding {
    /// A lease that was asked for at `departed`: before the account began to count its time.
    pub fn new(handed: Handed, departed: Millis) -> Self {
        Self {
            until: departed.plus(handed.lasts),
            ended: false,
            tell_at: None,
            seen: departed,
            departed,
            calls: handed.calls,
            tokens: handed.tokens,
            returned: Returned::unspent(handed.lease.clone()),
            open: Vec::new(),
            handed,
        }
    }

    /// Whether it may still be spent. A clock that was set back ends it.
    pub fn lasts(&self, now: Millis) -> bool {
        !self.ended && self.until > now && now >= self.seen
    }

    /// How long it should have been brought back for.
    pub fn overdue(&self, now: Millis) -> Span {
        let tell_at = self.tell_at.unwrap_or(self.until);
        now.since(tell_at.min(self.until))
    }

    /// Whether it is time for the next one: it is over, most of it is spent, or what was used has to be told.
    pub fn is_due(&self, now: Millis) -> bool {
        let is_low = |left: u64, of: u64| left < of / 4;
        let tokens = self.tokens.zip(self.handed.tokens);
        !self.lasts(now)
            || self.tell_at.is_some_and(|at| at <= now)
            || is_low(self.calls, self.handed.calls)
            || tokens.is_some_and(|(left, of)| is_low(left, of))
    }

    /// It may not be spent any more.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    /// Lets a call pass, if the lease is sure to allow it. `None`: only the account can say.
    pub fn admit(&mut self, now: Millis, call: &Call) -> Option<Admission> {
        let Work::Dispatch(asked) = call.work else {
            return None;
        };
        let cost = call.cost.max(1);
        if !self.lasts(now) || cost > self.calls || self.is_limited(call.endpoint.as_deref()) {
            return None;
        }
        self.seen = now;
        let tokens = acceptable(self.rules(), call.model.as_deref(), asked).ok()?;
        let wanted = need(tokens);
        let widest = self.returned.widest.max(wanted);
        if let Some(left) = self.tokens {
            self.tokens = Some(left.checked_sub(wanted)?);
        }
        self.calls -= cost;
        self.returned.widest = widest;
        self.returned.spent = self.returned.spent.saturating_add(cost);
        Some(self.open(call, cost, tokens, wanted))
    }

    fn open(&mut self, call: &Call, cost: u64, tokens: Tokens, wanted: u64) -> Admission {
        let open = OpenCall {
            operation: call.operation.clone(),
            cost,
            tokens: wanted,
            prompt: tokens.prompt,
            max_tokens: tokens.max_tokens,
            metered: None,
            lease: call.lease,
        };
        self.open.push(open);
        Admission {
            reservation: Some(call.operation.clone()),
            max_tokens: tokens.max_tokens,
            reserved_tokens: self.tokens.map(|_| wanted),
            lane: Lane::Main,
            shadow: Vec::new(),
            replayed: false,
        }
    }

    fn is_limited(&self, endpoint: Option<&str>) -> bool {
        let limited = &self.handed.terms.endpoints;
        endpoint.is_some_and(|name| limited.iter().any(|one| one == name))
    }

    fn rules(&self) -> Rules<'_> {
        let terms = &self.handed.terms;
        Rules {
            allowed_models: terms.allowed_models.as_deref(),
            most: terms.max_tokens_per_request,
            mode: terms.max_tokens_mode,
            limits_tokens: self.handed.tokens.is_some(),
        }
    }

    fn position(&self, operation: &OperationId) -> Option<usize> {
        self.open
            .iter()
            .position(|open| open.operation == *operation)
    }

    /// Books what a call has used; what it did not use of its tokens may be spent again. `false`: it is not
    /// under way under this lease.
    pub fn settle(&mut self, now: Millis, operation: &OperationId, outcome: Outcome) -> bool {
        let Some(index) = self.position(operation) else {
            return false;
        };
        self.tell_by(now.plus(TELL_WITHIN));
        let open = self.open.swap_remove(index);
        let returned = &mut self.returned;
        let used = match outcome {
            Outcome::Used {
                prompt,
                completion,
                estimated,
            } => {
                returned.ended += 1;
                returned.estimated += u64::from(estimated);
                returned.prompt = returned.prompt.saturating_add(prompt);
                returned.completion = returned.completion.saturating_add(completion);
                prompt.saturating_add(completion)
            }
            Outcome::Released => {
                returned.released = returned.released.saturating_add(open.cost);
                0
            }
        };
        // What was used beyond the reservation is taken from the others.
        self.tokens = self
            .tokens
            .map(|left| left.saturating_add(open.tokens).saturating_sub(used));
        true
    }

    /// Notes how long a call waited that was just settled.
    pub fn note_took(&mut self, took: Took) {
        self.returned.waits.note(took);
    }

    /// Notes what a call under way has used so far and that it may take `lease` longer; the account has to hear
    /// of that now, and from then on by the call itself. `false`: it is not under way under this lease.
    pub fn checkpoint(
        &mut self,
        now: Millis,
        operation: &OperationId,
        used: Metered,
        lease: Span,
    ) -> bool {
        let position = self.position(operation);
        let Some(open) = position.and_then(|index| self.open.get_mut(index)) else {
            return false;
        };
        open.metered = Some(open.metered.unwrap_or_default().max(used));
        open.lease = open.lease.max(lease);
        self.tell_by(now);
        true
    }

    fn tell_by(&mut self, at: Millis) {
        self.tell_at = Some(self.tell_at.map_or(at, |before| before.min(at)));
    }

    /// How policies stand that stood like `at_first` when it was handed out, if nobody but this lease has
    /// spent anything since.
    pub fn policies(&self, now: Millis, at_first: &[PolicyView]) -> Vec<PolicyView> {
        let views = at_first.iter().cloned();
        views.map(|view| self.spent_of(now, view)).collect()
    }

    fn spent_of(&self, now: Millis, mut view: PolicyView) -> PolicyView {
        let returned = &self.returned;
        let (used, held) = match (&view.name, view.unit) {
            (PolicyName::Daily, _) => (returned.spent.saturating_sub(returned.released), 0),
            (PolicyName::Rate | PolicyName::Window, _) => (returned.spent, 0),
            (PolicyName::MonthlyTokens | PolicyName::TokensPerMinute, Unit::Tokens) => {
                let open = self.open.iter().map(|open| open.tokens);
                let used = returned.prompt.saturating_add(returned.completion);
                (used, open.fold(0, u64::saturating_add))
            }
            _ => (0, 0),
        };
        let taken = used.saturating_add(held);
        view.used = view.used.saturating_add(used);
        view.reserved = view.reserved.saturating_add(held);
        view.remaining = view.remaining.saturating_sub(taken);
        match (view.kind, view.window) {
            (PolicyKind::Bucket, Some(window)) if view.limit > 0 => {
                let refill = window.0.saturating_mul(taken).div_ceil(view.limit);
                view.resets_at = view.resets_at.max(now).plus(Span(refill));
            }
            (PolicyKind::Sliding, Some(window)) if taken > 0 => {
                view.resets_at = view.resets_at.max(now.plus(window));
            }
            _ => {}
        }
        view
    }

    /// How much was spent, in what counts calls.
    pub const fn spent(&self) -> u64 {
        self.returned.spent
    }

    /// What goes back to the account.
    pub fn give_back(self) -> Returned {
        Returned {
            lasted: self.seen.since(self.departed).max(PACED),
            open: self.open,
            ..self.returned
        }
    }
}
