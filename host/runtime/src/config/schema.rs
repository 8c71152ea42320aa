//! The published JSON schema and the reference know the same keys, words and defaults as the parser.

use serde_json::Value;

use super::{PIPELINE_KEYS, ROOT_KEYS, checkpoint, guest_config, limits, node, restart, state, value, watermark};
use crate::connector::{SINKS, SOURCES, SinkOptions, SourceOptions};

const SCHEMA: &str = include_str!("../../../../docs/pipeline.schema.json");
const REFERENCE: &str = include_str!("../../../../docs/pipeline.md");

/// The tables that are the same in every pipeline: where the schema has them, and what the parser reads.
const TABLES: &[(&str, &[&str])] = &[
    ("", ROOT_KEYS),
    ("/properties/pipeline", PIPELINE_KEYS),
    ("/properties/checkpoint", checkpoint::KEYS),
    ("/properties/checkpoint/properties/retention", checkpoint::RETENTION_KEYS),
    ("/properties/restart", restart::KEYS),
    ("/properties/state", state::KEYS),
    ("/$defs/source-keys/watermark", watermark::WATERMARK_KEYS),
    ("/properties/operator/additionalProperties", node::OPERATOR_KEYS),
    ("/properties/operator/additionalProperties/properties/secrets/additionalProperties", guest_config::SECRET_KEYS),
    ("/properties/operator/additionalProperties/properties/limits", limits::KEYS),
];

/// A connector: its name, the keys that all of its kind have, and its own.
struct Connector {
    kind: &'static str,
    name: &'static str,
    common: &'static [&'static str],
    own: &'static [&'static str],
}

impl Connector {
    /// Where the schema has its table.
    fn pointer(&self) -> String {
        format!("/$defs/{}-{}", self.kind, self.name)
    }

    /// Reads its options, as `Debug` shows them.
    fn parse(&self, options: Value) -> Result<String, String> {
        match self.kind {
            "source" => SourceOptions::deserialize(self.name, options).unwrap().map(|options| format!("{options:?}")),
            _ => SinkOptions::deserialize(self.name, options).unwrap().map(|options| format!("{options:?}")),
        }
        .map_err(|error| error.to_string())
    }
}

fn connectors() -> Vec<Connector> {
    let source = |name: &&'static str| {
        let own = SourceOptions::keys(name).expect("a connector of the list");
        Connector { kind: "source", name, common: node::SOURCE_KEYS, own }
    };
    let sink = |name: &&'static str| {
        let own = SinkOptions::keys(name).expect("a connector of the list");
        Connector { kind: "sink", name, common: node::SINK_KEYS, own }
    };
    SOURCES.iter().map(source).chain(SINKS.iter().map(sink)).collect()
}

