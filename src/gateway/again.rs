//! Refusals that are given again before the call is read. Whoever has used up their day or their month is refused
//! whatever they say, so that for a moment neither their key nor their body is looked at once more: the same
//! credential at the same door gets the same answer, under an id of its own, counted and logged like any other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen;

use super::estimate::MOST_TOKENS_A_BYTE;
use super::session::Session;
use crate::account::refusals::{self, Sure};
use crate::clock;
use crate::http::limit_headers::Refused;
use crate::http::{Reply, ids, lines};
use crate::observe::Alike;
use crate::settings::Settings;

/// Most answers that are kept. `js/again.js` has the same number.
const MOST: usize = 1_000;
/// Longest body that is left unread, in bytes. Somebody who still sends when their answer comes may see nothing but a
/// broken connection; this much is on its way anyway.
const LONGEST: u32 = 32 << 10;
/// Headers that are of one call alone.
const OWN: [&str; 2] = ["x-request-id", "request-id"];

#[wasm_bindgen(module = "/js/again.js")]
extern "C" {
    fn keep(
        request: &web_sys::Request,
        longest: u32,
        status: u16,
        head: &str,
        before: &str,
        after: &str,
    ) -> u32;
    fn find(request: &web_sys::Request) -> u32;
    fn give(request: &web_sys::Request, id: &str, read: bool) -> web_sys::Response;
}

thread_local! {
    static KEPT: RefCell<HashMap<u32, Kept>> = RefCell::new(HashMap::new());
}

/// A refusal that whoever shows the same credential is sure to hear again.
pub struct Again {
    request: web_sys::Request,
    why: Why,
}

/// Whose it is, for what, and how long that is sure.
struct Why {
    sure: Sure,
    user: String,
    reason: String,
    settings: Rc<Settings>,
}

struct Kept {
    why: Why,
    alike: Alike,
}

impl Again {
    /// What is sure of a refusal; `None`: nothing for longer than a moment.
    pub fn of(session: &Session, refused: &Refused) -> Option<Self> {
        let sure = session.sure?;
        // What else vouches for a user may end at any moment.
        session.caller.key_id.as_ref()?;
        Some(Self {
            request: Clone::clone(session.call.request.raw()),
            why: Why {
                sure: sure.at_most(refused.unchanged_for()?),
                user: session.caller.user_id.clone(),
                reason: refused.decisive()?.policy.to_string(),
                settings: session.call.settings.clone(),
            },
        })
    }

    /// Keeps the finished answer to the call `id`; `alike` is how the others are logged.
    pub fn keep(self, reply: &Reply, id: &str, alike: Alike) {
        let Some((before, after)) = reply.text().and_then(|body| body.split_once(id)) else {
            return;
        };
        let headers = reply.headers().iter();
        let headers: Vec<_> = headers
            .filter(|(name, _)| !OWN.contains(&name.as_ref()))
            .cloned()
            .collect();
        let head = lines::write(&headers);
        let longest = self.why.longest();
        let number = keep(&self.request, longest, reply.status, &head, before, after);
        if number > 0 {
            let kept = Kept {
                why: self.why,
                alike,
            };
            KEPT.with_borrow_mut(|all| insert(all, number, kept));
        }
    }
}

impl Why {
    /// Whether the next call is refused as well; then it is counted as that.
    fn holds(&self) -> bool {
        let now = clock::now(&self.settings);
        refusals::again(self.sure, &self.user, &self.reason, now)
    }

    /// Longest body that is sure to be refused, and may be left unread.
    fn longest(&self) -> u32 {
        let by_tokens = self.sure.room / MOST_TOKENS_A_BYTE;
        u32::try_from(by_tokens).map_or(LONGEST, |bytes| bytes.min(LONGEST))
    }
}

fn insert(all: &mut HashMap<u32, Kept>, number: u32, kept: Kept) {
    if all.len() >= MOST && !all.contains_key(&number) {
        all.clear();
    }
    all.insert(number, kept);
}

/// The answer to a call that is sure to be refused; `None`: it has to be looked at.
#[wasm_bindgen]
pub fn again(request: &web_sys::Request) -> Option<web_sys::Response> {
    let number = find(request);
    if number == 0 {
        return None;
    }
    KEPT.with_borrow(|all| {
        let Kept { why, alike } = all.get(&number)?;
        let id = ids::fresh("req").ok()?;
        if !why.holds() {
            return None;
        }
        alike.log(&id);
        Some(give(request, &id, !why.settings.production))
    })
}
