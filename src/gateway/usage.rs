//! How many tokens a call used, by the provider's own word where there is one.
//!
//! A provider's details (cached, reasoning) are parts of its totals and never added, but for Anthropic's
//! cache fields, which stand beside `input_tokens`. What a provider does not say is unknown, never zero.

use serde_json::Value;

use super::Dialect;
use super::estimate::estimate_content;

/// Numbers above this are nonsense.
const MAX_COUNT: u64 = 1 << 53;

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub prompt: u64,
    /// Tokens written.
    pub completion: u64,
    /// Whether any of it is the gateway's estimate.
    pub estimated: bool,
}

impl Usage {
    /// Tokens charged.
    pub const fn total(&self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// What the provider says a whole answer used; `None`: it does not say.
pub fn of_answer(dialect: Dialect, answer: &Value) -> Option<Usage> {
    let report = Report::of(dialect, answer)?;
    let prompt = report.prompt.or(report.total.map(|_| 0))?;
    Some(Usage {
        prompt,
        completion: report.completion(prompt)?,
        estimated: false,
    })
}

/// What an answer without usage is charged, by its text.
pub fn estimated(prompt_estimate: u64, answer: &Value) -> Usage {
    let texts = ["choices", "output", "content"]
        .into_iter()
        .filter_map(|field| answer.get(field));
    Usage {
        prompt: prompt_estimate,
        completion: texts.map(estimate_content).fold(0, u64::saturating_add),
        estimated: true,
    }
}

/// Numbers a provider gave, in an answer or on the way of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Tokens read, if said.
    pub prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
}

impl Report {
    /// Reads an answer or a stream event. All zeros are what some providers fill the field with
    /// before they know: they say nothing.
    pub fn of(dialect: Dialect, event: &Value) -> Option<Self> {
        let usage = places(event).find(|usage| usage.is_object())?;
        let report = Self::read(dialect, usage);
        let said = [report.prompt, report.completion, report.total];
        said.into_iter()
            .flatten()
            .any(|count| count > 0)
            .then_some(report)
    }

    /// Tokens written, if said or if they follow from the total. A total above the sum of its parts wins:
    /// providers leave out of the parts what they charge all the same.
    pub fn completion(&self, prompt: u64) -> Option<u64> {
        let rest = self.total.map(|total| total.saturating_sub(prompt));
        self.completion.max(rest)
    }

