use serde::{Deserialize, Serialize};

use super::{ModelPattern, Span};

/// What the caller chose or the gateway made to tell one operation from another; charged once.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct OperationId(pub String);

/// One call that asks to pass.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Call {
    /// Its id; asked again with the same one, it is answered again and charged once.
    pub operation: OperationId,
    /// What it is about to do.
    pub work: Work,
    /// How much of `rate`, `window`, `endpoint:*` and `daily` it takes; at least 1.
    pub cost: u64,
    /// The endpoint it goes to, if that one may have a limit of its own.
    pub endpoint: Option<String>,
    /// The model it names, resolved.
    pub model: Option<String>,
    /// What it may fall back to when a quota is used up.
    pub degrade: Option<DegradedLane>,
    /// How long its reservation lasts if nobody settles or renews it.
    pub lease: Span,
}

/// What a call is about to do, which decides what it costs (design rule 1).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// It only arrived: nothing is dispatched. Short limits count it, quotas do not.
    Arrival,
    /// It is dispatched, and settled or released afterwards.
    Dispatch(Tokens),
}

/// What a dispatched call may use.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tokens {
    /// Estimate of the prompt.
    pub prompt: u64,
    /// Most completion tokens a choice; `None`: the caller set no bound.
    pub max_tokens: Option<u64>,
    /// Choices asked for (`n`); 0 for work that completes nothing, such as embeddings.
    pub choices: u64,
}

/// The cheaper way for a call over its quota (design rule 8).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DegradedLane {
    /// The model it is sent to instead.
    pub model: String,
    /// Degraded calls a day; `None` is unlimited.
    pub daily_limit: Option<u64>,
    /// Models the plan allows are checked again; `None` is all of them.
    pub allowed_models: Option<Vec<ModelPattern>>,
}
