use crate::http::incoming::Incoming;

/// Whether the caller would rather have a job than wait: `Prefer: respond-async` (RFC 7240).
pub fn prefers_async(request: &Incoming) -> bool {
    request.header("prefer").is_some_and(names_async)
}

/// Preferences are separated by commas, their parameters by semicolons; names come in any case.
fn names_async(header: &str) -> bool {
    header.split(',').any(|preference| {
        let name = preference.split([';', '=']).next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("respond-async")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_found_among_others() {
        for yes in [
            "respond-async",
            "Respond-Async",
            "wait=10, respond-async",
            "respond-async; x=1",
        ] {
            assert!(names_async(yes), "{yes}");
        }
        for no in [
            "",
            "respond-sync",
            "return=respond-async",
            "x-respond-async",
            "wait=10",
        ] {
            assert!(!names_async(no), "{no}");
        }
    }
}
