//! A reader of published output that looks while it is being written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::output::parts;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Looks at a folder again and again until it is stopped.
pub(crate) struct Reader {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// What a reader has seen: each part as it was when it first appeared.
struct Seen {
    parts: BTreeMap<PathBuf, Part>,
    looks: u64,
}

struct Part {
    content: Vec<u8>,
    /// Inode, length and time of change.
    identity: (u64, u64, i64, i64),
}

impl Reader {
    pub(crate) fn start(folder: &Path) -> Self {
        let (stop, stopped) = channel();
        let folder = folder.to_owned();
        let thread = std::thread::spawn(move || {
            let mut seen = Seen { parts: BTreeMap::new(), looks: 0 };
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                seen.look(&folder);
            }
            seen
        });
        Self { stop, thread }
    }

    /// Looks once more, now at all bytes: nothing has changed or vanished. Returns how many parts there are.
    pub(crate) fn finish(self, folder: &Path) -> usize {
        drop(self.stop);
        let mut seen = self.thread.join().expect("the reader saw nothing wrong");
        seen.look(folder);
        for (path, part) in &seen.parts {
            assert!(fs::read(path).unwrap() == part.content, "{} has changed since it appeared", path.display());
        }
        println!("the reader looked {} times at {} parts", seen.looks, seen.parts.len());
        seen.parts.len()
    }
}

impl Seen {
    fn look(&mut self, folder: &Path) {
        self.looks += 1;
        let found = parts(folder);
        for path in &found {
            let metadata = fs::metadata(path).unwrap();
            let identity = (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
            match self.parts.get(path) {
                Some(part) => assert_eq!(part.identity, identity, "{} has changed", path.display()),
                None => {
                    let content = fs::read(path).unwrap();
                    assert_eq!(content.len() as u64, metadata.len(), "{} grows", path.display());
                    assert!(content.ends_with(b"\n"), "{} ends within a line", path.display());
                    self.parts.insert(path.clone(), Part { content, identity });
                }
            }
        }
        assert_eq!(found.len(), self.parts.len(), "a part has vanished");
    }
}
