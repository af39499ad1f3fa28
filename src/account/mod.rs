//! The account: one Durable Object a user, and the only place where limits are decided.

pub mod client;
pub mod ended;
pub mod leases;
pub mod object;
pub mod open;
pub mod refusals;
mod restore;
pub mod wire;
