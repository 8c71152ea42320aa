//! State of subtasks when their number changes: split lists, union lists and broadcast state.

use std::collections::BTreeSet;

use cofferdam_dataflow::graph::spec::Partition;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::key_group::{MaxParallelism, key_hash};
use cofferdam_guest::prelude::{
    Broadcast, BroadcastContext, Context, Declare, Error, InstanceInfo, NoConfig, Operator, OperatorList, Record,
};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{Graph, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, World};

use super::{SEEDS, finish};

/// What the subtasks of the first job are given.
const LISTS: [&[&str]; 3] = [&["a", "b", "c", "d"], &["e", "f"], &["g", "h", "i"]];
const MAX_PARALLELISM: u32 = 17;

/// Keeps what it is given in two lists, and tells what it has when it is asked.
struct Keeper {
    split: OperatorList<String>,
    union: OperatorList<String>,
    /// Which copy this is: what all subtasks should do alike, and here do not, to tell the copies apart.
    copy: Broadcast<u64, String>,
    subtask: u32,
}

impl Operator for Keeper {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("records");
        declare.broadcast_input("questions");
        let (split, union) = (declare.split_list("split"), declare.union_list("union"));
        Self { split, union, copy: declare.broadcast("copy"), subtask: 0 }
    }

    fn configure(&mut self, _: NoConfig, info: &InstanceInfo) -> Result<(), Error> {
        self.subtask = info.subtask;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let element = record.text()?.to_owned();
        self.split.push(cx, &element)?;
        self.union.push(cx, &element)
    }

    fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        if record.text()? == "name yourself" {
            return self.copy.put(cx, &0, format!("of {}", self.subtask));
        }
        let copy = self.copy.get(cx, &0)?.unwrap_or_default();
        let row = [self.subtask.to_string(), self.split.read(cx)?.concat(), self.union.read(cx)?.concat(), copy].join("\t");
        cx.emit_text(row.as_str())
    }
}

fn graph(world: &World, parallelism: u32) -> Graph {
    let groups = MaxParallelism::new(MAX_PARALLELISM).unwrap();
    let subtask_of = |key: &str| groups.owner(groups.group_of(key_hash(key.as_bytes())), 3);
    let records = LISTS.iter().zip(0..).flat_map(|(list, subtask)| {
        let key = (0..).map(|n| format!("key{n}")).find(|key| subtask_of(key) == subtask).unwrap();
        list.iter().map(move |value| SourceRecord { key: Some(key.clone()), time: None, value: (*value).to_owned() })
    });
    let mut graph = Graph::every_ms(500)
        .source("records", 1, SplitsSource::new(world, vec![("records".into(), records.collect())], 4, 100))
        .source("questions", 1, SplitsSource::lines(world, "questions", ["name yourself", "what have you?"]))
        .operator("keeper", parallelism, NativeFactory::<Keeper>::new("{}"), &[("records", 0), ("questions", 1)])
        .partitioned_each(&[Some(Partition::Keyed), None])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "keeper");
    graph.max_parallelism = MAX_PARALLELISM;
    graph
}

/// What each subtask has, by its number: of the split list, of the union list, and whose copy.
fn told(seed: u64, parallelism: u32) -> Vec<[String; 3]> {
    let mut simulation = Simulation::new(seed);
    let world = simulation.world.clone();
    // No source ends before the parallelism changes.
    world.gate([("records", 9), ("questions", 1)]);
    simulation.start(&graph(&world, 3));
    let is_told = |simulation: &Simulation| simulation.world.reads("records") == 9 && simulation.world.reads("questions") == 1;
    simulation.run_until(|simulation| is_told(simulation) && !simulation.completed().is_empty());
    simulation.stop();
    let end = simulation.run_to_end();
    assert!(matches!(end, Some(JobEnd::Stopped { checkpoint: Some(_), .. })), "{end:?}");
    simulation.start(&graph(&world, parallelism));
    world.gate([]);
    finish(&mut simulation);
    let mut rows: Vec<Vec<String>> = world.log("out").iter().map(|row| row.split('\t').map(str::to_owned).collect()).collect();
    rows.sort();
    assert!(rows.iter().zip(0..parallelism).all(|(row, subtask)| row[0] == subtask.to_string()), "{rows:?}");
    rows.into_iter()
        .map(|row| <[String; 4]>::try_from(row).map(|[_, split, union, copy]| [split, union, copy]).unwrap())
        .collect()
}

#[test]
fn split_lists_are_cut_evenly_union_lists_go_to_all_and_copies_are_dealt_in_turn() {
    let expected: [(u32, &[&str]); 5] = [
        (1, &["abcdefghi"]),
        (2, &["abcde", "fghi"]),
        // Every list stays where it is.
        (3, &["abcd", "ef", "ghi"]),
        (4, &["abc", "de", "fg", "hi"]),
        (10, &["a", "b", "c", "d", "e", "f", "g", "h", "i", ""]),
    ];
    for (seed, (parallelism, split)) in SEEDS.zip(expected.iter().cycle()) {
        let found = told(seed, *parallelism);
        let [lists, unions, copies] = [0, 1, 2].map(|field| found.iter().map(|row| row[field].as_str()).collect::<Vec<_>>());
        assert_eq!(lists, *split, "seed {seed}");
        assert_eq!(unions.iter().collect::<BTreeSet<_>>().len(), 1, "seed {seed}: {unions:?}");
        assert_eq!(unions[0], "abcdefghi", "seed {seed}");
        let in_turn: Vec<_> = (0..*parallelism).map(|subtask| format!("of {}", subtask % 3)).collect();
        assert_eq!(copies, in_turn, "seed {seed}");
    }
}
