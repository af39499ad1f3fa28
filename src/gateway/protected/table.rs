//! Which route a path belongs to.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::json;
use thiserror::Error;
use worker::{Env, Url};

use crate::http::ApiError;
use crate::http::path::{Path, Prefix};
use crate::ledger::routes::RouteRow;
use crate::ledger::{self, LedgerError};
use crate::limits::{Millis, Span};
use crate::plans::{MAX_COUNT, check_name};
use crate::remembered::Remembered;
use crate::remembered::table::{self, Memory};

/// Longest time to a first byte an operator may allow.
const MAX_TIMEOUT: Span = Span::minutes(60);
/// What can be forwarded. `OPTIONS` is answered here, `CONNECT` and `TRACE` never leave a browser's
/// or a Worker's `fetch`.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// A protected route, ready to be matched.
#[derive(Debug)]
pub struct Route {
    row: RouteRow,
    prefix: Prefix,
    upstream: Url,
}

/// A route that can't be: which field, and what is wrong with it.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{field}: {reason}")]
pub struct InvalidRoute {
    /// The field.
    pub field: &'static str,
    /// What is wrong.
    pub reason: String,
}

/// Every route.
#[derive(Debug, Default)]
pub struct Table {
    /// Longest prefix first.
    routes: Vec<Rc<Route>>,
}

thread_local! {
    static CACHE: RefCell<Remembered<Table>> = const { RefCell::new(Remembered::new()) };
}

struct InLedger;

impl table::Table for InLedger {
    type Rows = Vec<RouteRow>;
    type Content = Table;
    const COPY: &'static str = "routes";

    fn memory() -> Memory<Table> {
        &CACHE
    }

    async fn rows(env: &Env) -> Result<Vec<RouteRow>, LedgerError> {
        ledger::routes::all(env).await
    }

    fn content(rows: Vec<RouteRow>) -> Table {
        Table::new(rows)
    }
}

/// The routes as this isolate last read them: seconds old, or the last known ones, or the copy in KV, while
/// the ledger is out. "Could not tell" is 503, never "nobody's".
pub async fn read(env: &Env, now: Millis) -> Result<Rc<Table>, ApiError> {
    let table = table::current::<InLedger>(env, now).await;
    table.map_err(|_| ApiError::Unavailable("routes"))
}

/// Makes this isolate read the routes again at the next call.
pub fn forget() {
    table::forget::<InLedger>();
}

/// Checks every rule of a route; the error names the field.
pub fn check(row: &RouteRow) -> Result<(), InvalidRoute> {
    Route::new(row.clone()).map(|_| ())
}

impl Table {
    /// The table of these rows. One that breaks a rule is left out and logged: its paths are 404.
    fn new(rows: Vec<RouteRow>) -> Self {
        let mut routes: Vec<_> = rows.into_iter().filter_map(valid).collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.as_str().len()));
        Self { routes }
    }

    /// The route with the longest prefix of this path. A path that only another case of letters would
    /// bring to a longer prefix is nobody's: a service that takes both for one must not be reached
    /// past that prefix's limits.
    pub fn find(&self, path: &Path) -> Option<Rc<Route>> {
        let in_any_case = self
            .routes
            .iter()
            .find(|r| r.prefix.covers_in_any_case(path))?;
        let longest = in_any_case.prefix.as_str().len();
        let exact = self
            .routes
            .iter()
            .find(|r| r.prefix.rest_of(path).is_some())?;
        (exact.prefix.as_str().len() == longest).then(|| exact.clone())
    }
}

fn valid(row: RouteRow) -> Option<Rc<Route>> {
    let id = row.route_id.clone();
    match Route::new(row) {
        Ok(route) => Some(Rc::new(route)),
        Err(reason) => {
            let line = json!({"event": "bad_route", "route": id, "reason": reason.to_string()});
            worker::console_error!("{line}");
            None
        }
    }
}

