//! Splits the events of Nexmark into persons, auctions and bids, keyed as a query needs them.

use cofferdam_guest::prelude::*;
use nexmark_model::{Auction, Bid, Event, Offer, Person, Registration, key};
use serde::Deserialize;

/// The configuration. A kind of event that has no key here is left out.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    format: Format,
    persons: Option<PersonKey>,
    auctions: Option<AuctionKey>,
    bids: Option<BidKey>,
    /// Only persons of these states; all if it is empty.
    states: Vec<String>,
    /// Only auctions of this category.
    category: Option<u64>,
    /// Whether bids keep their filler.
    extra: bool,
}

/// How the source writes events.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Postcard,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum PersonKey {
    Id,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AuctionKey {
    Id,
    Seller,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BidKey {
    Auction,
    None,
}

/// The operator.
pub struct Events {
    persons: OutputPort,
    auctions: OutputPort,
    bids: OutputPort,
    config: Config,
}

impl Operator for Events {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        Events {
            persons: declare.output("persons"),
            auctions: declare.output("auctions"),
            bids: declare.output("bids"),
            config: Config::default(),
        }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.config = config;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let event = match self.config.format {
            Format::Json => record.json()?,
            Format::Postcard => record.decode()?,
        };
        match event {
            Event::Person(person) => self.person(person, cx),
            Event::Auction(auction) => self.auction(&auction, cx),
            Event::Bid(bid) => self.bid(bid, cx),
        }
    }
}

impl Events {
    fn person(&self, person: Person<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(PersonKey::Id) = self.config.persons else { return Ok(()) };
        let states = &self.config.states;
        if !states.is_empty() && !states.iter().any(|state| *state == person.state) {
            return Ok(());
        }
        let Person { id, name, city, state, .. } = person;
        let registration = Registration { id, name: name.into(), city: city.into(), state: state.into() };
        cx.out_to(self.persons).key(&key(id)).send(&registration)
    }

    fn auction(&self, auction: &Auction<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(by) = self.config.auctions else { return Ok(()) };
        if self.config.category.is_some_and(|category| category != auction.category) {
            return Ok(());
        }
        let Auction { id, seller, category, time, expires, .. } = *auction;
        let by = match by {
            AuctionKey::Id => id,
            AuctionKey::Seller => seller,
        };
        cx.out_to(self.auctions).key(&key(by)).send(&Offer { id, seller, category, time, expires })
    }

    fn bid(&self, mut bid: Bid<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(by) = self.config.bids else { return Ok(()) };
        if !self.config.extra {
            bid.extra = "".into();
        }
        match by {
            BidKey::None => cx.out_to(self.bids).send(&bid),
            BidKey::Auction => cx.out_to(self.bids).key(&key(bid.auction)).send(&bid),
        }
    }
}

export!(Events);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, record};

    use super::*;

    const EVENTS: [&str; 3] = [
        r#"{"person":{"id":1,"name":"Ada","email":"a@b.com","credit_card":"1","city":"Bend","state":"OR","time":5,"extra":"x"}}"#,
        r#"{"auction":{"id":2,"item":"i","description":"d","initial_bid":1,"reserve":2,"time":6,"expires":9,"seller":1,"category":10,"extra":""}}"#,
        r#"{"bid":{"auction":2,"bidder":1,"price":3,"time":7,"extra":"long"}}"#,
    ];

    #[test]
    fn kinds_go_to_their_outputs_under_the_keys_that_are_asked_for() {
        let config = r#"{"persons":"id","auctions":"seller","bids":"auction"}"#;
        let mut events = Harness::<Events>::new().config(config);
        let out = events.process(EVENTS.map(|event| record(event).time_ms(7))).unwrap();
        assert_eq!((out.len(), out.of_port("persons")[0].key()), (3, Some(&key(1)[..])));
        assert_eq!(out.of_port("auctions")[0].key(), Some(&key(1)[..]));
        let bids = out.of_port("bids");
        assert_eq!((bids[0].key(), &*bids[0].decode::<Bid>().extra), (Some(&key(2)[..]), ""));
    }

    #[test]
    fn what_is_not_asked_for_is_left_out() {
        let mut events = Harness::<Events>::new().config(r#"{"bids":"none","extra":true}"#);
        let out = events.process(EVENTS.map(record)).unwrap();
        assert_eq!((out.len(), out[0].key(), &*out[0].decode::<Bid>().extra), (1, None, "long"));
        let mut events = Harness::<Events>::new().config(r#"{"persons":"id","states":["ID"],"auctions":"id","category":11}"#);
        assert!(events.process(EVENTS.map(record)).unwrap().is_empty());
    }

    #[test]
    fn a_record_that_is_no_event_is_an_error() {
        assert!(Harness::<Events>::new().process([record("{}")]).is_err());
        assert!(Harness::<Events>::new().config(r#"{"format":"postcard"}"#).process([record([9])]).is_err());
    }
}
