//! What `plan` decides is what `run` does, and the command that it gives works.

use std::fs;

use serde_json::Value;

use super::savepoint::stopped;
use super::stage::{Ended, Stage};

/// A word count that was stopped with the savepoint `saved`, and whose counting operator has another name now.
fn renamed() -> Stage {
    let (stage, _) = stopped();
    let whole = fs::read_to_string(stage.path("pipeline.toml")).unwrap();
    stage.write("pipeline.toml", whole.replace("[operator.count]", "[operator.total]").replace("\"count\"", "\"total\""));
    stage
}

/// Returns what `plan` says, which must end with this code.
fn plan(stage: &Stage, exit: i32, arguments: &[&str]) -> Value {
    let ended = stage.verb(&[&["plan", "pipeline.toml", "--no-build"], arguments].concat());
    assert_eq!(ended.code(), Some(exit), "{}", ended.told());
    let changes = ended.only("changes").clone();
    assert_eq!(changes["go"], exit == 0, "{changes}");
    changes
}

/// Does what a command line says.
fn obey(stage: &Stage, command: &str) -> Ended {
    let words: Vec<_> = command.split(' ').collect();
    assert_eq!(words[..3], ["cofferdam", "run", "pipeline.toml"], "{command}");
    stage.run(&words[3..])
}

#[test]
fn state_that_is_left_behind_is_left_out_and_the_command_that_is_told_goes_on() {
    let stage = renamed();
    let refused = plan(&stage, 3, &["--against", "saved"]);
    let what = refused["obstacles"][0]["what"].as_str().unwrap();
    assert!(what.contains("slot \"n\" of \"count\""), "{refused}");
    let told = refused["command"].as_str().unwrap().to_owned();
    assert_eq!(told, "cofferdam run pipeline.toml --from saved --drop-state count/n");
    stage.run(&["--from", "saved"]).failed(3, "error", "restore-incompatible");

    let dropped = plan(&stage, 0, &["--against", "saved", "--drop-state", "count/n"]);
    assert_eq!(dropped["command"].as_str(), Some(&*told));
    assert!(dropped["obstacles"].as_array().unwrap().is_empty(), "{dropped}");
    for (name, exit, code) in [("cuont", 3, "restore-unknown-state"), ("/n", 2, "bad-value")] {
        let arguments = ["plan", "pipeline.toml", "--no-build", "--against", "saved", "--drop-state", name];
        stage.verb(&arguments).failed(exit, "error", code);
    }
    let arguments = ["plan", "pipeline.toml", "--no-build", "--against", "nowhere"];
    stage.verb(&arguments).failed(3, "error", "no-checkpoint");

    obey(&stage, &told).ended("finished");
    let finished = plan(&stage, 3, &["--against", "saved", "--drop-state", "count/n"]);
    let obstacle = &finished["obstacles"][0];
    assert!(obstacle["what"].as_str().unwrap().contains("has finished"), "{finished}");
    obey(&stage, &told).failed(3, "error", "restore-finished");
    let (_, fresh) = obstacle["remedy"].as_str().unwrap().split_once(": ").unwrap();
    obey(&stage, fresh).ended("finished");
}

#[test]
fn what_stands_in_the_way_of_a_plain_run_is_left_behind_from_its_own_checkpoint() {
    let stage = renamed();
    let refused = plan(&stage, 3, &[]);
    let newest = &refused["checkpoint"];
    let told = refused["command"].as_str().unwrap();
    assert_eq!(told, format!("cofferdam run pipeline.toml --from {newest} --drop-state count/n"));
    for against in [newest.to_string(), "latest".to_owned(), "job".to_owned(), format!("job/chk-{newest}")] {
        assert_eq!(plan(&stage, 3, &["--against", &against])["checkpoint"], *newest);
        plan(&stage, 0, &["--against", &against, "--drop-state", "count"]);
    }
    obey(&stage, told).ended("finished");
}

#[test]
fn a_fork_and_a_job_that_has_gone_further_are_decided_as_a_run_decides() {
    let (stage, _) = stopped();
    let whole = fs::read_to_string(stage.path("pipeline.toml")).unwrap();
    let go = plan(&stage, 0, &[]);
    assert_eq!(go["command"], "cofferdam run pipeline.toml");
    stage.run(&["--from", "saved", "--parallelism", "3"]).ended("finished");
    // The savepoint of a stop is published: a fork may go on from it.
    let fork =
        whole.replace("name = \"words\"", "name = \"fork\"").replace("\"job\"", "\"forked\"").replace("\"out\"", "\"more\"");
    stage.write("pipeline.toml", fork);
    let go = plan(&stage, 0, &["--against", "saved"]);
    obey(&stage, go["command"].as_str().unwrap()).ended("finished");
}
