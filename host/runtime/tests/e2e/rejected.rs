//! Components that are refused before anything runs.

use super::stage::{Ended, Stage, component};

const LINES: &str = "one\ntwo\n";

fn pipeline(components: &[&str]) -> String {
    let mut text = "[pipeline]\nname = \"p\"\n[source.lines]\nconnector = \"files\"\npath = \"lines.txt\"\n".to_owned();
    let mut input = "lines".to_owned();
    for (i, file) in components.iter().enumerate() {
        text += &format!("[operator.o{i}]\ncomponent = \"{file}\"\ninput = \"{input}\"\n");
        input = format!("o{i}");
    }
    text + &format!("[sink.out]\nconnector = \"files\"\npath = \"out\"\ninput = \"{input}\"\n")
}

/// Runs a pipeline whose only operator is this file.
fn run(bytes: &[u8]) -> (Stage, Ended) {
    let stage = Stage::new();
    stage.write("lines.txt", LINES);
    stage.write("operator.wasm", bytes);
    stage.write("pipeline.toml", pipeline(&["operator.wasm"]));
    let ended = stage.run(&[]);
    (stage, ended)
}

/// Checks that the file is refused with this code, at the line that names it, and that nothing was begun.
fn refused(bytes: &[u8], code: &str) -> String {
    let (stage, ended) = run(bytes);
    let error = ended.failed(2, "error", code);
    assert_eq!((&error["line"], &error["column"]), (&7.into(), &13.into()), "{error}");
    assert!(error["file"].as_str().unwrap().ends_with("pipeline.toml"), "{error}");
    assert!(!stage.path("out").exists() && !stage.path(".cofferdam").exists(), "nothing was begun");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("operator.wasm: "), "{message}");
    message.to_owned()
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
        at += found;
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    assert!(at > 0, "{from} was not found");
    bytes
}

#[test]
fn what_is_no_component_is_refused_by_name() {
    let core = wat::parse_str("(module (func (export \"run\")))").unwrap();
    let cut = &component("faulty")[..1000];
    for bytes in [&b""[..], b"\0", LINES.as_bytes(), &core, cut] {
        refused(bytes, "component-invalid");
    }
    refused(b"\x7fELF\x02\x01\x01\0", "precompiled-refused");
}

#[test]
fn a_component_for_another_version_of_the_interface_is_refused_with_both_versions() {
    let bytes = replaced(&component("faulty"), "cofferdam:operator/guest@0.1.0", "cofferdam:operator/guest@0.2.0");
    let message = refused(&bytes, "world-mismatch");
    assert!(message.contains("operator@0.2.0") && message.contains("0.1.x"), "{message}");
}

#[test]
fn a_component_that_is_no_operator_is_refused() {
    refused(&wat::parse_str("(component)").unwrap(), "world-mismatch");
}

#[test]
fn an_operator_that_panics_when_it_is_asked_what_it_is_is_refused_with_its_words() {
    let message = refused(&component("undeclared"), "guest-trap");
    assert!(message.contains("panicked at src/lib.rs:") && message.contains("nobody knows what it is"), "{message}");
}

#[test]
fn an_import_that_is_not_offered_is_refused_and_named() {
    let bytes = wat::parse_str("(component (import \"wasi:random/random@0.2.0\" (instance)))").unwrap();
    let message = refused(&bytes, "import-denied");
    assert!(message.contains("wasi:random/random@0.2.0"), "{message}");
}

#[test]
fn a_thousand_bytes_that_ask_for_ten_million_instances_are_refused() {
    let mut text = "(component (core module) (core instance (instantiate 0)))".to_owned();
    for _ in 0..7 {
        text = format!("(component {text} {})", "(instance (instantiate 0))".repeat(10));
    }
    let bytes = wat::parse_str(text).unwrap();
    assert!(bytes.len() < 1000, "{} bytes", bytes.len());
    let message = refused(&bytes, "component-too-complex");
    assert!(message.contains("core-instances"), "{message}");
}

#[test]
fn all_bad_components_of_a_pipeline_are_told_at_once() {
    let stage = Stage::new();
    stage.components(&["faulty"]);
    stage.write("lines.txt", LINES);
    stage.write("empty.wasm", "");
    stage.write("pipeline.toml", pipeline(&["empty.wasm", "faulty.wasm", "gone.wasm"]));
    let ended = stage.run(&[]);
    let errors: Vec<_> = ended.all("error").iter().map(|error| (error["code"].clone(), error["line"].clone())).collect();
    assert_eq!(errors, [("component-invalid".into(), 7.into()), ("io".into(), 13.into())], "{}", ended.told());
    assert!(matches!(ended.code(), Some(2 | 4)), "{}", ended.told());
}
