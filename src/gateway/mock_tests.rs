use super::*;
use crate::gateway::estimate::estimate_tokens;
use crate::gateway::meter::{Feed, Finish, MeterPolicy, StreamEnd, StreamMeter};
use crate::gateway::usage;

const STREAMING: [Dialect; 4] = [
    Dialect::ChatCompletions,
    Dialect::Completions,
    Dialect::Messages,
    Dialect::Responses,
];

fn ask(dialect: Dialect, prompt: &str, fields: Value) -> LlmRequest {
    let mut body = json!({"model": "m", "prompt": prompt, "input": prompt,
        "messages": [{"role": "user", "content": "earlier [[fail:500]]"},
            {"role": "assistant", "content": "x"}, {"role": "user", "content": prompt}]});
    for (field, value) in fields.as_object().unwrap() {
        body[field] = value.clone();
    }
    LlmRequest::parse(dialect, body.to_string().as_bytes()).unwrap()
}

fn outcome(dialect: Dialect, prompt: &str, fields: Value, max_tokens: Option<u64>) -> MockOutcome {
    plan(&ask(dialect, prompt, fields), "m", max_tokens, 7).outcome
}

fn whole(dialect: Dialect, prompt: &str, max_tokens: Option<u64>) -> Value {
    match outcome(dialect, prompt, json!({}), max_tokens) {
        MockOutcome::Answer(body) => serde_json::from_str(&body).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn stream(dialect: Dialect, prompt: &str, max_tokens: Option<u64>) -> Vec<String> {
    match outcome(dialect, prompt, json!({"stream": true}), max_tokens) {
        MockOutcome::Stream(events) => events,
        other => panic!("{other:?}"),
    }
}

fn text(dialect: Dialect, answer: &Value) -> String {
    let place = match dialect {
        Dialect::ChatCompletions => "/choices/0/message/content",
        Dialect::Completions => "/choices/0/text",
        Dialect::Messages => "/content/0/text",
        _ => "/output/0/content/0/text",
    };
    answer.pointer(place).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn every_api_echoes_and_tells_its_true_usage() {
    for dialect in STREAMING {
        let answer = whole(dialect, "good morning", None);
        let said = text(dialect, &answer);
        assert_eq!(said, "You said: good morning", "{dialect:?}");
        let used = usage::of_answer(dialect, &answer).unwrap();
        assert_eq!(used.completion, estimate_tokens(&said));
        assert_eq!(
            used.prompt,
            ask(dialect, "good morning", json!({})).prompt_tokens()
        );
    }
}

#[test]
fn the_same_call_has_the_same_answer() {
    for dialect in STREAMING {
        assert_eq!(
            stream(dialect, "hi", Some(9)),
            stream(dialect, "hi", Some(9))
        );
    }
    assert_ne!(
        whole(Dialect::Messages, "a", None)["id"],
        whole(Dialect::Messages, "b", None)["id"]
    );
}

#[test]
fn an_answer_has_the_length_asked_for_and_keeps_to_its_bound() {
    for dialect in STREAMING {
        let length = |prompt: &str, bound| {
            let answer = whole(dialect, prompt, bound);
            assert_eq!(
                estimate_tokens(&text(dialect, &answer)),
                usage::of_answer(dialect, &answer).unwrap().completion
            );
            usage::of_answer(dialect, &answer).unwrap().completion
        };
        assert_eq!(length("[[tokens:300]]", None), 300);
        assert_eq!(length("[[tokens:300]]", Some(200)), 200);
        assert_eq!(
            length("[[tokens:300]] [[ignore_max_tokens]]", Some(200)),
            300
        );
        assert!(length("a rather long prompt that is not repeated in full", Some(5)) <= 5);
        assert_eq!(length("[[tokens:99999999]]", None), MAX_ANSWER);
    }
    let cut = whole(Dialect::ChatCompletions, "[[tokens:300]]", Some(200));
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert_eq!(
        whole(Dialect::Messages, "[[tokens:300]]", Some(2))["stop_reason"],
        "max_tokens"
    );
    assert_eq!(
        whole(Dialect::Responses, "[[tokens:300]]", Some(2))["status"],
        "incomplete"
    );
}

#[test]
fn choices_multiply() {
    let request = ask(Dialect::ChatCompletions, "[[tokens:5]]", json!({"n": 3}));
    let MockOutcome::Answer(body) = plan(&request, "m", None, 7).outcome else {
        panic!("no answer");
    };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["choices"].as_array().unwrap().len(), 3);
    assert_eq!(body["usage"]["completion_tokens"], 15);
}

fn meter(
    dialect: Dialect,
    events: &[String],
    token_budget: Option<u64>,
) -> (Feed, crate::gateway::meter::Settled) {
    let policy = MeterPolicy {
        hide_usage: false,
        prompt_estimate: 10,
        token_budget,
    };
    let mut meter = StreamMeter::new(dialect, policy);
    let mut out = Vec::new();
    let feed = meter.feed(events.concat().as_bytes(), &mut out);
    (feed, meter.finish(StreamEnd::Complete, &mut out))
}

#[test]
fn its_streams_are_read_by_the_meter() {
    for dialect in STREAMING {
        let (_, settled) = meter(dialect, &stream(dialect, "[[tokens:30]]", None), None);
        assert_eq!(
            (settled.finish, settled.complete),
            (Finish::Stop, true),
            "{dialect:?}"
        );
        assert_eq!(
            (settled.usage.completion, settled.usage.estimated),
            (30, false),
            "{dialect:?}"
        );

        let (_, settled) = meter(
            dialect,
            &stream(dialect, "[[tokens:30]] [[no_usage]]", Some(20)),
            None,
        );
        assert_eq!(settled.finish, Finish::Length);
        assert_eq!(
            (settled.usage.completion, settled.usage.estimated),
            (20, true),
            "{dialect:?}"
        );

        let (_, settled) = meter(
            dialect,
            &stream(dialect, "[[tokens:30]] [[stop_early]]", None),
            None,
        );
        assert_eq!(
            (settled.finish, settled.complete),
            (Finish::Truncated, false),
            "{dialect:?}"
        );
        assert!(
            (8..=22).contains(&settled.usage.completion),
            "{dialect:?} {settled:?}"
        );

        let endless = stream(dialect, "[[tokens:300]] [[ignore_max_tokens]]", Some(50));
        assert_eq!(meter(dialect, &endless, Some(60)).0, Feed::Cut);
    }
}

#[test]
fn marks_steer_and_only_the_last_words_count() {
    let steered = plan(
        &ask(
            Dialect::ChatCompletions,
            "[[slow:500]] hi [[chunk_delay:50]]",
            json!({}),
        ),
        "m",
        None,
        7,
    );
    assert_eq!((steered.delay_ms, steered.chunk_delay_ms), (500, 50));
    assert!(
        matches!(steered.outcome, MockOutcome::Answer(body) if body.contains("You said: hi\""))
    );
    assert_eq!(
        outcome(Dialect::Messages, "[[hang]]", json!({}), None),
        MockOutcome::Hang
    );
    let MockOutcome::Failure { status, body } =
        outcome(Dialect::Messages, "[[fail:503]]", json!({}), None)
    else {
        panic!("no failure");
    };
    assert!(status == 503 && body.starts_with(r#"{"type":"error""#));
    for text in [
        "[[fail:200]]",
        "[[fail:x]]",
        "[[unknown]]",
        "[[slow",
        "]] [[",
    ] {
        assert!(
            matches!(
                outcome(Dialect::Completions, text, json!({}), None),
                MockOutcome::Answer(_)
            ),
            "{text}"
        );
    }
}

#[test]
fn marks_are_found_in_content_parts() {
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "hi [[hang]]"}]}]);
    let fields = json!({"messages": parts, "input": parts});
    for dialect in [
        Dialect::ChatCompletions,
        Dialect::Messages,
        Dialect::Responses,
    ] {
        assert_eq!(
            outcome(dialect, "", fields.clone(), None),
            MockOutcome::Hang,
            "{dialect:?}"
        );
    }
}

