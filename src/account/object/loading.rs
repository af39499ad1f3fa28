//! How an account comes into memory: from its own storage, or, if that is empty, from the ledger.

use futures::future::try_join;

use super::comparison::published;
use super::{Core, Fault, Known, Live};
use crate::account::restore;
use crate::account::wire::Asker;
use crate::auth::provision;
use crate::http::limit_headers::rfc3339;
use crate::ledger;
use crate::ledger::hot::Hot;
use crate::ledger::usage::{self, Start};
use crate::limits::{self, Span};
use crate::plans::{Standing, cache};
use crate::settings::Settings;

/// How far back days are read when an account starts from the ledger; late settlements are booked there.
const KEPT_DAYS: Span = Span::hours(72);
/// The plan of users who are created without one.
const DEFAULT_PLAN: &str = "free";
/// How soon an account that could not start from the ledger tries that again.
const START_RETRY: Span = Span::seconds(1);

/// The counters and the days that an account starts from.
type FromLedger = (Option<Start>, Vec<usage::Day>);

impl Core {
    /// Brings the account into memory: from its own storage, or, if that is empty, from the ledger.
    pub(super) async fn load(&self, user: &str) -> Result<(), Fault> {
        if self.load_stored()? {
            return Ok(());
        }
        let (standing, (start, days)) = self.start_from_ledger(user).await?;
        // Another message may have loaded it meanwhile, and even charged it.
        if self.live.borrow().is_none() {
            let hot = Hot::open(&self.state.storage())?;
            let known = Known {
                standing,
                ..Known::default()
            };
            let published = start.as_ref().map(published);
            let law = restore::from_ledger(start, days);
            self.live.replace(Some(Live {
                published,
                ..self.live(law, known, hot)
            }));
        }
        Ok(())
    }

    /// What the ledger knows of the user. After it failed, whoever comes next is not kept waiting for it.
    async fn start_from_ledger(&self, user: &str) -> Result<(Option<Standing>, FromLedger), Fault> {
        let now = self.now();
        if now < self.no_start_until.get() {
            return Err(Fault::NotReady);
        }
        let since = rfc3339(now.minus(KEPT_DAYS));
        let since = since.get(..10).unwrap_or_default();
        let standing = ledger::users::standing(&self.env, user);
        let read = try_join(standing, usage::start(&self.env, user, since)).await;
        if read.is_err() {
            self.no_start_until.set(self.now().plus(START_RETRY));
        }
        Ok(read?)
    }

    /// Whether the account is in memory now, without asking the ledger.
    pub(super) fn load_stored(&self) -> Result<bool, Fault> {
        if self.live.borrow().is_some() {
            return Ok(true);
        }
        let hot = Hot::open(&self.state.storage())?;
        let Some(stored) = hot.load()? else {
            return Ok(false);
        };
        let law = restore::from_storage(&stored)
            .map_err(|e| worker::Error::from(format!("the stored account can't be read: {e}")))?;
        let known = serde_json::from_slice(&stored.standing).unwrap_or_default();
        self.live.replace(Some(Live {
            known_unsaved: false,
            ..self.live(law, known, hot)
        }));
        Ok(true)
    }

    fn live(&self, law: limits::Account, known: Known, hot: Hot) -> Live {
        Live {
            law,
            known,
            hot,
            force: None,
            window_default: Settings::of(&self.env).window,
            unsaved: false,
            known_unsaved: true,
            told: 0,
            published: None,
        }
    }

    /// Somebody who wasn't there when this account was loaded may have been created since.
    /// `false`: too many were created within this minute.
    pub(super) async fn look_for_user(&self, user: &str, asker: &Asker) -> Result<bool, Fault> {
        let told = self.with_live(|live, _| live.told)?;
        let mut standing = ledger::users::standing(&self.env, user).await?;
        if standing.is_none() && asker.provision {
            if !provision::may_provision(self.now()) {
                return Ok(false);
            }
            self.provision(user, asker).await?;
            standing = ledger::users::standing(&self.env, user).await?;
        }
        self.with_live(|live, _| {
            // What was read is older than what the operator has said meanwhile.
            if live.told == told {
                live.known.standing = standing;
                live.known_unsaved = true;
            }
            true
        })
    }

    async fn provision(&self, user: &str, asker: &Asker) -> Result<(), Fault> {
        let claimed = asker.plan_claim.as_deref().unwrap_or(DEFAULT_PLAN);
        let plan = match cache::plan(&self.env, claimed, self.now()).await? {
            Some(_) => claimed,
            None => DEFAULT_PLAN,
        };
        let now = rfc3339(self.now());
        ledger::users::provision(&self.env, user, plan, &now).await?;
        Ok(())
    }
}
