//! Pipeline files and what they are: right ones as values, wrong ones as messages with line and column.

use cofferdam_dataflow::graph::spec::Partition;
use cofferdam_dataflow::guest::InputPort;

use super::*;
use crate::storage::Compression;

const WORD_COUNT: &str = r#"[pipeline]
name = "word-count"
parallelism = 2

[checkpoint]
interval = "1s"
storage = "file:///var/lib/word-count"
retention = { keep = 5, on-cancel = "delete" }

[source.lines]
connector = "files"
path = "input/*.txt"
watermark = { out-of-orderness = "5s" }

[operator.split]
component = "split.wasm"
input = "lines"

[operator.count]
component = "count"
input = "split"
parallelism = 1
config = { top = 10, names = ["a", "b"], since = 2024-01-01 }
secrets = { token = { env = "TOKEN" } }
limits = { memory = "32MiB", fuel-per-record = "2M" }

[sink.counts]
connector = "files"
input = "count"
path = "out/"
"#;

fn parse(text: &str) -> Result<PipelineFile, Vec<Diagnostic>> {
    PipelineFile::parse(SourceText::new("p.toml", text), Path::new("/jobs"))
}

/// Renders diagnostics as `line:column code: message (help)`.
fn rendered(problems: &[Diagnostic]) -> Vec<String> {
    let line = |problem: &Diagnostic| {
        let (line, column) = problem.place.as_ref().map_or((0, 0), Place::position);
        let help = problem.help.as_ref().map_or(String::new(), |help| format!(" ({help})"));
        format!("{line}:{column} {}: {}{help}", problem.code, problem.message)
    };
    problems.iter().map(line).collect()
}

fn descriptor(inputs: &[&str], outputs: &[&str], keyed: bool) -> Descriptor {
    Descriptor {
        inputs: inputs.iter().map(|name| InputPort { name: (*name).into(), broadcast: false }).collect(),
        outputs: outputs.iter().map(|name| (*name).into()).collect(),
        slots: vec![],
        timers: vec![],
        keyed,
        max_batch: 0,
    }
}

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

#[test]
fn a_whole_file_is_read_as_written() {
    let file = parse(WORD_COUNT).unwrap();
    assert_eq!((file.name.as_str(), file.parallelism, file.max_parallelism.get()), ("word-count", 2, 128));
    let expected = CheckpointOptions {
        interval_ms: Some(1000),
        keep: 5,
        retain_on_cancel: false,
        storage: "/var/lib/word-count".into(),
        ..CheckpointOptions::new(Path::new("/jobs"), "word-count")
    };
    assert_eq!(file.checkpoint, expected);
    assert_eq!(file.restart, RestartStrategy::default());
    let ids: Vec<_> = file.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!(ids, ["lines", "split", "count", "counts"]);
    let (node, count) = file.operators().nth(1).unwrap();
    assert_eq!(file.parallelism_of(node), 1);
    assert_eq!(file.component_path(count), Path::new("/jobs/count"));
    assert_eq!((count.limits.memory_bytes, count.limits.fuel_per_record), (32 << 20, 2_000_000));
    assert_eq!(count.limits.fuel_max, OperatorLimits::default().fuel_max);
    let config = file.guest_config(node, count, &|name| (name == "TOKEN").then(|| "t".to_owned())).unwrap();
    assert_eq!(String::from_utf8(config).unwrap(), r#"{"names":["a","b"],"since":"2024-01-01","token":"t","top":10}"#);
    let missing = file.guest_config(node, count, &|_| None).unwrap_err();
    assert_eq!(rendered(&[missing]), ["19:11 secret-missing: the secret \"token\" needs the environment variable TOKEN"]);
}

#[test]
fn a_file_with_names_alone_gets_the_defaults() {
    let file =
        parse("[pipeline]\nname='p'\n[source.a]\nconnector='generator'\n[sink.b]\nconnector='console'\ninput='a'").unwrap();
    let checkpoint = CheckpointOptions {
        interval_ms: Some(10_000),
        timeout_ms: 600_000,
        min_pause_ms: 0,
        max_concurrent: 1,
        tolerable_failures: 3,
        keep: 3,
        retain_on_cancel: true,
        storage: "/jobs/.cofferdam/p".into(),
        compression: Compression::Lz4,
    };
    assert_eq!(file.checkpoint, checkpoint);
    let with = |keys: &str| parse(&WORD_COUNT.replace("interval = \"1s\"", keys));
    for (name, compression) in [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)] {
        assert_eq!(with(&format!("compression='{name}'")).unwrap().checkpoint.compression, compression);
    }
    let wrong = rendered(&with("compression='gzip'").unwrap_err());
    assert!(wrong[0].contains("bad-value") && wrong[0].contains("\"zstd\""), "{wrong:?}");
    assert_eq!(file.parallelism, 1);
    let off = parse(
        "[pipeline]\nname='p'\n[checkpoint]\ninterval='off'\n[source.a]\nconnector='generator'\n[sink.b]\nconnector='console'\ninput='a'",
    );
    assert_eq!(off.unwrap().checkpoint.interval_ms, None);
}

