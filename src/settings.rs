//! The gateway's settings, read from its variables and secrets once an isolate.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use worker::Env;

use crate::auth::jwt::{self, JwtVars};
use crate::limits::{Span, WindowLimit};

/// The platform's own.
const PUBLIC_RESOLVER: &str = "https://cloudflare-dns.com/dns-query";

/// All settings, with their defaults in place.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The default provider; `None`: the built-in mock model answers.
    pub upstream_base_url: Option<String>,
    /// Its key.
    pub upstream_api_key: Option<Secret>,
    /// Time to a provider's first byte.
    pub upstream_timeout: Span,
    /// The sliding window of plans that set none; `None` switches windows off for everybody.
    pub window: Option<WindowDefault>,
    /// Origins that browsers may call from.
    pub cors_origins: Vec<String>,
    /// Calls a user gets a minute and isolate while the account store is out.
    pub outage_local_per_minute: u64,
    /// Whether accounts hand out leases.
    pub leases: bool,
    /// How long an account gathers changes before it publishes them.
    pub ledger_delay: Span,
    /// Whether the operator has bound Analytics Engine.
    pub analytics: bool,
    /// Whether every call is a line in the log.
    pub log_calls: bool,
    /// Share of refused calls above which a plan raises an alert.
    pub alert_refusal_rate: f64,
    /// Where alerts are sent; `None`: they are only listed.
    pub alert_webhook_url: Option<String>,
    /// Who says, over HTTPS in JSON, what the names of webhooks resolve to; `None`: nobody is asked.
    pub dns_resolver_url: Option<String>,
    /// Milliseconds by which the clock is shifted; always 0 in production.
    pub clock_offset_ms: i64,
    /// Whether `ENVIRONMENT` is `production`: tests' liberties are off.
    pub production: bool,
    /// Settings that were refused, for `/readyz`.
    pub problems: Vec<String>,
    /// The operator's token.
    pub admin_token: Option<Secret>,
    /// What API keys are hashed with.
    pub key_pepper: Option<Secret>,
    /// What a trusted front shows.
    pub trusted_proxy_secret: Option<Secret>,
    /// What webhooks are signed with.
    pub webhook_secret: Option<Secret>,
    /// Whose JSON Web Tokens are taken; `None`: nobody's, `Err`: what keeps the settings from working.
    pub jwt: Option<Result<jwt::Policy, &'static str>>,
}

/// The sliding window of plans that set none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WindowDefault {
    /// `None`: off, for plans that set none.
    pub limit: Option<WindowLimit>,
}

/// A secret, which no log, error or answer can print.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The secret of this name, if it is set.
    pub fn named(env: &Env, name: &str) -> Option<Self> {
        Source(env).secret(name)
    }

    /// A secret for a test.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself, for whoever has to use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}

thread_local! {
    static SETTINGS: RefCell<Option<Rc<Settings>>> = const { RefCell::new(None) };
}

impl Settings {
    /// The settings of this isolate.
    pub fn of(env: &Env) -> Rc<Self> {
        SETTINGS.with_borrow_mut(|slot| {
            slot.get_or_insert_with(|| Rc::new(Self::read(&Source(env))))
                .clone()
        })
    }

