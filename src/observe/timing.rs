use std::cell::Cell;

use crate::limits::{Span, Took};

/// Something a call waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// The caller's account, all messages together.
    Account,
    /// The provider, to the beginning of its answer.
    Upstream,
}

/// How long a call has waited, and for what.
#[derive(Default)]
pub struct Timing {
    account: Cell<Option<Span>>,
    upstream: Cell<Option<Span>>,
}

impl Timing {
    /// Adds to a stage.
    pub fn note(&self, stage: Stage, span: Span) {
        let cell = self.cell(stage);
        let before = cell.get().unwrap_or(Span::ZERO);
        cell.set(Some(Span(before.0.saturating_add(span.0))));
    }

    /// All of it, for the account.
    pub fn took(&self) -> Took {
        Took {
            account: self.of(Stage::Account),
            upstream: self.of(Stage::Upstream),
        }
    }

    /// How long a stage took; `None`: there was none.
    pub fn of(&self, stage: Stage) -> Option<Span> {
        self.cell(stage).get()
    }

    /// The value of `Server-Timing`, in milliseconds.
    pub fn header(&self, total: Span) -> String {
        let named = [("account", Stage::Account), ("upstream", Stage::Upstream)];
        let stages = named
            .iter()
            .filter_map(|(name, stage)| Some((*name, self.of(*stage)?)));
        let all = stages.chain([("total", total)]);
        all.map(|(name, span)| format!("{name};dur={}", span.0))
            .collect::<Vec<_>>()
            .join(", ")
    }

    const fn cell(&self, stage: Stage) -> &Cell<Option<Span>> {
        match stage {
            Stage::Account => &self.account,
            Stage::Upstream => &self.upstream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_and_are_named() {
        let timing = Timing::default();
        assert_eq!(timing.header(Span(9)), "total;dur=9");
        timing.note(Stage::Account, Span(2));
        timing.note(Stage::Account, Span(3));
        timing.note(Stage::Upstream, Span(40));
        assert_eq!(
            timing.header(Span(50)),
            "account;dur=5, upstream;dur=40, total;dur=50"
        );
    }
}
