//! The Durable Object around [`limits::Account`]: it loads, decides, stores and publishes. Between a
//! decision's first read and its last write nothing is awaited, which is what makes it atomic.

mod comparison;
mod decisions;
mod loading;
mod publication;
mod standing;
mod upkeep;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use js_sys::Uint8Array;
use serde::{Deserialize, Serialize};
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::wasm_bindgen_futures::future_to_promise;
use worker::{DurableObject, Env, Request, Response, State, durable_object};

use super::wire::{Answer, Ask, Asker, Message};
use crate::clock;
use crate::ledger::LedgerError;
use crate::ledger::hot::Hot;
use crate::ledger::usage::Published;
use crate::limits::{self, Limits, Millis, Span};
use crate::notify::Notice;
use crate::plans::{Plan, Standing, cache};
use crate::settings::{Settings, WindowDefault};

/// How soon the alarm hands over what the user has to be told.
const NEWS: Span = Span::seconds(1);

/// One user's account.
#[durable_object(alarm)]
pub struct Account {
    core: Rc<Core>,
}

/// What the handlers share with answers that come later.
struct Core {
    state: State,
    env: Env,
    live: RefCell<Option<Live>>,
    armed_for: Cell<Option<Millis>>,
    failures: Cell<u32>,
    /// Until when the ledger is not asked for a start again.
    no_start_until: Cell<Millis>,
    /// Since when the oldest change waits for the ledger.
    waiting_since: Cell<Option<Millis>>,
    /// When the last publication ended.
    published_at: Cell<Option<Millis>>,
    /// Until when one is believed to be under way.
    publishing_until: Cell<Millis>,
}

/// The account in memory; dropped whenever it might not be what is stored.
struct Live {
    law: limits::Account,
    known: Known,
    hot: Hot,
    /// The limits in force, as long as nothing they come from has changed.
    force: Option<Rc<Force>>,
    /// The sliding window of plans that set none.
    window_default: Option<WindowDefault>,
    /// Refusals were counted, or the ledger has confirmed something: neither is worth a write of its own.
    unsaved: bool,
    known_unsaved: bool,
    /// How often the operator has told of a change since this was loaded.
    told: u64,
    /// The ledger's row as this account has last written or read it; `None`: not since it was loaded.
    published: Option<Published>,
}

/// How the user stands, as last told by the ledger or the operator.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Known {
    standing: Option<Standing>,
    /// Whose account this is: an alarm that wakes it is not told.
    #[serde(default)]
    user: String,
    #[serde(default)]
    revoked: BTreeMap<String, Millis>,
    /// What the user has to be told and the queue has not taken yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notices: Vec<Notice>,
}

/// A plan in force, and the limits that follow.
struct Force {
    source: Rc<Plan>,
    version: u64,
    plan: Plan,
    limits: Limits,
}

/// Why the account can't answer.
enum Fault {
    /// Its storage is empty and the ledger is out: it would start from zero.
    NotReady,
    /// Its own storage failed; what is in memory is not to be trusted.
    Storage(worker::Error),
}

impl From<worker::Error> for Fault {
    fn from(error: worker::Error) -> Self {
        Self::Storage(error)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotReady => f.write_str("the ledger is out of reach"),
            Self::Storage(_) => f.write_str("the account's own storage failed"),
        }
    }
}

impl From<LedgerError> for Fault {
    fn from(_: LedgerError) -> Self {
        Self::NotReady
    }
}

impl DurableObject for Account {
    fn new(state: State, env: Env) -> Self {
        let core = Core {
            state,
            env,
            live: RefCell::new(None),
            armed_for: Cell::new(None),
            failures: Cell::new(0),
            no_start_until: Cell::new(Millis(0)),
            waiting_since: Cell::new(None),
            published_at: Cell::new(None),
            publishing_until: Cell::new(Millis(0)),
        };
        Self {
            core: Rc::new(core),
        }
    }

    /// This is how messages of version 1 came. Their answer says that this account is not ready.
    async fn fetch(&self, _request: Request) -> worker::Result<Response> {
        Response::from_json(&"not_ready")
    }

    async fn alarm(&self) -> worker::Result<Response> {
        self.core.armed_for.set(None);
        if let Err(Fault::Storage(error)) = self.core.wake().await {
            self.core.live.replace(None);
            return Err(error);
        }
        Response::empty()
    }
}

#[wasm_bindgen]
impl Account {
    /// Answers a message: at once, where all that it takes is in memory, else by a promise.
    pub fn ask(&self, message: &[u8]) -> Result<JsValue, JsValue> {
        let Some(message) = Message::decode(message) else {
            return Ok(bytes_of(&Answer::NotReady));
        };
        let core = self.core.clone();
        if let Some(plan) = core.plan_at_hand(&message) {
            return core.say(core.decide(plan, message));
        }
        let answer = async move { core.say(core.answer(message).await) };
        Ok(future_to_promise(answer).into())
    }
}

fn bytes_of(answer: &Answer) -> JsValue {
    Uint8Array::from(answer.encode().as_slice()).into()
}

impl Core {
    fn now(&self) -> Millis {
        clock::now(&Settings::of(&self.env))
    }

    fn say(&self, answer: Result<Answer, Fault>) -> Result<JsValue, JsValue> {
        match answer {
            Ok(answer) => Ok(bytes_of(&answer)),
            Err(Fault::NotReady) => Ok(bytes_of(&Answer::NotReady)),
            Err(Fault::Storage(error)) => {
                self.live.replace(None);
                Err(error.into())
            }
        }
    }

