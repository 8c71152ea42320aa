//! Pipeline files that are wrong: each problem has a name, a line and a column, and nothing is begun.

use super::stage::Stage;

const HEAD: &str = "[pipeline]\nname = \"p\"\n";
const SOURCE: &str = "[source.lines]\nconnector = \"files\"\npath = \"lines.txt\"\n";
const SINK: &str = "[sink.out]\nconnector = \"files\"\ninput = \"lines\"\npath = \"out\"\n";

/// Checks that a file is refused with these problems, as code, line and column.
fn refused(text: &str, expected: &[(&str, u64, u64)]) -> String {
    let stage = Stage::new();
    stage.write("lines.txt", "one\n");
    stage.write("pipeline.toml", text);
    let mut told = String::new();
    for verb in [&["check", "pipeline.toml"][..], &["run", "pipeline.toml"]] {
        let ended = stage.verb(verb);
        assert_eq!(ended.code(), Some(2), "{}", ended.told());
        let found = ended.all("error").into_iter().map(|error| {
            assert_eq!(error["file"], "pipeline.toml", "{error}");
            (error["code"].as_str().unwrap(), error["line"].as_u64().unwrap_or(0), error["column"].as_u64().unwrap_or(0))
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{}", ended.told());
        assert!(!stage.path("out").exists() && !stage.path(".cofferdam").exists(), "nothing was begun");
        told = ended.all("error").iter().map(|error| format!("{error}\n")).collect();
    }
    told
}

#[test]
fn an_unknown_key_is_refused_with_the_one_that_was_meant() {
    let told = refused(&format!("{HEAD}paralelism = 2\n{SOURCE}{SINK}"), &[("unknown-key", 3, 1)]);
    assert!(told.contains("did you mean \\\"parallelism\\\"?"), "{told}");
    refused(&format!("{HEAD}{SOURCE}keyy = \"/a\"\n{SINK}"), &[("unknown-key", 6, 1)]);
    refused(&format!("{HEAD}{SOURCE}{SINK}[sinks.out]\n"), &[("unknown-key", 10, 2)]);
}

#[test]
fn an_id_that_is_used_twice_is_refused_at_the_second_use() {
    refused(&format!("{HEAD}{SOURCE}[source.lines]\n{SINK}"), &[("duplicate-key", 6, 9)]);
    let same = SINK.replace("sink.out", "sink.lines");
    let told = refused(&format!("{HEAD}{SOURCE}{same}"), &[("duplicate-id", 6, 7)]);
    assert!(told.contains("lines"), "{told}");
}

#[test]
fn a_cycle_is_refused_and_shown() {
    let operator = |id: &str, input: &str| format!("[operator.{id}]\ncomponent = \"x.wasm\"\ninput = \"{input}\"\n");
    let text = format!("{HEAD}{SOURCE}{}{}{SINK}", operator("a", "b"), operator("b", "a"));
    let told = refused(&text, &[("cycle", 11, 9)]);
    assert!(told.contains("a -> b -> a") || told.contains("b -> a -> b"), "{told}");
}

#[test]
fn an_input_that_does_not_exist_is_refused_where_it_is_named() {
    let sink = SINK.replace("\"lines\"", "\"line\"");
    let told = refused(&format!("{HEAD}{SOURCE}{sink}"), &[("dangling-input", 8, 9)]);
    assert!(told.contains("\\\"line\\\""), "{told}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_where_it_stands() {
    refused(&format!("{HEAD}parallelism = \"two\"\n{SOURCE}{SINK}"), &[("wrong-type", 3, 15)]);
    refused(&format!("{HEAD}[checkpoint]\ninterval = 5\n{SOURCE}{SINK}"), &[("wrong-type", 4, 12)]);
    refused(&format!("{HEAD}{}{SINK}", SOURCE.replace("\"lines.txt\"", "[1]")), &[("wrong-type", 5, 8)]);
}

#[test]
fn text_that_is_no_toml_is_refused_where_it_breaks() {
    refused(&format!("{HEAD}parallelism =\n{SOURCE}{SINK}"), &[("toml-syntax", 3, 14)]);
}

#[test]
fn what_is_not_built_is_refused_by_name_and_not_ignored() {
    let told = refused(&format!("{HEAD}[checkpoint]\nunaligned = true\n{SOURCE}{SINK}"), &[("not-built", 4, 1)]);
    assert!(told.contains("unaligned"), "{told}");
}

#[test]
fn all_problems_of_a_file_are_told_at_once_in_its_order() {
    let text = format!("[pipeline]\nname = \"A b\"\nparallelism = 0\n{SOURCE}{}", SINK.replace("\"files\"", "\"kafka\""));
    refused(&text, &[("bad-id", 2, 8), ("out-of-range", 3, 15), ("unknown-connector", 8, 13)]);
}
