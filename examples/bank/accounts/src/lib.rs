//! Keeps the balance of each account, and tells when one falls below nothing.
//!
//! Entries come from several places and in any order; they are booked in the order of their times, so that it does not depend
//! on luck when an account is overdrawn.

use cofferdam_guest::patterns::Sorter;
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// What the operator `entries` emits.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    id: String,
    amount: i64,
}

/// An output line. Amounts are in cents.
#[derive(Serialize)]
struct Booked<'a> {
    account: &'a str,
    id: &'a str,
    at: i64,
    amount: i64,
    balance: i64,
}

/// The operator.
pub struct Accounts {
    balance: Value<i64>,
    entries: Sorter<Entry>,
    overdrafts: OutputPort,
    late: OutputPort,
}

impl Accounts {
    fn book(&self, Entry { id, amount }: &Entry, cx: &mut Context<'_>) -> Result<(), Error> {
        let before = self.balance.get_or_default(cx)?;
        let balance = before.checked_add(*amount).ok_or_else(|| Error::permanent("a balance does not fit 64 bits"))?;
        self.balance.set(cx, balance);
        let at = cx.event_time_ms().ok_or_else(|| Error::permanent("an entry has no event time"))?;
        let booked = Booked { account: cx.key_text()?, id, at, amount: *amount, balance };
        if before >= 0 && balance < 0 {
            cx.out_to(self.overdrafts).keep_key().send_json(&booked)?;
        }
        cx.out().keep_key().send_json(&booked)
    }
}

impl Operator for Accounts {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("booked");
        let (overdrafts, late) = (declare.output("overdrafts"), declare.output("late"));
        Accounts { balance: declare.value("balance"), entries: declare.sorter("entries"), overdrafts, late }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.entries.add(cx, record.decode()?)? {
            Some(_) => cx.out_to(self.late).keep_key().send_bytes(record.bytes()),
            None => Ok(()),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.entries.on_timer(timer, cx, |entry, cx| self.book(&entry, cx))?;
        Ok(())
    }
}

export!(Accounts);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode as _, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn entry(account: &str, at: i64, amount: i64) -> TestRecord {
        let mut bytes = Vec::new();
        Postcard::encode(&Entry { id: at.to_string(), amount }, &mut bytes).unwrap();
        record(bytes).key(account).time_ms(at)
    }

    #[test]
    fn entries_are_booked_in_the_order_of_their_times() {
        let mut accounts = Harness::<Accounts>::new();
        accounts.process([entry("ada", 3, -70), entry("ada", 1, 50), entry("ada", 4, -1), entry("ada", 5, 30)]).unwrap();
        let out = accounts.advance_watermark(4).unwrap();
        let rows = [
            r#"{"account":"ada","id":"1","at":1,"amount":50,"balance":50}"#,
            r#"{"account":"ada","id":"3","at":3,"amount":-70,"balance":-20}"#,
            r#"{"account":"ada","id":"4","at":4,"amount":-1,"balance":-21}"#,
        ];
        assert_eq!(out.of_port("booked").texts(), rows);
        assert_eq!(out.of_port("overdrafts").texts(), [rows[1]], "told of once, when it happens");
        assert_eq!(accounts.finish().unwrap().texts(), [r#"{"account":"ada","id":"5","at":5,"amount":30,"balance":9}"#]);
        assert_eq!(accounts.state::<i64>("balance", "ada"), Some(9));
        assert!(accounts.keys("entries").is_empty());
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let mut accounts = Harness::<Accounts>::new();
        let records = |range: std::ops::Range<i64>| range.map(|i| entry(["ada", "bob"][i as usize % 2], i * 7919 % 1000, i - 20));
        accounts.assert_batch_independent(records(0..40));
        accounts.process(records(0..40)).unwrap();
        accounts.watermark_ms(500);
        accounts.assert_batch_independent(records(40..80));
    }
}
