//! Splits lines into words and emits each, in lower case, as a record whose key and value are the word.
//!
//! A word is a maximal run of ASCII letters and apostrophes, without the apostrophes at its ends, in lower case:
//! `'Tis the dog's, o'er` is `tis`, `the`, `dog's`, `o'er`. All other bytes, those of other scripts among them, separate
//! words.

use cofferdam_guest::prelude::*;

/// The operator.
pub struct Split {
    /// The current word in lower case; kept to reuse its memory.
    word: Vec<u8>,
}

impl Operator for Split {
    type Config = NoConfig;

    fn declare(_: &mut Declare) -> Self {
        Split { word: Vec::new() }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        for word in words(record.bytes()) {
            self.word.clear();
            self.word.extend(word.iter().map(u8::to_ascii_lowercase));
            cx.out().key(&self.word).send_bytes(&self.word)?;
        }
        Ok(())
    }
}

export!(Split);

/// Returns the words of a line as they are written.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_part = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'\'';
    line.split(move |byte| !is_part(byte)).map(without_outer_apostrophes).filter(|word| !word.is_empty())
}

fn without_outer_apostrophes(mut run: &[u8]) -> &[u8] {
    while let [b'\'', rest @ ..] | [rest @ .., b'\''] = run {
        run = rest;
    }
    run
}

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, record};

    use super::*;

    fn split(line: &str) -> Vec<String> {
        let out = Harness::<Split>::new().process([record(line)]).unwrap();
        assert!(out.iter().all(|word| word.key() == Some(word.bytes())), "each word is its own key");
        out.texts().into_iter().map(String::from).collect()
    }

    #[test]
    fn words_are_runs_of_letters_in_lower_case() {
        assert_eq!(split("First Citizen: Speak, speak."), ["first", "citizen", "speak", "speak"]);
        assert_eq!(split("3 KING HENRY VI--naïve"), ["king", "henry", "vi", "na", "ve"]);
        assert_eq!(split(""), [""; 0]);
    }

    #[test]
    fn apostrophes_count_inside_a_word_only() {
        assert_eq!(split("'Tis the dogs' and the dog's ''o'er'' '' '"), ["tis", "the", "dogs", "and", "the", "dog's", "o'er"]);
    }

    #[test]
    fn a_word_has_the_event_time_of_its_line() {
        let out = Harness::<Split>::new().process([record("a b").time_ms(7), record("c")]).unwrap();
        assert_eq!(out.iter().map(|word| word.time_ms()).collect::<Vec<_>>(), [Some(7), Some(7), None]);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        Harness::<Split>::new().assert_batch_independent(["To be, or", "", "not to be", "--"].map(record));
    }
}
