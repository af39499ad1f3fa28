use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::packed::{self, Packed};
use super::{Lane, LocalDate, Millis, OperationId, PolicyName, Span};

/// Most calls of one account that may be under way at one time, whatever its plan says: they all lie in
/// the row that every call writes.
pub const MOST_OPEN: usize = 4_096;
/// Most closed calls that are remembered.
const MOST_CLOSED: usize = 128;
/// How long closed calls are remembered.
const MEMORY: Span = Span::minutes(15);

/// How a dispatched call ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It used these tokens.
    Used {
        /// Prompt tokens.
        prompt: u64,
        /// Completion tokens.
        completion: u64,
        /// Whether they are an estimate.
        estimated: bool,
    },
    /// Upstream failed: the quotas get back what they gave.
    Released,
}

/// What a settlement did.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettleResult {
    /// It was booked.
    Settled,
    /// The call was settled or released before; nothing changed.
    Already,
    /// There is no such call, or it was forgotten.
    Unknown,
}

/// An operation's id, shortened to what a few thousand of them need to be told apart.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OperationKey([u8; 8]);

impl OperationKey {
    /// The key of an id: the same in every version, for it is stored.
    pub fn of(id: &OperationId) -> Self {
        let mut key = [0; 8];
        let digest = Sha256::digest(id.0.as_bytes());
        key.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Self(key)
    }

    /// A number below `bound`, always the same for the same id.
    pub const fn spread(self, bound: u64) -> u64 {
        u64::from_le_bytes(self.0) % bound
    }
}

/// What a call was let through with.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// Which way it goes.
    pub lane: Lane,
    /// The bound to send upstream, per choice.
    pub max_tokens: Option<u64>,
    /// Tokens reserved in all, where tokens are limited.
    pub reserved_tokens: Option<u64>,
}

/// Prompt and completion tokens.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Metered {
    /// Prompt tokens.
    pub prompt: u64,
    /// Completion tokens.
    pub completion: u64,
}

impl Metered {
    /// Both together.
    pub const fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }

    /// The larger of each.
    pub fn max(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.max(other.prompt),
            completion: self.completion.max(other.completion),
        }
    }
}

/// A call under way, and what it holds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Reservation {
    /// Which call it is.
    pub key: OperationKey,
    /// What it was let through with.
    pub grant: Grant,
    /// When it ends if nobody renews it.
    pub expires_at: Millis,
    /// The lease last given: how far ahead of the clock `expires_at` may be.
    pub lease: Span,
    /// The local day on which it was admitted, for the ledger.
    pub day: LocalDate,
    /// The day it was charged to, of `daily` or `degraded`; `None`: it was forgiven since.
    pub quota_day: Option<Millis>,
    /// What it was charged there.
    pub cost: u64,
    /// The token month it belongs to; `None`: that was forgotten since.
    pub month: Option<Millis>,
    /// Tokens reserved, prompt included.
    pub tokens: u64,
    /// Tokens taken out of `tokens-per-minute`; `None`: that was unlimited.
    pub per_minute: Option<u64>,
    /// Estimate of the prompt.
    pub prompt: u64,
    /// What it has used so far, as far as is known.
    pub metered: Option<Metered>,
}

impl Reservation {
    /// Tokens it keeps others from.
    pub fn held(&self) -> u64 {
        self.tokens.max(self.metered.map_or(0, Metered::total))
    }

    /// Lengthens the lease so that it lasts at least `lease` from `now`.
    pub fn renew(&mut self, now: Millis, lease: Span) {
        self.expires_at = self.expires_at.max(now.plus(lease));
        self.lease = self.expires_at.since(now);
    }

    fn forgive(&mut self, policy: &PolicyName) {
        let charged = match self.grant.lane {
            Lane::Main => PolicyName::Daily,
            Lane::Degraded => PolicyName::Degraded,
        };
        if *policy == charged {
            self.quota_day = None;
        }
    }

    /// What is booked if nobody says what it used.
    pub fn presumed(&self) -> Metered {
        let prompt_only = Metered {
            prompt: self.prompt,
            completion: 0,
        };
        self.metered.unwrap_or(prompt_only)
    }
}

