//! What a failed call is called. wasmtime's errors end here.
//!
//! The order matters: first the host's own reason, if there is one in the chain, so that the guest is not blamed for it;
//! then wasm's traps; and what is left is a value that broke the canonical ABI.

use std::any::Any;

use cofferdam_dataflow::guest::{FaultClass, FaultCode, FaultPhase, GuestFault};
use wasmtime::{Trap, WasmBacktrace};

use super::bindings::cofferdam::operator::types::OperatorError;
use super::state::HostState;
use super::trap::HostTrap;
use crate::sandbox::text;

/// Bytes of a fault's message.
const MESSAGE_BYTES: usize = 4 << 10;
/// Frames of a fault's backtrace.
const FRAMES: usize = 16;
/// Bytes of one frame.
const FRAME_BYTES: usize = 64;

/// Names a wasmtime error.
pub(super) fn from_error(error: &wasmtime::Error, phase: FaultPhase, host: &HostState) -> GuestFault {
    let (code, message) = classify(error, phase, host);
    let mut fault = GuestFault::new(code, phase, text::printable(&message, MESSAGE_BYTES));
    if matches!(error.downcast_ref(), Some(HostTrap::HostMemory(_))) {
        fault.class = FaultClass::Infrastructure;
    }
    fault.backtrace = backtrace(error);
    fault
}

fn classify(error: &wasmtime::Error, phase: FaultPhase, host: &HostState) -> (FaultCode, String) {
    if let Some(own) = error.downcast_ref::<HostTrap>() {
        let code = match own {
            HostTrap::Fuel => FaultCode::GuestFuel,
            HostTrap::ImportBytes { .. } => FaultCode::GuestHostcallBytes,
            HostTrap::Abi(_) => FaultCode::GuestAbi,
            HostTrap::HostMemory(_) => FaultCode::HostInternal,
        };
        return (code, own.to_string());
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return (trap_code(*trap), trap_message(*trap, host));
    }
    let reason = error.root_cause().to_string();
    // These two have no type of their own in wasmtime; a test holds each text in place.
    if reason.contains("fuel allocated for hostcalls has been exhausted") {
        return (FaultCode::GuestHostcallBytes, "the call returns more bytes than the limit".to_owned());
    }
    if reason.contains("handle limit exceeded") {
        return (FaultCode::GuestHandles, reason);
    }
    if matches!(phase, FaultPhase::Instantiate | FaultPhase::Load) {
        let refused = host.limiter.refused().map(str::to_owned);
        if let Some(refused) = refused.or_else(|| reason.contains("resource limit exceeded").then(|| reason.clone())) {
            return (FaultCode::InstanceLimit, refused);
        }
    }
    (FaultCode::GuestAbi, reason)
}

fn trap_code(trap: Trap) -> FaultCode {
    match trap {
        Trap::OutOfFuel => FaultCode::GuestFuel,
        Trap::StackOverflow => FaultCode::GuestStackOverflow,
        Trap::Interrupt => FaultCode::GuestDeadline,
        Trap::CannotEnterComponent => FaultCode::HostInternal,
        Trap::CannotLeaveComponent
        | Trap::InvalidChar
        | Trap::StringOutOfBounds
        | Trap::ListOutOfBounds
        | Trap::InvalidDiscriminant
        | Trap::UnalignedPointer => FaultCode::GuestAbi,
        _ => FaultCode::GuestTrap,
    }
}

fn trap_message(trap: Trap, host: &HostState) -> String {
    match host.last_error() {
        // A guest that gives up says why at the level of errors, and then traps.
        Some(said) if trap == Trap::UnreachableCodeReached => said.to_owned(),
        _ => trap.to_string(),
    }
}

/// Returns the frames, whose names the guest chose: demangled, escaped, cut.
fn backtrace(error: &wasmtime::Error) -> Vec<String> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    let frame = |frame: &wasmtime::FrameInfo| {
        let name = frame.func_name().map(|name| {
            // Demangling is work over all of a name: bounded before, not only after.
            let end = name.floor_char_boundary(8 * FRAME_BYTES);
            format!("{:#}", rustc_demangle::demangle(&name[..end]))
        });
        let name = name.unwrap_or_else(|| format!("function {}", frame.func_index()));
        text::printable(&name, FRAME_BYTES)
    };
    backtrace.frames().iter().take(FRAMES).map(frame).collect()
}

/// What a guest's message begins with if it stopped because of a limit that it had been told: an SDK checks them as it
/// goes, before the host can. A guest that says so without a reason gets its own fault under another name, no more.
const LIMITS: [(&str, FaultCode); 2] =
    [("[guest-output] ", FaultCode::GuestOutput), ("[guest-write-budget] ", FaultCode::GuestWriteBudget)];

/// Names an error that the guest returned.
pub(super) fn from_guest(error: &OperatorError, phase: FaultPhase) -> GuestFault {
    let (class, code, said) = match error {
        OperatorError::Transient(said) => (FaultClass::Guest, FaultCode::GuestError, said.as_str()),
        OperatorError::Permanent(said) => {
            let limit = LIMITS.iter().find_map(|(mark, code)| Some((*code, said.strip_prefix(mark)?)));
            let (code, said) = limit.unwrap_or((FaultCode::GuestError, said));
            (FaultClass::Permanent, code, said)
        }
    };
    GuestFault { class, ..GuestFault::new(code, phase, text::printable(said, MESSAGE_BYTES)) }
}

/// Names a panic of the host.
pub(super) fn from_panic(panic: &(dyn Any + Send), phase: FaultPhase) -> GuestFault {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("the host panicked in a guest call: {}", said.unwrap_or("no message"));
    GuestFault::new(FaultCode::HostInternal, phase, text::printable(&message, MESSAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_the_guest_met_is_told_from_an_error_of_its_author() {
        let named = |error: OperatorError| {
            let fault = from_guest(&error, FaultPhase::Data);
            (fault.code, fault.class, fault.message)
        };
        let permanent = |said: &str| named(OperatorError::Permanent(said.into()));
        let told = |code, said: &str| (code, FaultClass::Permanent, said.to_owned());
        assert_eq!(permanent("[guest-output] a key has 9 bytes"), told(FaultCode::GuestOutput, "a key has 9 bytes"));
        assert_eq!(permanent("[guest-write-budget] too much"), told(FaultCode::GuestWriteBudget, "too much"));
        // Of all codes, a guest can give itself these two.
        for said in ["no [guest-output] here", "[guest-output]", "[host-internal] x", "[guest-fuel] x"] {
            assert_eq!(permanent(said), told(FaultCode::GuestError, said));
        }
        let passing = named(OperatorError::Transient("[guest-output] x".into()));
        assert_eq!(passing, (FaultCode::GuestError, FaultClass::Guest, "[guest-output] x".to_owned()));
    }
}
