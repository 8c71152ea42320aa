//! Artefacts kept on disk, so that a second start compiles nothing.
//!
//! An entry is a file named after the component's digest and the engine's fingerprint. It begins with a code that only
//! the holder of a local random key can make, over its name and contents: an entry that anybody else wrote, moved or
//! damaged is not loaded, but compiled anew and counted. The directory must be the user's own.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::LoadError;
use super::artefact::Artefact;
use super::scan::ComponentSummary;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = blake3::OUT_LEN;
const EXTENSION: &str = "artefact";

/// Bytes of all entries together, about: the least recently used ones go when a new one is stored.
const BYTES_MAX: u64 = 4 << 30;

/// Bytes of one entry: what the compiler may answer, at most.
const ENTRY_BYTES_MAX: u64 = 512 << 20;

/// A directory of authenticated artefacts, shared by any number of processes of one user.
pub struct ArtefactCache {
    directory: PathBuf,
    key: [u8; KEY_BYTES],
    rejected: AtomicU64,
}

/// What an entry is found by, and what its authentication code covers besides the contents.
pub struct CacheKey {
    name: String,
}

impl CacheKey {
    /// Returns the key of a component's artefact for the engine with `fingerprint`.
    pub fn new(summary: &ComponentSummary, fingerprint: &str) -> Self {
        Self { name: format!("{}-{fingerprint}.{EXTENSION}", summary.digest) }
    }
}

impl ArtefactCache {
    /// Opens the cache in `directory`, which is created if need be.
    ///
    /// # Errors
    /// [`LoadError::CacheUnusable`] if the directory belongs to, or can be entered by, anybody else, or cannot be used.
    pub fn open(directory: &Path) -> Result<Self, LoadError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| unusable(directory, "cannot create it", error))?;
        let found = fs::symlink_metadata(directory).map_err(|error| unusable(directory, "cannot look at it", error))?;
        check_private(directory, &found, found.is_dir(), "directory")?;
        let key = open_key(&directory.join(KEY_FILE))?;
        Ok(Self { directory: directory.to_owned(), key, rejected: AtomicU64::new(0) })
    }

    /// Returns how many entries were found to be forged or damaged.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Returns the artefact for `key`, if there is a sound one.
    pub fn get(&self, key: &CacheKey) -> Option<Artefact> {
        let path = self.directory.join(&key.name);
        let mut file = OpenOptions::new().read(true).open(&path).ok()?;
        let mut mac = [0; MAC_BYTES];
        let mut body = Vec::new();
        let complete = file.read_exact(&mut mac).and_then(|()| (&file).take(ENTRY_BYTES_MAX).read_to_end(&mut body));
        // The comparison takes the same time wherever the codes differ.
        if complete.is_err() || self.mac(key, &body) != blake3::Hash::from_bytes(mac) {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(path = %path.display(), "cached artefact is forged or damaged, compiling anew");
            return None;
        }
        // Marks the entry as used; a failure only means that it goes earlier.
        let _ = file.set_modified(SystemTime::now());
        Some(Artefact::authenticated(body))
    }

    /// Stores an artefact, so that it is there wholly or not at all.
    ///
    /// # Errors
    /// [`LoadError::CacheUnusable`] if it cannot be written.
    pub fn put(&self, key: &CacheKey, artefact: &Artefact) -> Result<(), LoadError> {
        let path = self.directory.join(&key.name);
        let mac = self.mac(key, artefact.bytes());
        let temporary = self.directory.join(format!("{}.{}.tmp", key.name, unique()?));
        let written = write_new(&temporary, &[mac.as_bytes(), artefact.bytes()]).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(unusable(&path, "cannot write it", error));
        }
        self.evict(BYTES_MAX, &path);
        Ok(())
    }

    fn mac(&self, key: &CacheKey, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(key.name.len() as u64).to_le_bytes());
        hasher.update(key.name.as_bytes());
        hasher.update(body);
        hasher.finalize()
    }

    /// Removes the least recently used entries until the rest fits. What cannot be looked at or removed stays.
    fn evict(&self, bytes_max: u64, keep: &Path) {
        let Ok(listing) = fs::read_dir(&self.directory) else { return };
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = listing
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION) && path != keep)
            .filter_map(|path| fs::metadata(&path).and_then(|found| Ok((found.modified()?, found.len(), path))).ok())
            .collect();
        let kept = fs::metadata(keep).map_or(0, |found| found.len());
        let mut total = kept + entries.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        entries.sort();
        for (_, bytes, path) in entries {
            if total <= bytes_max {
                return;
            }
            if fs::remove_file(&path).is_ok() {
                total -= bytes;
            }
        }
    }
}

/// Reads the key, or makes one. Two processes that start at once end up with the same key.
fn open_key(path: &Path) -> Result<[u8; KEY_BYTES], LoadError> {
    match read_key(path) {
        Err(LoadError::CacheUnusable { source: Some(error), .. }) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| unusable(path, "cannot make a random key", io::Error::other(error.to_string())))?;
    let temporary = path.with_extension(format!("{}.tmp", unique()?));
    write_new(&temporary, &[&key]).map_err(|error| unusable(path, "cannot write it", error))?;
    // Unlike a rename, a link fails if the other process was first.
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(unusable(path, "cannot create it", error)),
        _ => read_key(path),
    }
}

