//! Splits the text of each line into words and emits each, in lower case, with itself as its key and the time of its line.

use std::borrow::Cow;

use cofferdam_guest::prelude::*;
use serde::Deserialize;

/// The operator.
pub struct Split;

/// An input line; its time is the record's.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl Operator for Split {
    type Config = NoConfig;

    fn declare(_: &mut Declare) -> Self {
        Split
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let line: Line<'_> = record.json()?;
        for word in line.text.split(|c: char| !c.is_alphabetic() && c != '\'') {
            let word = word.trim_matches('\'').to_lowercase();
            if !word.is_empty() {
                cx.out().key(&word).send_bytes("")?;
            }
        }
        Ok(())
    }
}

export!(Split);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, record};

    use super::*;

    #[test]
    fn each_word_is_a_key_and_has_the_time_of_its_line() {
        let line = record(r#"{"at": 7, "text": "Speak, \"speak\"! 'Tis"}"#).time_ms(7);
        let out = Harness::<Split>::new().process([line]).unwrap();
        let words: Vec<_> = out.iter().map(|word| (word.key().unwrap(), word.time_ms())).collect();
        assert_eq!(words, [(&b"speak"[..], Some(7)), (b"speak", Some(7)), (b"tis", Some(7))]);
    }
}
