//! What the Worker and an account say to each other: a byte that tells the version, and what was said, packed.
//! During a deploy old and new talk to each other. Whoever doesn't know a version says that they are not ready,
//! and whoever can't read an answer takes the account for out of reach; so the tests pin the bytes, and whatever
//! changes them takes the next version.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::{
    Call, Handed, Millis, ModelPattern, OperationId, Outcome, PolicyName, PolicyView, Returned,
    Span, Took, Verdict,
};
use crate::plans::{OnOutage, OverQuota, Standing};

/// The version this code speaks. Messages of version 1 were JSON, which begins with other bytes.
const VERSION: u8 = 3;

/// A message to an account.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Message {
    /// What is asked.
    pub ask: Ask,
    /// Who asks.
    pub asker: Asker,
    /// Whose account it is for.
    pub user: String,
    /// Calls that have ended since, told along.
    pub ended: Vec<Ended>,
}

/// How a call ended that was answered.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ended {
    /// The call.
    pub operation: OperationId,
    /// What it used.
    pub outcome: Outcome,
    /// What it waited for.
    pub took: Took,
}

/// Who asks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Asker {
    /// The API key that was shown; a revoked one is turned away.
    pub key_id: Option<String>,
    /// A plan named by the credential's issuer, in force for this call.
    pub plan_claim: Option<String>,
    /// A user who isn't known is created.
    pub provision: bool,
    /// A call that passes may be given a lease along.
    pub may_lease: bool,
    /// Nobody is told of a refusal, so it is none to be counted.
    pub silent: bool,
}

/// What is asked of an account.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
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
    Adopt(#[serde(with = "as_json")] Option<Standing>),
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
        /// When they ended: whose day and month they are of.
        at: Millis,
    },
    /// A call became a job, and is not to be counted as refused.
    NoteQueued(OperationId),
    /// A lease comes back.
    TakeBack {
        /// What was spent of it.
        returned: Box<Returned>,
        /// The lease that may follow on it.
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
    /// Nothing, besides what the message tells along.
    Hear,
}

/// An account's answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Answer {
    /// The verdict on a call.
    Decided {
        /// What becomes of it.
        verdict: Verdict,
        /// How the user stands now.
        standing: Snapshot,
        /// How long every further call like this one is refused alike, unless an operator changes something;
        /// absent: nobody knows.
        holds: Option<Span>,
        /// Calls that may pass from now on without a word; `standing` still leaves them out.
        lease: Option<Handed>,
    },
    /// A lease came back, now or before.
    TakenBack {
        /// How the user stands now, without what is handed out with this.
        standing: Snapshot,
        /// The next lease.
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
    pub allowed_models: Option<Vec<ModelPattern>>,
    /// Every limited policy.
    pub policies: Vec<PolicyView>,
}

