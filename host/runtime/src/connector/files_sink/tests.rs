//! The protocol against a model of what must be visible.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::Transaction;
use cofferdam_dataflow::ids::{CheckpointId, OperatorId};
use proptest::prelude::*;

use super::*;

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

fn factory(base: &Path, options: &str) -> Arc<dyn SinkFactory> {
    let options = toml::from_str(&format!("path = \"out\"\n{options}")).unwrap();
    files_sink(&options, &ConnectorPlace { base_dir: base.to_owned(), pipeline: id("p"), id: id("s") }).unwrap()
}

fn writer(factory: &dyn SinkFactory, subtask: u32) -> Box<dyn Sink> {
    factory.open(&ConnectorContext { id: id("s"), subtask, parallelism: 2 }).unwrap()
}

fn batch(values: &[&str]) -> Batch {
    let mut batch = Batch::default();
    values.iter().for_each(|value| batch.push(None, None, value.as_bytes()));
    batch
}

/// Prepares and makes durable.
fn prepared(sink: &mut dyn Sink, checkpoint: u64) -> Transaction {
    let prepared = sink.prepare(CheckpointId(checkpoint)).unwrap().unwrap();
    (prepared.make_durable)().unwrap();
    prepared.transaction
}

/// What a reader that leaves out dotted names sees: the parts' names and texts.
fn visible(folder: &Path) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with('.') {
            let bytes = fs::read(folder.join(&name)).unwrap();
            let mut text = String::new();
            match Path::new(&name).extension().unwrap().to_str().unwrap() {
                "gz" => flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).map(drop).unwrap(),
                "zst" => text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap(),
                _ => text = String::from_utf8(bytes).unwrap(),
            }
            parts.insert(name, text);
        }
    }
    parts
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Write {
        subtask: usize,
        records: usize,
    },
    /// A checkpoint that completes; a crash may follow at some point.
    Complete(Option<Crash>),
    /// A checkpoint that is abandoned after its transactions were prepared; they go with the next.
    Abandon,
    /// The process dies between checkpoints, or before a manifest is published.
    Die,
}

/// When the process dies, seen from the commit.
#[derive(Clone, Copy, Debug)]
enum Crash {
    Before,
    Within,
    After,
}

fn op() -> impl Strategy<Value = Op> {
    let crash = prop::sample::select(vec![Crash::Before, Crash::Within, Crash::After]);
    prop_oneof![
        4 => (0_usize..2, 0_usize..40).prop_map(|(subtask, records)| Op::Write { subtask, records }),
        3 => prop::option::of(crash).prop_map(Op::Complete),
        1 => Just(Op::Abandon),
        1 => Just(Op::Die),
    ]
}

/// Plays the runtime, and knows what must be visible.
struct Model {
    base: PathBuf,
    options: String,
    factory: Arc<dyn SinkFactory>,
    sinks: Vec<Box<dyn Sink>>,
    checkpoint: u64,
    records: usize,
    /// Lines written since the latest manifest.
    uncommitted: Vec<String>,
    /// Transactions of abandoned checkpoints.
    pending: Vec<Transaction>,
    /// What the latest manifest names.
    manifest: Vec<Transaction>,
    committed: Vec<String>,
}

