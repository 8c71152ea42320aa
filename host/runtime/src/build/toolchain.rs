//! A compiler for `wasm32-unknown-unknown`: the installed one, one that rustup completes, or a private one.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use super::process::{self, Tool, command};
use super::{BuildError, GuestCrate, home};

const TARGET: &str = "wasm32-unknown-unknown";

/// Prepares a private toolchain; the project's own copy, so that the binary needs no checkout.
const PREPARE: &str = include_str!("../../../../tools/guest-toolchain.sh");

/// rustup waits long for a server that does not answer.
const RUSTUP_TIME: Duration = Duration::from_secs(120);

const RUST_ADVICE: &str = "install Rust from https://rustup.rs, or your system's packages `rustc` and `cargo`";

/// What compiles guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Toolchain {
    /// The user's own, which has the target.
    Installed {
        /// As the compiler says.
        version: String,
    },
    /// One prepared by `guest-toolchain.sh`.
    Private {
        /// Its folder.
        dir: PathBuf,
        /// As the compiler says.
        version: String,
    },
}

/// What cargo made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// The core module.
    pub(super) path: PathBuf,
    /// The folder of the workspace's manifest and lock file.
    pub(super) workspace: PathBuf,
}

impl Toolchain {
    /// Returns the version of the toolchain that is at hand; prepares none.
    pub(super) fn identify(dir: &Path) -> Option<String> {
        Self::at_hand(dir).ok().flatten().map(|toolchain| toolchain.version().to_owned())
    }

    /// Returns a toolchain with the target, completed or prepared if need be: that happens once for a user.
    pub(super) fn find(dir: &Path) -> Result<Self, BuildError> {
        if let Some(toolchain) = Self::at_hand(dir)? {
            return Ok(toolchain);
        }
        if process::output(command("rustc").arg("--version")).is_err() && !Path::new("/usr/bin/apt-get").exists() {
            return Err(BuildError::ToolMissing { tool: "rustc", advice: RUST_ADVICE });
        }
        if let Some(toolchain) = add_with_rustup(dir) {
            return Ok(toolchain);
        }
        let private = home()?.join("guest-toolchain");
        prepare(&private)?;
        private_version(&private)
            .map(|version| Self::Private { dir: private.clone(), version })
            .ok_or_else(|| BuildError::NoTarget(does_not_start(&private)))
    }

    fn at_hand(dir: &Path) -> Result<Option<Self>, BuildError> {
        if let Some(given) = std::env::var_os("COFFERDAM_GUEST_TOOLCHAIN").filter(|value| !value.is_empty()) {
            let given = PathBuf::from(given);
            return match private_version(&given) {
                Some(version) => Ok(Some(Self::Private { dir: given, version })),
                None => {
                    let message = format!(
                        "COFFERDAM_GUEST_TOOLCHAIN names {0}, where no prepared toolchain is: prepare one with \
                         `tools/guest-toolchain.sh {0}`, or unset it",
                        given.display()
                    );
                    Err(BuildError::NoTarget(message))
                }
            };
        }
        if let Some(version) = installed(dir) {
            return Ok(Some(Self::Installed { version }));
        }
        let private = home()?.join("guest-toolchain");
        Ok(private_version(&private).map(|version| Self::Private { dir: private, version }))
    }

    pub(super) fn version(&self) -> &str {
        match self {
            Self::Installed { version } | Self::Private { version, .. } => version,
        }
    }

    /// Compiles a crate's library to a core module, in release mode. Messages go to standard error.
    pub(super) fn compile(&self, guest: &GuestCrate, quiet: bool) -> Result<Module, BuildError> {
        let mut cargo = match self {
            Self::Installed { .. } => command("cargo"),
            Self::Private { dir, .. } => command(dir.join("bin/cargo-guest")),
        };
        cargo.args(["build", "--release", "--lib", "--message-format=json-render-diagnostics", "--target", TARGET]);
        cargo.arg("--target-dir").arg(guest.target_dir()).current_dir(&guest.dir);
        if quiet {
            cargo.arg("--quiet");
        }
        let run = process::start(cargo.stdout(Stdio::piped()).stderr(Stdio::inherit())).and_then(Tool::output);
        let output = run.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => BuildError::ToolMissing { tool: "cargo", advice: RUST_ADVICE },
            _ => BuildError::io("cannot run cargo in", &guest.dir)(error),
        })?;
        if !output.status.success() {
            return Err(BuildError::Cargo { dir: guest.dir.clone(), status: output.status.to_string() });
        }
        let manifest = guest.dir.join("Cargo.toml");
        let path = module_path(&String::from_utf8_lossy(&output.stdout), &manifest);
        let path = path.ok_or_else(|| BuildError::NoModule(guest.name.clone()))?;
        Ok(Module { path, workspace: workspace(guest) })
    }
}

