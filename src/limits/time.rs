use serde::{Deserialize, Serialize};

/// An instant: milliseconds since the Unix epoch, UTC.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A length of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Millis {
    /// This instant moved forward, never past the end of time.
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This instant moved back, never before the epoch.
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// How long after `earlier` this is; zero if it isn't after it.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Whether this lies ahead of `now`, and by no more than `most`: further only a clock that was set back can have moved it.
    pub const fn is_ahead(self, now: Self, most: Span) -> bool {
        let ahead = self.since(now);
        ahead.0 > 0 && ahead.0 <= most.0
    }

    /// Whole Unix seconds, rounded up, so that the instant has passed when they are reached.
    pub const fn unix_seconds_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Its milliseconds, for whoever counts in floating point.
    #[allow(clippy::cast_precision_loss)]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// A span of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// A span of whole minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self::seconds(minutes.saturating_mul(60))
    }

    /// A span of whole hours.
    pub const fn hours(hours: u64) -> Self {
        Self::minutes(hours.saturating_mul(60))
    }

    /// Whole seconds, rounded up.
    pub const fn seconds_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}
