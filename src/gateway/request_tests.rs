use proptest::prelude::*;

use super::*;

fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (field, value) in fields.as_object().unwrap() {
        body[field] = value.clone();
    }
    body
}

fn read(dialect: Dialect, body: &Value) -> Result<LlmRequest, InvalidRequest> {
    LlmRequest::parse(dialect, body.to_string().as_bytes())
}

fn read_chat(fields: Value) -> Result<LlmRequest, InvalidRequest> {
    read(Dialect::ChatCompletions, &chat(fields))
}

fn refused(fields: Value) -> String {
    let shown = fields.to_string();
    let Err(error) = read_chat(fields) else {
        panic!("accepted: {shown}");
    };
    error.param.unwrap_or_default()
}

fn sent(request: &LlmRequest, model: &str, max_tokens: Option<u64>) -> Value {
    serde_json::from_slice(&request.to_upstream(model, max_tokens)).unwrap()
}

#[test]
fn a_plain_chat_is_read() {
    let request = read_chat(json!({"temperature": 0.3, "user": "someone"})).unwrap();
    assert_eq!(request.model(), "m");
    assert_eq!((request.stream(), request.wants_usage()), (false, false));
    assert_eq!((request.max_tokens(), request.choices()), (None, 1));
    assert!(request.prompt_tokens() > 0);
}

#[test]
fn only_what_was_checked_is_sent() {
    let request = read_chat(json!({"stop": ["x"], "x_unknown": {"a": [1]}})).unwrap();
    assert_eq!(
        sent(&request, "other", None),
        chat(json!({"model": "other", "stop": ["x"], "x_unknown": {"a": [1]}}))
    );
    let twice = br#"{"model":"small","messages":[{}],"model":"big"}"#;
    let error = LlmRequest::parse(Dialect::ChatCompletions, twice).unwrap_err();
    assert_eq!(
        (error.param.as_deref(), error.code),
        (Some("model"), "duplicate_key")
    );
}

#[test]
fn a_model_is_one_printable_name_in_its_own_case() {
    for name in [
        " m",
        "m ",
        "",
        "m\0",
        "m\u{200b}x",
        "m\nx",
        "\u{feff}m",
        "m\u{2028}",
    ] {
        assert_eq!(refused(json!({"model": name})), "model", "{name:?}");
    }
    for wrong in [
        json!(1),
        json!(null),
        json!(["m"]),
        json!({"id": "m"}),
        json!("m".repeat(257)),
    ] {
        assert_eq!(refused(json!({"model": wrong})), "model");
    }
    for name in ["M-Big", "openai/m-big", "@cf/meta/llama-3.1-8b", "模型"] {
        assert_eq!(read_chat(json!({"model": name})).unwrap().model(), name);
    }
}

#[test]
fn lists_of_other_models_are_refused() {
    for field in OTHER_MODELS {
        assert_eq!(refused(json!({field: ["m-big"]})), field);
        assert!(read_chat(json!({field: null})).is_ok());
    }
}

#[test]
fn bounds_are_integers_from_one() {
    for field in BOUNDS {
        let wrong = [
            "0",
            "-1",
            "1.5",
            "1e2",
            "100.0",
            "\"150\"",
            "true",
            "[1]",
            "{}",
            "9007199254740993",
            "18446744073709551616",
        ];
        for value in wrong {
            let body = format!(r#"{{"model":"m","messages":[{{}}],"{field}":{value}}}"#);
            let error = LlmRequest::parse(Dialect::ChatCompletions, body.as_bytes()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field), "{value}");
        }
        assert_eq!(read_chat(json!({field: null})).unwrap().max_tokens(), None);
        assert_eq!(
            read_chat(json!({field: 1u64 << 53})).unwrap().max_tokens(),
            Some(1 << 53)
        );
    }
    let both = read_chat(json!({"max_tokens": 100, "max_completion_tokens": 500})).unwrap();
    assert_eq!(both.max_tokens(), Some(500));
}