/// Returns the installed compiler's version if it has the target.
fn installed(dir: &Path) -> Option<String> {
    // Under an outer cargo, rustup would otherwise pick the outer crate's toolchain.
    let rustc = |args: &[&str]| {
        let output = process::output(command("rustc").env_remove("RUSTUP_TOOLCHAIN").args(args).current_dir(dir)).ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let libraries = rustc(&["--print", "target-libdir", "--target", TARGET])?;
    let is_std = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("libstd-");
    let has_std = std::fs::read_dir(libraries).ok()?.flatten().any(is_std);
    if has_std { rustc(&["--version"]) } else { None }
}

fn add_with_rustup(dir: &Path) -> Option<Toolchain> {
    let mut rustup = command("rustup");
    rustup.args(["target", "add", TARGET]).env_remove("RUSTUP_TOOLCHAIN").current_dir(dir).stdout(Stdio::null());
    let ended = process::start(&mut rustup).ok()?.wait_at_most(RUSTUP_TIME).ok()?;
    let added = ended.is_some_and(|status| status.success());
    if !added {
        tracing::warn!("rustup could not add {TARGET}; a private toolchain is prepared instead");
        return None;
    }
    installed(dir).map(|version| Toolchain::Installed { version })
}

fn private_version(dir: &Path) -> Option<String> {
    if !dir.join("bin/cargo-guest").is_file() {
        return None;
    }
    let own = dir.join("bin/rustc");
    let mut rustc = if own.is_file() { command(own) } else { command("rustc") };
    let output = process::output(rustc.arg("--version")).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn does_not_start(dir: &Path) -> String {
    format!("the toolchain prepared in {0} does not start: delete {0} to have it prepared anew", dir.display())
}

/// Runs the script; it says itself what it does and lacks.
fn prepare(dir: &Path) -> Result<(), BuildError> {
    tracing::info!("preparing a toolchain for guests in {} (once)", dir.display());
    std::fs::create_dir_all(dir).map_err(BuildError::io("cannot create", dir))?;
    // Not as a file: bash reads that as it goes, and another process may be preparing, too.
    let mut bash = command("bash");
    bash.args(["-c", PREPARE, "guest-toolchain.sh"]).arg(dir).stdout(Stdio::null());
    let run = process::start(&mut bash).and_then(Tool::output);
    let status = run.map(|output| output.status).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BuildError::ToolMissing { tool: "bash", advice: "install your system's package `bash`" },
        _ => BuildError::io("cannot prepare a toolchain in", dir)(error),
    })?;
    if status.success() {
        return Ok(());
    }
    let message = format!(
        "the installed one lacks the target, rustup could not add it, and no private one could be prepared in {} (see \
         above): add it with `rustup target add {TARGET}` (rustup is at https://rustup.rs), or name the folder of a \
         prepared toolchain in COFFERDAM_GUEST_TOOLCHAIN",
        dir.display()
    );
    Err(BuildError::NoTarget(message))
}

/// One line of what cargo prints with `--message-format=json`.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Finds the module of the crate itself, not of a dependency.
fn module_path(messages: &str, manifest: &Path) -> Option<PathBuf> {
    let resolved = manifest.canonicalize().ok();
    let same = |path: &Path| path == manifest || (resolved.is_some() && path.canonicalize().ok() == resolved);
    messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()).find_map(|message| {
        let own = message.reason == "compiler-artifact" && message.manifest_path.as_deref().is_some_and(same);
        let is_module = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "wasm");
        message.filenames.into_iter().find(is_module).filter(|_| own)
    })
}

/// Returns the nearest folder at or above the crate that has a lock file: cargo has just written it.
fn workspace(guest: &GuestCrate) -> PathBuf {
    let found = guest.dir.ancestors().find(|dir| dir.join("Cargo.lock").is_file());
    found.unwrap_or(&guest.dir).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_the_crates_own_artifact() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/dep/Cargo.toml","filenames":["/t/dep.wasm"]}
{"reason":"compiler-artifact","manifest_path":"/own/Cargo.toml","filenames":["/t/libown.rlib","/t/own.wasm"]}
{"reason":"build-finished","success":true}
not json"#;
        assert_eq!(module_path(messages, Path::new("/own/Cargo.toml")), Some("/t/own.wasm".into()));
        assert_eq!(module_path(messages, Path::new("/other/Cargo.toml")), None);
    }
}
