//! The one place that reads the time.

use crate::limits::Millis;
use crate::settings::Settings;

/// Now, shifted by `CLOCK_OFFSET_MS` outside production.
#[allow(clippy::disallowed_methods)]
pub fn now(settings: &Settings) -> Millis {
    let real = worker::Date::now().as_millis();
    Millis(real.saturating_add_signed(settings.clock_offset_ms))
}
