//! A failed guest call: what the report says and what the job may do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a guest call failed. The names are part of the interface for users: reports, JSON, documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultCode {
    /// A wasm trap that no other code names.
    GuestTrap,
    /// The call used up its fuel.
    GuestFuel,
    /// The call's deadline passed.
    GuestDeadline,
    /// The wasm stack overflowed.
    GuestStackOverflow,
    /// A rule of the interface or of the canonical ABI was broken.
    GuestAbi,
    /// The call pushed more bytes into the host than allowed.
    GuestHostcallBytes,
    /// Too many live handles.
    GuestHandles,
    /// Too many, or too large, output records.
    GuestOutput,
    /// State writes of one call over their budget, or a key or value that is too large.
    GuestWriteBudget,
    /// Too many timers set in one call, or pending, or set for a time already passed again and again.
    GuestTimers,
    /// The guest called exit.
    GuestExit,
    /// The guest returned an error.
    GuestError,
    /// Memory or tables at instantiation exceed the limits.
    InstanceLimit,
    /// The operator's state exceeds its quota.
    StateQuota,
    /// A defect of the host: never the guest's.
    HostInternal,
}

/// Who is to blame, and whether trying again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultClass {
    /// The guest's: restart; the same position again makes a poison record.
    Guest,
    /// Hopeless: a restart gives the same failure.
    Permanent,
    /// The surroundings': restart with backoff.
    Infrastructure,
    /// A defect of the host.
    Host,
}

/// What was going on when a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPhase {
    /// Scanning, compiling or describing the component.
    Load,
    /// Instantiation.
    Instantiate,
    /// The guest's `open`.
    Open,
    /// Records.
    Data,
    /// Timers.
    Timer,
    /// The guest's `finish`.
    Finish,
}

impl FaultCode {
    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::GuestTrap => "guest-trap",
            Self::GuestFuel => "guest-fuel",
            Self::GuestDeadline => "guest-deadline",
            Self::GuestStackOverflow => "guest-stack-overflow",
            Self::GuestAbi => "guest-abi",
            Self::GuestHostcallBytes => "guest-hostcall-bytes",
            Self::GuestHandles => "guest-handles",
            Self::GuestOutput => "guest-output",
            Self::GuestWriteBudget => "guest-write-budget",
            Self::GuestTimers => "guest-timers",
            Self::GuestExit => "guest-exit",
            Self::GuestError => "guest-error",
            Self::InstanceLimit => "instance-limit",
            Self::StateQuota => "state-quota",
            Self::HostInternal => "host-internal",
        }
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FaultPhase {
    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Instantiate => "instantiate",
            Self::Open => "open",
            Self::Data => "data",
            Self::Timer => "timer",
            Self::Finish => "finish",
        }
    }
}

/// A failed guest call. It had no effect; the instance is never called again. Texts are printable and bounded: they
/// were escaped and cut where they entered the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{code} in {}: {message}", phase.name())]
pub struct GuestFault {
    /// Why.
    pub code: FaultCode,
    /// During what.
    pub phase: FaultPhase,
    /// Whether a restart makes sense.
    pub class: FaultClass,
    /// For people; at most 4 KiB.
    pub message: String,
    /// Demangled frames, innermost first; at most 16, each cut and escaped.
    pub backtrace: Vec<String>,
}

impl GuestFault {
    /// Returns a fault with the usual class of its code and no backtrace.
    pub fn new(code: FaultCode, phase: FaultPhase, message: impl Into<String>) -> Self {
        let class = match code {
            FaultCode::GuestDeadline => FaultClass::Infrastructure,
            FaultCode::InstanceLimit | FaultCode::StateQuota => FaultClass::Permanent,
            FaultCode::HostInternal => FaultClass::Host,
            _ => FaultClass::Guest,
        };
        Self { code, phase, class, message: message.into(), backtrace: Vec::new() }
    }
}
