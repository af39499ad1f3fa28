//! Everything between the wire and the product: errors, headers, ids, CORS, bounded bodies.

pub mod body;
pub mod cors;
pub mod doors;
pub mod error;
pub mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod ids;
pub mod incoming;
pub mod limit_headers;
pub mod lines;
pub mod page;
pub mod path;
pub mod pattern;
pub mod reply;
pub mod router;
pub mod targets;

pub use error::{ApiError, Shape};
pub use reply::Reply;
