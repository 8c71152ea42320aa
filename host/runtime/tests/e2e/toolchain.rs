//! A compiler for guests where none is installed: prepared once, or a message that says what to do. The tools are fakes.

use std::fs;
use std::os::unix::fs::symlink;

use super::stage::{Ended, Stage, write_script};

/// Builds a crate on a machine that has a compiler without the target, and this `bash`.
fn build(bash: impl Fn(&Stage)) -> (Stage, Ended) {
    let stage = Stage::new();
    stage.write("operator/Cargo.toml", "[package]\nname = \"operator\"\nversion = \"0.1.0\"\n");
    write_script(&stage.path("bin/rustc"), "[ \"$1\" = --version ] && echo rustc 0.0.0");
    bash(&stage);
    let mut command = stage.command(&["build", "operator"]);
    command.env("PATH", stage.path("bin")).env("COFFERDAM_HOME", stage.path("home")).env_remove("COFFERDAM_GUEST_TOOLCHAIN");
    let ended = stage.start_command(command).wait();
    (stage, ended)
}

#[test]
fn a_toolchain_that_cannot_be_prepared_is_told_with_what_to_do() {
    // The script finds none of the tools that it needs.
    let (stage, ended) = build(|stage| symlink("/bin/bash", stage.path("bin/bash")).unwrap());
    let message = ended.failed(4, "error", "no-wasm-target")["message"].as_str().unwrap();
    for word in ["rustup target add wasm32-unknown-unknown", "COFFERDAM_GUEST_TOOLCHAIN", stage.path("home").to_str().unwrap()] {
        assert!(message.contains(word), "{message}");
    }
    assert!(ended.stderr.contains("preparing a toolchain for guests"), "{}", ended.told());

    let (_, ended) = build(|_| ());
    let message = ended.failed(4, "error", "tool-missing")["message"].as_str().unwrap();
    assert!(message.contains("bash is not installed"), "{message}");
}

#[test]
fn a_toolchain_is_prepared_in_the_users_folder_and_used() {
    let prepare = "[ \"$1 $3\" = '-c guest-toolchain.sh' ] || exit 9\n/bin/mkdir -p \"$4/bin\"\n\
        /bin/cp \"${0%/*}/rustc\" \"$4/bin/rustc\"\n\
        printf '#!/bin/sh\\necho \"$@\" > %s/called\\nexit 1\\n' \"$4\" > \"$4/bin/cargo-guest\"\n/bin/chmod +x \"$4/bin/cargo-guest\"";
    let (stage, ended) = build(|stage| write_script(&stage.path("bin/bash"), prepare));
    ended.failed(2, "error", "compile-failed");
    let called = fs::read_to_string(stage.path("home/guest-toolchain/called")).unwrap();
    assert!(called.starts_with("build --release --lib") && called.contains("--target wasm32-unknown-unknown"), "{called}");
}
