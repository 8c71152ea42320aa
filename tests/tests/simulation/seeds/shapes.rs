//! Jobs of a few fixed shapes, whose output keeps the order of each key.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_dataflow::guest::GuestFactory;
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    Checkpoint, Cycle, FaultyFactory, Graph, GuestFaults, Merge, Random, SimSink, SinkKind, SourceRecord, SplitsSource, World,
    stored_number,
};
use word_count_count::Count;

use super::super::{assert_rows, split};
use super::{Settings, Workload, pick};

const WORDS: [&str; 12] = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "tis", "nobler", "in"];

/// What the records of a job go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A keyed count.
    Count,
    /// A count that forgets.
    Cycle,
    /// Lines, split into words, counted.
    Words,
    /// Two sources, added up.
    Merge,
    /// Words counted by two operators, each with a sink of its own.
    Branches,
}

type Splits = Vec<(String, Vec<SourceRecord>)>;

/// A job and its input.
#[derive(Clone)]
pub(super) struct Job {
    shape: Shape,
    /// Of each source.
    inputs: Vec<Splits>,
    batch_max: usize,
    pause_permille: u64,
    settings: Settings,
}

fn input(random: &mut Random, shape: Shape, source: usize) -> Splits {
    let split = |random: &mut Random, index: u64| {
        let record = |random: &mut Random| match shape {
            Shape::Count | Shape::Cycle | Shape::Branches => {
                let word = pick(random, &WORDS);
                SourceRecord { key: Some(word.into()), time: None, value: word.into() }
            }
            Shape::Words => {
                let words: Vec<_> = (0..random.below(5)).map(|_| pick(random, &WORDS)).collect();
                SourceRecord { value: words.join(" "), ..SourceRecord::default() }
            }
            Shape::Merge => SourceRecord { key: Some(pick(random, &WORDS[..4]).into()), time: None, value: "1".into() },
        };
        let records = (0..random.below(120)).map(|_| record(random)).collect();
        (format!("s{source}-{index}"), records)
    };
    (0..1 + random.below(4)).map(|index| split(random, index)).collect()
}

impl Job {
    pub(super) fn random(random: &mut Random) -> Self {
        let shape = pick(random, &[Shape::Count, Shape::Cycle, Shape::Words, Shape::Merge, Shape::Branches]);
        let sources = if shape == Shape::Merge { 2 } else { 1 };
        Self {
            shape,
            inputs: (0..sources).map(|source| input(random, shape, source)).collect(),
            batch_max: pick(random, &[1, 3, 10]),
            pause_permille: pick(random, &[0, 50, 300]),
            settings: Settings::random(random),
        }
    }

    /// How often each key occurs in the records before these positions.
    fn counts(&self, positions: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (split, records) in self.inputs.iter().flatten() {
            let position = positions.get(split).copied().unwrap_or(0);
            for record in &records[..usize::try_from(position).unwrap()] {
                match &record.key {
                    Some(key) => *counts.entry(key.clone()).or_default() += 1,
                    None => record.value.split_whitespace().for_each(|w| *counts.entry(w.to_owned()).or_default() += 1),
                }
            }
        }
        counts
    }

    /// The rows that a job without faults writes for these records.
    fn rows(&self, positions: &BTreeMap<String, u64>) -> Vec<String> {
        let counts = self.counts(positions);
        let row = |key: &str, n: u64| match self.shape {
            Shape::Cycle => format!("{key}={key}\t{}", (n - 1) % 3 + 1),
            Shape::Merge => format!("{key}={n}"),
            Shape::Count | Shape::Words | Shape::Branches => format!("{key}\t{n}"),
        };
        let mut rows: Vec<_> = counts.iter().flat_map(|(key, count)| (1..=*count).map(|n| row(key, n))).collect();
        rows.sort();
        rows
    }

    fn everything(&self) -> BTreeMap<String, u64> {
        self.inputs.iter().flatten().map(|(split, records)| (split.clone(), records.len() as u64)).collect()
    }

    fn sinks(&self) -> &'static [&'static str] {
        if self.shape == Shape::Branches { &["out", "also"] } else { &["out"] }
    }
}

impl Workload for Job {
    fn graph(&self, world: &World, faults: &GuestFaults, random: &mut Random) -> Graph {
        let mut graph = self.settings.graph(random);
        let parallelism: Vec<u32> = (0..6).map(|_| pick(random, &[1, 1, 2, 3, 4])).collect();
        for (index, splits) in self.inputs.iter().enumerate() {
            let source = SplitsSource::new(world, splits.clone(), self.batch_max, self.pause_permille);
            graph = graph.source(&format!("source{index}"), parallelism[index], source);
        }
        let faulty = |inner: Arc<dyn GuestFactory>| FaultyFactory::new(inner, faults.clone());
        let count = || faulty(Arc::new(NativeFactory::<Count>::new("{}")));
        let sink = |name: &str| SimSink::new(world, name, SinkKind::Transactional);
        let (p, q) = (parallelism[2], parallelism[3]);
        // A sink with its operator's parallelism keeps the order of a key.
        match self.shape {
            Shape::Count => graph.operator("op", p, count(), &[("source0", 0)]).sink("out", p, sink("out"), "op"),
            Shape::Cycle => {
                let cycle = faulty(Arc::new(NativeFactory::<Cycle>::new("{}")));
                graph.operator("op", p, cycle, &[("source0", 0)]).sink("out", p, sink("out"), "op")
            }
            Shape::Words => graph
                .operator("split", q, split(faults), &[("source0", 0)])
                .operator("op", p, count(), &[("split", 0)])
                .sink("out", p, sink("out"), "op"),
            Shape::Merge => {
                let merge = faulty(Arc::new(NativeFactory::<Merge>::new("{}")));
                graph.operator("op", p, merge, &[("source0", 0), ("source1", 1)]).sink("out", p, sink("out"), "op")
            }
            Shape::Branches => graph
                .operator("op", p, count(), &[("source0", 0)])
                .operator("other", q, count(), &[("source0", 0)])
                .sink("out", p, sink("out"), "op")
                .sink("also", q, sink("also"), "other"),
        }
    }

    /// State and committed output are those of the records before the checkpoint.
    fn check(&self, checkpoint: &Checkpoint, world: &World) -> Result<(), String> {
        let mut expected = self.counts(&checkpoint.positions);
        if self.shape == Shape::Cycle {
            expected.values_mut().for_each(|n| *n %= 3);
            expected.retain(|_, n| *n > 0);
        }
        for (table, entries) in &checkpoint.state {
            let state: BTreeMap<_, _> = entries.iter().map(|(key, value)| (key.clone(), stored_number(value))).collect();
            if state != expected {
                return Err(format!("{table} is {state:?} instead of {expected:?} at {:?}", checkpoint.positions));
            }
        }
        if checkpoint.committed {
            for sink in self.sinks() {
                let mut rows = world.log(sink);
                rows.sort();
                let expected = self.rows(&checkpoint.positions);
                if rows != expected {
                    return Err(format!("committed to {sink}: {rows:?} instead of {expected:?}"));
                }
            }
        }
        Ok(())
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn assert_output(&self, world: &World) {
        for sink in self.sinks() {
            let log = world.log(sink);
            if self.shape == Shape::Cycle {
                let mut sorted = log.clone();
                sorted.sort();
                assert_eq!(sorted, self.rows(&self.everything()));
            } else {
                assert_rows(&log, &self.rows(&self.everything()));
            }
        }
    }
}
