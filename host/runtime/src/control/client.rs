//! The side that asks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::address;
use super::protocol::{ANSWER_BYTES_MAX, Answer, Request, line, parse_answer};

/// A connection to a running job.
pub struct Client {
    dir: PathBuf,
    stream: BufReader<UnixStream>,
}

/// A job that cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No process runs it.
    #[error("nothing runs in {dir}")]
    NotRunning {
        /// The job's directory.
        dir: String,
    },
    /// The socket cannot be used.
    #[error("the job in {dir} cannot be reached")]
    Io {
        /// The job's directory.
        dir: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The process has gone away before its last answer.
    #[error("the process that runs the job in {dir} has ended without an answer")]
    Gone {
        /// The job's directory.
        dir: String,
    },
    /// An answer that this program does not understand.
    #[error("the job in {dir} gives an answer that cannot be read: {what}")]
    Answer {
        /// The job's directory.
        dir: String,
        /// What is wrong with it.
        what: String,
    },
}

impl ClientError {
    /// Returns the stable name that reports use.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotRunning { .. } => "not-running",
            Self::Io { .. } => "control-unreachable",
            Self::Gone { .. } => "control-gone",
            Self::Answer { .. } => "control-answer",
        }
    }
}

impl Client {
    /// Connects to the process that runs the job of a directory.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(dir: &Path) -> Result<Self, ClientError> {
        let shown = dir.display().to_string();
        match address::connect(dir) {
            Ok(stream) => Ok(Self { dir: dir.to_owned(), stream: BufReader::new(stream) }),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Err(ClientError::NotRunning { dir: shown })
            }
            Err(source) => Err(ClientError::Io { dir: shown, source }),
        }
    }

    /// Asks for something.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&mut self, request: &Request) -> Result<(), ClientError> {
        self.stream.get_mut().write_all(&line(request)).map_err(|error| self.failed(error))
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn answer(&mut self) -> Result<Answer, ClientError> {
        let mut bytes = Vec::new();
        let read = (&mut self.stream).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut bytes);
        read.map_err(|error| self.failed(error))?;
        let dir = self.dir.display().to_string();
        if bytes.last() != Some(&b'\n') {
            return Err(ClientError::Gone { dir });
        }
        parse_answer(&bytes).map_err(|what| ClientError::Answer { dir, what })
    }

    fn failed(&self, source: io::Error) -> ClientError {
        let dir = self.dir.display().to_string();
        match source.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Gone { dir },
            _ => ClientError::Io { dir, source },
        }
    }
}
