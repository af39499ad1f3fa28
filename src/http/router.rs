//! From a request to the part that answers it. Whatever happens, the answer has our shape, our ids and
//! the CORS headers of its origin.

use std::rc::Rc;

use worker::{Context, Env, Method, Request, Response};

use super::cors::Origin;
use super::{ApiError, Reply, Shape, ids};
use crate::gateway::Dialect;
use crate::limits::Millis;
use crate::observe::{self, Timing, Watch};
use crate::settings::Settings;
use crate::{admin, clock, gateway, jobs, notify, openapi};

/// One call, with everything its handlers share.
pub struct Call {
    /// What came.
    pub request: Request,
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
pub async fn serve(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    let settings = Settings::of(&env);
    let origin = Origin::of(&request, &settings);
    let id = ids::fresh("req").map_err(|_| worker::Error::from("no random numbers"))?;
    let mut reply = if request.method() == Method::Options {
        origin.preflight(&request)
    } else {
        let path = request.path();
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
        reply
    };
    reply.set("x-request-id", id.as_str());
    reply.set("request-id", id);
    if reply.get("cache-control").is_none() {
        reply.set("cache-control", "no-store");
    }
    origin.expose(&mut reply);
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
    if let Some(dialect) = Dialect::of_path(path) {
        return gateway::llm(call, dialect).await;
    }
    match path {
        "/healthz" => admin::health::alive(&call),
        "/readyz" => admin::health::ready(&call).await,
        "/openapi.json" => openapi::serve(&call),
        "/metrics" => observe::metrics::show(call).await,
        "/api/ai/query" => gateway::simple_query(call).await,
        "/api/quota" => gateway::desk::quota(call).await,
        "/api/limits/consume" => gateway::decision::consume(call).await,
        "/api/limits/settle" => gateway::decision::settle(call).await,
        "/api/limits/release" => gateway::decision::release(call).await,
        "/api/jobs" => jobs::desk::list(call).await,
        "/api/notifications" => notify::desk::list(call).await,
        "/api/usage" => gateway::desk::usage(call).await,
        "/api/keys" => gateway::own_keys(call).await,
        "/v1/models" => gateway::models::list(call).await,
        _ => route_of_one(call, path).await,
    }
}

/// Routes whose path names one thing.
async fn route_of_one(call: Call, path: &str) -> Handled {
    if let Some(model) = path.strip_prefix("/v1/models/") {
        return gateway::models::one(call, model).await;
    }
    if let Some(id) = path.strip_prefix("/api/jobs/").filter(|id| is_segment(id)) {
        return jobs::desk::one(call, id).await;
    }
    let notification = path
        .strip_prefix("/api/notifications/")
        .and_then(|rest| rest.strip_suffix("/read"));
    if let Some(id) = notification.filter(|id| is_segment(id)) {
        return notify::desk::read(call, id).await;
    }
    if path.starts_with("/admin/") {
        return admin::route(call, path).await;
    }
    gateway::unknown(call).await
}

fn is_segment(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}
