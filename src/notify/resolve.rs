//! What the name of a webhook resolves to, as a resolver on the public network says (DNS over HTTPS in JSON). A name that
//! points into a private network is refused; one that nobody can resolve is left to the platform, which won't reach it
//! either. Whoever answers the resolver one thing and the platform another a moment later is not found out by this.

use std::net::IpAddr;

use serde_json::Value;

use crate::budget;
use crate::http::fetch;
use crate::http::targets::is_public_ip;
use crate::json;

/// Whether any address that the host of `url` is known by leads into a private network.
pub async fn leads_inside(resolver: &str, url: &str) -> bool {
    let Some(host) = name_of(url) else {
        return false;
    };
    let [four, six] = ["A", "AAAA"].map(|kind| addresses(resolver, &host, kind));
    let (four, six) = futures::join!(four, six);
    four.iter().chain(&six).any(|ip| !is_public_ip(*ip))
}

/// A host that is an address itself is looked at elsewhere.
fn name_of(url: &str) -> Option<String> {
    let host = worker::Url::parse(url).ok()?.host_str()?.to_owned();
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    (!is_address).then_some(host)
}

async fn addresses(resolver: &str, host: &str, kind: &str) -> Vec<IpAddr> {
    let Ok(mut url) = worker::Url::parse(resolver) else {
        return Vec::new();
    };
    url.query_pairs_mut()
        .append_pair("name", host)
        .append_pair("type", kind);
    let headers = [("accept", "application/dns-json")];
    let answer = fetch::json(url.as_str(), &headers, budget::DNS).await;
    answer.map(|answer| read(&answer)).unwrap_or_default()
}

/// The addresses of an answer; the names on the way to them are none.
fn read(answer: &Value) -> Vec<IpAddr> {
    json::texts(answer, "Answer", "data")
        .filter_map(|text| text.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_read_and_aliases_passed_over() {
        let answer = json!({"Status": 0, "Answer": [
            {"name": "a.example", "type": 5, "data": "b.example."},
            {"name": "b.example", "type": 1, "data": "10.0.0.7"},
            {"name": "b.example", "type": 28, "data": "fd00::1"},
        ]});
        assert_eq!(read(&answer).len(), 2);
        assert!(read(&json!({"Status": 3})).is_empty());
        assert!(read(&json!("no answer")).is_empty());
    }

    #[test]
    fn only_names_are_resolved() {
        assert_eq!(
            name_of("https://a.example:8443/x").as_deref(),
            Some("a.example")
        );
        assert_eq!(name_of("https://10.0.0.7/"), None);
        assert_eq!(name_of("https://[fd00::1]/"), None);
    }
}
