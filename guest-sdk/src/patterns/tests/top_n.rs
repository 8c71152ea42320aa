//! The top against all scores, sorted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;

use crate::patterns::TopN;
use crate::prelude::*;
use crate::testing::{Harness, record};

#[derive(Deserialize)]
struct Options {
    n: usize,
}

struct Top(TopN<u8, u16>);

impl Operator for Top {
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.top_n("top"))
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.0.keep(options.n)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let (id, score): (u8, u16) = record.decode()?;
        if id == u8::MAX {
            self.0.clear(cx);
            return Ok(());
        }
        let before = self.0.read(cx)?;
        let has_changed = self.0.offer(cx, id, score)?;
        let after = self.0.read(cx)?;
        assert_eq!(has_changed, before != after);
        cx.emit(&after)
    }
}

proptest! {
    #[test]
    fn the_top_is_that_of_all_scores(
        n in 1..6usize,
        offers in vec((0..3u8, prop_oneof![9 => 0..12u8, 1 => Just(u8::MAX)], prop_oneof![0..8u16, any::<u16>()]), 0..60),
        batch in prop_oneof![Just(1), Just(2), Just(1000)],
    ) {
        let mut all = BTreeMap::<u8, BTreeMap<u8, u16>>::new();
        let mut expected = Vec::new();
        for (key, id, score) in &offers {
            let own = all.entry(*key).or_default();
            if *id == u8::MAX {
                own.clear();
                continue;
            }
            let highest = own.entry(*id).or_default();
            *highest = (*highest).max(*score);
            let mut sorted: Vec<_> = own.iter().map(|(id, score)| (*id, *score)).collect();
            sorted.sort_by_key(|(id, score)| (Reverse(*score), *id));
            sorted.truncate(n);
            expected.push(sorted);
        }
        let mut top = Harness::<Top>::new().config(&format!(r#"{{"n": {n}}}"#)).batch_size(batch);
        let records = offers.iter().map(|(key, id, score)| record(postcard::to_stdvec(&(*id, *score)).unwrap()).key([*key]));
        let found = top.process(records).unwrap();
        prop_assert_eq!(found.decode::<Vec<(u8, u16)>>(), expected);
    }
}

#[test]
fn a_length_must_be_set_and_a_shorter_one_holds_at_once() {
    let mut top = Harness::<Top>::new().config(r#"{"n": 2}"#);
    top.seed("top", "k", &vec![(9u16, 1u8), (8, 2), (7, 3), (6, 4)]);
    let out = top.process([record(postcard::to_stdvec(&(5u8, 8u16)).unwrap()).key("k")]).unwrap();
    assert_eq!(out.decode::<Vec<(u8, u16)>>(), [[(1, 9), (2, 8)]], "the lower id of equal scores");
    for n in [0, 1001] {
        let error = Harness::<Top>::new().config(&format!(r#"{{"n": {n}}}"#)).open().unwrap_err();
        assert_eq!(error.message(), format!("the top {n} of \"top\": 1 to 1000 can be kept"));
    }
}
