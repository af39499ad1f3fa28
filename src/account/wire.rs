//! What the Worker and an account say to each other. During a deploy old and new talk to each other, so
//! every message carries a version, fields are only ever added, and the tests pin the bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{
    Call, Handed, Millis, ModelPattern, OperationId, Outcome, PolicyName, PolicyView, Returned,
    Span, Took, Verdict,
};
use crate::plans::{OnOutage, OverQuota, Standing};

/// The version this code writes.
pub const VERSION: u8 = 1;

/// A message to an account.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Message {
    /// [`VERSION`] of the writer.
    pub v: u8,
    /// Whose account it is for; the object checks that against its own name.
    pub user: String,
    /// Who asks.
    #[serde(default)]
    pub asker: Asker,
    /// What is asked.
    pub ask: Ask,
}

/// Who asks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Asker {
    /// The API key that was shown; a revoked one is turned away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// A plan named by the credential's issuer, in force for this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_claim: Option<String>,
    /// A user who isn't known is created.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provision: bool,
    /// A call that passes may be given a lease along.
    #[serde(default, skip_serializing_if = "is_false")]
    pub may_lease: bool,
}

/// What is asked of an account.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// May this call pass? Charges it if so.
    Admit(Call),
    /// May this call pass? Charges nothing.
    Peek(Call),
    /// This is what an admitted call used.
    Settle {
        /// The call.
        operation: OperationId,
        /// What it used.
        outcome: Outcome,
        /// What it waited for.
        #[serde(default, skip_serializing_if = "Took::is_unknown")]
        took: Took,
    },
    /// The same, asked by one who has to know whether there is such a call.
    Conclude {
        /// The call.
        operation: OperationId,
        /// What it used.
        outcome: Outcome,
    },
    /// This is what a call under way has used so far.
    Checkpoint {
        /// The call.
        operation: OperationId,
        /// Prompt tokens.
        prompt: u64,
        /// Completion tokens so far.
        completion: u64,
        /// How much longer it may take without another word.
        lease: Span,
    },
    /// How do all policies stand? Spends nothing.
    View,
    /// The user's row has changed.
    Adopt(Option<Standing>),
    /// A key is good no more from this moment on.
    Revoke {
        /// Which.
        key_id: String,
        /// From when on.
        at: Millis,
    },
    /// Forget what was used of these policies; of all, if none is named.
    Reset(Vec<PolicyName>),
    /// A top-up.
    Grant {
        /// Of which quota.
        policy: PolicyName,
        /// How much.
        amount: u64,
        /// Until when; absent: for the current period.
        expires_at: Option<Millis>,
    },
    /// Calls that passed while the account was out of reach.
    BookOpen {
        /// Tells one booking from another; booked once.
        operation: OperationId,
        /// How many calls.
        calls: u64,
        /// Their prompt tokens.
        prompt: u64,
        /// Their completion tokens.
        completion: u64,
    },
    /// A refused call became a job.
    NoteQueued,
    /// A lease comes back.
    TakeBack {
        /// What was spent of it.
        returned: Box<Returned>,
        /// The lease that may follow on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<OperationId>,
    },
    /// Calls that an isolate refused by itself, as this account had told it to.
    NoteRefused {
        /// Tells one hand-over from another; counted once.
        operation: OperationId,
        /// How many, by policy or other reason.
        counts: BTreeMap<String, u64>,
    },
    /// Do you and the ledger agree? Where not, that is mended.
    Reconcile,
}

/// An account's answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The verdict on a call.
    Decided {
        /// What becomes of it.
        verdict: Verdict,
        /// How the user stands now.
        standing: Snapshot,
        /// How long every further call like this one is refused alike, unless an operator changes something;
        /// absent: nobody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holds: Option<Span>,
        /// Calls that may pass from now on without a word; `standing` still leaves them out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Handed>,
    },
    /// A lease came back, now or before.
    TakenBack {
        /// How the user stands now, without what is handed out with this.
        standing: Snapshot,
        /// The next lease.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Handed>,
    },
    /// How the user stands.
    Stands(Snapshot),
    /// The call has ended, now or before. `known: false`: there is none, or it was forgotten.
    Concluded {
        /// Whether there is such a call.
        known: bool,
        /// How the user stands now.
        standing: Snapshot,
    },
    /// Done. `false`: there was nothing to do, such as a call that was settled before.
    Done(bool),
    /// The key was revoked.
    KeyRevoked,
    /// There is no such user.
    NoSuchUser,
    /// There is no such user, and too many were created a moment ago to create another.
    NoRoom,
    /// The user's plan is not there.
    NoSuchPlan,
    /// How account and ledger stood to each other; they agree now, or will with the next publication.
    Reconciled(Drift),
    /// The account could not start: its storage is empty and the ledger is out.
    NotReady,
    /// The ask makes no sense, for this reason.
    Refused(String),
}

