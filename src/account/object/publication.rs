//! What the account tells others: its counters go to the ledger, its notices to the queue.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::comparison::{counted, published};
use super::{Core, Fault, Live};
use crate::account::restore;
use crate::account::wire::{Asker, Drift, DriftKind};
use crate::budget;
use crate::http::limit_headers::rfc3339;
use crate::ledger;
use crate::ledger::usage::{self, Published};
use crate::limits::{Millis, Span};
use crate::notify::{self, Notice};
use crate::plans::cache;
use crate::settings::Settings;

/// Longest that a publication takes.
const PUBLISHING: Span = Span(budget::D1_BACKGROUND.0 + 1_000);

/// What the ledger has not seen yet.
struct Batch {
    quotas: usage::Quotas,
    days: Vec<usage::Day>,
    /// The row it follows on.
    published: Option<Published>,
}

impl Core {
    /// Hands what the user has to be told to the queue. A notice is stored until the queue has taken it.
    pub(super) async fn hand_over_notices(&self, user: &str) -> Result<(), Fault> {
        for notice in self.with_live(|live, now| live.unsent(user, now))?? {
            notify::send(&self.env, &notice)
                .await
                .map_err(|_| Fault::NotReady)?;
            self.with_live(|live, _| live.sent(&notice.id))??;
        }
        Ok(())
    }

    /// How long until the next publication may begin: one is not begun while another is under way, nor too soon
    /// after it.
    pub(super) fn publishes_next_in(&self) -> Span {
        let now = self.now();
        let delay = Settings::of(&self.env).ledger_delay;
        let too_soon = self
            .published_at
            .get()
            .map_or(Span::ZERO, |at| at.plus(delay).since(now));
        let under_way = self.publishing_until.get().since(now);
        // A clock that was set back keeps nobody waiting.
        let told = [(too_soon, delay), (under_way, PUBLISHING)];
        let waits = told.into_iter().filter(|(wait, most)| wait <= most);
        waits.map(|(wait, _)| wait).max().unwrap_or(Span::ZERO)
    }

    /// Publishes in the background. What fails the alarm does again.
    pub(super) async fn publish_now(&self) {
        if let Ok(user) = self.user() {
            let _ = self.publish(&user).await;
        }
    }

    /// Publishes what the ledger has not seen; `false` if there was nothing.
    pub(super) async fn publish(&self, user: &str) -> Result<bool, Fault> {
        if !self.with_live(|live, _| live.law.has_unflushed())? {
            return Ok(false);
        }
        self.publishing_until.set(self.now().plus(PUBLISHING));
        let published = self.publish_changes(user).await;
        self.published_at.set(Some(self.now()));
        self.publishing_until.set(Millis(0));
        published
    }

    async fn publish_changes(&self, user: &str) -> Result<bool, Fault> {
        if !self.with_live(|live, _| live.force.is_some())? {
            self.find_force().await?;
        }
        let Some(mut batch) = self.with_live(Live::unpublished)?? else {
            return Ok(false);
        };
        let now = self.now();
        let waiting = self.waiting_since.take();
        let meant = Settings::of(&self.env).ledger_delay;
        batch.quotas.lag_ms = waiting.map_or(0, |since| now.since(since.plus(meant)).0);
        let Batch {
            quotas,
            days,
            published,
        } = &batch;
        let done = usage::publish(&self.env, user, quotas, days, *published, &rfc3339(now)).await;
        let adopted = match done {
            Ok(true) => Ok(false),
            Ok(false) => self.adopt_edit(user, &batch).await,
            Err(e) => Err(e.into()),
        };
        if adopted.is_err() {
            self.waiting_since.set(waiting.or(Some(now)));
        }
        if !adopted? {
            self.with_live(|live, _| live.published_as(quotas))?;
        }
        Ok(true)
    }

    /// The ledger did not take the counters: either it has them already, or somebody has written others
    /// into it. Whether it was that; what was used since they were last published is added to them.
    async fn adopt_edit(&self, user: &str, batch: &Batch) -> Result<bool, Fault> {
        let row = usage::row(&self.env, user).await?.ok_or(Fault::NotReady)?;
        let is_edit = |before: &Published| row.seq == before.seq && published(&row) != *before;
        let Some(before) = batch.published.filter(is_edit) else {
            // Neither: then it said it had written what it hasn't.
            return if row.seq < batch.quotas.seq {
                Err(Fault::NotReady)
            } else {
                Ok(false)
            };
        };
        let account = self.with_live(|live, now| live.adopt_row(&row, before, now))??;
        let drift = Drift {
            kind: DriftKind::LedgerEdited,
            account,
            ledger: Some(counted(&row)),
        };
        // Only the report of it can be lost.
        let _ = ledger::reconcile::note(&self.env, user, &drift, self.now()).await;
        Ok(true)
    }

    /// After a start by the alarm nothing has said yet which plan is in force.
    async fn find_force(&self) -> Result<(), Fault> {
        let plan_id = self.plan_id(&Asker::default()).ok_or(Fault::NotReady)?;
        let plan = cache::plan(&self.env, &plan_id, self.now()).await?;
        let plan = plan.ok_or(Fault::NotReady)?;
        self.with_live(|live, _| live.force(plan)).map(|_| ())
    }
}

impl Live {
    /// Whether no call is under way and no lease is out.
    pub(super) fn is_done(&self) -> bool {
        self.law.next_lease_end().is_none()
    }

    /// Whether the user has to be told something.
    pub(super) fn has_news(&self) -> bool {
        !self.known.notices.is_empty() || self.law.has_crossings()
    }

    /// What the ledger has not seen. What is published is stored first: a stored account must never be
    /// behind the ledger.
    fn unpublished(&mut self, now: Millis) -> Result<Option<Batch>, Fault> {
        let Some(force) = self.force.clone() else {
            return Ok(None);
        };
        self.save_rest()?;
        let snapshot = self.law.quota_snapshot(now);
        Ok(Some(Batch {
            quotas: usage::Quotas {
                plan_id: force.plan.plan_id.clone(),
                daily_limit: force.limits.daily,
                used_today: snapshot.daily_used,
                day_since_ms: snapshot.day.start.0,
                reset_at: rfc3339(snapshot.day.end),
                monthly_token_limit: force.limits.monthly_tokens,
                tokens_used_this_month: snapshot.monthly_used,
                month_since_ms: snapshot.month.start.0,
                month_reset_at: rfc3339(snapshot.month.end),
                seq: snapshot.seq,
                lag_ms: 0,
                beyond: BASE64.encode(self.law.beyond()),
            },
            published: self.published,
            days: self.law.unflushed().iter().map(restore::day).collect(),
        }))
    }

    fn published_as(&mut self, quotas: &usage::Quotas) {
        self.law.flushed(quotas.seq);
        self.unsaved = true;
        self.published = Some(Published {
            used_today: quotas.used_today,
            tokens_used_this_month: quotas.tokens_used_this_month,
            seq: quotas.seq,
        });
    }

    /// What the user has to be told; thresholds that were passed are taken up first.
    fn unsent(&mut self, user: &str, now: Millis) -> Result<Vec<Notice>, Fault> {
        let crossings = self.law.take_crossings();
        if !crossings.is_empty() {
            let notices = crossings
                .iter()
                .map(|crossing| Notice::threshold(user, crossing, now));
            self.known.notices.extend(notices);
            self.known_unsaved = true;
            self.save()?;
        }
        Ok(self.known.notices.clone())
    }

    fn sent(&mut self, id: &str) -> Result<(), Fault> {
        self.known.notices.retain(|notice| notice.id != id);
        self.known_unsaved = true;
        self.save()
    }
}
