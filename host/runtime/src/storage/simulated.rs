//! A disk that forgets what was not synced, fills up, and fails: for tests.
//!
//! Names are changed by operations that become durable when their directory is synced. A crash keeps any subset of the
//! others, and of unsynced content any prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::files::{Files, ReadFile, WrittenFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Dir,
}

#[derive(Clone, Debug)]
enum Change {
    Set(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Set(path, node) => drop(names.insert(path.clone(), *node)),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    fn dir(&self) -> &Path {
        let (Self::Set(path, _) | Self::Remove(path) | Self::Rename(path, ..)) = self;
        path.parent().unwrap()
    }
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// Content, and how much of it is durable.
    contents: Vec<(Vec<u8>, usize)>,
    names: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<Change>,
    /// Operations until the power fails.
    steps: usize,
    /// Syncs that fail, counted from now; 0 is the next.
    failing_syncs: BTreeSet<usize>,
    syncs: usize,
    bytes_max: usize,
}

/// See the module's documentation. Clones share the disk.
#[derive(Clone)]
pub(super) struct SimulatedFiles(Arc<Mutex<Disk>>);

impl SimulatedFiles {
    /// Returns a disk with one empty directory.
    pub(super) fn new(dir: &Path) -> Self {
        let names = BTreeMap::from([(dir.to_owned(), Node::Dir)]);
        let durable = names.clone();
        Self(Arc::new(Mutex::new(Disk { names, durable, steps: usize::MAX, bytes_max: usize::MAX, ..Disk::default() })))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// Lets the power fail after so many operations.
    pub(super) fn fail_after(&self, steps: usize) {
        self.disk().steps = steps;
    }

    /// Whether the power has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.disk().steps == 0
    }

    /// Lets a sync fail: 0 is the next one.
    pub(super) fn fail_sync(&self, index: usize) {
        let mut disk = self.disk();
        let at = disk.syncs + index;
        disk.failing_syncs.insert(at);
    }

    /// Returns how many syncs there were, of files and folders.
    pub(super) fn syncs(&self) -> usize {
        self.disk().syncs
    }

    pub(super) fn limit(&self, bytes_max: usize) {
        self.disk().bytes_max = bytes_max;
    }

    /// Returns what is on the disk after a power failure. `seed` decides what of the unsynced survived.
    pub(super) fn after_power_failure(&self, seed: u64) -> Self {
        let mut random = seed;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap()
        };
        let disk = self.disk();
        let mut names = disk.durable.clone();
        for change in &disk.pending {
            if next() % 2 == 0 {
                change.apply(&mut names);
            }
        }
        // What is in a directory that is not there is not there either.
        let dirs: BTreeSet<_> = names.iter().filter(|(_, node)| **node == Node::Dir).map(|(path, _)| path.clone()).collect();
        let roots: BTreeSet<_> =
            disk.durable.keys().filter(|path| !disk.durable.contains_key(path.parent().unwrap())).cloned().collect();
        names.retain(|path, _| roots.contains(path) || dirs.contains(path.parent().unwrap()));
        let contents = disk.contents.iter().map(|(bytes, durable)| {
            let kept = durable + if bytes.len() > *durable { next() % (bytes.len() - durable + 1) } else { 0 };
            (bytes[..kept].to_vec(), kept)
        });
        let contents = contents.collect();
        let durable = names.clone();
        Self(Arc::new(Mutex::new(Disk { contents, names, durable, steps: usize::MAX, bytes_max: usize::MAX, ..Disk::default() })))
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.disk().names.keys().map(|path| path.display().to_string()).collect()
    }

    /// Returns all files and what is in them.
    pub(super) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let disk = self.disk();
        let content = |(path, node): (&PathBuf, &Node)| match node {
            Node::File(index) => Some((path.clone(), disk.contents[*index].0.clone())),
            Node::Dir => None,
        };
        disk.names.iter().filter_map(content).collect()
    }

    /// Replaces what is in a file.
    pub(super) fn set(&self, path: &Path, bytes: &[u8]) {
        let mut disk = self.disk();
        let Some(Node::File(index)) = disk.names.get(path).copied() else { panic!("{} does not exist", path.display()) };
        disk.contents[index].0 = bytes.to_vec();
    }

    pub(super) fn corrupt(&self, path: &Path) {
        let mut disk = self.disk();
        let Some(Node::File(index)) = disk.names.get(path).copied() else { panic!("{} does not exist", path.display()) };
        let middle = disk.contents[index].0.len() / 2;
        disk.contents[index].0[middle] ^= 1;
    }
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 { Err(io::Error::other("power failure")) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.step()?;
        self.syncs += 1;
        let fails = self.failing_syncs.remove(&(self.syncs - 1));
        if fails { Err(io::Error::other("sync failed")) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn must_be_free(&self, path: &Path) -> io::Result<()> {
        self.node(path.parent().unwrap())?;
        if self.names.contains_key(path) { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    }
}

impl Files for SimulatedFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WrittenFile>> {
        let mut disk = self.disk();
        disk.step()?;
        disk.must_be_free(path)?;
        let index = disk.contents.len();
        disk.contents.push((Vec::new(), 0));
        disk.change(Change::Set(path.to_owned(), Node::File(index)));
        Ok(Box::new(Written { files: self.clone(), index }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        let disk = self.disk();
        match disk.node(path)? {
            Node::File(index) => Ok(Box::new(Read(disk.contents[index].0.clone()))),
            Node::Dir => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        let node = disk.node(from)?;
        disk.change(Change::Rename(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().must_be_free(to)?;
        self.replace(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        disk.node(path)?;
        disk.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        let node = disk.node(from)?;
        disk.must_be_free(to)?;
        disk.change(Change::Set(to.to_owned(), node));
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        disk.must_be_free(path)?;
        disk.change(Change::Set(path.to_owned(), Node::Dir));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk();
        disk.node(dir)?;
        let inside = disk.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.sync()?;
        let (synced, rest) = std::mem::take(&mut disk.pending).into_iter().partition(|change: &Change| change.dir() == dir);
        disk.pending = rest;
        let synced: Vec<Change> = synced;
        synced.iter().for_each(|change| change.apply(&mut disk.durable));
        Ok(())
    }
}

struct Written {
    files: SimulatedFiles,
    index: usize,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.files.disk();
        disk.step()?;
        let used: usize = disk.contents.iter().map(|(bytes, _)| bytes.len()).sum();
        let fits = bytes.len().min(disk.bytes_max.saturating_sub(used));
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.contents[self.index].0.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WrittenFile for Written {
    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.files.disk();
        disk.sync()?;
        disk.contents[self.index].1 = disk.contents[self.index].0.len();
        Ok(())
    }
}

struct Read(Vec<u8>);

impl ReadFile for Read {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|start| self.0.get(start..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