/// How an account and the ledger's row of it differed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Drift {
    /// In what way.
    pub kind: DriftKind,
    /// The account's numbers, before anything was mended.
    pub account: Counted,
    /// The ledger's; absent: it has no row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Counted>,
}

/// What both sides count.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counted {
    /// Calls of the day.
    pub used_today: u64,
    /// Tokens of the month.
    pub tokens_used_this_month: u64,
    /// The sequence number of the last change.
    pub seq: u64,
}

/// In what way an account and the ledger differed.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftKind {
    /// In none.
    None,
    /// Somebody wrote other numbers into the ledger: they hold.
    LedgerEdited,
    /// The ledger has lost what it was told, such as by a restore: it is told again.
    LedgerBehind,
    /// The account has lost what it had told the ledger: the larger numbers hold.
    AccountBehind,
    /// Calls came faster than both could be compared; they publish as they go.
    Busy,
}

impl DriftKind {
    /// The word for it in answers and in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::LedgerEdited => "ledger_edited",
            Self::LedgerBehind => "ledger_behind",
            Self::AccountBehind => "account_behind",
            Self::Busy => "busy",
        }
    }

    /// Whether they had come apart.
    pub const fn is_drift(self) -> bool {
        !matches!(self, Self::None | Self::Busy)
    }
}

/// How a user stands at one moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Snapshot {
    /// The moment, by the account's clock.
    pub now: Millis,
    /// The plan in force.
    pub plan_id: String,
    /// Its name.
    pub plan_name: String,
    /// What becomes of calls over quota.
    pub over_quota: OverQuota,
    /// What becomes of calls while this account is out.
    pub on_outage: OnOutage,
    /// Whether the operator has blocked the user.
    pub blocked: bool,
    /// Models the plan allows; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_models: Option<Vec<ModelPattern>>,
    /// Every limited policy.
    pub policies: Vec<PolicyView>,
}

