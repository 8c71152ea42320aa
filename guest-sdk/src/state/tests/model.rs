//! All kinds of state against a model: random commands in random batches, with failures and new instances between.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::testing::{Harness, TestRecord, record};

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Command {
    Push(u32),
    SetList(Vec<u32>),
    ClearList,
    ReadList,
    Put(i8, u32),
    Bump(i8),
    Remove(i8),
    ClearMap,
    Get(i8),
    GetMany(Vec<i8>),
    Contains(i8),
    Scan(i8, i8),
    ScanFrom(i8),
    Note(u32),
    SetNotes(Vec<u32>),
    ReadNotes,
    Lazy(u32),
    ForgetLazy,
    Largest(u32),
    Mean(u32),
    Rule(String),
    Rules,
    Fail,
}

/// For the broadcast input.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Order {
    Put(String, u32),
    Bump(String),
    Remove(String),
    Clear,
    Read,
    Note(u32),
}

struct Mean;

impl Aggregate for Mean {
    type Input = u32;
    type Accumulator = (u64, u64);
    type Output = u64;

    fn add(sum: &mut (u64, u64), input: u32) {
        *sum = (sum.0 + u64::from(input), sum.1 + 1);
    }

    fn result(sum: &(u64, u64)) -> u64 {
        sum.0 / sum.1.max(1)
    }

    fn merge(sum: &mut (u64, u64), other: (u64, u64)) {
        *sum = (sum.0 + other.0, sum.1 + other.1);
    }
}

struct Obedient {
    list: List<u32>,
    map: Map<i8, u32, Fixed>,
    notes: OperatorList<u32>,
    lazy: Value<u32>,
    largest: Reducing<u32>,
    mean: Aggregating<Mean>,
    rules: Broadcast<String, u32>,
}

/// What a command answers with.
type Answer = Vec<(i64, Option<u64>)>;

fn answer(numbers: impl IntoIterator<Item = u32>) -> Answer {
    numbers.into_iter().map(|number| (0, Some(number.into()))).collect()
}

fn pairs<K: Into<i64>>(entries: impl IntoIterator<Item = (K, u32)>) -> Answer {
    entries.into_iter().map(|(key, value)| (key.into(), Some(value.into()))).collect()
}

fn one(value: Option<u32>) -> Answer {
    vec![(0, value.map(Into::into))]
}

/// A rule's name as a number of an answer.
fn named(entries: impl IntoIterator<Item = (String, u32)>) -> Answer {
    pairs(entries.into_iter().map(|(name, value)| (name.bytes().fold(1, |sum, byte| sum * 256 + i64::from(byte)), value)))
}

impl Operator for Obedient {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("commands");
        declare.broadcast_input("orders");
        Self {
            list: declare.list("list"),
            map: declare.map("map"),
            notes: declare.split_list("notes"),
            lazy: declare.value("lazy").on_demand(),
            largest: declare.reducing("largest", u32::max),
            mean: declare.aggregating("mean"),
            rules: declare.broadcast("rules"),
        }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let answer = match record.decode()? {
            Command::Push(n) => return self.list.push(cx, &n),
            Command::SetList(all) => return self.list.set(cx, &all),
            Command::ClearList => {
                self.list.clear(cx);
                return Ok(());
            }
            Command::ReadList => answer(self.list.read(cx)?),
            Command::Put(key, n) => return self.map.put(cx, &key, n),
            Command::Bump(key) => one(Some(self.map.update(cx, &key, |n| {
                *n = n.wrapping_add(1);
                *n
            })?)),
            Command::Remove(key) => return self.map.remove(cx, &key),
            Command::ClearMap => {
                self.map.clear(cx);
                return Ok(());
            }
            Command::Get(key) => one(self.map.get(cx, &key)?),
            Command::GetMany(keys) => self.map.get_many(cx, &keys)?.into_iter().flat_map(one).collect(),
            Command::Contains(key) => answer([u32::from(self.map.contains(cx, &key)?)]),
            Command::Scan(from, to) => pairs(self.map.scan(cx, from..to).collect::<Result<Vec<_>, _>>()?),
            Command::ScanFrom(from) => pairs(self.map.scan_from(cx, &from).collect::<Result<Vec<_>, _>>()?),
            Command::Note(n) => return self.notes.push(cx, &n),
            Command::SetNotes(all) => return self.notes.set(cx, all),
            Command::ReadNotes => answer(self.notes.read(cx)?),
            Command::Lazy(n) => one(Some(self.lazy.update(cx, |sum| {
                *sum = sum.wrapping_add(n);
                *sum
            })?)),
            Command::ForgetLazy => {
                self.lazy.delete(cx);
                return Ok(());
            }
            Command::Largest(n) => one(Some(self.largest.add(cx, n)?)),
            Command::Mean(n) => vec![(0, Some(self.mean.add(cx, n)?))],
            Command::Rule(name) => one(self.rules.get(cx, name.as_str())?),
            Command::Rules => named(self.rules.iter(cx).collect::<Result<Vec<_>, _>>()?),
            Command::Fail => return Err(Error::transient("told to")),
        };
        cx.emit(&answer)
    }

    fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
        match record.decode()? {
            Order::Put(name, n) => self.rules.put(cx, &name, n),
            Order::Bump(name) => self.rules.update(cx, &name, |n| *n = n.wrapping_add(1)),
            Order::Remove(name) => self.rules.remove(cx, &name),
            Order::Clear => {
                self.rules.clear(cx);
                Ok(())
            }
            Order::Read => {
                let all = named(self.rules.iter(cx).collect::<Result<Vec<_>, _>>()?);
                cx.emit(&all)
            }
            Order::Note(n) => self.notes.push(cx, &n),
        }
    }
}

