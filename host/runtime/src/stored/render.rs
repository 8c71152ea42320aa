//! A stored value as people read it.

use cofferdam_dataflow::schema::{self, Schema};
use serde::Serialize;

use super::key::{hex, show_bytes};
use super::slot::SlotInfo;

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

/// Shows the values of one slot: knows its codec and, read once, its schema.
#[derive(Debug)]
pub struct Renderer {
    codec: String,
    /// `None` if there is none that can be read.
    schema: Option<Schema>,
}

impl Renderer {
    /// Returns what shows the values of a slot.
    pub fn new(info: &SlotInfo) -> Self {
        // Maps name the type of their entry keys first.
        let values = info.schema.split_once(" -> ").map_or(info.schema.as_str(), |(_, values)| values);
        Self { codec: info.codec.clone(), schema: Schema::parse(values).ok() }
    }

    /// Shows the bytes of a value. Never fails: bytes that do not fit are shown raw.
    pub fn render(&self, bytes: &[u8]) -> Rendered {
        match self.decode(bytes) {
            Some(value) => Rendered { value, decoded: true },
            None => Rendered { value: show_bytes(bytes).into(), decoded: false },
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<serde_json::Value> {
        if self.codec == "json" {
            return serde_json::from_slice(bytes).ok();
        }
        let value = schema::decode(self.schema.as_ref()?, &self.codec, bytes).ok()?;
        // Integers beyond 64 bits have no place in it.
        serde_json::to_value(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(codec: &str, schema: &str, bytes: &[u8]) -> Rendered {
        let text = |text: &str| text.to_owned();
        let (operator, slot, kind) = (text("o"), text("s"), text("value"));
        Renderer::new(&SlotInfo { operator, slot, kind, codec: text(codec), schema: text(schema), ttl_ms: 0 }).render(bytes)
    }

    #[test]
    fn values_are_decoded_or_shown_raw() {
        let json = rendered("json", "", b"{\"n\": 1}");
        assert_eq!((json.line().as_str(), json.raw(b"{}").as_deref()), ("{\"n\":1}", Some("hex:7b7d")));
        let broken = rendered("json", "", b"{");
        assert_eq!((broken.line().as_str(), broken.decoded), ("{", false));
        assert_eq!(rendered("postcard", "1 u64", &[0xff, 1]).line(), "255");
        assert_eq!(rendered("postcard", "String -> 1 (u8,bool)", &[7, 1]).line(), "[7,true]");
        assert_eq!(rendered("postcard", "1 u64", &[0xff]).line(), "hex:ff");
        assert_eq!(rendered("postcard", "u64", &[0xff, 1]).line(), "hex:ff01");
    }
}