    fn read(source: &impl Lookup) -> Self {
        let mut problems = Vec::new();
        check_place(source, &mut problems);
        let production = source.text("ENVIRONMENT").as_deref() == Some("production");
        let enabled = source.text("USER_REQUEST_LIMIT_ENABLED").as_deref() != Some("false");
        let minutes = number(
            source,
            "USER_REQUEST_LIMIT_WINDOW_MINUTES",
            300,
            &mut problems,
        );
        let requests = number(
            source,
            "USER_REQUEST_LIMIT_MAX_REQUESTS",
            500,
            &mut problems,
        );
        Self {
            upstream_base_url: source
                .text("UPSTREAM_BASE_URL")
                .map(|url| url.trim_end_matches('/').to_owned()),
            upstream_api_key: source.secret("UPSTREAM_API_KEY"),
            upstream_timeout: Span(number(
                source,
                "UPSTREAM_TIMEOUT_MS",
                120_000,
                &mut problems,
            )),
            window: enabled.then_some(WindowDefault {
                limit: (requests > 0 && minutes > 0).then_some(WindowLimit {
                    max_requests: requests,
                    span: Span::minutes(minutes),
                }),
            }),
            cors_origins: list(source.text("CORS_ORIGINS")),
            outage_local_per_minute: number(source, "OUTAGE_LOCAL_PER_MINUTE", 30, &mut problems),
            leases: source.text("LEASES").as_deref() != Some("false"),
            ledger_delay: ledger_delay(source, &mut problems),
            analytics: source.has_dataset("ANALYTICS"),
            log_calls: source.text("LOG_CALLS").as_deref() != Some("false"),
            alert_refusal_rate: number(source, "ALERT_REFUSAL_RATE", 0.10, &mut problems),
            alert_webhook_url: source.text("ALERT_WEBHOOK_URL"),
            dns_resolver_url: dns_resolver(source, production),
            clock_offset_ms: clock_offset(source, production, &mut problems),
            admin_token: source.secret("ADMIN_TOKEN"),
            key_pepper: source.secret("KEY_PEPPER"),
            trusted_proxy_secret: source.secret("TRUSTED_PROXY_SECRET"),
            webhook_secret: source.secret("WEBHOOK_SECRET"),
            jwt: jwt_policy(source, &mut problems),
            production,
            problems,
        }
    }
}

/// `js/account.js` takes it; what it doesn't know it passes over.
fn check_place(source: &impl Lookup, problems: &mut Vec<String>) {
    const PLACES: [&str; 9] = [
        "wnam", "enam", "sam", "weur", "eeur", "apac", "oc", "afr", "me",
    ];
    let place = source.text("ACCOUNT_LOCATION");
    if place.is_some_and(|place| !PLACES.contains(&place.as_str())) {
        problems.push(format!(
            "ACCOUNT_LOCATION has to be one of {}",
            PLACES.join(", ")
        ));
    }
}

/// At least a second: the ledger gets one transaction a second and user at most.
fn ledger_delay(source: &impl Lookup, problems: &mut Vec<String>) -> Span {
    let wanted = Span(number(source, "LEDGER_DELAY_MS", 1_000, problems));
    let taken = wanted.clamp(Span::seconds(1), Span::minutes(10));
    if taken != wanted {
        problems.push("LEDGER_DELAY_MS has to be from 1000 to 600000".to_owned());
    }
    taken
}

/// In production somebody is asked unless the operator says `off`; elsewhere nobody is.
fn dns_resolver(source: &impl Lookup, production: bool) -> Option<String> {
    match source.text("DNS_RESOLVER_URL") {
        Some(off) if off == "off" => None,
        Some(url) => Some(url),
        None => production.then(|| PUBLIC_RESOLVER.to_owned()),
    }
}

/// Tests move the clock; a production gateway never lets anybody do so.
fn clock_offset(source: &impl Lookup, production: bool, problems: &mut Vec<String>) -> i64 {
    let offset = number(source, "CLOCK_OFFSET_MS", 0i64, problems);
    if production && offset != 0 {
        problems.push("CLOCK_OFFSET_MS is refused in production".to_owned());
        return 0;
    }
    offset
}

fn jwt_policy(
    source: &impl Lookup,
    problems: &mut Vec<String>,
) -> Option<Result<jwt::Policy, &'static str>> {
    let vars = JwtVars {
        issuer: source.text("JWT_ISSUER"),
        audience: source.text("JWT_AUDIENCE"),
        jwks_url: source.text("JWT_JWKS_URL"),
        public_key: source.text("JWT_PUBLIC_KEY"),
        hs256_secret: source.secret("JWT_HS256_SECRET"),
        plan_claim: source.text("JWT_PLAN_CLAIM"),
    };
    let policy = vars.policy();
    if let Some(Err(problem)) = &policy {
        problems.push((*problem).to_owned());
    }
    policy
}

