//! `GET /openapi.json`: the HTTP surface as an OpenAPI 3.1 document. It is written by this crate's tests out
//! of the types and tables that serve it, kept beside this file, and read here.

#[cfg(test)]
mod document;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod paths;
#[cfg(test)]
pub mod schema;
#[cfg(test)]
mod schemas;

use crate::http::Reply;

const DOCUMENT: &str = include_str!("openapi.json");

/// Anybody may read it.
pub fn serve() -> Reply {
    Reply::bytes(200, "application/json", DOCUMENT.as_bytes().to_vec())
}
