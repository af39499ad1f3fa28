//! `/admin/models`: where calls of a model go. A provider's key is a secret of the Worker, named here and
//! kept nowhere.

use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::visit::{self, RACES, Visit, conflicts, failed, shown};
use super::{Route, input};
use crate::gateway;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::audit::Entry;
use crate::ledger::models::{self, ModelRow, UpstreamKind};

/// The routes of models.
pub const ROUTES: &[Route] = &[
    Route::new("GET", "/admin/models", |visit| list(visit).boxed_local()),
    Route::new("GET", "/admin/models/{model*}", |visit| {
        show(visit).boxed_local()
    }),
    Route::new("PUT", "/admin/models/{model*}", |visit| {
        put(visit).boxed_local()
    }),
    Route::new("DELETE", "/admin/models/{model*}", |visit| {
        delete(visit).boxed_local()
    }),
];

/// Longest name of a model.
const MAX_NAME: usize = 256;
/// Most other names of one model.
const MAX_ALIASES: usize = 50;
/// Secrets that are the gateway's own and never a provider's; so are all that begin with `JWT_`.
const OWN_SECRETS: [&str; 4] = [
    "ADMIN_TOKEN",
    "KEY_PEPPER",
    "WEBHOOK_SECRET",
    "TRUSTED_PROXY_SECRET",
];

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    upstream: UpstreamKind,
    #[cfg_attr(
        test,
        schemars(length(max = 2048), regex(pattern = r"^https?://[^?#]+$"))
    )]
    base_url: Option<String>,
    #[cfg_attr(test, schemars(regex(pattern = r"^[A-Z0-9_]{1,64}$")))]
    secret_name: Option<String>,
    #[cfg_attr(test, schemars(regex(pattern = r"^[!-)+-~]{1,256}$")))]
    upstream_model: Option<String>,
    #[cfg_attr(
        test,
        schemars(length(max = 50), inner(regex(pattern = r"^[!-)+-~]{1,256}$")))
    )]
    aliases: Option<Vec<String>>,
}

async fn list(visit: Visit) -> Handled {
    let page = visit.page()?;
    let rows = models::page(&visit.call.env, &page).await.map_err(failed)?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |row| (0, &row.model), |row| json!(row)),
    ))
}

async fn show(visit: Visit) -> Handled {
    let row = found(&visit).await?;
    Ok(shown(200, &json!(row), row.version))
}

/// Writes the whole row; what is left out is unset.
async fn put(mut visit: Visit) -> Handled {
    let body: Model = visit.body().await?;
    for _ in 0..RACES {
        let old = models::one(&visit.call.env, &visit.id)
            .await
            .map_err(failed)?;
        match &old {
            Some(row) => visit.expect(row.version)?,
            None if visit.is_conditional() => return Err(ApiError::PreconditionFailed),
            None => {}
        }
        let mut row = body.clone().named(&visit.id, old.as_ref());
        check(&visit.call, &row).await?;
        if old.as_ref() == Some(&row) {
            return Ok(shown(200, &json!(row), row.version));
        }
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: if old.is_some() {
                "model.update"
            } else {
                "model.create"
            },
            target: &visit.id,
            before: old.as_ref().map(audited),
            after: Some(audited(&row)),
        };
        let status = if old.is_some() { 200 } else { 201 };
        let written = match &old {
            Some(_) => models::update(&visit.call.env, &row, &entry)
                .await
                .map_err(failed)?,
            None => {
                let created = models::create(&visit.call.env, &row, &entry).await;
                created.map_err(|e| conflicts(e, "A model of this name is there meanwhile."))?;
                true
            }
        };
        if written {
            gateway::models::forget();
            row.version += 1;
            row.updated_at = now;
            return Ok(shown(status, &json!(row), row.version));
        }
    }
    Err(visit::busy())
}

