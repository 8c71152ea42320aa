//! Input of the examples, made up: what happens, and then in which order it comes.

use serde_json::{Value, json};

use super::Files;
use crate::stage::Random;

const START: i64 = 1_764_500_000_000;

/// A number from 0 to below `end`, as times have it.
fn below(random: &mut Random, end: i64) -> i64 {
    random.below(end.cast_unsigned()).cast_signed()
}

fn chance(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

/// Puts events into an order in which they may come: none more than `delay` too late.
fn arrive(random: &mut Random, events: Vec<(i64, Value)>, delay: i64) -> Vec<Value> {
    let mut arriving: Vec<_> = events.into_iter().map(|(at, event)| (at + below(random, delay), event)).collect();
    arriving.sort_by_key(|(at, _)| *at);
    arriving.into_iter().map(|(_, event)| event).collect()
}

fn account(random: &mut Random) -> String {
    format!("a{}", random.below(30))
}

pub(super) fn payments(random: &mut Random, count: i64) -> Files {
    let mut events = Vec::new();
    for n in 0..count {
        let at = START + n * 100 + below(random, 100);
        let amount = match random.below(4) {
            0 => random.below(110),
            1 => 49_990 + random.below(1_000),
            _ => 100 + random.below(49_000),
        };
        events.push((at, json!({"account": account(random), "at": at, "amount": amount})));
    }
    Files::from([("payments.jsonl", arrive(random, events, 9_000))])
}

pub(super) fn rides(random: &mut Random, count: i64) -> Files {
    let mut events = Vec::new();
    for ride in 0..count / 2 {
        let start = START + below(random, 200_000_000);
        let end = start + if chance(random, 20) { 7_199_990 + below(random, 20) } else { 1_000 + below(random, 9_000_000) };
        if !chance(random, 5) {
            events.push((start, json!({"ride": ride, "kind": "start", "at": start})));
        }
        if !chance(random, 10) {
            events.push((end, json!({"ride": ride, "kind": "end", "at": end})));
        }
    }
    Files::from([("rides.jsonl", arrive(random, events, 290_000))])
}

pub(super) fn orders_and_rates(random: &mut Random, count: i64) -> Files {
    let currencies = ["EUR", "GBP", "JPY", "SEK"];
    let mut orders = Vec::new();
    for order in 0..count {
        let at = START + below(random, 100_000_000);
        // Krona rates begin late; there are none of the peso.
        let currency = if chance(random, 3) { "MXN" } else { currencies[usize::try_from(random.below(4)).unwrap()] };
        let amount = random.below(100_000);
        orders.push((at, json!({"order": order, "customer": account(random), "currency": currency, "amount": amount, "at": at})));
    }
    let mut rates = Vec::new();
    for n in 0..2_000 {
        let at = START + n * 50_000;
        let currency = currencies[usize::try_from(random.below(if n < 500 { 3 } else { 4 })).unwrap()];
        rates.push(json!({"currency": currency, "rate": 1 + random.below(2_000), "at": at}));
    }
    Files::from([("orders.jsonl", arrive(random, orders, 9_000)), ("rates.jsonl", rates)])
}

pub(super) fn operations(random: &mut Random, count: i64) -> Files {
    let mut events = Vec::new();
    for n in 0..count {
        // No two at one time: which one of two transfers comes first would be luck.
        let at = START + n * 100;
        let (from, to, amount) = (account(random), account(random), random.below(10_000));
        let operation = match random.below(8) {
            0 => json!({"operation": "deposit", "to": to, "amount": amount}),
            1 => json!({"operation": "withdrawal", "from": from, "amount": amount}),
            _ => json!({"operation": "transfer", "from": from, "to": to, "amount": amount}),
        };
        let mut repeat = |at: i64| {
            let mut operation = operation.clone();
            (operation["id"], operation["at"]) = (json!(format!("op-{n}")), json!(at));
            events.push((at, operation));
        };
        repeat(at);
        if chance(random, 5) {
            repeat(at + 1 + below(random, 600) * 100);
        }
    }
    Files::from([("operations.jsonl", arrive(random, events, 4_500))])
}

pub(super) fn readings(random: &mut Random, count: i64) -> Files {
    let mut events = Vec::new();
    for n in 0..count {
        let at = START + n * 50 + below(random, 50);
        events.push((at, json!({"sensor": account(random), "at": at, "value": random.below(1_000), "number": n})));
    }
    Files::from([("readings.jsonl", arrive(random, events, 29_000))])
}

pub(super) fn changes(random: &mut Random, count: i64) -> Files {
    let mut events = Vec::new();
    for device in 0..40 {
        let mut at = START + below(random, 60_000);
        for _ in 0..count / 40 {
            events.push((at, json!({"device": format!("d{device}"), "value": random.below(100), "at": at})));
            at += if chance(random, 20) { 119_990 + below(random, 20) } else { 1 + below(random, 100_000) };
        }
    }
    Files::from([("changes.jsonl", arrive(random, events, 9_000))])
}

pub(super) fn orders_and_payments(random: &mut Random, count: i64) -> Files {
    let (mut orders, mut payments) = (Vec::new(), Vec::new());
    for order in 0..count / 2 {
        let at = START + below(random, 50_000_000);
        orders.push((at, json!({"order": order, "customer": account(random), "at": at})));
        for _ in 0..random.below(3) {
            let at = at + if chance(random, 30) { 899_990 + below(random, 20) } else { below(random, 1_000_000) - 20_000 };
            payments.push((at, json!({"order": order, "amount": random.below(20_000), "at": at})));
        }
    }
    Files::from([("orders.jsonl", arrive(random, orders, 9_000)), ("payments.jsonl", arrive(random, payments, 9_000))])
}

pub(super) fn positions(random: &mut Random, count: i64) -> Files {
    let mut events = Vec::new();
    for n in 0..count {
        let at = START + n * 20;
        let time = humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + std::time::Duration::from_millis(at.cast_unsigned()));
        let speed = f64::from(u16::try_from(random.below(2_000)).unwrap()) / 100.0;
        let vehicle = random.below(25);
        let mut position = json!({"desi": format!("{}T", vehicle % 7), "veh": vehicle, "tst": time.to_string(), "spd": speed});
        if !chance(random, 5) {
            (position["lat"], position["long"]) = (json!(60.17), json!(24.94));
        }
        if chance(random, 5) {
            position["spd"] = Value::Null;
        }
        events.push((at, json!({ "VP": position })));
    }
    Files::from([("positions.jsonl", arrive(random, events, 2_500))])
}
