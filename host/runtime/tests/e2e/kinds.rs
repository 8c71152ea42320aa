//! A pipeline with maps, lists and broadcast state, killed at any moment: each row comes once, from the state that it should.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::output::rows;
use super::stage::{Random, Stage, example, seed};

const KILLS: u64 = 12;
const PURCHASES: u64 = 100_000;
/// What is off, in percent.
const RULES: [(&str, u64); 2] = [("tea", 20), ("jam", 50)];
const PRODUCTS: [(&str, u64); 5] = [("tea", 450), ("coffee", 620), ("milk", 121), ("jam", 379), ("bread", 290)];

fn pipeline() -> String {
    example("price-rules/pipeline.toml")
        .replace("component = \"enrich\"", "component = \"price-rules.wasm\"")
        .replace("interval = \"1s\"", "interval = \"50ms\"\nstorage = \"job\"")
}

/// What is told of a purchase, but for what was paid.
type Told = (String, String, u64, Vec<String>);

/// Makes purchases up; returns their lines and what should be told of each, in order.
fn purchases(random: &mut Random) -> (String, Vec<Told>) {
    let (mut lines, mut told) = (String::new(), Vec::new());
    let (mut times, mut last) = (BTreeMap::<(String, &str), u64>::new(), BTreeMap::<String, Vec<String>>::new());
    for _ in 0..PURCHASES {
        let customer = format!("c{}", random.below(50));
        let (product, price) = PRODUCTS[usize::try_from(random.below(PRODUCTS.len() as u64)).unwrap()];
        writeln!(lines, r#"{{"customer": "{customer}", "product": "{product}", "price": {price}}}"#).unwrap();
        let times = times.entry((customer.clone(), product)).or_default();
        *times += 1;
        let last = last.entry(customer.clone()).or_default();
        told.push((customer, product.to_owned(), *times, last.clone()));
        last.push(product.to_owned());
        if last.len() > 3 {
            last.remove(0);
        }
    }
    (lines, told)
}

/// What a row tells, and what was paid.
fn read(row: &str) -> (Told, u64) {
    let row: Value = serde_json::from_str(row).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let before = row["before"].as_array().unwrap().iter().map(text).collect();
    let told = (text(&row["customer"]), text(&row["product"]), row["times"].as_u64().unwrap(), before);
    (told, row["paid"].as_u64().unwrap())
}

#[test]
fn maps_lists_and_rules_survive_any_kill() {
    let mut random = Random(seed());
    let (lines, mut expected) = purchases(&mut random);
    let stage = Stage::new();
    stage.components(&["price-rules"]);
    stage.write("pipeline.toml", pipeline());
    stage.write("purchases.jsonl", lines);
    let rules: Vec<_> = RULES.iter().map(|(product, off)| json!({"product": product, "percent_off": off}).to_string()).collect();
    stage.write("rules.jsonl", rules.join("\n"));

    let (mut kills, mut longest_us) = (0, 60_000);
    while kills < KILLS {
        let mut running = stage.start(&[]);
        if !running.run_for(Duration::from_micros(random.below(longest_us))) {
            running.wait();
            break;
        }
        running.kill();
        kills += 1;
        let is_ahead = rows(&stage.path("out")).len() as u64 * KILLS * 10 > PURCHASES * kills * 9;
        longest_us = if is_ahead { longest_us / 2 } else { longest_us * 6 / 5 };
    }
    let ended = stage.run(&[]);
    assert_eq!(ended.code(), Some(0), "{}", ended.told());
    println!("killed {kills} times");
    assert!(kills >= KILLS / 2, "the run was over after {kills} kills");

    let mut found: Vec<_> = rows(&stage.path("out")).iter().map(|row| read(row)).collect();
    found.sort();
    expected.sort();
    assert!(found.iter().map(|(told, _)| told).eq(&expected), "each purchase is told of once, with what came before it");
    // A rule comes at some moment, and holds from then on: it is in no source any more when a killed run goes on.
    let prices = BTreeMap::from(PRODUCTS);
    let rules = BTreeMap::from(RULES);
    let mut off_before = BTreeMap::<(&str, &str), bool>::new();
    let mut with_rule = 0;
    for ((customer, product, ..), paid) in &found {
        let price = prices[product.as_str()];
        let reduced = price - price * rules.get(product.as_str()).copied().unwrap_or(0) / 100;
        assert!(*paid == price || *paid == reduced, "{product} for {paid}");
        let has_come = off_before.entry((customer, product)).or_default();
        assert!(*paid == reduced || !*has_come, "{customer} pays {paid} for {product} after the rule had come");
        *has_come = *paid == reduced;
        with_rule += u64::from(*paid != price);
    }
    assert!(with_rule > 0, "no rule ever came");
}
