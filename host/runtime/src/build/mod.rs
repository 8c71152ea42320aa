//! Guest crates to components: compile, make a component of the core module, skip what has not changed; and new crates.
//!
//! A crate's component lies in its own `target/cofferdam/`, with a stamp of all that went into it beside it.

mod component;
mod error;
mod guest_crate;
mod home;
mod process;
mod scaffold;
mod sdk;
mod stamp;
mod toolchain;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use component::{ComponentNames, names};
pub use error::BuildError;
pub use guest_crate::GuestCrate;
pub use home::home;
pub use process::interrupt;
pub use scaffold::{Scaffolded, Template, scaffold};

use stamp::{Freshness, Stamp};
use toolchain::Toolchain;

/// How to build.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildOptions {
    /// Build even if nothing changed.
    pub force: bool,
    /// Print the compiler's errors only, not its progress.
    pub quiet: bool,
}

/// A component that is up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The crate's name.
    pub name: String,
    /// The component.
    pub component: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// The interfaces it imports.
    pub imports: Vec<String>,
    /// Whether nothing had changed, so that nothing was built.
    pub unchanged: bool,
    /// How long it took.
    pub took: Duration,
}

/// Builds a guest crate, unless its component is up to date. Cargo's messages go to standard error.
///
/// # Errors
/// [`BuildError`]: a missing tool, what cargo refused, a crate that is no operator.
pub fn build(dir: &Path, options: BuildOptions) -> Result<Built, BuildError> {
    let start = Instant::now();
    let guest = GuestCrate::open(dir)?;
    let toolchain = Toolchain::identify(dir);
    let fresh = !options.force && stamp::freshness(&guest, toolchain.as_deref())? == Freshness::Fresh;
    if !fresh {
        sdk::restore(&guest)?;
        let toolchain = Toolchain::find(dir)?;
        let module = toolchain.compile(&guest, options.quiet)?;
        let bytes = std::fs::read(&module.path).map_err(BuildError::io("cannot read", &module.path))?;
        let component = component::from_module(&guest.name, &bytes)?;
        stamp::remove(&guest)?;
        stamp::replace(&guest.component(), &component)?;
        Stamp::new(&guest, &module, &toolchain)?.store(&guest)?;
    }
    let path = guest.component();
    let bytes = std::fs::read(&path).map_err(BuildError::io("cannot read", &path))?;
    let names = names(&bytes).map_err(|message| BuildError::NoOperator { name: guest.name.clone(), message })?;
    Ok(Built {
        name: guest.name.clone(),
        component: path,
        bytes: bytes.len() as u64,
        imports: names.imports,
        unchanged: fresh,
        took: start.elapsed(),
    })
}

/// Returns the component that `path` stands for: itself if it is a file; if it is the folder of a guest crate, what
/// that crate was built to. Builds nothing and starts no compiler; fast.
///
/// # Errors
/// [`BuildError::Stale`] if the crate must be built first, [`BuildError::NotACrate`] for any other folder,
/// [`BuildError::Io`] for a path that is not there.
pub fn locate(path: &Path) -> Result<PathBuf, BuildError> {
    let metadata = std::fs::metadata(path).map_err(BuildError::io("cannot find the component", path))?;
    if !metadata.is_dir() {
        return Ok(path.to_owned());
    }
    let guest = GuestCrate::open(path)?;
    let state = match stamp::freshness(&guest, None)? {
        Freshness::Fresh => return Ok(guest.component()),
        Freshness::Missing => "not built",
        Freshness::Changed => "older than its sources",
    };
    Err(BuildError::Stale { dir: path.to_owned(), component: guest.component(), state })
}

/// Returns the component that `path` stands for, built first if it is a crate that needs it.
///
/// # Errors
/// As [`locate`] and [`build`].
pub fn locate_or_build(path: &Path, options: BuildOptions) -> Result<(PathBuf, Option<Built>), BuildError> {
    match locate(path) {
        Ok(component) => Ok((component, None)),
        Err(BuildError::Stale { .. }) => build(path, options).map(|built| (built.component.clone(), Some(built))),
        Err(error) => Err(error),
    }
}
