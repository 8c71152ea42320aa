//! Files read in pieces, left at any record and read on.

use std::fs;
use std::io::Write;
use std::path::Path;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{ConnectorContext, ConnectorError, Source, SourceFactory, SourcePoll, Split, SplitPosition};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::time::ProcessingTime;
use proptest::prelude::*;

use super::*;

/// A record: key, event time, value.
type Record = (Option<Vec<u8>>, Option<i64>, Vec<u8>);

/// What a source did: after each poll, the records of all polls so far and the positions.
#[derive(Default)]
struct Run {
    records: Vec<Record>,
    stops: Vec<(usize, Vec<SplitPosition>)>,
    malformed: u64,
}

fn factory(base: &Path, options: &str) -> Arc<dyn SourceFactory> {
    let id = OperatorId::new("in").unwrap();
    let place = ConnectorPlace { base_dir: base.to_owned(), pipeline: id.clone(), id };
    files_source(&toml::from_str(options).unwrap(), &place).unwrap()
}

fn open(factory: &dyn SourceFactory, from: &[SplitPosition]) -> Result<Box<dyn Source>, ConnectorError> {
    let position = |split: &Split| from.iter().find(|position| position.split == split.id).cloned();
    let splits = factory.discover(1)?.into_iter().map(|split| (split.clone(), position(&split))).collect();
    let context = ConnectorContext { id: OperatorId::new("in").unwrap(), subtask: 0, parallelism: 1 };
    factory.open(&context, splits)
}

fn read(factory: &dyn SourceFactory, from: &[SplitPosition], max_records: usize) -> Result<Run, ConnectorError> {
    let mut source = open(factory, from)?;
    let mut run = Run { stops: vec![(0, source.positions())], ..Run::default() };
    let mut batch = Batch::default();
    loop {
        batch.clear();
        let poll = source.poll(ProcessingTime(0), max_records, &mut batch)?;
        assert_eq!(matches!(poll, SourcePoll::Records { .. }), !batch.is_empty());
        assert!(batch.len() <= max_records);
        for index in 0..batch.len() {
            let key = batch.keys.as_ref().map(|keys| keys.get(index).to_vec());
            let time = batch.timestamps.get(index).map(|time| time.0);
            run.records.push((key, time, batch.values.get(index).to_vec()));
        }
        run.stops.push((run.records.len(), source.positions()));
        if poll == SourcePoll::End {
            run.malformed = source.malformed();
            assert_eq!(source.remaining_bytes(), Some(0));
            assert!(source.positions().iter().all(|position| position.finished));
            return Ok(run);
        }
    }
}

fn values(run: &Run) -> Vec<String> {
    run.records.iter().map(|(_, _, value)| String::from_utf8(value.clone()).unwrap()).collect()
}

fn write(path: &Path, contents: &[u8]) {
    // Two members or frames: what is concatenated is one file.
    let (first, second) = contents.split_at(contents.len() / 2);
    let gzip = |part: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    };
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => [gzip(first), gzip(second)].concat(),
        Some("zst") => [zstd::encode_all(first, 1).unwrap(), zstd::encode_all(second, 1).unwrap()].concat(),
        _ => contents.to_vec(),
    };
    fs::write(path, bytes).unwrap();
}

/// Reads a file, then again from each of some stops, and compares.
fn check_resumption(contents: &[u8], extension: &str, options: &str, max_records: usize, stop: usize) -> Run {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join(format!("in{extension}")), contents);
    let factory = factory(folder.path(), &format!("path = \"in{extension}\"\n{options}"));
    let run = read(&*factory, &[], max_records).unwrap();
    for stop in [stop % run.stops.len(), run.stops.len() - 1, run.stops.len() / 2] {
        let (before, positions) = &run.stops[stop];
        let rest = read(&*factory, positions, 1 + max_records / 2).unwrap();
        assert_eq!(rest.records, run.records[*before..], "resumed at {positions:?}");
    }
    run
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-c\r\"]{0,5}",
        1 => (0_usize..9000).prop_map(|length| "x".repeat(length)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    (prop::collection::vec(line(), 0..120), any::<bool>())
        .prop_map(|(lines, newline)| lines.join("\n") + if newline { "\n" } else { "" })
}

