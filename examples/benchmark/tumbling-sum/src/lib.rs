//! Benchmark operator: sums of each key in windows of ten seconds of event time.

use std::time::Duration;

use cofferdam_guest::prelude::*;

/// Adds up the first four bytes of the records of each key and window, and emits each window's start and sum.
pub struct TumblingSum {
    sums: Windows<Sum>,
}

/// A sum of numbers of 32 bits.
pub struct Sum;

impl Aggregate for Sum {
    type Input = u32;
    type Accumulator = u64;
    type Output = u64;

    fn add(sum: &mut u64, input: u32) {
        *sum += u64::from(input);
    }

    fn result(sum: &u64) -> u64 {
        *sum
    }

    fn merge(sum: &mut u64, other: u64) {
        *sum += other;
    }
}

impl TumblingSum {
    fn emit(fired: Fired<u64>, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut row = [0; 16];
        row[..8].copy_from_slice(&fired.window.start_ms().to_le_bytes());
        row[8..].copy_from_slice(&fired.result.to_le_bytes());
        cx.emit_bytes(row)
    }
}

impl Operator for TumblingSum {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { sums: declare.windows("sums").with(&Windowing::tumbling(Duration::from_secs(10))) }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let first: [u8; 4] = record.bytes().get(..4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        self.sums.add(cx, u32::from_le_bytes(first), Self::emit)?.or_drop();
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.sums.on_timer(timer, cx, Self::emit)?;
        Ok(())
    }
}

export!(TumblingSum);