impl Message {
    /// A message of this version.
    pub fn new(user: &str, asker: Asker, ask: Ask) -> Self {
        Self {
            v: VERSION,
            user: user.to_owned(),
            asker,
            ask,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Latency, MaxTokensMode, Metered, OpenCall, Terms, Tokens, Work};

    /// An account deployed a minute ago must read what this code writes, and the other way round.
    #[test]
    fn the_bytes_of_an_admission_are_pinned() {
        let call = Call {
            operation: OperationId("op_1".into()),
            work: Work::Dispatch(Tokens {
                prompt: 3,
                max_tokens: Some(10),
                choices: 1,
            }),
            cost: 1,
            endpoint: None,
            model: Some("m".into()),
            degrade: None,
            lease: Span(1_000),
        };
        let asker = Asker {
            key_id: Some("key_1".into()),
            ..Asker::default()
        };
        let message = Message::new("u", asker, Ask::Admit(call));
        let text = serde_json::to_string(&message).unwrap();
        let expected = concat!(
            r#"{"v":1,"user":"u","asker":{"key_id":"key_1"},"ask":{"admit":{"operation":"op_1","#,
            r#""work":{"dispatch":{"prompt":3,"max_tokens":10,"choices":1}},"cost":1,"model":"m","#,
            r#""lease":1000}}}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }

    #[test]
    fn the_bytes_of_a_reconciliation_are_pinned() {
        let text =
            serde_json::to_string(&Message::new("u", Asker::default(), Ask::Reconcile)).unwrap();
        assert_eq!(text, r#"{"v":1,"user":"u","asker":{},"ask":"reconcile"}"#);
        let account = Counted {
            used_today: 3,
            tokens_used_this_month: 40,
            seq: 7,
        };
        let drift = Drift {
            kind: DriftKind::LedgerBehind,
            account,
            ledger: None,
        };
        let text = serde_json::to_string(&Answer::Reconciled(drift)).unwrap();
        let expected = concat!(
            r#"{"reconciled":{"kind":"ledger_behind","account":{"used_today":3,"#,
            r#""tokens_used_this_month":40,"seq":7}}}"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn the_bytes_of_a_settlement_are_pinned_with_and_without_its_waits() {
        let settle = |took| Ask::Settle {
            operation: OperationId("op_1".into()),
            outcome: Outcome::Released,
            took,
        };
        let before = r#"{"settle":{"operation":"op_1","outcome":"released"}}"#;
        let unknown = settle(Took::default());
        assert_eq!(serde_json::to_string(&unknown).unwrap(), before);
        assert_eq!(serde_json::from_str::<Ask>(before).unwrap(), unknown);
        let known = settle(Took {
            account: Some(Span(3)),
            upstream: Some(Span(250)),
        });
        let expected = concat!(
            r#"{"settle":{"operation":"op_1","outcome":"released","#,
            r#""took":{"account":3,"upstream":250}}}"#
        );
        assert_eq!(serde_json::to_string(&known).unwrap(), expected);
    }

    #[test]
    fn the_bytes_of_a_hand_over_of_refusals_are_pinned() {
        let ask = Ask::NoteRefused {
            operation: OperationId("op_1".into()),
            counts: BTreeMap::from([("daily".into(), 3), ("endpoint:export".into(), 1)]),
        };
        let text = serde_json::to_string(&ask).unwrap();
        let expected =
            r#"{"note_refused":{"operation":"op_1","counts":{"daily":3,"endpoint:export":1}}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn an_account_of_before_says_nothing_of_how_long_a_refusal_holds() {
        let old = concat!(
            r#"{"decided":{"verdict":{"rejected":"blocked"},"standing":{"now":1,"plan_id":"p","#,
            r#""plan_name":"P","over_quota":{"strategy":"reject","degrade_model":null,"#,
            r#""degrade_daily_limit":null,"queue_limit":100},"on_outage":"open","blocked":true,"#,
            r#""policies":[]}}}"#
        );
        let answer: Answer = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&answer).unwrap(), old);
        let Answer::Decided {
            verdict, standing, ..
        } = answer
        else {
            panic!("should be a verdict");
        };
        let answer = Answer::Decided {
            verdict,
            standing,
            holds: Some(Span(3_000)),
            lease: None,
        };
        let new = serde_json::to_string(&answer).unwrap();
        assert_eq!(new, old.replace("]}}}", r#"]},"holds":3000}}"#));
    }

    #[test]
    fn the_bytes_of_a_lease_are_pinned_on_its_way_out_and_back() {
        let handed = Handed {
            lease: OperationId("op_1".into()),
            calls: 20,
            tokens: Some(2_000),
            lasts: Span(4_000),
            terms: Terms {
                max_tokens_per_request: Some(100),
                max_tokens_mode: MaxTokensMode::Clamp,
                allowed_models: Some(vec![ModelPattern("m-*".into())]),
                endpoints: vec!["export".into()],
            },
        };
        let text = serde_json::to_string(&handed).unwrap();
        let expected = r#"["op_1",[20,2000,4000,100,1],["m-*"],["export"]]"#;
        assert_eq!(text, expected);
        let longer = text.replace(",1],", ",1,7],");
        assert_eq!(serde_json::from_str::<Handed>(&longer).unwrap(), handed);
        let ask = Ask::TakeBack {
            returned: Box::new(Returned {
                lease: OperationId("op_1".into()),
                spent: 3,
                released: 1,
                ended: 1,
                prompt: 7,
                completion: 5,
                estimated: 0,
                widest: 100,
                lasted: Span(2_000),
                waits: Latency::default(),
                open: vec![OpenCall {
                    operation: OperationId("op_2".into()),
                    cost: 1,
                    tokens: 100,
                    prompt: 10,
                    max_tokens: Some(90),
                    metered: Some(Metered {
                        prompt: 10,
                        completion: 2,
                    }),
                    lease: Span(150_000),
                }],
            }),
            next: Some(OperationId("op_3".into())),
        };
        let text = serde_json::to_string(&ask).unwrap();
        let expected = concat!(
            r#"{"take_back":{"returned":["op_1",[3,1,1,7,5,0,100,2000],"#,
            r#"[["op_2",[1,100,10,150000,90,10,2]]],[]],"next":"op_3"}}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Ask>(expected).unwrap(), ask);
    }

    #[test]
    fn an_unknown_field_of_a_newer_writer_is_passed_over() {
        let text = r#"{"v":2,"user":"u","asker":{"new":1},"ask":"view","later":true}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!(message.ask, Ask::View);
    }
}