#[test]
fn no_usage_and_broken_answers_are_just_that() {
    assert_eq!(
        whole(Dialect::ChatCompletions, "[[no_usage]]", None).get("usage"),
        None
    );
    let MockOutcome::Answer(half) =
        outcome(Dialect::ChatCompletions, "[[stop_early]]", json!({}), None)
    else {
        panic!("no answer");
    };
    assert!(serde_json::from_str::<Value>(&half).is_err());
}

#[test]
fn embeddings_are_unit_vectors_in_either_encoding() {
    let body = |fields| match outcome(Dialect::Embeddings, "x", fields, None) {
        MockOutcome::Answer(body) => serde_json::from_str::<Value>(&body).unwrap(),
        other => panic!("{other:?}"),
    };
    let plain = body(json!({"input": ["a", "b", "a"], "dimensions": 8}));
    let vectors: Vec<Vec<f64>> = serde_json::from_value(
        plain["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["embedding"].clone())
            .collect(),
    )
    .unwrap();
    assert!(vectors[0] == vectors[2] && vectors[0] != vectors[1] && vectors[0].len() == 8);
    let length: f64 = vectors[0].iter().map(|number| number * number).sum();
    assert!((length - 1.0).abs() < 1e-4);
    assert_eq!(
        plain["usage"]["prompt_tokens"],
        plain["usage"]["total_tokens"]
    );
    let encoded = body(json!({"input": "a", "encoding_format": "base64"}));
    assert_eq!(encoded["data"][0]["embedding"].as_str().unwrap().len(), 172);
}

#[test]
fn a_count_is_the_estimate() {
    let request = ask(Dialect::CountTokens, "hi", json!({}));
    assert_eq!(
        count_tokens(&request),
        json!({"input_tokens": request.prompt_tokens()})
    );
}
