//! Addresses the gateway may be told to call. Whoever can write one must not be able to make the gateway
//! knock at doors that are open only from within.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use worker::Url;

/// Longest address that is taken.
const MAX_LENGTH: usize = 2_048;

/// Names that only ever mean a machine nearby.
const PRIVATE_SUFFIXES: [&str; 10] = [
    "localhost",
    "local",
    "internal",
    "localdomain",
    "lan",
    "intranet",
    "home",
    "corp",
    "private",
    "home.arpa",
];

/// Whether `url` is an http(s) address without a credential that leads out to the public network. What a
/// name resolves to is looked at before a webhook is sent. `allow_private` lets private addresses pass too, which is for
/// development and tests.
pub fn is_public_target(url: &str, allow_private: bool) -> bool {
    let Some(url) = parse(url) else {
        return false;
    };
    allow_private || url.host_str().is_some_and(is_public_host)
}

/// The address, if it is http(s) with a host and without a credential.
fn parse(text: &str) -> Option<Url> {
    let odd = text.len() > MAX_LENGTH || text.chars().any(|c| c.is_control() || c.is_whitespace());
    let url = Url::parse(text).ok().filter(|_| !odd)?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && !text.contains('\\');
    (plain && url.host_str().is_some_and(|host| !host.is_empty())).then_some(url)
}

/// The URL standard has already read IPv4 in whatever base and number of parts, and IPv6 stands in
/// brackets, so a host that doesn't parse here is a name.
fn is_public_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let address = bare.unwrap_or(host).parse();
    address.map_or_else(|_| is_public_name(host), is_public_ip)
}

/// Whether an address is one of the public network.
pub fn is_public_ip(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// A name without a dot is one of the network it is looked up in.
fn is_public_name(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let private = |suffix: &str| {
        name.strip_suffix(suffix)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    name.contains('.') && !PRIVATE_SUFFIXES.iter().any(|suffix| private(suffix))
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        || a == 0
        || a >= 240
        // Carriers' own (RFC 6598), where some clouds keep their metadata.
        || (a == 100 && (64..128).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || (a == 198 && (b == 18 || b == 19))
        // A cloud's agent listens on this public-looking address.
        || ip == Ipv4Addr::new(168, 63, 129, 16);
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(v4) = embedded_v4(ip) {
        return is_public_v4(v4);
    }
    let [first, second, ..] = ip.segments();
    let global = first & 0xe000 == 0x2000;
    // Teredo hides an address of its own choice; 2001:db8::/32 is for documentation.
    global && !(first == 0x2001 && (second == 0 || second == 0xdb8))
}

/// The IPv4 address an IPv6 one stands for: mapped, compatible, NAT64 or 6to4.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = ip.segments();
    let join = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match [s0, s1, s2, s3, s4, s5] {
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            Some(join(s6, s7))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_public_passes() {
        for url in [
            "https://api.example.com/v1",
            "http://api.example.com:8080/a?b=c",
            "https://93.184.216.34",
            "https://[2606:4700::1111]/",
            "https://localhost.example.com",
            "https://[::ffff:8.8.8.8]/",
            "https://notlocal.dev",
        ] {
            assert!(is_public_target(url, false), "{url}");
        }
    }

    #[test]
    fn what_is_near_is_refused_however_it_is_spelt() {
        for url in [
            "http://localhost",
            "http://LOCALHOST.:80",
            "http://a.localhost",
            "http://intranet",
            "http://metadata",
            "http://metadata.google.internal",
            "http://printer.local",
            "http://box.home.arpa.",
            "http://db.internal./x",
            "http://127.0.0.1",
            "http://127.1",
            "http://2130706433",
            "http://0x7f000001",
            "http://0177.0.0.1",
            "http://0x7f.0.1",
            "http://127.0.0.1.",
            "http://0",
            "http://0.0.0.0",
            "http://10.1.2.3",
            "http://172.16.0.1",
            "http://192.168.1.1",
            "http://169.254.169.254/latest/meta-data",
            "http://0xa9fea9fe",
            "http://100.100.100.200",
            "http://192.0.0.192",
            "http://168.63.129.16",
            "http://198.18.0.1",
            "http://224.0.0.1",
            "http://255.255.255.255",
            "http://240.0.0.1",
            "http://[::1]",
            "http://[::]",
            "http://[fe80::1]",
            "http://[fd00:ec2::254]",
            "http://[ff02::1]",
            "http://[::ffff:127.0.0.1]",
            "http://[::ffff:a9fe:a9fe]",
            "http://[::127.0.0.1]",
            "http://[64:ff9b::10.0.0.1]",
            "http://[2002:7f00:1::]",
            "http://[2001:0:1::1]",
            "http://[2001:db8::1]",
            "http://[0:0:0:0:0:ffff:0a00:0001]",
        ] {
            assert!(!is_public_target(url, false), "{url}");
            assert!(is_public_target(url, true), "{url}");
        }
    }

    #[test]
    fn what_is_no_plain_http_address_is_refused_always() {
        for url in [
            "",
            "api.example.com",
            "//api.example.com",
            "ftp://api.example.com",
            "http://１２７.0.0.1",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/plain,x",
            "https://user@api.example.com",
            "https://user:pass@api.example.com",
            "https://:pass@api.example.com",
            "https://",
            "https:// api.example.com",
            "https://api.example.com/\n",
            " https://api.example.com",
            "https:\\\\api.example.com",
            "https://256.1.1.1",
            "https://[::1",
        ] {
            assert!(!is_public_target(url, true), "{url:?}");
        }
        assert!(!is_public_target(
            &format!("https://a.example/{}", "x".repeat(3_000)),
            true
        ));
    }
}
