//! What callers and monitors may call.

use serde_json::{Value, json};

use super::operation::Operation;
use super::parts::Desk;
use super::schema::{named, object, page};
use crate::gateway::Dialect;

/// Every operation that is not the operator's desk.
pub fn all() -> Vec<Operation> {
    let mut all: Vec<_> = Dialect::ALL.into_iter().map(llm).collect();
    all.extend(models());
    all.push(simple());
    all.extend(decisions());
    all.extend(desk());
    all.extend(gateway());
    all
}

/// What is sent to users and to the operator.
pub fn webhooks() -> Value {
    let header = |name: &str, description: &str| json!({"name": name, "in": "header", "required": true, "description": description, "schema": {"type": "string"}});
    json!({"news": {"post": {
        "operationId": "news",
        "tags": ["desk"],
        "summary": "News to the `webhook_url` of a user, or the operator's.",
        "description": "Signed by the Standard Webhooks scheme. Any 2xx is success; 410 ends the webhook.",
        "security": [],
        "parameters": [
            header("webhook-id", "The same over all attempts."),
            header("webhook-timestamp", "Of this attempt, in Unix seconds."),
            header("webhook-signature", "`v1,` and the Base64 of HMAC-SHA-256 over `{id}.{timestamp}.{body}`."),
        ],
        "requestBody": {"required": true, "content": {"application/json": {"schema": named("News")}}},
        "responses": {
            "2XX": {"description": "Received."},
            "410": {"description": "Nobody listens here any more."},
        },
    }}})
}

const LLM_ERRORS: [u16; 3] = [404, 502, 504];

fn llm(dialect: Dialect) -> Operation {
    let (id, summary, takes, gives) = match dialect {
        Dialect::ChatCompletions => (
            "createChatCompletion",
            "A chat completion.",
            "ChatCompletionRequest",
            "ChatCompletion",
        ),
        Dialect::Completions => (
            "createCompletion",
            "A text completion.",
            "CompletionRequest",
            "Completion",
        ),
        Dialect::Embeddings => (
            "createEmbeddings",
            "Embeddings.",
            "EmbeddingRequest",
            "Embeddings",
        ),
        Dialect::Responses => (
            "createResponse",
            "A response.",
            "ResponseRequest",
            "Response",
        ),
        Dialect::Messages => ("createMessage", "A message.", "MessageRequest", "Message"),
        Dialect::CountTokens => (
            "countTokens",
            "How many tokens a message would take; it costs none.",
            "CountTokensRequest",
            "TokenCount",
        ),
    };
    let desk = match dialect {
        Dialect::Messages | Dialect::CountTokens => Desk::Anthropic,
        _ => Desk::OpenAi,
    };
    let gives_what = if dialect.can_stream() {
        "The provider's answer; with `stream`, its events one after the other."
    } else {
        "The provider's answer."
    };
    let mut content = json!({"application/json": {"schema": named(gives)}});
    if dialect.can_stream() {
        // No schema: tools disagree on whether one would tell of an event or of all of them.
        content["text/event-stream"] = json!({});
    }
    let operation = Operation::new(desk, "POST", dialect.path(), id, summary)
        .tag("llm")
        .body(takes)
        .answers_with(200, gives_what, &[], content)
        .errors(&LLM_ERRORS);
    if dialect != Dialect::CountTokens {
        or_later(operation)
    } else {
        operation
    }
}

/// Calls that may wait answer 202.
fn or_later(operation: Operation) -> Operation {
    let accepted = json!({"application/json": {"schema": named("AcceptedJob")}});
    operation.parameters(&["prefer"]).answers_with(
        202,
        "The call was queued; it is asked for at `Location`.",
        &["Location", "RetryAfter", "PreferenceApplied"],
        accepted,
    )
}

fn models() -> [Operation; 2] {
    let get = |path, id, summary| Operation::new(Desk::OpenAi, "GET", path, id, summary).tag("llm");
    [
        get(
            "/v1/models",
            "listModels",
            "The models this caller may use, in a body both SDK families read.",
        )
        .answer(200, "The models.", named("ModelList")),
        get("/v1/models/{model*}", "getModel", "One model.")
            .answer(200, "The model.", named("ModelObject"))
            .errors(&[404]),
    ]
}

fn simple() -> Operation {
    let operation = Operation::new(Desk::Caller, "POST", "/api/ai/query", "query", "The simple door: a prompt in, a chat completion out.")
        .tag("llm")
        .describe("On a plan whose strategy over quota is `queue`, a call over quota is queued without being asked to.")
        .body("SimpleQuery")
        .answer(200, "The answer.", named("ChatCompletion"))
        .errors(&LLM_ERRORS);
    or_later(operation)
}

