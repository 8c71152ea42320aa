//! Why a component was refused.

use std::io;
use std::path::PathBuf;

use cofferdam_dataflow::guest::{GuestFault, Unsupported};

/// A component that was not loaded. Nothing was started, and the same bytes are refused again unless the code is one of
/// `compile-unavailable`, `compile-timeout`, `compile-memory`, `cache-unusable` and `io`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not a valid component within the features that are served.
    #[error("component-invalid: {reason}")]
    Invalid {
        /// What is wrong, from the validator; printable and bounded.
        reason: String,
    },
    /// The bytes are machine code, which is never accepted from outside.
    #[error(
        "precompiled-refused: the file is a precompiled artefact, and machine code from outside is never run; give the component itself"
    )]
    Precompiled,
    /// The file exceeds the limit; it was not read further than that.
    #[error("component-too-large: the component has {bytes} bytes or more, the limit is {limit}")]
    TooLarge {
        /// Bytes that were seen.
        bytes: u64,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// A count exceeds the limit that keeps compilation and instantiation bounded.
    #[error("component-too-complex: {what}: found {found}, the limit is {limit}")]
    TooComplex {
        /// What was counted, such as `core-instances`.
        what: &'static str,
        /// The count; where counting stopped early, a lower bound.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The component imports what this host does not offer.
    #[error("import-denied: the component imports {}, which operators may not use{hint}", list(imports))]
    ImportDenied {
        /// All imports that are refused, printable and bounded.
        imports: Vec<String>,
        /// What to do, or nothing.
        hint: &'static str,
    },
    /// The component was built for another interface, or is no operator.
    #[error("world-mismatch: {reason}")]
    WorldMismatch {
        /// What does not match and what to do.
        reason: String,
    },
    /// Compiling took longer than allowed.
    #[error("compile-timeout: compiling the component took more than {limit}")]
    CompileTimeout {
        /// The limit that was reached.
        limit: String,
    },
    /// Compiling took more memory, or gave a larger artefact, than allowed.
    #[error("compile-memory: {reason}")]
    CompileMemory {
        /// The limit that was reached.
        reason: String,
    },
    /// The compiler process died or answered nonsense.
    #[error("compile-crashed: {reason}")]
    CompileCrashed {
        /// How it ended, with the end of what it wrote to its standard error.
        reason: String,
    },
    /// The compiler process could not be started.
    #[error("compile-unavailable: cannot start the compiler process {}", program.display())]
    CompilerUnavailable {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The artefact cache cannot be used safely.
    #[error("cache-unusable: {}: {reason}", path.display())]
    CacheUnusable {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// The system's reason, if it gave one.
        #[source]
        source: Option<io::Error>,
    },
    /// The file cannot be read.
    #[error("io: cannot read the component {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The descriptor breaks a rule or asks for what is not served.
    #[error(transparent)]
    Declaration(#[from] Unsupported),
    /// Instantiating or describing the component failed.
    #[error(transparent)]
    Guest(#[from] GuestFault),
    /// A defect of the host.
    #[error("host-internal: {reason}")]
    Internal {
        /// What broke.
        reason: String,
    },
}

impl LoadError {
    /// Returns the name that reports and documentation use.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "component-invalid",
            Self::Precompiled => "precompiled-refused",
            Self::TooLarge { .. } => "component-too-large",
            Self::TooComplex { .. } => "component-too-complex",
            Self::ImportDenied { .. } => "import-denied",
            Self::WorldMismatch { .. } => "world-mismatch",
            Self::CompileTimeout { .. } => "compile-timeout",
            Self::CompileMemory { .. } => "compile-memory",
            Self::CompileCrashed { .. } => "compile-crashed",
            Self::CompilerUnavailable { .. } => "compile-unavailable",
            Self::CacheUnusable { .. } => "cache-unusable",
            Self::Read { .. } => "io",
            Self::Declaration(_) => "state-declaration",
            Self::Guest(fault) => fault.code.name(),
            Self::Internal { .. } => "host-internal",
        }
    }
}

fn list(names: &[String]) -> String {
    names.join(", ")
}
