//! The one place that reads the time.

use crate::limits::Millis;
use crate::settings::Settings;

/// Now, shifted by `CLOCK_OFFSET_MS` outside production.
pub fn now(settings: &Settings) -> Millis {
    Millis(real().saturating_add_signed(settings.clock_offset_ms))
}

/// Milliseconds since 1970, which are whole and far below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#[allow(clippy::disallowed_methods)]
fn real() -> u64 {
    js_sys::Date::now() as u64
}