/// What the operator should remember of one key.
#[derive(Clone, Debug, Default, PartialEq)]
struct Own {
    list: Vec<u32>,
    map: BTreeMap<i8, u32>,
    lazy: Option<u32>,
    largest: Option<u32>,
    mean: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    own: BTreeMap<u8, Own>,
    notes: Vec<u32>,
    rules: BTreeMap<String, u32>,
}

impl Model {
    /// Does what the operator should: `Err` if it should fail.
    fn obey(&mut self, key: u8, command: Command) -> Result<Option<Answer>, ()> {
        let own = self.own.entry(key).or_default();
        match command {
            Command::Fail => return Err(()),
            Command::Push(n) => own.list.push(n),
            Command::SetList(all) => own.list = all,
            Command::ClearList => own.list.clear(),
            Command::Put(key, n) => drop(own.map.insert(key, n)),
            Command::Remove(key) => drop(own.map.remove(&key)),
            Command::ClearMap => own.map.clear(),
            Command::Note(n) => self.notes.push(n),
            Command::SetNotes(all) => self.notes = all,
            Command::ForgetLazy => own.lazy = None,
            answered => return Ok(Some(self.answer(key, answered))),
        }
        Ok(None)
    }

    /// Does what the operator should with a command that it answers.
    fn answer(&mut self, key: u8, command: Command) -> Answer {
        let own = self.own.entry(key).or_default();
        match command {
            Command::ReadList => answer(own.list.clone()),
            Command::Bump(key) => {
                let n = own.map.entry(key).or_default();
                *n = n.wrapping_add(1);
                one(Some(*n))
            }
            Command::Get(key) => one(own.map.get(&key).copied()),
            Command::GetMany(keys) => keys.iter().flat_map(|key| one(own.map.get(key).copied())).collect(),
            Command::Contains(key) => answer([u32::from(own.map.contains_key(&key))]),
            Command::Scan(from, to) => pairs(own.map.iter().filter(|(key, _)| (from..to).contains(*key)).map(|(k, v)| (*k, *v))),
            Command::ScanFrom(from) => pairs(own.map.range(from..).map(|(k, v)| (*k, *v))),
            Command::ReadNotes => answer(self.notes.clone()),
            Command::Lazy(n) => one(Some(*own.lazy.insert(own.lazy.unwrap_or(0).wrapping_add(n)))),
            Command::Largest(n) => one(Some(*own.largest.insert(own.largest.map_or(n, |largest| largest.max(n))))),
            Command::Mean(n) => {
                let sum = own.mean.get_or_insert_default();
                *sum = (sum.0 + u64::from(n), sum.1 + 1);
                vec![(0, Some(sum.0 / sum.1))]
            }
            Command::Rule(name) => one(self.rules.get(&name).copied()),
            Command::Rules => named(self.rules.clone()),
            other => unreachable!("{other:?} is not answered"),
        }
    }

    fn order(&mut self, order: Order) -> Option<Answer> {
        match order {
            Order::Put(name, n) => drop(self.rules.insert(name, n)),
            Order::Bump(name) => {
                let n = self.rules.entry(name).or_default();
                *n = n.wrapping_add(1);
            }
            Order::Remove(name) => drop(self.rules.remove(&name)),
            Order::Clear => self.rules.clear(),
            Order::Read => return Some(named(self.rules.clone())),
            Order::Note(n) => self.notes.push(n),
        }
        None
    }

