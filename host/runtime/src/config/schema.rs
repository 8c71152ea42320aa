//! The published JSON schema and the reference know the same keys, words and defaults as the parser.

use serde_json::Value;

use super::{PIPELINE_KEYS, ROOT_KEYS, STATE_KEYS, checkpoint, guest_config, limits, node, restart, value};

const SCHEMA: &str = include_str!("../../../../docs/pipeline.schema.json");
const REFERENCE: &str = include_str!("../../../../docs/pipeline.md");

/// Every table: where the schema has it, and what the parser reads.
const TABLES: &[(&str, &[&str])] = &[
    ("", ROOT_KEYS),
    ("/properties/pipeline", PIPELINE_KEYS),
    ("/properties/checkpoint", checkpoint::KEYS),
    ("/properties/checkpoint/properties/retention", checkpoint::RETENTION_KEYS),
    ("/properties/restart", restart::KEYS),
    ("/properties/state", STATE_KEYS),
    ("/properties/source/additionalProperties", node::SOURCE_KEYS),
    ("/properties/source/additionalProperties/properties/watermark", node::WATERMARK_KEYS),
    ("/properties/operator/additionalProperties", node::OPERATOR_KEYS),
    ("/properties/operator/additionalProperties/properties/secrets/additionalProperties", guest_config::SECRET_KEYS),
    ("/properties/operator/additionalProperties/properties/limits", limits::KEYS),
    ("/properties/sink/additionalProperties", node::SINK_KEYS),
];

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[test]
fn the_schema_has_the_keys_of_the_parser_and_no_others() {
    let schema = schema();
    for (pointer, keys) in TABLES {
        let table = schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing"));
        let mut known: Vec<_> = table["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut read = keys.to_vec();
        known.sort_unstable();
        read.sort_unstable();
        assert_eq!(known, read, "{pointer}");
    }
}

#[test]
fn every_table_of_the_schema_is_compared() {
    let mut found = Vec::new();
    collect(&schema(), "", &mut found);
    let mut compared: Vec<_> = TABLES.iter().map(|(pointer, _)| (*pointer).to_owned()).collect();
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
}

#[test]
fn words_and_defaults_of_the_schema_are_those_of_the_parser() {
    let schema = schema();
    let at = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_else(|| panic!("{pointer} is missing"));
    let connectors = |kind: &str| at(&format!("/properties/{kind}/additionalProperties/properties/connector/enum"));
    assert_eq!(connectors("source"), serde_json::json!(crate::connector::SOURCES));
    assert_eq!(connectors("sink"), serde_json::json!(crate::connector::SINKS));

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