/// A call that is no longer under way.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Closed {
    key: OperationKey,
    at: Millis,
    grant: Grant,
    end: End,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
enum End {
    Settled,
    Released,
    /// Its lease ended; the truth may still come.
    Lapsed(Box<Reservation>),
}

/// What is known of a call that asks to pass.
pub enum Recall {
    /// Nothing, or only that it was released: it asks for the first time, or anew.
    Nothing,
    /// It was let through, and still is or was settled.
    Granted(Grant),
    /// Its lease ended before anybody settled it. What it held has gone to others since, so it is decided
    /// anew.
    Lapsed(LapsedCall),
}

/// A call whose lease ended, taken out of the memory.
pub struct LapsedCall {
    at: Millis,
    /// What it held.
    pub reservation: Box<Reservation>,
}

/// All calls under way, and the last ones that were.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Reservations {
    open: Vec<Packed<Reservation>>,
    closed: VecDeque<Packed<Closed>>,
}

impl Reservations {
    /// Adds all of them, as they are stored.
    pub fn pack(&self, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
        let open = packed::pack(self.open.iter(), to)?;
        packed::pack(self.closed.iter(), open)
    }

    /// Adds a call.
    pub fn open(&mut self, reservation: Reservation) {
        self.closed.retain(|c| c.key != reservation.key);
        self.open.push(reservation.into());
    }

    /// What is known of the key of a call that asks to pass.
    pub fn recall(&mut self, now: Millis, key: OperationKey, lease: Span) -> Recall {
        if let Some(open) = self.find_open(key) {
            open.renew(now, lease);
            return Recall::Granted(open.grant);
        }
        let Some(index) = self.closed.iter().position(|c| c.key == key) else {
            return Recall::Nothing;
        };
        match self.closed.get(index).map(|c| (&c.end, c.grant)) {
            Some((End::Settled, grant)) => Recall::Granted(grant),
            Some((End::Lapsed(_), _)) => self.take_lapsed(index),
            Some((End::Released, _)) | None => Recall::Nothing,
        }
    }

    fn take_lapsed(&mut self, index: usize) -> Recall {
        let closed = self.closed.remove(index);
        match closed.map(Packed::into_value).map(|c| (c.at, c.end)) {
            Some((at, End::Lapsed(reservation))) => Recall::Lapsed(LapsedCall { at, reservation }),
            _ => Recall::Nothing,
        }
    }

    /// Puts a lapsed call back that was recalled in vain.
    pub fn put_back(&mut self, lapsed: LapsedCall) {
        let LapsedCall { at, reservation } = lapsed;
        let (key, grant) = (reservation.key, reservation.grant);
        let end = End::Lapsed(reservation);
        self.closed.push_front(Packed::from(Closed {
            key,
            at,
            grant,
            end,
        }));
    }

    /// Whether an id was booked or let through before, and not released.
    pub fn knows(&self, key: OperationKey) -> bool {
        let closed = self.closed.iter().filter(|c| c.end != End::Released);
        let mut keys = self.open.iter().map(|r| r.key).chain(closed.map(|c| c.key));
        keys.any(|known| known == key)
    }

    /// The call under way with this key.
    pub fn find_open(&mut self, key: OperationKey) -> Option<&mut Reservation> {
        let open = self.open.iter_mut().find(|r| r.key == key)?;
        Some(&mut **open)
    }

    /// Closes a call under way, or one whose lease has ended: its reservation, with what was booked for
    /// it then.
    pub fn close(
        &mut self,
        now: Millis,
        key: OperationKey,
        released: bool,
    ) -> Result<(Reservation, Option<Metered>), SettleResult> {
        let end = if released {
            End::Released
        } else {
            End::Settled
        };
        if let Some(index) = self.open.iter().position(|r| r.key == key) {
            let reservation = self.open.remove(index).into_value();
            self.remember(now, &reservation, end);
            return Ok((reservation, None));
        }
        let closed = self.closed.iter_mut().find(|c| c.key == key);
        let closed = closed.ok_or(SettleResult::Unknown)?;
        match std::mem::replace(&mut closed.end, end) {
            End::Lapsed(reservation) => {
                let booked = reservation.presumed();
                Ok((*reservation, Some(booked)))
            }
            before => {
                closed.end = before;
                Err(SettleResult::Already)
            }
        }
    }

