//! The first half of q5 and q7: what each auction has in each window, how many bids and the best of them.

use std::time::Duration;

use cofferdam_guest::prelude::*;
use nexmark_model::{Best, Bid, Bids, key, key_of};
use serde::{Deserialize, Serialize};

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How long windows are.
    size_ms: u64,
    /// One begins every so often; when another ends if not given.
    slide_ms: Option<u64>,
}

/// How many bids, and the best.
pub struct Tally;

/// What is kept of a window.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Tallied {
    count: u64,
    best: Best,
}

impl Aggregate for Tally {
    type Input = Best;
    type Accumulator = Tallied;
    type Output = Tallied;

    fn add(tallied: &mut Tallied, bid: Best) {
        Self::merge(tallied, Tallied { count: 1, best: bid });
    }

    fn result(tallied: &Tallied) -> Tallied {
        *tallied
    }

    fn merge(tallied: &mut Tallied, other: Tallied) {
        if tallied.count == 0 || other.best > tallied.best {
            tallied.best = other.best;
        }
        tallied.count += other.count;
    }
}

/// The operator. The key is the auction; that of what it emits is the window's end.
pub struct PerAuction {
    windows: Windows<Tally>,
}

impl PerAuction {
    fn emit(fired: Fired<Tallied>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Tallied { count, best } = fired.result;
        let bids = Bids { auction: key_of(cx)?, count, best };
        cx.out().key(&key(fired.window.end_ms().cast_unsigned())).send(&bids)
    }
}

impl Operator for PerAuction {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        PerAuction { windows: declare.windows("windows") }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        let size = Duration::from_millis(config.size_ms);
        let slide = config.slide_ms.map_or(size, Duration::from_millis);
        self.windows.configure(&Windowing::sliding(size, slide))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let bid: Bid<'_> = record.decode()?;
        self.windows.add(cx, Best::of(&bid), Self::emit)?.or_drop();
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.on_timer(timer, cx, Self::emit)?;
        Ok(())
    }
}

export!(PerAuction);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn bid(auction: u64, price: u64, time: i64) -> TestRecord {
        let mut bytes = Vec::new();
        let bidder = 100 - price;
        Postcard::encode(&Bid { auction, bidder, price, time, extra: "".into() }, &mut bytes).unwrap();
        record(bytes).key(key(auction)).time_ms(time)
    }

    #[test]
    fn a_window_has_the_number_of_bids_and_the_best_of_them() {
        let mut auctions = Harness::<PerAuction>::new().config(r#"{"size_ms":10,"slide_ms":5}"#);
        auctions.process([bid(1, 5, 3), bid(1, 9, 7), bid(1, 9, 6), bid(2, 1, 12)]).unwrap();
        let out = auctions.advance_watermark(9).unwrap();
        let best = |price, time| Best { price, time, bidder: 100 - price };
        let rows = out.decode::<Bids>();
        assert_eq!(rows, [Bids { auction: 1, count: 1, best: best(5, 3) }, Bids { auction: 1, count: 3, best: best(9, 6) }]);
        assert_eq!((out[1].key(), out[1].time_ms()), (Some(&key(10)[..]), Some(9)));
        assert_eq!(auctions.finish().unwrap().len(), 3);
        auctions.assert_nothing_left();
    }

    #[test]
    fn windows_that_make_no_sense_are_refused() {
        assert!(Harness::<PerAuction>::new().config(r#"{"size_ms":0}"#).open().is_err());
        assert!(Harness::<PerAuction>::new().config(r#"{"size_ms":5,"slide_ms":6}"#).open().is_err());
    }
}