impl Message {
    /// A message of this version.
    pub fn new(user: &str, asker: Asker, ask: Ask, ended: Vec<Ended>) -> Self {
        Self {
            ask,
            asker,
            user: user.to_owned(),
            ended,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The message of these bytes; `None`: another version has written them.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

impl Answer {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The answer of these bytes; `None`: another version has written them.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

/// Nothing here can fail to be packed.
fn encode(said: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(said, vec![VERSION]).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match bytes.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes(body).ok(),
        _ => None,
    }
}

/// What has no fixed shape goes along as the text it is.
mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        to.serialize_str(&text)
    }

    pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{
        Admission, Lane, Latency, MaxTokensMode, Metered, OpenCall, PolicyKind, Terms, Tokens,
        Unit, Work,
    };
    use crate::plans::UserStatus;

    fn op(id: &str) -> OperationId {
        OperationId(id.into())
    }

    fn message(ask: Ask) -> Message {
        Message::new("u", Asker::default(), ask, Vec::new())
    }

    /// The bytes as one text: printable ones as they are, others as their number.
    fn shown(bytes: &[u8]) -> String {
        let shown = bytes.iter().map(|byte| match byte {
            b'!'..=b'~' => char::from(*byte).to_string(),
            _ => format!("[{byte}]"),
        });
        shown.collect()
    }

    /// An account deployed a minute ago must read what this code writes, and the other way round.
    fn pinned(message: &Message, bytes: &str) {
        assert_eq!(shown(&message.encode()), bytes);
        assert_eq!(Message::decode(&message.encode()).as_ref(), Some(message));
    }

    fn pinned_answer(answer: &Answer, bytes: &str) {
        assert_eq!(shown(&answer.encode()), bytes);
        assert_eq!(Answer::decode(&answer.encode()).as_ref(), Some(answer));
    }

    #[test]
    fn the_bytes_of_an_admission_are_pinned() {
        let call = Call {
            operation: op("op_1"),
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
        let ended = Ended {
            operation: op("op_0"),
            outcome: Outcome::Used {
                prompt: 3,
                completion: 5,
                estimated: false,
            },
            took: Took {
                account: Some(Span(3)),
                upstream: Some(Span(250)),
            },
        };
        let message = Message::new("u", asker, Ask::Admit(call), vec![ended]);
        pinned(
            &message,
            concat!(
                "[3][0][4]op_1[1][3][1][10][1][1][0][1][1]m[0][232][7][1][5]key_1[0][0][0][0][1]u[1][4]o",
                "p_0[0][3][5][0][1][3][1][250][1]"
            ),
        );
    }

    #[test]
    fn the_bytes_of_a_verdict_are_pinned() {
        let verdict = Verdict::Admitted(Admission {
            reservation: Some(op("op_1")),
            max_tokens: Some(10),
            reserved_tokens: None,
            lane: Lane::Main,
            shadow: vec![PolicyName::Rate],
            replayed: false,
        });
        let decided = Answer::Decided {
            verdict,
            standing: standing(),
            holds: Some(Span(3_000)),
            lease: None,
        };
        pinned_answer(
            &decided,
            concat!(
                "[3][0][0][1][4]op_1[1][10][0][0][1][4]rate[0][1][1]p[1]P[0][0][0][1]d[0][0][0][1][5]",
                "daily[0][0][10][4][0][6][1][232][7][2][1][184][23][0]"
            ),
        );
        pinned_answer(
            &Answer::Stands(standing()),
            "[3][2][1][1]p[1]P[0][0][0][1]d[0][0][0][1][5]daily[0][0][10][4][0][6][1][232][7][2]",
        );
    }

    fn standing() -> Snapshot {
        Snapshot {
            now: Millis(1),
            plan_id: "p".into(),
            plan_name: "P".into(),
            over_quota: OverQuota::default(),
            on_outage: OnOutage::Open,
            blocked: false,
            allowed_models: None,
            policies: vec![PolicyView {
                name: PolicyName::Daily,
                kind: PolicyKind::Fixed,
                unit: Unit::Requests,
                limit: 10,
                used: 4,
                reserved: 0,
                remaining: 6,
                window: Some(Span(1_000)),
                resets_at: Millis(2),
            }],
        }
    }

    #[test]
    fn the_bytes_of_settlements_are_pinned() {
        let settle = Ask::Settle {
            operation: op("op_1"),
            outcome: Outcome::Released,
            took: Took::default(),
        };
        pinned(
            &message(settle),
            "[3][2][4]op_1[1][0][0][0][0][0][0][0][1]u[0]",
        );
        pinned(&message(Ask::Hear), "[3][15][0][0][0][0][0][1]u[0]");
    }

    #[test]
    fn the_bytes_of_what_operators_change_are_pinned() {
        let standing = Standing {
            plan_id: "p".into(),
            status: UserStatus::Active,
            overrides: serde_json::Map::new(),
            version: 3,
        };
        pinned(
            &message(Ask::Adopt(Some(standing))),
            concat!(
                r#"[3][6]<{"plan_id":"p","status":"active","overrides":{},"version":3}[0][0][0][0][0][1]u["#,
                "0]"
            ),
        );
        pinned(
            &message(Ask::Reset(vec![PolicyName::Daily])),
            "[3][8][1][5]daily[0][0][0][0][0][1]u[0]",
        );
        pinned_answer(&Answer::Done(true), "[3][4][1]");
    }

    #[test]
    fn the_bytes_of_a_reconciliation_are_pinned() {
        pinned(&message(Ask::Reconcile), "[3][14][0][0][0][0][0][1]u[0]");
        let drift = Drift {
            kind: DriftKind::LedgerBehind,
            account: Counted {
                used_today: 3,
                tokens_used_this_month: 40,
                seq: 7,
            },
            ledger: None,
        };
        pinned_answer(&Answer::Reconciled(drift), "[3][9][2][3]([7][0]");
    }

    #[test]
    fn the_bytes_of_a_hand_over_of_refusals_are_pinned() {
        let ask = Ask::NoteRefused {
            operation: op("op_1"),
            counts: BTreeMap::from([("daily".into(), 3), ("endpoint:export".into(), 1)]),
        };
        pinned(
            &message(ask),
            "[3][13][4]op_1[2][5]daily[3][15]endpoint:export[1][0][0][0][0][0][1]u[0]",
        );
    }

    #[test]
    fn the_bytes_of_a_lease_are_pinned_on_its_way_out_and_back() {
        let handed = Handed {
            lease: op("op_1"),
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
        let back = Answer::TakenBack {
            standing: standing(),
            lease: Some(handed),
        };
        pinned_answer(
            &back,
            concat!(
                "[3][1][1][1]p[1]P[0][0][0][1]d[0][0][0][1][5]daily[0][0][10][4][0][6][1][232][7][2][",
                "1][4]op_1[5][1][20][1][208][15][1][160][31][1]d[1][1][1][1][3]m-*[1][6]export"
            ),
        );
        let ask = Ask::TakeBack {
            returned: Box::new(Returned {
                lease: op("op_1"),
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
                    operation: op("op_2"),
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
            next: Some(op("op_3")),
        };
        pinned(
            &message(ask),
            concat!(
                "[3][12][4]op_1[8][1][3][1][1][1][1][1][7][1][5][1][0][1]d[1][208][15][1][4]op_2[7][1",
                "][1][1]d[1][10][1][240][147][9][1]Z[1][10][1][2][0][1][4]op_3[0][0][0][0][0][1]u[0]"
            ),
        );
    }

    #[test]
    fn another_version_is_not_understood() {
        let mut bytes = message(Ask::View).encode();
        bytes[0] += 1;
        assert_eq!(Message::decode(&bytes), None);
        let json = br#"{"v":1,"user":"u","asker":{},"ask":"view"}"#;
        assert_eq!(Message::decode(json), None);
        assert_eq!(Answer::decode(br#""not_ready""#), None);
        assert_eq!(Answer::decode(b""), None);
    }
}