fn decisions() -> [Operation; 3] {
    let post = |path, id, summary, takes, gives| {
        Operation::new(Desk::Caller, "POST", path, id, summary)
            .tag("decisions")
            .describe("For keys of scope `service`, which act for any user.")
            .body(takes)
            .answer(200, "How it went.", named(gives))
            .errors(&[404])
    };
    [
        post(
            "/api/limits/consume",
            "consume",
            "May this user do this? Charges it, unless it only peeks.",
            "Consume",
            "Decision",
        ),
        post(
            "/api/limits/settle",
            "settle",
            "This is what it used.",
            "Settle",
            "Conclusion",
        ),
        post(
            "/api/limits/release",
            "release",
            "It failed; its quotas are given back.",
            "Release",
            "Conclusion",
        ),
    ]
}

fn desk() -> Vec<Operation> {
    let new = |method, path, id, summary| {
        Operation::new(Desk::Caller, method, path, id, summary).tag("desk")
    };
    let part = &["limit", "cursor"];
    vec![
        new(
            "GET",
            "/api/quota",
            "getQuota",
            "What is left. It spends nothing and works when nothing is left.",
        )
        .answer(200, "The quota.", named("Quota")),
        new(
            "GET",
            "/api/usage",
            "getUsage",
            "What was used, one row a day.",
        )
        .parameters(&["from", "to"])
        .answer(200, "The days.", page(named("UsageDay"))),
        new(
            "GET",
            "/api/keys",
            "listOwnKeys",
            "The caller's keys that are still good.",
        )
        .parameters(part)
        .answer(200, "The keys.", page(named("OwnKey"))),
        new(
            "GET",
            "/api/jobs",
            "listJobs",
            "Queued calls, the newest first.",
        )
        .parameters(part)
        .answer(200, "The jobs.", page(named("Job"))),
        new("GET", "/api/jobs/{id}", "getJob", "One queued call.")
            .answers_with(
                200,
                "The job.",
                &["RetryAfter"],
                json!({"application/json": {"schema": named("Job")}}),
            )
            .errors(&[404]),
        new(
            "DELETE",
            "/api/jobs/{id}",
            "cancelJob",
            "Takes a queued call back. Doing it twice is doing it once.",
        )
        .answer(200, "The job.", named("Job"))
        .errors(&[404, 409]),
        new(
            "GET",
            "/api/notifications",
            "listNotifications",
            "The inbox, the newest first.",
        )
        .parameters(part)
        .answer(200, "The notifications.", page(named("Notification"))),
        new(
            "POST",
            "/api/notifications/{id}/read",
            "readNotification",
            "Marks a notification as read. Doing it twice is doing it once.",
        )
        .answer(200, "The notification.", named("Notification"))
        .errors(&[404]),
    ]
}

fn gateway() -> [Operation; 4] {
    let open = |path, id, summary| Operation::new(Desk::Open, "GET", path, id, summary);
    let document = json!({"application/json": {"schema": {"type": "object", "required": ["openapi"], "properties": {"openapi": {"const": "3.1.1"}}, "additionalProperties": true}}});
    let metrics = json!({"text/plain": {"schema": {"type": "string"}}});
    [
        open("/healthz", "healthz", "This Worker runs.").answer(200, "It does.", named("Health")),
        open("/readyz", "readyz", "It could serve a call now.")
            .answer(200, "It could.", named("Readiness"))
            .answer(
                503,
                "It could not; `problems` says why.",
                named("Readiness"),
            ),
        open("/openapi.json", "openapi", "This document.").answers_with(
            200,
            "The document.",
            &["CacheControl"],
            document,
        ),
        Operation::new(
            Desk::Operator,
            "GET",
            "/metrics",
            "metrics",
            "Numbers for Prometheus.",
        )
        .tag("operator")
        .answers_with(
            200,
            "The numbers, in Prometheus's text format.",
            &[],
            metrics,
        ),
    ]
}

#[test]
fn every_operation_has_an_id_of_its_own() {
    let all: Vec<_> = all()
        .into_iter()
        .chain(super::operator::all())
        .map(|o| o.write()["operationId"].clone())
        .collect();
    let ids = object(json!(
        all.iter()
            .map(|id| (id.as_str().unwrap(), json!({})))
            .collect::<std::collections::BTreeMap<_, _>>()
    ));
    assert_eq!(ids["properties"].as_object().unwrap().len(), all.len());
}
