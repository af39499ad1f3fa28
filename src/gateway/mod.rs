//! The work: from an authenticated call to the provider's answer. One admission stands in front of the
//! only upstream client.

pub mod again;
mod catalog;
mod complete;
mod conduct;
pub mod decision;
pub mod desk;
mod dialect;
mod estimate;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hangup;
mod headers;
mod llm;
mod meter;
mod mock;
mod mock_upstream;
pub mod models;
mod own_keys;
pub mod protected;
mod request;
mod reservation_id;
mod session;
mod sse;
mod stream;
mod upstream;
mod usage;
mod workers_ai;

pub use complete::{Completed, Dispatch};
pub use dialect::Dialect;
pub use headers::to_upstream as headers_to_upstream;
pub use llm::{llm, simple_query, work};
pub use own_keys::own_keys;
pub use request::LlmRequest;
pub use session::{Pass, Session, rejected};
pub use upstream::timed_out;

use protected::Place;

use crate::http::ApiError;
use crate::http::router::{Call, Handled};

/// A method that a route of the gateway's own does not take. Where there is work, it counts against the
/// caller's short limits.
pub async fn turn_away(call: Call, is_work: bool, error: ApiError) -> Handled {
    let mut session = Session::open(call).await?;
    let error = if is_work {
        session.input_error(None, error).await
    } else {
        error
    };
    Ok(session.close(Err(error)))
}

/// A path that is none of the gateway's own: a protected route's, or nobody's.
pub async fn unknown(call: Call) -> Handled {
    match protected::find(&call).await? {
        Place::Route(route, path) => protected::serve(call, route, path).await,
        Place::Nowhere => nowhere(call, ApiError::no_route()).await,
        Place::Ambiguous(why) => nowhere(call, ApiError::invalid(format!("The path {why}."))).await,
    }
}

/// A path nobody serves: a stranger learns nothing, a caller's short limits count it.
async fn nowhere(call: Call, error: ApiError) -> Handled {
    let Ok(mut session) = Session::open(call).await else {
        return Err(ApiError::no_route());
    };
    let answer = session.input_error(None, error).await;
    Ok(session.close(Err(answer)))
}
