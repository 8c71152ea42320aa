//! The three kinds of events, as they are written into values.

use serde::Serialize;

/// An event. Its kind is written beside it: by name in JSON, by its place in this list in postcard.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Event<'a> {
    /// Somebody registers.
    Person(Person<'a>),
    /// Somebody offers an item.
    Auction(Auction<'a>),
    /// Somebody bids for one.
    Bid(Bid<'a>),
}

/// Somebody who may sell and bid.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Person<'a> {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) email: String,
    pub(super) credit_card: String,
    pub(super) city: &'a str,
    pub(super) state: &'a str,
    /// The event time, in milliseconds since 1970; so in all events.
    pub(super) time: i64,
    pub(super) extra: &'a str,
}

/// An item on offer. Prices are in cents.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Auction<'a> {
    pub(super) id: u64,
    pub(super) item: &'a str,
    pub(super) description: &'a str,
    pub(super) initial_bid: u64,
    pub(super) reserve: u64,
    pub(super) time: i64,
    /// When it ends: bids before that count.
    pub(super) expires: i64,
    pub(super) seller: u64,
    pub(super) category: u64,
    pub(super) extra: &'a str,
}

/// A bid for an auction. The price is in cents.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Bid<'a> {
    pub(super) auction: u64,
    pub(super) bidder: u64,
    pub(super) price: u64,
    pub(super) time: i64,
    pub(super) extra: &'a str,
}

impl Event<'_> {
    /// Returns its event time.
    pub(super) fn time(&self) -> i64 {
        match self {
            Self::Person(person) => person.time,
            Self::Auction(auction) => auction.time,
            Self::Bid(bid) => bid.time,
        }
    }
}