impl Route {
    fn new(row: RouteRow) -> Result<Self, InvalidRoute> {
        let prefix = Prefix::parse(&row.path_prefix).map_err(|e| invalid("path_prefix", e))?;
        let upstream = upstream(&row.upstream_url)?;
        for method in row.methods.iter().flatten() {
            if !METHODS.contains(&method.as_str()) {
                return Err(invalid(
                    "methods",
                    format!("takes only {}", METHODS.join(", ")),
                ));
            }
        }
        if let Some(name) = &row.endpoint {
            check_name("endpoint", name).map_err(|e| invalid("endpoint", e.reason))?;
        }
        if !(1..=MAX_COUNT).contains(&row.cost) {
            return Err(invalid("cost", "must be at least 1 and below 2^53"));
        }
        if !(1..=MAX_TIMEOUT.0).contains(&row.timeout_ms) {
            return Err(invalid(
                "timeout_ms",
                format!("must be 1 to {}", MAX_TIMEOUT.0),
            ));
        }
        Ok(Self {
            row,
            prefix,
            upstream,
        })
    }

    /// Whether calls of this method are forwarded. Whoever may `GET` may `HEAD`.
    pub fn takes(&self, method: &str) -> bool {
        METHODS.contains(&method) && self.methods().any(|own| own == method)
    }

    /// The value of `Allow`.
    pub fn allowed_methods(&self) -> String {
        self.methods().collect::<Vec<_>>().join(", ")
    }

    /// Where a call goes: the whole path is appended to a bare origin; to an address with a path of
    /// its own, only what lies below the prefix, so that the row says exactly what stands for what.
    pub fn target(&self, path: &Path, query: &str) -> String {
        let origin = self.upstream.origin().ascii_serialization();
        let base = self.upstream.path().trim_end_matches('/');
        let rest = self.prefix.rest_of(path).unwrap_or("");
        match base {
            "" => format!("{origin}{}{query}", path.as_str()),
            base => format!("{origin}{base}{rest}{query}"),
        }
    }

    /// Name of the plan's endpoint limit it counts against.
    pub fn endpoint(&self) -> Option<&str> {
        self.row.endpoint.as_deref()
    }

    /// How much of the limits one call takes.
    pub const fn cost(&self) -> u64 {
        self.row.cost
    }

    /// Time to the service's first byte, the sending of the body included.
    pub const fn timeout(&self) -> Span {
        Span(self.row.timeout_ms)
    }

    fn methods(&self) -> impl Iterator<Item = &'static str> {
        let own = self.row.methods.as_deref();
        METHODS.into_iter().filter(move |method| match own {
            None => true,
            Some(own) => {
                let listed = |name: &str| own.iter().any(|o| o == name);
                listed(method) || (*method == "HEAD" && listed("GET"))
            }
        })
    }
}

fn upstream(text: &str) -> Result<Url, InvalidRoute> {
    let field = "upstream_url";
    let url = Url::parse(text).map_err(|e| invalid(field, e))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid(field, "must be an http or https address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(field, "must not hold a credential"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid(field, "must not have a query or a fragment"));
    }
    Ok(url)
}

