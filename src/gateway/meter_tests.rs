use proptest::prelude::*;
use serde_json::json;

use super::*;

const PROMPT: u64 = 20;

struct Recording {
    name: &'static str,
    dialect: Dialect,
    bytes: &'static str,
    /// What the provider says it used.
    used: (u64, u64),
    finish: Finish,
}

const RECORDINGS: [Recording; 8] = [
    Recording {
        name: "chat-usage-chunk",
        dialect: Dialect::ChatCompletions,
        bytes: include_str!("../../tests/streams/chat-usage-chunk.sse"),
        used: (21, 15),
        finish: Finish::Stop,
    },
    Recording {
        name: "chat-usage-finish",
        dialect: Dialect::ChatCompletions,
        bytes: include_str!("../../tests/streams/chat-usage-finish.sse"),
        used: (21, 15),
        finish: Finish::Stop,
    },
    Recording {
        name: "chat-usage-empty-delta",
        dialect: Dialect::ChatCompletions,
        bytes: include_str!("../../tests/streams/chat-usage-empty-delta.sse"),
        used: (21, 15),
        finish: Finish::Stop,
    },
    Recording {
        name: "chat-usage-cumulative",
        dialect: Dialect::ChatCompletions,
        bytes: include_str!("../../tests/streams/chat-usage-cumulative.sse"),
        used: (21, 15),
        finish: Finish::Stop,
    },
    Recording {
        name: "chat-tools",
        dialect: Dialect::ChatCompletions,
        bytes: include_str!("../../tests/streams/chat-tools.sse"),
        used: (21, 15),
        finish: Finish::ToolCalls,
    },
    Recording {
        name: "completions",
        dialect: Dialect::Completions,
        bytes: include_str!("../../tests/streams/completions.sse"),
        used: (21, 15),
        finish: Finish::Length,
    },
    Recording {
        name: "messages",
        dialect: Dialect::Messages,
        bytes: include_str!("../../tests/streams/messages.sse"),
        used: (21, 31),
        finish: Finish::ToolCalls,
    },
    Recording {
        name: "responses",
        dialect: Dialect::Responses,
        bytes: include_str!("../../tests/streams/responses.sse"),
        used: (21, 15),
        finish: Finish::Stop,
    },
];

fn policy(hide_usage: bool) -> MeterPolicy {
    MeterPolicy {
        hide_usage,
        prompt_estimate: PROMPT,
        token_budget: None,
    }
}

/// What the caller gets of these chunks, and the reading.
fn relay(
    dialect: Dialect,
    policy: MeterPolicy,
    chunks: &[&[u8]],
    end: StreamEnd,
) -> (String, Settled, Feed) {
    let mut meter = StreamMeter::new(dialect, policy);
    let mut out = Vec::new();
    let mut feed = Feed::Continue;
    for chunk in chunks {
        feed = meter.feed(chunk, &mut out);
    }
    let settled = meter.finish(end, &mut out);
    assert_eq!(meter.metered(), settled.usage);
    (String::from_utf8(out).unwrap(), settled, feed)
}

fn relay_text(dialect: Dialect, text: &str, end: StreamEnd) -> (String, Settled) {
    let (out, settled, _) = relay(dialect, policy(false), &[text.as_bytes()], end);
    (out, settled)
}

