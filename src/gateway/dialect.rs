//! The APIs a caller may speak, and what sets them apart.

/// The APIs that are understood; each is one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's chat.
    ChatCompletions,
    /// OpenAI's older text completions.
    Completions,
    /// OpenAI's embeddings.
    Embeddings,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Anthropic's count of a prompt, without an answer.
    CountTokens,
}

impl Dialect {
    /// The API served under a path without its query.
    pub fn of_path(path: &str) -> Option<Self> {
        [
            Self::ChatCompletions,
            Self::Completions,
            Self::Embeddings,
            Self::Responses,
            Self::Messages,
            Self::CountTokens,
        ]
        .into_iter()
        .find(|dialect| dialect.path() == path)
    }

    /// The path, here and at the provider.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
        }
    }

    /// The name under which a plan limits this API (`endpoint:{name}`).
    pub const fn endpoint(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
        }
    }

    /// Whether the model writes an answer, which `max_tokens` bounds and which can stream.
    pub const fn can_stream(self) -> bool {
        !matches!(self, Self::Embeddings | Self::CountTokens)
    }

    /// Whether the streams are made of chunks with `choices` and end with `[DONE]`.
    pub const fn has_choices(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_exactly_or_not_at_all() {
        assert_eq!(
            Dialect::of_path("/v1/chat/completions"),
            Some(Dialect::ChatCompletions)
        );
        assert_eq!(
            Dialect::of_path("/v1/messages/count_tokens"),
            Some(Dialect::CountTokens)
        );
        for path in [
            "/v1/chat/completions/",
            "/V1/messages",
            "/v1/messages/batches",
            "",
            "/v1",
        ] {
            assert_eq!(Dialect::of_path(path), None, "{path}");
        }
    }

    #[test]
    fn what_writes_no_answer_cannot_stream() {
        assert!(Dialect::Responses.can_stream() && !Dialect::Embeddings.can_stream());
    }
}
