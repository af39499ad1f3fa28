//! Sluice stands in front of LLM and HTTP APIs and holds every user to their plan.
//!
//! This file has the doors: calls, queue messages, the clock's tick. Follow `http::router` for the way
//! of a call; the law itself is [`limits`].

mod account;
mod admin;
mod afterwards;
mod auth;
mod budget;
mod clock;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod http;
mod jobs;
mod json;
mod ledger;
pub mod limits;
mod notify;
mod observe;
mod openapi;
mod overflow;
mod plans;
mod queues;
mod remembered;
mod settings;
mod snapshot;

use worker::wasm_bindgen::{self, prelude::wasm_bindgen};
use worker::{Context, Env, MessageBatch, ScheduleContext, ScheduledEvent, event};

#[wasm_bindgen(module = "/js/tasks.js")]
extern "C" {
    #[wasm_bindgen(js_name = runTasksAsReactions)]
    fn run_tasks_as_reactions();
}

#[event(start)]
fn start() {
    run_tasks_as_reactions();
}

#[event(fetch)]
async fn fetch(
    request: http::incoming::Incoming,
    env: Env,
    context: Context,
) -> worker::Result<web_sys::Response> {
    http::router::serve(request, env, context).await
}

#[event(queue)]
async fn queue(batch: MessageBatch<String>, env: Env, _context: Context) -> worker::Result<()> {
    queues::receive(batch, env).await;
    Ok(())
}

#[event(scheduled)]
async fn scheduled(_event: ScheduledEvent, env: Env, _context: ScheduleContext) {
    let now = clock::now(&settings::Settings::of(&env));
    jobs::upkeep::tick(&env, now).await;
    notify::upkeep::tick(&env, now).await;
    observe::upkeep::tick(&env, now).await;
}
