//! Where the socket is, however long the path to it: the name of a socket may have 107 bytes.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const SOCKET: &str = "control";
/// It comes into being in here, where nobody else can reach it before its mode is set.
const FRESH: &str = "control.new";
const FRESH_SOCKET: &str = "control.new/s";
const PATH_BYTES_MAX: usize = 90;

/// A directory by a path that is short enough, for as long as this lives.
struct Short {
    path: PathBuf,
    _dir: Option<File>,
}

fn shorten(dir: &Path) -> io::Result<Short> {
    if dir.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(Short { path: dir.to_owned(), _dir: None });
    }
    let opened = File::open(dir)?;
    Ok(Short { path: format!("/proc/self/fd/{}", opened.as_raw_fd()).into(), _dir: Some(opened) })
}

/// Listens in a job's directory, for its owner only. The caller holds the directory's lock: a socket that is there is that
/// of a process that has died, and is replaced.
pub(super) fn listen(dir: &Path) -> io::Result<UnixListener> {
    let short = shorten(dir)?;
    let dir = &short.path;
    forget(dir);
    DirBuilder::new().mode(0o700).create(dir.join(FRESH))?;
    let bound = UnixListener::bind(dir.join(FRESH_SOCKET)).and_then(|listener| {
        fs::set_permissions(dir.join(FRESH_SOCKET), Permissions::from_mode(0o600))?;
        fs::rename(dir.join(FRESH_SOCKET), dir.join(SOCKET))?;
        Ok(listener)
    });
    if bound.is_err() {
        forget(dir);
    }
    let _ = fs::remove_dir(dir.join(FRESH));
    bound
}

fn forget(dir: &Path) {
    // What is not there need not go; what cannot go is told by who needs its name.
    let _ = fs::remove_file(dir.join(FRESH_SOCKET));
    let _ = fs::remove_dir(dir.join(FRESH));
}

/// Removes the socket of this process.
pub(super) fn remove(dir: &Path) {
    let _ = fs::remove_file(dir.join(SOCKET));
}

/// Connects to the process that runs the job of a directory.
pub(super) fn connect(dir: &Path) -> io::Result<UnixStream> {
    let short = shorten(dir)?;
    UnixStream::connect(short.path.join(SOCKET))
}
