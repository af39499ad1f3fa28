//! Work that nobody waits for. The runtime drops whatever an event has begun as soon as the event has been answered and all
//! that it was told to wait for is done; a task that is merely spawned ends there without a word.

use worker::js_sys::Promise;
use worker::wasm_bindgen::{self, JsValue, prelude::wasm_bindgen};
use worker::wasm_bindgen_futures::future_to_promise;

#[wasm_bindgen(module = "/js/tasks.js")]
extern "C" {
    #[wasm_bindgen(js_name = goOn, catch)]
    fn go_on(task: &Promise) -> Result<(), JsValue>;
}

/// Does something beyond the answer of the event that is under way, within the 30 s that the platform grants.
pub fn afterwards(task: impl Future<Output = ()> + 'static) {
    let task = future_to_promise(async move {
        task.await;
        Ok(JsValue::UNDEFINED)
    });
    // Outside of all events nothing is there to be kept, and the task is under way all the same.
    let _ = go_on(&task);
}
