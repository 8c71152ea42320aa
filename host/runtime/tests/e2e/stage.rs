//! A folder with a pipeline and what it needs, and the program run over it.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// No run takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the crates of components are, by the component's name.
const CRATES: &[(&str, &str)] = &[
    ("word-count-split", "examples/word-count/split"),
    ("word-count-count", "examples/word-count/count"),
    ("running-total", "examples/running-total/total"),
    ("price-rules", "examples/price-rules/enrich"),
    ("session-window", "examples/session-window/sessions"),
    ("windowed-top-n-split", "examples/windowed-top-n/split"),
    ("windowed-top-n-count", "examples/windowed-top-n/count"),
    ("windowed-top-n-top", "examples/windowed-top-n/top"),
    ("window-queries", "examples/window-queries/queries"),
    ("fraud-detector", "examples/fraud-detector/detect"),
    ("ride-alerts", "examples/ride-alerts/alerts"),
    ("enrichment", "examples/enrichment/enrich"),
    ("bank-entries", "examples/bank/entries"),
    ("bank-accounts", "examples/bank/accounts"),
    ("stream-sorter", "examples/stream-sorter/sort"),
    ("silence", "examples/silence/watch"),
    ("paid-orders", "examples/paid-orders/join"),
    ("transit", "examples/transit/speed"),
    ("nexmark-averages", "examples/nexmark/averages"),
    ("nexmark-events", "examples/nexmark/events"),
    ("nexmark-local-items", "examples/nexmark/local-items"),
    ("nexmark-new-users", "examples/nexmark/new-users"),
    ("nexmark-per-auction", "examples/nexmark/per-auction"),
    ("nexmark-select", "examples/nexmark/select"),
    ("nexmark-top", "examples/nexmark/top"),
    ("nexmark-winning", "examples/nexmark/winning"),
    ("every-kind", "host/runtime/tests/guests/every-kind"),
    ("faulty", "host/runtime/tests/guests/faulty"),
    ("undeclared", "host/runtime/tests/guests/undeclared"),
];

/// A temporary folder with the file `pipeline.toml` and what belongs to it.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
}

/// A run that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The lines of standard output.
    pub(crate) events: Vec<Value>,
    pub(crate) stderr: String,
}

/// A program that runs in a process group of its own. Killed if it is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// Returns the folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a file of the examples.
pub(crate) fn example(path: &str) -> String {
    fs::read_to_string(repository().join("examples").join(path)).unwrap()
}

/// Returns the seed of this run's choices: that of `COFFERDAM_SEED`, or a new one. Printed, to be seen on a failure.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("COFFERDAM_SEED").ok();
    let seed = given.map_or_else(|| getrandom::u64().unwrap(), |seed| seed.parse().expect("COFFERDAM_SEED is a number"));
    println!("COFFERDAM_SEED={seed}");
    seed
}

/// A small generator of numbers that look random (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Returns the component of that name, built if it must be.
pub(crate) fn component(name: &str) -> Vec<u8> {
    let (_, folder) = CRATES.iter().find(|(known, _)| *known == name).expect("a component of the list");
    built(&repository().join(folder).canonicalize().unwrap(), name)
}

/// Returns the component of the crate in that folder, built if it must be.
pub(crate) fn built(folder: &Path, name: &str) -> Vec<u8> {
    // Tests run in many processes: one builds, the others wait for it.
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("build-{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let mut build = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    build.arg("build").arg(folder).env("COFFERDAM_HOME", home());
    if std::env::var_os("COFFERDAM_GUEST_TOOLCHAIN").is_none()
        && let Some(prepared) = prepared_toolchain()
    {
        build.env("COFFERDAM_GUEST_TOOLCHAIN", prepared);
    }
    let built = build.output().unwrap();
    assert!(built.status.success(), "{name} was not built: {}", String::from_utf8_lossy(&built.stderr));
    fs::read(folder.join("target/cofferdam").join(name).with_extension("wasm")).unwrap()
}

/// The tests' own home: artefacts are kept from test to test, the user's are left alone.
fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("home")
}

/// A toolchain that the user has prepared before is used again.
fn prepared_toolchain() -> Option<PathBuf> {
    let given = std::env::var_os("COFFERDAM_HOME").map(PathBuf::from);
    let user = given.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/cofferdam")))?;
    Some(user.join("guest-toolchain")).filter(|folder| folder.join("bin/cargo-guest").is_file())
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and the folders that it is in.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Puts components beside the pipeline file, as `<name>.wasm`.
    pub(crate) fn components(&self, names: &[&str]) {
        for name in names {
            self.write(&format!("{name}.wasm"), component(name));
        }
    }

    /// Returns a command of the program in this folder that prints JSON.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_cofferdam")), arguments)
    }

    /// As [`Self::command`], of another copy of the program.
    pub(crate) fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).args(["--output", "json"]).args(arguments);
        command.env("COFFERDAM_HOME", home()).env_remove("NO_COLOR").env_remove("COFFERDAM_LOG");
        command
    }

    /// Starts `cofferdam run pipeline.toml --no-build` with further arguments.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(&[&["run", "pipeline.toml", "--no-build"], arguments].concat()))
    }

    /// Starts a command that [`Self::command`] returned.
    pub(crate) fn start_command(&self, command: Command) -> Running {
        Running::start(command)
    }

    /// Does the same as [`Self::start`], to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    /// Runs another verb for people, to its end, which must be a good one; returns what it prints as a result and besides.
    pub(crate) fn text(&self, arguments: &[&str]) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command.current_dir(self.folder.path()).args(arguments).env("COFFERDAM_HOME", home()).env_remove("COFFERDAM_LOG");
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }

    /// Runs another verb to its end.
    pub(crate) fn verb(&self, arguments: &[&str]) -> Ended {
        Running::start(self.command(arguments)).wait()
    }
}

