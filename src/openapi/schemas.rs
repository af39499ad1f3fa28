//! The bodies that come and go. What the operator and services send is read off the very types it is parsed
//! into, and rows off the types they are written from; only what is put together in place is told again here,
//! and the tests hold real answers against it.

use serde_json::{Map, Value, json};

use super::schema::{named, object, shown, taken, with};
use crate::account::wire::{Counted, DriftKind};
use crate::auth::Scope;
use crate::gateway::decision::{Consume, Release, Settle};
use crate::ledger::{
    audit, jobs::JobStatus, models::ModelRow, routes::RouteRow, stats, usage, users::User,
};
use crate::limits::{PolicyKind, Unit};
use crate::plans::{DEFAULT_WINDOW, Plan};

/// Every schema by its name.
pub fn all() -> Value {
    let mut all = Map::new();
    let groups = [
        crate::admin::bodies::all(),
        plans(),
        rows(),
        of_callers(),
        decisions(),
        of_operators(),
        errors(),
        llm_requests(),
        llm_answers(),
    ];
    for (name, schema) in groups.into_iter().flatten() {
        assert!(
            all.insert(name.to_owned(), schema).is_none(),
            "{name} is there twice"
        );
    }
    for body in ["NewUser", "UserPatch"] {
        all[body]["properties"]["overrides"] =
            json!({"anyOf": [named("PlanOverrides"), {"type": "null"}]});
    }
    Value::Object(all)
}