/// The stream as a caller sees it who did not ask for usage.
fn without_usage_chunk(stream: &str, blank: &str) -> String {
    stream
        .split_inclusive(blank)
        .filter(|event| !(event.contains(r#""choices":[]"#) && event.contains(r#""usage":{"#)))
        .collect()
}

fn expect(recording: &Recording, hide: bool, stream: &str, blank: &str, chunks: &[&[u8]]) {
    let (out, settled, _) = relay(recording.dialect, policy(hide), chunks, StreamEnd::Complete);
    let expected = if hide && recording.dialect.has_choices() {
        without_usage_chunk(stream, blank)
    } else {
        stream.to_owned()
    };
    assert!(
        out == expected,
        "{} hide={hide}\n{out}\n---\n{expected}",
        recording.name
    );
    let (prompt, completion) = recording.used;
    assert_eq!(
        settled.usage,
        Usage {
            prompt,
            completion,
            estimated: false
        },
        "{}",
        recording.name
    );
    assert_eq!(
        (settled.finish, settled.complete),
        (recording.finish, true),
        "{}",
        recording.name
    );
}

/// The ways in which the same events may be written.
fn spellings(bytes: &str) -> Vec<(String, &'static str)> {
    let commented = bytes.replace("data: ", ": a comment, é\ndata: ");
    vec![
        (bytes.to_owned(), "\n\n"),
        (bytes.replace('\n', "\r\n"), "\r\n\r\n"),
        (bytes.replace("data: ", "data:"), "\n\n"),
        (format!("\u{feff}{bytes}"), "\n\n"),
        (commented, "\n\n"),
        (bytes.trim_end().to_owned(), "\n\n"),
        (format!("{}\n", bytes.trim_end()), "\n\n"),
    ]
}

#[test]
fn recorded_streams_pass_untouched_however_they_are_cut() {
    for recording in &RECORDINGS {
        for (stream, blank) in spellings(recording.bytes) {
            for hide in [false, true] {
                let bytes = stream.as_bytes();
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                expect(recording, hide, &stream, blank, &[bytes]);
                expect(recording, hide, &stream, blank, &single);
            }
        }
    }
}

#[test]
fn every_cut_in_two_is_harmless() {
    for recording in &RECORDINGS {
        // With CRLF only the first: all APIs share one scanner.
        let count = if recording.name == RECORDINGS[0].name {
            2
        } else {
            1
        };
        for (stream, blank) in spellings(recording.bytes).into_iter().take(count) {
            for at in 0..=stream.len() {
                let (head, tail) = stream.as_bytes().split_at(at);
                expect(recording, true, &stream, blank, &[head, tail]);
            }
        }
    }
}

#[test]
fn a_caller_who_asked_sees_exactly_one_usage_chunk() {
    let stream = RECORDINGS[0].bytes;
    assert_eq!(stream.matches(r#""usage":{"#).count(), 1);
    assert!(stream.contains("prompt_filter_results"));
    let hidden = without_usage_chunk(stream, "\n\n");
    assert!(!hidden.contains(r#""usage":{"#) && hidden.contains("prompt_filter_results"));
}

fn chunk(text: &str) -> String {
    let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    data_event(&chunk)
}

fn events(out: &str) -> Vec<Value> {
    out.split("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
        .map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
        .collect()
}

#[test]
fn without_usage_the_relayed_text_is_charged_and_says_so() {
    let stream = chunk("and").repeat(40) + "data: [DONE]\n\n";
    let (out, settled) = relay_text(Dialect::ChatCompletions, &stream, StreamEnd::Complete);
    assert_eq!(out, stream);
    assert!(settled.complete && settled.usage.estimated);
    assert_eq!(settled.usage.prompt, PROMPT);
    let (_, one) = relay_text(
        Dialect::ChatCompletions,
        &chunk("and so on"),
        StreamEnd::CallerLeft,
    );
    assert_eq!(one.usage.completion, 3);
}

#[test]
fn a_broken_stream_ends_with_an_error_and_never_with_done() {
    let stream = chunk(" and").repeat(40);
    let half = stream.clone() + "data: {\"id\":\"chat";
    for (end, code) in [
        (StreamEnd::Complete, "upstream_incomplete"),
        (StreamEnd::UpstreamBroke, "upstream_incomplete"),
        (StreamEnd::TimedOut, "upstream_timeout"),
    ] {
        for text in [&stream, &half] {
            let (out, settled) = relay_text(Dialect::ChatCompletions, text, end);
            let rest = out.strip_prefix(&stream).unwrap();
            assert_eq!(events(rest)[0]["error"]["code"], code, "{rest}");
            assert!(!out.contains("[DONE]"));
            assert_eq!(
                (settled.complete, settled.finish),
                (false, Finish::Truncated)
            );
            assert_eq!(settled.usage.completion, 40);
        }
    }
}

#[test]
fn a_caller_who_left_is_told_nothing_and_pays_for_what_was_relayed() {
    for end in [StreamEnd::CallerLeft, StreamEnd::WriteFailed] {
        let stream = chunk(" and").repeat(5);
        let (out, settled) = relay_text(Dialect::ChatCompletions, &stream, end);
        assert_eq!(out, stream);
        assert_eq!(
            (settled.usage.completion, settled.usage.estimated),
            (5, true)
        );
        assert_eq!(
            (settled.complete, settled.finish),
            (false, Finish::Truncated)
        );
    }
}

#[test]
fn each_api_has_its_own_words_for_a_broken_answer() {
    let half = |recording: &Recording| {
        let events: Vec<&str> = recording.bytes.split_inclusive("\n\n").collect();
        events[..events.len() / 2].concat()
    };
    for recording in &RECORDINGS {
        let stream = half(recording);
        let (out, settled) = relay_text(recording.dialect, &stream, StreamEnd::UpstreamBroke);
        let rest = out.strip_prefix(&stream).unwrap();
        let event = &events(rest)[0];
        match recording.dialect {
            Dialect::Messages => {
                assert!(rest.starts_with("event: error\n"));
                assert_eq!(event["error"]["type"], "api_error");
            }
            Dialect::Responses => {
                assert!(rest.starts_with("event: response.failed\n"));
                assert_eq!(event["sequence_number"], stream.matches("event: ").count());
                assert_eq!(event["response"]["id"], "resp_5f");
                assert_eq!(event["response"]["error"]["code"], "server_error");
                assert_eq!(event["response"]["status"], "failed");
            }
            _ => assert_eq!(event["error"]["code"], "upstream_incomplete"),
        }
        assert!(!settled.complete, "{}", recording.name);
        assert!(settled.usage.completion > 0, "{}", recording.name);
    }
}

#[test]
fn an_error_of_the_provider_passes_and_is_not_said_twice() {
    let chat = chunk("and") + "data: {\"error\":{\"message\":\"overloaded\",\"code\":null}}\n\n";
    let messages =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let flat = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"sequence_number\":0}\n\n";
    for (dialect, stream) in [
        (Dialect::ChatCompletions, chat.as_str()),
        (Dialect::Messages, messages),
        (Dialect::Responses, flat),
    ] {
        let (out, settled) = relay_text(dialect, stream, StreamEnd::Complete);
        assert_eq!(out, stream);
        assert_eq!(
            (settled.complete, settled.finish),
            (false, Finish::Error),
            "{dialect:?}"
        );
    }
}

#[test]
fn usage_is_read_from_every_kind_of_end() {
    let usage = json!({"input_tokens": 9, "output_tokens": 4, "total_tokens": 13});
    let ends = [
        ("response.completed", json!(null), Finish::Stop),
        (
            "response.incomplete",
            json!({"reason": "max_output_tokens"}),
            Finish::Length,
        ),
        (
            "response.incomplete",
            json!({"reason": "content_filter"}),
            Finish::ContentFilter,
        ),
        ("response.failed", json!(null), Finish::Error),
    ];
    for (kind, details, finish) in ends {
        let event =
            json!({"type": kind, "response": {"usage": usage, "incomplete_details": details}});
        let (_, settled) = relay_text(
            Dialect::Responses,
            &typed_event(&event),
            StreamEnd::Complete,
        );
        assert_eq!(
            settled.usage,
            Usage {
                prompt: 9,
                completion: 4,
                estimated: false
            }
        );
        assert_eq!((settled.complete, settled.finish), (true, finish));
    }
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4});
    let reasons = ["stop", "length", "content_filter", "tool_calls", "odd"];
    for reason in reasons {
        let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage});
        let (_, settled) = relay_text(
            Dialect::ChatCompletions,
            &(chunk("and") + &data_event(&last)),
            StreamEnd::Complete,
        );
        assert_eq!(
            settled.usage,
            Usage {
                prompt: 9,
                completion: 4,
                estimated: false
            }
        );
        assert!(settled.complete, "{reason}");
    }
    let failed = json!({"error": {"message": "x"}, "usage": usage});
    let (_, settled) = relay_text(
        Dialect::ChatCompletions,
        &data_event(&failed),
        StreamEnd::Complete,
    );
    assert_eq!((settled.usage.total(), settled.finish), (13, Finish::Error));
}

#[test]
fn a_finish_reason_without_done_is_complete_and_gets_no_done() {
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let stream = chunk("and") + &data_event(&last);
    let (out, settled) = relay_text(Dialect::ChatCompletions, &stream, StreamEnd::Complete);
    assert_eq!(out, stream);
    assert!(settled.complete);

    let two = json!({"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": null}]});
    let stream = data_event(&two) + &stream;
    let (_, settled) = relay_text(Dialect::ChatCompletions, &stream, StreamEnd::Complete);
    assert!(!settled.complete);
}

#[test]
fn a_report_on_the_way_is_only_the_base_of_what_follows() {
    let report = |completion: u64| {
        data_event(
            &json!({"choices": [{"index": 0, "delta": {"content": " and"}}],
            "usage": {"prompt_tokens": 30, "completion_tokens": completion}}),
        )
    };
    let after = |stream: &str| {
        relay_text(Dialect::ChatCompletions, stream, StreamEnd::CallerLeft)
            .1
            .usage
    };
    let usage = after(&(report(5) + &chunk(" so").repeat(10)));
    assert_eq!(
        usage,
        Usage {
            prompt: 30,
            completion: 15,
            estimated: true
        }
    );
    // Zero beside text is a placeholder.
    assert_eq!(after(&report(0).repeat(7)).completion, 7);
    // The last report counts, whatever came before.
    assert_eq!(after(&(report(50) + &report(6))).completion, 6);
}

fn cut(dialect: Dialect, hide_usage: bool, stream: &str, completion: u64) -> (String, Settled) {
    let budget = Some(PROMPT + completion);
    let policy = MeterPolicy {
        hide_usage,
        prompt_estimate: PROMPT,
        token_budget: budget,
    };
    let mut meter = StreamMeter::new(dialect, policy);
    let mut out = Vec::new();
    assert_eq!(meter.feed(stream.as_bytes(), &mut out), Feed::Cut);
    let length = out.len();
    assert_eq!(meter.feed(b"data: more\n\n", &mut out), Feed::Cut);
    let settled = meter.finish(StreamEnd::Complete, &mut out);
    assert_eq!(out.len(), length, "nothing follows a cut");
    assert_eq!((settled.finish, settled.complete), (Finish::Length, true));
    (String::from_utf8(out).unwrap(), settled)
}

#[test]
fn a_chat_past_its_reservation_is_ended_as_by_its_provider() {
    let stream = chunk(" and").repeat(300);
    let (out, settled) = cut(Dialect::ChatCompletions, false, &stream, 200);
    let rest = out.strip_prefix(&chunk(" and").repeat(201)).unwrap();
    let events = events(rest);
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["choices"][0]["finish_reason"], "length");
    assert_eq!(
        (&events[0]["id"], &events[0]["model"]),
        (&json!("chatcmpl-1"), &json!("m"))
    );
    assert_eq!(events[0]["created"], 7);
    assert_eq!(events[1]["choices"], json!([]));
    assert_eq!(events[1]["usage"]["completion_tokens"], 201);
    assert_eq!(events[2], "[DONE]");
    assert_eq!(
        settled.usage,
        Usage {
            prompt: PROMPT,
            completion: 201,
            estimated: true
        }
    );

    let (out, _) = cut(Dialect::ChatCompletions, true, &stream, 200);
    assert!(!out.contains("usage") && out.ends_with("data: [DONE]\n\n"));
}

#[test]
fn every_open_choice_is_ended() {
    let choice = |index: u64, finish: Value| {
        data_event(&json!({"choices": [{"index": index, "text": " and", "finish_reason": finish}]}))
    };
    let stream =
        choice(0, json!(null)) + &choice(1, json!("stop")) + &choice(2, json!(null)).repeat(9);
    let (out, _) = cut(Dialect::Completions, true, &stream, 5);
    let ended: Vec<Value> = events(&out)
        .into_iter()
        .filter(|event| event["choices"][0]["finish_reason"] == "length")
        .map(|event| event["choices"][0]["index"].clone())
        .collect();
    assert_eq!(ended, [0, 2]);
}

#[test]
fn a_message_past_its_reservation_closes_its_block_and_itself() {
    let start = json!({"type": "message_start", "message": {"usage":
        {"input_tokens": 11, "cache_read_input_tokens": 6, "output_tokens": 1}}});
    let block =
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "text"}});
    let delta = json!({"type": "content_block_delta", "index": 2, "delta": {"text": " and"}});
    let stream = typed_event(&start) + &typed_event(&block) + &typed_event(&delta).repeat(50);
    let (out, settled) = cut(Dialect::Messages, true, &stream, 10);
    let rest = &events(&out)[12..];
    assert_eq!(rest[0], json!({"type": "content_block_stop", "index": 2}));
    assert_eq!(rest[1]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(
        rest[1]["usage"],
        json!({"input_tokens": 11, "cache_read_input_tokens": 6, "output_tokens": 11})
    );
    assert_eq!(rest[2], json!({"type": "message_stop"}));
    assert_eq!((settled.usage.prompt, settled.usage.completion), (17, 11));
}

