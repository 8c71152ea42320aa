//! Random graphs: sources that end at different times, operators with and without state, unions, and edges of every kind.
//!
//! What an operator emits depends on what it gets, but not on the order; so a sequential run over the same records says
//! what every node must have got, counted and written.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_dataflow::graph::spec::Partition;
use cofferdam_dataflow::guest::GuestFactory;
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    Change, Checkpoint, FaultyFactory, Graph, GuestFaults, Random, SimSink, SinkKind, SourceRecord, SplitsSource, Step, Tally,
    World, key_of, stored_number,
};

use super::{Settings, Workload, pick};

const KEYS: [&str; 6] = ["u", "v", "w", "x", "y", "z"];

#[derive(Clone, Debug)]
enum Kind {
    Source(Vec<(String, Vec<String>)>),
    Step(Change),
    Tally,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    /// Nodes before this one, and how their records are dealt out; `None` leaves that to the engine.
    inputs: Vec<(usize, Option<Partition>)>,
    /// How often it gets each record that is broadcast to it: its parallelism, which stays as it is.
    copies: Option<u32>,
    /// Whether it writes to a sink of its own.
    has_sink: bool,
}

/// A graph and its input. Nodes come after their inputs.
#[derive(Clone)]
pub(super) struct Job {
    nodes: Vec<Node>,
    batch_max: usize,
    pause_permille: u64,
    settings: Settings,
}

fn source(random: &mut Random, index: usize) -> Node {
    let value = |random: &mut Random| format!("{}{}", pick(random, &KEYS), random.below(10));
    let split = |random: &mut Random, split: u64| {
        let records = (0..random.below(60)).map(|_| value(random)).collect();
        (format!("s{index}-{split}"), records)
    };
    let splits = (0..1 + random.below(3)).map(|index| split(random, index)).collect();
    Node { kind: Kind::Source(splits), inputs: vec![], copies: None, has_sink: random.chance(100) }
}

fn operator(random: &mut Random, before: usize, may_copy: bool) -> Node {
    let kind = if random.chance(500) { Kind::Tally } else { Kind::Step(pick(random, &Change::ALL)) };
    let mut from: Vec<usize> = (0..1 + random.index(3)).map(|_| random.index(before)).collect();
    from.sort_unstable();
    from.dedup();
    let mut copies = None;
    let mut inputs = Vec::new();
    for from in from {
        let partition = match kind {
            Kind::Tally => pick(random, &[None, Some(Partition::Keyed)]),
            Kind::Source(_) | Kind::Step(_) => {
                pick(random, &[None, Some(Partition::Keyed), Some(Partition::Rebalance), Some(Partition::Broadcast)])
            }
        };
        if partition == Some(Partition::Broadcast) && !may_copy {
            inputs.push((from, None));
            continue;
        }
        if partition == Some(Partition::Broadcast) {
            copies = Some(1 + u32::try_from(random.below(3)).unwrap());
        }
        inputs.push((from, partition));
    }
    if let ([(_, partition)], Kind::Step(_), None) = (&mut inputs[..], &kind, copies)
        && random.chance(400)
    {
        *partition = Some(Partition::Forward);
    }
    Node { kind, inputs, copies, has_sink: random.chance(100) }
}

impl Job {
    pub(super) fn random(random: &mut Random) -> Self {
        let mut nodes: Vec<_> = (0..1 + random.index(3)).map(|index| source(random, index)).collect();
        for _ in 0..1 + random.below(4) {
            let may_copy = nodes.iter().all(|node| node.copies.is_none());
            let node = operator(random, nodes.len(), may_copy);
            nodes.push(node);
        }
        for index in 0..nodes.len() {
            let is_read = nodes.iter().any(|node| node.inputs.iter().any(|(from, _)| *from == index));
            nodes[index].has_sink |= !is_read;
        }
        let (batch_max, pause_permille) = (pick(random, &[1, 3, 10]), pick(random, &[0, 50, 300]));
        Self { nodes, batch_max, pause_permille, settings: Settings::random(random) }
    }

    /// The values that each node emits for the records before these positions; all of them without any.
    fn model(&self, positions: Option<&BTreeMap<String, u64>>) -> Vec<Vec<String>> {
        let mut outputs: Vec<Vec<String>> = Vec::new();
        for node in &self.nodes {
            let gets = |(from, partition): &(usize, Option<Partition>)| {
                let copies = if *partition == Some(Partition::Broadcast) { node.copies.unwrap_or(1) } else { 1 };
                (0..copies).flat_map(|_| &outputs[*from]).cloned().collect::<Vec<_>>()
            };
            let values: Vec<String> = node.inputs.iter().flat_map(gets).collect();
            let output = match &node.kind {
                Kind::Source(splits) => {
                    let read = |(split, records): &(String, Vec<String>)| {
                        let all = records.len() as u64;
                        let position = positions.map_or(all, |positions| positions.get(split).copied().unwrap_or(0));
                        records[..usize::try_from(position).unwrap()].to_vec()
                    };
                    splits.iter().flat_map(read).collect()
                }
                Kind::Step(change) => values.iter().flat_map(|value| change.apply(value)).collect(),
                Kind::Tally => {
                    tally(&values).into_iter().flat_map(|(key, count)| (1..=count).map(move |n| format!("{key}{n}"))).collect()
                }
            };
            outputs.push(output);
        }
        outputs
    }