fn invalid(field: &'static str, reason: impl ToString) -> InvalidRoute {
    InvalidRoute {
        field,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(prefix: &str, upstream: &str) -> RouteRow {
        RouteRow {
            route_id: prefix.to_owned(),
            path_prefix: prefix.to_owned(),
            methods: None,
            upstream_url: upstream.to_owned(),
            endpoint: None,
            cost: 1,
            timeout_ms: 1_000,
            version: 1,
            updated_at: String::new(),
        }
    }

    fn table(prefixes: &[&str]) -> Table {
        Table::new(
            prefixes
                .iter()
                .map(|p| row(p, "https://service.example"))
                .collect(),
        )
    }

    fn found(table: &Table, path: &str) -> Option<String> {
        let path = Path::normalise(path).unwrap();
        table.find(&path).map(|route| route.row.route_id.clone())
    }

    #[test]
    fn the_longest_prefix_wins_in_whole_segments() {
        let table = table(&["/", "/reports", "/reports/big"]);
        for (path, route) in [
            ("/", "/"),
            ("/reports", "/reports"),
            ("/reports/", "/reports"),
            ("/reports/x", "/reports"),
            ("/reportsx", "/"),
            ("/reports/big", "/reports/big"),
            ("/reports/big/1", "/reports/big"),
            ("/reports/bigger", "/reports"),
        ] {
            assert_eq!(found(&table, path).as_deref(), Some(route), "{path}");
        }
    }

    #[test]
    fn another_case_never_slips_past_a_longer_prefix() {
        let table = table(&["/", "/reports", "/A", "/a"]);
        for path in ["/Reports", "/REPORTS/x"] {
            assert_eq!(found(&table, path), None, "{path}");
        }
        assert_eq!(found(&table, "/reports/X").as_deref(), Some("/reports"));
        assert_eq!(found(&table, "/A/1").as_deref(), Some("/A"));
        assert_eq!(found(&table, "/a/1").as_deref(), Some("/a"));
        assert_eq!(found(&self::table(&["/reports"]), "/Reports"), None);
    }

    #[test]
    fn whoever_may_get_may_head_and_nothing_else_comes_along() {
        let mut get = row("/r", "https://service.example");
        get.methods = Some(vec!["GET".to_owned()]);
        let get = Route::new(get).unwrap();
        assert_eq!(get.allowed_methods(), "GET, HEAD");
        let taken = METHODS.map(|method| get.takes(method));
        assert_eq!(taken, [true, true, false, false, false, false]);
        let any = Route::new(row("/r", "https://service.example")).unwrap();
        assert!(
            any.takes("PATCH")
                && !any.takes("TRACE")
                && !any.takes("PROPFIND")
                && !any.takes("get")
        );
    }

    #[test]
    fn a_bare_origin_takes_the_whole_path_and_an_address_with_a_path_what_is_below() {
        let target = |upstream: &str, path: &str, query: &str| {
            let route = Route::new(row("/reports", upstream)).unwrap();
            route.target(&Path::normalise(path).unwrap(), query)
        };
        let bare = "https://service.example:8443/reports/x?q=1";
        assert_eq!(
            target("https://service.example:8443", "/reports/x", "?q=1"),
            bare
        );
        assert_eq!(
            target("https://service.example:8443/", "/reports/x", "?q=1"),
            bare
        );
        let own = "https://service.example/internal/v2";
        assert_eq!(target(own, "/reports", ""), own);
        assert_eq!(target(own, "/reports/x/", "?a&b"), format!("{own}/x/?a&b"));
    }

    #[test]
    fn bad_rows_are_refused_by_field() {
        let with = |change: &dyn Fn(&mut RouteRow)| {
            let mut row = row("/r", "https://service.example");
            change(&mut row);
            check(&row).map_err(|e| e.field)
        };
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(
            with(&|r| r.path_prefix = "/v1/x".into()),
            Err("path_prefix")
        );
        for url in [
            "service.example",
            "ftp://x",
            "https://u:p@x",
            "https://x/?q",
            "https://x/#f",
        ] {
            assert_eq!(
                with(&|r| r.upstream_url = url.into()),
                Err("upstream_url"),
                "{url}"
            );
        }
        assert_eq!(
            with(&|r| r.methods = Some(vec!["OPTIONS".into()])),
            Err("methods")
        );
        assert_eq!(
            with(&|r| r.methods = Some(vec!["get".into()])),
            Err("methods")
        );
        assert_eq!(with(&|r| r.endpoint = Some("a b".into())), Err("endpoint"));
        assert_eq!(with(&|r| r.cost = 0), Err("cost"));
        assert_eq!(with(&|r| r.timeout_ms = 0), Err("timeout_ms"));
    }

    proptest! {
        #[test]
        fn a_call_never_leaves_its_service_or_its_place(raw in "/(/|%[0-9a-fA-F]{2}|[a-zA-Z.@:?#;\\\\|^ ]){0,12}", query in "(\\?[ -~]{0,8})?") {
            let raw = format!("/reports{raw}");
            if let Ok(path) = Path::normalise(&raw) {
                for upstream in ["https://service.example", "https://service.example/own"] {
                    let route = Route::new(row("/reports", upstream)).unwrap();
                    let sent = Url::parse(&route.target(&path, "")).unwrap();
                    prop_assert_eq!(sent.host_str(), Some("service.example"));
                    if !raw.contains(['?', '#']) {
                        let expected = if upstream.ends_with("own") { "/own" } else { "/reports" };
                        prop_assert!(sent.path().starts_with(expected), "{}", sent);
                        let queried = Url::parse(&route.target(&path, &query)).unwrap();
                        prop_assert_eq!(queried.path(), sent.path());
                    }
                }
            }
        }
    }
}