#[test]
fn watermarks_are_read() {
    let watermark = |value: &str| {
        let file = parse(&WORD_COUNT.replace("{ out-of-orderness = \"5s\" }", value)).unwrap();
        match &file.nodes[0].kind {
            NodeConfigKind::Source { watermark, .. } => watermark.clone(),
            _ => panic!("the first node is a source"),
        }
    };
    assert_eq!(watermark("\"none\""), WatermarkOptions::None);
    let all = "{ out-of-orderness = \"5s\", idle-timeout = \"1m\", align = \"g\", max-drift = \"10s\" }";
    let WatermarkOptions::Given { out_of_orderness_ms, idle_timeout_ms, alignment, .. } = watermark(all) else { panic!() };
    assert_eq!((out_of_orderness_ms, idle_timeout_ms), (Some(5000), Some(60_000)));
    assert_eq!(alignment, Some(("g".to_owned(), 10_000)));
}

#[test]
fn restart_strategies_are_read_with_their_own_keys() {
    let strategy = |keys: &str| parse(&format!("{WORD_COUNT}\n[restart]\n{keys}")).map(|file| file.restart);
    let fixed = RestartStrategy::FixedDelay { attempts: 5, delay_ms: 200 };
    assert_eq!(strategy("strategy='fixed-delay'\nattempts=5\ndelay='200ms'"), Ok(fixed));
    let rate = RestartStrategy::FailureRate { max_failures: 2, interval_ms: 60_000, delay_ms: 1000 };
    assert_eq!(strategy("strategy='failure-rate'\nmax-failures=2"), Ok(rate));
    assert_eq!(strategy("strategy='none'\nfailover='region'"), Ok(RestartStrategy::None));
    let RestartStrategy::ExponentialDelay { multiplier, attempts, .. } = strategy("multiplier=2\nattempts=7").unwrap() else {
        panic!("the default strategy is exponential-delay");
    };
    assert_eq!((multiplier, attempts), (2.0, Some(7)));
    let errors = rendered(&strategy("strategy='none'\ndelay='1s'").unwrap_err());
    assert_eq!(
        errors,
        ["34:1 contradiction: \"delay\" means nothing to the strategy \"none\" (it belongs to fixed-delay and failure-rate)"]
    );
}

