//! The decision alone, for services that keep their own proxy. A key of scope `service` asks for any
//! user: `consume` decides and charges, `settle` and `release` say how it went.
//!
//! A refusal is an answer here, not a failure: 200 with `allowed: false`, the headers the service should
//! copy and the body of the 429 it should give. The asking service's own user is never charged. While an
//! account is out of reach the answer is 503: the service knows best whether it may go on, and asking
//! again with the same `operation_id` charges once.

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::desk::policies_json;
use super::reservation_id::ReservationId;
use super::session::{Pass, Session};
use crate::account::client::OutOfReach;
use crate::account::wire::{Answer, Ask};
use crate::auth::{Caller, Scope, front};
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply, body};
use crate::json::parse_strict;
use crate::limits::{self, Millis, OperationId, Outcome, Span, Tokens, Work};
use crate::plans::{MAX_COUNT, check_name};
use crate::settings::Secret;

/// How long an isolate believes a service's account that its key is still good.
const VOUCHED: Span = Span::seconds(3);
/// Most keys one isolate remembers that of.
const CAPACITY: usize = 256;
/// Longest `operation_id`.
const MAX_OPERATION: usize = 128;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Consume {
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 128), regex(pattern = r"^[!-~]+$"))
    )]
    user_id: String,
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$")))]
    endpoint: Option<String>,
    #[cfg_attr(test, schemars(range(min = 1)))]
    cost: Option<u64>,
    tokens: Option<u64>,
    peek: Option<bool>,
    #[cfg_attr(test, schemars(regex(pattern = r"^[ -~]{1,128}$")))]
    operation_id: Option<String>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settle {
    reservation_id: String,
    /// Absent: as many as were reserved, marked as an estimate.
    tokens: Option<u64>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    reservation_id: String,
}

thread_local! {
    /// When each service's account was last asked.
    static ASKED: RefCell<HashMap<String, Millis>> = RefCell::new(HashMap::new());
}

/// `POST /api/limits/consume`: may this user do this? Charges it, unless it only peeks.
pub async fn consume(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let service = session.caller.clone();
    let outcome = match read::<Consume>(&mut session).await {
        Ok(asked) => decide(&mut session, asked).await,
        Err(error) => Err(error),
    };
    Ok(close(session, service, outcome).await)
}

