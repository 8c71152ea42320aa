//! What the operators of Nexmark tell each other: the events of the source `nexmark`, and what is made of them.
//!
//! Prices are in cents, times in milliseconds since 1970. A record's event time is that of its event.

use std::borrow::Cow;

use cofferdam_guest::{Context, Error};
use serde::{Deserialize, Serialize};

/// An event, as the source writes it: in JSON an object with one field, in postcard an enum.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event<'a> {
    /// Somebody registers.
    #[serde(borrow)]
    Person(Person<'a>),
    /// Somebody offers an item.
    #[serde(borrow)]
    Auction(Auction<'a>),
    /// Somebody bids for one.
    #[serde(borrow)]
    Bid(Bid<'a>),
}

/// Somebody who may sell and bid.
#[derive(Debug, Deserialize)]
pub struct Person<'a> {
    pub id: u64,
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow)]
    pub email: Cow<'a, str>,
    #[serde(borrow)]
    pub credit_card: Cow<'a, str>,
    #[serde(borrow)]
    pub city: Cow<'a, str>,
    #[serde(borrow)]
    pub state: Cow<'a, str>,
    pub time: i64,
    #[serde(borrow)]
    pub extra: Cow<'a, str>,
}

/// An item on offer.
#[derive(Debug, Deserialize)]
pub struct Auction<'a> {
    pub id: u64,
    #[serde(borrow)]
    pub item: Cow<'a, str>,
    #[serde(borrow)]
    pub description: Cow<'a, str>,
    pub initial_bid: u64,
    pub reserve: u64,
    pub time: i64,
    /// When it ends: bids before that count.
    pub expires: i64,
    pub seller: u64,
    pub category: u64,
    #[serde(borrow)]
    pub extra: Cow<'a, str>,
}

/// A bid for an auction. Operators send it on as it is; its filler only where a query shows it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bid<'a> {
    pub auction: u64,
    pub bidder: u64,
    pub price: u64,
    pub time: i64,
    #[serde(borrow)]
    pub extra: Cow<'a, str>,
}

/// What queries want to know of a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Registration {
    pub id: u64,
    pub name: String,
    pub city: String,
    pub state: String,
}

/// What queries want to know of an auction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Offer {
    pub id: u64,
    pub seller: u64,
    pub category: u64,
    pub time: i64,
    pub expires: i64,
}

/// An auction that has closed with a bid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sale {
    pub auction: u64,
    pub seller: u64,
    pub category: u64,
    pub price: u64,
}

/// What an auction has in a window: how many bids, and the best of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bids {
    pub auction: u64,
    pub count: u64,
    pub best: Best,
}

/// A bid among those for one auction. The greatest is the best: of the highest price, among these the earliest; of several at
/// once, that of the lowest bidder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    pub price: u64,
    pub time: i64,
    pub bidder: u64,
}

impl Best {
    /// Returns a bid's part.
    pub fn of(bid: &Bid<'_>) -> Self {
        Self { price: bid.price, time: bid.time, bidder: bid.bidder }
    }
}

impl Ord for Best {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_price = self.price.cmp(&other.price);
        by_price.then(other.time.cmp(&self.time)).then(other.bidder.cmp(&self.bidder))
    }
}

impl PartialOrd for Best {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the bytes of a numeric key.
pub fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Returns the number of the current key.
///
/// # Errors
/// A permanent error if the key is none that [`key`] returns.
pub fn key_of(cx: &Context<'_>) -> Result<u64, Error> {
    let bytes = cx.key().try_into().map_err(|_| Error::permanent("a key is no number of 8 bytes"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Returns the event time of the current record.
///
/// # Errors
/// A permanent error if it has none.
pub fn time_of(cx: &Context<'_>) -> Result<i64, Error> {
    cx.event_time_ms().ok_or_else(|| Error::permanent("a record has no event time"))
}

/// Whether what happens at a time has been told of already.
pub fn is_late(cx: &Context<'_>, time: i64) -> bool {
    cx.watermark_ms().is_some_and(|watermark| time <= watermark)
}
