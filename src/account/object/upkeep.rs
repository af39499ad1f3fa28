//! What the alarm is for: the outbox, leases that nobody ended, and making room.

use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::worker_sys::DurableObjectState;

use super::standing::REVOKED_MEMORY;
use super::{Core, Fault, Live};
use crate::limits::{Millis, Span};
use crate::settings::Settings;

#[wasm_bindgen(module = "/js/account.js")]
extern "C" {
    #[wasm_bindgen(js_name = arm, catch)]
    fn js_arm(state: &DurableObjectState, wait: f64) -> Result<(), JsValue>;
}

/// An alarm that is later than this was lost.
const ALARM_LATE: Span = Span::seconds(30);
/// How soon the alarm tries again when the ledger fails; twice as long after each failure.
const OUTBOX_RETRY: Span = Span::seconds(2);
/// How often that doubles.
const MAX_DOUBLINGS: u32 = 5;
/// After this long without a call an account that has published everything frees its storage.
const IDLE: Span = Span::hours(24);

impl Core {
    /// What the alarm is for: the outbox, leases that nobody ended, and making room.
    pub(super) async fn wake(&self) -> Result<(), Fault> {
        if !self.load_stored()? {
            return Ok(());
        }
        let user = self.user()?;
        self.with_live(|live, now| live.reclaim(now))??;
        let told = self.hand_over_notices(&user).await;
        let is_due = self.failures.get() > 0 || self.publishes_next_in() == Span::ZERO;
        let published = if is_due {
            self.publish(&user).await.map(drop)
        } else {
            Ok(())
        };
        if let Err(fault) = published.and(told) {
            worker::console_warn!("{{\"event\":\"outbox_waits\",\"why\":\"{fault}\"}}");
            let failures = self.failures.get();
            self.failures
                .set(failures.saturating_add(1).min(MAX_DOUBLINGS));
            return self.arm(Span(OUTBOX_RETRY.0 << failures));
        }
        self.failures.set(0);
        self.with_live(|live, _| live.save_rest())??;
        let delay = match self.publishes_next_in() {
            Span::ZERO => Settings::of(&self.env).ledger_delay,
            wait => wait,
        };
        match self.with_live(|live, now| live.next_wake(delay, now))? {
            Some(wait) => self.arm(wait),
            None => self.forget_everything().await,
        }
    }

    /// Accounts that were stored before they knew whose they are have the name they were made under.
    pub(super) fn user(&self) -> Result<String, Fault> {
        let known = self.with_live(|live, _| live.known.user.clone())?;
        if !known.is_empty() {
            return Ok(known);
        }
        self.state.id().name().ok_or(Fault::NotReady)
    }

    /// An account nobody uses costs nothing: the ledger knows where it has to start again.
    async fn forget_everything(&self) -> Result<(), Fault> {
        self.live.replace(None);
        self.state.storage().delete_all().await?;
        Ok(())
    }

    /// The alarm is stored when this returns, like all that was written before; nothing goes out if that fails.
    pub(super) fn arm(&self, wait: Span) -> Result<(), Fault> {
        let now = self.now();
        let at = now.plus(wait);
        let is_soon = |armed: Millis| armed <= at && now.since(armed) < ALARM_LATE;
        if self.armed_for.get().is_some_and(is_soon) {
            return Ok(());
        }
        js_arm(self.state.as_raw(), wait.as_f64()).map_err(worker::Error::from)?;
        self.armed_for.set(Some(at));
        Ok(())
    }
}

impl Live {
    fn reclaim(&mut self, now: Millis) -> Result<(), Fault> {
        if self.law.reclaim(now) {
            self.save()?;
        }
        Ok(())
    }

    /// How long until there is something to do again; `None`: the account may be forgotten.
    fn next_wake(&mut self, ledger_delay: Span, now: Millis) -> Option<Span> {
        if !self.known.notices.is_empty() {
            return Some(OUTBOX_RETRY);
        }
        if self.law.has_unflushed() {
            return Some(ledger_delay);
        }
        if let Some(end) = self.law.next_lease_end() {
            return Some(end.since(now).max(Span::seconds(1)));
        }
        let remembered = |at: &Millis| now.since(*at) < REVOKED_MEMORY;
        match self.law.idle_since(now) {
            _ if self.known.revoked.values().any(remembered) => Some(IDLE),
            Some(since) if now.since(since) >= IDLE => None,
            _ => Some(IDLE),
        }
    }
}
