//! Bodies, bounded before they are parsed.

use futures::StreamExt;
use js_sys::Uint8Array;
use worker::wasm_bindgen_futures::JsFuture;

use super::ApiError;
use super::incoming::Incoming;

/// Largest body of an LLM call or an admin write.
pub const MAX_JSON: usize = 1 << 20;

/// Most bytes of a body that is too large which are read and thrown away: a caller who is still sending
/// would otherwise see a broken connection instead of the 413.
const MAX_DRAIN: usize = 16 << 20;

/// The whole body, or 413 if it has more than `limit` bytes; no more than that is ever kept.
pub async fn read(request: &Incoming, limit: usize) -> Result<Vec<u8>, ApiError> {
    let too_large = ApiError::TooLarge { limit };
    if declared_length(request).is_some_and(|length| length > MAX_DRAIN) {
        return Err(too_large);
    }
    // A declared length is kept to by the platform: the body needs no counting.
    if declared_length(request).is_some_and(|length| length <= limit) {
        return whole(request).await;
    }
    if request.raw().body().is_none() {
        return Ok(Vec::new());
    }
    let mut raw = worker::Request::from(Clone::clone(request.raw()));
    let mut stream = raw.stream().map_err(|_| unreadable())?;
    let (mut body, mut received) = (Vec::new(), 0);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| unreadable())?;
        received += chunk.len();
        if received <= limit {
            body.extend(chunk);
        } else if received > MAX_DRAIN {
            break;
        }
    }
    if received > limit {
        Err(too_large)
    } else {
        Ok(body)
    }
}

async fn whole(request: &Incoming) -> Result<Vec<u8>, ApiError> {
    let buffer = request.raw().array_buffer().map_err(|_| unreadable())?;
    let buffer = JsFuture::from(buffer).await.map_err(|_| unreadable())?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

fn declared_length(request: &Incoming) -> Option<usize> {
    request.header("content-length")?.parse().ok()
}

fn unreadable() -> ApiError {
    ApiError::invalid("The body could not be read.")
}
