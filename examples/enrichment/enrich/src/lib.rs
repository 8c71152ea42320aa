//! Works out orders in another currency by the rate that held at the order's time, from a table that comes in beside the
//! orders.
//!
//! Orders and rates come from two sources, and nothing orders one after the other. An order is held until the watermark, which
//! is that of both inputs, has passed it: then all rates of its time have come, and the result does not depend on what came
//! first.

use cofferdam_guest::patterns::Sorter;
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether an order waits for the rates of its time. If not, it gets the rate that there is when it comes: sooner, and in
    /// a replay perhaps another.
    hold: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { hold: true }
    }
}

/// A line of the input `orders`, beside its customer and its time. Amounts are in cents.
#[derive(Clone, Serialize, Deserialize)]
struct Order {
    order: u64,
    currency: String,
    amount: u64,
}

/// A line of the input `rates`, beside its time: what one unit of the currency is worth, in thousandths.
#[derive(Deserialize)]
struct Rate {
    currency: String,
    rate: u64,
}

/// An output line. Those on `unknown` have no rate.
#[derive(Serialize)]
struct Row<'a> {
    order: u64,
    customer: &'a str,
    currency: &'a str,
    amount: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worth: Option<u64>,
}

/// The operator.
pub struct Enrich {
    /// The rates of each currency, with the time from which they hold, in order.
    rates: Broadcast<String, Vec<(i64, u64)>>,
    held: Sorter<Order>,
    unknown: OutputPort,
    late: OutputPort,
    hold: bool,
}

impl Enrich {
    fn emit(&self, order: &Order, cx: &mut Context<'_>) -> Result<(), Error> {
        let time = cx.event_time_ms().ok_or_else(|| Error::permanent("an order has no event time"))?;
        let rates = self.rates.get(cx, &order.currency)?.unwrap_or_default();
        let holding = rates[..rates.partition_point(|(from, _)| *from <= time)].last();
        let rate = holding.map(|(_, rate)| *rate);
        let worth = rate.map(|rate| rate.checked_mul(order.amount).ok_or_else(|| Error::permanent("an amount is too large")));
        let worth = worth.transpose()?.map(|worth| worth / 1000);
        let (customer, currency) = (cx.key_text()?, order.currency.as_str());
        let row = Row { order: order.order, customer, currency, amount: order.amount, rate, worth };
        let out = if rate.is_some() { cx.out() } else { cx.out_to(self.unknown) };
        out.keep_key().send_json(&row)
    }
}

impl Operator for Enrich {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("orders");
        declare.broadcast_input("rates");
        declare.output("rows");
        let (unknown, late) = (declare.output("unknown"), declare.output("late"));
        Enrich { rates: declare.broadcast("rates"), held: declare.sorter("held"), unknown, late, hold: true }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.hold = config.hold;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let order: Order = record.json()?;
        if !self.hold {
            return self.emit(&order, cx);
        }
        match self.held.add(cx, order)? {
            Some(_) => cx.out_to(self.late).keep_key().send_bytes(record.bytes()),
            None => Ok(()),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.held.on_timer(timer, cx, |order, cx| self.emit(&order, cx))?;
        Ok(())
    }

    fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        let Rate { currency, rate } = record.json()?;
        let from = cx.event_time_ms().ok_or_else(|| Error::permanent("a rate has no event time"))?;
        self.rates.update(cx, &currency, |rates| {
            let at = rates.partition_point(|(other, _)| *other < from);
            match rates.get_mut(at) {
                // A correction.
                Some(other) if other.0 == from => other.1 = rate,
                _ => rates.insert(at, (from, rate)),
            }
        })
    }
}

export!(Enrich);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn order(order: u64, currency: &str, at: i64) -> TestRecord {
        record(format!(r#"{{"order": {order}, "currency": "{currency}", "amount": 2000}}"#)).key("ada").time_ms(at)
    }

    fn rate(currency: &str, rate: u64, at: i64) -> TestRecord {
        record(format!(r#"{{"currency": "{currency}", "rate": {rate}}}"#)).time_ms(at).port("rates")
    }

    #[test]
    fn an_order_waits_for_the_rates_of_its_time() {
        let mut enrich = Harness::<Enrich>::new();
        let records = [order(1, "EUR", 100), rate("EUR", 1100, 101), rate("EUR", 1050, 100), order(2, "EUR", 150)];
        assert!(enrich.process(records).unwrap().is_empty());
        let first = enrich.advance_watermark(120).unwrap();
        assert_eq!(first.texts(), [r#"{"order":1,"customer":"ada","currency":"EUR","amount":2000,"rate":1050,"worth":2100}"#]);
        enrich.process([rate("EUR", 1200, 101)]).unwrap();
        let last = enrich.finish().unwrap();
        assert_eq!(
            last.texts(),
            [r#"{"order":2,"customer":"ada","currency":"EUR","amount":2000,"rate":1200,"worth":2400}"#],
            "the corrected one"
        );
        enrich.assert_nothing_left();
    }

    #[test]
    fn an_order_without_a_rate_goes_elsewhere() {
        let mut enrich = Harness::<Enrich>::new();
        enrich.process([order(1, "SEK", 100), order(2, "EUR", 99), rate("EUR", 1050, 100)]).unwrap();
        let out = enrich.finish().unwrap();
        let unknown =
            |order: u64, currency: &str| format!(r#"{{"order":{order},"customer":"ada","currency":"{currency}","amount":2000}}"#);
        assert_eq!(out.of_port("unknown").texts(), [unknown(2, "EUR"), unknown(1, "SEK")]);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn without_holding_the_rates_that_there_are_count() {
        let mut enrich = Harness::<Enrich>::new().config(r#"{"hold": false}"#);
        let out = enrich.process([order(1, "EUR", 100), rate("EUR", 1050, 50), order(2, "EUR", 100)]).unwrap();
        assert_eq!((out[0].port(), out[1].port()), ("unknown", "rows"));
        enrich.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let orders = |from: u64| (from..from + 20).map(|i| order(i, ["EUR", "GBP"][i as usize % 2], i as i64 * 7 % 50));
        let records =
            orders(0).chain([rate("EUR", 1050, 10), rate("GBP", 1300, 20)]).chain(orders(30)).chain([rate("EUR", 1, 30)]);
        let mut enrich = Harness::<Enrich>::new();
        enrich.assert_batch_independent(records.clone());
        enrich.watermark_ms(25);
        enrich.assert_batch_independent(records);
    }
}
