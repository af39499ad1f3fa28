//! Protected routes: an operator's own HTTP service gets per-user limits without changing a line.
//!
//! A call is admitted like any other, then forwarded with its body as it streams in, and the service's
//! answer streams down untouched. It ends in one of four ways, and each is settled once:
//!
//! - the service answers: the call counts. Nothing of the body is looked at, so it is settled as soon as
//!   the head is there, unless the plan limits calls under way: then it is under way until the last byte;
//! - the service answers 429 or 5xx: its answer is passed down as it is, and the quota is given back;
//! - the service is out of reach or too slow: 502 or 504, and the quota is given back;
//! - the caller leaves before the head: the service is told to stop, and the call counts.

mod forward;
mod headers;
mod table;

use std::rc::Rc;

pub use table::{check, forget};

use super::session::Session;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, path};
use crate::limits::{self, Span, Tokens, Work};
use table::Route;

/// What a path that nobody serves turned out to be.
pub enum Place {
    /// A protected route's.
    Route(Rc<Route>, path::Path),
    /// Nobody's.
    Nowhere,
    /// Impossible to tell: it can be read in two ways.
    Ambiguous(path::Ambiguous),
}

/// Whose path this is.
pub async fn find(call: &Call) -> Result<Place, ApiError> {
    let path = match path::Path::normalise(call.request.path()) {
        Ok(path) => path,
        Err(why) => return Ok(Place::Ambiguous(why)),
    };
    if path.is_reserved() {
        return Ok(Place::Nowhere);
    }
    let table = table::read(&call.env, call.now).await?;
    Ok(table
        .find(&path)
        .map_or(Place::Nowhere, |route| Place::Route(route, path)))
}

/// Answers a call on a protected route.
pub async fn serve(call: Call, route: Rc<Route>, path: path::Path) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = match acceptable(&session, &route) {
        Ok(()) => admitted(&mut session, &route, &path).await,
        Err(error) => Err(session.input_error(route.endpoint(), error).await),
    };
    let wrong_method = matches!(outcome, Err(ApiError::MethodNotAllowed(_)));
    let mut reply = session.close(outcome);
    if wrong_method {
        reply.set("allow", route.allowed_methods());
    }
    Ok(reply)
}

fn acceptable(session: &Session, route: &Route) -> Result<(), ApiError> {
    let request = &session.call.request;
    if !route.takes(request.method()) {
        return Err(ApiError::MethodNotAllowed(request.method().to_owned()));
    }
    let upgrade = request.header("upgrade").unwrap_or_default();
    if upgrade.to_ascii_lowercase().contains("websocket") {
        return Err(ApiError::Invalid {
            message: "WebSockets are not forwarded: their messages could not be counted."
                .to_owned(),
            param: None,
            code: "upgrade_not_supported",
        });
    }
    Ok(())
}

async fn admitted(session: &mut Session, route: &Rc<Route>, path: &path::Path) -> Handled {
    let call = limits::Call {
        operation: session.operation()?,
        work: Work::Dispatch(Tokens {
            prompt: 0,
            max_tokens: Some(0),
            choices: 0,
        }),
        cost: route.cost(),
        endpoint: route.endpoint().map(str::to_owned),
        model: None,
        degrade: None,
        lease: Span(route.timeout().0.saturating_add(LEASE_MARGIN.0)),
    };
    let pass = session.admit(call).await?;
    forward::run(session, route, path, &pass).await
}

/// How long a reservation outlives the time the service has for its first byte.
const LEASE_MARGIN: Span = Span::seconds(30);