/// Every table: where the schema has it, and what the parser reads.
fn tables() -> Vec<(String, Vec<&'static str>)> {
    let fixed = TABLES.iter().map(|(pointer, keys)| ((*pointer).to_owned(), keys.to_vec()));
    fixed.chain(connectors().iter().map(|found| (found.pointer(), [found.common, found.own].concat()))).collect()
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[test]
fn the_schema_has_the_keys_of_the_parser_and_no_others() {
    let schema = schema();
    for (pointer, mut read) in tables() {
        let table = schema.pointer(&pointer).unwrap_or_else(|| panic!("{pointer} is missing"));
        assert_eq!(table["additionalProperties"], false, "{pointer}");
        let mut known: Vec<_> = table["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        known.sort_unstable();
        read.sort_unstable();
        assert_eq!(known, read, "{pointer}");
    }
}

#[test]
fn every_table_of_the_schema_is_compared() {
    let mut found = Vec::new();
    collect(&schema(), "", &mut found);
    // Kinds of connectors are lists of references to the tables.
    for kind in ["source", "sink"] {
        let listed = &schema()["properties"][kind]["additionalProperties"]["oneOf"];
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(|table| table["$ref"].as_str().unwrap().to_owned()).collect();
        let known = connectors().into_iter().filter(|found| found.kind == kind).map(|found| format!("#{}", found.pointer()));
        assert_eq!(sorted_text(listed), sorted_text(known.collect()));
    }
    let mut compared: Vec<_> = tables().into_iter().map(|(pointer, _)| pointer).collect();
    found.sort();
    compared.sort();
    assert_eq!(found, compared);
}

fn collect(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let Some(object) = value.as_object() else { return };
    if object.get("properties").is_some_and(Value::is_object) {
        found.push(pointer.to_owned());
    }
    for (key, inner) in object {
        collect(inner, &format!("{pointer}/{key}"), found);
    }
}

#[test]
fn every_key_is_in_the_reference() {
    for (pointer, keys) in TABLES.iter().filter(|(pointer, _)| !pointer.is_empty()) {
        for key in *keys {
            assert!(REFERENCE.contains(&format!("`{key}`")), "{pointer} {key}");
        }
    }
    for (kind, keys) in [("source", node::SOURCE_KEYS), ("sink", node::SINK_KEYS)] {
        assert_eq!(sorted(rows(&format!("## `[{kind}.ID]`"))), sorted(keys.to_vec()), "{kind}");
    }
}

#[test]
fn the_reference_has_a_section_for_each_connector_with_its_own_keys_and_no_others() {
    for Connector { kind, name, own, .. } in connectors() {
        let heading = format!("### {kind} `{name}`");
        assert_eq!(sorted(rows(&heading)), sorted(own.to_vec()), "{heading}");
        assert!(section(&heading).contains("**Guarantee.**"), "{heading}");
    }
    let headings = REFERENCE.lines().filter(|line| line.starts_with("### source") || line.starts_with("### sink")).count();
    assert_eq!(headings, connectors().len());
}

/// Returns what stands below a heading of the reference.
fn section(heading: &str) -> &'static str {
    let (_, rest) = REFERENCE.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading} is missing"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// Returns the keys that the rows of a section's tables begin with.
fn rows(heading: &str) -> Vec<&'static str> {
    section(heading).lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

fn sorted_text(mut keys: Vec<String>) -> Vec<String> {
    keys.sort_unstable();
    keys
}

fn sorted(mut keys: Vec<&str>) -> Vec<&str> {
    keys.sort_unstable();
    keys
}

#[test]
fn each_connector_reads_what_the_schema_gives_as_words_examples_and_defaults() {
    let schema = schema();
    for connector in connectors() {
        let table = schema.pointer(&connector.pointer()).unwrap();
        assert_eq!(table["properties"]["connector"]["const"], connector.name);
        let required: Vec<_> = table["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let needs_path = required.contains(&"path");
        let with = |key: &str, value: &Value| {
            let mut options = serde_json::json!({});
            if needs_path {
                options["path"] = "x".into();
            }
            if !key.is_empty() {
                options[key] = value.clone();
            }
            connector.parse(options)
        };
        let defaults = with("", &Value::Null).unwrap();
        assert_eq!(connector.parse(serde_json::json!({})).is_err(), needs_path, "{}", connector.pointer());
        for key in connector.own {
            let found = &table["properties"][key];
            assert!(found["description"].as_str().is_some_and(|text| text.ends_with('.')), "{key}");
            let words = ["enum", "examples"].iter().filter_map(|list| found[*list].as_array()).flatten();
            let mut values: Vec<_> = words.cloned().collect();
            if found["type"] == "boolean" {
                values.extend([true.into(), false.into()]);
            }
            assert!(!values.is_empty(), "{key} has no example");
            for value in &values {
                with(key, value).unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
            }
            // A word that the schema lacks would be refused by editors.
            if let Some(list) = found["enum"].as_array() {
                let error = with(key, &"?".into()).unwrap_err();
                let known = error.split('`').skip(3).step_by(2).count();
                assert_eq!(known, list.len(), "{key}: {error}");
            }
            // Options that are `None` unless given are compared below.
            let shown = with(key, &found["default"]);
            assert!(found["default"].is_null() || shown.as_ref() == Ok(&defaults) || shown.unwrap().contains("Some("), "{key}");
        }
    }
}

#[test]
fn defaults_of_options_that_may_be_left_out_are_those_of_the_code() {
    use crate::connector::{
        ByteSize, DELIMITER, Distribution, EVENT_TIME_START, EVENT_TIME_STEP, EVENTS_PER_SECOND, HumanDuration, KeyFormat,
        LINE_BYTES_MAX, OUT_OF_ORDER, PART_BYTES, PAYLOAD_BYTES, StartTime, TimeUnit,
    };
    fn is<T: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(connector: &str, key: &str, code: &T) {
        let default = &schema()["$defs"][connector]["properties"][key]["default"];
        assert_eq!(serde_json::from_value::<T>(default.clone()).unwrap(), *code, "{key}");
    }
    is("source-files", "event-time-unit", &TimeUnit::default());
    is("source-files", "max-line-bytes", &LINE_BYTES_MAX);
    is("source-files", "delimiter", &DELIMITER);
    is("source-generator", "distribution", &Distribution::default());
    is("source-generator", "key-format", &KeyFormat::default());
    is::<ByteSize>("source-generator", "payload-bytes", &PAYLOAD_BYTES);
    is::<StartTime>("source-generator", "event-time-start", &EVENT_TIME_START);
    is::<HumanDuration>("source-generator", "event-time-step", &EVENT_TIME_STEP);
    is("source-nexmark", "events-per-second", &EVENTS_PER_SECOND);
    is::<StartTime>("source-nexmark", "event-time-start", &EVENT_TIME_START);
    is::<HumanDuration>("source-nexmark", "out-of-order", &OUT_OF_ORDER);
    is("sink-files", "part-bytes", &PART_BYTES);
}

#[test]
fn words_and_defaults_of_the_schema_are_those_of_the_parser() {
    let schema = schema();
    let at = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_else(|| panic!("{pointer} is missing"));
    let limit = |key: &str| at(&format!("/properties/operator/additionalProperties/properties/limits/properties/{key}/default"));
    let defaults = super::OperatorLimits::default();
    let effects = defaults.effects;
    let sizes = [
        ("memory", defaults.memory_bytes),
        ("key", effects.key_bytes.into()),
        ("value", effects.value_bytes.into()),
        ("writes", effects.write_bytes.into()),
        ("record", effects.record_bytes.into()),
        ("output", effects.output_bytes.into()),
    ];
    for (key, bytes) in sizes {
        assert_eq!(value::parse_bytes(limit(key).as_str().unwrap()), Ok(bytes), "{key}");
    }
    let counts = [
        ("table-elements", defaults.table_elements),
        ("fuel-per-call", defaults.fuel_per_call),
        ("fuel-per-record", defaults.fuel_per_record),
        ("fuel-max", defaults.fuel_max),
        ("fuel-instantiate", defaults.fuel_instantiate),
        ("fuel-lifecycle", defaults.fuel_lifecycle),
        ("output-records", effects.output_records.into()),
        ("timers", effects.timers.into()),
        ("timer-updates", effects.timer_updates.into()),
    ];
    for (key, count) in counts {
        assert_eq!(value::parse_count(limit(key).as_str().unwrap()), Ok(count), "{key}");
    }

    let checkpoint = super::CheckpointOptions::new(std::path::Path::new("/"), "p");
    let default = |key: &str| at(&format!("/properties/checkpoint/properties/{key}/default"));
    let duration = |key: &str| value::parse_duration_ms(default(key).as_str().unwrap()).unwrap();
    assert_eq!(Some(duration("interval")), checkpoint.interval_ms);
    assert_eq!(duration("timeout"), checkpoint.timeout_ms);
    assert_eq!(duration("min-pause"), checkpoint.min_pause_ms);
    assert_eq!(default("max-concurrent"), checkpoint.max_concurrent);
    assert_eq!(at("/properties/checkpoint/properties/compression/enum"), serde_json::json!(crate::storage::Compression::NAMES));
    assert_eq!(crate::storage::Compression::from_name(default("compression").as_str().unwrap()), Some(checkpoint.compression));
    assert_eq!(default("tolerable-failures"), checkpoint.tolerable_failures);
    assert_eq!(default("retention/properties/keep"), checkpoint.keep);
}
