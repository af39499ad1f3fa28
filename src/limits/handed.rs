//! A lease on its way out and back. What is sent are rows of numbers: they are read on the way of calls, and
//! cost a tenth of the code that named fields would. Rows only ever grow at their end.

use serde::{Deserialize, Serialize};

use super::reservation::Metered;
use super::{Latency, MaxTokensMode, ModelPattern, OperationId, Span};

type Row = Vec<Option<u64>>;

/// A lease as it is handed out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "HandedRows", into = "HandedRows")]
pub struct Handed {
    /// Its id.
    pub lease: OperationId,
    /// How much it may spend of what counts calls.
    pub calls: u64,
    /// How many tokens; `None`: nothing limits them.
    pub tokens: Option<u64>,
    /// For how long.
    pub lasts: Span,
    /// What each call is held to besides.
    pub terms: Terms,
}

/// What calls under a lease are held to: the part of the limits that needs no counting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Most completion tokens one call may ask for.
    pub max_tokens_per_request: Option<u64>,
    /// What becomes of a call that asks for more.
    pub max_tokens_mode: MaxTokensMode,
    /// Models the user may name; `None` is all of them.
    pub allowed_models: Option<Vec<ModelPattern>>,
    /// Endpoints with a limit of their own: their calls always ask the account.
    pub endpoints: Vec<String>,
}

/// A lease that comes back, with what was spent of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "ReturnedRows", into = "ReturnedRows")]
pub struct Returned {
    /// Which.
    pub lease: OperationId,
    /// What all its calls cost, those under way among them.
    pub spent: u64,
    /// What of that upstream failures gave back: quotas get it, short limits don't.
    pub released: u64,
    /// How many calls have ended and count.
    pub ended: u64,
    /// Their prompt tokens.
    pub prompt: u64,
    /// Their completion tokens.
    pub completion: u64,
    /// How many of these calls have estimated tokens.
    pub estimated: u64,
    /// The most tokens that one call wanted.
    pub widest: u64,
    /// For how long it was spent.
    pub lasted: Span,
    /// How long they waited.
    pub waits: Latency,
    /// Calls still under way: ordinary reservations from now on.
    pub open: Vec<OpenCall>,
}

/// A call under way whose lease comes back.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// Its id.
    pub operation: OperationId,
    /// What it cost.
    pub cost: u64,
    /// Tokens reserved for it, prompt included.
    pub tokens: u64,
    /// Estimate of the prompt.
    pub prompt: u64,
    /// The bound it was sent upstream with, per choice.
    pub max_tokens: Option<u64>,
    /// What it has used so far, as far as is known.
    pub metered: Option<Metered>,
    /// How long it may take without another word.
    pub lease: Span,
}

impl Returned {
    /// A lease that nothing was spent of.
    pub fn unspent(lease: OperationId) -> Self {
        Self {
            lease,
            spent: 0,
            released: 0,
            ended: 0,
            prompt: 0,
            completion: 0,
            estimated: 0,
            widest: 0,
            lasted: Span::ZERO,
            waits: Latency::default(),
            open: Vec::new(),
        }
    }

    /// Tokens that were spent or are still held.
    pub fn tokens(&self) -> u64 {
        let open = self.open.iter().map(|open| open.tokens);
        let used = self.prompt.saturating_add(self.completion);
        open.fold(used, u64::saturating_add)
    }
}

/// `calls`, `tokens`, `lasts`, `max_tokens_per_request`, and 1 where `clamp` is the mode; the models, the
/// endpoints.
type HandedRows = (OperationId, Row, Option<Vec<ModelPattern>>, Vec<String>);

impl From<HandedRows> for Handed {
    fn from((lease, row, allowed_models, endpoints): HandedRows) -> Self {
        let mode = match at(&row, 4) {
            0 => MaxTokensMode::Reject,
            _ => MaxTokensMode::Clamp,
        };
        Self {
            lease,
            calls: at(&row, 0),
            tokens: maybe(&row, 1),
            lasts: Span(at(&row, 2)),
            terms: Terms {
                max_tokens_per_request: maybe(&row, 3),
                max_tokens_mode: mode,
                allowed_models,
                endpoints,
            },
        }
    }
}

impl From<Handed> for HandedRows {
    fn from(handed: Handed) -> Self {
        let terms = handed.terms;
        let row = vec![
            Some(handed.calls),
            handed.tokens,
            Some(handed.lasts.0),
            terms.max_tokens_per_request,
            Some(u64::from(terms.max_tokens_mode == MaxTokensMode::Clamp)),
        ];
        (handed.lease, row, terms.allowed_models, terms.endpoints)
    }
}

/// `spent`, `released`, `ended`, `prompt`, `completion`, `estimated`, `widest`, `lasted`; and of every open
/// call `cost`, `tokens`, `prompt`, `lease`, `max_tokens`, and prompt and completion as metered.
type ReturnedRows = (OperationId, Row, Vec<(OperationId, Row)>, Vec<u64>);

impl From<ReturnedRows> for Returned {
    fn from((lease, row, open, waits): ReturnedRows) -> Self {
        Self {
            lease,
            spent: at(&row, 0),
            released: at(&row, 1),
            ended: at(&row, 2),
            prompt: at(&row, 3),
            completion: at(&row, 4),
            estimated: at(&row, 5),
            widest: at(&row, 6),
            lasted: Span(at(&row, 7)),
            waits: Latency::of_row(&waits),
            open: open.into_iter().map(OpenCall::from).collect(),
        }
    }
}

impl From<(OperationId, Row)> for OpenCall {
    fn from((operation, row): (OperationId, Row)) -> Self {
        let metered = maybe(&row, 5).zip(maybe(&row, 6));
        Self {
            operation,
            cost: at(&row, 0),
            tokens: at(&row, 1),
            prompt: at(&row, 2),
            lease: Span(at(&row, 3)),
            max_tokens: maybe(&row, 4),
            metered: metered.map(|(prompt, completion)| Metered { prompt, completion }),
        }
    }
}

impl From<Returned> for ReturnedRows {
    fn from(returned: Returned) -> Self {
        let numbers = [
            returned.spent,
            returned.released,
            returned.ended,
            returned.prompt,
            returned.completion,
            returned.estimated,
            returned.widest,
            returned.lasted.0,
        ];
        let open = returned.open.into_iter().map(|open| {
            let row = vec![
                Some(open.cost),
                Some(open.tokens),
                Some(open.prompt),
                Some(open.lease.0),
                open.max_tokens,
                open.metered.map(|metered| metered.prompt),
                open.metered.map(|metered| metered.completion),
            ];
            (open.operation, row)
        });
        (
            returned.lease,
            numbers.map(Some).to_vec(),
            open.collect(),
            returned.waits.to_row(),
        )
    }
}

fn maybe(row: &Row, index: usize) -> Option<u64> {
    row.get(index).copied().flatten()
}

fn at(row: &Row, index: usize) -> u64 {
    maybe(row, index).unwrap_or(0)
}
