//! How the user stands with the operator, and the limits that follow.

use std::rc::Rc;

use super::{Fault, Force, Live};
use crate::account::wire::{Answer, Asker};
use crate::limits::{Millis, Span};
use crate::notify::Notice;
use crate::plans::{Plan, Standing};

/// How long a revoked key is remembered: longer than any cache believes in it.
const REVOKED_MEMORY: Span = Span::hours(24 * 7);

impl Live {
    pub(super) fn key_is_revoked(&self, asker: &Asker, now: Millis) -> bool {
        let revoked = asker
            .key_id
            .as_ref()
            .and_then(|id| self.known.revoked.get(id));
        revoked.is_some_and(|at| *at <= now)
    }

    pub(super) fn revoke(
        &mut self,
        key_id: String,
        at: Millis,
        now: Millis,
    ) -> Result<Answer, Fault> {
        self.known
            .revoked
            .retain(|_, revoked| now.since(*revoked) < REVOKED_MEMORY);
        self.known.revoked.insert(key_id, at);
        self.known_unsaved = true;
        self.save()?;
        Ok(Answer::Done(true))
    }

    /// An older version of the user's row never replaces a newer one.
    pub(super) fn adopt(
        &mut self,
        standing: Option<Standing>,
        user: &str,
        now: Millis,
    ) -> Result<Answer, Fault> {
        let newer = match (&self.known.standing, &standing) {
            (Some(known), Some(told)) => told.version >= known.version,
            _ => true,
        };
        if newer {
            self.told += 1;
            self.note_block(standing.as_ref(), user, now);
            self.known.standing = standing;
            self.force = None;
            self.known_unsaved = true;
            self.save()?;
        }
        Ok(Answer::Done(newer))
    }

    /// A user who is blocked from now on is told so. An account that has just read the row that it is told
    /// of can't know; telling twice is telling once.
    fn note_block(&mut self, told: Option<&Standing>, user: &str, now: Millis) {
        let Some(told) = told.filter(|told| told.is_blocked()) else {
            return;
        };
        let before = self.known.standing.as_ref();
        if before.is_none_or(|b| !b.is_blocked() || b.version == told.version) {
            self.known
                .notices
                .push(Notice::blocked(user, told.version, now));
        }
    }

    /// The limits in force; made anew when the plan or the user's row has changed. Overrides that no
    /// longer fit an edited plan are passed over: the plan alone holds.
    pub(super) fn force(&mut self, source: Rc<Plan>) -> Rc<Force> {
        let standing = self.known.standing.as_ref();
        let version = standing.map_or(0, |s| s.version);
        if let Some(force) = &self.force
            && Rc::ptr_eq(&force.source, &source)
            && force.version == version
        {
            return force.clone();
        }
        let plan = standing
            .and_then(|s| s.effective(&source).ok())
            .unwrap_or_else(|| (*source).clone());
        let blocked = standing.is_some_and(Standing::is_blocked);
        let limits = plan.limits(self.window_default, blocked);
        let force = Rc::new(Force {
            source,
            version,
            plan,
            limits,
        });
        self.force = Some(force.clone());
        force
    }
}
