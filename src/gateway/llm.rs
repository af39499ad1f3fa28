use super::again::Again;
use super::complete::Dispatch;
use super::conduct;
use super::models::{self, Target};
use super::request::{LlmRequest, SimpleQuery};
use super::session::{Pass, Session};
use super::{Dialect, mock};
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply, body};
use crate::limits::{self, Tokens, Work};
use crate::overflow::{self, Later};

/// The endpoint name of the simple door.
const SIMPLE: &str = "query";

/// Answers one of the LLM routes.
pub async fn llm(call: Call, dialect: Dialect) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = match read(&session, dialect).await {
        Ok(request) => answer(&mut session, request, dialect.endpoint()).await,
        Err(error) => Err(session.input_error(Some(dialect.endpoint()), error).await),
    };
    let again = match &outcome {
        Err(ApiError::Refused(refused)) => Again::of(&session, refused),
        _ => None,
    };
    let mut reply = session.close(outcome);
    reply.notes.again = again.map(Box::new);
    Ok(reply)
}

/// Answers the simple door: a prompt in, a chat completion out.
pub async fn simple_query(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let outcome = match read_simple(&session).await {
        Ok(request) => answer(&mut session, request, SIMPLE).await,
        Err(error) => Err(session.input_error(Some(SIMPLE), error).await),
    };
    Ok(session.close(outcome))
}

async fn read(session: &Session, dialect: Dialect) -> Result<LlmRequest, ApiError> {
    let request = &session.call.request;
    let parsed = LlmRequest::parse(dialect, &body::read(request, body::MAX_JSON).await?)?;
    if parsed.stream() && overflow::prefers_async(request) {
        let words = "A streamed answer can't be sent later: leave out `stream`, or `Prefer: respond-async`.";
        return Err(ApiError::invalid_field("stream", words));
    }
    Ok(parsed)
}

async fn read_simple(session: &Session) -> Result<LlmRequest, ApiError> {
    let query = SimpleQuery::parse(&body::read(&session.call.request, body::MAX_JSON).await?)?;
    let model = match query.names_a_model() {
        true => None,
        false => models::default_model(session).await?,
    };
    Ok(query.into_chat(model)?)
}

impl From<super::request::InvalidRequest> for ApiError {
    fn from(invalid: super::request::InvalidRequest) -> Self {
        Self::Invalid {
            message: invalid.message,
            param: invalid.param,
            code: invalid.code,
        }
    }
}

async fn answer(session: &mut Session, request: LlmRequest, endpoint: &str) -> Handled {
    let target = match models::resolve(&session.call, request.model()).await {
        Ok(target) => target,
        Err(error) => return Err(session.input_error(Some(endpoint), error).await),
    };
    if request.dialect() == Dialect::CountTokens {
        session.arrive(Some(endpoint)).await?;
        return count_tokens(&request);
    }
    let operation = session.operation()?;
    let later = Later {
        request: &request,
        endpoint,
        operation: operation.clone(),
    };
    let call = limits::Call {
        operation,
        work: work(&request),
        cost: 1,
        endpoint: Some(endpoint.to_owned()),
        model: Some(target.model.clone()),
        degrade: None,
        lease: session.lease(),
    };
    if overflow::prefers_async(&session.call.request) {
        return overflow::now_or_later(session, call, later).await;
    }
    let pass = match session.admit(call).await {
        Err(ApiError::Refused(refused)) => {
            return overflow::refused(session, refused, later).await;
        }
        admitted => admitted?,
    };
    let target = lane(session, target, &pass).await?;
    conduct::run(
        session,
        Dispatch {
            request,
            target,
            pass,
        },
    )
    .await
}

/// The provider's own count would cost a hop and a key's budget; the gateway's estimate is what it
/// reserves by, so that is the number worth knowing.
fn count_tokens(request: &LlmRequest) -> Handled {
    Ok(Reply::json(200, &mock::count_tokens(request)))
}

/// What a request may use.
pub fn work(request: &LlmRequest) -> Work {
    let choices = if request.dialect() == Dialect::Embeddings {
        0
    } else {
        request.choices()
    };
    Work::Dispatch(Tokens {
        prompt: request.prompt_tokens(),
        max_tokens: request.max_tokens(),
        choices,
    })
}

async fn lane(session: &mut Session, target: Target, pass: &Pass) -> Result<Target, ApiError> {
    let Some(model) = &pass.degraded_to else {
        return Ok(target);
    };
    let cheaper = models::resolve(&session.call, model).await;
    if cheaper.is_err() {
        conduct::release(session, pass).await;
    }
    cheaper
}
