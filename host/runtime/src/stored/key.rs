//! Keys and raw values as people write them.

use std::fmt::Write as _;

/// A text that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a key: {expected}")]
pub struct InvalidKey {
    /// What was given.
    pub text: String,
    /// What it should have been.
    pub expected: &'static str,
}

const PREFIXES: [&str; 5] = ["text:", "hex:", "u64:", "i64:", "json:"];

/// Reads the bytes of a key: `hex:00ff`, `u64:7` and `i64:-7` (8 bytes, the lowest first), `json:"a"` (the JSON text without white space),
/// `text:...`; anything else is its own UTF-8 bytes.
///
/// # Errors
/// [`InvalidKey`] if what follows the prefix is not what the prefix says.
pub fn parse_key(text: &str) -> Result<Vec<u8>, InvalidKey> {
    let invalid = |expected| InvalidKey { text: text.to_owned(), expected };
    if let Some(plain) = text.strip_prefix("text:") {
        return Ok(plain.as_bytes().to_vec());
    }
    if let Some(digits) = text.strip_prefix("hex:") {
        return from_hex(digits).ok_or_else(|| invalid("\"hex:\" is followed by pairs of the digits 0-9 and a-f"));
    }
    if let Some(number) = text.strip_prefix("u64:") {
        let number: u64 = number.parse().map_err(|_| invalid("\"u64:\" is followed by a number of 0 to 2^64 - 1"))?;
        return Ok(number.to_le_bytes().to_vec());
    }
    if let Some(number) = text.strip_prefix("i64:") {
        let number: i64 = number.parse().map_err(|_| invalid("\"i64:\" is followed by a number of -2^63 to 2^63 - 1"))?;
        return Ok(number.to_le_bytes().to_vec());
    }
    if let Some(json) = text.strip_prefix("json:") {
        serde_json::from_str::<serde::de::IgnoredAny>(json).map_err(|_| invalid("\"json:\" is followed by a JSON value"))?;
        return Ok(compact(json).into_bytes());
    }
    Ok(text.as_bytes().to_vec())
}

/// Shows bytes in the way that [`parse_key`] reads back: printable text as it is, anything else as `hex:`.
pub fn show_bytes(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        // What cannot be printed could draw on a terminal; what begins as a prefix would be read as one.
        Ok(text) if !text.chars().any(is_hidden) && !PREFIXES.iter().any(|prefix| text.starts_with(prefix)) => text.to_owned(),
        _ => hex(bytes),
    }
}

/// Whether a character is a control or changes how others are shown.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("hex:".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits
        .bytes()
        .map(|digit| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Drops the white space between the tokens of a JSON text, in the order in which they stand.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |c: &char| {
        let is_content = in_string || !c.is_ascii_whitespace();
        match (*c, escaped) {
            ('"', false) => in_string = !in_string,
            ('\\', false) if in_string => {
                escaped = true;
                return is_content;
            }
            _ => {}
        }
        escaped = false;
        is_content
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_written_in_five_ways() {
        let parse = |text| parse_key(text).unwrap();
        assert_eq!(parse("ann"), b"ann");
        assert_eq!(parse(""), b"");
        assert_eq!(parse("text:hex:00"), b"hex:00");
        assert_eq!(parse("hex:00Ff"), [0, 255]);
        assert_eq!(parse("u64:258"), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse("i64:-1"), [255; 8]);
        assert_eq!(parse(r#"json:{ "b": "x \" y", "a" : [1, 2] }"#), br#"{"b":"x \" y","a":[1,2]}"#);
        for wrong in ["hex:0", "hex:0g", "hex:é", "u64:-1", "u64:", "i64:x", "json:{", "json:"] {
            let error = parse_key(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("is followed by"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_cannot_draw_on_a_terminal() {
        assert_eq!(show_bytes("käse".as_bytes()), "käse");
        assert_eq!(show_bytes(b"a\x1b[31m"), "hex:611b5b33316d");
        assert_eq!(show_bytes("a\u{202e}b".as_bytes()), "hex:61e280ae62");
        assert_eq!(show_bytes(&[0xff]), "hex:ff");
        assert_eq!(show_bytes(b"u64:1"), "hex:7536343a31");
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20),
            "(hex:|u64:|json:|text:)?[ -~]{0,9}".prop_map(String::into_bytes),
        ]) {
            prop_assert_eq!(parse_key(&show_bytes(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn compact_json_is_what_a_parser_reads(json in "[ \\[\\]{}:,\"a1\\\\n]{0,12}") {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&json) {
                let compact = compact(&json);
                prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&compact).unwrap(), value.clone());
                if !value.is_object() && !value.is_array() && !json.contains('\\') {
                    prop_assert_eq!(compact, value.to_string());
                }
            }
        }
    }
}
