//! Counts the records of each key and emits a running row for every one: the key, a tab, and its count so far.

use cofferdam_guest::prelude::*;

/// The operator.
pub struct Count {
    n: Value<u64>,
}

impl Operator for Count {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Count { n: declare.value("n") }
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n = self.n.update(cx, |n| {
            *n += 1;
            *n
        })?;
        cx.emit_fmt(format_args!("{}\t{n}", cx.key_text()?))
    }
}

export!(Count);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, record};

    use super::*;

    #[test]
    fn every_record_gets_a_row_with_the_count_so_far() {
        let mut count = Harness::<Count>::new();
        let out = count.process(["a", "b", "a"].map(|word| record(word).key(word))).unwrap();
        assert_eq!(out.texts(), ["a\t1", "b\t1", "a\t2"]);
        assert_eq!(count.state::<u64>("n", "a"), Some(2));
    }

    #[test]
    fn counting_goes_on_from_state() {
        let mut count = Harness::<Count>::new();
        count.seed::<u64>("n", "a", &41);
        assert_eq!(count.process([record("a").key("a")]).unwrap().texts(), ["a\t42"]);
        count.restart();
        assert_eq!(count.process([record("a").key("a")]).unwrap().texts(), ["a\t43"]);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        Harness::<Count>::new().assert_batch_independent("to be or not to be".split(' ').map(|word| record(word).key(word)));
    }
}
