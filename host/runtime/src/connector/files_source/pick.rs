//! Picks key, event time and watermark out of a JSON text in one pass that also checks it, without building a value.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON pointer (RFC 6901) below the root, such as `/user/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    text: String,
    tokens: Vec<String>,
}

/// A text that is no JSON pointer below the root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a field: use a JSON pointer such as \"/user\" or \"/order/id\", with ~1 for / and ~0 for ~ in names")]
pub struct InvalidPointer(pub String);

impl FromStr for JsonPointer {
    type Err = InvalidPointer;

    fn from_str(text: &str) -> Result<Self, InvalidPointer> {
        let invalid = || InvalidPointer(text.to_owned());
        let path = text.strip_prefix('/').ok_or_else(invalid)?;
        let token = |token: &str| {
            let bare = token.replace("~0", "").replace("~1", "");
            if bare.contains('~') { Err(invalid()) } else { Ok(token.replace("~1", "/").replace("~0", "~")) }
        };
        let tokens = path.split('/').map(token).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), tokens })
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for JsonPointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonPointer {
    /// Returns the unescaped names on the way from the root, at least one.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Whether one of the two lies within the other.
    pub(super) fn nests_with(&self, other: &Self) -> bool {
        self.tokens.len() != other.tokens.len() && self.tokens.iter().zip(&other.tokens).all(|(a, b)| a == b)
    }
}

/// One of the things to pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Key = 0,
    Time = 1,
    Watermark = 2,
}

/// What was found: each slot's JSON text, if it was there.
type Found<'de> = [Option<&'de str>; 3];

/// The fields to pick, as a tree: what the paths share is walked once.
#[derive(Clone, Debug, Default)]
pub(super) struct Picker {
    root: Node,
}

#[derive(Clone, Debug, Default)]
struct Node {
    token: String,
    /// The token as a position in an array.
    index: Option<usize>,
    slots: Vec<Slot>,
    children: Vec<Node>,
}

impl Picker {
    /// Adds a field. None may lie within another.
    pub(super) fn add(&mut self, slot: Slot, pointer: &JsonPointer) {
        let mut node = &mut self.root;
        for token in &pointer.tokens {
            let child = node.children.iter().position(|child| child.token == *token).unwrap_or_else(|| {
                let index = token.parse().ok().filter(|_| token == "0" || !token.starts_with(['0', '+']));
                node.children.push(Node { token: token.clone(), index, ..Node::default() });
                node.children.len() - 1
            });
            node = &mut node.children[child];
        }
        node.slots.push(slot);
    }

    /// Checks a whole JSON text and returns what was found in it. Of a repeated name, the last counts.
    pub(super) fn pick<'de>(&self, text: &'de str) -> Result<Found<'de>, serde_json::Error> {
        let mut found = Found::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        if self.root.children.is_empty() {
            IgnoredAny::deserialize(&mut deserializer)?;
        } else {
            Pick { node: &self.root, found: &mut found }.deserialize(&mut deserializer)?;
        }
        deserializer.end()?;
        Ok(found)
    }
}

struct Pick<'a, 'de> {
    node: &'a Node,
    found: &'a mut Found<'de>,
}

impl<'de> DeserializeSeed<'de> for Pick<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.node.children.is_empty() {
            return deserializer.deserialize_any(self);
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        for slot in &self.node.slots {
            self.found[*slot as usize] = Some(text);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Pick<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Name(&self.node.children))? {
            match child {
                Some(node) => map.next_value_seed(Pick { node, found: &mut *self.found })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let more = match self.node.children.iter().find(|child| child.index == Some(index)) {
                Some(node) => items.next_element_seed(Pick { node, found: &mut *self.found })?.is_some(),
                None => items.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads a name as the child that it leads to.
struct Name<'a>(&'a [Node]);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<&'a Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<&'a Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|child| child.token == name))
    }
}