fn read_key(path: &Path) -> Result<[u8; KEY_BYTES], LoadError> {
    let found = fs::symlink_metadata(path).map_err(|error| unusable(path, "cannot look at it", error))?;
    check_private(path, &found, found.is_file(), "file")?;
    let bytes = fs::read(path).map_err(|error| unusable(path, "cannot read it", error))?;
    let length = bytes.len();
    bytes
        .try_into()
        .map_err(|_| unsafe_to_use(path, format!("the key has {length} bytes, not {KEY_BYTES}; remove it to get a new one")))
}

fn check_private(path: &Path, found: &fs::Metadata, kind_fits: bool, kind: &str) -> Result<(), LoadError> {
    if !kind_fits {
        return Err(unsafe_to_use(path, format!("it is not a {kind}")));
    }
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(unsafe_to_use(path, format!("it belongs to user {}, not to user {user} who runs this program", found.uid())));
    }
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o777;
        return Err(unsafe_to_use(path, format!("its mode {mode:o} lets other users in; use `chmod go= {}`", path.display())));
    }
    Ok(())
}

fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

/// Returns a suffix that no other process or thread uses.
fn unique() -> Result<String, LoadError> {
    let random = getrandom::u64().map_err(|error| LoadError::Internal { reason: format!("no random numbers: {error}") })?;
    Ok(format!("{random:016x}"))
}

fn unusable(path: &Path, act: &str, source: io::Error) -> LoadError {
    LoadError::CacheUnusable { path: path.to_owned(), reason: act.to_owned(), source: Some(source) }
}

fn unsafe_to_use(path: &Path, reason: String) -> LoadError {
    LoadError::CacheUnusable { path: path.to_owned(), reason, source: None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn key(name: &str) -> CacheKey {
        CacheKey { name: format!("{name}.{EXTENSION}") }
    }

    fn cache(directory: &Path) -> ArtefactCache {
        ArtefactCache::open(&directory.join("cache")).unwrap()
    }

    fn body(cache: &ArtefactCache, name: &str) -> Option<Vec<u8>> {
        cache.get(&key(name)).map(|artefact| artefact.bytes().to_owned())
    }

    #[test]
    fn what_was_stored_is_found_by_a_later_process() {
        let directory = tempfile::tempdir().unwrap();
        cache(directory.path()).put(&key("a"), &Artefact::authenticated(b"code".to_vec())).unwrap();
        let later = cache(directory.path());
        assert_eq!(body(&later, "a"), Some(b"code".to_vec()));
        assert_eq!(body(&later, "b"), None);
        assert_eq!(later.rejected(), 0);
        let left: Vec<_> =
            fs::read_dir(directory.path().join("cache")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "no temporary file stays: {left:?}");
    }

    #[test]
    fn an_entry_that_was_changed_or_moved_is_never_returned() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        cache.put(&key("a"), &Artefact::authenticated(b"code".to_vec())).unwrap();
        let path = |name: &str| directory.path().join("cache").join(&key(name).name);
        let sound = fs::read(path("a")).unwrap();
        let mut tries = 0;
        for at in 0..sound.len() {
            let mut changed = sound.clone();
            changed[at] ^= 1;
            fs::write(path("a"), &changed).unwrap();
            assert_eq!(body(&cache, "a"), None, "byte {at}");
            fs::write(path("a"), &sound[..at]).unwrap();
            assert_eq!(body(&cache, "a"), None, "first {at} bytes");
            tries += 2;
        }
        fs::write(path("b"), &sound).unwrap();
        assert_eq!(body(&cache, "b"), None);
        assert_eq!(cache.rejected(), tries + 1);
    }

    #[test]
    fn a_directory_or_key_that_others_can_reach_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = || ArtefactCache::open(&directory.path().join("cache")).err().map(|error| error.to_string());
        assert_eq!(open(), None);
        let set = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let root = directory.path().join("cache");
        for (path, sound) in [(root.clone(), 0o700), (root.join(KEY_FILE), 0o600)] {
            set(path.clone(), sound | 0o020);
            assert!(open().unwrap().contains("lets other users in"));
            set(path, sound);
            assert_eq!(open(), None);
        }
        fs::write(root.join(KEY_FILE), b"short").unwrap();
        assert!(open().unwrap().contains("has 5 bytes"));
        std::os::unix::fs::symlink(&root, directory.path().join("link")).unwrap();
        let error = ArtefactCache::open(&directory.path().join("link")).err().unwrap();
        assert!(error.to_string().contains("not a directory"), "{error}");
    }

    #[test]
    fn the_least_recently_used_entries_go_first() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        let path = |name: &str| directory.path().join("cache").join(&key(name).name);
        for (age, name) in [(30, "old"), (20, "used"), (10, "young"), (0, "new")] {
            cache.put(&key(name), &Artefact::authenticated(vec![0; 100])).unwrap();
            File::options()
                .write(true)
                .open(path(name))
                .unwrap()
                .set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
        }
        assert!(body(&cache, "old").is_some());
        cache.evict(3 * (100 + MAC_BYTES as u64), &path("new"));
        assert_eq!(body(&cache, "used"), None);
        assert!(body(&cache, "old").is_some() && body(&cache, "young").is_some() && body(&cache, "new").is_some());
    }
}
