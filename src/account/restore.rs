//! From what was stored, or from what the ledger knows, to an account in memory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::ledger::hot::Stored;
use crate::ledger::usage::{Day, Start};
use crate::limits::{
    Account, DecodeError, Latency, LocalDate, Millis, PageKey, StoredPage, Totals,
};

/// An account whose storage is empty: it goes on where the ledger stands, top-ups included. Short
/// limits begin anew.
pub fn from_ledger(start: Option<Start>, days: Vec<Day>) -> Account {
    let days = days.into_iter().filter_map(totals);
    let Some(start) = start else {
        return Account::restore(0, None, None, days);
    };
    let daily = (start.used_today, Millis(start.day_since_ms));
    let monthly = (start.tokens_used_this_month, Millis(start.month_since_ms));
    let mut account = Account::restore(start.seq, Some(daily), Some(monthly), days);
    account.restore_beyond(&BASE64.decode(&start.beyond).unwrap_or_default());
    account
}

/// An account as it stored itself. A page whose key can't be read belongs to no window.
pub fn from_storage(stored: &Stored) -> Result<Account, DecodeError> {
    let pages = stored.pages.iter().filter_map(|(key, bytes)| {
        let key: PageKey = key.parse().ok()?;
        Some(StoredPage {
            key,
            bytes: bytes.clone(),
        })
    });
    Account::decode(&stored.account, pages.collect())
}

/// The ledger's row of one day.
pub fn day(totals: &Totals) -> Day {
    Day {
        date: totals.date.to_string(),
        calls: totals.calls,
        rejected: totals.rejected,
        degraded: totals.degraded,
        queued: totals.queued,
        failed_open: totals.failed_open,
        prompt_tokens: totals.prompt_tokens,
        completion_tokens: totals.completion_tokens,
        estimated_calls: totals.estimated_calls,
        refused_by: totals.refused_by.clone(),
        latency: totals.latency.to_json(),
        passed_by: totals.passed_by.clone(),
        seq: totals.seq,
    }
}

fn totals(day: Day) -> Option<Totals> {
    Some(Totals {
        date: day.date.parse::<LocalDate>().ok()?,
        calls: day.calls,
        rejected: day.rejected,
        degraded: day.degraded,
        queued: day.queued,
        failed_open: day.failed_open,
        prompt_tokens: day.prompt_tokens,
        completion_tokens: day.completion_tokens,
        estimated_calls: day.estimated_calls,
        refused_by: day.refused_by,
        latency: Latency::of_json(&day.latency),
        passed_by: day.passed_by,
        seq: day.seq,
    })
}
