//! JSON as strict as its standard: one value, UTF-8, no key twice, no depth that endangers the stack.
//!
//! `serde_json` keeps the last of two equal keys without a word. Whoever checks the first and sends on the
//! last can be told one thing and do another, so a body with a key twice is no body at all.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use thiserror::Error;

/// Deepest nesting of arrays and objects that is read.
pub const MAX_DEPTH: usize = 64;

/// Most characters of a key that an error repeats.
const MAX_KEY: usize = 64;

/// Why a body is not JSON as this gateway reads it. Of the body, its text repeats a key's name at most.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonError {
    /// Some bytes are no UTF-8.
    #[error("The body is not valid UTF-8.")]
    NotUtf8,
    /// An object has the same key twice, at whatever depth.
    #[error("The key `{0}` is there twice.")]
    DuplicateKey(String),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("The body is nested deeper than {MAX_DEPTH} levels.")]
    TooDeep,
    /// Not JSON, or something after it.
    #[error("The body is not valid JSON (line {line}, column {column}).")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
}

/// The texts called `member` in the objects of the array called `list`; what is anything else is passed over.
pub fn texts<'a>(value: &'a Value, list: &str, member: &'a str) -> impl Iterator<Item = &'a str> {
    let rows = value.get(list).and_then(Value::as_array);
    let rows = rows.into_iter().flatten();
    rows.filter_map(move |row| row.get(member)?.as_str())
}

/// Reads one JSON value and nothing after it but white space.
pub fn parse_strict(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|_| JsonError::NotUtf8)?;
    let fault = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let seed = Strict {
        depth: 0,
        fault: &fault,
    };
    let read = seed
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| {
        fault.take().unwrap_or_else(|| JsonError::Syntax {
            line: error.line(),
            column: error.column(),
        })
    })
}

/// Reads one value; what `serde_json` has no error for is left in `fault`.
#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    fault: &'a RefCell<Option<JsonError>>,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.stop(JsonError::TooDeep));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }

    fn stop<E: serde::de::Error>(self, fault: JsonError) -> E {
        self.fault.replace(Some(fault));
        E::custom("refused")
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = serde_json::Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(seed)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match object.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(members.next_value_seed(seed)?);
                }
                Entry::Occupied(place) => {
                    let key = place.key().chars().take(MAX_KEY).collect();
                    return Err(self.stop(JsonError::DuplicateKey(key)));
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn error(text: &str) -> JsonError {
        parse_strict(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn what_is_valid_is_read_with_its_order_kept() {
        let text = r#" {"b":[1,-2,0.5,1e2],"a":{"x":null,"y":true},"ü":"\u00fc\n"} "#;
        let value = parse_strict(text.as_bytes()).unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"b":[1,-2,0.5,100.0],"a":{"x":null,"y":true},"ü":"ü\n"}"#
        );
    }

    #[test]
    fn a_key_twice_is_refused_at_any_depth_and_in_any_spelling() {
        for text in [
            r#"{"model":"a","model":"b"}"#,
            r#"{"x":[{"y":{"model":1,"z":2,"model":1}}]}"#,
            r#"{"model":1,"\u006dodel":2}"#,
        ] {
            assert_eq!(
                error(text),
                JsonError::DuplicateKey("model".to_owned()),
                "{text}"
            );
        }
        assert!(parse_strict(br#"{"a":{"k":1},"b":{"k":1}}"#).is_ok());
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "{} {}",
            "{}x",
            "NaN",
            "[Infinity]",
            "-",
            "01",
            "1.",
            "+1",
            "1e999",
            "'a'",
            "{a:1}",
            "[1,]",
            "{\"a\":1,}",
            "\"\n\"",
            "\"\\ud800\"",
            "\u{feff}{}",
            "nul",
            "/**/{}",
        ] {
            assert!(matches!(error(text), JsonError::Syntax { .. }), "{text:?}");
        }
        assert_eq!(parse_strict(b"\"\xff\"").unwrap_err(), JsonError::NotUtf8);
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse_strict(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(error(&nested(MAX_DEPTH + 1)), JsonError::TooDeep);
        assert_eq!(error(&"{\"a\":".repeat(100_000)), JsonError::TooDeep);
    }

    #[test]
    fn an_error_repeats_a_bounded_key_and_nothing_else() {
        let key = "k".repeat(5_000);
        let text = error(&format!("{{\"{key}\":\"secret\",\"{key}\":1}}")).to_string();
        assert!(text.len() < 128 && !text.contains("secret"), "{text}");
        assert!(
            !error(r#"{"password":"hunter2","#)
                .to_string()
                .contains("hunter2")
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_survives(value in any_json()) {
            prop_assert_eq!(parse_strict(value.to_string().as_bytes()), Ok(value));
        }

        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
            let _ = parse_strict(&bytes);
        }

        #[test]
        fn a_repeated_member_is_always_found(value in any_json(), key in any::<String>()) {
            let member = format!("{}:{value}", json!(key));
            let text = format!("[{{{member},{member}}}]");
            prop_assert!(matches!(error(&text), JsonError::DuplicateKey(_)));
        }
    }
}
