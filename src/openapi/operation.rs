use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::parts::{self, Desk};
use super::schema::named;

/// One operation while it is being written down.
pub struct Operation {
    pub method: &'static str,
    pub path: String,
    desk: Desk,
    id: String,
    tag: &'static str,
    summary: String,
    description: Option<&'static str>,
    parameters: Vec<&'static str>,
    body: Option<(Value, bool)>,
    answers: Vec<(u16, Value)>,
    errors: BTreeSet<u16>,
}

impl Operation {
    /// An operation with the errors every call at this desk may meet.
    pub fn new(desk: Desk, method: &'static str, path: &str, id: &str, summary: &str) -> Self {
        Self {
            method,
            path: path.replace("*}", "}"),
            desk,
            id: id.to_owned(),
            tag: "gateway",
            summary: summary.to_owned(),
            description: None,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            errors: desk.errors().iter().copied().collect(),
        }
    }

    pub fn tag(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    pub fn describe(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    /// Query parameters and headers, by their names among the components.
    pub fn parameters(mut self, names: &[&'static str]) -> Self {
        self.parameters.extend(names);
        self
    }

    pub fn body(self, name: &str) -> Self {
        self.takes(named(name), true)
    }

    /// A body that may be left out, for an object without members.
    pub fn optional_body(self, name: &str) -> Self {
        self.takes(named(name), false)
    }

    /// An answer of one schema.
    pub fn answer(self, status: u16, description: &str, schema: Value) -> Self {
        self.answers_with(
            status,
            description,
            &[],
            json!({"application/json": {"schema": schema}}),
        )
    }

    /// An answer that shows one versioned thing.
    pub fn versioned(self, status: u16, description: &str, schema: Value) -> Self {
        self.answers_with(
            status,
            description,
            &["ETag"],
            json!({"application/json": {"schema": schema}}),
        )
    }

    /// An answer without a body.
    pub fn nothing(self, status: u16, description: &str) -> Self {
        self.answers_with(status, description, &[], Value::Null)
    }

    /// An answer with headers of its own and any types of body.
    pub fn answers_with(
        mut self,
        status: u16,
        description: &str,
        headers: &[&str],
        content: Value,
    ) -> Self {
        let mut answer = Map::new();
        answer.insert("description".into(), json!(description));
        answer.insert("headers".into(), parts::headers(self.desk, status, headers));
        if !content.is_null() {
            answer.insert("content".into(), content);
        }
        self.answers.push((status, Value::Object(answer)));
        self
    }

    pub fn errors(mut self, statuses: &[u16]) -> Self {
        self.errors.extend(statuses);
        self
    }

    /// It as the document has it.
    pub fn write(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("operationId".into(), json!(self.id));
        fields.insert("tags".into(), json!([self.tag]));
        fields.insert("summary".into(), json!(self.summary));
        if let Some(description) = self.description {
            fields.insert("description".into(), json!(description));
        }
        fields.insert("security".into(), self.desk.security());
        let parameters: Vec<_> = self.all_parameters().collect();
        if !parameters.is_empty() {
            fields.insert("parameters".into(), json!(parameters));
        }
        if let Some((schema, required)) = &self.body {
            let content = json!({"application/json": {"schema": schema}});
            fields.insert(
                "requestBody".into(),
                json!({"required": required, "content": content}),
            );
        }
        fields.insert("responses".into(), self.responses());
        Value::Object(fields)
    }

    fn takes(mut self, schema: Value, required: bool) -> Self {
        self.body = Some((schema, required));
        self.errors(&[413])
    }

    fn all_parameters(&self) -> impl Iterator<Item = Value> {
        let in_path = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = in_path.map(|name| parts::path_parameter(&self.path, name));
        in_path
            .chain(self.parameters.iter().copied())
            .map(|name| json!({"$ref": format!("#/components/parameters/{name}")}))
    }

    fn responses(&self) -> Value {
        let mut responses = Map::new();
        for (status, answer) in &self.answers {
            responses.insert(status.to_string(), answer.clone());
        }
        for status in &self.errors {
            let name = parts::error_name(self.desk, *status);
            responses.insert(
                status.to_string(),
                json!({"$ref": format!("#/components/responses/{name}")}),
            );
        }
        Value::Object(responses)
    }
}
