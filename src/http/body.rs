//! Bodies, bounded before they are parsed.

use futures::StreamExt;
use worker::Request;

use super::ApiError;

/// Largest body of an LLM call or an admin write.
pub const MAX_JSON: usize = 1 << 20;

/// Most bytes of a body that is too large which are read and thrown away: a caller who is still sending
/// would otherwise see a broken connection instead of the 413.
const MAX_DRAIN: usize = 16 << 20;

/// The whole body, or 413 if it has more than `limit` bytes; no more than that is ever kept.
pub async fn read(request: &mut Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    let too_large = ApiError::TooLarge { limit };
    if declared_length(request).is_some_and(|length| length > MAX_DRAIN) {
        return Err(too_large);
    }
    if request.inner().body().is_none() {
        return Ok(Vec::new());
    }
    // A declared length is kept to by the platform: the body needs no counting.
    if declared_length(request).is_some_and(|length| length <= limit) {
        return request.bytes().await.map_err(unreadable);
    }
    let mut stream = request.stream().map_err(unreadable)?;
    let (mut body, mut received) = (Vec::new(), 0);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(unreadable)?;
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

fn declared_length(request: &Request) -> Option<usize> {
    let header = request.headers().get("content-length").ok()??;
    header.parse().ok()
}

fn unreadable(_: worker::Error) -> ApiError {
    ApiError::invalid("The body could not be read.")
}