async fn delete(visit: Visit) -> Handled {
    for _ in 0..RACES {
        let row = found(&visit).await?;
        visit.expect(row.version)?;
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: "model.delete",
            target: &visit.id,
            before: Some(audited(&row)),
            after: None,
        };
        if models::delete(&visit.call.env, &row, &entry)
            .await
            .map_err(failed)?
        {
            gateway::models::forget();
            return Ok(Reply::empty(204));
        }
    }
    Err(visit::busy())
}

async fn found(visit: &Visit) -> Result<ModelRow, ApiError> {
    let row = models::one(&visit.call.env, &visit.id)
        .await
        .map_err(failed)?;
    row.ok_or_else(|| ApiError::not_found("model"))
}

impl Model {
    fn named(self, name: &str, old: Option<&ModelRow>) -> ModelRow {
        ModelRow {
            model: name.to_owned(),
            upstream: self.upstream,
            base_url: self.base_url,
            secret_name: self.secret_name,
            upstream_model: self.upstream_model,
            aliases: self.aliases.unwrap_or_default(),
            version: old.map_or(0, |row| row.version),
            updated_at: old.map_or_else(String::new, |row| row.updated_at.clone()),
        }
    }
}

async fn check(call: &Call, row: &ModelRow) -> Result<(), ApiError> {
    check_model("model", &row.model)?;
    if let Some(url) = &row.base_url {
        check_base_url(call, url)?;
    }
    if let Some(name) = &row.secret_name {
        check_secret_name(name)?;
    }
    if let Some(name) = &row.upstream_model {
        check_model("upstream_model", name)?;
    }
    check_aliases(row)?;
    match models::namesake(&call.env, row).await.map_err(failed)? {
        Some(other) => Err(ApiError::Conflict(format!(
            "The model `{other}` goes by one of these names already."
        ))),
        None => Ok(()),
    }
}

fn check_base_url(call: &Call, url: &str) -> Result<(), ApiError> {
    if url.contains(['?', '#']) {
        return Err(input::refused(
            "base_url",
            "must be without a query or a fragment",
        ));
    }
    input::check_target("base_url", url, &call.settings)
}

/// A row must not be able to send one of the gateway's own secrets to an address of its choice.
fn check_secret_name(name: &str) -> Result<(), ApiError> {
    let form = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !form {
        return Err(input::refused(
            "secret_name",
            "must be 1 to 64 of `A-Z`, `0-9` and `_`",
        ));
    }
    if OWN_SECRETS.contains(&name) || name.starts_with("JWT_") {
        return Err(input::refused(
            "secret_name",
            "is a secret of the gateway's own",
        ));
    }
    Ok(())
}

fn check_aliases(row: &ModelRow) -> Result<(), ApiError> {
    if row.aliases.len() > MAX_ALIASES {
        return Err(input::refused("aliases", "has too many entries"));
    }
    for (i, alias) in row.aliases.iter().enumerate() {
        let field = format!("aliases[{i}]");
        check_model(&field, alias)?;
        if *alias == row.model || row.aliases.iter().take(i).any(|other| other == alias) {
            return Err(input::refused(&field, "is there twice"));
        }
    }
    Ok(())
}

fn check_model(field: &str, name: &str) -> Result<(), ApiError> {
    let form = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b'*');
    if form {
        return Ok(());
    }
    Err(input::refused(
        field,
        "must be 1 to 256 printable characters without spaces or `*`",
    ))
}

/// What the audit keeps of a model: what an operator can change.
fn audited(row: &ModelRow) -> Value {
    json!({
        "upstream": row.upstream,
        "base_url": row.base_url,
        "secret_name": row.secret_name,
        "upstream_model": row.upstream_model,
        "aliases": row.aliases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_own_secrets_are_no_providers() {
        for bad in [
            "KEY_PEPPER",
            "ADMIN_TOKEN",
            "JWT_HS256_SECRET",
            "",
            "a",
            "A B",
            "A-B",
        ] {
            assert!(check_secret_name(bad).is_err(), "{bad}");
        }
        assert!(check_secret_name("OPENAI_API_KEY_2").is_ok());
    }
}