type Named = Vec<(&'static str, Value)>;

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn time_or_null() -> Value {
    json!({"type": ["string", "null"], "format": "date-time"})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn text_or_null() -> Value {
    json!({"type": ["string", "null"]})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn count_or_null() -> Value {
    json!({"type": ["integer", "null"], "minimum": 0})
}

fn share_or_null() -> Value {
    json!({"type": ["number", "null"], "minimum": 0, "maximum": 1})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn versioned(row: Value) -> Value {
    with(
        row,
        json!({"version": {"type": "integer", "minimum": 1, "description": "Grows with every change."}, "updated_at": time()}),
    )
}

/// A plan in its four ways: new, changed, overridden, shown.
fn plans() -> Named {
    let mut new = taken::<Plan>();
    as_written(&mut new["properties"]);
    let mut patch = new.clone();
    let fields = patch.as_object_mut().expect("an object");
    fields.shift_remove("required");
    fields.insert(
        "description".into(),
        json!("Members that take the place of the plan's own; `null` is unlimited."),
    );
    without_defaults(fields);
    let mut overrides = patch.clone();
    overrides["description"] = json!("Members that hold for this user in place of the plan's own.");
    for own in ["plan_id", "name"] {
        overrides["properties"]
            .as_object_mut()
            .expect("an object")
            .shift_remove(own);
    }
    let broken = object(json!({
        "plan_id": text(), "name": text(),
        "invalid": {"type": "string", "description": "What is wrong with a row that was written by hand."},
    }));
    vec![
        ("NewPlan", new),
        ("PlanPatch", patch),
        ("PlanOverrides", overrides),
        ("Plan", versioned(shown::<Plan>())),
        ("BrokenPlan", broken),
    ]
}

/// What the type does not say of how a plan may be written.
fn as_written(fields: &mut Value) {
    fields["notify_at"]["items"]["exclusiveMinimum"] = json!(0);
    let mut window = fields["window"].take();
    let description = window
        .as_object_mut()
        .and_then(|one| one.shift_remove("description"));
    fields["window"] =
        json!({"description": description, "anyOf": [window, {"const": DEFAULT_WINDOW}]});
}

fn without_defaults(schema: &mut Map<String, Value>) {
    for field in schema["properties"]
        .as_object_mut()
        .expect("an object")
        .values_mut()
    {
        field
            .as_object_mut()
            .expect("an object")
            .shift_remove("default");
    }
}

/// Rows that are shown as they are kept.
fn rows() -> Named {
    let mut user = versioned(shown::<User>());
    user["properties"]["overrides"] = json!({"type": "object", "additionalProperties": true, "description": "Plan members of their own."});
    user["properties"]["created_at"] = time();
    let mut audit = shown::<audit::Row>();
    audit["properties"]["id"] = json!({"type": "string", "description": "Grows with every entry."});
    audit["properties"]["at"] = time();
    for side in ["before", "after"] {
        audit["properties"][side] =
            json!({"description": "What there was to change; null: nothing."});
    }
    vec![
        ("User", user),
        ("Model", versioned(shown::<ModelRow>())),
        ("Route", versioned(shown::<RouteRow>())),
        ("UsageDay", shown::<usage::DayRow>()),
        ("AuditEntry", audit),
        ("JobStatus", taken::<JobStatus>()),
    ]
}

fn of_callers() -> Named {
    let policy = object(json!({
        "name": {"type": "string", "description": "`daily`, `monthly-tokens`, `rate`, `window`, `tokens-per-minute`, `concurrency`, `degraded` or `endpoint:{name}`."},
        "kind": shown::<PolicyKind>(),
        "unit": shown::<Unit>(),
        "limit": count(), "used": count(), "reserved": count(), "remaining": count(),
        "window_seconds": count_or_null(),
        "resets_at": time(),
    }));
    let next_plan = object(json!({
        "plan_id": text(), "name": text(), "daily_limit": count_or_null(), "monthly_token_limit": count_or_null(),
    }));
    let mut quota = object(json!({
        "object": {"const": "quota"},
        "user_id": text(),
        "plan": object(json!({"plan_id": text(), "name": text()})),
        "as_of": time(),
        "policies": list(named("Policy")),
        "blocked": {"type": "boolean"},
    }));
    quota["properties"]["next_plan"] = next_plan;
    quota["properties"]["next_plan"]["description"] =
        json!("What the plan one step up has more of, for the caller.");
    let job = object(json!({
        "id": text(),
        "object": {"const": "job"},
        "status": named("JobStatus"),
        "created_at": time(), "not_before": time(), "expires_at": time(), "finished_at": time_or_null(),
        "attempts": count(),
        "result": {"type": ["object", "null"], "additionalProperties": true, "description": "The provider's answer."},
        "error": {"type": ["object", "null"], "additionalProperties": true, "description": "Why there is none, as the error of an answer."},
    }));
    let accepted = with(
        job.clone(),
        json!({"message": text(), "estimatedProcessAt": time()}),
    );
    let notification = object(json!({
        "id": text(),
        "object": {"const": "notification"},
        "type": {"type": "string", "description": "`quota.threshold`, `job.completed`, `user.blocked` or `webhook.disabled`."},
        "created_at": time(), "read_at": time_or_null(),
        "message": {"type": "string", "description": "The news in one sentence."},
        "data": {"type": "object", "additionalProperties": true},
    }));
    let own_key = object(json!({
        "key_id": text(), "name": text_or_null(), "last4": text(), "created_at": time(), "expires_at": time_or_null(),
    }));
    let news = object(
        json!({"type": text(), "timestamp": time(), "data": {"type": "object", "additionalProperties": true}}),
    );
    vec![
        ("Policy", policy),
        ("Quota", quota),
        ("Job", job),
        ("AcceptedJob", accepted),
        ("Notification", notification),
        ("OwnKey", own_key),
        ("News", news),
    ]
}

fn decisions() -> Named {
    let headers = json!({"type": "object", "additionalProperties": {"type": "string"}, "description": "What the service should copy to its own client."});
    let mut decision = object(json!({
        "allowed": {"type": "boolean"},
        "reservation_id": {"type": ["string", "null"], "description": "What to settle or release; null if nothing was charged."},
        "policies": list(named("Policy")),
        "headers": headers,
    }));
    let told = decision["properties"].as_object_mut().expect("an object");
    told.insert("status".into(), json!({"type": "integer", "description": "On a refusal: the status of the service's own answer."}));
    for member in ["error", "resetAt", "request_id"] {
        told.insert(
            member.into(),
            json!({"$ref": format!("#/components/schemas/Error/properties/{member}")}),
        );
    }
    let mut conclusion = object(
        json!({"settled": {"type": "boolean", "description": "Whether there was such a reservation."}}),
    );
    let told = conclusion["properties"].as_object_mut().expect("an object");
    told.insert("policies".into(), list(named("Policy")));
    told.insert("headers".into(), decision["properties"]["headers"].clone());
    vec![
        ("Consume", taken::<Consume>()),
        ("Settle", taken::<Settle>()),
        ("Release", taken::<Release>()),
        ("Decision", decision),
        ("Conclusion", conclusion),
    ]
}

fn of_operators() -> Named {
    let key = object(json!({
        "key_id": text(), "user_id": text(), "name": text_or_null(), "scope": shown::<Scope>(), "last4": text(),
        "created_at": time(), "expires_at": time_or_null(), "revoked_at": time_or_null(),
    }));
    let new_key = with(
        key.clone(),
        json!({"key": {"type": "string", "description": "The key itself, shown this once."}}),
    );
    let counts = json!({
        "allowed": count(), "refused": count(), "degraded": count(), "queued": count(), "failed_open": count(),
        "tokens": count(), "refusal_rate": share_or_null(),
    });
    let of_plan = with(
        object(counts.clone()),
        json!({
            "plan_id": text(), "refused_by": {"type": "object", "additionalProperties": count()},
        }),
    );
    let of_endpoint = object(
        json!({"name": text(), "allowed": count(), "refused": count(), "refusal_rate": share_or_null()}),
    );
    let stats = object(json!({
        "from": {"type": "string", "format": "date"}, "to": {"type": "string", "format": "date"},
        "totals": object(counts),
        "plans": list(of_plan),
        "endpoints": list(of_endpoint),
        "days": list(shown::<stats::DayRow>()),
        "top_users": list(shown::<stats::UserRow>()),
    }));
    let job = with(of_callers().swap_remove(2).1, json!({"user_id": text()}));
    let letter = object(
        json!({"message_id": text(), "queue": text(), "body": text(), "reason": text(), "at": time()}),
    );
    let alert = object(json!({
        "id": text(),
        "kind": {"type": "string", "description": "`refusal_rate`, `failed_open`, `dead_letter`, `ledger_lag` or `drift`."},
        "subject": text(), "opened_at": time(), "closed_at": time_or_null(), "detail": {"type": "object", "additionalProperties": true},
    }));
    let counted = json!({"anyOf": [named("Counted"), {"type": "null"}]});
    let compared = object(json!({
        "user_id": text(),
        "drift": {"anyOf": [shown::<DriftKind>(), {"type": "null", "description": "The account was out of reach."}]},
        "account": counted.clone(), "ledger": counted,
    }));
    let report = with(
        super::schema::page(compared),
        json!({"checked": count(), "drifted": count(), "unreachable": count()}),
    );
    vec![
        ("Key", key),
        ("KeyWithSecret", new_key),
        ("Stats", stats),
        ("OperatorsJob", job),
        ("DeadLetter", letter),
        ("Alert", alert),
        ("Counted", shown::<Counted>()),
        ("ReconciliationReport", report),
        (
            "AdminRoute",
            object(json!({"method": text(), "path": text()})),
        ),
        ("Health", object(json!({"status": {"const": "ok"}}))),
        (
            "Readiness",
            object(json!({"status": {"enum": ["ok", "not ready"]}, "problems": list(text())})),
        ),
    ]
}

/// Both shapes of errors.
fn errors() -> Named {
    let limits = [
        ("policy", text()),
        ("limit", count()),
        ("remaining", count()),
        ("reset_at", time()),
    ];
    let mut error =
        object(json!({"message": text(), "type": text(), "param": text_or_null(), "code": text()}));
    let mut details = object(json!({"error_code": text()}));
    for (name, schema) in limits {
        error["properties"][name] = schema.clone();
        details["properties"][name] = schema;
    }
    let mut openai = object(json!({"error": error, "request_id": text()}));
    openai["properties"]["resetAt"] = time();
    let anthropic = object(json!({
        "type": {"const": "error"},
        "error": object(json!({"type": text(), "message": text(), "details": details})),
        "request_id": text(),
    }));
    vec![("Error", openai), ("AnthropicError", anthropic)]
}

/// A body that goes on to a provider: only what the gateway itself reads is told.
fn request(description: &str, required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "description": description, "required": required, "properties": properties, "additionalProperties": true})
}

fn llm_requests() -> Named {
    let model =
        json!({"type": "string", "minLength": 1, "maxLength": 256, "examples": ["mock-small"]});
    let message = json!({"type": "object", "required": ["role"], "properties": {"role": text()}, "additionalProperties": true});
    let messages = json!({"type": "array", "minItems": 1, "items": message, "examples": [[{"role": "user", "content": "Hello"}]]});
    let bound = json!({"type": ["integer", "null"], "minimum": 1, "description": "Held to the plan's `max_tokens_per_request`."});
    let stream =
        json!({"type": ["boolean", "null"], "description": "Answer as `text/event-stream`."});
    let some = json!({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1}]});
    let to_provider = "Members not named here go on to the provider as they are.";
    let simple = json!({
        "type": "object",
        "description": "Either a prompt or messages.",
        "properties": {"prompt": {"type": "string", "minLength": 1}, "messages": messages, "model": model, "max_tokens": bound},
        "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
        "additionalProperties": false,
    });
    vec![
        (
            "ChatCompletionRequest",
            request(
                to_provider,
                &["model", "messages"],
                json!({
                    "model": model, "messages": messages, "stream": stream, "max_completion_tokens": bound, "max_tokens": bound,
                    "n": {"type": ["integer", "null"], "minimum": 1, "maximum": 128},
                }),
            ),
        ),
        (
            "CompletionRequest",
            request(
                to_provider,
                &["model", "prompt"],
                json!({"model": model, "prompt": some, "stream": stream, "max_tokens": bound}),
            ),
        ),
        (
            "EmbeddingRequest",
            request(
                to_provider,
                &["model", "input"],
                json!({"model": model, "input": some}),
            ),
        ),
        (
            "ResponseRequest",
            request(
                to_provider,
                &["model", "input"],
                json!({"model": model, "input": some, "stream": stream, "max_output_tokens": bound}),
            ),
        ),
        (
            "MessageRequest",
            request(
                to_provider,
                &["model", "messages", "max_tokens"],
                json!({
                    "model": model, "messages": messages, "stream": stream, "max_tokens": {"type": "integer", "minimum": 1},
                }),
            ),
        ),
        (
            "CountTokensRequest",
            request(
                to_provider,
                &["model", "messages"],
                json!({"model": model, "messages": messages}),
            ),
        ),
        ("SimpleQuery", simple),
    ]
}

