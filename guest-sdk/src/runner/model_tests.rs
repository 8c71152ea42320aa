//! The runner against a model: random commands in random batches, with failures, panics and new instances between.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::testing::{Harness, TestRecord, record};

/// What a record tells the operator to do with its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Command {
    SetName(String),
    AppendName(String),
    DeleteName,
    ToggleName,
    Add(u64),
    DeleteSum,
    SetBytes(Vec<u8>),
    Emit,
    Fail,
    Panic,
}

struct Obedient {
    name: Value<String>,
    sum: Value<u64, Fixed>,
    bytes: Value<Vec<u8>, Raw>,
}

impl Operator for Obedient {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { name: declare.value("name"), sum: declare.value("sum"), bytes: declare.value("bytes") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match record.decode()? {
            Command::SetName(name) => self.name.set(cx, name),
            Command::AppendName(more) => self.name.update(cx, |name| name.push_str(&more))?,
            Command::DeleteName => self.name.delete(cx),
            Command::ToggleName => self.name.modify(cx, |name| *name = name.is_none().then(|| "on".to_owned()))?,
            Command::Add(n) => self.sum.update(cx, |sum| *sum = sum.wrapping_add(n))?,
            Command::DeleteSum => self.sum.delete(cx),
            Command::SetBytes(bytes) => self.bytes.set(cx, bytes),
            Command::Emit => {
                let bytes = self.bytes.with(cx, |bytes| bytes.map(Vec::len))?;
                let row = (self.name.get(cx)?, self.sum.get_or_default(cx)?, bytes);
                cx.out().keep_key().send(&row)?;
            }
            Command::Fail => return Err(Error::transient("told to")),
            Command::Panic => std::panic::resume_unwind(Box::new("told to")),
        }
        Ok(())
    }
}

/// What the operator should remember of one key.
#[derive(Clone, Debug, Default, PartialEq)]
struct Remembered {
    name: Option<String>,
    sum: Option<u64>,
    bytes: Option<Vec<u8>>,
}

type Row = (Option<String>, u64, Option<usize>);

/// Does what the operator should; `None` if it should fail.
fn obey(command: &Command, own: &mut Remembered) -> Option<Option<Row>> {
    match command.clone() {
        Command::SetName(name) => own.name = Some(name),
        Command::AppendName(more) => own.name = Some(own.name.take().unwrap_or_default() + &more),
        Command::DeleteName => own.name = None,
        Command::ToggleName => own.name = own.name.is_none().then(|| "on".to_owned()),
        Command::Add(n) => own.sum = Some(own.sum.unwrap_or(0).wrapping_add(n)),
        Command::DeleteSum => own.sum = None,
        Command::SetBytes(bytes) => own.bytes = Some(bytes),
        Command::Emit => return Some(Some((own.name.clone(), own.sum.unwrap_or(0), own.bytes.as_ref().map(Vec::len)))),
        Command::Fail | Command::Panic => return None,
    }
    Some(None)
}

fn commands() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => any::<String>().prop_map(Command::SetName),
        6 => "[a-c]{0,3}".prop_map(Command::AppendName),
        4 => Just(Command::DeleteName),
        4 => Just(Command::ToggleName),
        8 => any::<u64>().prop_map(Command::Add),
        4 => Just(Command::DeleteSum),
        4 => any::<Vec<u8>>().prop_map(Command::SetBytes),
        10 => Just(Command::Emit),
        1 => Just(Command::Fail),
        1 => Just(Command::Panic),
    ]
}

fn to_record(key: u8, command: &Command) -> TestRecord {
    record(postcard::to_stdvec(command).unwrap()).key([key])
}

/// One batch of commands, each with its key, and whether the instance is replaced first.
fn batches() -> impl Strategy<Value = Vec<(bool, Vec<(u8, Command)>)>> {
    let batch = proptest::collection::vec((0..12u8, commands()), 1..20);
    proptest::collection::vec((any::<bool>(), batch), 1..8)
}

proptest! {
    #[test]
    fn state_and_output_are_those_of_the_model(batches in batches()) {
        let mut harness = Harness::<Obedient>::new();
        let mut model = BTreeMap::<u8, Remembered>::new();
        for (restart, batch) in &batches {
            if *restart {
                harness.restart();
            }
            let mut after = model.clone();
            let expected: Option<Vec<_>> =
                batch.iter().map(|(key, command)| obey(command, after.entry(*key).or_default()).map(|row| (*key, row))).collect();
            let records: Vec<_> = batch.iter().map(|(key, command)| to_record(*key, command)).collect();
            let outcome = catch_unwind(AssertUnwindSafe(|| harness.process(records)));
            let out = outcome.ok().and_then(Result::ok);
            let rows = out.as_ref().map(|out| out.iter().map(|row| (row.key().unwrap()[0], row.decode::<Row>())).collect::<Vec<_>>());
            let expected = expected.map(|rows| rows.into_iter().filter_map(|(key, row)| Some((key, row?))).collect::<Vec<_>>());
            prop_assert_eq!(&rows, &expected);
            // A failed batch leaves everything as it was.
            if expected.is_some() {
                model = after;
            }
            for key in 0..12 {
                let own = model.get(&key).cloned().unwrap_or_default();
                prop_assert_eq!(harness.state::<String>("name", [key]), own.name);
                prop_assert_eq!(harness.state_as::<Fixed, u64>("sum", [key]), own.sum);
                prop_assert_eq!(harness.state_as::<Raw, Vec<u8>>("bytes", [key]), own.bytes);
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_batches(commands in proptest::collection::vec((0..5u8, commands()), 0..40)) {
        let harmless = commands.iter().filter(|(_, command)| !matches!(command, Command::Fail | Command::Panic));
        Harness::<Obedient>::new().assert_batch_independent(harmless.map(|(key, command)| to_record(*key, command)));
    }
}
