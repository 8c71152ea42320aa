//! What the examples should put out, worked out from all of their input at once: sorted lists and searches, no state, no timers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Files;

const MINUTE: i64 = 60_000;

fn at(event: &Value) -> i64 {
    event["at"].as_i64().unwrap()
}

fn number(event: &Value, name: &str) -> i64 {
    event[name].as_i64().unwrap()
}

/// The events of each key, in the order of their times; those of one time as they come.
fn by<'f>(lines: &'f [Value], key: &str) -> BTreeMap<String, Vec<&'f Value>> {
    let mut groups = BTreeMap::<String, Vec<&Value>>::new();
    for line in lines {
        let key = line[key].as_str().map_or_else(|| line[key].to_string(), str::to_owned);
        groups.entry(key).or_default().push(line);
    }
    groups.values_mut().for_each(|events| events.sort_by_key(|event| at(event)));
    groups
}

pub(super) fn frauds(files: &Files) -> Files {
    let mut alerts = Vec::new();
    for (account, payments) in by(&files["payments.jsonl"], "account") {
        for pair in payments.windows(2) {
            let (small, large) = (number(pair[0], "amount"), number(pair[1], "amount"));
            if small < 100 && large > 50_000 && at(pair[1]) - at(pair[0]) <= MINUTE {
                alerts.push(
                    json!({"account": account, "small": small, "small_at": at(pair[0]), "large": large, "large_at": at(pair[1])}),
                );
            }
        }
    }
    Files::from([("", alerts)])
}

pub(super) fn ride_alerts(files: &Files) -> Files {
    let mut alerts = Vec::new();
    for (ride, events) in by(&files["rides.jsonl"], "ride") {
        let time = |kind: &str| events.iter().find(|event| event["kind"] == kind).map(|event| at(event));
        if let Some(started) = time("start")
            && time("end").is_none_or(|ended| ended - started > 120 * MINUTE)
        {
            alerts.push(json!({"ride": ride, "started": started}));
        }
    }
    Files::from([("", alerts)])
}

pub(super) fn enriched(files: &Files) -> Files {
    let (mut rows, mut unknown) = (Vec::new(), Vec::new());
    let rates = by(&files["rates.jsonl"], "currency");
    for order in &files["orders.jsonl"] {
        // The latest that is not later, and of several of one time the last.
        let own = rates.get(order["currency"].as_str().unwrap()).into_iter().flatten();
        let rate = own.rev().find(|rate| at(rate) <= at(order));
        let mut row = order.clone();
        row.as_object_mut().unwrap().remove("at");
        match rate {
            None => unknown.push(row),
            Some(rate) => {
                let rate = number(rate, "rate");
                row["rate"] = json!(rate);
                row["worth"] = json!(rate * number(order, "amount") / 1000);
                rows.push(row);
            }
        }
    }
    Files::from([("rows", rows), ("unknown", unknown)])
}

pub(super) fn booked(files: &Files) -> Files {
    let mut seen = BTreeSet::new();
    let mut operations: Vec<_> = files["operations.jsonl"].iter().filter(|op| seen.insert(op["id"].to_string())).collect();
    operations.sort_by_key(|operation| at(operation));
    let (mut balances, mut brought_in) = (BTreeMap::<String, i64>::new(), 0);
    let (mut rows, mut overdrafts) = (Vec::new(), Vec::new());
    for operation in operations {
        let amount = number(operation, "amount");
        for (side, amount) in [("from", -amount), ("to", amount)] {
            let Some(account) = operation[side].as_str() else {
                // From outside, or to there.
                brought_in -= amount;
                continue;
            };
            let balance = balances.entry(account.to_owned()).or_default();
            let before = *balance;
            *balance += amount;
            let row =
                json!({"account": account, "id": operation["id"], "at": at(operation), "amount": amount, "balance": *balance});
            if before >= 0 && *balance < 0 {
                overdrafts.push(row.clone());
            }
            rows.push(row);
        }
    }
    assert_eq!(balances.values().sum::<i64>(), brought_in, "transfers make no money");
    Files::from([("booked", rows), ("overdrafts", overdrafts)])
}

pub(super) fn sorted(files: &Files) -> Files {
    Files::from([("sorted", files["readings.jsonl"].clone())])
}

pub(super) fn silences(files: &Files) -> Files {
    let mut rows = Vec::new();
    for (device, changes) in by(&files["changes.jsonl"], "device") {
        for (index, change) in changes.iter().enumerate() {
            if changes.get(index + 1).is_none_or(|next| at(next) - at(change) >= 2 * MINUTE) {
                rows.push(json!({"device": device, "since": at(change), "critical": true}));
            }
        }
    }
    Files::from([("", rows)])
}

pub(super) fn paid(files: &Files) -> Files {
    let (mut paid, mut unpaid) = (Vec::new(), Vec::new());
    let payments = by(&files["payments.jsonl"], "order");
    for order in &files["orders.jsonl"] {
        let (name, customer) = (order["order"].to_string(), &order["customer"]);
        let all = payments.get(&name).map_or(&[][..], Vec::as_slice);
        let own: Vec<_> = all.iter().filter(|payment| (0..=15 * MINUTE).contains(&(at(payment) - at(order)))).collect();
        if own.is_empty() {
            unpaid.push(json!({"order": name, "customer": customer, "at": at(order)}));
        }
        paid.extend(own.into_iter().map(|payment| {
            json!({"order": name, "customer": customer, "amount": payment["amount"], "after_ms": at(payment) - at(order)})
        }));
    }
    Files::from([("paid", paid), ("unpaid", unpaid)])
}

pub(super) fn speeds(files: &Files) -> Files {
    let mut windows = BTreeMap::<(u64, u64), Vec<(i64, String)>>::new();
    for position in files["positions.jsonl"].iter().map(|line| &line["VP"]) {
        let (Some(speed), Some(_), Some(_)) = (position["spd"].as_f64(), position["lat"].as_f64(), position["long"].as_f64())
        else {
            continue;
        };
        let time = humantime::parse_rfc3339(position["tst"].as_str().unwrap()).unwrap();
        let ms = u64::try_from(time.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap();
        // Speeds have at most two decimals.
        let mm: i64 = format!("{speed:.3}").replace('.', "").parse().unwrap();
        let window = windows.entry((position["veh"].as_u64().unwrap(), ms / 5_000)).or_default();
        window.push((mm, position["desi"].as_str().unwrap().to_owned()));
    }
    let row = |((vehicle, window), positions): (&(u64, u64), &Vec<(i64, String)>)| {
        let count = i64::try_from(positions.len()).unwrap();
        let average = positions.iter().map(|(speed, _)| speed).sum::<i64>() / count;
        let line = positions.iter().map(|(_, line)| line).max().unwrap();
        json!({"vehicle": vehicle.to_string(), "line": line, "start": window * 5_000, "positions": count, "mm_per_s": average})
    };
    Files::from([("", windows.iter().map(row).collect())])
}
