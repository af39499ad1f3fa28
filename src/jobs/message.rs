use serde::{Deserialize, Serialize};
use worker::Env;

use crate::limits::Span;
use crate::queues::{self, NotSent, Queue};

/// The version this code writes.
const VERSION: u8 = 1;

/// A message of the task queue: look at this job. Old and new code read each other's during a deploy, so
/// fields are only ever added.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TaskMessage {
    /// Version of the writer.
    pub v: u8,
    /// The job.
    pub job: String,
    /// Grows with every message about the job that replaces another; older ones are passed over.
    pub ticket: u64,
    /// How often in a row nobody could look, because something of ours was out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub faults: u32,
}

impl TaskMessage {
    /// A message about `job`.
    pub fn new(job: &str, ticket: u64) -> Self {
        Self {
            v: VERSION,
            job: job.to_owned(),
            ticket,
            faults: 0,
        }
    }

    /// The one that takes this one's place.
    pub fn successor(&self) -> Self {
        Self {
            faults: 0,
            ..Self::new(&self.job, self.ticket.saturating_add(1))
        }
    }

    /// The one that takes this one's place when something of ours was out.
    pub fn after_fault(&self) -> Self {
        Self {
            faults: self.faults.saturating_add(1),
            ..self.successor()
        }
    }

    /// Reads a message of any version that has what this one needs.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Sends it.
    pub async fn send(&self, env: &Env, delay: Span) -> Result<(), NotSent> {
        let text = serde_json::to_string(self).map_err(|_| NotSent)?;
        queues::send(env, Queue::Tasks, text, delay).await
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_message_are_pinned() {
        let message = TaskMessage::new("job_1", 3);
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(text, r#"{"v":1,"job":"job_1","ticket":3}"#);
        assert_eq!(TaskMessage::read(&text), Some(message.clone()));
        let text = serde_json::to_string(&message.after_fault()).unwrap();
        assert_eq!(text, r#"{"v":1,"job":"job_1","ticket":4,"faults":1}"#);
    }

    #[test]
    fn a_newer_writer_is_understood_and_nonsense_is_not() {
        let newer = r#"{"v":2,"job":"job_1","ticket":3,"later":true}"#;
        assert!(TaskMessage::read(newer).is_some());
        for text in ["", "{}", "[]", r#"{"v":1,"job":7,"ticket":1}"#] {
            assert_eq!(TaskMessage::read(text), None, "{text}");
        }
    }
}
