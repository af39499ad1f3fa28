use subtle::ConstantTimeEq;
use worker::Env;

use super::credential;
use crate::http::ApiError;
use crate::http::incoming::Incoming;
use crate::limits::Millis;
use crate::settings::Settings;

/// Lets only the operator pass: 401 without a good credential, 403 with a user's.
pub async fn require_admin(
    request: &Incoming,
    env: &Env,
    settings: &Settings,
    now: Millis,
) -> Result<(), ApiError> {
    let shown = credential::bearer(request.header("authorization").map(str::to_owned));
    if let (Some(shown), Some(token)) = (&shown, &settings.admin_token)
        && bool::from(shown.as_bytes().ct_eq(token.reveal().as_bytes()))
    {
        return Ok(());
    }
    super::authenticate(request, env, settings, now).await?;
    Err(ApiError::Forbidden {
        message: "This route is the operator's.".to_owned(),
        code: "insufficient_scope",
    })
}