/// Replaces a line of the word-count file and returns what is wrong then.
fn broken(line: usize, with: &str) -> Vec<String> {
    let mut lines: Vec<&str> = WORD_COUNT.lines().collect();
    lines[line - 1] = with;
    rendered(&parse(&lines.join("\n")).expect_err(with))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of mistakes")]
fn each_mistake_is_named_at_its_line_and_column() {
    let cases = [
        (3, "paralelism = 2", "3:1 unknown-key: unknown key \"paralelism\" in [pipeline] (did you mean \"parallelism\"?)"),
        (
            3,
            "colour = 2",
            "3:1 unknown-key: unknown key \"colour\" in [pipeline] (the keys here are name, parallelism, max-parallelism)",
        ),
        (3, "parallelism = \"2\"", "3:15 wrong-type: \"parallelism\" is \"2\", expected a number from 1 to 32768"),
        (3, "parallelism = 0", "3:15 out-of-range: \"parallelism\" is the number 0, expected a number from 1 to 32768"),
        (3, "parallelism = 300", "3:15 out-of-range: \"parallelism\" is 300, above the max-parallelism of 128"),
        (
            2,
            "name = \"Word Count\"",
            "2:8 bad-id: \"Word Count\" is not a valid id: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit",
        ),
        (2, "name = ", "2:8 toml-syntax: string values must be quoted, expected literal string"),
        (
            6,
            "interval = 10",
            "6:12 wrong-type: \"interval\" is the number 10, expected a duration such as \"500ms\", \"10s\" or \"1h 30m\"",
        ),
        (
            6,
            "interval = \"10 parsecs\"",
            "6:12 bad-value: \"interval\" is \"10 parsecs\", expected a duration such as \"500ms\", \"10s\" or \"1h 30m\"",
        ),
        (6, "interval = \"0s\"", "6:12 out-of-range: \"interval\" is \"0s\", expected 1ms to 30days"),
        (
            6,
            "mode = \"at-least-once\"",
            "6:8 not-built: mode \"at-least-once\" is not built yet (use mode = \"exactly-once\", or leave the key out)",
        ),
        (6, "unaligned = true", "6:1 not-built: \"unaligned\" is not built yet (barriers are aligned: leave the key out)"),
        (
            7,
            "storage = \"s3://bucket/x\"",
            "7:11 not-built: storage scheme \"s3\" is not built yet (use a directory: \"file:///path\" or a path beside the pipeline file)",
        ),
        (
            7,
            "storage = \"file://x\"",
            "7:11 bad-value: \"storage\" is \"file://x\", expected a directory (such as \"file:///var/lib/job\" or \"state/job\")",
        ),
        (
            8,
            "retention = { on-cancel = \"keep\" }",
            "8:27 bad-value: \"on-cancel\" is \"keep\", expected one of \"retain\", \"delete\"",
        ),
        (11, "connector = \"file\"", "11:13 unknown-connector: there is no source connector \"file\" (did you mean \"files\"?)"),
        (
            11,
            "",
            "10:9 missing-key: [source.lines] lacks the key \"connector\" (expected one of \"files\", \"generator\", \"nexmark\")",
        ),
        (13, "watermark = { align = \"a\" }", "13:15 missing-key: \"align\" needs \"max-drift\""),
        (
            13,
            "watermark = { idle-timeout = \"2years\" }",
            "13:30 out-of-range: \"idle-timeout\" is \"2years\", expected 0s to 1year 18h",
        ),
        (
            13,
            "watermark = \"no\"",
            "13:13 bad-value: \"watermark\" is \"no\", expected a table such as { out-of-orderness = \"5s\" }, or \"none\"",
        ),
        (13, "input = \"count\"", "13:9 source-with-input: [source.lines] is a source and cannot have an input"),
        (
            16,
            "",
            "15:11 missing-key: [operator.split] lacks the key \"component\" (expected a component file or the folder of a guest crate, such as \"count.wasm\")",
        ),
        (
            17,
            "input = \"line\"",
            "17:9 dangling-input: \"split\" reads from \"line\", which does not exist (did you mean \"lines\"?)",
        ),
        (
            17,
            "input = \"count\"",
            "21:9 cycle: the inputs form a cycle: count -> split -> count (a dataflow must not lead back into itself)",
        ),
        (
            17,
            "input = \"split\"",
            "17:9 cycle: the inputs form a cycle: split -> split (a dataflow must not lead back into itself)",
        ),
        (
            17,
            "input = \"counts\"",
            "17:9 reads-from-sink: \"split\" reads from \"counts\", which is a sink (read what the sink reads)",
        ),
        (17, "input = \"lines.late\"", "17:9 no-such-port: the source \"lines\" has no port \"late\" (write \"lines\")"),
        (
            17,
            "input = []",
            "17:9 bad-value: \"input\" is an empty list, expected the id of a source or operator, such as \"lines\", or a list of them",
        ),
        (
            17,
            "input = [\"lines\", 3]",
            "17:19 wrong-type: \"input\" holds the number 3, expected the id of a source or operator, such as \"lines\", or a list of them",
        ),
        (
            19,
            "[operator.lines]",
            "19:11 duplicate-id: the id \"lines\" is used twice, first in line 10 (ids are unique over sources, operators and sinks)",
        ),
        (19, "[operator.split]", "19:11 duplicate-key: \"split\" is defined twice (drop or rename one of the two)"),
        (
            19,
            "[operator.\"a b\"]",
            "19:11 bad-id: \"a b\" is not a valid id: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit",
        ),
        (22, "parallelism = 129", "19:11 out-of-range: the parallelism of \"count\" is 129, above the max-parallelism of 128"),
        (
            22,
            "on-poison = \"skip\"",
            "22:13 not-built: on-poison \"skip\" is not built yet (use on-poison = \"fail\", or leave the key out)",
        ),
        (
            23,
            "config = { x = nan }",
            "23:16 bad-value: the number nan cannot be written as JSON (a configuration reaches the operator as JSON)",
        ),
        (23, "config = 3", "23:10 wrong-type: \"config\" is the number 3, expected a table"),
        (23, "config = { token = 1 }", "24:13 contradiction: \"token\" is both in config and in secrets"),
        (
            24,
            "secrets = { token = \"hunter2\" }",
            "24:21 wrong-type: the secret \"token\" is no table, expected { env = \"NAME\" } or { file = \"path\" }",
        ),
        (29, "inptu = \"count\"", "29:1 unknown-key: unknown key \"inptu\" in [sink.counts] (did you mean \"input\"?)"),
        (25, "limits = { memory = \"2GiB\" }", "25:21 out-of-range: \"memory\" is \"2GiB\", expected 64 KiB to 1 GiB"),
        (
            25,
            "limits = { memory = true }",
            "25:21 wrong-type: \"memory\" is true, expected a size such as \"64MiB\", \"100kB\" or a number of bytes",
        ),
        (
            25,
            "limits = { cpu = \"deadline\" }",
            "25:18 not-built: cpu limit \"deadline\" is not built yet (use cpu = \"fuel\", or leave the key out)",
        ),
        (
            25,
            "limits = { fuel-per-recrod = 1 }",
            "25:12 unknown-key: unknown key \"fuel-per-recrod\" in the limits of [operator.count] (did you mean \"fuel-per-record\"?)",
        ),
        (
            25,
            "restart = 1",
            "25:1 unknown-key: unknown key \"restart\" in [operator.count] (the keys here are component, input, partition, parallelism, config, secrets, limits, state-backend, state-memory, on-poison, isolation)",
        ),
    ];
    let mut wrong = Vec::new();
    for (line, with, expected) in cases {
        let found = broken(line, with);
        if !found.iter().any(|problem| problem == expected) {
            wrong.push(format!("{with}\n  found    {}\n  expected {expected}", found.join("\n           ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tables_of_the_file_are_checked_too() {
    let cases = [
        ("[pipelin]\nname='p'", "1:2 unknown-key: unknown key \"pipelin\" in the pipeline file (did you mean \"pipeline\"?)"),
        ("pipeline = 3", "1:12 wrong-type: \"pipeline\" is the number 3, expected a table, as in [pipeline]"),
        ("[pipeline]\nname='p'", "1:1 missing-node: the pipeline has no source (add a table [source.name] with a connector)"),
        ("[source]\nlines = 3", "2:9 wrong-type: \"lines\" is the number 3, expected a table, as in [source.lines]"),
        ("[pipeline]", "1:2 missing-key: [pipeline] lacks the key \"name\" (expected a name such as \"word-count\")"),
        (
            "[state]\nmemory='64MiB'",
            "2:1 contradiction: \"memory\" is set for state that is in memory (add backend = \"disk\", or drop the key)",
        ),
        ("[state]\nbackend='disk'\nmemory='1MiB'", "3:8 out-of-range: \"memory\" is \"1MiB\", expected 4 MiB to 1 TiB"),
        (
            "[restart]\nfailover='individual'",
            "2:10 not-built: failover \"individual\" is not built yet (use failover = \"full\", or leave the key out)",
        ),
        (
            "[checkpoint]\nmin-pause='1s'\nmax-concurrent=2",
            "3:16 contradiction: \"max-concurrent\" above 1 contradicts \"min-pause\" (a pause between checkpoints means one at a time: drop one of the two keys)",
        ),
    ];
    for (text, expected) in cases {
        let found = rendered(&parse(text).unwrap_err());
        assert!(found.iter().any(|problem| problem == expected), "{text}\n{}\nexpected\n{expected}", found.join("\n"));
    }
}

#[test]
fn several_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let text = WORD_COUNT.replace("interval", "intervall").replace("\"split\"", "\"splitt\"").replace("32MiB", "32 parsecs");
    let found = rendered(&parse(&text).unwrap_err());
    let codes: Vec<_> = found.iter().map(|line| line.split(':').nth(1).unwrap_or("").split(' ').nth(1).unwrap_or("")).collect();
    assert_eq!(codes, ["unknown-key", "dangling-input", "bad-value"], "{found:#?}");
}

#[test]
fn a_secret_written_into_the_file_is_not_shown() {
    let found = broken(24, "secrets = { token = \"hunter2\" }");
    assert!(!found.join("\n").contains("hunter2"), "{found:?}");
}

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileOptions {
    path: String,
    #[serde(default)]
    on_malformed: String,
    limit: Option<u32>,
}

fn source_options(line: usize, with: &str) -> Result<FileOptions, String> {
    let mut lines: Vec<&str> = WORD_COUNT.lines().collect();
    lines[line - 1] = with;
    let file = parse(&lines.join("\n")).unwrap();
    let NodeConfigKind::Source { connector, .. } = &file.nodes[0].kind else { panic!("the first node is a source") };
    connector.options().map_err(|problem| rendered(&[problem]).remove(0))
}

#[test]
fn a_connector_reads_its_own_options_and_errors_keep_their_place() {
    let options = source_options(12, "path = \"a\"\non-malformed = \"skip\"").unwrap();
    assert_eq!(options, FileOptions { path: "a".into(), on_malformed: "skip".into(), limit: None });
    let cases = [
        (
            "path = \"a\"\non-malfomed = \"skip\"",
            "13:1 unknown-key: unknown key \"on-malfomed\" in [source.lines] (connector \"files\") (did you mean \"on-malformed\"?)",
        ),
        ("", "10:9 missing-key: [source.lines] (connector \"files\") lacks the key \"path\""),
        ("path = 3", "12:8 wrong-type: invalid type: integer \"3\", expected a string"),
        ("path = \"a\"\nlimit = -1", "13:9 bad-value: invalid value: integer \"-1\", expected u32"),
    ];
    for (with, expected) in cases {
        assert_eq!(source_options(12, with).unwrap_err(), expected, "{with}");
    }
}

#[test]
fn ports_are_resolved_by_the_descriptors() {
    let text = WORD_COUNT
        .replace("input = \"count\"", "input = [\"count\", \"split.late\"]")
        .replace("input = \"split\"", "input = [[\"split\", \"lines\"], \"split.late\"]\npartition = \"rebalance\"");
    let file = parse(&text).unwrap();
    let descriptors = BTreeMap::from([
        (id("split"), descriptor(&["in"], &["words", "late"], false)),
        (id("count"), descriptor(&["left", "right"], &["out"], false)),
    ]);
    let spec = file.into_job_spec(&descriptors).unwrap();
    let edges: Vec<_> = spec.nodes[2].inputs.iter().map(|input| (input.from.as_str(), input.from_port, input.to_port)).collect();
    assert_eq!(edges, [("split", 0, 0), ("lines", 0, 0), ("split", 1, 1)]);
    assert!(spec.nodes[2].inputs.iter().all(|input| input.partition == Some(Partition::Rebalance)));
    let edges: Vec<_> = spec.nodes[3].inputs.iter().map(|input| (input.from.as_str(), input.from_port, input.to_port)).collect();
    assert_eq!(edges, [("count", 0, 0), ("split", 1, 0)], "a sink unites its inputs");
    assert_eq!(spec.nodes[1].parallelism, 2);
    assert_eq!(delivery::sources_of(&spec, &id("counts")), [&id("lines")]);
}

#[test]
fn ports_that_do_not_fit_are_pointed_at() {
    let plain = || descriptor(&["in"], &["out"], false);
    let job = |text: &str, split: Descriptor, count: Descriptor| {
        let descriptors = BTreeMap::from([(id("split"), split), (id("count"), count)]);
        rendered(&parse(text).unwrap().into_job_spec(&descriptors).unwrap_err())
    };
    let late = WORD_COUNT.replace("input = \"split\"", "input = \"split.lat\"");
    assert_eq!(
        job(&late, descriptor(&["in"], &["out", "late"], false), plain()),
        ["21:9 no-such-port: the operator \"split\" has no output port \"lat\" (did you mean \"split.late\"?)"]
    );
    assert_eq!(
        job(WORD_COUNT, descriptor(&["in"], &[], false), plain()),
        ["21:9 no-such-port: the operator \"split\" has no output port (its component declares no outputs)"]
    );
    assert_eq!(
        job(WORD_COUNT, plain(), descriptor(&["left", "right"], &["out"], false)),
        [
            "21:9 wrong-inputs: \"count\" has 2 input ports (left, right), but \"input\" names 1 (name one input for each port, in this order; unite several with an inner list: [[\"a\", \"b\"], \"c\"])"
        ]
    );
    let forward = WORD_COUNT.replace("input = \"split\"", "input = \"split\"\npartition = \"forward\"");
    assert_eq!(
        job(&forward, plain(), plain()),
        [
            "19:11 bad-partition: \"split\" and \"count\" are joined by forward but differ in parallelism (set the same parallelism on both, or use partition = \"rebalance\")"
        ]
    );
    let twice = WORD_COUNT.replace("input = \"split\"", "input = [\"split\", \"split.out\"]");
    assert_eq!(job(&twice, plain(), plain()), ["21:19 duplicate-input: \"count\" reads from \"split.out\" twice on one port"]);
    let missing = parse(WORD_COUNT).unwrap().into_job_spec(&BTreeMap::from([(id("split"), plain())])).unwrap_err();
    assert_eq!(rendered(&missing), ["20:13 component-missing: the component of \"count\" was not loaded"]);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let message = |path: &Path| PipelineFile::load(path).unwrap_err().remove(0).message;
    assert!(message(&dir.path().join("no.toml")).contains("no.toml: No such file"));
    assert!(message(dir.path()).ends_with("is a folder"));
    let path = dir.path().join("latin.toml");
    std::fs::write(&path, b"a = '\xe4'").unwrap();
    assert!(message(&path).ends_with("is not UTF-8 (byte 5)"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(cut in 0..WORD_COUNT.len(), insert in "[a-z\\[\\]={}\".,0-9\n -]{0,12}", delete in 0..20_usize) {
        let end = (cut + delete).min(WORD_COUNT.len());
        let text = format!("{}{insert}{}", &WORD_COUNT[..cut], &WORD_COUNT[end..]);
        if let Err(problems) = parse(&text) {
            proptest::prop_assert!(!problems.is_empty());
        }
    }
}
