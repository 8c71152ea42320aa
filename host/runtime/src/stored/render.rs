//! A stored value as people read it.

use serde::Serialize;

use super::key::{hex, show_bytes};

/// A value, shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rendered {
    /// Decoded where codec and schema allow it; else text if all of it can be printed, else `hex:...`.
    pub value: serde_json::Value,
    /// Whether it is decoded. If not, the text stands for the bytes and reads back as them.
    pub decoded: bool,
}

impl Rendered {
    /// Returns it on one line.
    pub fn line(&self) -> String {
        match &self.value {
            serde_json::Value::String(text) if !self.decoded => text.clone(),
            value => value.to_string(),
        }
    }

    /// Returns all bytes of what was decoded, for what JSON cannot say.
    pub fn raw(&self, bytes: &[u8]) -> Option<String> {
        self.decoded.then(|| hex(bytes))
    }
}

/// Shows the bytes of a value of a slot with this codec and schema. Never fails: bytes that do not fit are shown raw.
pub fn render(codec: &str, schema: &str, bytes: &[u8]) -> Rendered {
    match decode(codec, schema, bytes) {
        Some(value) => Rendered { value, decoded: true },
        None => Rendered { value: show_bytes(bytes).into(), decoded: false },
    }
}

/// Decodes what this host understands: text and JSON need no schema.
fn decode(codec: &str, _schema: &str, bytes: &[u8]) -> Option<serde_json::Value> {
    match codec {
        "json" => serde_json::from_slice(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_or_shown_raw() {
        let json = render("json", "", b"{\"n\": 1}");
        assert_eq!((json.line().as_str(), json.raw(b"{}").as_deref()), ("{\"n\":1}", Some("hex:7b7d")));
        let broken = render("json", "", b"{");
        assert_eq!((broken.line().as_str(), broken.decoded), ("{", false));
        assert_eq!(render("postcard", "u64", &[0xff, 1]).line(), "hex:ff01");
    }
}
