use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Deserialize)]
struct Corpus {
    texts: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    class: String,
    o200k: u64,
    cl100k: u64,
    text: String,
}

fn corpus() -> Vec<Sample> {
    let file = include_str!("../../tests/corpus/tokens.json");
    serde_json::from_str::<Corpus>(file).unwrap().texts
}

#[test]
fn every_class_of_text_is_estimated_close_to_real_tokenizers() {
    let mut classes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for sample in corpus() {
        let truth = sample.o200k.max(sample.cl100k) as f64;
        let ratio = estimate_tokens(&sample.text) as f64 / truth;
        classes.entry(sample.class).or_default().push(ratio);
    }
    let mut wrong = Vec::new();
    println!(
        "{:16} {:>5} {:>6} {:>6} {:>6}",
        "class", "texts", "mean", "min", "max"
    );
    for (class, ratios) in &classes {
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let max = ratios.iter().copied().fold(0.0, f64::max);
        println!(
            "{class:16} {:5} {mean:6.2} {min:6.2} {max:6.2}",
            ratios.len()
        );
        if !(0.8..=1.6).contains(&mean) {
            wrong.push(class);
        }
    }
    assert!(wrong.is_empty(), "out of bounds: {wrong:?}");
}

#[test]
fn the_least_is_never_above_what_real_tokenizers_count() {
    for sample in corpus() {
        let mut counter = TokenCounter::default();
        counter.push(&sample.text);
        let truth = sample.o200k.min(sample.cl100k);
        assert!(
            counter.least_tokens() <= truth,
            "{} {}",
            counter.least_tokens(),
            sample.text
        );
    }
}

#[test]
fn nothing_costs_nothing_and_short_words_one_token_each() {
    assert_eq!(estimate_tokens(""), 0);
    assert_eq!(estimate_tokens("and so on"), 3);
}

#[test]
fn a_picture_costs_the_same_however_large_its_data_is() {
    let url = format!("data:image/png;base64,{}", "iVBORw0KGgo".repeat(20_000));
    let openai = json!([{"type": "image_url", "image_url": {"url": url}}]);
    let responses = json!([{"type": "input_image", "image_url": url}]);
    let anthropic = json!([{"type": "image", "source":
        {"type": "base64", "media_type": "image/png", "data": "A".repeat(200_000)}}]);
    for content in [openai, responses, anthropic, json!(url)] {
        assert_eq!(estimate_content(&content), IMAGE_TOKENS);
    }
}

#[test]
fn files_and_recordings_are_counted_by_size_and_plain_documents_as_text() {
    let pdf = json!({"type": "document", "source":
        {"type": "base64", "media_type": "application/pdf", "data": "A".repeat(32_000)}});
    assert_eq!(estimate_content(&pdf), 1_000);
    let speech =
        json!({"type": "input_audio", "input_audio": {"data": "A".repeat(5_000), "format": "mp3"}});
    assert_eq!(estimate_content(&speech), 10);
    let text = json!({"type": "document", "source":
        {"type": "text", "media_type": "text/plain", "data": "and so on"}});
    assert_eq!(estimate_content(&text), 3);
}

#[test]
fn a_prompt_counts_frames_texts_and_tools_but_no_settings() {
    let body = json!({"model": "m", "temperature": 0.5, "user": "a-very-long-user-name",
        "metadata": {"trace": "and so on and so on"},
        "messages": [{"role": "system", "content": "and so on"}, {"role": "user", "content": null}]});
    let plain = estimate_prompt(body.as_object().unwrap());
    assert_eq!(plain, PROMPT_OVERHEAD + 2 * MESSAGE_OVERHEAD + 3);

    let mut with_tools = body;
    with_tools["tools"] = json!([{"type": "function", "function": {"name": "find"}}]);
    assert!(estimate_prompt(with_tools.as_object().unwrap()) > plain + TOOL_OVERHEAD);
}

#[test]
fn token_lists_count_one_each() {
    let body = json!({"prompt": [1, 2, 3, 4]});
    assert_eq!(
        estimate_prompt(body.as_object().unwrap()),
        PROMPT_OVERHEAD + 4
    );
}

proptest! {
    #[test]
    fn where_a_text_is_cut_makes_no_difference(text in any::<String>(), at in any::<prop::sample::Index>()) {
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len() + 1);
        let mut counter = TokenCounter::default();
        counter.push(&chars[..at].iter().collect::<String>());
        counter.push(&chars[at..].iter().collect::<String>());
        prop_assert_eq!(counter.tokens(), estimate_tokens(&text));
    }
}
