//! Winners against their definition, in any order of arrival.

use cofferdam_guest::codec::{Encode, Postcard};
use cofferdam_guest::testing::{Harness, TestRecord, record};

use super::*;

fn encoded<T>(value: &T) -> TestRecord
where
    Postcard: Encode<T>,
{
    let mut bytes = Vec::new();
    Postcard::encode(value, &mut bytes).unwrap();
    record(bytes)
}

fn auction(id: u64, time: i64, expires: i64) -> TestRecord {
    encoded(&Offer { id, seller: 5, category: 11, time, expires }).key(key(id)).time_ms(time).port("auctions")
}

fn bid(auction: u64, price: u64, time: i64, bidder: u64) -> TestRecord {
    encoded(&Bid { auction, bidder, price, time, extra: "".into() }).key(key(auction)).time_ms(time).port("bids")
}

fn harness() -> Harness<Winning> {
    Harness::new().config(r#"{"key":"category"}"#)
}

#[test]
fn the_highest_bid_of_an_auctions_time_wins_whether_it_comes_before_or_after_it() {
    for place in 0..6 {
        let mut records = vec![bid(1, 90, 9, 1), bid(1, 50, 10, 2), bid(1, 70, 15, 3), bid(1, 70, 12, 4), bid(1, 99, 20, 5)];
        records.insert(place, auction(1, 10, 20));
        let mut winning = harness();
        assert!(winning.process(records).unwrap().is_empty());
        assert!(winning.advance_watermark(18).unwrap().is_empty());
        let out = winning.advance_watermark(19).unwrap();
        assert_eq!((out.len(), out[0].time_ms(), out[0].key()), (1, Some(19), Some(&key(11)[..])));
        assert_eq!(out[0].decode::<Sale>(), Sale { auction: 1, seller: 5, category: 11, price: 70 });
        winning.finish().unwrap();
        winning.assert_nothing_left();
    }
}

#[test]
fn an_auction_without_a_bid_is_not_told_of_and_nothing_is_left() {
    let mut winning = harness();
    winning.process([auction(1, 10, 20), bid(2, 5, 11, 1), bid(1, 5, 20, 1), bid(2, 5, 13, 1)]).unwrap();
    assert!(winning.advance_watermark(12).unwrap().is_empty());
    assert_eq!(winning.keys("auction").len(), 2, "one bid waits on");
    assert!(winning.advance_watermark(19).unwrap().is_empty());
    assert_eq!(winning.state::<Auction>("auction", key(1)), Some(Auction::Closed));
    winning.process([bid(1, 5, 21, 1), bid(2, 5, 3, 1), auction(3, 2, 20)]).unwrap();
    assert_eq!(winning.counter("late"), 2);
    assert!(winning.advance_watermark(20 + REMEMBERED_MS).unwrap().is_empty());
    winning.assert_nothing_left();
}

/// Draws from a seed (splitmix64's step).
fn draw(state: &mut u64, limit: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % limit
}

#[test]
fn winners_are_those_of_the_definition_in_any_order_with_watermarks_between() {
    for seed in 0..200 {
        let mut state = seed;
        let offers: Vec<(u64, i64, i64)> = (0..4)
            .map(|id| {
                let time = draw(&mut state, 60) as i64;
                (id, time, time + 1 + draw(&mut state, 30) as i64)
            })
            .collect();
        let bids: Vec<(u64, u64, i64, u64)> =
            (0..60).map(|bidder| (draw(&mut state, 5), draw(&mut state, 6), draw(&mut state, 90) as i64, bidder)).collect();
        let mut events: Vec<(i64, TestRecord)> = offers.iter().map(|&(id, time, end)| (time, auction(id, time, end))).collect();
        events.extend(bids.iter().map(|&(auction, price, time, bidder)| (time, bid(auction, price, time, bidder))));
        // Up to 10 ms out of order, and a watermark that allows for it.
        let mut events: Vec<_> = events.into_iter().map(|(time, event)| (time - draw(&mut state, 10) as i64, event)).collect();
        events.sort_by_key(|(turn, _)| *turn);
        let mut winning = harness();
        let mut found = Vec::new();
        for (turn, event) in events {
            found.extend(winning.process([event]).unwrap().decode::<Sale>());
            found.extend(winning.advance_watermark(turn - 1).unwrap().decode::<Sale>());
        }
        found.extend(winning.finish().unwrap().decode::<Sale>());
        assert_eq!(winning.counter("late"), 0);
        winning.assert_nothing_left();
        let mut found: Vec<_> = found.iter().map(|sale| (sale.auction, sale.price)).collect();
        found.sort_unstable();
        let highest = |&(id, time, end): &(u64, i64, i64)| {
            let all = bids.iter().filter(|bid| bid.0 == id && time <= bid.2 && bid.2 < end);
            all.map(|bid| (id, bid.1)).max()
        };
        assert_eq!(found, offers.iter().filter_map(highest).collect::<Vec<_>>(), "seed {seed}");
    }
}