fn extension() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", ".gz", ".zst"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_resumes_at_any_record(text in text(), extension in extension(), max in 1_usize..40, stop in any::<usize>()) {
        let run = check_resumption(text.as_bytes(), extension, "", max, stop);
        let want: Vec<&str> = text.split_terminator('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        prop_assert_eq!(values(&run), want);
    }

    #[test]
    fn json_resumes_at_any_record(
        lines in prop::collection::vec((0_u8..5, "[a-z\"\\\\é]{0,6}", any::<i32>()), 0..80),
        extension in extension(), max in 1_usize..20, stop in any::<usize>(),
    ) {
        let mut text = String::new();
        let mut want = Vec::new();
        for (kind, key, time) in &lines {
            let value = serde_json::json!({"a": {"k": key}, "t": time, "n": [1, null]}).to_string();
            match kind {
                0 => text.push_str(" \r\n"),
                1 => text.push_str("{\"a\": {\"k\": null}, \"t\": 1}\n"),
                _ => {
                    text.push_str(&format!("{value}\r\n"));
                    want.push((Some(key.as_bytes().to_vec()), Some(i64::from(*time) * 1000), value.into_bytes()));
                }
            }
        }
        let options = "format = \"json\"\nkey = \"/a/k\"\nevent-time = \"/t\"\nevent-time-unit = \"s\"\non-malformed = \"skip\"";
        let run = check_resumption(text.as_bytes(), extension, options, max, stop);
        prop_assert_eq!(run.records, want);
        prop_assert_eq!(run.malformed, lines.iter().filter(|(kind, ..)| *kind == 1).count() as u64);
    }

    #[test]
    fn csv_resumes_at_any_record(
        rows in prop::collection::vec(("[a,\"\n\r é]{0,8}", "[a-z]{0,3}"), 0..60),
        wide in 0_usize..400_000, extension in extension(), max in 1_usize..20, stop in any::<usize>(),
    ) {
        let quoted = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
        let mut text = "\u{feff}first,\"se\"\"cond\"\r\n\n".to_owned();
        let mut want = Vec::new();
        for (index, (first, second)) in rows.iter().enumerate() {
            let first = if index == 3 { first.repeat(1 + wide / 8) } else { first.clone() };
            text.push_str(&format!("{},{second}\r\n", quoted(&first)));
            let (first, second) = (serde_json::Value::from(first), serde_json::Value::from(second.as_str()));
            want.push(format!("{{\"first\":{first},\"se\\\"cond\":{second}}}"));
        }
        let run = check_resumption(text.as_bytes(), extension, "format = \"csv\"\nkey = \"/first\"", max, stop);
        prop_assert_eq!(values(&run), want);
    }
}

#[test]
fn an_over_long_line_is_skipped_wherever_its_end_is() {
    let long = "y".repeat(700_000);
    let text = format!("a\n{long}\nb\n{long}");
    for extension in ["", ".zst"] {
        for options in ["max-line-bytes = 100\non-malformed = \"skip\"", "max-line-bytes = \"300KiB\"\non-malformed = \"skip\""] {
            for stop in 0..10 {
                let run = check_resumption(text.as_bytes(), extension, options, 1, stop);
                assert_eq!(values(&run), ["a", "b"]);
                assert_eq!(run.malformed, 2);
            }
        }
    }
}

#[test]
fn a_line_as_long_as_the_limit_is_read_and_one_byte_more_is_not() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "12345\n123456\n12345").unwrap();
    let run = read(&*factory(folder.path(), "path = \"a\"\nmax-line-bytes = 5\non-malformed = \"skip\""), &[], 9).unwrap();
    assert_eq!((values(&run), run.malformed), (vec!["12345".to_owned(), "12345".to_owned()], 1));
    let error = read(&*factory(folder.path(), "path = \"a\"\nmax-line-bytes = 5"), &[], 9).err().unwrap();
    assert_eq!(error.to_string(), "record-malformed: \"a\" line 2 (byte 6): longer than 5 bytes (max-line-bytes)");
}

