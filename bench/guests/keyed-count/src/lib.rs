//! Benchmark operator: count and sum for each key, as in the interface's first measurements.

use cofferdam_guest::prelude::*;

/// Counts the records of each key and adds up the first four bytes of each.
pub struct KeyedCount {
    state: Value<(u64, u64), Fixed>,
    emit: bool,
}

/// The operator's configuration.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Emit the running count and sum, 16 bytes, for each record.
    emit: bool,
}

impl Operator for KeyedCount {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        Self { state: declare.value("count-sum"), emit: false }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.emit = config.emit;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let first: [u8; 4] = record.bytes().get(..4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        let (count, sum) = self.state.update(cx, |(count, sum)| {
            *count += 1;
            *sum += u64::from(u32::from_le_bytes(first));
            (*count, *sum)
        })?;
        if self.emit {
            let mut row = [0; 16];
            row[..8].copy_from_slice(&count.to_le_bytes());
            row[8..].copy_from_slice(&sum.to_le_bytes());
            cx.emit_bytes(row)?;
        }
        Ok(())
    }
}

export!(KeyedCount);