#[test]
fn a_response_past_its_reservation_is_incomplete() {
    let created = json!({"type": "response.created", "sequence_number": 0,
        "response": {"id": "resp_1", "created_at": 5, "model": "m"}});
    let delta =
        json!({"type": "response.output_text.delta", "sequence_number": 41, "delta": " and"});
    let stream = typed_event(&created) + &typed_event(&delta).repeat(50);
    let (out, _) = cut(Dialect::Responses, true, &stream, 10);
    let last = events(&out).pop().unwrap();
    assert_eq!(
        (&last["type"], &last["sequence_number"]),
        (&json!("response.incomplete"), &json!(42))
    );
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(last["response"]["usage"]["total_tokens"], PROMPT + 11);
    assert_eq!(
        (&last["response"]["id"], &last["response"]["status"]),
        (&json!("resp_1"), &json!("incomplete"))
    );
}

#[test]
fn who_keeps_to_the_bound_is_not_cut() {
    let feed = |stream: &str, completion: u64| {
        let policy = MeterPolicy {
            hide_usage: false,
            prompt_estimate: 5,
            token_budget: Some(5 + completion),
        };
        let (out, _, feed) = relay(
            Dialect::ChatCompletions,
            policy,
            &[stream.as_bytes()],
            StreamEnd::CallerLeft,
        );
        assert!(feed == Feed::Cut || out == stream);
        feed
    };
    assert_eq!(feed(&chunk(" and").repeat(200), 200), Feed::Continue);
    // One token a piece, in scripts whose words newer models know.
    assert_eq!(
        feed(&(chunk("用户") + &chunk("的")).repeat(100), 200),
        Feed::Continue
    );
    assert_eq!(feed(&chunk(" მომ").repeat(200), 200), Feed::Continue);
    // A few tokens a piece.
    assert_eq!(feed(&chunk(" and so on").repeat(66), 200), Feed::Continue);
    // A prompt that was longer than its estimate.
    let report =
        data_event(&json!({"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 0}}));
    assert_eq!(
        feed(&(report + &chunk(" and").repeat(200)), 200),
        Feed::Continue
    );
    // An answer that has just ended.
    let last = json!({"choices": [{"index": 0, "delta": {"content": " and"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 500}});
    assert_eq!(feed(&data_event(&last), 200), Feed::Continue);
}

#[test]
fn who_hides_its_tokens_in_large_pieces_is_cut_too() {
    let (_, settled) = cut(
        Dialect::ChatCompletions,
        false,
        &chunk(&" and".repeat(50)).repeat(20),
        200,
    );
    assert!(settled.usage.completion <= 400, "{settled:?}");
    let endless = format!("data: {}", "x".repeat(EVENT_CAP + 10));
    let (out, _) = cut(Dialect::ChatCompletions, true, &endless, 200);
    assert!(out.ends_with("}]}\n\ndata: [DONE]\n\n") && out.contains("xx\n\ndata: {"));
}

#[test]
fn a_terminal_event_too_large_to_read_still_ends_the_answer() {
    let delta = typed_event(&json!({"type": "response.output_text.delta", "delta": " and"}));
    let last = json!({"type": "response.completed", "response": {"output": "x".repeat(RESPONSES_EVENT_CAP)}});
    let stream = delta + &typed_event(&last);
    let chunks: Vec<&[u8]> = stream.as_bytes().chunks(10_000).collect();
    let (out, settled, _) = relay(
        Dialect::Responses,
        policy(false),
        &chunks,
        StreamEnd::Complete,
    );
    assert!(out == stream);
    assert_eq!((settled.complete, settled.finish), (true, Finish::Stop));
    assert_eq!(
        (settled.usage.completion, settled.usage.estimated),
        (1, true)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cuts_of_any_recording_are_harmless(
        which in 0..RECORDINGS.len(),
        spelling in 0..7usize,
        hide in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let recording = &RECORDINGS[which];
        let (stream, blank) = spellings(recording.bytes).swap_remove(spelling);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|w| &stream.as_bytes()[w[0]..w[1]]).collect();
        expect(recording, hide, &stream, blank, &chunks);
    }

    #[test]
    fn no_bytes_panic_and_none_are_lost(chunks in prop::collection::vec(any::<Vec<u8>>(), 0..8), which in 0..4usize) {
        let dialect = [Dialect::ChatCompletions, Dialect::Completions, Dialect::Messages, Dialect::Responses][which];
        let mut meter = StreamMeter::new(dialect, policy(false));
        let mut out = Vec::new();
        for chunk in &chunks {
            prop_assert_eq!(meter.feed(chunk, &mut out), Feed::Continue);
        }
        prop_assert!(chunks.concat().starts_with(&out));
        meter.finish(StreamEnd::Complete, &mut out);
    }
}
