//! What the queries of Nexmark come to: written down from their definitions over all events at once, in plain Rust, without a
//! window, a join or a timer of the SDK. Rows are the lines of JSON that the pipelines write.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// All events, each kind in the order of its times.
pub(super) struct Events {
    lines: Vec<String>,
    persons: Vec<Value>,
    auctions: Vec<Value>,
    bids: Vec<Value>,
}

/// A sale: when its auction closed, the auction, its seller and category, the price.
struct Sale {
    closed: i64,
    auction: u64,
    seller: u64,
    category: u64,
    price: u64,
}

fn number(event: &Value, field: &str) -> u64 {
    event[field].as_u64().unwrap()
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap()
}

fn time(event: &Value) -> i64 {
    event["time"].as_i64().unwrap()
}

impl Events {
    /// Reads events, a line of JSON each.
    pub(super) fn parse(lines: &[String]) -> Self {
        let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in lines {
            let event: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
            for (kind, event) in event {
                kinds.entry(kind).or_default().push(event);
            }
        }
        kinds.values_mut().for_each(|events| events.sort_by_key(time));
        let mut of = |kind| kinds.remove(kind).unwrap();
        let (persons, auctions, bids) = (of("person"), of("auction"), of("bid"));
        assert!(kinds.is_empty(), "{:?}", kinds.keys());
        Self { lines: lines.to_vec(), persons, auctions, bids }
    }

    /// Returns the rows of a query, in any order.
    pub(super) fn answer(&self, query: &str) -> Vec<String> {
        match query {
            "q0" => self.lines.clone(),
            "q1" => self.in_euros(),
            "q2" => self.selected(),
            "q3" => self.local_items(),
            "q4" => self.averages("category", usize::MAX),
            "q5" => self.hot(),
            "q6" => self.averages("seller", 10),
            "q7" => self.highest(),
            "q8" => self.new_users(),
            _ => panic!("there is no query {query}"),
        }
    }

    fn in_euros(&self) -> Vec<String> {
        let row = |bid: &Value| {
            let price = number(bid, "price") * 908 / 1000;
            let (auction, bidder) = (&bid["auction"], &bid["bidder"]);
            let (time, extra) = (&bid["time"], &bid["extra"]);
            format!(r#"{{"auction":{auction},"bidder":{bidder},"price":{price},"time":{time},"extra":{extra}}}"#)
        };
        self.bids.iter().map(row).collect()
    }

    fn selected(&self) -> Vec<String> {
        let selected = self.bids.iter().filter(|bid| number(bid, "auction").is_multiple_of(123));
        selected.map(|bid| format!(r#"{{"auction":{},"price":{}}}"#, bid["auction"], bid["price"])).collect()
    }

    fn local_items(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for auction in self.auctions.iter().filter(|auction| number(auction, "category") == 10) {
            let seller = self.persons.iter().find(|person| person["id"] == auction["seller"]);
            if let Some(person) = seller.filter(|person| ["OR", "ID", "CA"].contains(&text(person, "state"))) {
                let (name, city, state, id) = (&person["name"], &person["city"], &person["state"], &auction["id"]);
                rows.push(format!(r#"{{"name":{name},"city":{city},"state":{state},"auction":{id}}}"#));
            }
        }
        rows
    }

    /// Returns all sales, in the order in which they count.
    fn sales(&self) -> Vec<Sale> {
        let mut bids: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        self.bids.iter().for_each(|bid| bids.entry(number(bid, "auction")).or_default().push(bid));
        let mut sales = Vec::new();
        for auction in &self.auctions {
            let (id, opens, expires) = (number(auction, "id"), time(auction), auction["expires"].as_i64().unwrap());
            let mut price = None;
            for bid in bids.get(&id).into_iter().flatten() {
                if opens <= time(bid) && time(bid) < expires {
                    price = price.max(Some(number(bid, "price")));
                }
            }
            if let Some(price) = price {
                let (seller, category) = (number(auction, "seller"), number(auction, "category"));
                sales.push(Sale { closed: expires - 1, auction: id, seller, category, price });
            }
        }
        sales.sort_by_key(|sale| (sale.closed, sale.auction));
        sales
    }

    fn averages(&self, of: &str, last: usize) -> Vec<String> {
        let mut prices: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut rows = Vec::new();
        for Sale { auction, seller, category, price, .. } in self.sales() {
            let key = if of == "seller" { seller } else { category };
            let prices = prices.entry(key).or_default();
            prices.push(price);
            let counts = &prices[prices.len().saturating_sub(last)..];
            let average = counts.iter().sum::<u64>() / counts.len() as u64;
            rows.push(format!(r#"{{"{of}":{key},"auction":{auction},"average":{average}}}"#));
        }
        rows
    }

    fn hot(&self) -> Vec<String> {
        let mut windows: BTreeMap<i64, BTreeMap<u64, u64>> = BTreeMap::new();
        for bid in &self.bids {
            let first_end = (time(bid) / 2000 + 1) * 2000;
            for end in (first_end..first_end + 10_000).step_by(2000) {
                *windows.entry(end).or_default().entry(number(bid, "auction")).or_default() += 1;
            }
        }
        let mut rows = Vec::new();
        for (end, auctions) in windows {
            let most = auctions.values().max().unwrap();
            for (auction, bids) in auctions.iter().filter(|(_, bids)| *bids == most) {
                rows.push(format!(r#"{{"end":{end},"auction":{auction},"bids":{bids}}}"#));
            }
        }
        rows
    }

    fn highest(&self) -> Vec<String> {
        let mut windows: BTreeMap<i64, Vec<&Value>> = BTreeMap::new();
        for bid in &self.bids {
            windows.entry((time(bid) / 10_000 + 1) * 10_000).or_default().push(bid);
        }
        let row = |(end, mut bids): (i64, Vec<&Value>)| {
            bids.sort_by_key(|bid| (time(bid), number(bid, "auction"), number(bid, "bidder")));
            bids.sort_by_key(|bid| std::cmp::Reverse(number(bid, "price")));
            let best = bids[0];
            let (auction, bidder, price, time) = (&best["auction"], &best["bidder"], &best["price"], &best["time"]);
            format!(r#"{{"end":{end},"auction":{auction},"bidder":{bidder},"price":{price},"time":{time}}}"#)
        };
        windows.into_iter().map(row).collect()
    }

    fn new_users(&self) -> Vec<String> {
        let window = |event: &Value| time(event) / 10_000 * 10_000;
        let sellers: BTreeSet<(i64, u64)> =
            self.auctions.iter().map(|auction| (window(auction), number(auction, "seller"))).collect();
        let is_new = |person: &&Value| sellers.contains(&(window(person), number(person, "id")));
        let row = |person: &Value| format!(r#"{{"id":{},"name":{},"start":{}}}"#, person["id"], person["name"], window(person));
        self.persons.iter().filter(is_new).map(row).collect()
    }
}
