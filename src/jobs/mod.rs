//! Jobs: calls that are done later, once the user's quota allows it or as soon as a consumer is free.
//!
//! A message is delivered at least once, so it only says that it is worth looking at a job; what is to
//! be done follows from the job's row. A consumer takes a job by one conditional write that holds for a
//! lease. The account is asked under the job's own id, so however often a job runs it is charged once;
//! only a run whose provider failed is given back, and the next one is charged anew under a new id.
//! The provider may be called twice in one case: the consumer ended after the provider had answered and
//! before the answer was stored.
//!
//! A result is kept, with the body, for [`upkeep::KEPT`] after the job came to its end.

pub mod admin;
pub mod consumer;
pub mod desk;
mod kept;
mod message;
mod run;
pub mod schedule;
pub mod submit;
pub mod upkeep;

/// Largest body of a call that is done later.
pub const MAX_BODY: usize = 100 << 10;
