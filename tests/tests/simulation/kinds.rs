//! Operators of the SDK with state of every kind, through failures: what belongs together stays together.

use std::sync::Arc;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_guest::prelude::{
    Broadcast, BroadcastContext, Context, Declare, Error, List, Map, NoConfig, Operator, OperatorList, Record, Value,
};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    FaultyFactory, Graph, GuestFaults, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When,
};

use super::{SEEDS, assert_rows, finish, running_counts};

/// Counts the records of each key four times over: in a value, a list, a map, and with all others in a list of the
/// subtask. Fails for good when they differ, or when the rules that have come are not the first ones.
struct FourTimes {
    n: Value<u64>,
    list: List<String>,
    map: Map<(String, u64), u64>,
    all: OperatorList<u64>,
    rules: Broadcast<u64, String>,
}

impl Operator for FourTimes {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("records");
        declare.broadcast_input("rules");
        Self {
            n: declare.value("n").on_demand(),
            list: declare.list("list"),
            map: declare.map("map"),
            all: declare.split_list("all"),
            rules: declare.broadcast("rules"),
        }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.text()?.to_owned();
        let n = self.n.update(cx, |n| {
            *n += 1;
            *n
        })?;
        self.map.update(cx, &(value.clone(), n % 3), |times| *times += 1)?;
        self.list.push(cx, &value)?;
        self.all.push(cx, &n)?;
        let list = self.list.read(cx)?.len() as u64;
        let map = self.map.iter(cx).map(|entry| entry.map(|(_, times)| times)).sum::<Result<u64, _>>()?;
        let all = self.all.read(cx)?.len() as u64;
        if (list, map) != (n, n) || all < n {
            return Err(Error::permanent(format!("a value of {n}, a list of {list}, a map of {map}, {all} of all")));
        }
        let rules = self.rules.iter(cx).collect::<Result<Vec<_>, _>>()?;
        if !rules.iter().map(|(number, _)| *number).eq(0..rules.len() as u64) {
            return Err(Error::permanent(format!("the rules {rules:?}")));
        }
        cx.emit_text((cx.key_text()?, "\t", n))
    }

    fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        let number = self.rules.iter(cx).count() as u64;
        self.rules.put(cx, &number, record.text()?.to_owned())
    }
}

#[test]
fn state_of_every_kind_goes_on_together_after_failures() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let (world, faults) = (simulation.world.clone(), GuestFaults::default());
        let record = |n: usize| {
            let (key, value) = (KEYS[n * (n + 1) / 2 % 4], ["x", "y", "z"][n % 3]);
            SourceRecord { key: Some(key.into()), time: None, value: value.into() }
        };
        let records: Vec<_> = (0..80).map(record).collect();
        let counts = KEYS.map(|key| (key, records.iter().filter(|record| record.key.as_deref() == Some(key)).count() as u64));
        let operator = FaultyFactory::new(Arc::new(NativeFactory::<FourTimes>::new("{}")), faults.clone());
        let graph = Graph::every_ms(500)
            .source("records", 1, SplitsSource::new(&world, vec![("records".into(), records)], 7, 100))
            .source("rules", 1, SplitsSource::lines(&world, "rules", ["r0", "r1", "r2", "r3"]))
            .operator("four", 2, operator, &[("records", 0), ("rules", 1)])
            .sink("out", 1, SimSink::new(&world, "out", SinkKind::Transactional), "four");
        world.gate([("records", 40), ("rules", 2)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.completed() == [1]);
        faults.add(When::Call(2), 1, FaultClass::Guest);
        world.gate([]);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 1, "seed {seed}");
        assert_rows(&world.log("out"), &running_counts(counts));
    }
}
