//! The models that the default provider says it has. Only lists need it: a call of whatever name is sent there.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value;

use super::upstream;
use crate::budget;
use crate::http::fetch;
use crate::http::router::Call;
use crate::json;
use crate::limits::{Millis, Span};

/// How long a list is believed, and how long one that could not be had is not asked for again.
const BELIEVED: Span = Span::minutes(5);
const PAUSE: Span = Span::seconds(10);
/// Most models of a list, and most bytes of a name.
const MOST_MODELS: usize = 1_000;
const MAX_NAME: usize = 256;

#[derive(Default)]
struct Catalog {
    names: Rc<Vec<String>>,
    ask_after: Millis,
}

thread_local! {
    static CATALOG: RefCell<Catalog> = RefCell::new(Catalog::default());
}

/// The names; while the provider can't be asked, the last that were known. None without a default provider.
pub async fn names(call: &Call) -> Rc<Vec<String>> {
    let Some((url, authorization)) = upstream::models_of_default(&call.settings) else {
        return Rc::default();
    };
    let (known, ask_after) =
        CATALOG.with_borrow(|catalog| (catalog.names.clone(), catalog.ask_after));
    let wait = ask_after.since(call.now);
    if wait > Span::ZERO && wait <= BELIEVED {
        return known;
    }
    CATALOG.with_borrow_mut(|catalog| catalog.ask_after = call.now.plus(PAUSE));
    let authorization = authorization.as_deref();
    let headers: Vec<_> = authorization
        .map(|value| ("authorization", value))
        .into_iter()
        .collect();
    let Ok(list) = fetch::json(&url, &headers, budget::CATALOG).await else {
        return known;
    };
    let names = Rc::new(read(&list));
    CATALOG.with_borrow_mut(|catalog| {
        catalog.names = names.clone();
        catalog.ask_after = call.now.plus(BELIEVED);
    });
    names
}

/// What is no list of models has none.
fn read(list: &Value) -> Vec<String> {
    json::texts(list, "data", "id")
        .filter(|name| (1..=MAX_NAME).contains(&name.len()) && !name.contains(char::is_control))
        .take(MOST_MODELS)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_read_and_nothing_else() {
        let list = json!({"data": [{"id": "a"}, {"id": 7}, {}, "b", {"id": ""}, {"id": "c\n"}, {"id": "d/e"}]});
        assert_eq!(read(&list), ["a", "d/e"]);
        assert!(read(&json!([])).is_empty());
        let many = json!({"data": vec![json!({"id": "m"}); MOST_MODELS + 1]});
        assert_eq!(read(&many).len(), MOST_MODELS);
    }
}
