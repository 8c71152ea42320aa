//! The rules of `ARCHITECTURE.md` that a compiler does not check.
#![expect(clippy::unwrap_used, reason = "tests may unwrap")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const WORDS: [&str; 6] = ["ids", "time", "column", "batch", "element", "key_group"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files below a folder, without those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
            files.push(path);
        }
    }
    files
}

/// Whether the module beside it declares a file for tests only.
fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_string_lossy();
    let parent = std::fs::read_to_string(path.with_file_name("mod.rs")).unwrap_or_default();
    parent.contains(&format!("#[cfg(test)]\nmod {name};"))
}

/// The code of a file: without comments, and without the tests at its end.
fn code(path: &Path) -> String {
    let text = read(path);
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The modules that code names below `prefix`, such as `crate::`.
fn named(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        let rest = &code[at + prefix.len()..];
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            for (index, c) in list.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && !c.is_whitespace() => {
                        names.insert(word(&list[index..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            names.insert(word(rest));
        }
    }
    names
}

/// The table of `ARCHITECTURE.md`: module -> what it may use.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let rows = text.lines().skip_while(|line| !line.starts_with("| module")).skip(2).take_while(|line| line.starts_with('|'));
    let table: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let uses = cells[1].split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
            (cells[0].to_owned(), uses.collect())
        })
        .collect();
    assert!(table.len() > 10, "the table was not found");
    table
}

fn module_of(file: &Path, source: &Path) -> String {
    let first = file.strip_prefix(source).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

#[test]
fn imports_follow_the_table() {
    let table = table();
    let mut wrong = Vec::new();
    for (krate, folder) in [("dataflow", "host/dataflow/src"), ("runtime", "host/runtime/src")] {
        let source = root().join(folder);
        let mut seen = BTreeSet::new();
        for file in sources(&source) {
            let module = module_of(&file, &source);
            if ["lib", "main"].contains(&module.as_str()) || WORDS.contains(&module.as_str()) {
                continue;
            }
            let allowed =
                table.get(&format!("{krate}::{module}")).unwrap_or_else(|| panic!("{krate}::{module} is not in the table"));
            seen.insert(module.clone());
            let code = code(&file);
            let own = if krate == "runtime" && module == "cli" { "cofferdam::" } else { "crate::" };
            let mut uses = named(&code, own);
            uses.extend(named(&code, "cofferdam_dataflow::").iter().map(|name| format!("dataflow::{name}")));
            for name in uses {
                let bare = name.strip_prefix("dataflow::").unwrap_or(&name);
                let is_word = WORDS.contains(&bare) && (krate == "dataflow" || name.starts_with("dataflow::"));
                let is_item = bare.chars().next().is_some_and(char::is_uppercase);
                let any = name.starts_with("dataflow::") && allowed.contains("dataflow::*");
                if name != module && !is_word && !is_item && !any && !allowed.contains(&name) {
                    wrong.push(format!("{}: {krate}::{module} uses {name}", file.display()));
                }
            }
        }
        for module in table.keys().filter_map(|name| name.strip_prefix(&format!("{krate}::"))) {
            assert!(seen.contains(module), "{krate}::{module} is in the table and does not exist");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_cycle() {
    let table = table();
    let mut done: BTreeSet<String> = BTreeSet::new();
    while done.len() < table.len() {
        let is_free = |(module, uses): &(&String, &BTreeSet<String>)| {
            let krate = module.split("::").next().unwrap();
            let mut own = uses.iter().filter(|name| name.as_str() != "dataflow::*");
            !done.contains(*module)
                && own.all(|name| done.contains(name) || done.contains(&format!("{krate}::{name}")) || name.ends_with('*'))
        };
        let free: Vec<_> = table.iter().filter(is_free).map(|(module, _)| module.clone()).collect();
        assert!(!free.is_empty(), "a cycle among {:?}", table.keys().filter(|name| !done.contains(*name)).collect::<Vec<_>>());
        done.extend(free);
    }
}

#[test]
fn the_engine_has_no_way_to_the_world() {
    let manifest = read(&root().join("host/dataflow/Cargo.toml"));
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split('[').next().unwrap();
    let names: BTreeSet<_> = dependencies.lines().filter_map(|line| line.split('.').next()).filter(|n| !n.is_empty()).collect();
    let text = read(&root().join("ARCHITECTURE.md")).replace('\n', " ");
    let list = text.split("only these crates: ").nth(1).unwrap().split(". ").next().unwrap();
    let allowed: BTreeSet<_> = list.split(", ").map(str::trim).collect();
    assert_eq!(names, allowed);
    let forbidden = [
        "std::thread",
        "std::fs",
        "std::net",
        "std::process",
        "std::env",
        "Instant::now",
        "SystemTime::now",
        "RandomState",
        "tokio",
    ];
    for file in sources(&root().join("host/dataflow/src")) {
        let code = code(&file);
        for name in forbidden {
            assert!(!code.contains(name), "{} names {name}", file.display());
        }
    }
}

#[test]
fn wasmtime_and_threads_are_where_they_belong() {
    let source = root().join("host/runtime/src");
    for file in sources(&source) {
        let module = module_of(&file, &source);
        let code = code(&file);
        let is = |names: &[&str]| names.contains(&module.as_str());
        assert!(!code.contains("wasmtime") || is(&["guest", "sandbox"]), "{} names wasmtime", file.display());
        assert!(
            !code.contains("thread::") || is(&["execution", "sandbox", "build", "control"]),
            "{} makes threads",
            file.display()
        );
    }
}

#[test]
fn files_are_small_and_say_what_they_are() {
    for folder in ["host/dataflow/src", "host/runtime/src", "guest-sdk/src"] {
        for file in sources(&root().join(folder)) {
            let text = read(&file);
            assert!(text.starts_with("//!"), "{} has no module documentation", file.display());
            let lines = text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
            assert!(lines <= 650, "{} has {lines} lines", file.display());
        }
    }
}

#[test]
fn files_that_the_documentation_names_exist() {
    let text = read(&root().join("ARCHITECTURE.md"));
    for name in text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")) {
        let places = ["", "host/dataflow/src/", "host/runtime/src/", "guest-sdk/src/"];
        assert!(places.iter().any(|place| root().join(place).join(name).exists()), "{name} does not exist");
    }
}
