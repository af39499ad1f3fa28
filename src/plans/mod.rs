//! What a user may do: plans, the overrides of single users, and the limits in force that follow.

pub mod cache;
mod ladder;
mod plan;
mod standing;

pub use ladder::next_above;
pub use plan::{
    EndpointSpec, InvalidPlan, MAX_COUNT, OnOutage, OverQuota, Plan, ResetSpec, Strategy,
    WindowSetting, WindowSpec, check_name,
};
pub use standing::{Standing, UserStatus};
