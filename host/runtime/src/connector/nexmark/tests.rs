//! Events that depend on nothing but options and number, in the proportions of the published model.

use std::collections::BTreeMap;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{ConnectorContext, Source, SourcePoll, Split, SplitPosition};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::time::ProcessingTime;
use serde_json::Value;

use super::event::Event;
use super::*;

fn factory(options: &str) -> Arc<dyn SourceFactory> {
    nexmark_source(&toml::from_str(options).unwrap()).unwrap()
}

fn open(factory: &dyn SourceFactory, parallelism: u32, from: &[SplitPosition]) -> Box<dyn Source> {
    let position = |split: &Split| from.iter().find(|position| position.split == split.id).cloned();
    let splits = factory.discover(parallelism).unwrap();
    let splits = splits.into_iter().map(|split| (split.clone(), position(&split))).collect();
    let context = ConnectorContext { id: OperatorId::new("n").unwrap(), subtask: 0, parallelism: 1 };
    factory.open(&context, splits).unwrap()
}

/// Polls to the end, or `polls` times. Returns the events with their times.
fn read(source: &mut dyn Source, max_records: usize, polls: usize) -> Vec<(i64, Vec<u8>)> {
    let mut events = Vec::new();
    let mut batch = Batch::default();
    for _ in 0..polls {
        batch.clear();
        if source.poll(ProcessingTime(0), max_records, &mut batch).unwrap() == SourcePoll::End {
            break;
        }
        assert!(batch.keys.is_none());
        let event = |index| (batch.timestamps.get(index).unwrap().0, batch.values.get(index).to_vec());
        events.extend((0..batch.len()).map(event));
    }
    events
}

#[test]
fn every_event_comes_once_whatever_the_splits_and_the_stops() {
    let options = "events = 1003\nout-of-order = \"40ms\"\nseed = 5\nsplits = ";
    let mut one = read(&mut *open(&*factory(&format!("{options}1")), 1, &[]), 64, usize::MAX);
    assert_eq!(one.len(), 1003);
    one.sort();
    let factory = factory(&format!("{options}7"));
    for stop in [0, 1, 5, 13, 40] {
        let mut source = open(&*factory, 3, &[]);
        let mut events = read(&mut *source, 30, stop);
        let positions = source.positions();
        events.extend(read(&mut *open(&*factory, 1, &positions), 17, usize::MAX));
        events.sort();
        assert!(events == one, "stopped after {stop} polls");
    }
}

#[test]
fn json_and_postcard_say_the_same() {
    #[derive(serde::Deserialize)]
    enum Either {
        Person(u64, String, String, String, String, String, i64, String),
        Auction(u64, String, String, u64, u64, i64, i64, u64, u64, String),
        Bid(u64, u64, u64, i64, String),
    }
    let of = |format: &str| read(&mut *open(&*factory(&format!("events = 200\nformat = \"{format}\"")), 1, &[]), 64, usize::MAX);
    for ((time, json), (same, postcard)) in of("json").into_iter().zip(of("postcard")) {
        let json: BTreeMap<String, Value> = serde_json::from_slice(&json).unwrap();
        let (kind, event) = json.into_iter().next().unwrap();
        assert!(time == same && event["time"] == time);
        match postcard::from_bytes(&postcard).unwrap() {
            Either::Person(id, name, email, credit_card, city, state, time, extra) => {
                let fields = serde_json::json!({
                    "id": id, "name": name, "email": email, "credit_card": credit_card, "city": city, "state": state, "time": time,
                    "extra": extra
                });
                assert_eq!((kind.as_str(), event), ("person", fields));
            }
            Either::Auction(id, item, description, initial_bid, reserve, time, expires, seller, category, extra) => {
                let fields = serde_json::json!({
                    "id": id, "item": item, "description": description, "initial_bid": initial_bid, "reserve": reserve,
                    "time": time, "expires": expires, "seller": seller, "category": category, "extra": extra
                });
                assert_eq!((kind.as_str(), event), ("auction", fields));
            }
            Either::Bid(auction, bidder, price, time, extra) => {
                let fields =
                    serde_json::json!({"auction": auction, "bidder": bidder, "price": price, "time": time, "extra": extra});
                assert_eq!((kind.as_str(), event), ("bid", fields));
            }
        }
    }
}

#[test]
fn a_fiftieth_are_persons_and_three_are_auctions_numbered_as_they_come() {
    let model = Model::new(1, 0, 1000, 0);
    let (mut persons, mut auctions, mut bids) = (0, 0, 0);
    for number in 0..50_000 {
        match model.event(number) {
            Event::Person(person) => {
                assert_eq!(person.id, 1000 + persons);
                persons += 1;
            }
            Event::Auction(auction) => {
                assert_eq!(auction.id, 1000 + auctions);
                assert!(auction.seller < 1000 + persons + 10 && auction.reserve > auction.initial_bid);
                assert!((10..15).contains(&auction.category));
                // 100 open auctions are those of 1666 events.
                assert!((1..=2 * 1666).contains(&(auction.expires - auction.time)), "{auction:?}");
                auctions += 1;
            }
            Event::Bid(bid) => {
                assert!(bid.auction >= (1000 + auctions).saturating_sub(201).max(1000) && bid.auction < 1000 + auctions + 10);
                assert!(bid.bidder <= 1000 + persons + 10);
                bids += 1;
            }
        }
    }
    assert_eq!((persons, auctions, bids), (1000, 3000, 46_000));
}

