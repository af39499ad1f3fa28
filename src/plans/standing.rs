use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{InvalidPlan, Plan};

/// How a user stands with the operator: their row of `users`, as their account remembers it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Standing {
    /// The plan they are on.
    pub plan_id: String,
    /// Whether they may call at all.
    pub status: UserStatus,
    /// Plan fields of their own.
    #[serde(default)]
    pub overrides: Map<String, Value>,
    /// Grows with every change of the row; an older one never replaces a newer.
    pub version: u64,
}

/// Whether a user may call at all.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UserStatus {
    /// As far as their plan lets them.
    #[default]
    Active,
    /// Not before the operator says so.
    Blocked,
}

impl UserStatus {
    /// The word for it in JSON and in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Blocked => "blocked",
        }
    }
}

impl Standing {
    /// The plan in force for this user.
    pub fn effective(&self, plan: &Plan) -> Result<Plan, InvalidPlan> {
        plan.with_overrides(&self.overrides)
    }

    /// Whether the operator has blocked this user.
    pub fn is_blocked(&self) -> bool {
        self.status == UserStatus::Blocked
    }
}
