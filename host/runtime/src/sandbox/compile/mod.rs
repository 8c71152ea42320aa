//! Compiling a component in a child process with limits on time and memory.
//!
//! Compilation is where hostile input costs most, and wasmtime calls a slow or greedy compilation no security bug. So
//! the host does not compile: the child does, and whatever happens to it, the host only reads a bounded answer.

pub mod child;
mod children;
mod frame;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::LoadError;
use crate::sandbox::text;
use children::{CHILDREN, Tracked};

/// The hidden verb of the program that compiles.
pub const COMPILE_VERB: &str = "compile-child";

/// How much a compilation may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Seconds of processor time.
    pub cpu_seconds: u64,
    /// Time by the clock, from the start of the process to its answer.
    pub wall: Duration,
    /// Bytes of address space.
    pub address_space_bytes: u64,
    /// Bytes of the artefact.
    pub artefact_bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { cpu_seconds: 30, wall: Duration::from_secs(60), address_space_bytes: 2 << 30, artefact_bytes: 256 << 20 }
    }
}

/// Starts compiler processes. One compilation at a time is the caller's business.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The program to start with [`COMPILE_VERB`] as its only argument; it must call [`child::compile_child_main`].
    pub program: PathBuf,
    /// The limits that this process watches over: `wall` and `artefact_bytes`. The child sets the others itself, to
    /// their defaults.
    pub limits: CompileLimits,
}

/// Ends the compilers that this process has started, and lets no other begin: compilations under way fail. For a process that
/// is about to end.
pub fn interrupt() {
    CHILDREN.interrupt();
}

/// What a compiler process left behind.
struct Remains {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: ExitStatus,
}

impl Compiler {
    /// Returns a compiler that starts the running program again.
    ///
    /// # Errors
    /// [`LoadError::CompilerUnavailable`] if the program's path cannot be found out.
    pub fn this_program() -> Result<Self, LoadError> {
        let program = std::env::current_exe()
            .map_err(|source| LoadError::CompilerUnavailable { program: PathBuf::from("/proc/self/exe"), source })?;
        Ok(Self { program, limits: CompileLimits::default() })
    }

    /// Compiles a component that has been scanned. Blocks until the child has answered or is dead.
    ///
    /// # Errors
    /// [`LoadError`] with one of the codes `compile-*`, or `component-invalid` if the compiler refused it.
    pub fn compile(&self, component: &[u8]) -> Result<Vec<u8>, LoadError> {
        let deadline = Instant::now() + self.limits.wall;
        let remains = self.run(component, deadline)?;
        let Some((kind, body)) = frame::read(remains.stdout) else {
            return Err(self.crashed(remains.status, &remains.stderr));
        };
        if kind == frame::ARTEFACT {
            return Ok(body);
        }
        Err(LoadError::Invalid { reason: text::printable(&String::from_utf8_lossy(&body), 1024) })
    }

    fn run(&self, component: &[u8], deadline: Instant) -> Result<Remains, LoadError> {
        let mut command = Command::new(&self.program);
        command.arg(OsString::from(COMPILE_VERB)).env_clear().current_dir("/");
        // Ctrl-C in a terminal is for the host, which ends it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let unavailable = |source| LoadError::CompilerUnavailable { program: self.program.clone(), source };
        let child = CHILDREN.start(&mut command).map_err(unavailable)?;
        let pipes = child.with(|child| Some((child.stdin.take()?, child.stdout.take()?, child.stderr.take()?)));
        let Some((stdin, stdout, stderr)) = pipes else {
            return Err(LoadError::Internal { reason: "the compiler process was started without its pipes".to_owned() });
        };
        let answer_bytes_max = self.limits.artefact_bytes;
        thread::scope(|scope| {
            // A child that dies early breaks the pipe, which its missing answer tells already.
            scope.spawn(move || { stdin }.write_all(component));
            let complaint = scope.spawn(move || read_and_drain(stderr, 4 << 10));
            let (sender, answer) = mpsc::channel();
            scope.spawn(move || sender.send(read_capped(stdout, answer_bytes_max)));
            let received = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let outcome = match received {
                Ok(stdout) => wait(&child, deadline).map(|status| (stdout, status)),
                Err(_) => None,
            };
            if outcome.is_none() {
                child.kill();
            }
            let stderr = complaint.join().unwrap_or_default();
            match outcome {
                None => Err(LoadError::CompileTimeout { limit: format!("{:?}", self.limits.wall) }),
                Some((Ok(stdout), status)) => Ok(Remains { stdout, stderr, status }),
                Some((Err(TooMuch), _)) => {
                    let reason = format!("the artefact exceeds {answer_bytes_max} bytes");
                    Err(LoadError::CompileMemory { reason })
                }
            }
        })
    }

