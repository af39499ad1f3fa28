//! From a request to the part that answers it. Whatever happens, the answer has our shape, our ids and
//! the CORS headers of its origin.

use std::future::ready;
use std::rc::Rc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use worker::{Context, Env};

use super::cors::Origin;
use super::doors::{self, Door, Found};
use super::incoming::Incoming;
use super::{ApiError, Reply, Shape, ids};
use crate::limits::Millis;
use crate::observe::{self, Timing, Watch};
use crate::settings::Settings;
use crate::{admin, auth, clock, gateway, jobs, notify, openapi};

/// One call, with everything its handlers share.
pub struct Call {
    /// What came.
    pub request: Incoming,
    /// The bindings.
    pub env: Env,
    /// The settings.
    pub settings: Rc<Settings>,
    /// When it came.
    pub now: Millis,
    /// Its id, made here.
    pub id: String,
    /// Work that goes on after the answer.
    pub context: Rc<Context>,
    /// How its errors are shaped.
    pub shape: Shape,
    /// What took how long.
    pub timing: Rc<Timing>,
}

/// A handler's result.
pub type Handled = Result<Reply, ApiError>;

/// Answers one request.
pub async fn serve(
    request: Incoming,
    env: Env,
    context: Context,
) -> worker::Result<web_sys::Response> {
    let settings = Settings::of(&env);
    let origin = Origin::of(&request, &settings);
    let id = ids::fresh("req").map_err(|_| worker::Error::from("no random numbers"))?;
    let mut alike = None;
    let mut reply = if request.method() == "OPTIONS" {
        origin.preflight(&request)
    } else {
        let path = request.path().to_owned();
        let shape = shape_of(&path);
        let timing = Rc::new(Timing::default());
        let watch = Watch::start(&request, &env, &settings, timing.clone());
        let call = Call {
            timing,
            now: clock::now(&settings),
            context: Rc::new(context),
            id: id.clone(),
            request,
            env,
            settings,
            shape,
        };
        let mut reply = match route(call, &path).await {
            Ok(reply) => reply,
            Err(error) => error.reply(shape, &id),
        };
        watch.stop(&path, &id, &mut reply);
        alike = watch.alike(&path, &reply);
        reply
    };
    reply.set("x-request-id", id.as_str());
    reply.set("request-id", id.as_str());
    if reply.get("cache-control").is_none() {
        reply.set("cache-control", "no-store");
    }
    origin.expose(&mut reply);
    if let (Some(again), Some(alike)) = (reply.notes.again.take(), alike) {
        again.keep(&reply, &id, alike);
    }
    reply.into_response()
}

/// Anthropic's SDKs read their own error shape, and only on their own routes.
fn shape_of(path: &str) -> Shape {
    if path == "/v1/messages" || path.starts_with("/v1/messages/") {
        Shape::Anthropic
    } else {
        Shape::OpenAi
    }
}

async fn route(call: Call, path: &str) -> Handled {
    match doors::find(call.request.method(), path) {
        Found::Door(door, id) => enter(call, door, &id).await,
        Found::WrongMethod(door, allow) => {
            let mut reply = turn_away(call, door).await?;
            if reply.status == 405 {
                reply.set("allow", allow);
            }
            Ok(reply)
        }
        Found::Nowhere if is_desk(path) => admin::route(call, path).boxed_local().await,
        Found::Nowhere => gateway::unknown(call).boxed_local().await,
    }
}

fn is_desk(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

/// Each door's work is a future of its own: as one, they would take the room of the largest for every call.
fn enter(call: Call, door: Door, id: &str) -> LocalBoxFuture<'_, Handled> {
    match door {
        Door::Llm(dialect) => gateway::llm(call, dialect).boxed_local(),
        Door::Models => gateway::models::list(call).boxed_local(),
        Door::Model => gateway::models::one(call, id).boxed_local(),
        Door::Query => gateway::simple_query(call).boxed_local(),
        Door::Consume => gateway::decision::consume(call).boxed_local(),
        Door::Settle => gateway::decision::settle(call).boxed_local(),
        Door::Release => gateway::decision::release(call).boxed_local(),
        Door::Quota => gateway::desk::quota(call).boxed_local(),
        Door::Usage => gateway::desk::usage(call).boxed_local(),
        Door::Keys => gateway::own_keys(call).boxed_local(),
        Door::Jobs => jobs::desk::list(call).boxed_local(),
        Door::Job => jobs::desk::one(call, id).boxed_local(),
        Door::CancelJob => jobs::desk::take_back(call, id).boxed_local(),
        Door::Notifications => notify::desk::list(call).boxed_local(),
        Door::Read => notify::desk::read(call, id).boxed_local(),
        Door::Alive => ready(Ok(admin::health::alive())).boxed_local(),
        Door::Ready => async move { Ok(admin::health::ready(&call).await) }.boxed_local(),
        Door::Document => ready(Ok(openapi::serve())).boxed_local(),
        Door::Metrics => observe::metrics::show(call).boxed_local(),
    }
}

/// The 405; where a credential is needed, only for who has one.
async fn turn_away(call: Call, door: Door) -> Handled {
    let error = ApiError::MethodNotAllowed(call.request.method().to_owned());
    match door {
        Door::Metrics => {
            auth::require_admin(&call.request, &call.env, &call.settings, call.now).await?;
            Ok(error.reply(call.shape, &call.id))
        }
        _ if door.is_open() => Ok(error.reply(call.shape, &call.id)),
        _ => gateway::turn_away(call, door.is_work(), error).await,
    }
}
