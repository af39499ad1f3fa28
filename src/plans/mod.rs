//! What a user may do: plans, the overrides of single users, and the limits in force that follow.

pub mod cache;
mod ladder;
mod plan;
mod standing;

pub use ladder::next_above;
#[cfg(test)]
pub use plan::DEFAULT_WINDOW;
pub use plan::{InvalidPlan, MAX_COUNT, OnOutage, OverQuota, Plan, Strategy, check_name};
pub use standing::{Standing, UserStatus};
