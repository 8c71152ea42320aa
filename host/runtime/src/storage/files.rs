//! The file operations that the order of a checkpoint depends on, as a trait, and the real ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// A file that is being written.
pub trait WrittenFile: Write + Send {
    /// Makes the content durable, not the name. After an error the content is lost for good, whatever a second call says.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that is read at any place.
pub trait ReadFile: Send {
    /// Returns the length in bytes.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// What a storage does with files. Names become durable by [`Self::sync_dir`] of their directory, content by
/// [`WrittenFile::sync`].
pub trait Files: Send + Sync {
    /// Creates a file that does not exist, readable by its owner only.
    ///
    /// # Errors
    /// What the operating system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WrittenFile>>;

    /// Opens a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>>;

    /// Renames a file and replaces what has that name, in one step.
    ///
    /// # Errors
    /// What the operating system says.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file in one step, unless the name is taken.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file another name as well, unless that is taken. Both last on their own.
    ///
    /// # Errors
    /// What the operating system says: not every file system can, and none can for another.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory, for its owner only.
    ///
    /// # Errors
    /// What the operating system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, in no order.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The files of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFiles;

impl Files for HostFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WrittenFile>> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Box::new(HostFile { file, length }))
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // Not every file system can do that; a link never replaces either.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::hard_link(from, to)?;
                fs::remove_file(from)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl WrittenFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

struct HostFile {
    file: File,
    length: u64,
}

impl ReadFile for HostFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}
