//! The guest SDK as packed into this binary, and what a new crate's manifest says to depend on it.

use std::path::{Component, Path, PathBuf};

use xxhash_rust::xxh3::Xxh3Default;

use super::{BuildError, GuestCrate, home, stamp};

/// The files of the SDK and of the operator interface by their paths in a checkout; none in a published package.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the value of `cofferdam-guest` in a new crate's manifest: a path inside a checkout, else a path to the copy
/// shipped in this binary (unpacked below `home`), else the published version.
pub(super) fn dependency(crate_dir: &Path, home: fn() -> Result<PathBuf, BuildError>) -> Result<String, BuildError> {
    let quoted = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned());
    if let Some(checkout) = checkout(crate_dir) {
        return Ok(format!("{{ path = {} }}", quoted(&relative(crate_dir, &checkout.join("guest-sdk")))));
    }
    if FILES.is_empty() {
        return Ok(format!("\"{VERSION}\""));
    }
    let copy = copy_dir(&home()?);
    unpack(&copy)?;
    Ok(format!("{{ path = {} }}", quoted(&copy.join("guest-sdk"))))
}

/// Unpacks the SDK again if a crate depends on this binary's copy and that is gone: it lives in a cache folder.
pub(super) fn restore(guest: &GuestCrate) -> Result<(), BuildError> {
    let copy = copy_dir(&home()?);
    let named = guest.manifest.contains(copy.to_string_lossy().as_ref());
    if named && !copy.join("guest-sdk/Cargo.toml").is_file() { unpack(&copy) } else { Ok(()) }
}

/// Returns the checkout of cofferdam that a folder lies in.
fn checkout(dir: &Path) -> Option<PathBuf> {
    let is_checkout = |dir: &&Path| {
        let manifest = std::fs::read_to_string(dir.join("guest-sdk/Cargo.toml"));
        manifest.is_ok_and(|text| text.contains("name = \"cofferdam-guest\"")) && dir.join("wit/world.wit").is_file()
    };
    dir.ancestors().find(is_checkout).map(Path::to_owned)
}

/// Copies of different contents live side by side: a rebuilt binary must not change the crates of another.
fn copy_dir(home: &Path) -> PathBuf {
    let mut hasher = Xxh3Default::new();
    for (path, bytes) in FILES {
        hasher.update(path.as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    home.join("sdk").join(format!("{VERSION}-{:08x}", hasher.digest() >> 32))
}

/// Writes the manifest last: where it is, the rest is.
fn unpack(copy: &Path) -> Result<(), BuildError> {
    let (manifest, others): (Vec<_>, Vec<_>) = FILES.iter().partition(|(path, _)| path.ends_with("Cargo.toml"));
    for (path, bytes) in others.into_iter().chain(manifest) {
        let path = copy.join(path);
        if std::fs::read(&path).is_ok_and(|found| found == *bytes) {
            continue;
        }
        stamp::replace(&path, bytes)?;
    }
    Ok(())
}

/// Returns the path from one absolute folder to another.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to): (Vec<Component<'_>>, Vec<Component<'_>>) = (from.components().collect(), to.components().collect());
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, from.len() - shared);
    up.chain(to[shared..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_between_folders_go_up_and_down() {
        let cases = [("/a/b/c", "/a/sdk", "../../sdk"), ("/a", "/a/sdk", "sdk"), ("/x/y", "/a", "../../a")];
        for (from, to, expected) in cases {
            assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(expected));
        }
    }

    #[test]
    fn the_packed_sdk_is_whole_and_unpacks_to_the_same_files() {
        let has = |name: &str| FILES.iter().any(|(path, _)| *path == name);
        assert!(has("guest-sdk/Cargo.toml") && has("guest-sdk/src/lib.rs") && has("wit/world.wit"));
        let dir = tempfile::tempdir().unwrap();
        unpack(dir.path()).unwrap();
        std::fs::write(dir.path().join("wit/world.wit"), "damaged").unwrap();
        unpack(dir.path()).unwrap();
        for (path, bytes) in FILES {
            assert_eq!(std::fs::read(dir.path().join(path)).unwrap(), *bytes, "{path}");
        }
    }
}
