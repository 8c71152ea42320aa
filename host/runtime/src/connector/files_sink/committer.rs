//! Publishes and aborts the parts of all subtasks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use cofferdam_dataflow::connector::{ConnectorError, SinkCommitter, Transaction};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::part::{Part, decode, measure};
use super::staging::{COMMITTED, LOCK, Staging, sync_folder};
use crate::connector::failure::{read_failed, write_failed};

/// The latest transaction of each subtask that was committed: its checkpoint, and the hash of its payload, which is
/// unique as it holds a random number.
type Committed = BTreeMap<u32, (u64, u64)>;

/// Settles the transactions of one sink.
pub(super) struct FilesCommitter {
    staging: Staging,
    committed: Committed,
    _lock: Arc<File>,
}

impl FilesCommitter {
    /// Opens the folders, and reads what was committed last.
    pub(super) fn open(staging: &Staging, lock: Arc<File>) -> Result<Self, ConnectorError> {
        let path = staging.staged.join(COMMITTED);
        let committed = match fs::read(&path) {
            Ok(bytes) => postcard::from_bytes(&bytes)
                .map_err(|_| ConnectorError::permanent("output-damaged", format!("\"{}\" cannot be read", path.display())))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Committed::new(),
            Err(error) => return Err(read_failed(&path, error)),
        };
        Ok(Self { staging: staging.clone(), committed, _lock: lock })
    }

    /// Moves a part to the output folder, or sees that it is there.
    fn publish(&self, transaction: &Transaction, part: &Part) -> Result<(), ConnectorError> {
        let staged = self.staging.staged.join(&part.staged);
        let published = self.staging.output.join(&part.name);
        match move_to_free_name(&staged, &published) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.check_published(part, &published)?;
                remove_if_there(&staged)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if published.exists() {
                    return self.check_published(part, &published);
                }
                if self.committed.get(&transaction.subtask) == Some(&identity(transaction)) {
                    return Ok(());
                }
                let message = format!("\"{}\" is neither staged nor published", part.name);
                Err(ConnectorError::permanent("sink-transaction-lost", message))
            }
            Err(error) => Err(write_failed("publish", &published, error)),
        }
    }

    fn check_published(&self, part: &Part, path: &Path) -> Result<(), ConnectorError> {
        let found = File::open(path).and_then(|mut file| measure(&mut file)).map_err(|error| read_failed(path, error))?;
        if found == (part.length, part.hash) {
            return Ok(());
        }
        let message = format!("\"{}\" exists and is not what was written; it is not overwritten", path.display());
        Err(ConnectorError::permanent("output-conflict", message))
    }

    /// Checks that a staged part is as long as it was when it was made durable.
    fn check_staged(&self, part: &Part) -> Result<(), ConnectorError> {
        let path = self.staging.staged.join(&part.staged);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() != part.length => {
                let (shown, length) = (path.display(), metadata.len());
                let message = format!("\"{shown}\" has {length} bytes and was prepared with {}", part.length);
                Err(ConnectorError::permanent("sink-transaction-damaged", message))
            }
            Ok(_) => Ok(()),
            // Told apart when it is published.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(read_failed(&path, error)),
        }
    }

    fn note_committed(&mut self, transactions: &[Transaction]) -> Result<(), ConnectorError> {
        let mut committed = self.committed.clone();
        for transaction in transactions {
            let identity = identity(transaction);
            let latest = committed.entry(transaction.subtask).or_insert(identity);
            *latest = identity;
        }
        if committed == self.committed {
            return Ok(());
        }
        let path = self.staging.staged.join(COMMITTED);
        // Not a staged name, so that a left-over is removed with the next abort.
        let fresh = self.staging.staged.join(format!("{COMMITTED}.new"));
        let bytes = postcard::to_stdvec(&committed).expect("numbers can always be encoded");
        let written = File::create(&fresh).and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&fresh, &path)).map_err(|error| write_failed("write", &path, error))?;
        self.committed = committed;
        Ok(())
    }
}

fn identity(transaction: &Transaction) -> (u64, u64) {
    (transaction.checkpoint.0, xxhash_rust::xxh3::xxh3_64(&transaction.payload))
}

/// Renames a file, but never over another.
fn move_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot; a link that then loses its first name is the same.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        result => Ok(result?),
    }
}

fn remove_if_there(path: &Path) -> Result<(), ConnectorError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(write_failed("remove", path, error)),
        _ => Ok(()),
    }
}

impl SinkCommitter for FilesCommitter {
    fn commit(&mut self, transactions: &[Transaction]) -> Result<(), ConnectorError> {
        if transactions.is_empty() {
            return Ok(());
        }
        for transaction in transactions {
            let parts = decode(transaction, &self.staging)?;
            // All before the first is published: a transaction that cannot be published whole is left alone.
            parts.iter().try_for_each(|part| self.check_staged(part))?;
            parts.iter().try_for_each(|part| self.publish(transaction, part))?;
        }
        sync_folder(&self.staging.output)?;
        self.note_committed(transactions)?;
        sync_folder(&self.staging.staged)
    }

    fn abort_all_except(&mut self, keep: &[Transaction]) -> Result<(), ConnectorError> {
        let mut kept = BTreeSet::from([LOCK.to_owned(), COMMITTED.to_owned()]);
        for transaction in keep {
            kept.extend(decode(transaction, &self.staging)?.into_iter().map(|part| part.staged));
        }
        let folder = &self.staging.staged;
        for entry in fs::read_dir(folder).map_err(|error| read_failed(folder, error))? {
            let entry = entry.map_err(|error| read_failed(folder, error))?;
            if !entry.file_name().to_str().is_some_and(|name| kept.contains(name)) {
                remove_if_there(&entry.path())?;
            }
        }
        Ok(())
    }
}
