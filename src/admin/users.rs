//! `/admin/users`.

use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::visit::{self, RACES, Visit, conflicts, failed, shown};
use super::{Route, input, push};
use crate::account::wire::Ask;
use crate::auth::front::is_user_id;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::audit::Entry;
use crate::ledger::users::{self, User};
use crate::ledger::{keys, plans, usage};
use crate::plans::UserStatus;

/// The routes of users.
pub const ROUTES: &[Route] = &[
    Route::new("GET", "/admin/users", |visit| list(visit).boxed_local()),
    Route::new("POST", "/admin/users", |visit| create(visit).boxed_local()),
    Route::new("GET", "/admin/users/{user_id}", |visit| {
        show(visit).boxed_local()
    }),
    Route::new("PATCH", "/admin/users/{user_id}", |visit| {
        change(visit).boxed_local()
    }),
    Route::new("DELETE", "/admin/users/{user_id}", |visit| {
        delete(visit).boxed_local()
    }),
];

/// The plan of users who are created without one.
const DEFAULT_PLAN: &str = "free";
/// Longest prefix that is searched for.
const MAX_PREFIX: usize = 254;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 128), regex(pattern = r"^[!-~]+$"))
    )]
    user_id: String,
    plan_id: Option<String>,
    #[cfg_attr(
        test,
        schemars(length(max = 254), regex(pattern = r"^[^@\s]+@[^@\s]+$"))
    )]
    email: Option<String>,
    #[cfg_attr(test, schemars(length(max = 2048), regex(pattern = r"^https?://")))]
    webhook_url: Option<String>,
    overrides: Option<Map<String, Value>>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    #[serde(default, deserialize_with = "input::not_null")]
    #[cfg_attr(test, schemars(with = "String"))]
    plan_id: Option<String>,
    #[serde(default, deserialize_with = "input::maybe")]
    #[cfg_attr(
        test,
        schemars(length(max = 254), regex(pattern = r"^[^@\s]+@[^@\s]+$"))
    )]
    email: Option<Option<String>>,
    #[serde(default, deserialize_with = "input::maybe")]
    #[cfg_attr(test, schemars(length(max = 2048), regex(pattern = r"^https?://")))]
    webhook_url: Option<Option<String>>,
    #[serde(default, deserialize_with = "input::maybe")]
    overrides: Option<Option<Map<String, Value>>>,
    #[serde(default, deserialize_with = "input::not_null")]
    #[cfg_attr(test, schemars(with = "UserStatus"))]
    status: Option<UserStatus>,
}

async fn list(visit: Visit) -> Handled {
    let page = visit.page()?;
    let prefix = visit.query("q")?;
    if prefix.as_ref().is_some_and(|q| q.len() > MAX_PREFIX) {
        return Err(input::refused(
            "q",
            "must be the beginning of an id or an email address",
        ));
    }
    let plan = visit.query("plan_id")?;
    let rows = users::page(&visit.call.env, &page, prefix.as_deref(), plan.as_deref())
        .await
        .map_err(failed)?;
    Ok(Reply::json(
        200,
        &page.answer(rows, |user| (0, &user.user_id), |user| json!(user)),
    ))
}

async fn create(mut visit: Visit) -> Handled {
    let new: NewUser = visit.body().await?;
    let now = visit.now();
    let user = User {
        user_id: new.user_id,
        plan_id: new.plan_id.unwrap_or_else(|| DEFAULT_PLAN.to_owned()),
        email: new.email,
        webhook_url: new.webhook_url,
        overrides: new.overrides.unwrap_or_default(),
        status: UserStatus::Active,
        created_at: now.clone(),
        updated_at: now.clone(),
        version: 0,
    };
    check_id(&user.user_id)?;
    check_ways(&visit.call, &user)?;
    check_plan(&visit.call, &user).await?;
    let entry = Entry {
        at: &now,
        action: "user.create",
        target: &user.user_id,
        before: None,
        after: Some(audited(&user)),
    };
    let created = users::create(&visit.call.env, &user, &entry).await;
    created.map_err(|e| conflicts(e, "A user of this id is there already."))?;
    let stored = users::one(&visit.call.env, &user.user_id)
        .await
        .map_err(failed)?;
    let stored = stored.ok_or_else(visit::busy)?;
    welcome_back(&visit.call, &stored).await;
    Ok(shown(201, &json!(stored), stored.version))
}

async fn show(visit: Visit) -> Handled {
    let user = found(&visit).await?;
    Ok(shown(200, &json!(user), user.version))
}

