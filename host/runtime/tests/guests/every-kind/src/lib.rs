//! Counts the records of each key in every kind of state there is, and fails for good where they differ.

use cofferdam_guest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

/// A sum and how many it is of.
pub struct Sum;

impl Aggregate for Sum {
    type Input = u64;
    type Accumulator = (u64, u64);
    type Output = (u64, u64);

    fn add(sum: &mut (u64, u64), input: u64) {
        *sum = (sum.0 + input, sum.1 + 1);
    }

    fn result(sum: &(u64, u64)) -> (u64, u64) {
        *sum
    }

    fn merge(sum: &mut (u64, u64), other: (u64, u64)) {
        *sum = (sum.0 + other.0, sum.1 + other.1);
    }
}

/// The operator.
pub struct EveryKind {
    count: Value<u64>,
    /// The last amounts.
    last: List<u64>,
    /// How often each amount has come.
    amounts: Map<u64, u64>,
    largest: Reducing<u64>,
    sum: Aggregating<Sum>,
    /// Every tenth or so of all amounts, of whichever key.
    some: OperatorList<(String, u64)>,
    /// The keys that have been met. At another parallelism every subtask begins with those of all others.
    met: OperatorList<String>,
    rules: Broadcast<String, u64>,
}

impl Operator for EveryKind {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("payments");
        declare.broadcast_input("ticks");
        EveryKind {
            count: declare.value("count"),
            last: declare.list("last"),
            amounts: declare.map("amounts"),
            largest: declare.reducing("largest", u64::max),
            sum: declare.aggregating("sum"),
            some: declare.split_list("some"),
            met: declare.union_list("met"),
            rules: declare.broadcast("rules"),
        }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Payment { amount } = record.json()?;
        let user = cx.key_text()?.to_owned();
        let count = self.count.update(cx, |count| {
            *count += 1;
            *count
        })?;
        self.amounts.update(cx, &amount, |times| *times += 1)?;
        let largest = self.largest.add(cx, amount)?;
        let (sum, parts) = self.sum.add(cx, amount)?;
        let mut last = self.last.read(cx)?;
        if last.len() as u64 != (count - 1).min(5) {
            return Err(Error::permanent(format!("{user}: {} amounts before payment {count}", last.len())));
        }
        last.push(amount);
        if last.len() > 5 {
            last.remove(0);
        }
        self.last.set(cx, last)?;
        let amounts = self.amounts.iter(cx).collect::<Result<Vec<_>, _>>()?;
        let times: u64 = amounts.iter().map(|(_, times)| times).sum();
        let total: u64 = amounts.iter().map(|(amount, times)| amount * times).sum();
        let most = amounts.iter().map(|(amount, _)| *amount).max();
        if (times, total, most) != (count, sum, Some(largest)) || parts != count {
            let what = format!("{user}: {count} payments, {times} of them {total}, {parts} of them {sum}, the largest {largest}");
            return Err(Error::permanent(what));
        }
        if amount % 10 == 0 {
            self.some.push(cx, &(user.clone(), amount))?;
        }
        let mut met = self.met.read(cx)?;
        let before = met.clone();
        met.push(user.clone());
        met.sort();
        met.dedup();
        if met != before {
            self.met.set(cx, &met)?;
        }
        cx.emit_text((user.as_str(), "\t", count))
    }

    fn process_broadcast(&mut self, _: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        self.rules.put(cx, "ticks", 1)
    }
}

export!(EveryKind);