    /// Remembers an id that was booked without having been open.
    pub fn remember_booked(&mut self, now: Millis, key: OperationKey) {
        let grant = Grant {
            lane: Lane::Main,
            max_tokens: None,
            reserved_tokens: None,
        };
        self.push_closed(Closed {
            key,
            at: now,
            grant,
            end: End::Settled,
        });
    }

    /// Ends the calls whose lease is over and gives them in the order they ended, to be booked as
    /// presumed.
    pub fn lapse(&mut self, now: Millis) -> Vec<Reservation> {
        for reservation in &mut self.open {
            let furthest = now.plus(reservation.lease);
            if reservation.expires_at > furthest {
                reservation.expires_at = furthest;
            }
        }
        let ended = self.open.extract_if(.., |r| r.expires_at <= now);
        let mut lapsed: Vec<_> = ended.map(Packed::into_value).collect();
        lapsed.sort_by_key(|r| r.expires_at);
        for reservation in &lapsed {
            self.remember(now, reservation, End::Lapsed(Box::new(reservation.clone())));
        }
        lapsed
    }

    fn remember(&mut self, now: Millis, reservation: &Reservation, end: End) {
        let Reservation { key, grant, .. } = *reservation;
        self.push_closed(Closed {
            key,
            at: now,
            grant,
            end,
        });
    }

    fn push_closed(&mut self, closed: Closed) {
        let now = closed.at;
        self.closed.retain(|c| now.since(c.at) < MEMORY);
        self.closed.push_back(closed.into());
        let too_many = self.closed.len().saturating_sub(MOST_CLOSED);
        self.closed.drain(..too_many);
    }

    /// What a call has taken of `policy` so far is forgotten: it gives nothing of that back.
    pub fn forgive(&mut self, policy: &PolicyName) {
        for reservation in &mut self.open {
            reservation.forgive(policy);
            if *policy == PolicyName::TokensPerMinute {
                reservation.per_minute = reservation.per_minute.map(|_| 0);
            }
        }
        for closed in &mut self.closed {
            if let End::Lapsed(reservation) = &mut closed.end {
                reservation.forgive(policy);
                if *policy == PolicyName::MonthlyTokens {
                    reservation.month = None;
                }
                if *policy == PolicyName::TokensPerMinute {
                    reservation.per_minute = None;
                }
            }
        }
    }

    /// How many calls are under way.
    pub fn count(&self) -> u64 {
        self.open.len() as u64
    }

    /// Whether no other call can be under way, not even on a shadow plan.
    pub fn are_full(&self) -> bool {
        self.open.len() >= MOST_OPEN
    }

    /// Tokens held by calls of the month that began at `month`.
    pub fn held(&self, month: Option<Millis>) -> u64 {
        let held = self.open.iter().filter(|r| r.month == month);
        held.fold(0, |sum, r| sum.saturating_add(r.held()))
    }

    /// Tokens of `tokens-per-minute` taken by calls under way.
    pub fn held_per_minute(&self) -> u64 {
        let held = self.open.iter().filter_map(|r| r.per_minute);
        held.fold(0, u64::saturating_add)
    }

    /// When the first lease ends.
    pub fn first_end(&self) -> Option<Millis> {
        self.open.iter().map(|r| r.expires_at).min()
    }

    /// When the last closed call is forgotten.
    pub fn forgotten_at(&self) -> Millis {
        let last = self.closed.iter().map(|c| c.at).max();
        last.map_or(Millis(0), |at| at.plus(MEMORY))
    }

    /// Whether no call can give anything back any more, not even one whose lease has ended.
    pub fn owe_nothing(&self) -> bool {
        let mut closed = self.closed.iter();
        self.open.is_empty() && !closed.any(|c| matches!(c.end, End::Lapsed(_)))
    }

    /// Whether no call is under way.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}
