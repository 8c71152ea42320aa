//! Whether a component is up to date: a record of all that went into it, beside it.
//!
//! Cargo's own list of the files it read (`.d`) covers the crate, its path dependencies (the SDK among them) and what
//! their macros include; manifests, the lock file and the toolchain are added.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::toolchain::{Module, Toolchain};
use super::{BuildError, GuestCrate};

/// Raised when a build of the same sources would give another component.
const FORMAT: u32 = 1;

/// Files beside the manifest that change what cargo does, if they are there.
const SETTINGS: &[&str] = &["Cargo.lock", ".cargo/config.toml", "rust-toolchain.toml", "rust-toolchain"];

/// What went into a component.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    format: u32,
    /// The crate's folder: a copy of the folder is another crate.
    dir: PathBuf,
    toolchain: String,
    component: String,
    /// By path; `None` for a file that was not there.
    files: BTreeMap<PathBuf, Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Up to date.
    Fresh,
    /// Something that went into it is not as it was.
    Changed,
    /// Never built, or built halfway.
    Missing,
}

/// Compares a crate's component with what went into it. Without a toolchain, the toolchain may have changed.
pub(super) fn freshness(guest: &GuestCrate, toolchain: Option<&str>) -> Result<Freshness, BuildError> {
    let Ok(component) = std::fs::read(guest.component()) else { return Ok(Freshness::Missing) };
    let Ok(text) = std::fs::read(guest.stamp()) else { return Ok(Freshness::Missing) };
    // A stamp of another version, or a damaged one, says nothing.
    let Ok(stamp) = serde_json::from_slice::<Stamp>(&text) else { return Ok(Freshness::Changed) };
    let same = stamp.format == FORMAT
        && stamp.dir == guest.dir
        && toolchain.is_none_or(|toolchain| toolchain == stamp.toolchain)
        && hash(&component) == stamp.component;
    if !same {
        return Ok(Freshness::Changed);
    }
    for (path, recorded) in &stamp.files {
        if hash_of(path)? != *recorded {
            return Ok(Freshness::Changed);
        }
    }
    Ok(Freshness::Fresh)
}

impl Stamp {
    /// Records what went into the component that was just built.
    pub(super) fn new(guest: &GuestCrate, module: &Module, toolchain: &Toolchain) -> Result<Self, BuildError> {
        let list = module.path.with_extension("d");
        let text = std::fs::read_to_string(&list).map_err(BuildError::io("cannot read", &list))?;
        let mut paths: BTreeSet<PathBuf> = dependencies(&text).into_iter().map(|path| guest.dir.join(path)).collect();
        let manifests: Vec<_> = paths.iter().filter_map(|path| manifest_of(path)).collect();
        paths.extend(manifests);
        paths.extend(["Cargo.toml"].iter().chain(SETTINGS).map(|name| guest.dir.join(name)));
        paths.extend(["Cargo.toml", "Cargo.lock"].map(|name| module.workspace.join(name)));
        let mut files = BTreeMap::new();
        for path in paths {
            let hash = hash_of(&path)?;
            files.insert(path, hash);
        }
        let component = std::fs::read(guest.component()).map_err(BuildError::io("cannot read", guest.component()))?;
        let toolchain = toolchain.version().to_owned();
        Ok(Self { format: FORMAT, dir: guest.dir.clone(), toolchain, component: hash(&component), files })
    }

    pub(super) fn store(&self, guest: &GuestCrate) -> Result<(), BuildError> {
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let mut text = text.map_err(BuildError::io("cannot write", guest.stamp()))?;
        text.push(b'\n');
        replace(&guest.stamp(), &text)
    }
}

/// Removes the stamp before the component changes: a build that is killed in between leaves no wrong one.
pub(super) fn remove(guest: &GuestCrate) -> Result<(), BuildError> {
    match std::fs::remove_file(guest.stamp()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BuildError::io("cannot remove", guest.stamp())(error)),
        _ => Ok(()),
    }
}

