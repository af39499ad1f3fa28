//! One admitted call, to the service and back.

use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use futures::pin_mut;
use web_sys::{ReadableStream, RequestCache};
use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen_futures::JsFuture;
use worker::{AbortController, Fetch, Headers, Request, Response, ResponseBody};

use super::headers;
use super::table::Route;
use crate::account::wire::Snapshot;
use crate::budget::within;
use crate::clock;
use crate::gateway::conduct::AccountLink;
use crate::gateway::hangup::HangUp;
use crate::gateway::session::{Pass, Session};
use crate::gateway::stream::{identity, of_length};
use crate::http::path::Path;
use crate::http::router::Handled;
use crate::http::{ApiError, Reply};
use crate::limits::{Outcome, PolicyName, Span};
use crate::settings::Settings;

/// The call counts; what the service did with it is not measured.
const COUNTS: Outcome = Outcome::Used {
    prompt: 0,
    completion: 0,
    estimated: false,
};
/// How often a call under way says that it still is.
const RENEW: Duration = Duration::from_secs(60);

/// Forwards an admitted call and gives the service's answer as soon as it begins.
pub async fn run(session: &mut Session, route: &Rc<Route>, path: &Path, pass: &Pass) -> Handled {
    let account = AccountLink::of(session, pass);
    let request = match request(session, route, path) {
        Ok(request) => request,
        Err(_) => {
            account.settle(Outcome::Released).await;
            return Err(ApiError::Misconfigured(
                "a call can't be sent to its protected route",
            ));
        }
    };
    let (tell, told) = oneshot::channel();
    let task = Task {
        account,
        settings: session.call.settings.clone(),
        head_only: request.inner().method() == "HEAD",
        request,
        timeout: route.timeout(),
        until_last_byte: limits_calls_under_way(session),
    };
    let left = HangUp::of(&session.call.request.raw().signal());
    session.call.context.wait_until(task.run(left, tell));
    let head = told.await.map_err(|_| ApiError::Unavailable("gateway"))?;
    if let Some(standing) = head.standing {
        session.stand(standing);
    }
    head.outcome
}

/// What the caller is told while the task goes on.
struct Head {
    outcome: Handled,
    /// Newer than the admission's, after something was given back.
    standing: Option<Snapshot>,
}

/// A call that outlives its answer: whatever way it ends, it ends here and is settled once.
struct Task {
    account: AccountLink,
    settings: Rc<Settings>,
    request: Request,
    timeout: Span,
    head_only: bool,
    until_last_byte: bool,
}

impl Task {
    async fn run(self, mut left: HangUp, tell: oneshot::Sender<Head>) {
        let began = clock::now(&self.settings);
        let abort = AbortController::default();
        let signal = abort.signal();
        let fetch = Fetch::Request(self.request);
        let sent = {
            let send = Box::pin(within(self.timeout, fetch.send_with_signal(&signal)));
            match select(send, &mut left).await {
                Either::Left((sent, _)) => sent,
                Either::Right(_) => {
                    abort.abort();
                    self.account.settle(COUNTS).await;
                    return;
                }
            }
        };
        self.account.waited(clock::now(&self.settings).since(began));
        let failure = match sent {
            Ok(Ok(response)) if (200..=599).contains(&response.status_code()) => {
                let answer = Answer {
                    response,
                    head_only: self.head_only,
                };
                return answer
                    .pass_down(self.account, self.until_last_byte, abort, left, tell)
                    .await;
            }
            Ok(Ok(_)) => failed(
                502,
                "The service's answer has no valid status.",
                "upstream_invalid_answer",
            ),
            Ok(Err(_)) => failed(502, "The service is out of reach.", "upstream_unreachable"),
            Err(_) => failed(504, "The service took too long.", "upstream_timeout"),
        };
        abort.abort();
        let standing = self.account.settle(Outcome::Released).await;
        // The caller may be gone; there is nobody left to tell.
        let _ = tell.send(Head {
            outcome: Err(failure),
            standing,
        });
    }
}

/// The service's answer.
struct Answer {
    response: Response,
    head_only: bool,
}

impl Answer {
    async fn pass_down(
        self,
        account: AccountLink,
        until_last_byte: bool,
        abort: AbortController,
        left: HangUp,
        tell: oneshot::Sender<Head>,
    ) {
        let status = self.response.status_code();
        if status == 429 || status >= 500 {
            let standing = account.settle(Outcome::Released).await;
            let _ = tell.send(Head {
                outcome: Ok(self.reply(None)),
                standing,
            });
            return;
        }
        let body = self.body().filter(|_| until_last_byte);
        let pipe = body.and_then(|body| Pipe::from(&body, self.length()));
        let reply = self.reply(pipe.as_ref());
        let told = tell.send(Head {
            outcome: Ok(reply),
            standing: None,
        });
        match pipe {
            Some(pipe) if told.is_ok() => pipe.drained(&account, abort, left).await,
            Some(_) => abort.abort(),
            None => {}
        }
        account.settle(COUNTS).await;
    }