#[test]
fn a_bound_goes_where_the_caller_put_one_or_where_the_model_looks_for_it() {
    let bounded = |fields, model, dialect| {
        let mut body = chat(fields);
        body["input"] = json!("hi");
        let body = sent(&read(dialect, &body).unwrap(), model, Some(200));
        BOUNDS.map(|field| body.get(field).and_then(Value::as_u64))
    };
    let chat = Dialect::ChatCompletions;
    assert_eq!(bounded(json!({}), "m", chat), [Some(200), None, None]);
    for reasoning in ["o1", "o3-mini", "o4-mini", "gpt-5.1", "openai/gpt-5"] {
        assert_eq!(bounded(json!({}), reasoning, chat), [None, Some(200), None]);
    }
    assert_eq!(
        bounded(json!({"max_tokens": null}), "m", chat),
        [Some(200), None, None]
    );
    assert_eq!(
        bounded(json!({"max_tokens": 100}), "o1", chat),
        [Some(100), None, None]
    );
    assert_eq!(
        bounded(
            json!({"max_tokens": 100, "max_completion_tokens": 500}),
            "m",
            chat
        ),
        [Some(100), Some(200), None]
    );
    assert_eq!(
        bounded(json!({}), "m", Dialect::Responses),
        [None, None, Some(200)]
    );
    assert_eq!(
        bounded(json!({}), "m", Dialect::Messages),
        [Some(200), None, None]
    );
    assert_eq!(
        bounded(json!({}), "m", Dialect::Embeddings),
        [None, None, None]
    );
}

#[test]
fn usage_is_always_asked_of_a_stream_and_remembered_whether_by_the_caller() {
    let silent = read_chat(json!({"stream": true, "stream_options": {"x": 1}})).unwrap();
    assert!(!silent.wants_usage());
    assert_eq!(
        sent(&silent, "m", None)["stream_options"],
        json!({"x": 1, "include_usage": true})
    );

    let asked =
        read_chat(json!({"stream": true, "stream_options": {"include_usage": true}})).unwrap();
    assert!(asked.wants_usage());
    let denied =
        read_chat(json!({"stream": true, "stream_options": {"include_usage": false}})).unwrap();
    assert!(!denied.wants_usage());
    assert_eq!(
        sent(&denied, "m", None)["stream_options"],
        json!({"include_usage": true})
    );

    let whole = read_chat(json!({"stream": null})).unwrap();
    assert_eq!(sent(&whole, "m", None).get("stream_options"), None);
    let plain: Value =
        serde_json::from_slice(&silent.to_upstream_without_usage("m", None)).unwrap();
    assert_eq!(plain["stream_options"], json!({"x": 1}));

    let messages = read(Dialect::Messages, &chat(json!({"stream": true}))).unwrap();
    assert!(messages.wants_usage());
    assert_eq!(sent(&messages, "m", None).get("stream_options"), None);
}

#[test]
fn switches_are_booleans() {
    assert_eq!(refused(json!({"stream": "true"})), "stream");
    assert_eq!(refused(json!({"stream": 1})), "stream");
    assert_eq!(refused(json!({"stream_options": []})), "stream_options");
    let odd = json!({"stream_options": {"include_usage": 1}});
    assert_eq!(refused(odd), "stream_options.include_usage");
    let embeddings = json!({"model": "m", "input": "x", "stream": true});
    assert!(read(Dialect::Embeddings, &embeddings).is_err());
    let background = json!({"model": "m", "input": "x", "background": true});
    assert!(read(Dialect::Responses, &background).is_err());
}

#[test]
fn choices_are_the_answers_of_all_prompts() {
    assert_eq!(read_chat(json!({"n": 3})).unwrap().choices(), 3);
    for wrong in [json!(0), json!(129), json!(-1), json!(1.5), json!("2")] {
        assert_eq!(refused(json!({"n": wrong})), "n");
    }
    let completions = |fields: Value| read(Dialect::Completions, &fields).unwrap().choices();
    assert_eq!(
        completions(json!({"model": "m", "prompt": "x", "n": 2, "best_of": 4})),
        4
    );
    assert_eq!(
        completions(json!({"model": "m", "prompt": ["x", "y", "z"], "n": 2})),
        6
    );
    assert_eq!(
        completions(json!({"model": "m", "prompt": [[1, 2], [3]]})),
        2
    );
    assert_eq!(completions(json!({"model": "m", "prompt": [1, 2, 3]})), 1);
}