/// A provider's answer, of which only the outline is promised.
fn answer(kind: (&str, &str), members: Value) -> Value {
    let mut schema = with(object(json!({kind.0: {"const": kind.1}})), members);
    schema["additionalProperties"] = json!(true);
    schema
}

fn llm_answers() -> Named {
    let open = || json!({"type": "object", "additionalProperties": true});
    let usage = json!({"type": ["object", "null"], "additionalProperties": true});
    let optional_usage = |mut schema: Value| {
        schema["properties"]["usage"] = usage.clone();
        schema
    };
    let object_is = |kind| ("object", kind);
    let model = object(json!({
        "id": text(), "object": {"const": "model"}, "created": count(), "owned_by": text(),
        "type": {"const": "model"}, "display_name": text(), "created_at": time(),
    }));
    let models = object(json!({
        "object": {"const": "list"}, "data": list(named("ModelObject")), "has_more": {"type": "boolean"},
        "first_id": text_or_null(), "last_id": text_or_null(),
    }));
    vec![
        (
            "ChatCompletion",
            optional_usage(answer(
                object_is("chat.completion"),
                json!({"id": text(), "created": count(), "model": text(), "choices": list(open())}),
            )),
        ),
        (
            "Completion",
            optional_usage(answer(
                object_is("text_completion"),
                json!({"id": text(), "created": count(), "model": text(), "choices": list(open())}),
            )),
        ),
        (
            "Embeddings",
            optional_usage(answer(
                object_is("list"),
                json!({"data": list(open()), "model": text()}),
            )),
        ),
        (
            "Response",
            optional_usage(answer(
                object_is("response"),
                json!({"id": text(), "status": text(), "model": text(), "output": list(open())}),
            )),
        ),
        (
            "Message",
            optional_usage(answer(
                ("type", "message"),
                json!({"id": text(), "role": {"const": "assistant"}, "model": text(), "content": list(open())}),
            )),
        ),
        ("TokenCount", {
            let mut count = object(json!({"input_tokens": count()}));
            count["additionalProperties"] = json!(true);
            count
        }),
        ("ModelObject", model),
        ("ModelList", models),
    ]
}
