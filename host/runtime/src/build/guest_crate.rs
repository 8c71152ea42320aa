//! A guest crate on disk: its name and where its component goes.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::BuildError;

/// The folder of a crate that compiles to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestCrate {
    /// The folder, absolute.
    pub dir: PathBuf,
    /// The package's name.
    pub name: String,
    /// The text of its manifest.
    pub(super) manifest: String,
}

#[derive(Deserialize)]
struct Manifest {
    package: Option<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

impl GuestCrate {
    /// Reads the manifest.
    ///
    /// # Errors
    /// [`BuildError::NotACrate`], [`BuildError::Manifest`], [`BuildError::Io`].
    pub fn open(dir: &Path) -> Result<Self, BuildError> {
        let path = dir.join("Cargo.toml");
        if !path.is_file() {
            return Err(BuildError::NotACrate(dir.to_owned()));
        }
        let manifest = std::fs::read_to_string(&path).map_err(BuildError::io("cannot read", &path))?;
        let broken = |message: String| BuildError::Manifest { path: path.clone(), message };
        let parsed: Manifest = toml::from_str(&manifest).map_err(|error| broken(error.message().to_owned()))?;
        let Some(package) = parsed.package else {
            return Err(broken("has no [package]: give the folder of the operator's own crate".to_owned()));
        };
        // The name becomes a file's name.
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        if package.name.is_empty() || !package.name.chars().all(plain) {
            return Err(broken(format!("{:?} is no crate name", package.name)));
        }
        let dir = std::path::absolute(dir).map_err(BuildError::io("cannot find", dir))?;
        Ok(Self { dir, name: package.name, manifest })
    }

    /// Returns where the component goes.
    pub fn component(&self) -> PathBuf {
        self.dir.join("target/cofferdam").join(format!("{}.wasm", self.name))
    }

    /// Returns where the stamp of the component goes.
    pub(super) fn stamp(&self) -> PathBuf {
        self.component().with_extension("json")
    }

    /// Returns where cargo builds.
    pub(super) fn target_dir(&self) -> PathBuf {
        self.dir.join("target/guest")
    }
}
