//! Schemas of Rust types, in the words this document uses throughout.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::plans::MAX_COUNT;

/// What a caller may send as a `T`.
pub fn taken<T: JsonSchema>() -> Value {
    let mut schema = of::<T>(SchemaSettings::draft2020_12().for_deserialize());
    every(&mut schema, &mut |fields| {
        if fields.get("format") == Some(&json!("uint64")) && !fields.contains_key("maximum") {
            fields.insert("maximum".into(), json!(MAX_COUNT));
        }
    });
    without_formats(schema)
}

/// What an answer shows of a `T`. Members may be added to answers, so it stays open.
pub fn shown<T: JsonSchema>() -> Value {
    let mut schema = of::<T>(SchemaSettings::draft2020_12().for_serialize());
    every(&mut schema, &mut |fields| {
        fields.shift_remove("additionalProperties");
    });
    without_formats(schema)
}

/// An object's schema with more members, all of them always there.
pub fn with(mut schema: Value, members: Value) -> Value {
    let Value::Object(members) = members else {
        panic!("members are an object");
    };
    let names = members.keys().map(|name| json!(name));
    let required = schema["required"]
        .as_array_mut()
        .expect("an object with members");
    required.extend(
        names
            .filter(|name| !required.contains(name))
            .collect::<Vec<_>>(),
    );
    schema["properties"]
        .as_object_mut()
        .expect("an object")
        .extend(members);
    schema
}

/// An object whose members are all always there.
pub fn object(members: Value) -> Value {
    with(
        json!({"type": "object", "required": [], "properties": {}}),
        members,
    )
}

/// A part of a list.
pub fn page(item: Value) -> Value {
    object(json!({
        "data": {"type": "array", "items": item},
        "next_cursor": {"type": ["string", "null"], "description": "Where the next part begins; null: nothing follows."},
    }))
}

/// A schema by its name.
pub fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn of<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|s| s.inline_subschemas = true);
    let mut schema = SchemaGenerator::new(settings)
        .into_root_schema_for::<T>()
        .to_value();
    every(&mut schema, &mut |fields| {
        fields.shift_remove("$schema");
        fields.shift_remove("title");
        if fields.get("default") == Some(&Value::Null) {
            fields.shift_remove("default");
        }
        words(fields);
        nullable(fields);
    });
    schema
}

/// The names of Rust's integers are no formats that others know.
fn without_formats(mut schema: Value) -> Value {
    every(&mut schema, &mut |fields| {
        if fields
            .get("format")
            .and_then(Value::as_str)
            .is_some_and(|f| f.starts_with("uint") || f == "double")
        {
            fields.shift_remove("format");
        }
    });
    schema
}

/// One word out of several, each with its own description, becomes a plain `enum`.
fn words(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("oneOf") else {
        return;
    };
    let word = |choice: &Value| choice.get("const").cloned();
    let Some(all) = choices.iter().map(word).collect::<Option<Vec<_>>>() else {
        return;
    };
    let lines = choices.iter().map(|choice| {
        let told = choice["description"].as_str().unwrap_or_default();
        format!("`{}`: {told}", choice["const"].as_str().unwrap_or_default())
    });
    let description = lines.collect::<Vec<_>>().join("\n");
    let before = fields
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    fields.shift_remove("oneOf");
    fields.insert("type".into(), json!("string"));
    fields.insert("enum".into(), json!(all));
    fields.insert(
        "description".into(),
        json!(format!("{before}\n\n{description}").trim()),
    );
}

/// `anyOf` a type and null becomes one schema of both types.
fn nullable(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("anyOf") else {
        return;
    };
    let [Value::Object(inner), null] = choices.as_slice() else {
        return;
    };
    let (true, Some(kind), false) = (
        null == &json!({"type": "null"}),
        inner.get("type").cloned(),
        inner.contains_key("enum"),
    ) else {
        return;
    };
    let mut inner = inner.clone();
    inner.insert("type".into(), json!([kind, "null"]));
    fields.shift_remove("anyOf");
    for (name, value) in inner {
        fields.entry(name).or_insert(value);
    }
}

/// Every object inside a schema, the innermost first.
fn every(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| every(item, change)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| every(field, change));
            change(fields);
        }
        _ => {}
    }
}
