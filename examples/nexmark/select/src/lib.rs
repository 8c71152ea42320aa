//! The queries without state: q1 converts prices, q2 selects bids. And q0, which hands on what comes.

use cofferdam_guest::prelude::*;
use nexmark_model::Bid;
use serde::{Deserialize, Serialize};

/// The configuration.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    query: Query,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Query {
    /// Every record as it is.
    Q0,
    /// Bids with prices in euros, at 0.908 for a dollar; cut off below the cent.
    Q1,
    /// Bids for every 123rd auction.
    Q2,
}

/// An output line of q2.
#[derive(Serialize)]
struct Selected {
    auction: u64,
    price: u64,
}

/// The operator.
pub struct Select {
    query: Query,
}

impl Operator for Select {
    type Config = Config;

    fn declare(_: &mut Declare) -> Self {
        Select { query: Query::Q0 }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.query = config.query;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.query {
            Query::Q0 => cx.emit_bytes(record.bytes()),
            Query::Q1 => {
                let mut bid: Bid<'_> = record.decode()?;
                bid.price = in_euros(bid.price);
                cx.out().send_json(&bid)
            }
            Query::Q2 => {
                let bid: Bid<'_> = record.decode()?;
                if bid.auction % 123 != 0 {
                    return Ok(());
                }
                cx.out().send_json(&Selected { auction: bid.auction, price: bid.price })
            }
        }
    }
}

/// Converts a price; no price is so high that the product has no room.
fn in_euros(price: u64) -> u64 {
    price / 1000 * 908 + price % 1000 * 908 / 1000
}

export!(Select);

#[cfg(test)]
mod tests {
    use cofferdam_guest::codec::{Encode, Postcard};
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn bid(auction: u64, price: u64) -> TestRecord {
        let mut bytes = Vec::new();
        let bid = Bid { auction, bidder: 1, price, time: 5, extra: "x".into() };
        Postcard::encode(&bid, &mut bytes).unwrap();
        record(bytes).time_ms(5)
    }

    #[test]
    fn prices_are_converted() {
        let mut select = Harness::<Select>::new().config(r#"{"query":"q1"}"#);
        let out = select.process([bid(7, 1999)]).unwrap();
        assert_eq!(out.texts(), [r#"{"auction":7,"bidder":1,"price":1815,"time":5,"extra":"x"}"#]);
        for price in [0, 1, 999, 1000, 1001, 100_000_000] {
            assert_eq!(in_euros(price), price * 908 / 1000);
        }
        assert_eq!(in_euros(u64::MAX), (u128::from(u64::MAX) * 908 / 1000) as u64);
    }

    #[test]
    fn bids_are_selected() {
        let mut select = Harness::<Select>::new().config(r#"{"query":"q2"}"#);
        let out = select.process([bid(1107, 5), bid(1108, 6), bid(1230, 7)]).unwrap();
        assert_eq!(out.texts(), [r#"{"auction":1107,"price":5}"#, r#"{"auction":1230,"price":7}"#]);
    }

    #[test]
    fn anything_passes_through() {
        let mut select = Harness::<Select>::new().config(r#"{"query":"q0"}"#);
        assert_eq!(select.process([record("anything")]).unwrap().texts(), ["anything"]);
        assert!(Harness::<Select>::new().config(r#"{"query":"q9"}"#).open().is_err());
    }
}
