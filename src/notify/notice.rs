use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::http::ids;
use crate::http::limit_headers::rfc3339;
use crate::ledger::jobs::JobRow;
use crate::limits::{Crossing, Millis};

/// Bytes of a hash that make an id.
const ID_BYTES: usize = 16;

/// Something a user is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Notice {
    /// Its id: the same for the same news.
    pub id: String,
    /// Who is told.
    pub user: String,
    /// What kind of news it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it happened.
    pub at: Millis,
    /// The news.
    pub data: Map<String, Value>,
}

impl Notice {
    /// A share of a quota was passed.
    pub fn threshold(user: &str, crossing: &Crossing, now: Millis) -> Self {
        let Crossing {
            policy,
            permille,
            used,
            limit,
            period_start,
            period_end,
        } = crossing;
        let id = format!("{user}:{policy}:{permille}:{}", period_start.0);
        let data = json!({
            "policy": policy,
            "threshold": f64::from(*permille) / 1_000.0,
            "used": used,
            "limit": limit,
            "resets_at": rfc3339(*period_end),
        });
        Self::new(&id, user, "quota.threshold", now, data)
    }

    /// A job came to its end.
    pub fn job_ended(job: &JobRow) -> Self {
        let at = Millis(job.finished_at_ms.unwrap_or_default());
        let word = job.status.word();
        let id = format!("{}:{word}:{}", job.job_id, at.0);
        let data = json!({"job_id": job.job_id, "status": word});
        Self::new(&id, &job.user_id, "job.completed", at, data)
    }

    /// The operator has blocked the user; `version` is that of the user's row.
    pub fn blocked(user: &str, version: u64, now: Millis) -> Self {
        let id = format!("{user}:blocked:{version}");
        Self::new(&id, user, "user.blocked", now, json!({"user_id": user}))
    }

    /// The user's webhook said that it is gone for good.
    pub fn webhook_disabled(user: &str, url: &str, because_of: &str, now: Millis) -> Self {
        let id = format!("{user}:webhook:{because_of}");
        Self::new(
            &id,
            user,
            "webhook.disabled",
            now,
            json!({"webhook_url": url}),
        )
    }

    /// Something the operator is told; `state` is what has become of it.
    pub fn alert(alert_id: &str, state: &str, at: Millis, data: Value) -> Self {
        let id = format!("{alert_id}:{state}");
        Self::new(&id, "operator", &format!("alert.{state}"), at, data)
    }

    fn new(news: &str, user: &str, kind: &str, at: Millis, data: Value) -> Self {
        Self {
            id: id(news),
            user: user.to_owned(),
            kind: kind.to_owned(),
            at,
            data: data.as_object().cloned().unwrap_or_default(),
        }
    }

    /// The notice in one sentence, for people.
    pub fn sentence(&self) -> String {
        let text = |field: &str| match self.data.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        match self.kind.as_str() {
            "quota.threshold" => format!(
                "You have used {} of {} of your quota `{}`. It resets at {}.",
                text("used"),
                text("limit"),
                text("policy"),
                text("resets_at")
            ),
            "job.completed" => format!("Your job {} has {}.", text("job_id"), text("status")),
            "user.blocked" => "Your access was blocked by the operator.".to_owned(),
            "webhook.disabled" => format!(
                "Your webhook {} is gone and was removed.",
                text("webhook_url")
            ),
            other => format!("News for you: {other}."),
        }
    }
}

/// Has no point in it, since a webhook's signature joins its parts by points.
fn id(news: &str) -> String {
    let hash = Sha256::digest(news.as_bytes());
    format!("ntf_{}", ids::hex(hash.get(..ID_BYTES).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PolicyName;

    fn crossing(permille: u32, used: u64) -> Crossing {
        Crossing {
            policy: PolicyName::Daily,
            permille,
            used,
            limit: 10,
            period_start: Millis(1_000),
            period_end: Millis(86_401_000),
        }
    }

    #[test]
    fn the_same_news_has_the_same_id_and_other_news_another() {
        let at =
            |permille, used, now| Notice::threshold("u", &crossing(permille, used), Millis(now)).id;
        assert_eq!(at(800, 8, 5), at(800, 9, 6));
        assert_ne!(at(800, 8, 5), at(1_000, 8, 5));
        assert!(!at(800, 8, 5).contains('.'));
    }

    #[test]
    fn it_reads_as_a_sentence() {
        let notice = Notice::threshold("u", &crossing(800, 8), Millis(0));
        let expected =
            "You have used 8 of 10 of your quota `daily`. It resets at 1970-01-02T00:00:01Z.";
        assert_eq!(notice.sentence(), expected);
    }
}
