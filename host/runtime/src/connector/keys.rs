//! The keys of a connector's options, asked of the parser itself, so that no second list can fall behind.

use std::fmt;

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Returns the keys that options of this type may have, in the order of their declaration.
pub(super) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(Questioner) {
        Err(Answer(keys)) => keys,
        Ok(_) => &[],
    }
}

/// A deserializer without a value: it answers a struct with an error that holds the struct's keys.
struct Questioner;

#[derive(Debug)]
struct Answer(&'static [&'static str]);

impl<'de> Deserializer<'de> for Questioner {
    type Error = Answer;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(keys))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Err(Answer(&[]))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the keys are {}", self.0.join(", "))
    }
}

impl std::error::Error for Answer {}

impl de::Error for Answer {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_the_parser_reads() {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        #[expect(dead_code, reason = "only its keys count")]
        struct Options {
            first_key: u32,
            second: Option<String>,
        }
        #[derive(serde::Deserialize)]
        struct Empty {}
        assert_eq!(keys_of::<Options>(), ["first-key", "second"]);
        assert_eq!(keys_of::<Empty>(), [""; 0]);
        assert_eq!(keys_of::<u32>(), [""; 0]);
    }
}