async fn change(mut visit: Visit) -> Handled {
    let patch: Patch = visit.body().await?;
    for _ in 0..RACES {
        let old = found(&visit).await?;
        visit.expect(old.version)?;
        let mut user = patch.apply(&old);
        check_ways(&visit.call, &user)?;
        // Overrides that a later edit of the plan has made unfit must not stand in the way of a block.
        if user.plan_id != old.plan_id || user.overrides != old.overrides {
            check_plan(&visit.call, &user).await?;
        }
        if user != old {
            let now = visit.now();
            let entry = Entry {
                at: &now,
                action: action(&old, &user),
                target: &user.user_id,
                before: Some(audited(&old)),
                after: Some(audited(&user)),
            };
            let updated = users::update(&visit.call.env, &user, &entry).await;
            if !updated.map_err(failed)? {
                continue;
            }
            user.version += 1;
            user.updated_at = now;
        }
        if user.plan_id != old.plan_id || user.status != old.status {
            forget_keys(&visit.call, &user.user_id).await?;
        }
        // A change that changes nothing is one repeated because its account was out of reach.
        if user == old || stands_otherwise(&old, &user) {
            let adopt = Ask::Adopt(Some(user.standing()));
            push::in_force(&visit.call, &user.user_id, adopt).await?;
        }
        return Ok(shown(200, &json!(user), user.version));
    }
    Err(visit::busy())
}

/// Deletes a user with their keys. Told again of one who is gone, the account is told again too.
async fn delete(visit: Visit) -> Handled {
    for _ in 0..RACES {
        let user = match found(&visit).await {
            Ok(user) => user,
            Err(gone) => {
                push::in_force(&visit.call, &visit.id, Ask::Adopt(None)).await?;
                return Err(gone);
            }
        };
        visit.expect(user.version)?;
        let now = visit.now();
        let entry = Entry {
            at: &now,
            action: "user.delete",
            target: &user.user_id,
            before: Some(audited(&user)),
            after: None,
        };
        let hashes = keys::hashes(&visit.call.env, &user.user_id)
            .await
            .map_err(failed)?;
        if users::delete(&visit.call.env, &user, &entry)
            .await
            .map_err(failed)?
        {
            push::forget_keys(&visit.call.env, &hashes).await;
            push::in_force(&visit.call, &user.user_id, Ask::Adopt(None)).await?;
            return Ok(Reply::empty(204));
        }
    }
    Err(visit::busy())
}

/// The user in the path, or 404.
pub async fn found(visit: &Visit) -> Result<User, ApiError> {
    let user = users::one(&visit.call.env, &visit.id)
        .await
        .map_err(failed)?;
    user.ok_or_else(|| ApiError::not_found("user"))
}

impl Patch {
    fn apply(&self, old: &User) -> User {
        let mut user = old.clone();
        if let Some(plan_id) = &self.plan_id {
            user.plan_id.clone_from(plan_id);
        }
        if let Some(email) = &self.email {
            user.email.clone_from(email);
        }
        if let Some(webhook_url) = &self.webhook_url {
            user.webhook_url.clone_from(webhook_url);
        }
        if let Some(overrides) = &self.overrides {
            user.overrides = overrides.clone().unwrap_or_default();
        }
        if let Some(status) = self.status {
            user.status = status;
        }
        user
    }
}

/// Somebody whose account already exists, from an earlier life under the same id, may be remembered there
/// as they were; a stranger's account will ask the ledger by itself.
async fn welcome_back(call: &Call, user: &User) {
    if usage::has_called(&call.env, &user.user_id)
        .await
        .unwrap_or(true)
    {
        push::later(call, &user.user_id, Ask::Adopt(Some(user.standing())));
    }
}

/// The copies of a user's keys tell their plan for when the account store is out.
async fn forget_keys(call: &Call, user_id: &str) -> Result<(), ApiError> {
    let hashes = keys::hashes(&call.env, user_id).await.map_err(failed)?;
    push::forget_keys(&call.env, &hashes).await;
    Ok(())
}

/// `.` and `..` can't stand in a path.
fn check_id(id: &str) -> Result<(), ApiError> {
    if is_user_id(id) && id != "." && id != ".." {
        return Ok(());
    }
    Err(input::refused(
        "user_id",
        "must be 1 to 128 printable characters without spaces",
    ))
}

fn check_ways(call: &Call, user: &User) -> Result<(), ApiError> {
    if let Some(email) = &user.email {
        input::check_email(email)?;
    }
    if let Some(url) = &user.webhook_url {
        input::check_webhook(url, &call.settings)?;
    }
    Ok(())
}

async fn check_plan(call: &Call, user: &User) -> Result<(), ApiError> {
    let stored = plans::one(&call.env, &user.plan_id).await.map_err(failed)?;
    let stored = stored.ok_or_else(|| input::refused("plan_id", "there is no such plan"))?;
    input::only_objects("overrides", &user.overrides)?;
    let effective = stored.plan.with_overrides(&user.overrides);
    effective
        .map(|_| ())
        .map_err(|e| input::refused_plan("overrides", &e))
}

/// Whether the account has to know of it.
fn stands_otherwise(old: &User, new: &User) -> bool {
    (&old.plan_id, old.status, &old.overrides) != (&new.plan_id, new.status, &new.overrides)
}

fn action(old: &User, new: &User) -> &'static str {
    match (old.status, new.status) {
        (UserStatus::Active, UserStatus::Blocked) => "user.block",
        (UserStatus::Blocked, UserStatus::Active) => "user.unblock",
        _ => "user.update",
    }
}

/// What the audit keeps of a user: what an operator can change.
fn audited(user: &User) -> Value {
    json!({
        "plan_id": user.plan_id,
        "status": user.status,
        "email": user.email,
        "webhook_url": user.webhook_url,
        "overrides": user.overrides,
    })
}
