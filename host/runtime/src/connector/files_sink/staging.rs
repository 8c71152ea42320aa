//! The folders of one sink, and the names in them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use cofferdam_dataflow::connector::ConnectorError;
use cofferdam_dataflow::ids::{CheckpointId, OperatorId};

use super::Compression;
use crate::connector::failure::write_failed;

pub(super) const LOCK: &str = "lock";
/// Not `.cofferdam`: that is where pipelines keep their checkpoints, perhaps in the same folder.
const STAGED: &str = ".cofferdam-staged";
pub(super) const COMMITTED: &str = "committed";

/// Where one sink of one pipeline stages and publishes its parts.
#[derive(Clone, Debug)]
pub(super) struct Staging {
    /// Where parts are published.
    pub(super) output: PathBuf,
    /// Where parts are staged, on the same file system.
    pub(super) staged: PathBuf,
    /// What the names of parts begin with.
    prefix: String,
}

impl Staging {
    pub(super) fn new(output: &Path, pipeline: &OperatorId, sink: &OperatorId) -> Self {
        // Folders in each other, not a joined name: both names may hold any separator.
        let staged = output.join(STAGED).join(pipeline.as_str()).join(sink.as_str());
        Self { output: output.to_owned(), staged, prefix: format!("{pipeline}-{sink}-") }
    }

    /// Makes the folders, checks that they can be written, and takes the lock.
    pub(super) fn create(&self) -> Result<File, ConnectorError> {
        fs::create_dir_all(&self.staged).map_err(|error| write_failed("create", &self.staged, error))?;
        let path = self.staged.join(LOCK);
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(|error| write_failed("create", &path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process writes to \"{}\" by the same names", self.output.display());
                return Err(ConnectorError::permanent("output-in-use", message));
            }
            Err(TryLockError::Error(error)) => return Err(write_failed("lock", &path, error)),
        }
        // Publishing creates names in the output folder, which may be another's.
        let probe = self.output.join(format!(".{}probe", self.prefix));
        let written = File::create(&probe).and_then(|_| fs::remove_file(&probe));
        written.map_err(|error| write_failed("write to", &self.output, error))?;
        // What has been made lies in these: the pipeline's folder, that of all staged parts, and the output.
        for folder in self.staged.ancestors().skip(1).take(3) {
            sync_folder(folder)?;
        }
        Ok(lock)
    }

    /// Returns the name of part `number` (from 0) of a transaction.
    pub(super) fn part_name(&self, subtask: u32, checkpoint: CheckpointId, number: usize, compression: Compression) -> String {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        format!("{}{subtask}-{:010}{number}.txt{}", self.prefix, checkpoint.0, compression.extension())
    }

    /// Whether a name can be that of a published part of this sink.
    pub(super) fn is_part_name(&self, name: &str) -> bool {
        name.starts_with(&self.prefix) && !name.contains('/')
    }
}

/// Whether a name can be that of a staged part.
pub(super) fn is_staged_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/') && name != LOCK && name != COMMITTED
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), ConnectorError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| write_failed("sync", folder, error))
}
