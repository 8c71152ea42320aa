//! Keeps the most frequent words of each window, and emits them when all counts of it have come.
//!
//! A count has the last millisecond of its window as its time, so windows of the same length bring the counts of one together.

use std::cmp::Reverse;
use std::time::Duration;

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// How many words are told of each window.
const TOP: usize = 3;

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How long a window is: as long as those that the counts are of.
    window_ms: u64,
}

/// The most frequent words, and how often they occur: the first [`TOP`] by number, and by the alphabet among equals.
pub struct Top;

impl Aggregate for Top {
    type Input = (u64, String);
    type Accumulator = Vec<(u64, String)>;
    type Output = Vec<(u64, String)>;

    fn add(top: &mut Self::Accumulator, word: (u64, String)) {
        top.push(word);
        top.sort_by(|a, b| (Reverse(a.0), &a.1).cmp(&(Reverse(b.0), &b.1)));
        top.truncate(TOP);
    }

    fn result(top: &Self::Accumulator) -> Self::Output {
        top.clone()
    }

    fn merge(top: &mut Self::Accumulator, other: Self::Accumulator) {
        other.into_iter().for_each(|word| Self::add(top, word));
    }
}

/// An output line.
#[derive(Serialize)]
struct Row {
    window: i64,
    rank: usize,
    word: String,
    count: u64,
}

/// The operator.
pub struct TopWords {
    top: Windows<Top>,
}

fn emit(fired: Fired<Vec<(u64, String)>>, cx: &mut Context<'_>) -> Result<(), Error> {
    let window = fired.window.start_ms();
    for (rank, (count, word)) in (1..).zip(fired.result) {
        cx.out().send_json(&Row { window, rank, word, count })?;
    }
    Ok(())
}

impl Operator for TopWords {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        TopWords { top: declare.windows("top") }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.top.configure(&Windowing::tumbling(Duration::from_millis(config.window_ms)))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        self.top.add(cx, record.decode()?, emit)?.or_drop();
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.top.on_timer(timer, cx, emit)?;
        Ok(())
    }
}

export!(TopWords);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn count(window: i64, count: u64, word: &str) -> TestRecord {
        let mut value = Vec::new();
        Postcard::encode(&(count, word), &mut value).unwrap();
        record(value).key(window.to_string()).time_ms(window + 19_999)
    }

    #[test]
    fn the_most_frequent_words_of_a_window_are_told_when_it_has_ended() {
        let mut top = Harness::<TopWords>::new().config(r#"{"window_ms": 20000}"#);
        let counts = [count(0, 1, "a"), count(0, 5, "the"), count(20_000, 9, "of"), count(0, 2, "to"), count(0, 2, "and")];
        top.process(counts).unwrap();
        let rows = [
            r#"{"window":0,"rank":1,"word":"the","count":5}"#,
            r#"{"window":0,"rank":2,"word":"and","count":2}"#,
            r#"{"window":0,"rank":3,"word":"to","count":2}"#,
        ];
        assert_eq!(top.advance_watermark(19_999).unwrap().texts(), rows);
        assert_eq!(top.finish().unwrap().texts(), [r#"{"window":20000,"rank":1,"word":"of","count":9}"#]);
        top.assert_nothing_left();
    }
}