    /// The answer for the caller; its body is the service's own stream, or what comes out of `pipe`.
    fn reply(&self, pipe: Option<&Pipe>) -> Reply {
        let status = self.response.status_code();
        let body = pipe.map_or_else(|| self.body(), |pipe| Some(pipe.out.clone()));
        let mut reply = match body {
            Some(body) => Reply::stream(status, body),
            None => Reply::empty(status),
        };
        let received: Vec<_> = self.response.headers().entries().collect();
        for (name, value) in headers::to_caller(&received) {
            reply.append(name, value);
        }
        reply
    }

    /// The body's length, if the service told it and the runtime does not unpack the body on the way.
    fn length(&self) -> Option<f64> {
        let header = |name| self.response.headers().get(name).ok().flatten();
        match header("content-encoding") {
            Some(_) => None,
            None => header("content-length")?.parse().ok(),
        }
    }

    /// The service's body, where this status and method have one.
    fn body(&self) -> Option<ReadableStream> {
        let never = self.head_only || matches!(self.response.status_code(), 204 | 205 | 304);
        match self.response.body() {
            ResponseBody::Stream(body) if !never => Some(body.clone()),
            _ => None,
        }
    }
}

/// The service's body on its way through the runtime, which tells when it is over. The bytes never
/// enter this program.
struct Pipe {
    out: ReadableStream,
    over: JsFuture<JsValue>,
}

impl Pipe {
    /// A length that was told is kept: it is what shows the caller that a body broke off.
    fn from(body: &ReadableStream, length: Option<f64>) -> Option<Self> {
        let through = match length {
            Some(length) => of_length(length)?,
            None => identity()?,
        };
        let over = JsFuture::from(body.pipe_to(&through.writable()));
        Some(Self {
            out: through.readable(),
            over,
        })
    }

    /// Waits for the last byte, a break or the caller's leaving, and keeps the reservation alive.
    async fn drained(self, account: &AccountLink, abort: AbortController, mut left: HangUp) {
        let over = self.over;
        pin_mut!(over);
        loop {
            let renew = worker::Delay::from(RENEW);
            pin_mut!(renew);
            let more = select(&mut left, renew);
            pin_mut!(more);
            match select(&mut over, more).await {
                Either::Left(_) => return,
                Either::Right((Either::Left(_), _)) => return abort.abort(),
                Either::Right((Either::Right(_), _)) => account.checkpoint(0, 0).await,
            }
        }
    }
}

fn request(session: &Session, route: &Route, path: &Path) -> Result<Request, JsValue> {
    let caller = &session.call.request;
    let headers = Headers::new();
    for (name, value) in
        headers::to_service(caller.headers(), &session.caller.user_id, plan(session))
    {
        headers.append(&name, &value)?;
    }
    let method = caller.method();
    let init = web_sys::RequestInit::new();
    init.set_method(method);
    init.set_headers(headers.as_ref());
    init.set_redirect(web_sys::RequestRedirect::Manual);
    // An answer made for one user must never be kept for another.
    init.set_cache(RequestCache::NoStore);
    if !matches!(method, "GET" | "HEAD")
        && let Some(body) = caller.raw().body()
    {
        init.set_body(&body);
    }
    let target = route.target(path, query(caller.address()));
    Ok(web_sys::Request::new_with_str_and_init(&target, &init)?.into())
}

/// The plan the call was admitted under, as far as it is known.
fn plan(session: &Session) -> Option<&str> {
    let standing = session
        .standing
        .as_ref()
        .map(|standing| standing.plan_id.as_str());
    standing.or(session.caller.plan_hint.as_deref())
}

fn limits_calls_under_way(session: &Session) -> bool {
    let standing = session.standing.as_ref();
    standing.is_some_and(|s| s.policies.iter().any(|p| p.name == PolicyName::Concurrency))
}

/// The query of a URL, with its question mark, byte for byte.
fn query(url: &str) -> &str {
    let end = url.find('#').unwrap_or(url.len());
    let url = url.get(..end).unwrap_or(url);
    url.find('?').and_then(|at| url.get(at..)).unwrap_or("")
}

fn failed(status: u16, message: &str, code: &'static str) -> ApiError {
    ApiError::Upstream {
        status,
        message: message.to_owned(),
        code,
        retry_after: Some(crate::http::error::RETRY_SOON),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_passes_as_it_is() {
        assert_eq!(query("https://g/r?a=%20b&c=?d"), "?a=%20b&c=?d");
        assert_eq!(query("https://g/r?"), "?");
        assert_eq!(query("https://g/r"), "");
        assert_eq!(query("https://g/r#?x"), "");
    }
}
