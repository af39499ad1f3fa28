use serde::{Deserialize, Serialize};

use super::Notice;

/// The version this code writes.
const VERSION: u8 = 1;

/// A way to a user.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// The user's webhook.
    Webhook,
    /// Their mailbox.
    Email,
}

impl Channel {
    /// The word for it in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Email => "email",
        }
    }
}

/// A message of the notification queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeMessage {
    /// News.
    Notice(Notice),
    /// News on its way: deliver it by this channel.
    Delivery {
        /// The notice.
        id: String,
        /// The way.
        channel: Channel,
        /// How many attempts came before.
        attempt: u64,
    },
}

/// Old and new code read each other's during a deploy, so fields are only ever added.
#[derive(Deserialize, Serialize)]
struct Envelope {
    v: u8,
    #[serde(flatten)]
    message: NoticeMessage,
}

impl NoticeMessage {
    /// The text that is sent.
    pub fn write(&self) -> Option<String> {
        let envelope = Envelope {
            v: VERSION,
            message: self.clone(),
        };
        serde_json::to_string(&envelope).ok()
    }

    /// Reads a message of any version that has what this one needs.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str::<Envelope>(text)
            .ok()
            .map(|envelope| envelope.message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::Millis;

    #[test]
    fn the_bytes_of_both_messages_are_pinned() {
        let notice = Notice {
            id: "ntf_1".into(),
            user: "u".into(),
            kind: "job.completed".into(),
            at: Millis(5),
            data: json!({"job_id": "job_1"}).as_object().unwrap().clone(),
        };
        let delivery = NoticeMessage::Delivery {
            id: "ntf_1".into(),
            channel: Channel::Webhook,
            attempt: 2,
        };
        let pinned = [
            (
                NoticeMessage::Notice(notice),
                concat!(
                    r#"{"v":1,"notice":{"id":"ntf_1","user":"u","type":"job.completed","at":5,"#,
                    r#""data":{"job_id":"job_1"}}}"#
                ),
            ),
            (
                delivery,
                r#"{"v":1,"delivery":{"id":"ntf_1","channel":"webhook","attempt":2}}"#,
            ),
        ];
        for (message, text) in pinned {
            assert_eq!(message.write().as_deref(), Some(text));
            assert_eq!(NoticeMessage::read(text), Some(message));
        }
    }

    #[test]
    fn a_newer_writer_is_understood_and_nonsense_is_not() {
        let newer = r#"{"v":2,"delivery":{"id":"n","channel":"email","attempt":0,"x":1}}"#;
        assert!(NoticeMessage::read(newer).is_some());
        for text in ["", "{}", r#"{"v":1}"#, r#"{"v":1,"delivery":{}}"#] {
            assert_eq!(NoticeMessage::read(text), None, "{text}");
        }
    }
}
