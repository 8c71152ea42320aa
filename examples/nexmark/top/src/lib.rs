//! The second half of q5 and q7: of all auctions of a window those with the most bids, or the one with the highest.

use cofferdam_guest::prelude::*;
use nexmark_model::{Bids, is_late, key_of, time_of};
use serde::{Deserialize, Serialize};

/// The configuration.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    /// All auctions that no other has more bids than.
    Count,
    /// The auction with the best bid; of several with equal ones the lowest.
    Price,
}

/// An output line of q5.
#[derive(Serialize)]
struct Hot {
    end: i64,
    auction: u64,
    bids: u64,
}

/// An output line of q7.
#[derive(Serialize)]
struct Highest {
    end: i64,
    auction: u64,
    bidder: u64,
    price: u64,
    time: i64,
}

/// The operator. The key is the window's end.
pub struct Top {
    top: Value<Vec<Bids>>,
    timers: Timers,
    by: By,
}

impl Operator for Top {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        Top { top: declare.value("top"), timers: declare.event_timers(), by: By::Count }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.by = config.by;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let (bids, time): (Bids, i64) = (record.decode()?, time_of(cx)?);
        if is_late(cx, time) {
            metrics::add("late", 1);
            return Ok(());
        }
        let by = self.by;
        let order = self.top.with(cx, |top| top.and_then(|top| top.first()).map(|top| by.compare(&bids, top)))?;
        match order {
            None => {
                // The window's last millisecond: everything of it has come then.
                self.timers.set(cx, time);
                self.top.set(cx, vec![bids]);
            }
            Some(order) if order.is_gt() => self.top.set(cx, vec![bids]),
            Some(order) if order.is_eq() => self.top.update(cx, |top| top.push(bids))?,
            Some(_) => {}
        }
        Ok(())
    }

    fn on_timer(&mut self, _: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut top = self.top.get_or_default(cx)?;
        self.top.delete(cx);
        top.sort_unstable_by_key(|bids| bids.auction);
        let end = key_of(cx)?.cast_signed();
        for Bids { auction, count, best } in top {
            match self.by {
                By::Count => cx.out().send_json(&Hot { end, auction, bids: count })?,
                By::Price => {
                    let (bidder, price, time) = (best.bidder, best.price, best.time);
                    cx.out().send_json(&Highest { end, auction, bidder, price, time })?;
                }
            }
        }
        Ok(())
    }
}

impl By {
    /// Compares two auctions: the greater is wanted, all equal ones are.
    fn compare(self, one: &Bids, other: &Bids) -> std::cmp::Ordering {
        match self {
            Self::Count => one.count.cmp(&other.count),
            Self::Price => one.best.cmp(&other.best).then(other.auction.cmp(&one.auction)),
        }
    }
}

export!(Top);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};
    use nexmark_model::{Best, key};

    use super::*;

    fn bids(auction: u64, count: u64, price: u64, end: u64) -> TestRecord {
        let mut bytes = Vec::new();
        let best = Best { price, time: 3, bidder: 8 };
        Postcard::encode(&Bids { auction, count, best }, &mut bytes).unwrap();
        record(bytes).key(key(end)).time_ms(end as i64 - 1)
    }

    fn records() -> [TestRecord; 5] {
        [bids(3, 4, 7, 10), bids(2, 9, 5, 10), bids(9, 1, 1, 20), bids(1, 9, 6, 10), bids(4, 8, 7, 10)]
    }

    #[test]
    fn all_with_the_most_bids_are_told_of() {
        let mut top = Harness::<Top>::new().config(r#"{"by":"count"}"#);
        top.process(records()).unwrap();
        let row = |auction, bids| format!(r#"{{"end":10,"auction":{auction},"bids":{bids}}}"#);
        assert_eq!(top.advance_watermark(9).unwrap().texts(), [row(1, 9), row(2, 9)]);
        top.process([bids(5, 99, 9, 10)]).unwrap();
        assert_eq!(top.counter("late"), 1);
        assert_eq!(top.finish().unwrap().len(), 1);
        top.assert_nothing_left();
    }

    #[test]
    fn the_one_with_the_highest_bid_is_told_of() {
        let mut top = Harness::<Top>::new().config(r#"{"by":"price"}"#);
        top.process(records()).unwrap();
        let row = r#"{"end":10,"auction":3,"bidder":8,"price":7,"time":3}"#;
        assert_eq!(top.advance_watermark(9).unwrap().texts(), [row]);
        Harness::<Top>::new().config(r#"{"by":"price"}"#).assert_batch_independent(records());
    }
}
