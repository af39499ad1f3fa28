//! The bodies that the operator sends, as the API's document names them.

use serde_json::Value;

use super::{keys, models, quota, routes, users};
use crate::observe::reconcile;
use crate::openapi::schema::taken;

/// Every body of the desk but those of plans.
pub fn all() -> Vec<(&'static str, Value)> {
    vec![
        ("NewUser", taken::<users::NewUser>()),
        ("UserPatch", taken::<users::Patch>()),
        ("NewKey", taken::<keys::NewKey>()),
        ("KeyRotation", taken::<keys::Rotation>()),
        ("ModelBody", taken::<models::Model>()),
        ("NewRoute", taken::<routes::NewRoute>()),
        ("RoutePatch", taken::<routes::Patch>()),
        ("QuotaReset", taken::<quota::Reset>()),
        ("QuotaGrant", taken::<quota::Grant>()),
        ("Reconciliation", taken::<reconcile::Asked>()),
    ]
}