    fn read(dialect: Dialect, usage: &Value) -> Self {
        let total = count(usage, "total_tokens");
        let input = count(usage, "prompt_tokens").or_else(|| count(usage, "input_tokens"));
        let output = count(usage, "completion_tokens").or_else(|| count(usage, "output_tokens"));
        match dialect {
            Dialect::Embeddings => Self {
                prompt: input.max(total),
                completion: Some(0),
                total: None,
            },
            Dialect::Messages => Self {
                prompt: input.map(|input| input.saturating_add(cached(usage))),
                completion: output,
                total,
            },
            _ => Self {
                prompt: input,
                completion: output,
                total,
            },
        }
    }
}

/// Where providers put their usage, in answers and in stream events.
fn places(event: &Value) -> impl Iterator<Item = &Value> {
    let first_choice = event.get("choices").and_then(|choices| choices.get(0));
    let holders = ["response", "message"].map(|field| event.get(field));
    [Some(event)]
        .into_iter()
        .chain(holders)
        .chain([first_choice, event.get("x_groq")])
        .filter_map(|holder| holder?.get("usage"))
}

fn cached(usage: &Value) -> u64 {
    ["cache_creation_input_tokens", "cache_read_input_tokens"]
        .into_iter()
        .filter_map(|field| count(usage, field))
        .fold(0, u64::saturating_add)
}

fn count(usage: &Value, field: &str) -> Option<u64> {
    usage
        .get(field)
        .and_then(Value::as_u64)
        .filter(|count| *count <= MAX_COUNT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(dialect: Dialect, usage: Value) -> Option<(u64, u64)> {
        of_answer(dialect, &json!({"usage": usage})).map(|usage| (usage.prompt, usage.completion))
    }

    #[test]
    fn details_are_parts_and_never_added() {
        let chat = json!({"prompt_tokens": 25, "completion_tokens": 14, "total_tokens": 39,
            "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 4}});
        assert_eq!(read(Dialect::ChatCompletions, chat), Some((25, 14)));
        let responses = json!({"input_tokens": 25, "output_tokens": 14, "total_tokens": 39,
            "input_tokens_details": null, "output_tokens_details": {"reasoning_tokens": 4}});
        assert_eq!(read(Dialect::Responses, responses), Some((25, 14)));
    }

    #[test]
    fn anthropics_cache_fields_stand_beside_the_input() {
        let usage = json!({"input_tokens": 25, "cache_creation_input_tokens": 10,
            "cache_read_input_tokens": 4, "output_tokens": 7});
        assert_eq!(read(Dialect::Messages, usage), Some((39, 7)));
        let null = json!({"input_tokens": 25, "cache_read_input_tokens": null, "output_tokens": 7});
        assert_eq!(read(Dialect::Messages, null), Some((25, 7)));
    }

    #[test]
    fn a_larger_total_wins_and_a_smaller_one_does_not() {
        let usage =
            |total| json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total});
        assert_eq!(read(Dialect::ChatCompletions, usage(40)), Some((10, 30)));
        assert_eq!(read(Dialect::ChatCompletions, usage(0)), Some((10, 5)));
        assert_eq!(
            read(Dialect::ChatCompletions, json!({"total_tokens": 40})),
            Some((0, 40))
        );
    }

    #[test]
    fn embeddings_have_no_completion() {
        assert_eq!(
            read(
                Dialect::Embeddings,
                json!({"prompt_tokens": 8, "total_tokens": 8})
            ),
            Some((8, 0))
        );
        assert_eq!(
            read(Dialect::Embeddings, json!({"total_tokens": 8})),
            Some((8, 0))
        );
        assert_eq!(
            read(Dialect::Embeddings, json!({"prompt_tokens": 8})),
            Some((8, 0))
        );
    }

    #[test]
    fn absent_and_absurd_are_unknown_and_never_zero() {
        let chat = Dialect::ChatCompletions;
        for usage in [
            json!(null),
            json!({}),
            json!([]),
            json!(5),
            json!({"prompt_tokens": 5}),
            json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
            json!({"prompt_tokens": 5, "completion_tokens": -1}),
            json!({"prompt_tokens": 5, "completion_tokens": "7"}),
            json!({"prompt_tokens": 5, "completion_tokens": 7.5}),
            json!({"prompt_tokens": 5, "completion_tokens": (1u64 << 53) + 1}),
        ] {
            assert_eq!(read(chat, usage.clone()), None, "{usage}");
        }
        assert_eq!(of_answer(chat, &json!({})), None);
        assert_eq!(of_answer(chat, &json!([1])), None);
    }

    #[test]
    fn an_answer_without_usage_is_charged_by_its_text() {
        let chat = json!({"id": "x", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "and so on"}, "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "content": "and so on"}, "finish_reason": "stop"}]});
        let usage = estimated(9, &chat);
        assert_eq!(
            (usage.prompt, usage.completion, usage.estimated),
            (9, 6, true)
        );
        let messages = json!({"content": [{"type": "text", "text": "and so on"}]});
        assert_eq!(estimated(9, &messages).completion, 3);
        let embeddings = json!({"data": [{"embedding": [0.1, 0.2]}]});
        assert_eq!(estimated(9, &embeddings).completion, 0);
    }

    #[test]
    fn a_total_never_wraps() {
        let usage = Usage {
            prompt: u64::MAX,
            completion: 2,
            estimated: false,
        };
        assert_eq!(usage.total(), u64::MAX);
    }
}
