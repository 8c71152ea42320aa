//! Which bid wins an auction, for q4 and q6: of the bids with `auction.time <= bid.time < auction.expires` one of the highest price,
//! the earliest of these. It is told of when the watermark shows that no other can come.
//!
//! A bid may come before its auction: it waits until the watermark has passed it, for then the auction would have come.

use cofferdam_guest::prelude::*;
use nexmark_model::{Best, Bid, Offer, Sale, is_late, key};
use serde::{Deserialize, Serialize};

/// For how long it is known of an auction that it has closed. Most bids come before that; a later one waits in vain for
/// an auction, which is more work and changes nothing.
const REMEMBERED_MS: i64 = 10_000;

/// The tags of timers.
const CLOSES: u64 = 0;
const FORGETS: u64 = 1;

/// The configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    key: SaleKey,
}

/// The key that sales get.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SaleKey {
    Category,
    Seller,
}

/// What is known of an auction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Auction {
    /// It has not come. These bids have.
    Unknown(Vec<Best>),
    /// It is open, or what came for it has not been told of yet.
    Open { seller: u64, category: u64, time: i64, expires: i64, best: Option<Best> },
    /// It has closed: bids change nothing.
    Closed,
}

/// The operator. The key is the auction.
pub struct Winning {
    auctions: InputPort,
    auction: Value<Auction>,
    timers: Timers,
    key: SaleKey,
}

impl Operator for Winning {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        let auctions = declare.input("auctions");
        declare.input("bids");
        Winning { auctions, auction: declare.value("auction"), timers: declare.event_timers(), key: SaleKey::Category }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.key = config.key;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let is_in_time =
            if cx.port() == self.auctions { self.opens(&record.decode()?, cx)? } else { self.is_bid_for(&record.decode()?, cx)? };
        if !is_in_time {
            metrics::add("late", 1);
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        if timer.tag() == CLOSES { self.closes(timer, cx) } else { self.forgets(timer, cx) }
    }
}

impl Winning {
    /// Returns whether the auction comes in time.
    fn opens(&self, offer: &Offer, cx: &mut Context<'_>) -> Result<bool, Error> {
        let Offer { seller, category, time, expires, .. } = *offer;
        let last = expires.saturating_sub(1);
        if is_late(cx, last) {
            return Ok(false);
        }
        self.timers.set_tagged(cx, last, CLOSES);
        self.auction.modify(cx, |auction| {
            let bids = match auction.take() {
                Some(Auction::Unknown(bids)) => bids,
                _ => Vec::new(),
            };
            let best = bids.into_iter().filter(|bid| (time..expires).contains(&bid.time)).max();
            *auction = Some(Auction::Open { seller, category, time, expires, best });
        })?;
        Ok(true)
    }

    /// Returns whether the bid comes in time.
    fn is_bid_for(&self, bid: &Bid<'_>, cx: &mut Context<'_>) -> Result<bool, Error> {
        let bid = Best::of(bid);
        // Most bids change nothing: then nothing is written.
        let counts = self.auction.with(cx, |auction| match auction {
            Some(Auction::Open { time, expires, best, .. }) => {
                (*time..*expires).contains(&bid.time) && best.is_none_or(|best| bid > best)
            }
            Some(Auction::Closed) => false,
            None | Some(Auction::Unknown(_)) => true,
        })?;
        if !counts {
            return Ok(true);
        }
        let late = is_late(cx, bid.time);
        let (in_time, is_first) = self.auction.modify(cx, |auction| match auction {
            Some(Auction::Open { best, .. }) => {
                *best = Some(bid);
                (true, false)
            }
            Some(Auction::Closed) => (true, false),
            _ if late => (false, false),
            Some(Auction::Unknown(bids)) => {
                bids.push(bid);
                (true, false)
            }
            None => {
                *auction = Some(Auction::Unknown(vec![bid]));
                (true, true)
            }
        })?;
        if is_first {
            self.timers.set_tagged(cx, bid.time, FORGETS);
        }
        Ok(in_time)
    }

    fn closes(&self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(Auction::Open { seller, category, expires, best, .. }) = self.auction.get(cx)? else { return Ok(()) };
        if expires.saturating_sub(1) != timer.time_ms() {
            return Ok(());
        }
        self.auction.set(cx, Auction::Closed);
        self.timers.set_tagged(cx, expires.saturating_add(REMEMBERED_MS), FORGETS);
        let Some(Best { price, .. }) = best else { return Ok(()) };
        let by = match self.key {
            SaleKey::Category => category,
            SaleKey::Seller => seller,
        };
        let sale = Sale { auction: nexmark_model::key_of(cx)?, seller, category, price };
        cx.out().key(&key(by)).send(&sale)
    }

    /// Drops what waits for nothing any more.
    fn forgets(&self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let until = cx.watermark_ms().unwrap_or(i64::MIN).max(timer.time_ms());
        let next = self.auction.modify(cx, |auction| match auction {
            Some(Auction::Unknown(bids)) => {
                bids.retain(|bid| bid.time > until);
                let next = bids.iter().map(|bid| bid.time).min();
                if next.is_none() {
                    *auction = None;
                }
                next
            }
            // A timer of bids that have found their auction.
            Some(Auction::Open { .. }) => None,
            Some(Auction::Closed) | None => {
                *auction = None;
                None
            }
        })?;
        if let Some(next) = next {
            self.timers.set_tagged(cx, next, FORGETS);
        }
        Ok(())
    }
}

export!(Winning);

#[cfg(test)]
mod tests;