/// Writes a scalar's bytes to `out`: a string's content, or the JSON text of a number, `true` or `false`.
///
/// # Errors
/// What it is instead.
pub(super) fn scalar(text: &str, out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.clear();
    match text.as_bytes() {
        [b'"', content @ .., b'"'] if !content.contains(&b'\\') => out.extend_from_slice(content),
        [b'"', ..] => {
            let content: String = serde_json::from_str(text).map_err(|_| "is a string with a broken escape")?;
            out.extend_from_slice(content.as_bytes());
        }
        [b'{', ..] => return Err("is an object"),
        [b'[', ..] => return Err("is an array"),
        b"null" => return Err("is null"),
        number => out.extend_from_slice(number),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick<'a>(key: &str, time: &str, text: &'a str) -> Result<Found<'a>, String> {
        let mut picker = Picker::default();
        picker.add(Slot::Key, &key.parse().unwrap());
        picker.add(Slot::Time, &time.parse().unwrap());
        picker.pick(text).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_are_found_at_any_depth_and_order() {
        let text = r#"{"x":[1,{"b":2}],"a":{"n":null,"t":17,"k":"é\n"},"t":0}"#;
        assert_eq!(pick("/a/k", "/a/t", text), Ok([Some(r#""é\n""#), Some("17"), None]));
        assert_eq!(pick("/x/1/b", "/x/0", text), Ok([Some("2"), Some("1"), None]));
        assert_eq!(pick("/x/9", "/a/t/z", text), Ok([None, None, None]));
        assert_eq!(pick("/a", "/x", text), Ok([Some(r#"{"n":null,"t":17,"k":"é\n"}"#), Some(r#"[1,{"b":2}]"#), None]));
        assert_eq!(pick("/~1a~0", "/t", r#"{"/a~":1.50,"t":"x"}"#), Ok([Some("1.50"), Some("\"x\""), None]));
    }

    #[test]
    fn the_same_field_may_be_both_and_the_last_of_a_name_counts() {
        assert_eq!(pick("/t", "/t", r#"{"t":1,"t":2}"#), Ok([Some("2"), Some("2"), None]));
    }

    #[test]
    fn the_whole_text_is_checked_even_behind_what_was_looked_for() {
        for text in [r#"{"a":1,"t":2"#, r#"{"a":1,"t":2}}"#, r#"{"a":1,"t":2,"z":tru}"#, "", r#"{"a":1,}"#] {
            assert!(pick("/a", "/t", text).is_err(), "{text}");
        }
        assert!(Picker::default().pick("[1,2] 3").is_err());
        assert!(Picker::default().pick("[1,2] ").is_ok());
    }

    #[test]
    fn deep_nesting_is_no_stack_overflow() {
        let deep = format!("{{\"z\":{}1{},\"a\":1,\"t\":2}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(pick("/a", "/t", &deep), Ok([Some("1"), Some("2"), None]));
    }

    #[test]
    fn pointers_are_checked() {
        for wrong in ["", "a", "a/b", "/~2", "/a~"] {
            assert_eq!(wrong.parse::<JsonPointer>(), Err(InvalidPointer(wrong.to_owned())), "{wrong}");
        }
        let pointer = |text: &str| text.parse::<JsonPointer>().unwrap();
        assert_eq!(pointer("/a~1b/~0/").tokens(), ["a/b", "~", ""]);
        assert!(pointer("/a").nests_with(&pointer("/a/b")) && pointer("/a/b").nests_with(&pointer("/a")));
        assert!(!pointer("/a").nests_with(&pointer("/a")) && !pointer("/a/b").nests_with(&pointer("/b")));
    }

    #[test]
    fn scalars_are_bytes_and_nothing_else_is() {
        let mut out = Vec::new();
        for (text, want) in [("\"x\"", "x"), ("\"\\u00e9\\n\"", "é\n"), ("\"\"", ""), ("1.50", "1.50"), ("true", "true")] {
            assert_eq!(scalar(text, &mut out), Ok(()));
            assert_eq!(out, want.as_bytes());
        }
        assert_eq!(scalar("null", &mut out), Err("is null"));
        assert_eq!(scalar("[1]", &mut out), Err("is an array"));
        assert_eq!(scalar(r#""\ud800""#, &mut out), Err("is a string with a broken escape"));
    }
}