#[test]
fn a_csv_quote_left_open_costs_one_line_and_not_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "x,y\n1,2\n3,\"4\n5,6\n7\n8,9").unwrap();
    let factory = factory(folder.path(), "path = \"a\"\nformat = \"csv\"\non-malformed = \"skip\"");
    let run = read(&*factory, &[], 1).unwrap();
    assert_eq!(values(&run), [r#"{"x":"1","y":"2"}"#, r#"{"x":"5","y":"6"}"#, r#"{"x":"8","y":"9"}"#]);
    assert_eq!(run.malformed, 2);
}

#[test]
fn a_malformed_record_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path();
    let fails = |contents: &[u8], options: &str| {
        fs::write(base.join("a"), contents).unwrap();
        read(&*factory(base, &format!("path = \"a\"\n{options}")), &[], 9).err().unwrap().to_string()
    };
    let json = "format = \"json\"\nkey = \"/k\"\nevent-time = \"/t\"";
    let place = "record-malformed: \"a\" line 2 (byte 16): ";
    let first = "{\"k\":1,\"t\":200}\n";
    for (second, reason) in [
        ("{\"k\":1", "not JSON: EOF while parsing an object at column 6"),
        ("{\"t\":1}", "no field \"/k\" for the key"),
        ("{\"k\":null,\"t\":1}", "the key \"/k\" is null"),
        ("{\"k\":1,\"t\":[]}", "the event time \"/t\" is an array"),
        ("{\"k\":1,\"t\":\"x\"}", "the event time \"x\" is neither a number nor an RFC 3339 time"),
        (
            "{\"k\":1,\"t\":1700000000123456}",
            "the event time \"1700000000123456\" is outside of the years 1 to 9999, check event-time-unit",
        ),
    ] {
        assert_eq!(fails(format!("{first}{second}").as_bytes(), json), format!("{place}{reason}"));
    }
    assert_eq!(fails(b"{\"k\":\"\xff\",\"t\":1}", json), "record-malformed: \"a\" line 1 (byte 0): not UTF-8 at column 7");
    let csv = "format = \"csv\"\nkey = \"/k\"";
    assert_eq!(
        fails(b"k,v\n\"1\n2\",3\n\n4,5,6\n", csv),
        "record-malformed: \"a\" line 5 (byte 13): 3 fields, but the header has 2"
    );
    assert_eq!(fails(b"a,b\n1,2\n", csv), "csv-header: \"a\": the header has no column for key = \"/k\"");
    assert_eq!(fails(b"k,\"b\n", csv), "csv-header: \"a\": a quoted field has no closing quote");
}

#[test]
fn a_file_that_changed_under_a_position_is_refused_and_one_that_grew_is_not() {
    let lines: String = (0..3000).map(|line| format!("line {line}\n")).collect();
    for extension in ["", ".gz", ".zst"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("in{extension}"));
        let factory = factory(folder.path(), &format!("path = \"in{extension}\""));
        write(&path, lines.as_bytes());
        let run = read(&*factory, &[], 1000).unwrap();
        let (before, positions) = &run.stops[2];
        assert_eq!(*before, 2000);
        assert_eq!(positions[0].display, "line 2000, byte 18890");
        let reread = |contents: &[u8]| {
            write(&path, contents);
            read(&*factory, positions, 1000)
        };
        let mut head = lines.clone().into_bytes();
        head[3] = b'!';
        let mut tail = lines.clone().into_bytes();
        tail[18_000] = b'!';
        for (changed, reason) in [
            (&head[..], "its contents are not what they were"),
            (&tail[..], "its contents are not what they were"),
            (&lines.as_bytes()[..18_889], "it is only 18889 bytes long"),
            (&lines.as_bytes()[..20], "it is only 20 bytes long"),
            (b"", "it is only 0 bytes long"),
        ] {
            let error = reread(changed).err().unwrap();
            assert_eq!(error.code, "source-changed");
            let place = format!("\"in{extension}\" changed since byte 18890 (line 2000) was recorded: {reason}");
            assert_eq!(error.message, place);
        }
        let grown = reread(format!("{lines}one more").as_bytes()).unwrap();
        assert_eq!(grown.records.len(), 1001);
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&*factory, positions, 1).err().unwrap().code, "input-missing");
    }
}