impl Model {
    fn new(base: &Path, options: &str) -> Self {
        let factory = factory(base, options);
        let sinks = (0..2).map(|subtask| writer(&*factory, subtask)).collect();
        let (base, options) = (base.to_owned(), options.to_owned());
        let (pending, manifest) = (Vec::new(), Vec::new());
        let (uncommitted, committed) = (Vec::new(), Vec::new());
        Self { base, options, factory, sinks, checkpoint: 0, records: 0, uncommitted, pending, manifest, committed }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Write { subtask, records } => {
                let lines: Vec<String> = (self.records..self.records + records).map(|n| format!("record {n}")).collect();
                self.records += records;
                self.sinks[subtask].write(&batch(&lines.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
                self.uncommitted.extend(lines);
            }
            Op::Abandon => self.prepare(),
            Op::Die => {
                self.prepare_some();
                self.restart();
            }
            Op::Complete(crash) => {
                self.prepare();
                self.manifest = std::mem::take(&mut self.pending);
                self.committed.append(&mut self.uncommitted);
                let done = match crash {
                    Some(Crash::Before) => 0,
                    Some(Crash::Within) => self.manifest.len() / 2,
                    Some(Crash::After) | None => self.manifest.len(),
                };
                self.factory.committer().unwrap().unwrap().commit(&self.manifest[..done]).unwrap();
                if crash.is_some() {
                    self.restart();
                }
            }
        }
    }

    fn prepare(&mut self) {
        self.checkpoint += 1;
        for sink in &mut self.sinks {
            if let Some(prepared) = sink.prepare(CheckpointId(self.checkpoint)).unwrap() {
                (prepared.make_durable)().unwrap();
                self.pending.push(prepared.transaction);
            }
        }
    }

    /// One subtask gets as far as preparing when the process dies.
    fn prepare_some(&mut self) {
        self.checkpoint += 1;
        drop(self.sinks[1].prepare(CheckpointId(self.checkpoint)).unwrap());
    }

    fn restart(&mut self) {
        self.sinks.clear();
        self.pending.clear();
        self.uncommitted.clear();
        // The lock goes with the old process.
        self.factory = console_in_its_place();
        self.factory = factory(&self.base, &self.options);
        let mut committer = self.factory.committer().unwrap().unwrap();
        for _ in 0..2 {
            committer.commit(&self.manifest).unwrap();
            committer.abort_all_except(&self.manifest).unwrap();
        }
        let staged = fs::read_dir(self.base.join("out/.cofferdam-staged/p/s")).unwrap();
        let left: Vec<_> = staged.map(|entry| entry.unwrap().file_name()).filter(|n| n != "lock" && n != "committed").collect();
        assert_eq!(left, [""; 0], "left over");
        self.sinks = (0..2).map(|subtask| writer(&*self.factory, subtask)).collect();
    }

    fn check(&self) {
        let parts = visible(&self.base.join("out"));
        let mut lines: Vec<&str> = parts.values().flat_map(|text| text.lines()).collect();
        let mut want: Vec<&str> = self.committed.iter().map(String::as_str).chain(["foreign"]).collect();
        lines.sort_unstable();
        want.sort_unstable();
        assert_eq!(lines, want);
    }
}

fn console_in_its_place() -> Arc<dyn SinkFactory> {
    crate::connector::console_sink(&crate::connector::ConsoleOptions::default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_what_manifests_name_is_visible_whenever_the_process_dies(
        ops in prop::collection::vec(op(), 1..14),
        compression in prop::sample::select(vec!["none", "gzip", "zstd"]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("out/.cofferdam-staged/p/other/0-part");
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        fs::write(&other, "another sink's").unwrap();
        fs::write(folder.path().join("out/p-s-9-0000000001.txt"), "foreign\n").unwrap();
        let mut model = Model::new(folder.path(), &format!("compression = \"{compression}\"\npart-bytes = 100"));
        for op in ops {
            model.step(op);
            model.check();
        }
        assert!(other.exists());
    }
}

#[test]
fn parts_are_named_by_pipeline_sink_subtask_and_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let factory = factory(folder.path(), "with-key = true\npart-bytes = \"9B\"\ncompression = \"gzip\"");
    let mut sink = writer(&*factory, 1);
    let mut batch = Batch::default();
    for value in ["first", "second", "third"] {
        batch.push(Some(b"k"), None, value.as_bytes());
    }
    sink.write(&batch).unwrap();
    let transaction = prepared(&mut *sink, 17);
    let out = folder.path().join("out");
    assert!(visible(&out).is_empty());
    factory.committer().unwrap().unwrap().commit(&[transaction]).unwrap();
    let want = [
        ("p-s-1-0000000017-1.txt.gz".to_owned(), "k\tthird\n".to_owned()),
        ("p-s-1-0000000017.txt.gz".to_owned(), "k\tfirst\nk\tsecond\n".to_owned()),
    ];
    assert_eq!(visible(&out), BTreeMap::from(want));
    assert!(sink.prepare(CheckpointId(18)).unwrap().is_none(), "nothing was written since");
}

#[test]
fn a_part_that_a_consumer_took_away_is_not_missed_and_one_that_vanished_before_is() {
    let folder = tempfile::tempdir().unwrap();
    let factory = factory(folder.path(), "");
    let mut sink = writer(&*factory, 0);
    sink.write(&batch(&["a"])).unwrap();
    let first = prepared(&mut *sink, 1);
    sink.write(&batch(&["b"])).unwrap();
    let second = prepared(&mut *sink, 2);
    let mut committer = factory.committer().unwrap().unwrap();
    committer.commit(std::slice::from_ref(&first)).unwrap();
    fs::remove_file(folder.path().join("out/p-s-0-0000000001.txt")).unwrap();
    let mut committer = factory.committer().unwrap().unwrap();
    committer.commit(std::slice::from_ref(&first)).unwrap();
    committer.abort_all_except(&[first]).unwrap();
    let lost = committer.commit(&[second]).unwrap_err();
    assert_eq!(lost.to_string(), "sink-transaction-lost: \"p-s-0-0000000002.txt\" is neither staged nor published");
}

#[test]
fn what_is_in_the_way_is_not_overwritten_and_damage_is_not_published() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let factory = factory(folder.path(), "");
    let mut sink = writer(&*factory, 0);
    sink.write(&batch(&["mine"])).unwrap();
    let transaction = prepared(&mut *sink, 1);
    let mut committer = factory.committer().unwrap().unwrap();
    fs::write(out.join("p-s-0-0000000001.txt"), "other\n").unwrap();
    assert_eq!(committer.commit(std::slice::from_ref(&transaction)).unwrap_err().code, "output-conflict");
    assert_eq!(fs::read(out.join("p-s-0-0000000001.txt")).unwrap(), b"other\n");
    fs::write(out.join("p-s-0-0000000001.txt"), "mine\n").unwrap();
    committer.commit(&[transaction]).unwrap();

    sink.write(&batch(&["more"])).unwrap();
    let transaction = prepared(&mut *sink, 2);
    for entry in fs::read_dir(out.join(".cofferdam-staged/p/s")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("0-") {
            fs::write(path, "mor").unwrap();
        }
    }
    assert_eq!(committer.commit(&[transaction]).unwrap_err().code, "sink-transaction-damaged");
    assert_eq!(visible(&out).len(), 1);
}

#[test]
fn a_transaction_cannot_name_files_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let factory = factory(folder.path(), "");
    let mut committer = factory.committer().unwrap().unwrap();
    let names =
        [("../x", "p-s-0-1.txt"), ("0-1", "p-s-/../../x"), ("0-1", "q-s-0-1.txt"), ("lock", "p-s-0-1.txt"), ("", "p-s-0")];
    for (staged, name) in names {
        let part = part::Part { staged: staged.to_owned(), name: name.to_owned(), length: 0, hash: 0 };
        let transaction = Transaction { checkpoint: CheckpointId(1), subtask: 0, payload: part::encode(&[part]) };
        assert_eq!(committer.commit(std::slice::from_ref(&transaction)).unwrap_err().code, "transaction-invalid");
        assert_eq!(committer.abort_all_except(&[transaction]).unwrap_err().code, "transaction-invalid");
    }
}