#[test]
fn the_hot_ones_are_as_hot_as_published_and_prices_are_even_by_their_logarithm() {
    let model = Model::new(2, 0, 1000, 0);
    let (mut sellers, mut auctions, mut bidders, mut bids) = (0, 0, 0, 0);
    let (mut decades, mut below_root) = ([0; 6], 0);
    let mut bytes = 0;
    for number in 0..100_000 {
        match model.event(number) {
            Event::Person(person) => assert!(person.extra.len() > 60 && person.credit_card.len() == 19),
            Event::Auction(auction) => sellers += u32::from(auction.seller % 100 == 0),
            Event::Bid(bid) => {
                auctions += u32::from(bid.auction % 100 == 0);
                bidders += u32::from(bid.bidder % 100 == 1);
                bids += 1;
                decades[bid.price.ilog10() as usize - 2] += 1;
                // Half of a decade lies below its root.
                below_root += u32::from(bid.price.pow(2) < 10_u64.pow(2 * bid.price.ilog10() + 1));
                bytes += 32 + bid.extra.len();
            }
        }
    }
    // Half or three quarters, and a hundredth of the rest.
    assert!((4400..4700).contains(&sellers), "{sellers} of 6000");
    assert!((46_000..47_500).contains(&auctions), "{auctions} of 92000");
    assert!((68_500..70_500).contains(&bidders), "{bidders} of 92000");
    assert!(decades.iter().all(|bids| (14_700..16_000).contains(bids)), "{decades:?}");
    assert!((45_000..47_000).contains(&below_root), "{below_root} of 92000");
    assert!((98..102).contains(&(bytes / bids)), "{bytes} bytes of {bids}");
}

#[test]
fn event_time_goes_by_its_own_rate_and_is_out_of_order_by_no_more_than_is_said() {
    let times = |options: &str| {
        let events = read(&mut *open(&*factory(options), 1, &[]), 64, usize::MAX);
        events.into_iter().map(|(time, _)| time).collect::<Vec<_>>()
    };
    let even = times("events = 3000\nevents-per-second = 3000\nevent-time-start = 7");
    assert!((0..3000).all(|number| even[number] == 7 + number as i64 / 3));
    let uneven = times("events = 3000\nevents-per-second = 3000\nevent-time-start = 7\nout-of-order = \"50ms\"");
    let early: Vec<_> = even.iter().zip(&uneven).map(|(even, uneven)| even - uneven).collect();
    assert_eq!((early.iter().min(), early.iter().max()), (Some(&0), Some(&50)));
}

#[test]
fn events_never_change() {
    let model = Model::new(42, 1_767_225_600_000, 10_000, 5);
    let Event::Person(person) = model.event(0) else { panic!("0 is a person") };
    let (name, card) = (person.name.as_str(), person.credit_card.as_str());
    assert_eq!((name, card, person.city, person.state), ("Edsger McCarthy", "1834 7030 1148 2632", "Portland", "WA"));
    let Event::Auction(auction) = model.event(1_000_003) else { panic!("1,000,003 is an auction") };
    assert_eq!((auction.id, auction.seller, auction.category, auction.reserve), (61_002, 20_145, 13, 227_257));
    assert_eq!((auction.time, auction.expires), (1_767_225_699_998, 1_767_225_700_019));
    let bid = r#"{"bid":{"auction":1000,"bidder":1001,"price":715367,"time":1767225599999,"extra":"hzcvhjsrdwyiosxjnberhqzwnoqgjyrvdabqzrvhtyeqqkvgaptnczjdjpaxnilox"}}"#;
    assert_eq!(serde_json::to_string(&model.event(4)).unwrap(), bid);
    // The last of all has a time and ids, too.
    let Event::Bid(last) = model.event(u64::MAX) else { panic!("the last one is a bid") };
    assert!(last.auction > u64::MAX / 20 && last.time > 1_767_225_600_000);
}

#[test]
fn impossible_options_are_refused() {
    for options in ["rate = 0", "splits = 0", "events-per-second = 0", "out-of-order = \"25h\""] {
        let refused = nexmark_source(&toml::from_str(options).unwrap()).err().unwrap();
        assert_eq!(refused.code, "option-refused", "{options}");
    }
    assert!(toml::from_str::<NexmarkOptions>("keys = 5").is_err());
}
