//! Savepoints of running pipelines, the ends that are asked for with them, and what starts from them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::kill::{stage_words, word_count};
use super::output::{check_counts, parts, rows};
use super::stage::{Running, Stage};

/// A word count that has published something and has much left to do.
fn running() -> (Stage, BTreeMap<String, u64>, Running) {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(2, "20ms"), 24, 40_000);
    let mut running = stage.start(&[]);
    let out = stage.path("out");
    assert!(running.wait_until(|| !parts(&out).is_empty()));
    (stage, counts, running)
}

/// The same, stopped with a savepoint in the folder `saved`.
fn stopped() -> (Stage, BTreeMap<String, u64>) {
    let (stage, counts, running) = running();
    let told = stage.verb(&["stop", "pipeline.toml", "--savepoint", "saved"]);
    told.ended("stopped");
    let path = told.only("savepoint")["path"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&path).canonicalize().unwrap(), stage.path("saved").canonicalize().unwrap());
    let ended = running.wait();
    assert_eq!(ended.ended("stopped")["checkpoint"], told.only("stopped")["checkpoint"]);
    (stage, counts)
}

/// Returns the number of the newest checkpoint in a job's directory; 0 if there is none.
fn newest(job: &Path) -> u64 {
    let whole = fs::read_dir(job).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.join("_manifest").exists());
    whole.filter_map(|path| path.file_name()?.to_str()?.strip_prefix("chk-")?.parse().ok()).max().unwrap_or(0)
}

#[test]
fn a_savepoint_is_taken_while_the_pipeline_runs_and_a_kill_goes_back_to_its_checkpoints() {
    let (stage, counts, mut running) = running();
    let told = stage.verb(&["savepoint", "pipeline.toml"]);
    let first = told.ended("savepoint").clone();
    let path = stage.path(&format!("job/savepoints/savepoint-{}", first["id"]));
    assert_eq!(first["path"].as_str(), path.canonicalize().unwrap().to_str());
    let told = stage.verb(&["savepoint", "job", "--to", "saved"]);
    let second = told.ended("savepoint")["id"].as_u64().unwrap();
    let shown = stage.verb(&["checkpoint", "show", "saved"]);
    assert_eq!(shown.code(), Some(0), "{}", shown.told());
    let taken = stage.verb(&["savepoint", "job", "--to", "saved"]);
    taken.failed(2, "error", "savepoint-exists");
    assert!(running.wait_until(|| newest(&stage.path("job")) > second));
    running.kill();
    assert!(!stage.path("job/finished").exists(), "it was killed on its way");
    // Its own checkpoints are newer, and go on by themselves.
    stage.run(&["--from", "saved"]).failed(3, "error", "restore-newer-exists");
    stage.run(&[]).ended("finished");
    check_counts(&stage.path("out"), &counts);
    assert!(path.join("_manifest").exists() && stage.path("saved/_manifest").exists(), "they are never deleted");
}

#[test]
fn a_stopped_pipeline_starts_from_its_moved_savepoint_with_another_parallelism() {
    let (stage, counts) = stopped();
    fs::create_dir(stage.path("elsewhere")).unwrap();
    fs::rename(stage.path("saved"), stage.path("elsewhere/moved")).unwrap();
    // The job's own checkpoint of the stop is not needed for it.
    fs::remove_dir_all(stage.path("job")).unwrap();
    let mut running = stage.start(&["--from", "elsewhere/moved", "--parallelism", "3"]);
    // Killed before or after its first own checkpoint: from then on it goes on by itself.
    assert!(running.wait_until(|| {
        fs::read_dir(stage.path("job")).is_ok_and(|mut dir| dir.any(|entry| entry.unwrap().path().join("_manifest").exists()))
    }));
    running.kill();
    stage.run(&["--parallelism", "4"]).ended("finished");
    check_counts(&stage.path("out"), &counts);
    assert!(stage.path("elsewhere/moved/_manifest").exists(), "it is the user's");
}

#[test]
fn a_claimed_savepoint_is_deleted_when_it_is_not_needed_any_more() {
    let (stage, counts) = stopped();
    let ended = stage.run(&["--from", "saved", "--claim"]);
    ended.ended("finished");
    assert!(ended.only("started")["restored"].is_u64(), "{}", ended.told());
    check_counts(&stage.path("out"), &counts);
    assert!(!stage.path("saved").exists());
}

#[test]
fn a_retained_checkpoint_is_the_latest_and_is_not_for_claiming() {
    let (stage, counts) = stopped();
    stage.run(&["--from", "latest", "--claim"]).failed(2, "error", "contradiction");
    stage.run(&["--from", "99999"]).failed(3, "error", "no-checkpoint");
    stage.run(&["--from", "nowhere"]).failed(3, "error", "no-checkpoint");
    stage.run(&["--from", "latest"]).ended("finished");
    check_counts(&stage.path("out"), &counts);
    stage.run(&["--from", "saved"]).failed(3, "error", "restore-finished");
}

#[test]
fn two_pipelines_from_one_savepoint_each_publish_the_rest_once() {
    let (stage, counts) = stopped();
    let published = parts(&stage.path("out"));
    for fork in ["left", "right"] {
        let pipeline = word_count(2, "50ms").replace("name = \"words\"", &format!("name = \"{fork}\""));
        let pipeline = pipeline.replace("\"job\"", &format!("\"{fork}/job\"")).replace("\"out\"", &format!("\"{fork}/out\""));
        stage.write("pipeline.toml", pipeline);
        stage.run(&["--from", "saved"]).ended("finished");
        // What the first one had published and what the fork publishes is the whole result.
        for part in &published {
            fs::copy(part, stage.path(fork).join("out").join(part.file_name().unwrap())).unwrap();
        }
        check_counts(&stage.path(&format!("{fork}/out")), &counts);
    }
}

