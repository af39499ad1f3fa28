//! What the operator sees of the gateway: a line in the log for every call, numbers for Prometheus,
//! alerts, and whether accounts and ledger agree. Numbers come out of the ledger, never out of an isolate's
//! memory.

pub mod alerts;
pub mod metrics;
pub mod reconcile;
mod rules;
mod text;
mod timing;
pub mod upkeep;
mod watch;

pub use timing::{Stage, Timing};
pub use watch::{Alike, Watch};