#[test]
fn a_finished_file_is_not_read_again_even_if_it_ended_without_a_newline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    fs::write(&path, "a\nb").unwrap();
    let factory = factory(folder.path(), "path = \"in\"");
    let run = read(&*factory, &[], 9).unwrap();
    let (_, positions) = run.stops.iter().find(|(records, _)| *records == 2).unwrap();
    assert!(positions[0].finished, "nothing can follow a line that ended with the file");
    fs::write(&path, "a\nbc\nd").unwrap();
    assert_eq!(read(&*factory, positions, 9).unwrap().records, []);
}

#[test]
fn a_damaged_archive_is_an_error_that_names_the_file() {
    let text = "some line\n".repeat(50_000);
    for extension in ["gz", "zst"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("in.{extension}"));
        write(&path, text.as_bytes());
        let bytes = fs::read(&path).unwrap();
        for damaged in [&bytes[..bytes.len() - 5], &bytes[..bytes.len() / 4], b"no archive"] {
            fs::write(&path, damaged).unwrap();
            let error = read(&*factory(folder.path(), &format!("path = \"in.{extension}\"")), &[], 1000).err().unwrap();
            assert_eq!((error.code, error.transient), ("input-damaged", false));
            assert!(error.message.contains(&format!("in.{extension}")), "{error}");
        }
    }
}

#[test]
fn files_are_read_in_turn_and_each_split_ends_once() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..40 {
        fs::write(folder.path().join(format!("{file:02}")), format!("{file}\n").repeat(3)).unwrap();
    }
    let factory = factory(folder.path(), "path = \".\"");
    let mut source = open(&*factory, &[]).unwrap();
    let mut batch = Batch::default();
    let mut order = Vec::new();
    let mut ended = Vec::new();
    loop {
        batch.clear();
        match source.poll(ProcessingTime(0), 1, &mut batch).unwrap() {
            SourcePoll::Records { split } => order.push(split),
            SourcePoll::SplitFinished { split } => ended.push(split),
            SourcePoll::Pending { .. } => {}
            SourcePoll::AtEnd { .. } => panic!("nothing is followed"),
            SourcePoll::End => break,
        }
    }
    assert_eq!(order[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1]);
    assert_eq!(order.len(), 120);
    ended.sort_unstable();
    assert_eq!(ended, (0..40).collect::<Vec<_>>());
    let again = open(&*factory, &source.positions()).unwrap().poll(ProcessingTime(0), 1, &mut batch).unwrap();
    assert_eq!(again, SourcePoll::SplitFinished { split: 0 }, "a split that ended before is told again");
}

#[test]
fn a_position_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), "a\n").unwrap();
    let wrong = SplitPosition { split: "in".to_owned(), position: vec![9, 9], finished: false, display: String::new() };
    assert_eq!(open(&*factory(folder.path(), "path = \"in\""), &[wrong]).err().unwrap().code, "position-invalid");
}

