//! The whole document, and the test that keeps the copy beside this file as it has to be.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::operation::Operation;
use super::{operator, parts, paths, schemas};
use crate::http::doors;

/// Set to anything, the copy is written anew.
const UPDATE: &str = "UPDATE_OPENAPI";

fn document() -> Value {
    let operations: Vec<_> = paths::all().into_iter().chain(operator::all()).collect();
    let mut document = json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Sluice",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": env!("CARGO_PKG_DESCRIPTION"),
            "description": DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "servers": [{"url": "/", "description": "Wherever this document was read."}],
        "tags": TAGS.map(|(name, description)| json!({"name": name, "description": description})),
        "paths": by_path(&operations),
        "webhooks": paths::webhooks(),
        "components": {
            "securitySchemes": parts::security_schemes(),
            "parameters": parts::parameters(),
            "headers": parts::all_headers(),
            "responses": parts::errors(),
            "schemas": schemas::all(),
        },
    });
    forget_unused(&mut document);
    document
}

const DESCRIPTION: &str = "\
Holds every user of an LLM or HTTP API to their plan.\n\n\
Every answer carries `x-request-id` and, unless it says otherwise, `cache-control: no-store`. In plans `null` is \
unlimited and `0` or `[]` is none. JSON that names a member twice is refused, and so are members nobody knows, \
but for the LLM routes, where they go on to the provider. A known path with another method is a 405 with `Allow`; the preflight \
`OPTIONS` is answered with 204 on every path, before authentication.\n\n\
Any path that is none of these may be one of the operator's protected routes (`/admin/routes`): its answer is that \
of the operator's own service, with the headers that tell of limits, or one of the errors described here.";

const TAGS: [(&str, &str); 5] = [
    (
        "llm",
        "The models, as OpenAI's and Anthropic's SDKs call them.",
    ),
    (
        "decisions",
        "The decision alone, for services that keep their own proxy.",
    ),
    (
        "desk",
        "A caller's own quota, usage, jobs, notifications and keys.",
    ),
    (
        "operator",
        "Plans, users, keys, models, routes, and what happened.",
    ),
    ("gateway", "The gateway itself."),
];

fn by_path(operations: &[Operation]) -> Value {
    let mut paths = Map::new();
    for operation in operations {
        let path = paths
            .entry(operation.path.clone())
            .or_insert_with(|| json!({}));
        let methods = path.as_object_mut().expect("an object");
        let before = methods.insert(operation.method.to_ascii_lowercase(), operation.write());
        assert!(
            before.is_none(),
            "{} {} is there twice",
            operation.method,
            operation.path
        );
    }
    Value::Object(paths)
}

/// Takes out of the components what nothing refers to.
fn forget_unused(document: &mut Value) {
    loop {
        let mut used = BTreeSet::new();
        references(document, &mut used);
        let mut forgotten = false;
        for kind in ["parameters", "headers", "responses", "schemas"] {
            let components = document["components"][kind]
                .as_object_mut()
                .expect("an object");
            let before = components.len();
            components.retain(|name, _| used.contains(&format!("#/components/{kind}/{name}")));
            forgotten |= components.len() < before;
        }
        if !forgotten {
            return;
        }
    }
}

fn references(value: &Value, used: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, used)),
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref") {
                used.insert(target.clone());
            }
            fields.values().for_each(|field| references(field, used));
        }
        _ => {}
    }
}

#[test]
fn the_copy_that_is_served_is_up_to_date() {
    let mut now = serde_json::to_string_pretty(&document()).unwrap();
    now.push('\n');
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/openapi/openapi.json"),
            &now,
        )
        .unwrap();
        return;
    }
    assert!(
        now == super::DOCUMENT,
        "src/openapi/openapi.json is stale: `{UPDATE}=1 cargo test openapi` writes it"
    );
}

#[test]
fn every_route_is_described_and_no_other() {
    let own = doors::ROUTES
        .iter()
        .map(|route| (route.method, route.pattern));
    let desk = crate::admin::all().map(|route| (route.method, route.pattern));
    let served: BTreeSet<_> = own
        .chain(desk)
        .map(|(method, pattern)| (method.to_ascii_lowercase(), pattern.replace("*}", "}")))
        .collect();
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let described = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| (method.clone(), path.clone()))
    });
    assert_eq!(described.collect::<BTreeSet<_>>(), served);
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut used = BTreeSet::new();
    references(&document, &mut used);
    for target in used {
        assert!(
            document.pointer(target.trim_start_matches('#')).is_some(),
            "{target}"
        );
    }
}