impl Running {
    fn start(mut command: Command) -> Self {
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Read as it comes, so that the program never waits for this test.
        let stdout = collect(child.stdout.take().unwrap());
        let stderr = collect(child.stderr.take().unwrap());
        Self { child, stdout: Some(stdout), stderr: Some(stderr) }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it listens for SIGINT and SIGTERM.
    pub(crate) fn listens(&self) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.pid())) else { return false };
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap_or("0").trim(), 16).unwrap_or(0);
        [Signal::INT, Signal::TERM].iter().all(|signal| caught & (1 << (signal.as_raw() - 1)) != 0)
    }

    /// Returns a child of it with this argument.
    pub(crate) fn child(&self, argument: &str) -> Option<Pid> {
        let parent = self.pid().to_string();
        let is_child = |pid: &Pid| {
            let has_argument = fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).any(|found| found == argument.as_bytes()));
            has_argument && state_and_parent(*pid).is_some_and(|(_, found)| found == parent)
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).find(is_child)
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until something holds, or the program has ended. Returns whether it holds.
    pub(crate) fn wait_until(&mut self, holds: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        while !holds() {
            if self.has_ended() {
                return holds();
            }
            assert!(start.elapsed() < PATIENCE, "the program neither went on nor ended");
            std::thread::park_timeout(Duration::from_micros(200));
        }
        true
    }

    /// Lets it run for a while, or to its end. Returns whether it still runs.
    pub(crate) fn run_for(&mut self, time: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < time {
            if self.has_ended() {
                return false;
            }
            std::thread::park_timeout(Duration::from_micros(200));
        }
        !self.has_ended()
    }

    /// Kills it and all that it started, as a loss of power would.
    pub(crate) fn kill(mut self) -> Ended {
        // It may have ended meanwhile: then there is nobody to kill.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        self.end()
    }

    /// Sends it what Ctrl-C sends.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Sends it, and no other process, a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // As above.
        let _ = kill_process(self.pid(), signal);
    }

    /// Lets it stand still.
    pub(crate) fn suspend(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        self.wait_until(|| false);
        self.end()
    }

    fn end(&mut self) -> Ended {
        let status = self.child.wait().unwrap();
        let text = |stream: &mut Option<JoinHandle<String>>| stream.take().unwrap().join().unwrap();
        let (stdout, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
        // A guest's panic is a line of its log; the host's own begins like this.
        let is_own = |line: &str| line.starts_with("thread '");
        assert!(!stderr.lines().any(is_own), "the host has panicked: {stderr}");
        let killed = status.code().is_none();
        let parse = |line: &str| match serde_json::from_str(line) {
            Ok(event) => Some(event),
            // A line that was cut off by the kill.
            Err(_) if killed => None,
            Err(error) => panic!("a line of output is no JSON: {error}: {line}"),
        };
        let events = stdout.lines().filter_map(parse).collect();
        Ended { status, events, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Whether a process runs; one that has ended and that nobody has waited for does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| !matches!(state.as_str(), "Z" | "X"))
}

fn state_and_parent(pid: Pid) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in brackets, and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned);
    Some((fields.next()?, fields.next()?))
}

/// Waits until a process has ended that is no child of this one.
pub(crate) fn wait_for_end(pid: Pid) {
    let start = Instant::now();
    while is_alive(pid) {
        assert!(start.elapsed() < PATIENCE, "process {pid} goes on");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Writes a shell script that can be run.
pub(crate) fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Ended {
    /// Returns the exit code; `None` if it was killed.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns all events of a kind.
    pub(crate) fn all(&self, event: &str) -> Vec<&Value> {
        self.events.iter().filter(|found| found["event"] == event).collect()
    }

    /// Returns the only event of a kind.
    pub(crate) fn only(&self, event: &str) -> &Value {
        match self.all(event)[..] {
            [found] => found,
            ref found => panic!("{} events \"{event}\" among {}", found.len(), self.told()),
        }
    }

    /// Returns the name of the last event.
    pub(crate) fn last(&self) -> &str {
        self.events.last().and_then(|event| event["event"].as_str()).unwrap_or("none")
    }

    /// Checks the exit code and that one error was told, or the end of a failed job; returns it.
    pub(crate) fn failed(&self, exit: i32, event: &str, code: &str) -> &Value {
        assert_eq!(self.code(), Some(exit), "{}", self.told());
        let found = self.only(event);
        assert_eq!(found["code"], code, "{}", self.told());
        found
    }

    /// Checks that the last event is this one, and the exit code 0.
    pub(crate) fn ended(&self, event: &str) -> &Value {
        assert_eq!((self.code(), self.last()), (Some(0), event), "{}", self.told());
        self.only(event)
    }

    /// Returns all that the program said, for messages.
    pub(crate) fn told(&self) -> String {
        let events: Vec<_> = self.events.iter().map(Value::to_string).collect();
        format!("{}:\n{}\n{}", self.status, events.join("\n"), self.stderr)
    }
}
