//! SIGINT and SIGTERM before the job runs, whatever is going on.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::stage::{Ended, Random, Stage, is_alive, seed, wait_for_end, write_script};

const PIPELINE: &str = "[pipeline]\nname = \"p\"\n[source.lines]\nconnector = \"generator\"\nrate = 10\n\
    [operator.pass]\ncomponent = \"COMPONENT\"\ninput = \"lines\"\nconfig = { at = \"\", how = \"panic\" }\n\
    [sink.out]\nconnector = \"blackhole\"\ninput = \"pass\"\n";

/// Checks that the program has ended as documented, and not by the signal.
fn interrupted(ended: &Ended) {
    assert_eq!((ended.code(), ended.last()), (Some(130), "interrupted"), "{}", ended.told());
    assert_eq!(ended.only("interrupted")["summary"], Value::Null);
    assert!(ended.all("error").is_empty(), "{}", ended.told());
}

#[test]
fn a_signal_while_a_crate_is_built_ends_the_build_and_all_that_it_started() {
    for (signal, verb) in [(Signal::INT, "run"), (Signal::TERM, "check"), (Signal::INT, "build")] {
        let stage = Stage::new();
        stage.write("pipeline.toml", PIPELINE.replace("COMPONENT", "operator"));
        stage.write("operator/Cargo.toml", "[package]\nname = \"operator\"\nversion = \"0.1.0\"\n");
        write_script(&stage.path("toolchain/bin/rustc"), "echo rustc 0.0.0");
        // As cargo does it: the work is another process's, and is waited for.
        let build = format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", stage.path("pids").display());
        write_script(&stage.path("toolchain/bin/cargo-guest"), &build);
        let mut command = stage.command(&[verb, "pipeline.toml"]);
        command.env("COFFERDAM_GUEST_TOOLCHAIN", stage.path("toolchain"));
        let mut running = stage.start_command(command);
        assert!(running.wait_until(|| stage.path("pids").exists()), "{}", running.wait().told());
        let pids = fs::read_to_string(stage.path("pids")).unwrap();
        let pids: Vec<_> = pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().unwrap())).collect();
        assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)));
        running.signal(signal);
        interrupted(&running.wait());
        pids.into_iter().for_each(wait_for_end);
    }
}

#[test]
fn a_signal_while_a_component_is_compiled_ends_the_compiler() {
    let stage = Stage::new();
    stage.components(&["faulty"]);
    stage.write("pipeline.toml", PIPELINE.replace("COMPONENT", "faulty.wasm"));
    let mut command = stage.command(&["run", "pipeline.toml"]);
    command.env("COFFERDAM_HOME", stage.path("home"));
    let mut running = stage.start_command(command);
    let mut compiler = None;
    while compiler.is_none() {
        assert!(!running.has_ended(), "it ended without compiling");
        compiler = running.child("compile-child");
    }
    let compiler = compiler.unwrap();
    // It cannot be done before the signal comes.
    kill_process(compiler, Signal::STOP).unwrap();
    assert!(is_alive(compiler) && !running.has_ended());
    running.interrupt();
    interrupted(&running.wait());
    wait_for_end(compiler);
    assert!(!stage.path(".cofferdam").exists(), "nothing was begun");
}

/// A compiler asks to die with its host, but is a process before it gets to ask. Here it never does.
#[test]
fn a_signal_ends_a_compiler_that_has_not_been_tied_to_its_host_yet() {
    let stage = Stage::new();
    stage.components(&["faulty"]);
    stage.write("pipeline.toml", PIPELINE.replace("COMPONENT", "faulty.wasm"));
    // The host starts its own program to compile, from where it was started itself.
    let program = stage.path("cofferdam");
    let host = env!("CARGO_BIN_EXE_cofferdam");
    fs::hard_link(host, &program).or_else(|_| fs::copy(host, &program).map(drop)).unwrap();
    let component = stage.path("faulty.wasm");
    let bytes = fs::read(&component).unwrap();
    fs::remove_file(&component).unwrap();
    assert!(Command::new("mkfifo").arg(&component).status().unwrap().success());
    let mut command = stage.command_of(&program, &["run", "pipeline.toml"]);
    command.env("COFFERDAM_HOME", stage.path("home"));
    let mut running = stage.start_command(command);
    // Returns once the host reads the component: it knows where its program is, and compiles nothing before it has read all.
    let mut pipe = fs::File::options().write(true).open(&component).unwrap();
    let pid = stage.path("pid");
    write_script(&stage.path("other"), &format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", pid.display()));
    fs::rename(stage.path("other"), &program).unwrap();
    pipe.write_all(&bytes).unwrap();
    drop(pipe);
    assert!(running.wait_until(|| pid.exists()), "{}", running.wait().told());
    let compiler = fs::read_to_string(&pid).unwrap();
    let compiler = Pid::from_raw(compiler.trim().parse().unwrap()).unwrap();
    assert!(is_alive(compiler) && !running.has_ended());
    running.interrupt();
    interrupted(&running.wait());
    wait_for_end(compiler);
}

#[test]
fn a_signal_at_any_moment_ends_with_a_documented_exit_code() {
    let stage = Stage::new();
    stage.components(&["faulty"]);
    stage.write("pipeline.toml", PIPELINE.replace("COMPONENT", "faulty.wasm"));
    let mut random = Random(seed());
    for round in 0..8 {
        let mut running = stage.start(&[]);
        while !running.listens() {
            assert!(!running.has_ended(), "it ended by itself");
        }
        if round > 0 {
            running.run_for(Duration::from_micros(random.below(200_000)));
        }
        running.signal(if random.below(2) == 0 { Signal::INT } else { Signal::TERM });
        let ended = running.wait();
        let ends = [(Some(130), "interrupted"), (Some(0), "stopped")];
        assert!(ends.contains(&(ended.code(), ended.last())), "{}", ended.told());
    }
}
