//! The one place that reads the time.

use crate::limits::Millis;
use crate::settings::Settings;

/// Now, shifted by `CLOCK_OFFSET_MS` outside production.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods
)]
pub fn now(settings: &Settings) -> Millis {
    let real = js_sys::Date::now();
    Millis((real as u64).saturating_add_signed(settings.clock_offset_ms))
}
