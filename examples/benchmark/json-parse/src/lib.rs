//! Benchmark operator: reads two fields of a JSON line and re-keys the record by one of them.

use cofferdam_guest::prelude::*;

/// Emits the amount of each line under its key.
pub struct JsonParse;

#[derive(serde::Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    key: std::borrow::Cow<'a, str>,
    amount: u32,
}

impl Operator for JsonParse {
    type Config = NoConfig;

    fn declare(_: &mut Declare) -> Self {
        Self
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let line: Line<'_> = record.json()?;
        cx.out().key(line.key.as_bytes()).send_bytes(line.amount.to_le_bytes())
    }
}

export!(JsonParse);