#[test]
fn records_that_a_reader_could_not_tell_apart_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let keyed = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::default();
        batch.push(Some(key), None, value);
        batch
    };
    let code = |options: &str, batch: &Batch| {
        let written = writer(&*factory(folder.path(), options), 0).write(batch);
        written.err().map(|error| error.code)
    };
    assert_eq!(code("", &batch(&["a\nb"])), Some("record-has-newline"));
    assert_eq!(code("newlines = \"allow\"", &batch(&["a\nb"])), None);
    assert_eq!(code("with-key = true", &keyed(b"a\tb", b"v")), Some("key-has-separator"));
    assert_eq!(code("with-key = true\nnewlines = \"allow\"", &keyed(b"a\nb", b"v")), Some("key-has-separator"));
    assert_eq!(code("with-key = true", &batch(&["v"])), Some("record-without-key"));
    assert_eq!(code("with-key = true", &keyed(b"", b"")), None);
}

#[test]
fn an_output_that_cannot_be_a_folder_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("out"), "a file").unwrap();
    let factory = factory(folder.path(), "");
    assert_eq!(factory.committer().err().unwrap().code, "output-not-writable");
    let error = factory.open(&ConnectorContext { id: id("s"), subtask: 0, parallelism: 1 }).err().unwrap();
    assert_eq!(error.code, "output-not-writable");
}

#[test]
fn a_second_writer_by_the_same_names_is_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let first = factory(folder.path(), "");
    let sink = writer(&*first, 0);
    drop(first);
    let second = factory(folder.path(), "");
    assert_eq!(second.committer().err().unwrap().code, "output-in-use");
    drop(sink);
    assert!(second.committer().is_ok());
}