    /// The plan by which a message is answered, unless something has to be looked for before.
    fn plan_at_hand(&self, message: &Message) -> Option<Rc<Plan>> {
        let decides = !matches!(
            message.ask,
            Ask::Adopt(_) | Ask::Revoke { .. } | Ask::Reconcile
        );
        let plan_id = self.plan_id(&message.asker).filter(|_| decides)?;
        cache::at_hand(&self.env, &plan_id, self.now())
    }

    /// Decides by this plan, and books what the message tells along.
    fn decide(self: &Rc<Self>, plan: Rc<Plan>, message: Message) -> Result<Answer, Fault> {
        let said = self.with_live(|live, now| {
            live.belongs_to(&message.user);
            live.answer(plan, message, now)
        })?;
        let (answer, effect) = said?;
        self.after(effect)?;
        Ok(answer)
    }

    async fn answer(self: &Rc<Self>, mut message: Message) -> Result<Answer, Fault> {
        let user = message.user.clone();
        self.load(&user).await?;
        // What comes next may wait for the ledger, and then end here.
        let ended = std::mem::take(&mut message.ended);
        let effect = self.with_live(|live, now| {
            live.belongs_to(&user);
            live.book_apart(&ended, now)
        })??;
        self.after(effect)?;
        let Message { asker, ask, .. } = message;
        if ask == Ask::Reconcile {
            return self.reconcile(&user).await;
        }
        // These need no plan: what is adopted may lead away from one that is gone.
        if matches!(ask, Ask::Adopt(_) | Ask::Revoke { .. }) {
            let answer = self.without_plan(ask, &user)?;
            if self.with_live(|live, _| !live.known.notices.is_empty())? {
                self.after(Effect::Stored)?;
            }
            return Ok(answer);
        }
        if !self.knows_user()? && !self.look_for_user(&user, &asker).await? {
            return Ok(Answer::NoRoom);
        }
        let Some(plan_id) = self.plan_id(&asker) else {
            return self.without_plan(ask, &user);
        };
        let Some(plan) = cache::plan(&self.env, &plan_id, self.now()).await? else {
            return Ok(Answer::NoSuchPlan);
        };
        self.decide(plan, Message::new(&user, asker, ask, Vec::new()))
    }

    /// What an account without a user or a plan can still be told.
    fn without_plan(&self, ask: Ask, user: &str) -> Result<Answer, Fault> {
        match ask {
            Ask::Adopt(standing) => self.with_live(|live, now| live.adopt(standing, user, now))?,
            Ask::Revoke { key_id, at } => {
                self.with_live(|live, now| live.revoke(key_id, at, now))?
            }
            _ => Ok(Answer::NoSuchUser),
        }
    }

    /// What has changed is published in the background where the user is done for now, else by the alarm: one
    /// transaction for all that changes until then, and nobody waits in memory.
    fn after(self: &Rc<Self>, effect: Effect) -> Result<(), Fault> {
        if effect == Effect::None {
            return Ok(());
        }
        if self.waiting_since.get().is_none() {
            self.waiting_since.set(Some(self.now()));
        }
        let delay = Settings::of(&self.env).ledger_delay;
        let has_news = self.with_live(|live, _| live.has_news())?;
        self.arm(if has_news { delay.min(NEWS) } else { delay })?;
        if self.publishes_next_in() == Span::ZERO && self.with_live(|live, _| live.is_done())? {
            let this = self.clone();
            self.state
                .wait_until(async move { this.publish_now().await });
        }
        Ok(())
    }

    fn with_live<T>(&self, act: impl FnOnce(&mut Live, Millis) -> T) -> Result<T, Fault> {
        let now = self.now();
        let mut slot = self.live.borrow_mut();
        slot.as_mut()
            .map(|live| act(live, now))
            .ok_or(Fault::NotReady)
    }

    fn knows_user(&self) -> Result<bool, Fault> {
        self.with_live(|live, _| live.known.standing.is_some())
    }

    fn plan_id(&self, asker: &Asker) -> Option<String> {
        let slot = self.live.borrow();
        let standing = slot.as_ref()?.known.standing.as_ref()?;
        Some(
            asker
                .plan_claim
                .clone()
                .unwrap_or_else(|| standing.plan_id.clone()),
        )
    }
}

/// What remains to be done after an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Effect {
    /// Nothing changed.
    None,
    /// Something was counted in memory only.
    Counted,
    /// The account was stored, and the ledger has to hear of it.
    Stored,
}

impl Live {
    fn belongs_to(&mut self, user: &str) {
        if self.known.user != user {
            user.clone_into(&mut self.known.user);
            self.known_unsaved = true;
        }
    }

    /// Stores what was not worth a write of its own.
    fn save_rest(&mut self) -> Result<(), Fault> {
        if self.unsaved {
            self.save()?;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), Fault> {
        let changes = self.law.take_changes();
        for page in changes.pages_written {
            self.hot.save_page(page.key.to_string(), page.bytes)?;
        }
        for key in changes.pages_dropped {
            self.hot.drop_page(key.to_string())?;
        }
        if self.known_unsaved {
            let body = serde_json::to_vec(&self.known).map_err(worker::Error::from)?;
            self.hot.save_standing(&body)?;
        }
        self.hot.save_account(&self.law.encode())?;
        self.unsaved = false;
        self.known_unsaved = false;
        Ok(())
    }
}
