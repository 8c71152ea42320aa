//! Reads one table of a pipeline file key by key, collecting what is wrong instead of stopping at the first error.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Problems, nearest};
use super::value;

/// A table with its known keys.
pub(super) struct Section<'t, 'i> {
    table: &'t DeTable<'i>,
    /// As messages name it, such as `[checkpoint]` or `[operator.count]`.
    name: String,
    /// The header or the value itself: where a missing key is reported.
    pub(super) span: Range<usize>,
    keys: &'static [&'static str],
    /// Whether the table also has keys that someone else reads.
    foreign_keys: bool,
}

/// A value with the place it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

impl<'t, 'i> Section<'t, 'i> {
    /// Opens a table and reports the keys it should not have.
    pub(super) fn open(
        name: impl Into<String>,
        table: &'t DeTable<'i>,
        span: Range<usize>,
        keys: &'static [&'static str],
        problems: &mut Problems,
    ) -> Self {
        let section = Self { table, name: name.into(), span, keys, foreign_keys: false };
        for key in table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref())) {
            section.unknown(key, problems);
        }
        section
    }

    /// Opens a table that also has keys which someone else reads.
    pub(super) fn open_unchecked(
        name: impl Into<String>,
        table: &'t DeTable<'i>,
        span: Range<usize>,
        keys: &'static [&'static str],
    ) -> Self {
        Self { table, name: name.into(), span, keys, foreign_keys: true }
    }

    fn unknown(&self, key: &Spanned<std::borrow::Cow<'i, str>>, problems: &mut Problems) {
        let word = key.get_ref();
        let help = match nearest(word, self.keys.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("the keys here are {}", self.keys.join(", ")),
        };
        problems.add_with_help(key.span(), "unknown-key", format!("unknown key \"{word}\" in {}", self.name), help);
    }

    /// Returns a key's value.
    pub(super) fn get(&self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        debug_assert!(self.keys.contains(&key), "{key} is read but not listed as a key of {}", self.name);
        self.table.get(key)
    }

    /// Returns where a key is written, or the section if it is not.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.table.get_key_value(key).map_or_else(|| self.span.clone(), |(key, _)| key.span())
    }

    /// Returns where a value is written, or the section if it is not.
    pub(super) fn value_span(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// Reports a key that must be there. A misspelt one is reported as such, in tables whose unknown keys are someone
    /// else's.
    pub(super) fn missing(&self, key: &str, expected: &str, problems: &mut Problems) {
        let strange = self.table.keys().filter(|other| !self.keys.contains(&other.get_ref().as_ref()));
        let mut misspelt = strange.filter(|other| nearest(other.get_ref(), [key]).is_some());
        if let Some(misspelt) = misspelt.next() {
            if self.foreign_keys {
                self.unknown(misspelt, problems);
            }
            return;
        }
        let message = format!("{} lacks the key \"{key}\"", self.name);
        problems.add_with_help(self.span.clone(), "missing-key", message, format!("expected {expected}"));
    }

    fn wrong_type(&self, key: &str, found: &Spanned<DeValue<'_>>, expected: &str, problems: &mut Problems) {
        let message = format!("\"{key}\" is {}, expected {expected}", described(found.get_ref()));
        problems.add(found.span(), "wrong-type", message);
    }

    fn bad_value(&self, key: &str, found: &Spanned<DeValue<'_>>, expected: &str, problems: &mut Problems) {
        let message = format!("\"{key}\" is {}, expected {expected}", described(found.get_ref()));
        problems.add(found.span(), "bad-value", message);
    }

    /// Reads a string.
    pub(super) fn string(&self, key: &'static str, expected: &str, problems: &mut Problems) -> Option<At<String>> {
        let found = self.get(key)?;
        match found.get_ref() {
            DeValue::String(text) => Some(At { value: text.to_string(), span: found.span() }),
            _ => {
                self.wrong_type(key, found, expected, problems);
                None
            }
        }
    }

    /// Reads an integer within bounds.
    pub(super) fn integer(&self, key: &'static str, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let found = self.get(key)?;
        let expected = format!("a number from {} to {}", range.start(), range.end());
        match found.get_ref() {
            DeValue::Integer(number) => {
                let number = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| range.contains(number));
                self.within(key, found, number, &expected, problems)
            }
            _ => {
                self.wrong_type(key, found, &expected, problems);
                None
            }
        }
    }

    fn within(
        &self,
        key: &str,
        found: &Spanned<DeValue<'_>>,
        value: Option<u64>,
        expected: &str,
        problems: &mut Problems,
    ) -> Option<u64> {
        if value.is_none() {
            let message = format!("\"{key}\" is {}, expected {expected}", described(found.get_ref()));
            problems.add(found.span(), "out-of-range", message);
        }
        value
    }

    /// Reads a number that may have a fraction, within bounds.
    pub(super) fn float(&self, key: &'static str, range: RangeInclusive<f64>, problems: &mut Problems) -> Option<f64> {
        let found = self.get(key)?;
        let expected = format!("a number from {} to {}", range.start(), range.end());
        let number = match found.get_ref() {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => {
                self.wrong_type(key, found, &expected, problems);
                return None;
            }
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            problems.add(
                found.span(),
                "out-of-range",
                format!("\"{key}\" is {}, expected {expected}", described(found.get_ref())),
            );
        }
        number
    }

    /// Reads a duration in milliseconds, within bounds.
    pub(super) fn duration_ms(&self, key: &'static str, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let found = self.get(key)?;
        let DeValue::String(text) = found.get_ref() else {
            self.wrong_type(key, found, "a duration such as \"500ms\", \"10s\" or \"1h 30m\"", problems);
            return None;
        };
        match value::parse_duration_ms(text) {
            Ok(ms) => {
                let (least, most) = (value::format_duration_ms(*range.start()), value::format_duration_ms(*range.end()));
                let expected = format!("{least} to {most}");
                self.within(key, found, Some(ms).filter(|ms| range.contains(ms)), &expected, problems)
            }
            Err(expected) => {
                self.bad_value(key, found, &expected, problems);
                None
            }
        }
    }

    /// Reads a size in bytes, within bounds.
    pub(super) fn bytes(&self, key: &'static str, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let expected = format!("{} to {}", value::format_bytes(*range.start()), value::format_bytes(*range.end()));
        self.quantity(key, range, value::parse_bytes, &expected, problems)
    }

    /// Reads a count such as `10M`, within bounds.
    pub(super) fn count(&self, key: &'static str, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let expected = format!("{} to {}", value::format_count(*range.start()), value::format_count(*range.end()));
        self.quantity(key, range, value::parse_count, &expected, problems)
    }

    fn quantity(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
        parse: fn(&str) -> Result<u64, String>,
        expected: &str,
        problems: &mut Problems,
    ) -> Option<u64> {
        let found = self.get(key)?;
        let parsed = match found.get_ref() {
            DeValue::String(text) => parse(text),
            DeValue::Integer(number) => {
                let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
                return self.within(key, found, number.filter(|number| range.contains(number)), expected, problems);
            }
            _ => {
                let expected = parse("?").err().unwrap_or_default();
                self.wrong_type(key, found, &expected, problems);
                return None;
            }
        };
        match parsed {
            Ok(number) => self.within(key, found, Some(number).filter(|number| range.contains(number)), expected, problems),
            Err(expected) => {
                self.bad_value(key, found, &expected, problems);
                None
            }
        }
    }

    /// Reads one of several words.
    pub(super) fn word(&self, key: &'static str, words: &[&'static str], problems: &mut Problems) -> Option<At<&'static str>> {
        let expected = format!("one of {}", words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", "));
        let found = self.string(key, &expected, problems)?;
        match words.iter().find(|word| **word == found.value) {
            Some(word) => Some(At { value: word, span: found.span }),
            None => {
                let message = format!("\"{key}\" is \"{}\", expected {expected}", found.value.escape_debug());
                match nearest(&found.value, words.iter().copied()) {
                    Some(meant) => problems.add_with_help(found.span, "bad-value", message, format!("did you mean \"{meant}\"?")),
                    None => problems.add(found.span, "bad-value", message),
                }
                None
            }
        }
    }

    /// Reads a table.
    pub(super) fn table(
        &self,
        key: &'static str,
        expected: &str,
        problems: &mut Problems,
    ) -> Option<(&'t DeTable<'i>, Range<usize>)> {
        let found = self.get(key)?;
        match found.get_ref() {
            DeValue::Table(table) => Some((table, self.header_span(key))),
            _ => {
                self.wrong_type(key, found, expected, problems);
                None
            }
        }
    }

    /// Returns the place of a table: its name, as the value of a `[header]` has no place of its own.
    fn header_span(&self, key: &str) -> Range<usize> {
        self.key_span(key)
    }

    /// Reads a table of tables, in the order of the file: `[operator.a]`, `[operator.b]`.
    pub(super) fn tables(&self, key: &'static str, problems: &mut Problems) -> Vec<(At<String>, &'t DeTable<'i>)> {
        let Some((outer, _)) = self.table(key, &format!("tables such as [{key}.name]"), problems) else { return Vec::new() };
        // By position: the table itself is ordered by name.
        let mut tables = BTreeMap::new();
        for (name, found) in outer.iter() {
            match found.get_ref() {
                DeValue::Table(table) => {
                    tables.insert(name.span().start, (At { value: name.get_ref().to_string(), span: name.span() }, table));
                }
                _ => self.wrong_type(name.get_ref(), found, &format!("a table, as in [{key}.{}]", name.get_ref()), problems),
            }
        }
        tables.into_values().collect()
    }
}

/// Returns a value as messages show it: scalars in full (if short), the others by type.
pub(super) fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() <= 64 => format!("\"{}\"", text.escape_debug()),
        DeValue::Integer(number) if number.radix() == 10 && number.as_str().len() <= 40 => {
            format!("the number {}", number.as_str())
        }
        DeValue::Float(number) if number.as_str().len() <= 40 => format!("the number {}", number.as_str()),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Integer(_) => "an integer".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        other => format!("a {}", other.type_str()),
    }
}