    fn crashed(&self, status: ExitStatus, stderr: &[u8]) -> LoadError {
        const CPU_TIME: i32 = 24; // SIGXCPU
        let said = text::printable(String::from_utf8_lossy(stderr).trim(), 1024);
        if status.signal() == Some(CPU_TIME) {
            return LoadError::CompileTimeout { limit: format!("{} s of processor time", CompileLimits::default().cpu_seconds) };
        }
        // The words of Rust's allocator and of mmap's error; a child that meets its limit has no other way to tell.
        if said.contains("memory allocation of") || said.contains("Cannot allocate memory") {
            let reason = format!("the compiler met its limit of {} bytes: {said}", CompileLimits::default().address_space_bytes);
            return LoadError::CompileMemory { reason };
        }
        let said = if said.is_empty() { "without a word".to_owned() } else { format!("saying: {said}") };
        LoadError::CompileCrashed { reason: format!("the compiler process ended without an answer ({status}), {said}") }
    }
}

/// The child wrote more than it may.
struct TooMuch;

fn read_capped(from: impl Read, bytes_max: u64) -> Result<Vec<u8>, TooMuch> {
    // The frame's header is not the artefact's.
    let bytes_max = bytes_max + 64;
    let mut bytes = Vec::new();
    // A read error is an incomplete answer, and is treated as one. Dropping the pipe breaks it for a child that writes on.
    let _ = from.take(bytes_max + 1).read_to_end(&mut bytes);
    if bytes.len() as u64 > bytes_max { Err(TooMuch) } else { Ok(bytes) }
}

/// Keeps the first `bytes_max` bytes and reads the rest away, so that the writer never blocks.
fn read_and_drain(mut from: impl Read, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.by_ref().take(bytes_max).read_to_end(&mut bytes);
    let _ = io::copy(&mut from, &mut io::sink());
    bytes
}

/// Waits for a child that has closed its output. `None` if it is still there at the deadline.
fn wait(child: &Tracked<'_>, deadline: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_micros(100);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(pause),
            Ok(None) | Err(_) => return None,
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A compiler whose program is a shell script.
    fn compiler(directory: &std::path::Path, script: &str) -> Compiler {
        let program = directory.join("compiler");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let limits = CompileLimits { wall: Duration::from_secs(20), artefact_bytes: 1 << 16, ..CompileLimits::default() };
        Compiler { program, limits }
    }

    fn code(script: &str, component: &[u8]) -> (&'static str, String) {
        let directory = tempfile::tempdir().unwrap();
        let error = compiler(directory.path(), script).compile(component).unwrap_err();
        (error.code(), error.to_string())
    }

    #[test]
    fn a_compiler_that_misbehaves_is_an_error_and_nothing_else() {
        let large = vec![0; 1 << 20];
        assert_eq!(code("exit 0", &large).0, "compile-crashed");
        assert_eq!(code("cat", &large[..9]).0, "compile-crashed");
        assert_eq!(code("kill -ABRT $$", b"").0, "compile-crashed");
        assert_eq!(code("exec cat /dev/zero", b"").0, "compile-memory");
        assert_eq!(code("kill -XCPU $$", b"").0, "compile-timeout");
        let (code, message) = code("printf 'memory allocation of 9 bytes \\033[31mfailed' >&2; kill -ABRT $$", b"");
        assert_eq!(code, "compile-memory");
        assert!(message.contains("\\u{1b}[31mfailed"), "{message}");
    }

    #[test]
    fn a_compiler_that_hangs_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        for script in ["exec sleep 1000", "exec >&-; exec sleep 1000"] {
            let mut compiler = compiler(directory.path(), script);
            compiler.limits.wall = Duration::from_millis(100);
            assert_eq!(compiler.compile(b"").unwrap_err().code(), "compile-timeout");
        }
    }

    #[test]
    fn the_compiler_sees_neither_environment_nor_arguments_of_its_parent() {
        let (_, message) = code("echo \"$# $1 ${HOME-none} $(pwd)\" >&2; exit 3", b"");
        assert!(message.contains("saying: 1 compile-child none /"), "{message}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let compiler = Compiler { program: "/nowhere/compiler".into(), limits: CompileLimits::default() };
        let error = compiler.compile(b"").unwrap_err();
        assert!(error.to_string().contains("/nowhere/compiler"), "{error}");
        assert_eq!(error.code(), "compile-unavailable");
    }
}
