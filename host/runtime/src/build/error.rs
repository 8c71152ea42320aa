//! Why a guest crate did not become a component.

use std::path::PathBuf;

/// Why a guest crate was not built, scaffolded or found. Texts say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The folder holds no crate.
    #[error("{} is no guest crate: it has no Cargo.toml", .0.display())]
    NotACrate(PathBuf),
    /// A manifest that cannot be used.
    #[error("{}: {message}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A program that is not installed.
    #[error("{tool} is not installed: {advice}")]
    ToolMissing {
        /// The program.
        tool: &'static str,
        /// How to get it.
        advice: &'static str,
    },
    /// No wasm target, and no way to get one.
    #[error("there is no compiler for wasm32-unknown-unknown: {0}")]
    NoTarget(String),
    /// The compiler refused the crate; it has said why.
    #[error("cargo could not build the crate in {} ({status})", dir.display())]
    Cargo {
        /// The crate.
        dir: PathBuf,
        /// How cargo ended.
        status: String,
    },
    /// The crate makes no module.
    #[error("the crate {0:?} makes no wasm module: write `crate-type = [\"cdylib\", \"rlib\"]` under [lib] in its Cargo.toml")]
    NoModule(String),
    /// The module is no operator.
    #[error("the crate {name:?} is no operator: {message}")]
    NoOperator {
        /// The crate.
        name: String,
        /// What is missing in the module.
        message: String,
    },
    /// Built before, but its sources have changed since, or never built, and building was not wanted.
    #[error("{} is {state}: run `cofferdam build {}`", component.display(), dir.display())]
    Stale {
        /// The crate.
        dir: PathBuf,
        /// Where its component would be.
        component: PathBuf,
        /// `not built` or `older than its sources`.
        state: &'static str,
    },
    /// Something that must not be overwritten.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// A name that cannot be a crate's.
    #[error("{0:?} cannot be the name of a crate: use a-z, 0-9 and '-', beginning with a letter, and no word of Rust")]
    Name(String),
    /// A file or process that failed.
    #[error("{act} {}", path.display())]
    Io {
        /// What was tried, such as `cannot write`.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl BuildError {
    /// Returns a stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotACrate(_) => "not-a-crate",
            Self::Manifest { .. } => "bad-manifest",
            Self::ToolMissing { .. } => "tool-missing",
            Self::NoTarget(_) => "no-wasm-target",
            Self::Cargo { .. } => "compile-failed",
            Self::NoModule(_) | Self::NoOperator { .. } => "no-operator",
            Self::Stale { .. } => "component-stale",
            Self::Exists(_) => "exists",
            Self::Name(_) => "bad-name",
            Self::Io { .. } => "io",
        }
    }

    pub(super) fn io(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { act, path, source }
    }
}