    /// The counts of each tally.
    fn tallies(&self, outputs: &[Vec<String>]) -> BTreeMap<String, BTreeMap<String, u64>> {
        let tallies = self.nodes.iter().enumerate().filter(|(_, node)| matches!(node.kind, Kind::Tally));
        let count = |(index, node): (usize, &Node)| {
            let values: Vec<String> = node.inputs.iter().flat_map(|(from, _)| outputs[*from].clone()).collect();
            (format!("{}/n", name(index)), tally(&values))
        };
        tallies.map(count).filter(|(_, counts)| !counts.is_empty()).collect()
    }

    fn assert_rows(&self, outputs: &[Vec<String>], world: &World) -> Result<(), String> {
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.has_sink) {
            let mut rows = world.log(&sink_name(index));
            rows.sort();
            let mut expected: Vec<_> = outputs[index].iter().map(|value| format!("{}={value}", key_of(value))).collect();
            expected.sort();
            if rows != expected {
                return Err(format!("{} wrote {rows:?} instead of {expected:?} in {:?}", name(index), self.nodes));
            }
        }
        Ok(())
    }

    /// Chooses the parallelism of each node.
    fn parallelism(&self, random: &mut Random) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::new();
        for node in &self.nodes {
            let forward = node.inputs.iter().find(|(_, partition)| *partition == Some(Partition::Forward));
            let any = pick(random, &[1, 1, 2, 3, 4]);
            chosen.push(node.copies.or(forward.map(|(from, _)| chosen[*from])).unwrap_or(any));
        }
        chosen
    }
}

fn name(index: usize) -> String {
    format!("node{index}")
}

fn sink_name(index: usize) -> String {
    format!("sink{index}")
}

fn tally(values: &[String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(key_of(value).to_owned()).or_default() += 1;
    }
    counts
}

impl Workload for Job {
    fn graph(&self, world: &World, faults: &GuestFaults, random: &mut Random) -> Graph {
        let mut graph = self.settings.graph(random);
        let parallelism = self.parallelism(random);
        let faulty = |inner: Arc<dyn GuestFactory>| FaultyFactory::new(inner, faults.clone());
        for (index, node) in self.nodes.iter().enumerate() {
            let names: Vec<_> = node.inputs.iter().map(|(from, _)| name(*from)).collect();
            let from: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
            let (name, p) = (name(index), parallelism[index]);
            graph = match &node.kind {
                Kind::Source(splits) => {
                    let record =
                        |value: &String| SourceRecord { key: Some(key_of(value).into()), time: None, value: value.clone() };
                    let splits = splits.iter().map(|(split, records)| (split.clone(), records.iter().map(record).collect()));
                    graph.source(&name, p, SplitsSource::new(world, splits.collect(), self.batch_max, self.pause_permille))
                }
                Kind::Step(change) => {
                    let config = Change::ALL.iter().position(|other| other == change).unwrap();
                    graph.operator(&name, p, faulty(Arc::new(NativeFactory::<Step>::new(&config.to_string()))), &from)
                }
                Kind::Tally => graph.operator(&name, p, faulty(Arc::new(NativeFactory::<Tally>::new("{}"))), &from),
            };
            let partitions: Vec<_> = node.inputs.iter().map(|(_, partition)| *partition).collect();
            graph = graph.partitioned_each(&partitions);
        }
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.has_sink) {
            let (sink, p) = (sink_name(index), pick(random, &[1, 2, 3, parallelism[index]]));
            graph = graph.sink(&sink, p, SimSink::new(world, &sink, SinkKind::Transactional), &name(index));
        }
        graph
    }

    fn check(&self, checkpoint: &Checkpoint, world: &World) -> Result<(), String> {
        let outputs = self.model(Some(&checkpoint.positions));
        let decoded = |entries: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, u64> {
            entries.iter().map(|(key, value)| (key.clone(), stored_number(value))).collect()
        };
        let state: BTreeMap<_, _> =
            checkpoint.state.iter().map(|(table, e)| (table.clone(), decoded(e))).filter(|(_, e)| !e.is_empty()).collect();
        let expected = self.tallies(&outputs);
        // A job that goes on at a parallelism that does not fit cannot read the state; it does not start, either.
        if !checkpoint.state.is_empty() && state != expected {
            return Err(format!("state is {state:?} instead of {expected:?} at {:?}", checkpoint.positions));
        }
        if checkpoint.committed { self.assert_rows(&outputs, world) } else { Ok(()) }
    }

    fn assert_output(&self, world: &World) {
        self.assert_rows(&self.model(None), world).unwrap();
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }
}
