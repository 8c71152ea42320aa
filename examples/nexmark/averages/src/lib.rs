//! q4 and q6: what auctions have sold for on average, told anew with each sale: for q4 of all of a category, for q6 of a seller's
//! last ten.
//!
//! Sales come in any order; they count in the order in which their auctions closed, by number at one time. So a sale waits until the
//! watermark has passed it.

use cofferdam_guest::prelude::*;
use nexmark_model::{Sale, is_late, time_of};
use serde::{Deserialize, Serialize};

/// The configuration.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many of the last sales count; all if not given.
    last: Option<usize>,
}

/// The most that `last` may be: they are one value of state.
const LAST_MAX: usize = 1000;

/// What is kept of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sales {
    /// Sales that the watermark has not passed: when their auction closed, its number, the price.
    waiting: Vec<(i64, u64, u64)>,
    /// For when the next timer is set, if one is.
    next: Option<i64>,
    count: u64,
    sum: u64,
    /// The prices that count, oldest first, if not all do.
    last: Vec<u64>,
}

/// An output line: the average after this auction, cut off below the cent.
#[derive(Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seller: Option<u64>,
    auction: u64,
    average: u64,
}

/// The operator. The key is a category or a seller.
pub struct Averages {
    sales: Value<Sales>,
    timers: Timers,
    last: Option<usize>,
}

impl Operator for Averages {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        Averages { sales: declare.value("sales"), timers: declare.event_timers(), last: None }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        if config.last.is_some_and(|last| !(1..=LAST_MAX).contains(&last)) {
            return Err(Error::permanent(format!("`last` must be 1 to {LAST_MAX}")));
        }
        self.last = config.last;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let (sale, time): (Sale, i64) = (record.decode()?, time_of(cx)?);
        if is_late(cx, time) {
            metrics::add("late", 1);
            return Ok(());
        }
        let sets = self.sales.update(cx, |sales| {
            sales.waiting.push((time, sale.auction, sale.price));
            let sets = sales.next.is_none_or(|next| time < next);
            if sets {
                sales.next = Some(time);
            }
            sets
        })?;
        if sets {
            self.timers.set(cx, time);
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let until = cx.watermark_ms().unwrap_or(i64::MIN).max(timer.time_ms());
        let key = nexmark_model::key_of(cx)?;
        let (category, seller) = if self.last.is_some() { (None, Some(key)) } else { (Some(key), None) };
        let (rows, next) = self.sales.update(cx, |sales| {
            sales.waiting.sort_unstable();
            let due = sales.waiting.partition_point(|(time, ..)| *time <= until);
            let due: Vec<_> = sales.waiting.drain(..due).collect();
            let average =
                |(time, auction, price)| (time, Row { category, seller, auction, average: sales.add(price, self.last) });
            let rows: Vec<_> = due.into_iter().map(average).collect();
            sales.next = sales.waiting.first().map(|(time, ..)| *time);
            (rows, sales.next)
        })?;
        for (time, row) in rows {
            cx.out().time_ms(time).send_json(&row)?;
        }
        if let Some(next) = next {
            self.timers.set(cx, next);
        }
        Ok(())
    }
}

impl Sales {
    /// Adds a price and returns the average of what counts.
    fn add(&mut self, price: u64, last_max: Option<usize>) -> u64 {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(price);
        let Some(last_max) = last_max else { return self.sum / self.count };
        self.last.push(price);
        // Another version may have kept more.
        let excess = self.last.len().saturating_sub(last_max);
        self.last.drain(..excess);
        let sum = self.last.iter().fold(0_u64, |sum, price| sum.saturating_add(*price));
        sum / self.last.len() as u64
    }
}

export!(Averages);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};
    use nexmark_model::key;

    use super::*;

    fn sale(auction: u64, price: u64, time: i64) -> TestRecord {
        let mut bytes = Vec::new();
        Postcard::encode(&Sale { auction, seller: 7, category: 10, price }, &mut bytes).unwrap();
        record(bytes).key(key(7)).time_ms(time)
    }

    #[test]
    fn sales_count_in_the_order_of_their_time_and_number() {
        let mut averages = Harness::<Averages>::new().config(r#"{"last":2}"#);
        averages.process([sale(3, 60, 20), sale(2, 20, 10), sale(1, 10, 10), sale(4, 90, 30)]).unwrap();
        let row = |auction, average| format!(r#"{{"seller":7,"auction":{auction},"average":{average}}}"#);
        let out = averages.advance_watermark(25).unwrap();
        assert_eq!(out.texts(), [row(1, 10), row(2, 15), row(3, 40)]);
        assert_eq!(out[2].time_ms(), Some(20));
        averages.process([sale(5, 1, 25)]).unwrap();
        assert_eq!(averages.counter("late"), 1);
        assert_eq!(averages.finish().unwrap().texts(), [row(4, 75)]);
    }

    #[test]
    fn all_sales_of_a_category_count() {
        let mut averages = Harness::<Averages>::new().config("{}");
        averages.process([sale(1, 10, 10), sale(2, 11, 11), sale(3, 13, 11)]).unwrap();
        let row = |auction, average| format!(r#"{{"category":7,"auction":{auction},"average":{average}}}"#);
        assert_eq!(averages.finish().unwrap().texts(), [row(1, 10), row(2, 10), row(3, 11)]);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|n| sale(n, n * 31 % 17, (n * 7 % 11) as i64));
        Harness::<Averages>::new().config("{}").assert_batch_independent(records);
        assert!(Harness::<Averages>::new().config(r#"{"last":0}"#).open().is_err());
    }
}