fn number<T: std::str::FromStr>(
    source: &impl Lookup,
    name: &str,
    default: T,
    problems: &mut Vec<String>,
) -> T {
    let Some(text) = source.text(name) else {
        return default;
    };
    text.trim().parse().unwrap_or_else(|_| {
        problems.push(format!("{name} is not a number; its default is used"));
        default
    })
}

fn list(text: Option<String>) -> Vec<String> {
    text.unwrap_or_default()
        .split(',')
        .map(|item| item.trim().trim_end_matches('/').to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

/// Where settings come from; empty values count as unset.
trait Lookup {
    fn text(&self, name: &str) -> Option<String>;

    fn secret(&self, name: &str) -> Option<Secret> {
        self.text(name).map(Secret)
    }

    fn has_dataset(&self, name: &str) -> bool;
}

struct Source<'a>(&'a Env);

impl Lookup for Source<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0
            .var(name)
            .ok()
            .map(|value| value.to_string())
            .filter(|value| !value.is_empty())
    }

    fn has_dataset(&self, name: &str) -> bool {
        self.0.analytics_engine(name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    impl Lookup for HashMap<&str, &str> {
        fn text(&self, name: &str) -> Option<String> {
            self.get(name).map(|v| (*v).to_owned())
        }

        fn has_dataset(&self, _name: &str) -> bool {
            false
        }
    }

    fn read(vars: &[(&'static str, &'static str)]) -> Settings {
        Settings::read(&vars.iter().copied().collect::<HashMap<_, _>>())
    }

    #[test]
    fn defaults() {
        let window = read(&[]).window.unwrap().limit.unwrap();
        assert_eq!(
            (window.max_requests, window.span),
            (500, Span::minutes(300))
        );
    }

    #[test]
    fn two_ways_to_switch_the_window_off() {
        assert!(
            read(&[("USER_REQUEST_LIMIT_ENABLED", "false")])
                .window
                .is_none()
        );
        let zero = read(&[("USER_REQUEST_LIMIT_MAX_REQUESTS", "0")]);
        assert!(zero.window.unwrap().limit.is_none());
    }

    #[test]
    fn production_refuses_a_shifted_clock() {
        let shifted = [
            ("CLOCK_OFFSET_MS", "86400000"),
            ("ENVIRONMENT", "production"),
        ];
        let settings = read(&shifted);
        assert_eq!(settings.clock_offset_ms, 0);
        assert_eq!(settings.problems.len(), 1);
        assert_eq!(read(&shifted[..1]).clock_offset_ms, 86_400_000);
    }

    #[test]
    fn the_ledger_is_never_told_more_than_once_a_second() {
        assert_eq!(read(&[]).ledger_delay, Span::seconds(1));
        assert_eq!(
            read(&[("LEDGER_DELAY_MS", "60000")]).ledger_delay,
            Span::minutes(1)
        );
        let hasty = read(&[("LEDGER_DELAY_MS", "100")]);
        assert_eq!(
            (hasty.ledger_delay, hasty.problems.len()),
            (Span::seconds(1), 1)
        );
    }

    #[test]
    fn half_set_tokens_are_a_problem() {
        let half = read(&[("JWT_ISSUER", "https://id.example")]);
        assert!(matches!(half.jwt, Some(Err(_))) && half.problems.len() == 1);
        let whole = read(&[
            ("JWT_ISSUER", "https://id.example"),
            ("JWT_HS256_SECRET", "hunter2"),
        ]);
        assert!(matches!(whole.jwt, Some(Ok(_))) && whole.problems.is_empty());
        assert!(read(&[]).jwt.is_none());
    }

    #[test]
    fn secrets_do_not_print() {
        let secrets = [("ADMIN_TOKEN", "hunter2"), ("JWT_HS256_SECRET", "hunter2")];
        let settings = read(&[&secrets[..], &[("JWT_ISSUER", "https://id.example")]].concat());
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