/// Polls until nothing is at hand. Returns the values, and which splits were said to be at their end.
fn drain(source: &mut dyn Source) -> Result<(Vec<String>, Vec<usize>), ConnectorError> {
    let (mut values, mut at_end, mut batch) = (Vec::new(), Vec::new(), Batch::default());
    loop {
        batch.clear();
        match source.poll(ProcessingTime(0), 10, &mut batch)? {
            SourcePoll::Pending { .. } => return Ok((values, at_end)),
            SourcePoll::AtEnd { split } => at_end.push(split),
            SourcePoll::Records { .. } => {
                values.extend((0..batch.len()).map(|i| String::from_utf8(batch.values.get(i).to_vec()).unwrap()));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn append(path: &Path, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_file_that_is_followed_goes_on_when_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    fs::write(&a, "a1\na2\nhal").unwrap();
    fs::write(&b, "").unwrap();
    let factory = factory(folder.path(), "path = \".\"\nfollow = true");
    assert!(!factory.guarantee().bounded);
    let mut source = open(&*factory, &[]).unwrap();
    let (values, mut at_end) = drain(&mut *source).unwrap();
    at_end.sort_unstable();
    assert_eq!((values, at_end), (vec!["a1".into(), "a2".into()], vec![0, 1]));
    assert_eq!(drain(&mut *source).unwrap(), (vec![], vec![]), "the end is said once");
    assert!(source.positions().iter().all(|position| !position.finished));
    let positions = source.positions();
    append(&a, "f\nnext\n");
    assert_eq!(drain(&mut *source).unwrap(), (vec!["half".into(), "next".into()], vec![0]), "a line ends with its newline");
    append(&b, "b1\n");
    assert_eq!(drain(&mut *source).unwrap(), (vec!["b1".into()], vec![1]));
    let mut again = open(&*factory, &positions).unwrap();
    let mut values = drain(&mut *again).unwrap().0;
    values.sort();
    assert_eq!(values, ["b1", "half", "next"], "reading goes on where it was left");
    assert_eq!(source.remaining_bytes(), None);
}

#[test]
fn a_long_line_that_is_dropped_stays_dropped_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    fs::write(&path, "a\n0123456789").unwrap();
    let options = "path = \"in\"\nfollow = true\nmax-line-bytes = \"5B\"\non-malformed = \"skip\"";
    let mut source = open(&*factory(folder.path(), options), &[]).unwrap();
    assert_eq!(drain(&mut *source).unwrap().0, ["a"]);
    append(&path, "0123456789");
    assert!(drain(&mut *source).unwrap().0.is_empty());
    append(&path, "0\nb\n");
    assert_eq!(drain(&mut *source).unwrap().0, ["b"]);
    assert_eq!(source.malformed(), 1);
}

#[test]
fn a_file_that_is_followed_and_taken_away_is_an_error() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 3] = [
        (|path| fs::write(path, "a").unwrap(), "has only 1 bytes left, and 4 were read"),
        (|path| fs::remove_file(path).unwrap(), "is gone while it was followed"),
        (
            |path| {
                fs::write(path.with_extension("new"), "new\n").unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            },
            "was replaced by another file",
        ),
    ];
    for (change, message) in changes {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.log");
        fs::write(&path, "a\nb\n").unwrap();
        let mut source = open(&*factory(folder.path(), "path = \"in.log\"\nfollow = true"), &[]).unwrap();
        assert_eq!(drain(&mut *source).unwrap().0, ["a", "b"]);
        change(&path);
        let error = (0..100).find_map(|_| drain(&mut *source).err()).expect("it is noticed");
        assert_eq!(error.code, "source-changed");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.gz"), b"a\n");
    let error = drain(&mut *open(&*factory(folder.path(), "path = \"in.gz\"\nfollow = true"), &[]).unwrap()).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), ("option-refused", "\"in.gz\" is compressed and cannot be followed"));
    let refused = |options: &str| {
        let id = OperatorId::new("in").unwrap();
        let place = ConnectorPlace { base_dir: folder.path().to_owned(), pipeline: id.clone(), id };
        files_source(&toml::from_str(options).unwrap(), &place).err().unwrap().message
    };
    assert_eq!(refused("path = \"x\"\nformat = \"csv\"\nfollow = true"), "follow needs format = \"text\" or \"json\"");
    assert_eq!(refused("path = \"x\"\nformat = \"json\"\nwatermark-field = \"/w\""), "watermark-field needs event-time");
    let nested = "path = \"x\"\nformat = \"json\"\nevent-time = \"/t\"\nwatermark-field = \"/t/w\"";
    assert_eq!(refused(nested), "one of event-time = \"/t\" and watermark-field = \"/t/w\" lies within the other");
}

#[test]
fn a_field_says_how_far_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.jsonl"), "{\"t\":9}\n{\"t\":3,\"w\":2}\n{\"t\":4,\"w\":1}\n").unwrap();
    fs::write(folder.path().join("in.csv"), "t,w\n9,\n3,2\n4,1\n").unwrap();
    for (file, format) in [("in.jsonl", "json"), ("in.csv", "csv")] {
        let options = format!("path = \"{file}\"\nformat = \"{format}\"\nevent-time = \"/t\"\nwatermark-field = \"/w\"");
        let factory = factory(folder.path(), &options);
        assert!(factory.declares_watermarks() && factory.has_event_time());
        let mut source = open(&*factory, &[]).unwrap();
        let mut declared = Vec::new();
        let mut batch = Batch::default();
        while let SourcePoll::Records { split } = source.poll(ProcessingTime(0), 1, &mut batch).unwrap() {
            declared.push(source.declared_watermark(split).map(|time| time.0));
            batch.clear();
        }
        assert_eq!(declared, [None, Some(2), Some(2)], "{file}");
    }
}
