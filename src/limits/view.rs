use serde::{Deserialize, Serialize};

use super::{Millis, PolicyName, Span};

/// How one policy stands: a line of `GET /api/quota`, and what the headers are made of.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PolicyView {
    /// Its name.
    pub name: PolicyName,
    /// How it counts.
    pub kind: PolicyKind,
    /// What it counts.
    pub unit: Unit,
    /// The limit in force, top-ups included.
    pub limit: u64,
    /// Used so far; may exceed a lowered limit.
    pub used: u64,
    /// Held by calls under way.
    pub reserved: u64,
    /// Left for the next call; never negative.
    pub remaining: u64,
    /// Length of its window; `None` for concurrency, which has none.
    pub window: Option<Span>,
    /// When `remaining` is back to `limit` if nothing more is used.
    pub resets_at: Millis,
}

/// How a policy counts.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Periods with a fixed end.
    Fixed,
    /// A bucket that refills.
    Bucket,
    /// A window that slides.
    Sliding,
    /// Calls under way.
    Concurrency,
}

/// What a policy counts.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Calls.
    Requests,
    /// Tokens.
    Tokens,
    /// Calls under way.
    ConcurrentRequests,
}
