//! Records that depend on nothing but options and number.

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{ConnectorContext, Source, SourcePoll, Split, SplitPosition};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::time::ProcessingTime;

use super::*;

fn factory(options: &str) -> Arc<dyn SourceFactory> {
    generator_source(&toml::from_str(options).unwrap()).unwrap()
}

fn open(factory: &dyn SourceFactory, parallelism: u32, from: &[SplitPosition]) -> Result<Box<dyn Source>, ConnectorError> {
    let position = |split: &Split| from.iter().find(|position| position.split == split.id).cloned();
    let splits = factory.discover(parallelism)?.into_iter().map(|split| (split.clone(), position(&split))).collect();
    factory.open(&ConnectorContext { id: OperatorId::new("g").unwrap(), subtask: 0, parallelism: 1 }, splits)
}

/// Polls to the end, or `polls` times. Returns the records: number, key, time, length of the value.
fn read(source: &mut dyn Source, now: i64, max_records: usize, polls: usize) -> Vec<(u64, Vec<u8>, i64, usize)> {
    let mut records = Vec::new();
    let mut batch = Batch::default();
    for _ in 0..polls {
        batch.clear();
        match source.poll(ProcessingTime(now), max_records, &mut batch).unwrap() {
            SourcePoll::End => break,
            SourcePoll::AtEnd { .. } => panic!("a generator has no end that it waits at"),
            SourcePoll::Records { .. } | SourcePoll::SplitFinished { .. } | SourcePoll::Pending { .. } => {}
        }
        for index in 0..batch.len() {
            let value = batch.values.get(index);
            let sequence = u64::from_le_bytes(value[..8].try_into().unwrap());
            let key = batch.keys.as_ref().map_or(Vec::new(), |keys| keys.get(index).to_vec());
            records.push((sequence, key, batch.timestamps.get(index).unwrap().0, value.len()));
        }
    }
    records
}

#[test]
fn every_number_comes_once_whatever_the_splits_and_the_stops() {
    let options = "records = 1000\nkeys = 50\nevent-time-start = 10\nevent-time-step = \"1500us\"\npayload-bytes = 20\nsplits = ";
    let mut one = read(&mut *open(&*factory(&format!("{options}1")), 1, &[]).unwrap(), 0, 64, usize::MAX);
    assert_eq!(one.len(), 1000);
    assert_eq!((one[3].0, one[3].2, one[3].3), (3, 14, 20));
    let factory = factory(&format!("{options}7"));
    for stop in [0, 1, 5, 13, 40] {
        let mut source = open(&*factory, 3, &[]).unwrap();
        let mut records = read(&mut *source, 0, 30, stop);
        let positions = source.positions();
        records.extend(read(&mut *open(&*factory, 1, &positions).unwrap(), 0, 17, usize::MAX));
        records.sort();
        one.sort();
        assert_eq!(records, one);
    }
}

#[test]
fn the_rate_goes_by_the_time_of_the_polls_and_catches_up() {
    let mut source = open(&*factory("rate = 100\nsplits = 2"), 1, &[]).unwrap();
    let mut batch = Batch::default();
    let first = source.poll(ProcessingTime(5000), 1000, &mut batch).unwrap();
    assert_eq!(first, SourcePoll::Pending { retry_after_ms: 20 });
    assert_eq!(source.poll(ProcessingTime(5019), 1000, &mut batch).unwrap(), SourcePoll::Pending { retry_after_ms: 1 });
    assert_eq!(read(&mut *source, 5020, 1000, 10).len(), 2);
    assert_eq!(read(&mut *source, 6000, 1000, 10).len(), 98);
    assert_eq!(read(&mut *source, 4000, 1000, 10).len(), 0, "a clock that went back");
}

#[test]
fn another_number_of_splits_than_that_of_the_checkpoint_is_refused() {
    let options = "records = 10";
    let old = factory(options).discover(2).unwrap();
    let now = factory(options);
    let context = ConnectorContext { id: OperatorId::new("g").unwrap(), subtask: 0, parallelism: 4 };
    now.open(&context, vec![(old[0].clone(), None)]).unwrap();
    let fresh = now.discover(4).unwrap();
    let error = now.open(&context, vec![(fresh[1].clone(), None)]).err().unwrap();
    assert_eq!(error.code, "source-changed");
    assert!(error.message.starts_with("records are dealt to 2 splits and to 4;"), "{error}");
    let given = factory("records = 10\nsplits = 3");
    assert_eq!(given.open(&context, vec![(old[0].clone(), None)]).err().unwrap().code, "source-changed");
    let wrong = vec![(Split { id: "2-of-2".to_owned() }, None)];
    assert_eq!(factory(options).open(&context, wrong).err().unwrap().code, "position-invalid");
}

#[test]
fn text_and_json_values_have_the_length_asked_for_and_parse() {
    let value = |options: &str| {
        let mut batch = Batch::default();
        open(&*factory(options), 1, &[]).unwrap().poll(ProcessingTime(0), 2, &mut batch).unwrap();
        String::from_utf8(batch.values.get(1).to_vec()).unwrap()
    };
    let text = value("shape = \"text\"\npayload-bytes = 30");
    assert!(text.starts_with("1 ") && text.len() == 30, "{text}");
    assert_eq!(value("shape = \"text\"\npayload-bytes = 0"), "1 ");
    let json = value("shape = \"json\"\npayload-bytes = 200\nkeys = 5\ndistribution = \"sequential\"\nevent-time-start = -7");
    assert_eq!(json.len(), 200);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["sequence"], &json["key"], &json["time"]), (&1.into(), &"1".into(), &(-6).into()));
    assert!(json["amount"].as_u64().unwrap() < 1000);
    assert!(value("shape = \"json\"\npayload-bytes = 1").ends_with(",\"filler\":\"\"}"));
}

#[test]
fn keys_are_text_or_eight_bytes() {
    let keys = |format: &str| {
        let options = format!("records = 3\nkeys = 2\ndistribution = \"sequential\"\nkey-format = \"{format}\"");
        let records = read(&mut *open(&*factory(&options), 1, &[]).unwrap(), 0, 9, usize::MAX);
        records.into_iter().map(|record| record.1).collect::<Vec<_>>()
    };
    assert_eq!(keys("text"), [b"0", b"1", b"0"]);
    assert_eq!(keys("u64-le"), [0_u64.to_le_bytes(), 1_u64.to_le_bytes(), 0_u64.to_le_bytes()]);
}

#[test]
fn impossible_options_are_refused() {
    for options in [
        "rate = 0",
        "splits = 0",
        "keys = 0",
        "distribution = \"zipf\"",
        "key-format = \"text\"",
        "payload-bytes = 7",
        "payload-bytes = \"1GiB\"",
        "keys = 100_000_000\ndistribution = \"zipf\"",
    ] {
        let refused = generator_source(&toml::from_str(options).unwrap()).err().unwrap();
        assert_eq!(refused.code, "option-refused", "{options}");
    }
}
