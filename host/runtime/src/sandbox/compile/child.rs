//! The compiler process: bytes in, machine code out, under limits that it sets itself before it reads anything.
//!
//! It runs the hidden verb `compile-child` of this program. It never runs guest code, opens no file and is told nothing
//! but the component. When it dies, only it dies.

use std::io::{self, Read};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::{CompileLimits, frame};
use crate::sandbox::engine::SandboxEngine;
use crate::sandbox::scan::{ScanLimits, scan};
use crate::sandbox::text;

/// Compiles the component on standard input and writes the answer to standard output. Never returns an error in another
/// way: a process that ends without an answer has crashed.
pub fn compile_child_main() -> ExitCode {
    let answer = restrict(&CompileLimits::default()).and_then(|()| read_input()).and_then(|bytes| compile(&bytes));
    let framed = match &answer {
        Ok(artefact) => frame::write(frame::ARTEFACT, artefact, &mut io::stdout().lock()),
        Err(reason) => frame::write(frame::REFUSED, text::printable(reason, 1024).as_bytes(), &mut io::stdout().lock()),
    };
    if framed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sets this process's limits. They cannot be raised again. Nobody waits for the answer once the host is gone: the
/// process goes with it.
fn restrict(limits: &CompileLimits) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("the compiler cannot be tied to its host: {error}"))?;
    let both = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let cpu = Rlimit { current: Some(limits.cpu_seconds), maximum: Some(limits.cpu_seconds + 1) };
    for (name, resource, limit) in [
        ("address space", Resource::As, both(limits.address_space_bytes)),
        ("processor time", Resource::Cpu, cpu),
        ("core dumps", Resource::Core, both(0)),
        ("file size", Resource::Fsize, both(0)),
        ("open files", Resource::Nofile, both(16)),
    ] {
        setrlimit(resource, limit).map_err(|error| format!("cannot limit the compiler's {name}: {error}"))?;
    }
    Ok(())
}

fn read_input() -> Result<Vec<u8>, String> {
    // One byte more than the scan lets through, so that it says so.
    let limit = ScanLimits::CEILING_BYTES + 1;
    let mut bytes = Vec::new();
    io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(|error| format!("cannot read the component: {error}"))?;
    Ok(bytes)
}

fn compile(bytes: &[u8]) -> Result<Vec<u8>, String> {
    // Again, because this process does not rely on who started it. The host's limits may be tighter.
    scan(bytes, &ScanLimits { component_bytes: ScanLimits::CEILING_BYTES, ..ScanLimits::default() })
        .map_err(|error| error.to_string())?;
    let engine = SandboxEngine::new().map_err(|error| error.to_string())?;
    engine.wasmtime().precompile_component(bytes).map_err(|error| format!("{error:#}"))
}
