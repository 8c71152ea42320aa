//! Turns deposits, withdrawals and transfers into entries of accounts: a transfer becomes two, one for each account that it
//! touches. An operation that is repeated, by a client that got no answer, counts once.

use cofferdam_guest::patterns::{Dedup, Seen};
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For how long repetitions are known.
    repeated_within_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { repeated_within_ms: 600_000 }
    }
}

/// An input line, beside its id and its time. Amounts are in cents.
#[derive(Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
enum Operation {
    Deposit { to: String, amount: u32 },
    Withdrawal { from: String, amount: u32 },
    Transfer { from: String, to: String, amount: u32 },
}

/// What is emitted, with the account as its key. The operator `accounts` has the same.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    id: String,
    /// Below 0 if it is taken from the account.
    amount: i64,
}

/// The operator.
pub struct Entries {
    seen: Dedup<Vec<u8>>,
    late: OutputPort,
}

fn emit(account: &str, amount: i64, cx: &mut Context<'_>) -> Result<(), Error> {
    let entry = Entry { id: cx.key_text()?.to_owned(), amount };
    cx.out().key(account).send(&entry)
}

impl Operator for Entries {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("entries");
        let late = declare.output("late");
        Entries { seen: declare.dedup("seen"), late }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.seen.for_ms(config.repeated_within_ms)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        // The key is the operation's id.
        match self.seen.see(cx, cx.key().to_vec())? {
            Seen::First => {}
            Seen::Again => return Ok(()),
            Seen::Late => return cx.out_to(self.late).keep_key().send_bytes(record.bytes()),
        }
        match record.json()? {
            Operation::Deposit { to, amount } => emit(&to, amount.into(), cx),
            Operation::Withdrawal { from, amount } => emit(&from, -i64::from(amount), cx),
            // Both or none: a call's effects apply as a whole, and so does a checkpoint.
            Operation::Transfer { from, to, amount } => {
                emit(&from, -i64::from(amount), cx)?;
                emit(&to, amount.into(), cx)
            }
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.seen.on_timer(timer, cx)?;
        Ok(())
    }
}

export!(Entries);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn operation(id: &str, at: i64, text: &str) -> TestRecord {
        record(text).key(id).time_ms(at)
    }

    const TRANSFER: &str = r#"{"operation": "transfer", "from": "ada", "to": "bob", "amount": 70}"#;

    #[test]
    fn a_transfer_touches_two_accounts_once_however_often_it_comes() {
        let mut entries = Harness::<Entries>::new();
        let deposit = r#"{"operation": "deposit", "to": "ada", "amount": 100}"#;
        let records =
            [operation("1", 0, deposit), operation("2", 5, TRANSFER), operation("2", 9, TRANSFER), operation("1", 9, deposit)];
        let out = entries.process(records).unwrap();
        let found: Vec<_> =
            out.iter().map(|entry| (entry.key().unwrap(), entry.time_ms(), entry.decode::<Entry>().amount)).collect();
        assert_eq!(found, [(&b"ada"[..], Some(0), 100), (b"ada", Some(5), -70), (b"bob", Some(5), 70)]);
        entries.advance_watermark(600_005).unwrap();
        entries.assert_nothing_left();
    }

    #[test]
    fn what_is_too_late_to_be_told_from_a_repetition_goes_elsewhere() {
        let mut entries = Harness::<Entries>::new();
        entries.advance_watermark(10).unwrap();
        let out = entries.process([operation("1", 10, TRANSFER)]).unwrap();
        assert_eq!((out.of_port("late").len(), out.len()), (1, 1));
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|i| operation(["1", "2", "3", "4"][i as usize % 4], i * 7919 % 900_000, TRANSFER));
        Harness::<Entries>::new().assert_batch_independent(records);
    }
}
