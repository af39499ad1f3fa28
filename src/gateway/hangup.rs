use std::pin::Pin;
use std::task::{Context, Poll};

use futures::channel::oneshot;
use web_sys::AbortSignal;
use worker::wasm_bindgen::JsCast;
use worker::wasm_bindgen::prelude::Closure;

/// Resolves when the caller hangs up; never, if they stay.
///
/// Needs the compatibility flag `enable_request_signal`: without it nobody is told.
pub struct HangUp {
    left: oneshot::Receiver<()>,
    gone: bool,
}

impl HangUp {
    /// Listens on the signal of a request.
    pub fn of(signal: &AbortSignal) -> Self {
        let (tell, left) = oneshot::channel();
        let gone = signal.aborted();
        let on_abort = Closure::once_into_js(move || {
            // The listening task may have ended.
            let _ = tell.send(());
        });
        // A signal that takes no listener never tells: the lease ends the reservation instead.
        let _ = signal.add_event_listener_with_callback("abort", on_abort.unchecked_ref());
        Self { left, gone }
    }
}

impl Future for HangUp {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.gone {
            return Poll::Ready(());
        }
        match Pin::new(&mut self.left).poll(context) {
            Poll::Ready(Ok(())) => {
                self.gone = true;
                Poll::Ready(())
            }
            // A listener that was thrown away will never tell: the caller counts as present.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}
