//! The adapter to D1: parameters are always bound, time is bounded, and its errors are told apart once.

use serde::de::DeserializeOwned;
use thiserror::Error;
use worker::wasm_bindgen::JsValue;
use worker::{D1Database, D1PreparedStatement, D1Result, Env};

use std::cell::Cell;

use crate::budget::{self, within};
use crate::clock;
use crate::limits::{Millis, Span};
use crate::settings::Settings;

/// Why the ledger did not answer, by what its reader can do.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LedgerError {
    /// It was slow, overloaded or lost on the way: trying again later may help. A write may or may
    /// not have happened.
    #[error("the ledger is out of reach")]
    Unavailable,
    /// The write breaks a rule of the schema, such as a key that is taken or missing.
    #[error("the ledger refuses: {0}")]
    Constraint(String),
    /// The statement or the row is not what the code expects: a bug, or a schema that is behind.
    #[error("the ledger's answer makes no sense: {0}")]
    Broken(String),
}

/// How long after a statement that hung the next ones get little time.
const WARY: Span = Span::seconds(3);

thread_local! {
    /// Until when D1 is not to be waited for at length: not every call has to find out that it hangs.
    static WARY_UNTIL: Cell<Millis> = const { Cell::new(Millis(0)) };
}

/// A handle on D1 with a time budget.
pub struct Db {
    inner: D1Database,
    budget: Span,
    /// When the budget began.
    since: Millis,
}

/// A value to bind.
#[derive(Clone, Copy)]
pub enum Bind<'a> {
    /// Text, or NULL.
    Text(Option<&'a str>),
    /// An integer below 2^53, or NULL.
    Int(Option<u64>),
}

impl<'a> From<&'a str> for Bind<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a String> for Bind<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Bind<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Bind<'_> {
    fn from(value: u64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<u64>> for Bind<'_> {
    fn from(value: Option<u64>) -> Self {
        Self::Int(value)
    }
}

impl Bind<'_> {
    /// D1's integer binding holds 32 bits; a JavaScript number holds 53, enough for every count here.
    #[allow(clippy::cast_precision_loss)]
    fn js(&self) -> JsValue {
        match self {
            Self::Text(Some(text)) => JsValue::from_str(text),
            Self::Int(Some(value)) => JsValue::from_f64(*value as f64),
            Self::Text(None) | Self::Int(None) => JsValue::NULL,
        }
    }
}

impl Db {
    /// D1 on the way of a call.
    pub fn of(env: &Env) -> Result<Self, LedgerError> {
        let now = clock::now(&Settings::of(env));
        let wary = WARY_UNTIL.get();
        let wary = wary.is_ahead(now, Span(budget::D1.0 + WARY.0));
        Self::with_budget(env, if wary { budget::D1_WARY } else { budget::D1 })
    }

    /// D1 for work nobody waits for.
    pub fn background(env: &Env) -> Result<Self, LedgerError> {
        Self::with_budget(env, budget::D1_BACKGROUND)
    }

    fn with_budget(env: &Env, budget: Span) -> Result<Self, LedgerError> {
        let inner = env.d1("DB").map_err(classify)?;
        let since = clock::now(&Settings::of(env));
        Ok(Self {
            inner,
            budget,
            since,
        })
    }

    /// A statement with its parameters.
    pub fn statement(
        &self,
        sql: &str,
        binds: &[Bind<'_>],
    ) -> Result<D1PreparedStatement, LedgerError> {
        let values: Vec<_> = binds.iter().map(Bind::js).collect();
        self.inner.prepare(sql).bind(&values).map_err(classify)
    }

    /// All rows of a query.
    pub async fn all<T: DeserializeOwned>(
        &self,
        sql: &str,
        binds: &[Bind<'_>],
    ) -> Result<Vec<T>, LedgerError> {
        let statement = self.statement(sql, binds)?;
        let result = self.timed(statement.all()).await?;
        result.results().map_err(classify)
    }

    /// The first row of a query.
    pub async fn first<T: DeserializeOwned>(
        &self,
        sql: &str,
        binds: &[Bind<'_>],
    ) -> Result<Option<T>, LedgerError> {
        Ok(self.all(sql, binds).await?.into_iter().next())
    }

    /// One write; gives the number of rows it changed.
    pub async fn run(&self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, LedgerError> {
        let results = self.batch(vec![self.statement(sql, binds)?]).await?;
        Ok(results.first().map_or(0, changes))
    }

    /// Several statements as one transaction.
    pub async fn batch(
        &self,
        statements: Vec<D1PreparedStatement>,
    ) -> Result<Vec<D1Result>, LedgerError> {
        self.timed(self.inner.batch(statements)).await
    }

    /// A change with its audit entry in front, as one transaction; whether it changed a row.
    pub async fn change(
        &self,
        audited: D1PreparedStatement,
        change: D1PreparedStatement,
    ) -> Result<bool, LedgerError> {
        let results = self.batch(vec![audited, change]).await?;
        Ok(results.last().is_some_and(|result| changes(result) > 0))
    }

    async fn timed<T>(
        &self,
        work: impl Future<Output = worker::Result<T>>,
    ) -> Result<T, LedgerError> {
        match within(self.budget, work).await {
            Ok(result) => {
                WARY_UNTIL.set(Millis(0));
                result.map_err(classify)
            }
            Err(_) => {
                // A short wait proves nothing: it must not keep itself short.
                if self.budget >= budget::D1 {
                    WARY_UNTIL.set(self.since.plus(budget::D1).plus(WARY));
                }
                Err(LedgerError::Unavailable)
            }
        }
    }
}

/// Rows a write changed.
pub fn changes(result: &D1Result) -> usize {
    let meta = result.meta().ok().flatten();
    meta.and_then(|m| m.changes).unwrap_or(0)
}

/// D1 says the same thing in two shapes, so only the words count.
fn classify(error: worker::Error) -> LedgerError {
    let text = match &error {
        worker::Error::D1(d1) => d1.cause(),
        other => other.to_string(),
    };
    by_words(&text)
}

fn by_words(text: &str) -> LedgerError {
    let broken = [
        "no such table",
        "no such column",
        "syntax error",
        "invalid type",
        "missing field",
    ];
    if text.contains("constraint failed") || text.contains("SQLITE_CONSTRAINT") {
        LedgerError::Constraint(text.to_owned())
    } else if broken.iter().any(|words| text.contains(words)) {
        LedgerError::Broken(text.to_owned())
    } else {
        LedgerError::Unavailable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_apart_by_what_helps() {
        assert_eq!(
            by_words("D1_ERROR: Network connection lost."),
            LedgerError::Unavailable
        );
        assert_eq!(by_words("D1 DB is overloaded."), LedgerError::Unavailable);
        let taken = "UNIQUE constraint failed: users.user_id: SQLITE_CONSTRAINT";
        assert!(matches!(by_words(taken), LedgerError::Constraint(_)));
        assert!(matches!(
            by_words("no such table: x"),
            LedgerError::Broken(_)
        ));
    }
}
