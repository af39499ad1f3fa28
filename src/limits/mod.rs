//! The law: what a user may do, decided from what they did before.
//!
//! Nothing here knows Cloudflare or a clock: time is an argument ([`Millis`]), storage is the caller's.
//! [`Account`] holds everything one user has used and decides every limit of a plan together, all or
//! nothing: a refused call costs none of them (design rule 1).

mod account;
mod admit;
mod bucket;
mod call;
mod decide;
mod firm;
mod handed;
mod holding;
mod latency;
mod lease;
mod operate;
mod overview;
mod packed;
mod period;
mod policy;
mod quota;
mod reservation;
mod stored;
mod time;
mod totals;
mod verdict;
mod view;
mod window;
mod zone;

pub use account::{Account, QuotaSnapshot};
pub use admit::{Bounds, allows_model, bounds};
pub use call::{Call, DegradedLane, OperationId, Tokens, Work};
pub use decide::DEFAULT_MAX_TOKENS;
pub use handed::{Handed, OpenCall, Returned, Terms};
pub use holding::Holding;
pub use latency::{BUCKETS, ENDLESS, Latency, SUM, Took};
pub use lease::{GRACE, LAPSED_FOR, LENGTH};
pub use period::{LocalDate, Period, RollingDay, billing_month, calendar_day};
pub use policy::{
    BucketLimit, EndpointLimit, Limits, MaxTokensMode, ModelPattern, PolicyName, Reset, ResetMode,
    WindowLimit,
};
pub use quota::{Crossing, GrantError};
pub use reservation::{Metered, Outcome, SettleResult};
pub use stored::{Changes, DecodeError, NoPageKey, PageKey, StoredPage};
pub use time::{Millis, Span};
pub use totals::Totals;
pub use verdict::{Admission, Cause, Lane, Refusal, Rejection, Verdict, Violation};
pub use view::{PolicyKind, PolicyView, Unit};
pub use zone::Zone;

#[cfg(test)]
mod tests;
