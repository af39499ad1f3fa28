//! The account: one Durable Object a user, and the only place where limits are decided.

pub mod client;
pub mod object;
pub mod open;
mod restore;
pub mod wire;