/// Writes a file in one step: a reader sees the old bytes or the new ones.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(BuildError::io("cannot create", folder))?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(BuildError::io("cannot write", path))
}

/// Returns the prerequisites that a file of make rules names.
fn dependencies(rules: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for rule in rules.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, prerequisites)) = rule.split_once(": ") else { continue };
        // A space in a name is escaped.
        for word in prerequisites.replace("\\ ", "\0").split(' ').filter(|word| !word.is_empty()) {
            paths.push(word.replace('\0', " "));
        }
    }
    paths
}

/// Returns the manifest of the crate that a file belongs to.
fn manifest_of(path: &Path) -> Option<PathBuf> {
    path.ancestors().skip(1).map(|dir| dir.join("Cargo.toml")).find(|manifest| manifest.is_file())
}

fn hash_of(path: &Path) -> Result<Option<String>, BuildError> {
    if path.is_dir() {
        // A build script's `rerun-if-changed` may name a folder; its files are listed where they are included.
        return Ok(None);
    }
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(hash(&bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BuildError::io("cannot read", path)(error)),
    }
}

fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_rules_give_their_prerequisites_with_spaces_in_names() {
        let rules = "/t/count.wasm: /a/src/lib.rs /my\\ files/sdk.rs\n\n# env-dep:X=1\n/t/empty.wasm:\n";
        assert_eq!(dependencies(rules), ["/a/src/lib.rs", "/my files/sdk.rs"]);
    }

    /// A crate with a component and a stamp, as a build leaves them.
    fn built() -> (tempfile::TempDir, GuestCrate) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Cargo.toml"), "[package]\nname = \"count\"\n").unwrap();
        std::fs::write(dir.path().join("lib.rs"), "fn a() {}").unwrap();
        let guest = GuestCrate::open(dir.path()).unwrap();
        replace(&guest.component(), b"component").unwrap();
        let path = dir.path().join("count.wasm");
        std::fs::write(path.with_extension("d"), format!("{}: {}/lib.rs\n", path.display(), guest.dir.display())).unwrap();
        let module = Module { path, workspace: guest.dir.clone() };
        Stamp::new(&guest, &module, &Toolchain::Installed { version: "1".into() }).unwrap().store(&guest).unwrap();
        (dir, guest)
    }

    #[test]
    fn a_component_is_fresh_until_anything_that_went_into_it_changes() {
        type Change = (&'static str, fn(&GuestCrate));
        let changes: [Change; 5] = [
            ("a source", |guest| std::fs::write(guest.dir.join("lib.rs"), "fn b() {}").unwrap()),
            ("the manifest", |guest| std::fs::write(guest.dir.join("Cargo.toml"), "[package]\nname = 'count'").unwrap()),
            ("a lock file appears", |guest| std::fs::write(guest.dir.join("Cargo.lock"), "").unwrap()),
            ("the component", |guest| std::fs::write(guest.component(), "other").unwrap()),
            ("a source is gone", |guest| std::fs::remove_file(guest.dir.join("lib.rs")).unwrap()),
        ];
        for (what, change) in changes {
            let (_dir, guest) = built();
            assert_eq!(freshness(&guest, Some("1")).unwrap(), Freshness::Fresh);
            assert_eq!(freshness(&guest, None).unwrap(), Freshness::Fresh);
            assert_eq!(freshness(&guest, Some("2")).unwrap(), Freshness::Changed);
            change(&guest);
            assert_eq!(freshness(&guest, None).unwrap(), Freshness::Changed, "{what}");
        }
    }

    #[test]
    fn a_build_that_was_cut_off_is_missing_and_a_damaged_stamp_is_no_stamp() {
        let (_dir, guest) = built();
        std::fs::write(guest.stamp(), "{").unwrap();
        assert_eq!(freshness(&guest, None).unwrap(), Freshness::Changed);
        remove(&guest).unwrap();
        remove(&guest).unwrap();
        assert_eq!(freshness(&guest, None).unwrap(), Freshness::Missing);
    }
}
