//! Finds the payment of each order, which comes within a quarter of an hour after it, and tells of orders without one.

use cofferdam_guest::patterns::{IntervalJoin, Joined};
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    within_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { within_ms: 900_000 }
    }
}

/// A line of the input `orders`, beside its number and its time.
#[derive(Clone, Serialize, Deserialize)]
struct Order {
    customer: String,
}

/// A line of the input `payments`, beside the order's number and its time. Amounts are in cents.
#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    amount: u64,
}

/// A line of the output `paid`.
#[derive(Serialize)]
struct Paid<'a> {
    order: &'a str,
    customer: &'a str,
    amount: u64,
    after_ms: i64,
}

/// A line of the output `unpaid`.
#[derive(Serialize)]
struct Unpaid<'a> {
    order: &'a str,
    customer: &'a str,
    at: i64,
}

/// The operator.
pub struct Join {
    join: IntervalJoin<Order, Payment>,
    orders: InputPort,
    unpaid: OutputPort,
    late: OutputPort,
}

impl Join {
    fn emit(&self, joined: Joined<'_, Order, Payment>, cx: &mut Context<'_>) -> Result<(), Error> {
        let order = cx.key_text()?;
        match joined {
            Joined::Both(ordered, paid) => {
                let (customer, after_ms) = (ordered.value.customer.as_str(), paid.time_ms - ordered.time_ms);
                cx.out().keep_key().send_json(&Paid { order, customer, amount: paid.value.amount, after_ms })
            }
            Joined::Left(ordered) => {
                let unpaid = Unpaid { order, customer: &ordered.value.customer, at: ordered.time_ms };
                cx.out_to(self.unpaid).keep_key().send_json(&unpaid)
            }
            // The join does not tell of payments without an order.
            Joined::Right(_) => Ok(()),
        }
    }
}

impl Operator for Join {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        let orders = declare.input("orders");
        declare.input("payments");
        declare.output("paid");
        let (unpaid, late) = (declare.output("unpaid"), declare.output("late"));
        Join { join: declare.interval_join("join").left_outer(), orders, unpaid, late }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.join.between(0, config.within_ms)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let is_late = if cx.port() == self.orders {
            self.join.left(cx, record.json()?, |joined, cx| self.emit(joined, cx))?.is_some()
        } else {
            self.join.right(cx, record.json()?, |joined, cx| self.emit(joined, cx))?.is_some()
        };
        if is_late { cx.out_to(self.late).keep_key().send_bytes(record.bytes()) } else { Ok(()) }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.join.on_timer(timer, cx, |joined, cx| self.emit(joined, cx))?;
        Ok(())
    }
}

export!(Join);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn order(order: &str, customer: &str, at: i64) -> TestRecord {
        record(format!(r#"{{"customer": "{customer}"}}"#)).key(order).time_ms(at)
    }

    fn payment(order: &str, amount: u64, at: i64) -> TestRecord {
        record(format!(r#"{{"amount": {amount}}}"#)).key(order).time_ms(at).port("payments")
    }

    #[test]
    fn a_payment_finds_its_order_whichever_comes_first() {
        let mut join = Harness::<Join>::new();
        let out = join
            .process([order("1", "ada", 0), payment("1", 450, 900_000), payment("2", 70, 10), order("2", "bob", 10)])
            .unwrap();
        assert_eq!(
            out.texts(),
            [
                r#"{"order":"1","customer":"ada","amount":450,"after_ms":900000}"#,
                r#"{"order":"2","customer":"bob","amount":70,"after_ms":0}"#
            ]
        );
        assert!(join.finish().unwrap().is_empty());
        join.assert_nothing_left();
    }

    #[test]
    fn an_order_without_a_payment_in_time_is_told_of() {
        let mut join = Harness::<Join>::new();
        join.process([order("1", "ada", 0), payment("1", 450, 900_001), payment("1", 70, -1)]).unwrap();
        assert!(join.advance_watermark(899_999).unwrap().is_empty());
        let out = join.advance_watermark(900_000).unwrap();
        assert_eq!(out.of_port("unpaid").texts(), [r#"{"order":"1","customer":"ada","at":0}"#]);
        assert_eq!(join.process([order("1", "ada", 900_000)]).unwrap().of_port("late").len(), 1);
        join.advance_watermark(900_001).unwrap();
        join.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let number = |i: i64| ["1", "2", "3"][i as usize % 3];
        let orders = (0..20).map(|i| order(number(i), "ada", i * 7919 % 1_000_000));
        let payments = (0..20).map(|i| payment(number(i), 5, i * 104_729 % 1_000_000));
        Harness::<Join>::new().assert_batch_independent(orders.chain(payments));
    }
}
