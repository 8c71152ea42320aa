//! Works out what each purchase costs by rules that come in beside the purchases, and tells what the customer bought before.

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// How many purchases of a customer are kept.
const KEPT: usize = 3;

/// A line of the input `purchases`. Prices are in cents.
#[derive(Deserialize)]
struct Purchase {
    product: String,
    price: u64,
}

/// A line of the input `rules`. Nothing off is no rule.
#[derive(Deserialize)]
struct Rule {
    product: String,
    percent_off: u64,
}

/// An output line.
#[derive(Serialize)]
struct Row<'a> {
    customer: &'a str,
    product: &'a str,
    price: u64,
    paid: u64,
    /// How often the customer has bought the product, this time included.
    times: u32,
    /// The customer's purchases before this one, oldest first.
    before: &'a [String],
}

/// The operator.
pub struct Enrich {
    /// What is off, in percent, by product: the same on all subtasks.
    rules: Broadcast<String, u64>,
    /// How often a customer has bought each product.
    times: Map<String, u32>,
    /// A customer's last purchases.
    last: List<String>,
}

impl Operator for Enrich {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("purchases");
        declare.broadcast_input("rules");
        Enrich { rules: declare.broadcast("rules"), times: declare.map("times"), last: declare.list("last") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Purchase { product, price } = record.json()?;
        let off = self.rules.get(cx, &product)?.unwrap_or(0);
        let paid = price - price * off / 100;
        let times = self.times.update(cx, &product, |times| {
            *times += 1;
            *times
        })?;
        let mut last = self.last.read(cx)?;
        let row = Row { customer: cx.key_text()?, product: &product, price, paid, times, before: &last };
        cx.out().keep_key().send_json(&row)?;
        if last.len() < KEPT {
            return self.last.push(cx, &product);
        }
        last.remove(0);
        last.push(product);
        self.last.set(cx, last)
    }

    fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        match record.json()? {
            Rule { product, percent_off: 0 } => self.rules.remove(cx, &product),
            Rule { product, percent_off } if percent_off <= 100 => self.rules.put(cx, &product, percent_off),
            Rule { product, percent_off } => Err(Error::permanent(format!("{percent_off} percent off {product:?}"))),
        }
    }
}

export!(Enrich);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn purchase(customer: &str, product: &str, price: u64) -> TestRecord {
        record(format!(r#"{{"customer": "{customer}", "product": "{product}", "price": {price}}}"#)).key(customer)
    }

    fn rule(product: &str, percent_off: u64) -> TestRecord {
        record(format!(r#"{{"product": "{product}", "percent_off": {percent_off}}}"#)).port("rules")
    }

    #[test]
    fn rules_hold_for_every_customer_until_they_are_lifted() {
        let mut enrich = Harness::<Enrich>::new();
        let mut paid = |records: Vec<TestRecord>| -> Vec<String> {
            let out = enrich.process(records).unwrap();
            let paid = |row: &&str| row.split("\"paid\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
            out.texts().iter().map(paid).collect()
        };
        assert_eq!(paid(vec![rule("tea", 20), purchase("ada", "tea", 450), purchase("bob", "tea", 99)]), ["360", "80"]);
        assert_eq!(paid(vec![purchase("ada", "milk", 70), rule("tea", 0), purchase("ada", "tea", 450)]), ["70", "450"]);
        assert_eq!(enrich.broadcast::<String, u64>("rules"), []);
        let error = enrich.process([rule("tea", 101)]).unwrap_err();
        assert_eq!(error.message(), "101 percent off \"tea\"");
    }

    #[test]
    fn a_customers_purchases_are_counted_and_the_last_are_kept() {
        let mut enrich = Harness::<Enrich>::new();
        let products = ["tea", "milk", "tea", "jam", "tea"];
        let out = enrich.process(products.map(|product| purchase("ada", product, 100))).unwrap();
        let last = r#"{"customer":"ada","product":"tea","price":100,"paid":100,"times":3,"before":["milk","tea","jam"]}"#;
        assert_eq!(out.texts()[4], last);
        assert_eq!(enrich.state_list::<String>("last", "ada"), ["tea", "jam", "tea"]);
        let counts = [("jam".to_owned(), 1), ("milk".to_owned(), 1), ("tea".to_owned(), 3)];
        assert_eq!(enrich.state_map::<String, u32>("times", "ada"), counts);
        assert_eq!(enrich.keys("last"), [b"ada"]);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let purchases =
            |from: usize| (from..from + 20).map(|i| purchase(["ada", "bob"][i % 2], ["tea", "jam", "milk"][i % 3], 100));
        let records = purchases(0).chain([rule("tea", 50), rule("jam", 10)]).chain(purchases(1)).chain([rule("tea", 0)]);
        Harness::<Enrich>::new().assert_batch_independent(records.chain(purchases(2)));
    }
}
