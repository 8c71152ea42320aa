//! Keeps count and sum of the amounts of each user and emits the new totals for every record, as a line of JSON.

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// An input line; further fields are ignored.
#[derive(Deserialize)]
struct Payment {
    amount: i64,
}

/// What is kept for each user. A new field needs `#[serde(default)]`: stored totals get its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Totals {
    count: u64,
    sum: i64,
}

/// An output line.
#[derive(Serialize)]
struct Row<'a> {
    user: &'a str,
    count: u64,
    sum: i64,
}

/// The operator.
pub struct RunningTotal {
    totals: Value<Totals>,
}

impl Operator for RunningTotal {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        RunningTotal { totals: declare.value("totals") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Payment { amount } = record.json()?;
        let user = cx.key_text()?;
        let mut totals = self.totals.get_or_default(cx)?;
        totals.count += 1;
        totals.sum = totals
            .sum
            .checked_add(amount)
            .ok_or_else(|| Error::permanent(format!("the sum of user {user:?} does not fit 64 bits")))?;
        self.totals.set(cx, totals);
        cx.out().keep_key().send_json(&Row { user, count: totals.count, sum: totals.sum })
    }
}

export!(RunningTotal);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn payment(user: &str, amount: i64) -> TestRecord {
        record(format!(r#"{{"user": "{user}", "amount": {amount}}}"#)).key(user)
    }

    #[test]
    fn totals_run_for_each_user() {
        let mut total = Harness::<RunningTotal>::new();
        let out = total.process([payment("ada", 5), payment("bob", 7), payment("ada", -2)]).unwrap();
        assert_eq!(
            out.texts(),
            [r#"{"user":"ada","count":1,"sum":5}"#, r#"{"user":"bob","count":1,"sum":7}"#, r#"{"user":"ada","count":2,"sum":3}"#,]
        );
        assert_eq!(out[2].key(), Some(&b"ada"[..]));
        assert_eq!(total.state("totals", "ada"), Some(Totals { count: 2, sum: 3 }));
    }

    #[test]
    fn a_failing_batch_leaves_the_totals_alone() {
        let mut total = Harness::<RunningTotal>::new();
        total.process([payment("ada", i64::MAX)]).unwrap();
        let error = total.process([payment("bob", 1), payment("ada", 1)]).unwrap_err();
        assert_eq!(error.message(), "the sum of user \"ada\" does not fit 64 bits");
        let error = total.process([record("{}").key("ada")]).unwrap_err();
        assert_eq!(error.message(), "the record: not valid JSON: missing field `amount` at line 1 column 2");
        assert_eq!(total.state("totals", "ada"), Some(Totals { count: 1, sum: i64::MAX }));
        assert_eq!(total.state::<Totals>("totals", "bob"), None);
    }

    #[test]
    fn totals_of_the_sample_are_those_of_its_lines() {
        let lines = include_str!("../../payments.jsonl").lines().map(|line| {
            let user = line.split('"').nth(3).unwrap();
            let amount: i64 = line.trim_end_matches('}').rsplit(' ').next().unwrap().parse().unwrap();
            (line, user, amount)
        });
        let mut total = Harness::<RunningTotal>::new();
        total.process(lines.clone().map(|(line, user, _)| record(line).key(user))).unwrap();
        let of_ada = lines.filter(|(_, user, _)| *user == "ada");
        let expected =
            of_ada.fold(Totals::default(), |totals, (_, _, amount)| Totals { count: totals.count + 1, sum: totals.sum + amount });
        assert!(expected.count > 100);
        assert_eq!(total.state("totals", "ada"), Some(expected));
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|i| payment(["ada", "bob", "eve"][i % 3], i as i64));
        Harness::<RunningTotal>::new().assert_batch_independent(records);
    }
}
