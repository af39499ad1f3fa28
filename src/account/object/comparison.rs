//! Whether account and ledger agree, and what is done where they don't.

use std::rc::Rc;

use super::{Core, Effect, Fault, Live};
use crate::account::wire::{Answer, Counted, Drift, DriftKind};
use crate::ledger::usage::{self, Published, Start};
use crate::limits::{Millis, PolicyName};

/// How often a comparison with the ledger begins anew because calls came meanwhile.
const COMPARISONS: u32 = 4;

impl Core {
    /// Compares the account with the ledger and mends what differs. A comparison holds only if no call
    /// came while the row was read.
    pub(super) async fn reconcile(self: &Rc<Self>, user: &str) -> Result<Answer, Fault> {
        for _ in 0..COMPARISONS {
            self.publish(user).await?;
            let flushed = self.with_live(|live, _| live.law.flushed_seq())?;
            let row = usage::row(&self.env, user).await?;
            let drift = self.with_live(|live, now| live.compare(row.as_ref(), flushed, now))??;
            let Some(drift) = drift else {
                continue;
            };
            if drift.kind.is_drift() {
                self.after(Effect::Stored, user)?;
            }
            return Ok(Answer::Reconciled(drift));
        }
        let account = self.with_live(|live, now| live.counted(now))?;
        Ok(Answer::Reconciled(Drift {
            kind: DriftKind::Busy,
            account,
            ledger: None,
        }))
    }
}

impl Live {
    fn counted(&self, now: Millis) -> Counted {
        let stands = self.law.quota_snapshot(now);
        Counted {
            used_today: stands.daily_used,
            tokens_used_this_month: stands.monthly_used,
            seq: stands.seq,
        }
    }

    /// How the account differs from the ledger's row, which was read when the ledger had seen everything
    /// up to `flushed`; `None`: calls came meanwhile.
    fn compare(
        &mut self,
        row: Option<&Start>,
        flushed: u64,
        now: Millis,
    ) -> Result<Option<Drift>, Fault> {
        let account = self.counted(now);
        let seen = row.map_or(0, |row| row.seq);
        let kind = if seen < flushed {
            self.law.tell_again(seen);
            DriftKind::LedgerBehind
        } else if seen > account.seq {
            self.catch_up(row, now);
            DriftKind::AccountBehind
        } else if seen < account.seq {
            return Ok(None);
        } else {
            let told = Published {
                used_today: account.used_today,
                tokens_used_this_month: account.tokens_used_this_month,
                seq: account.seq,
            };
            match row {
                Some(row) if self.differs(row, now) => {
                    self.adopt_row(row, told, now)?;
                    DriftKind::LedgerEdited
                }
                _ => DriftKind::None,
            }
        };
        if kind.is_drift() {
            self.published = row.map(published);
            self.save()?;
        }
        Ok(Some(Drift {
            kind,
            account,
            ledger: row.map(counted),
        }))
    }

    /// Whether the row has other numbers for the periods that run; those of others interest nobody.
    fn differs(&self, row: &Start, now: Millis) -> bool {
        let stands = self.law.quota_snapshot(now);
        (row.day_since_ms == stands.day.start.0 && row.used_today != stands.daily_used)
            || (row.month_since_ms == stands.month.start.0
                && row.tokens_used_this_month != stands.monthly_used)
    }

    /// Takes the ledger's numbers, and adds what was used since the account had published `told`.
    pub(super) fn adopt_row(
        &mut self,
        row: &Start,
        told: Published,
        now: Millis,
    ) -> Result<Counted, Fault> {
        let before = self.counted(now);
        let stands = self.law.quota_snapshot(now);
        if row.day_since_ms == stands.day.start.0 && row.used_today != told.used_today {
            let since = stands.daily_used.saturating_sub(told.used_today);
            self.law
                .set_used(&PolicyName::Daily, row.used_today.saturating_add(since));
        }
        if row.month_since_ms == stands.month.start.0
            && row.tokens_used_this_month != told.tokens_used_this_month
        {
            let since = stands
                .monthly_used
                .saturating_sub(told.tokens_used_this_month);
            let used = row.tokens_used_this_month.saturating_add(since);
            self.law.set_used(&PolicyName::MonthlyTokens, used);
        }
        self.published = Some(published(row));
        self.save()?;
        Ok(before)
    }

    /// The account has forgotten what it had told the ledger: neither side's use is lost.
    fn catch_up(&mut self, row: Option<&Start>, now: Millis) {
        let Some(row) = row else {
            return;
        };
        let stands = self.law.quota_snapshot(now);
        if row.day_since_ms == stands.day.start.0 {
            self.law
                .set_used(&PolicyName::Daily, row.used_today.max(stands.daily_used));
        }
        if row.month_since_ms == stands.month.start.0 {
            let used = row.tokens_used_this_month.max(stands.monthly_used);
            self.law.set_used(&PolicyName::MonthlyTokens, used);
        }
        self.law.tell_again(row.seq);
    }
}

pub(super) fn published(row: &Start) -> Published {
    Published {
        used_today: row.used_today,
        tokens_used_this_month: row.tokens_used_this_month,
        seq: row.seq,
    }
}

pub(super) fn counted(row: &Start) -> Counted {
    Counted {
        used_today: row.used_today,
        tokens_used_this_month: row.tokens_used_this_month,
        seq: row.seq,
    }
}
