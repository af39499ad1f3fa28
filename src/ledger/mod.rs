//! The authoritative record in D1. All SQL of the project is in this folder, one file a table group;
//! what an account keeps in its own storage is in [`hot`].

pub mod alerts;
pub mod audit;
mod db;
pub mod dead_letters;
pub mod hot;
pub mod jobs;
pub mod keys;
pub mod metrics;
pub mod models;
pub mod notifications;
pub mod open_calls;
pub mod plans;
pub mod reconcile;
pub mod retention;
pub mod routes;
pub mod stats;
pub mod usage;
pub mod users;

pub use db::{Db, LedgerError};
