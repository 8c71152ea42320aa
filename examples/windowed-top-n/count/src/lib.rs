//! Counts each word in windows of event time, and emits the count when the window has ended, under the window's key.

use std::time::Duration;

use cofferdam_guest::prelude::*;
use serde::Deserialize;

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How long a window is.
    window_ms: u64,
}

/// The operator. Windows count their records by themselves.
pub struct Count {
    words: Windows<Nothing>,
}

/// What is kept of a word beside its number.
pub struct Nothing;

impl Aggregate for Nothing {
    type Input = ();
    type Accumulator = ();
    type Output = ();

    fn add((): &mut (), (): ()) {}
    fn result((): &()) {}
    fn merge((): &mut (), (): ()) {}
}

fn emit(fired: Fired<()>, cx: &mut Context<'_>) -> Result<(), Error> {
    let word = cx.key_text()?;
    let window = fired.window.start_ms().to_string();
    cx.out().key(&window).send(&(fired.records, word))
}

impl Operator for Count {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        Count { words: declare.windows("words") }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.words.configure(&Windowing::tumbling(Duration::from_millis(config.window_ms)))
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        self.words.add(cx, (), emit)?.or_drop();
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.words.on_timer(timer, cx, emit)?;
        Ok(())
    }
}

export!(Count);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn word(word: &str, at: i64) -> TestRecord {
        record("").key(word).time_ms(at)
    }

    fn count() -> Harness<Count> {
        Harness::new().config(r#"{"window_ms": 20000}"#)
    }

    #[test]
    fn a_word_is_counted_in_each_window() {
        let mut count = count();
        count.process([word("king", 1_000), word("king", 20_000), word("king", 19_999), word("the", 3)]).unwrap();
        let out = count.advance_watermark(19_999).unwrap();
        assert_eq!(out.decode::<(u64, &str)>(), [(2, "king"), (1, "the")]);
        assert!(out.iter().all(|row| (row.key(), row.time_ms()) == (Some(b"0".as_slice()), Some(19_999))));
        assert_eq!(count.finish().unwrap().decode::<(u64, &str)>(), [(1, "king")]);
        count.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        count().assert_batch_independent((0..50).map(|n| word(["a", "b"][n % 2], (n as i64 * 7_919) % 60_000)));
    }
}