#[test]
fn a_prompt_has_to_be_there_in_its_own_shape() {
    use Dialect::{ChatCompletions, Completions, CountTokens, Embeddings, Messages, Responses};
    let cases = [
        (ChatCompletions, json!({}), Some("messages")),
        (ChatCompletions, json!({"messages": "hi"}), Some("messages")),
        (ChatCompletions, json!({"messages": []}), Some("messages")),
        (
            ChatCompletions,
            json!({"messages": [{}, "hi"]}),
            Some("messages[1]"),
        ),
        (Messages, json!({"messages": {}}), Some("messages")),
        (CountTokens, json!({"messages": [{}]}), None),
        (Completions, json!({"prompt": 1}), Some("prompt")),
        (Completions, json!({"prompt": "hi"}), None),
        (Embeddings, json!({"input": []}), Some("input")),
        (Embeddings, json!({"input": ["a"]}), None),
        (Responses, json!({}), Some("input")),
        (Responses, json!({"input": {}}), Some("input")),
        (Responses, json!({"previous_response_id": "resp_1"}), None),
    ];
    for (dialect, mut body, param) in cases {
        body["model"] = json!("m");
        let error = read(dialect, &body).err().and_then(|error| error.param);
        assert_eq!(error.as_deref(), param, "{dialect:?} {body}");
    }
}

#[test]
fn the_simple_door_becomes_a_chat() {
    let query = |body: Value| {
        SimpleQuery::parse(body.to_string().as_bytes())
            .and_then(|query| query.into_chat(Some("default".to_owned())))
    };
    let request = query(json!({"prompt": "hi", "max_tokens": 5})).unwrap();
    assert_eq!(
        sent(&request, request.model(), None),
        json!({"max_tokens": 5, "model": "default", "messages": [{"role": "user", "content": "hi"}]})
    );
    let request =
        query(json!({"messages": [{"role": "user", "content": "hi"}], "model": "m"})).unwrap();
    assert_eq!(request.model(), "m");

    for (body, param) in [
        (json!({}), "prompt"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": ["hi"]}), "prompt"),
        (json!({"prompt": "hi", "messages": [{}]}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"prompt": "hi", "stream": true}), "stream"),
        (json!({"prompt": "hi", "max_tokens": 0}), "max_tokens"),
        (json!({"prompt": "hi", "model": " m"}), "model"),
    ] {
        assert_eq!(
            query(body.clone()).unwrap_err().param.as_deref(),
            Some(param),
            "{body}"
        );
    }
    assert_eq!(query(json!([])).unwrap_err().code, "invalid_json");
}

proptest! {
    #[test]
    fn no_field_sent_passes_the_bound(
        own in prop::array::uniform3(prop::option::of(1u64..1_000_000)),
        most in 1u64..1_000_000,
    ) {
        let mut fields = json!({});
        for (field, value) in BOUNDS.iter().zip(own) {
            fields[*field] = json!(value);
        }
        let request = read_chat(fields).unwrap();
        prop_assert_eq!(request.max_tokens(), own.into_iter().flatten().max());
        let body = sent(&request, "m", Some(most));
        let bounds: Vec<u64> = BOUNDS.iter().filter_map(|f| body[*f].as_u64()).collect();
        prop_assert!(!bounds.is_empty() && bounds.iter().all(|bound| *bound <= most));
    }
}

proptest! {
    /// What fits into a month by its bytes alone fits by its tokens, so that nobody has to read it.
    #[test]
    fn no_byte_makes_more_tokens_than_it_may(kind in 0..8, times in 1..400usize, n in 1..=128u64) {
        let many = |item: Value| Value::Array(vec![item; times]);
        let content = |parts: Value| json!([{"role": "user", "content": parts}]);
        let (dialect, body) = match kind {
            0 => (Dialect::ChatCompletions, chat(json!({"n": n, "messages": content(many(json!({"type": "image"})))}))),
            1 => (Dialect::ChatCompletions, chat(json!({"n": n, "messages": many(json!({"role": "user", "content": ""}))}))),
            2 => (Dialect::ChatCompletions, chat(json!({"n": n, "tools": many(json!({}))}))),
            3 => (Dialect::ChatCompletions, chat(json!({"n": n, "messages": content(json!("漢".repeat(times)))}))),
            4 => (Dialect::Completions, json!({"model": "m", "n": n, "prompt": many(json!(""))})),
            5 => (Dialect::Completions, json!({"model": "m", "best_of": n, "prompt": many(json!("é"))})),
            6 => (Dialect::Embeddings, json!({"model": "m", "input": many(json!(1))})),
            _ => (Dialect::Messages, json!({"model": "m", "max_tokens": 1, "messages": content(many(json!({"type": "image"})))})),
        };
        let bytes = body.to_string().len() as u64;
        let request = read(dialect, &body).unwrap();
        let tokens = request.prompt_tokens() + request.choices();
        prop_assert!(tokens <= crate::gateway::estimate::MOST_TOKENS_A_BYTE * bytes, "{tokens} of {bytes}");
    }
}
