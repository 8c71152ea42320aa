//! From `cofferdam new` to a component, by the real toolchain. One test: a guest takes a while to compile, and the
//! first run on a machine may have to prepare a toolchain, as a user's first build does.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs the command line and returns its exit code and its lines of JSON.
fn cofferdam(dir: &Path, home: &Path, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.current_dir(dir).args(["--output", "json"]).args(arguments).env_remove("NO_COLOR");
    // The SDK's copy goes to a home of the test's; a toolchain that was prepared before is used again.
    if std::env::var_os("COFFERDAM_GUEST_TOOLCHAIN").is_none()
        && let Some(prepared) = prepared_toolchain()
    {
        command.env("COFFERDAM_GUEST_TOOLCHAIN", prepared);
    }
    let output = command.env("COFFERDAM_HOME", home).stderr(Stdio::inherit()).output().expect("the command line starts");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON"));
    (output.status.code(), lines.collect())
}

fn prepared_toolchain() -> Option<std::path::PathBuf> {
    let cache = std::env::var_os("COFFERDAM_HOME").map(std::path::PathBuf::from);
    let home = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/cofferdam")))?;
    Some(home.join("guest-toolchain")).filter(|dir| dir.join("bin/cargo-guest").is_file())
}

#[test]
fn a_new_crate_becomes_a_component_once_and_again_only_after_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("home");
    let (dir, home) = (dir.path(), home.as_path());

    let (code, lines) = cofferdam(dir, home, &["new", "upper"]);
    assert_eq!((code, &lines[0]["event"]), (Some(0), &"created".into()), "{lines:?}");
    let crate_dir = dir.join("upper");

    let (code, lines) = cofferdam(&crate_dir, home, &["check", "pipeline.toml", "--no-build"]);
    assert_eq!((code, &lines[0]["code"], &lines[0]["line"]), (Some(2), &"component-stale".into(), &9.into()), "{lines:?}");

    let (code, lines) = cofferdam(&crate_dir, home, &["build"]);
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(lines[0]["unchanged"], false);
    let imports: Vec<_> = lines[0]["imports"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(imports.iter().all(|name| name.starts_with("cofferdam:operator/")), "{imports:?}");
    let component = crate_dir.join("target/cofferdam/upper.wasm");
    let first = std::fs::read(&component).unwrap();

    let (code, lines) = cofferdam(&crate_dir, home, &["build", "pipeline.toml"]);
    assert_eq!((code, &lines[0]["unchanged"]), (Some(0), &true.into()), "{lines:?}");

    let source = crate_dir.join("src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, text.replace("to_uppercase", "to_lowercase")).unwrap();
    let (code, lines) = cofferdam(&crate_dir, home, &["build"]);
    assert_eq!((code, &lines[0]["unchanged"]), (Some(0), &false.into()), "{lines:?}");
    assert_ne!(std::fs::read(&component).unwrap(), first);

    std::fs::write(&source, "fn broken( {").unwrap();
    let (code, lines) = cofferdam(&crate_dir, home, &["build"]);
    assert_eq!((code, &lines[0]["code"]), (Some(2), &"compile-failed".into()), "{lines:?}");
    // What was built before stays, and is known to be old.
    assert!(component.is_file());
    let (code, lines) = cofferdam(&crate_dir, home, &["inspect", "."]);
    assert_eq!((code, &lines[0]["code"]), (Some(2), &"component-stale".into()), "{lines:?}");
}
