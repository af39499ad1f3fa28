use subtle::ConstantTimeEq;

use super::{Caller, Scope};
use crate::http::ApiError;
use crate::http::incoming::Incoming;
use crate::settings::Settings;

/// The caller named by a trusted front, if this call comes from one: `X-User-Id` beside the right
/// `X-Gateway-Secret`. Off unless `TRUSTED_PROXY_SECRET` is set; a wrong secret is a 401.
pub fn trusted(request: &Incoming, settings: &Settings) -> Result<Option<Caller>, ApiError> {
    let Some(expected) = &settings.trusted_proxy_secret else {
        return Ok(None);
    };
    let Some(shown) = request.header("x-gateway-secret") else {
        return Ok(None);
    };
    if !bool::from(shown.as_bytes().ct_eq(expected.reveal().as_bytes())) {
        return Err(ApiError::BadCredential("gateway secret"));
    }
    let user_id = request.header("x-user-id").unwrap_or_default();
    if !is_user_id(user_id) {
        return Err(ApiError::invalid_field(
            "X-User-Id",
            "X-User-Id must be 1 to 128 printable characters without spaces.",
        ));
    }
    let plan_claim = request.header("x-user-plan");
    let plan_claim = plan_claim
        .filter(|plan| !plan.is_empty())
        .map(str::to_owned);
    Ok(Some(Caller {
        user_id: user_id.to_owned(),
        key_id: None,
        scope: Scope::User,
        plan_hint: plan_claim.clone(),
        plan_claim,
        provision: true,
    }))
}

/// Whether this can be a user's id: 1 to 128 printable ASCII characters without spaces.
pub fn is_user_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}
