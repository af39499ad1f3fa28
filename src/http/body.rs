//! Bodies, bounded before they are parsed.

use futures::StreamExt;
use worker::Request;

use super::ApiError;

/// Largest body of an LLM call or an admin write.
pub const MAX_JSON: usize = 1 << 20;

/// The whole body, or 413 as soon as it is known to pass `limit` bytes.
pub async fn read(request: &mut Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    if declared_length(request).is_some_and(|length| length > limit) {
        return Err(ApiError::TooLarge { limit });
    }
    if request.inner().body().is_none() {
        return Ok(Vec::new());
    }
    let mut stream = request.stream().map_err(unreadable)?;
    let mut body = Vec::new();
    while let Some(chunk) = stream.next().await {
        body.extend(chunk.map_err(unreadable)?);
        if body.len() > limit {
            return Err(ApiError::TooLarge { limit });
        }
    }
    Ok(body)
}

fn declared_length(request: &Request) -> Option<usize> {
    let header = request.headers().get("content-length").ok()??;
    header.parse().ok()
}

fn unreadable(_: worker::Error) -> ApiError {
    ApiError::invalid("The body could not be read.")
}
