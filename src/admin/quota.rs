//! What a user may still do and what they did, seen and mended by the operator.

use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::visit::{Visit, failed};
use super::{Route, input, push, users};
use crate::account::client;
use crate::account::wire::{Answer, Ask, Asker, Snapshot};
use crate::gateway::desk;
use crate::http::router::{Call, Handled};
use crate::http::{ApiError, Reply};
use crate::ledger::audit::{self, Entry};
use crate::ledger::usage as history;
use crate::limits::PolicyName;
use crate::plans::MAX_COUNT;

/// The routes of quotas.
pub const ROUTES: &[Route] = &[
    Route::new("GET", "/admin/users/{user_id}/quota", |visit| {
        quota(visit).boxed_local()
    }),
    Route::new("GET", "/admin/users/{user_id}/usage", |visit| {
        usage(visit).boxed_local()
    }),
    Route::new("POST", "/admin/users/{user_id}/reset", |visit| {
        reset(visit).boxed_local()
    }),
    Route::new("POST", "/admin/users/{user_id}/grant", |visit| {
        grant(visit).boxed_local()
    }),
];

/// Most policies one reset may name: all that a plan can have.
const MAX_POLICIES: usize = 64;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    /// `null` is all, `[]` is none.
    #[cfg_attr(
        test,
        schemars(
            length(max = 64),
            inner(regex(
                pattern = r"^(daily|degraded|monthly-tokens|rate|window|tokens-per-minute|concurrency|endpoint:.+)$"
            ))
        )
    )]
    policies: Option<Vec<String>>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    #[cfg_attr(test, schemars(regex(pattern = r"^(daily|monthly-tokens)$")))]
    policy: String,
    #[cfg_attr(test, schemars(range(min = 1)))]
    amount: u64,
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    expires_at: Option<String>,
}

async fn quota(visit: Visit) -> Handled {
    let snapshot = view(&visit.call, &visit.id).await?;
    Ok(shown(&visit, &snapshot))
}

async fn usage(visit: Visit) -> Handled {
    let (from, to) = desk::span(&visit.call)?;
    users::found(&visit).await?;
    let rows = history::days(&visit.call.env, &visit.id, &from, &to)
        .await
        .map_err(failed)?;
    Ok(Reply::json(
        200,
        &json!({"data": rows, "next_cursor": null}),
    ))
}

/// Forgets what was used: the way back for a user who is over quota.
async fn reset(mut visit: Visit) -> Handled {
    let Reset { policies } = visit.body().await?;
    let names = policies.as_deref().map(policy_names).transpose()?;
    let before = view(&visit.call, &visit.id).await?;
    if names.as_ref().is_some_and(Vec::is_empty) {
        return Ok(shown(&visit, &before));
    }
    let after = json!({"policies": policies});
    write_audit(&visit, "user.reset", Some(used(&before)), after).await?;
    let ask = Ask::Reset(names.unwrap_or_default());
    let answer = push::asked(&visit.call.env, &visit.id, &ask).await;
    let after = stands(answer.map_err(|_| ApiError::Unavailable("accounts"))?)?;
    Ok(shown(&visit, &after))
}

/// A top-up. It is asked for once: whether one whose answer was lost has happened, the quota tells.
async fn grant(mut visit: Visit) -> Handled {
    let Grant {
        policy,
        amount,
        expires_at,
    } = visit.body().await?;
    let name = PolicyName::from(policy.clone());
    if !matches!(name, PolicyName::Daily | PolicyName::MonthlyTokens) {
        return Err(input::refused(
            "policy",
            "must be `daily` or `monthly-tokens`",
        ));
    }
    if !(1..=MAX_COUNT).contains(&amount) {
        return Err(input::refused(
            "amount",
            "must be 1 or more, and below 2^53",
        ));
    }
    let expires = expires_at.as_deref();
    let expires = expires
        .map(|at| input::future("expires_at", at, visit.call.now))
        .transpose()?;
    let before = view(&visit.call, &visit.id).await?;
    if !before.policies.iter().any(|p| p.name == name) {
        return Err(input::refused("policy", "is unlimited for this user"));
    }
    let after = json!({"policy": policy, "amount": amount, "expires_at": expires_at});
    write_audit(&visit, "user.grant", Some(used(&before)), after).await?;
    let ask = Ask::Grant {
        policy: name,
        amount,
        expires_at: expires,
    };
    let answer = client::ask(&visit.call.env, &visit.id, Asker::default(), ask).await;
    let after = stands(answer.map_err(|_| ApiError::Unavailable("accounts"))?)?;
    Ok(shown(&visit, &after))
}

/// Written before the account is asked: what can't be undone must not happen unrecorded.
async fn write_audit(
    visit: &Visit,
    action: &'static str,
    before: Option<Value>,
    after: Value,
) -> Result<(), ApiError> {
    let now = visit.now();
    let entry = Entry {
        at: &now,
        action,
        target: &visit.id,
        before,
        after: Some(after),
    };
    audit::write(&visit.call.env, &entry).await.map_err(failed)
}

async fn view(call: &Call, user: &str) -> Result<Snapshot, ApiError> {
    let answer = push::asked(&call.env, user, &Ask::View).await;
    stands(answer.map_err(|_| ApiError::Unavailable("accounts"))?)
}

fn stands(answer: Answer) -> Result<Snapshot, ApiError> {
    match answer {
        Answer::Stands(snapshot) => Ok(snapshot),
        Answer::NoSuchUser => Err(ApiError::not_found("user")),
        Answer::NoSuchPlan => Err(ApiError::Unavailable("plans")),
        Answer::Refused(reason) => Err(ApiError::invalid(reason)),
        _ => Err(ApiError::Unavailable("accounts")),
    }
}

fn shown(visit: &Visit, snapshot: &Snapshot) -> Reply {
    Reply::json(200, &desk::quota_json(&visit.id, snapshot))
}

/// What the audit keeps of a quota.
fn used(snapshot: &Snapshot) -> Value {
    let line = |policy: &crate::limits::PolicyView| json!({"name": policy.name, "limit": policy.limit, "used": policy.used});
    snapshot.policies.iter().map(line).collect()
}

fn policy_names(names: &[String]) -> Result<Vec<PolicyName>, ApiError> {
    if names.len() > MAX_POLICIES {
        return Err(input::refused("policies", "names too many policies"));
    }
    let known = |(i, name): (usize, &String)| {
        let policy = PolicyName::from(name.clone());
        let written = policy.to_string() == *name;
        written
            .then_some(policy)
            .ok_or_else(|| input::refused(&format!("policies[{i}]"), "is not the name of a policy"))
    };
    names.iter().enumerate().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_policies_are_taken() {
        let names =
            |list: &[&str]| policy_names(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            names(&["daily", "endpoint:export"]),
            Ok(vec![
                PolicyName::Daily,
                PolicyName::Endpoint("export".into())
            ])
        );
        assert!(names(&["dayly"]).is_err());
        assert!(names(&["daily", ""]).is_err());
    }
}
