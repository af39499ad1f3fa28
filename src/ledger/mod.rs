//! The authoritative record in D1. All SQL of the project is in this folder, one file a table group;
//! what an account keeps in its own storage is in [`hot`].

pub mod audit;
mod db;
pub mod dead_letters;
pub mod hot;
pub mod jobs;
pub mod keys;
pub mod models;
pub mod notifications;
pub mod plans;
pub mod routes;
pub mod stats;
pub mod usage;
pub mod users;

pub use db::{Db, LedgerError};