    fn step(&mut self, step: &Step) -> Result<Option<Answer>, ()> {
        match step {
            Step::Command(key, command) => self.obey(*key, command.clone()),
            Step::Order(order) => Ok(self.order(order.clone())),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Command(u8, Command),
    Order(Order),
}

impl Step {
    fn to_record(&self) -> TestRecord {
        match self {
            Self::Command(key, command) => record(postcard::to_stdvec(command).unwrap()).key([*key]),
            Self::Order(order) => record(postcard::to_stdvec(order).unwrap()).port("orders"),
        }
    }
}

fn name() -> impl Strategy<Value = String> {
    "[ab\0]{0,2}"
}

fn commands() -> impl Strategy<Value = Command> {
    let key = || -3..3i8;
    prop_oneof![
        6 => any::<u32>().prop_map(Command::Push),
        1 => vec(any::<u32>(), 0..4).prop_map(Command::SetList),
        1 => Just(Command::ClearList),
        4 => Just(Command::ReadList),
        6 => (key(), any::<u32>()).prop_map(|(key, n)| Command::Put(key, n)),
        4 => key().prop_map(Command::Bump),
        4 => key().prop_map(Command::Remove),
        1 => Just(Command::ClearMap),
        4 => key().prop_map(Command::Get),
        2 => vec(key(), 0..5).prop_map(Command::GetMany),
        2 => key().prop_map(Command::Contains),
        4 => (key(), key()).prop_map(|(from, to)| Command::Scan(from, to)),
        2 => key().prop_map(Command::ScanFrom),
        3 => any::<u32>().prop_map(Command::Note),
        1 => vec(any::<u32>(), 0..3).prop_map(Command::SetNotes),
        2 => Just(Command::ReadNotes),
        3 => any::<u32>().prop_map(Command::Lazy),
        1 => Just(Command::ForgetLazy),
        2 => any::<u32>().prop_map(Command::Largest),
        2 => any::<u32>().prop_map(Command::Mean),
        4 => name().prop_map(Command::Rule),
        2 => Just(Command::Rules),
        1 => Just(Command::Fail),
    ]
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![
        4 => (name(), any::<u32>()).prop_map(|(name, n)| Order::Put(name, n)),
        2 => name().prop_map(Order::Bump),
        2 => name().prop_map(Order::Remove),
        1 => Just(Order::Clear),
        2 => Just(Order::Read),
        1 => any::<u32>().prop_map(Order::Note),
    ]
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3u8, commands()).prop_map(|(key, command)| Step::Command(key, command)),
        1 => orders().prop_map(Step::Order),
    ];
    vec(step, 0..most)
}

/// Records of one port after the other: a batch has those of one.
fn runs(steps: &[Step]) -> Vec<&[Step]> {
    steps.chunk_by(|one, next| matches!(one, Step::Order(_)) == matches!(next, Step::Order(_))).collect()
}

fn assert_same(harness: &Harness<Obedient>, model: &Model) {
    for key in 0..3u8 {
        let own = model.own.get(&key).cloned().unwrap_or_default();
        assert_eq!(harness.state_list::<u32>("list", [key]), own.list);
        assert_eq!(harness.state_map_as::<Fixed, i8, u32>("map", [key]), own.map.into_iter().collect::<Vec<_>>());
        assert_eq!(harness.state::<u32>("lazy", [key]), own.lazy);
        assert_eq!(harness.state::<u32>("largest", [key]), own.largest);
        assert_eq!(harness.state::<(u64, u64)>("mean", [key]), own.mean);
    }
    assert_eq!(harness.operator_list::<u32>("notes"), model.notes);
    assert_eq!(harness.broadcast::<String, u32>("rules"), model.rules.clone().into_iter().collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn state_and_answers_are_those_of_the_model(batches in vec((any::<bool>(), steps(24)), 1..6)) {
        let mut harness = Harness::<Obedient>::new();
        let mut model = Model::default();
        for (restart, steps) in &batches {
            if *restart {
                harness.restart();
            }
            for run in runs(steps) {
                let mut after = model.clone();
                let expected: Result<Vec<_>, ()> = run.iter().map(|step| after.step(step)).collect();
                let found = harness.process(run.iter().map(Step::to_record));
                let found = found.as_ref().ok().map(|out| out.decode::<Answer>());
                prop_assert_eq!(found, expected.as_ref().ok().map(|all| all.iter().flatten().cloned().collect::<Vec<_>>()));
                // A failed batch leaves everything as it was.
                if expected.is_ok() {
                    model = after;
                }
                assert_same(&harness, &model);
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_batches(before in steps(20), steps in steps(30)) {
        let harmless = |steps: &[Step]| -> Vec<_> {
            let fails = |step: &&Step| matches!(step, Step::Command(_, Command::Fail));
            steps.iter().filter(|step| !fails(step)).map(Step::to_record).collect()
        };
        let mut harness = Harness::<Obedient>::new();
        harness.process(harmless(&before)).unwrap();
        harness.assert_batch_independent(harmless(&steps));
    }
}
