//! Lists that come in pages: `?limit=` and `?cursor=`, newest first.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use worker::Url;

use super::ApiError;

/// Items of a page nobody bounds.
const DEFAULT: u64 = 50;
/// Most items of a page.
const MOST: u64 = 200;

/// Which part of a list is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Most items of it.
    pub limit: u64,
    /// The item it comes after: when that was made, and its id.
    pub after: Option<(u64, String)>,
}

impl Page {
    /// The page that a URL asks for.
    pub fn of(url: &Url) -> Result<Self, ApiError> {
        let asked = |name: &str| {
            let pair = url.query_pairs().find(|(key, _)| key == name);
            pair.map(|(_, value)| value.into_owned())
        };
        let limit = match asked("limit").map(|text| text.parse::<u64>()) {
            None => DEFAULT,
            Some(Ok(limit)) if (1..=MOST).contains(&limit) => limit,
            Some(_) => {
                let words = format!("`limit` must be an integer from 1 to {MOST}.");
                return Err(ApiError::invalid_field("limit", words));
            }
        };
        let after = match asked("cursor").filter(|cursor| !cursor.is_empty()) {
            None => None,
            Some(cursor) => Some(read_cursor(&cursor).ok_or_else(|| {
                ApiError::invalid_field("cursor", "`cursor` must be a `next_cursor` of this list.")
            })?),
        };
        Ok(Self { limit, after })
    }

    /// The id of the item it comes after, for lists in the order of their ids.
    pub fn after_id(&self) -> Option<&str> {
        self.after.as_ref().map(|(_, id)| id.as_str())
    }

    /// How many rows to read: one more than the page has, to learn whether another follows.
    pub const fn fetch(&self) -> u64 {
        self.limit.saturating_add(1)
    }

    /// The answer for the rows read.
    pub fn answer<T>(
        &self,
        mut rows: Vec<T>,
        key: impl Fn(&T) -> (u64, &str),
        json: impl Fn(&T) -> Value,
    ) -> Value {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more);
        let next = last.map(|row| {
            let (at, id) = key(row);
            URL_SAFE_NO_PAD.encode(format!("{at}:{id}"))
        });
        json!({"data": rows.iter().map(json).collect::<Vec<_>>(), "next_cursor": next})
    }
}

fn read_cursor(cursor: &str) -> Option<(u64, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (at, id) = text.split_once(':')?;
    Some((at.parse().ok()?, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Result<Page, ApiError> {
        Page::of(&Url::parse(&format!("https://x/list{query}")).unwrap())
    }

    #[test]
    fn bounds() {
        assert_eq!(of("").unwrap().limit, 50);
        assert_eq!(of("?limit=200").unwrap().limit, 200);
        for bad in [
            "?limit=0",
            "?limit=201",
            "?limit=x",
            "?limit=-1",
            "?cursor=!",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cursor_leads_to_the_next_page_and_the_last_has_none() {
        let page = of("?limit=2").unwrap();
        let rows = vec![(3u64, "c"), (2, "b"), (1, "a")];
        let answer = page.answer(rows, |r| (r.0, r.1), |r| json!(r.1));
        assert_eq!(answer["data"], json!(["c", "b"]));
        let cursor = answer["next_cursor"].as_str().unwrap();
        assert_eq!(
            of(&format!("?cursor={cursor}")).unwrap().after,
            Some((2, "b".to_owned()))
        );
        let last = page.answer(vec![(1u64, "a")], |r| (r.0, r.1), |r| json!(r.1));
        assert_eq!(last["next_cursor"], Value::Null);
    }
}
