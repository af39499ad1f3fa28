//! The whole account against a model that remembers every call and works everything out anew.

mod model;

use proptest::prelude::*;

use self::model::{Expected, Model};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Arrive {
        cost: u64,
        endpoint: bool,
    },
    Dispatch(Asked),
    Again(usize),
    Settle {
        which: usize,
        prompt: u64,
        completion: u64,
    },
    Release(usize),
    Checkpoint {
        which: usize,
        prompt: u64,
        completion: u64,
    },
    Plan(usize),
    Reset(usize),
    Store,
}

#[derive(Clone, Debug)]
struct Asked {
    cost: u64,
    tokens: Tokens,
    endpoint: bool,
    degrade: bool,
    lease: u64,
}

fn asked() -> impl Strategy<Value = Asked> {
    let tokens = (0_u64..60, prop::option::of(1_u64..200), 0_u64..3);
    let tokens = tokens.prop_map(|(prompt, max_tokens, choices)| Tokens {
        prompt,
        max_tokens,
        choices,
    });
    let parts = (
        1_u64..4,
        tokens,
        any::<bool>(),
        any::<bool>(),
        1_u64..90_000,
    );
    parts.prop_map(|(cost, tokens, endpoint, degrade, lease)| Asked {
        cost,
        tokens,
        endpoint,
        degrade,
        lease,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0_usize..12;
    let step = prop_oneof![
        4 => (0_u64..2_000).prop_map(Step::Wait),
        3 => (0_u64..90_000).prop_map(Step::Wait),
        1 => (0_u64..30_000_000).prop_map(Step::Wait),
        1 => (0_u64..900_000_000).prop_map(Step::Wait),
        3 => (1_u64..3, any::<bool>()).prop_map(|(cost, endpoint)| Step::Arrive { cost, endpoint }),
        12 => asked().prop_map(Step::Dispatch),
        1 => which.clone().prop_map(Step::Again),
        5 => (which.clone(), 0_u64..80, 0_u64..300)
            .prop_map(|(which, prompt, completion)| Step::Settle { which, prompt, completion }),
        2 => which.clone().prop_map(Step::Release),
        2 => (which, 0_u64..80, 0_u64..200)
            .prop_map(|(which, prompt, completion)| Step::Checkpoint { which, prompt, completion }),
        1 => (0_usize..4).prop_map(Step::Plan),
        1 => (0_usize..8).prop_map(Step::Reset),
        2 => Just(Step::Store),
    ];
    prop::collection::vec(step, 1..90)
}

fn plans() -> [Limits; 4] {
    let roomy = Limits {
        daily: Some(20),
        monthly_tokens: Some(2_000),
        rate: bucket_of(10, 30),
        window: window_of(30, Span::hours(1)),
        tokens_per_minute: Some(700),
        max_concurrent: Some(4),
        endpoints: vec![endpoint_of("e", 6, Span::minutes(5))],
        max_tokens_per_request: Some(400),
        ..unlimited()
    };
    let tight = Limits {
        daily: Some(7),
        monthly_tokens: Some(500),
        rate: bucket_of(5, 7),
        window: window_of(12, Span::minutes(10)),
        tokens_per_minute: Some(250),
        max_concurrent: Some(2),
        max_tokens_mode: MaxTokensMode::Clamp,
        ..roomy.clone()
    };
    let only_tokens = Limits {
        monthly_tokens: Some(900),
        tokens_per_minute: Some(400),
        ..unlimited()
    };
    let only_calls = Limits {
        daily: Some(9),
        window: window_of(15, Span::hours(2)),
        endpoints: vec![endpoint_of("e", 3, Span::minutes(30))],
        ..unlimited()
    };
    [roomy, tight, only_tokens, only_calls]
}

fn policies() -> [PolicyName; 8] {
    [
        PolicyName::Daily,
        PolicyName::Degraded,
        PolicyName::MonthlyTokens,
        PolicyName::Rate,
        PolicyName::Window,
        PolicyName::TokensPerMinute,
        PolicyName::Concurrency,
        PolicyName::Endpoint("e".into()),
    ]
}

/// The account and its model, side by side.
struct Pair {
    account: Account,
    pages: storage::Pages,
    model: Model,
    calls: Vec<Call>,
    limits: Limits,
    now: Millis,
}

impl Pair {
    fn new() -> Self {
        let [limits, ..] = plans();
        Self {
            account: Account::new(),
            pages: storage::Pages::default(),
            model: Model::default(),
            calls: Vec::new(),
            limits,
            now: NOON,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.now = self.now.plus(Span(ms)),
            Step::Arrive { cost, endpoint } => {
                let call = Call {
                    cost,
                    endpoint: name(endpoint),
                    ..arrival("arrival")
                };
                self.admit(call);
            }
            Step::Dispatch(asked) => self.admit(self.fresh(asked)),
            Step::Again(which) => {
                if let Some(call) = self
                    .recent(which)
                    .filter(|c| self.model.remembers(self.now, c))
                {
                    self.admit(call);
                }
            }
            Step::Settle {
                which,
                prompt,
                completion,
            } => self.settle(which, used(prompt, completion)),
            Step::Release(which) => self.settle(which, Outcome::Released),
            Step::Checkpoint {
                which,
                prompt,
                completion,
            } => {
                self.checkpoint(which, prompt, completion);
            }
            Step::Plan(index) => self.limits = plans()[index].clone(),
            Step::Reset(index) => self.reset(&policies()[index]),
            Step::Store => self.account = stored_and_read(&mut self.account, &mut self.pages),
        }
        self.look();
    }

    fn fresh(&self, asked: Asked) -> Call {
        let lane = DegradedLane {
            model: "m-cheap".into(),
            daily_limit: Some(5),
            allowed_models: None,
        };
        Call {
            cost: asked.cost,
            endpoint: name(asked.endpoint),
            degrade: asked.degrade.then_some(lane),
            lease: Span(asked.lease),
            ..call(self.calls.len(), Work::Dispatch(asked.tokens))
        }
    }

    /// One of the last dispatched calls.
    fn recent(&self, which: usize) -> Option<Call> {
        self.calls.iter().rev().nth(which).cloned()
    }

    fn admit(&mut self, call: Call) {
        let expected = self.model.admit(self.now, &self.limits, &call);
        let verdict = self.account.admit(self.now, &self.limits, &call);
        assert_eq!(seen(&verdict), expected, "{call:?}");
        match verdict {
            Verdict::Admitted(admission)
                if admission.reservation.is_some() && !admission.replayed =>
            {
                self.calls.push(call);
            }
            Verdict::Refused(refusal) => self.check_wait(&call, &refusal),
            Verdict::Admitted(_) | Verdict::Rejected(_) => {}
        }
    }

    /// With nothing else going on, the call passes when its wait is over, and not a moment before.
    fn check_wait(&self, call: &Call, refusal: &Refusal) {
        let waits = refusal.violations.iter().all(|v| v.cause == Cause::Spent);
        if !waits || self.model.open() > 0 {
            return;
        }
        let decisive = refusal.decisive().unwrap();
        let end = self.now.plus(decisive.wait);
        let plain = Call {
            degrade: None,
            ..call.clone()
        };
        passes(&mut self.account.clone(), end, &self.limits, &plain);
        let still = super::refusal(
            &mut self.account.clone(),
            Millis(end.0 - 1),
            &self.limits,
            &plain,
        );
        assert!(still.violations.iter().any(|v| v.policy == decisive.policy));
    }

    fn settle(&mut self, which: usize, outcome: Outcome) {
        let Some(call) = self
            .recent(which)
            .filter(|c| self.model.remembers(self.now, c))
        else {
            return;
        };
        let expected = self.model.settle(self.now, &call, outcome);
        let result = self.account.settle(self.now, &call.operation, outcome);
        assert_eq!(result, expected, "{call:?}");
    }

    fn checkpoint(&mut self, which: usize, prompt: u64, completion: u64) {
        let Some(call) = self.recent(which) else {
            return;
        };
        let (now, lease) = (self.now, Span::seconds(30));
        let expected = self.model.checkpoint(now, &call, prompt, completion, lease);
        let open = self
            .account
            .checkpoint(now, &call.operation, prompt, completion, lease);
        assert_eq!(open, expected);
    }

    fn reset(&mut self, policy: &PolicyName) {
        self.model.reset(self.now, &self.limits, policy);
        self.account
            .reset(self.now, &self.limits, std::slice::from_ref(policy));
    }

    fn look(&self) {
        let views = self.account.view(self.now, &self.limits);
        let seen: Vec<_> = views
            .into_iter()
            .map(|v| (v.name, v.used + v.reserved, v.remaining))
            .collect();
        assert_eq!(seen, self.model.view(self.now, &self.limits));
    }
}

fn name(endpoint: bool) -> Option<String> {
    endpoint.then(|| "e".to_owned())
}

fn seen(verdict: &Verdict) -> Expected {
    match verdict {
        Verdict::Admitted(admission) => Expected::Pass {
            lane: admission.lane,
            max_tokens: admission.max_tokens,
            reserved_tokens: admission.reserved_tokens,
            replayed: admission.replayed,
        },
        Verdict::Refused(refusal) => {
            let policies = refusal
                .violations
                .iter()
                .map(|v| (v.policy.clone(), v.cause));
            Expected::Refused(policies.collect())
        }
        Verdict::Rejected(rejection) => Expected::Rejected(rejection.clone()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_account_is_what_its_calls_make_it(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
    }
}