#[test]
fn state_is_left_behind_by_its_name_only() {
    let (stage, counts) = stopped();
    let whole = fs::read_to_string(stage.path("pipeline.toml")).unwrap();
    let renamed = whole.replace("[operator.count]", "[operator.total]").replace("\"count\"", "\"total\"");
    stage.write("pipeline.toml", renamed);
    let refused = stage.run(&["--from", "saved"]);
    let error = refused.failed(3, "error", "restore-incompatible");
    assert!(error["message"].as_str().unwrap().contains("\"count\""), "{error}");
    stage.run(&["--from", "saved", "--drop-state", "cuont"]).failed(3, "error", "restore-unknown-state");
    stage.run(&["--from", "saved", "--drop-state", "count/m"]).failed(3, "error", "restore-unknown-state");
    stage.run(&["--from", "saved", "--drop-state", "/n"]).failed(2, "error", "bad-value");
    let before = rows(&stage.path("out")).len();
    stage.run(&["--from", "saved", "--drop-state", "count/n"]).ended("finished");
    // Each word is counted from the beginning again, over the rest.
    let words: u64 = counts.values().sum();
    let after = rows(&stage.path("out"));
    assert_eq!(after.len() as u64, words);
    assert!(after.iter().filter(|row| *row == "the\t1").count() == 2 && before > 0, "counted twice from one");
}

#[test]
fn a_drained_pipeline_publishes_what_it_has_read_and_is_finished() {
    let (stage, counts, running) = running();
    let told = stage.verb(&["drain", "pipeline.toml", "--savepoint", "saved"]);
    told.ended("finished");
    assert!(told.only("savepoint")["id"].is_u64(), "{}", told.told());
    let ended = running.wait();
    let finished = ended.ended("finished");
    let words: u64 = counts.values().sum();
    let published = rows(&stage.path("out")).len() as u64;
    assert_eq!(finished["records_out"], published);
    assert!(published < words, "it ended before its input did");
    stage.run(&[]).ended("already-finished");
    stage.run(&["--from", "saved"]).failed(3, "error", "restore-final");
}

#[test]
fn a_pipeline_is_stopped_without_a_savepoint_too_and_nothing_answers_afterwards() {
    let (stage, counts, running) = running();
    stage.verb(&["stop", "job"]).ended("stopped");
    running.wait().ended("stopped");
    for verb in ["savepoint", "stop", "drain"] {
        let error = stage.verb(&[verb, "pipeline.toml"]);
        let error = error.failed(4, "error", "not-running");
        assert!(error["message"].as_str().unwrap().contains("job"), "{error}");
    }
    let mut killed = stage.start(&[]);
    assert!(killed.wait_until(|| stage.path("job/control").exists()));
    killed.kill();
    assert!(stage.path("job/control").exists(), "a socket that nobody listens on");
    stage.verb(&["stop", "job"]).failed(4, "error", "not-running");
    stage.run(&[]).ended("finished");
    check_counts(&stage.path("out"), &counts);
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_no_obstacle_and_only_its_owner_can_use_it() {
    let stage = Stage::new();
    let long = format!("{0}/{0}", "a-long-name".repeat(8));
    let pipeline = word_count(1, "20ms").replace("\"job\"", &format!("\"{long}\""));
    stage_words(&stage, &pipeline, 24, 40_000);
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| !parts(&stage.path("out")).is_empty()));
    let socket = fs::metadata(stage.path(&long).join("control")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    stage.verb(&["savepoint", "pipeline.toml", "--to", "saved"]).ended("savepoint");
    stage.verb(&["stop", "pipeline.toml"]).ended("stopped");
    running.wait().ended("stopped");
}

/// Says a line and returns the answer.
fn say(stream: &mut BufReader<UnixStream>, line: &[u8]) -> Value {
    stream.get_mut().write_all(line).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn what_is_no_request_is_answered_by_name() {
    let (stage, _, running) = running();
    let connect = || {
        // The name of a socket is short.
        let dir = fs::File::open(stage.path("job")).unwrap();
        BufReader::new(UnixStream::connect(format!("/proc/self/fd/{}/control", dir.as_raw_fd())).unwrap())
    };
    let mut stream = connect();
    let status = say(&mut stream, b"{\"version\":1,\"request\":\"status\"}\n");
    assert_eq!((&status["event"], &status["pipeline"], &status["version"]), (&"status".into(), &"words".into(), &1.into()));
    for (line, code) in [
        (&b"nonsense\n"[..], "bad-request"),
        (b"{\"version\":1,\"request\":\"explode\"}\n", "bad-request"),
        (b"{\"version\":1,\"request\":\"stop\",\"savepoint\":false,\"to\":null,\"more\":1}\n", "bad-request"),
        (b"{\"version\":1,\"request\":\"savepoint\",\"to\":\"relative\"}\n", "bad-request"),
        (b"{\"version\":2,\"request\":\"status\"}\n", "bad-version"),
        (b"{\"request\":\"status\"}\n", "bad-request"),
    ] {
        let answer = say(&mut stream, line);
        assert_eq!((&answer["event"], &answer["code"]), (&"error".into(), &code.into()), "{answer}");
    }
    let mut flood = connect();
    let answer = say(&mut flood, &[b'x'; 64 << 10]);
    assert_eq!(answer["code"], "bad-request");
    stage.verb(&["stop", "job"]).ended("stopped");
    running.wait().ended("stopped");
}