/// `POST /api/limits/settle`: this is what it used.
pub async fn settle(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let service = session.caller.clone();
    let outcome = match read::<Settle>(&mut session).await {
        Ok(Settle {
            reservation_id,
            tokens,
        }) => match tokens.map(|n| count("tokens", n)).transpose() {
            Ok(tokens) => {
                let used = |reserved| Outcome::Used {
                    prompt: tokens.unwrap_or(reserved),
                    completion: 0,
                    estimated: tokens.is_none(),
                };
                conclude(&mut session, &reservation_id, used).await
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    Ok(close(session, service, outcome).await)
}

/// `POST /api/limits/release`: it failed; its quotas are given back.
pub async fn release(call: Call) -> Handled {
    let mut session = Session::open(call).await?;
    let service = session.caller.clone();
    let outcome = match read::<Release>(&mut session).await {
        Ok(asked) => conclude(&mut session, &asked.reservation_id, |_| Outcome::Released).await,
        Err(error) => Err(error),
    };
    Ok(close(session, service, outcome).await)
}

/// The answer. One that is about nobody's limits carries the service's own.
async fn close(mut session: Session, service: Caller, outcome: Handled) -> Reply {
    if !session.stands() {
        session.caller = service;
        // The answer is worth having without them, too.
        let _ = session.view().await;
    }
    session.close(outcome)
}

/// What a service asks, once it is clear that it is one.
async fn read<T: DeserializeOwned>(session: &mut Session) -> Result<T, ApiError> {
    if session.caller.scope != Scope::Service {
        let error = ApiError::Forbidden {
            message: "Only a key of scope `service` may decide for others.".to_owned(),
            code: "insufficient_scope",
        };
        return Err(session.input_error(None, error).await);
    }
    vouch(session).await?;
    parse(&body::read(&session.call.request, body::MAX_JSON).await?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let value = parse_strict(bytes)?;
    serde_path_to_error::deserialize(value).map_err(|e| match e.path().to_string().as_str() {
        "." | "?" => ApiError::invalid(format!("The body is wrong: {}.", e.inner())),
        field => ApiError::invalid_field(field, format!("`{field}`: {}.", e.inner())),
    })
}

/// A revoked key or a blocked service ends within [`VOUCHED`], whatever the caches of keys say: its own
/// account is asked now and then. While that account is out, the key's record has to do.
async fn vouch(session: &Session) -> Result<(), ApiError> {
    let now = session.call.now;
    let key_id = session.caller.key_id.clone().unwrap_or_default();
    let asked = ASKED.with_borrow(|asked| asked.get(&key_id).copied());
    if asked.is_some_and(|at| now.since(at) < VOUCHED) {
        return Ok(());
    }
    match session.ask(Ask::View).await {
        Ok(Answer::Stands(standing)) if standing.blocked => Err(ApiError::Forbidden {
            message: "This service is blocked.".to_owned(),
            code: "user_blocked",
        }),
        Ok(Answer::Stands(_)) => {
            remember(key_id, now);
            Ok(())
        }
        Ok(other) => Err(session.denied(&other)),
        Err(OutOfReach) => Ok(()),
    }
}

fn remember(key_id: String, now: Millis) {
    ASKED.with_borrow_mut(|asked| {
        if asked.len() >= CAPACITY {
            asked.retain(|_, at| now.since(*at) < VOUCHED);
        }
        if asked.len() < CAPACITY {
            asked.insert(key_id, now);
        }
    });
}

async fn decide(session: &mut Session, asked: Consume) -> Handled {
    let tokens = count("tokens", asked.tokens.unwrap_or(0))?;
    let peek = asked.peek.unwrap_or(false);
    let call = limits::Call {
        operation: operation(session, asked.operation_id.as_deref())?,
        work: Work::Dispatch(Tokens {
            prompt: tokens,
            max_tokens: Some(0),
            choices: 0,
        }),
        cost: cost(asked.cost.unwrap_or(1))?,
        endpoint: asked.endpoint.map(endpoint).transpose()?,
        model: None,
        degrade: None,
        lease: session.lease(),
    };
    act_for(session, user(asked.user_id)?);
    let decided = if peek {
        session.peek(call).await
    } else {
        session.decide(call).await
    };
    match decided {
        Ok(pass) => allowed(session, &pass, tokens, peek),
        Err(error) if is_a_decision(&error) => Ok(refused(session, error)),
        Err(error) => Err(about_the_user(error)),
    }
}

/// From here on the session is that of the user who is decided about.
fn act_for(session: &mut Session, user_id: String) {
    session.caller = Caller {
        user_id,
        key_id: None,
        scope: Scope::User,
        plan_hint: None,
        plan_claim: None,
        provision: false,
    };
}

fn allowed(session: &Session, pass: &Pass, tokens: u64, peek: bool) -> Handled {
    let operation = pass.operation.clone().filter(|_| !peek);
    let reservation = operation.map(|operation| ReservationId {
        user: session.caller.user_id.clone(),
        tokens,
        operation,
    });
    let pepper = pepper(session)?;
    Ok(Reply::json(
        200,
        &json!({
            "allowed": true,
            "reservation_id": reservation.and_then(|r| r.seal(pepper)),
            "policies": policies(session),
            "headers": to_copy(&session.close(Ok(Reply::empty(200)))),
        }),
    ))
}

/// A refusal: `status` and the members of `body` are what the service's own answer should be.
fn refused(session: &Session, error: ApiError) -> Reply {
    let body = error.body(&session.call.id);
    let answer = session.close(Err(error));
    let mut told = Map::new();
    told.insert("allowed".into(), json!(false));
    told.insert("reservation_id".into(), Value::Null);
    told.insert("policies".into(), json!(policies(session)));
    told.insert("headers".into(), Value::Object(to_copy(&answer)));
    told.insert("status".into(), json!(answer.status));
    if let Value::Object(members) = body {
        told.extend(members);
    }
    Reply::json(200, &told)
}

/// Whether the user's limits said no; everything else is a failure to decide.
const fn is_a_decision(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Refused(_) | ApiError::Forbidden { .. } | ApiError::Invalid { .. }
    )
}

/// The user showed no credential, so an account that doesn't know them says nothing about one.
fn about_the_user(error: ApiError) -> ApiError {
    match error {
        ApiError::BadCredential(_) => ApiError::NotFound {
            message: "There is no such user.".to_owned(),
            code: "user_not_found",
        },
        other => other,
    }
}

/// Ends a reservation. One that is not known, was made up or was forgotten is `settled: false`; one that
/// has ended before stays as it ended.
async fn conclude(
    session: &mut Session,
    reservation_id: &str,
    outcome: impl FnOnce(u64) -> Outcome,
) -> Handled {
    let Some(reservation) = ReservationId::open(reservation_id, pepper(session)?) else {
        return Ok(Reply::json(200, &json!({"settled": false})));
    };
    act_for(session, reservation.user);
    let outcome = outcome(reservation.tokens);
    let ask = Ask::Conclude {
        operation: reservation.operation,
        outcome,
    };
    match session.ask(ask).await {
        Ok(Answer::Concluded { known, standing }) => {
            session.stand(standing);
            let headers = to_copy(&session.close(Ok(Reply::empty(200))));
            let told = json!({"settled": known, "policies": policies(session), "headers": headers});
            Ok(Reply::json(200, &told))
        }
        Ok(other) => Err(about_the_user(session.denied(&other))),
        Err(OutOfReach) => Err(ApiError::Unavailable("accounts")),
    }
}

fn policies(session: &Session) -> Vec<Value> {
    session
        .standing
        .as_ref()
        .map(policies_json)
        .unwrap_or_default()
}

/// The limit headers of an answer, by the names they are written with.
fn to_copy(answer: &Reply) -> Map<String, Value> {
    let limits = answer
        .headers()
        .iter()
        .filter(|(name, _)| name != "content-type");
    limits
        .map(|(name, value)| (written(name).to_owned(), json!(value)))
        .collect()
}

fn written(name: &str) -> &str {
    match name {
        "ratelimit" => "RateLimit",
        "ratelimit-policy" => "RateLimit-Policy",
        "retry-after" => "Retry-After",
        "x-ratelimit-limit" => "X-RateLimit-Limit",
        "x-ratelimit-remaining" => "X-RateLimit-Remaining",
        "x-ratelimit-reset" => "X-RateLimit-Reset",
        "x-sluice-decision" => "X-Sluice-Decision",
        "x-sluice-shadow" => "X-Sluice-Shadow",
        other => other,
    }
}

fn pepper(session: &Session) -> Result<&Secret, ApiError> {
    let pepper = session.call.settings.key_pepper.as_ref();
    pepper.ok_or(ApiError::Misconfigured("KEY_PEPPER is not set"))
}

/// The service's own operations are told apart from the gateway's and from other services'.
fn operation(session: &Session, asked: Option<&str>) -> Result<OperationId, ApiError> {
    let Some(id) = asked else {
        return session.operation();
    };
    let printable = id.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !(1..=MAX_OPERATION).contains(&id.len()) || !printable {
        return Err(ApiError::invalid_field(
            "operation_id",
            "`operation_id` must be 1 to 128 printable ASCII characters.",
        ));
    }
    Ok(OperationId(format!(
        "svc\n{}\n{id}",
        session.caller.user_id
    )))
}

fn user(user_id: String) -> Result<String, ApiError> {
    if front::is_user_id(&user_id) {
        return Ok(user_id);
    }
    Err(ApiError::invalid_field(
        "user_id",
        "`user_id` must be 1 to 128 printable characters without spaces.",
    ))
}

fn endpoint(name: String) -> Result<String, ApiError> {
    check_name("endpoint", &name)
        .map_err(|e| ApiError::invalid_field("endpoint", e.to_string()))?;
    Ok(name)
}

fn cost(cost: u64) -> Result<u64, ApiError> {
    match cost {
        0 => Err(ApiError::invalid_field(
            "cost",
            "`cost` must be at least 1.",
        )),
        cost => count("cost", cost),
    }
}

fn count(field: &str, value: u64) -> Result<u64, ApiError> {
    if value > MAX_COUNT {
        return Err(ApiError::invalid_field(
            field,
            format!("`{field}` must be below 2^53."),
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_field(body: &str) -> Option<String> {
        match parse::<Consume>(body.as_bytes()).map(|_| ()).unwrap_err() {
            ApiError::Invalid { param, .. } => param,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, field) in [
            (r#"{"user_id":1}"#, Some("user_id")),
            (r#"{"user_id":"u","cost":-1}"#, Some("cost")),
            (r#"{"user_id":"u","cost":1.5}"#, Some("cost")),
            (r#"{"user_id":"u","cost":"1"}"#, Some("cost")),
            (r#"{"user_id":"u","tokens":true}"#, Some("tokens")),
            (r#"{"user_id":"u","peek":1}"#, Some("peek")),
            (r#"{"user_id":"u","tokenz":1}"#, Some("tokenz")),
            (r#"{}"#, None),
            (r#"[]"#, None),
            (r#"{"user_id":"u","user_id":"v"}"#, Some("user_id")),
        ] {
            assert_eq!(wrong_field(body).as_deref(), field, "{body}");
        }
    }
}
