use serde::{Deserialize, Serialize};

use super::{Millis, OperationId, PolicyName, Span};

/// What becomes of a call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It passes.
    Admitted(Admission),
    /// A limit refuses it for now; nothing was charged.
    Refused(Refusal),
    /// It can never pass as it is; short limits were charged for its arrival.
    Rejected(Rejection),
}

impl Verdict {
    /// What a call that doesn't pass is counted under: the policy that decides, or another reason.
    pub fn refused_by(&self) -> Option<String> {
        match self {
            Self::Admitted(_) => None,
            Self::Refused(refusal) => refusal.decisive().map(|v| v.policy.to_string()),
            Self::Rejected(rejection) => Some(rejection.word().to_owned()),
        }
    }
}

/// A call that passes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Admission {
    /// What to settle or release; `None` for a mere arrival.
    pub reservation: Option<OperationId>,
    /// The bound to send upstream, per choice; `None`: send none.
    pub max_tokens: Option<u64>,
    /// Tokens reserved in all, prompt included; `None` when nothing limits tokens.
    pub reserved_tokens: Option<u64>,
    /// Which way it goes.
    pub lane: Lane,
    /// The policies that would have refused it, on a shadow plan.
    pub shadow: Vec<PolicyName>,
    /// It was admitted before under the same id; nothing was charged now.
    pub replayed: bool,
}

/// Which way an admitted call goes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// As asked.
    Main,
    /// To the cheaper model.
    Degraded,
}

/// A refusal: who refuses, why, and when exactly this call would pass.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Refusal {
    /// Every policy that refuses, longest wait first; never empty.
    pub violations: Vec<Violation>,
}

impl Refusal {
    /// The policy with the longest wait: the one that decides.
    pub fn decisive(&self) -> Option<&Violation> {
        self.violations.first()
    }
}

/// One policy that refuses.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Violation {
    /// Which.
    pub policy: PolicyName,
    /// Why.
    pub cause: Cause,
    /// The limit in force, top-ups included.
    pub limit: u64,
    /// What is left of it, too little for this call.
    pub remaining: u64,
    /// Until exactly this call would pass this policy, with no other traffic.
    pub wait: Span,
    /// When that is; for a quota, the moment its period ends.
    pub resets_at: Millis,
}

/// Why a policy refuses.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It is used up.
    Spent,
    /// It is only held by other calls under way, and may come free any moment.
    Held,
    /// The limit is zero: no wait helps before somebody raises it.
    Nothing,
}

/// A call that can never pass as it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// The operator has blocked the user.
    Blocked,
    /// The plan doesn't allow the model.
    ModelNotAllowed,
    /// It asks for more tokens than a request may have.
    MaxTokens {
        /// The plan's cap.
        cap: u64,
    },
    /// It costs more than the whole policy holds.
    ExceedsQuota {
        /// Which policy.
        policy: PolicyName,
        /// Its limit.
        limit: u64,
        /// What the call would cost.
        cost: u64,
    },
}

impl Rejection {
    const fn word(&self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::MaxTokens { .. } => "max_tokens",
            Self::ExceedsQuota { .. } => "request_exceeds_quota",
        }
    }
}
