//! The files of one subtask, read in turn.
//!
//! A limited number of files is open at once and each poll reads the next of them, so that event time advances in all.
//! Files with a position in their middle are opened at once: what changed is found before anything is read.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{ConnectorError, Source, SourcePoll, Split, SplitPosition};
use cofferdam_dataflow::time::{EventTime, ProcessingTime};

use super::options::Settings;
use super::position::FilePosition;
use super::reader::{FileReader, Read};

const OPEN_FILES: usize = 16;
/// All files that are followed are open at once, so they are limited.
const FOLLOWED_FILES: usize = 256;
/// How soon files that are followed are looked at again, when none of them had anything.
const FOLLOW_MS: u64 = 20;
/// Polls without anything of a file that is followed, between two looks at whether it is still there.
const CHECK_EVERY: u32 = 50;

/// Reads splits, one a file.
pub(super) struct FilesSource {
    base: PathBuf,
    settings: Arc<Settings>,
    splits: Vec<(Split, State)>,
    /// Finished before this source was opened; yet to be told.
    finished: VecDeque<usize>,
    /// Open files, next first.
    reading: VecDeque<usize>,
    /// Files that have not been opened.
    waiting: VecDeque<usize>,
    /// Records skipped in files that are finished.
    malformed: u64,
    /// How many files in a row had nothing.
    quiet: usize,
}

enum State {
    Waiting {
        stored_bytes: u64,
    },
    /// `quiet`: how often in a row it had nothing.
    Reading {
        reader: Box<FileReader>,
        quiet: u32,
    },
    Finished(SplitPosition),
}

impl FilesSource {
    /// Opens splits, each at its position.
    pub(super) fn open(
        base: PathBuf,
        settings: Arc<Settings>,
        splits: Vec<(Split, Option<SplitPosition>)>,
    ) -> Result<Self, ConnectorError> {
        if settings.follow && splits.len() > FOLLOWED_FILES {
            let text =
                format!("{} files are followed by one subtask, more than {FOLLOWED_FILES}: raise parallelism", splits.len());
            return Err(ConnectorError::permanent("option-refused", text));
        }
        let (finished, reading, waiting) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let mut source = Self { base, settings, splits: Vec::new(), finished, reading, waiting, malformed: 0, quiet: 0 };
        for (index, (split, position)) in splits.into_iter().enumerate() {
            let path = source.base.join(&split.id);
            let state = match position {
                Some(position) if position.finished => {
                    source.finished.push_back(index);
                    State::Finished(position)
                }
                Some(position) if FilePosition::decode(&position)?.offset > 0 => {
                    source.reading.push_back(index);
                    let position = FilePosition::decode(&position)?;
                    State::Reading {
                        reader: Box::new(FileReader::open(&split.id, &path, &source.settings, Some(&position))?),
                        quiet: 0,
                    }
                }
                _ => {
                    source.waiting.push_back(index);
                    State::Waiting { stored_bytes: std::fs::metadata(&path).map_or(0, |metadata| metadata.len()) }
                }
            };
            source.splits.push((split, state));
        }
        Ok(source)
    }

    /// Opens the next files, up to the limit.
    fn open_waiting(&mut self) -> Result<(), ConnectorError> {
        let most = if self.settings.follow { FOLLOWED_FILES } else { OPEN_FILES };
        while self.reading.len() < most
            && let Some(index) = self.waiting.pop_front()
        {
            let (split, state) = &mut self.splits[index];
            let reader = FileReader::open(&split.id, &self.base.join(&split.id), &self.settings, None)?;
            *state = State::Reading { reader: Box::new(reader), quiet: 0 };
            self.reading.push_back(index);
        }
        Ok(())
    }

    /// Reads the next file; of those that are followed, the next that has something.
    fn poll_next(&mut self, max_records: usize, batch: &mut Batch) -> Result<SourcePoll, ConnectorError> {
        if let Some(split) = self.finished.pop_front() {
            return Ok(SourcePoll::SplitFinished { split });
        }
        self.open_waiting()?;
        let Some(index) = self.reading.pop_front() else {
            return Ok(SourcePoll::End);
        };
        let (split, state) = &mut self.splits[index];
        let State::Reading { reader, quiet } = state else { unreachable!("only files that are open are in the queue") };
        match reader.read(max_records, batch)? {
            Read::Some => {
                self.reading.push_back(index);
                (*quiet, self.quiet) = (0, 0);
                Ok(SourcePoll::Records { split: index })
            }
            Read::NoneYet => {
                self.reading.push_back(index);
                Ok(SourcePoll::Pending { retry_after_ms: 0 })
            }
            Read::End if self.settings.follow => {
                self.reading.push_back(index);
                *quiet += 1;
                if *quiet == 1 {
                    return Ok(SourcePoll::AtEnd { split: index });
                }
                if quiet.is_multiple_of(CHECK_EVERY) {
                    reader.check_followed()?;
                }
                self.quiet += 1;
                if self.quiet < self.reading.len() {
                    return self.poll_next(max_records, batch);
                }
                self.quiet = 0;
                Ok(SourcePoll::Pending { retry_after_ms: FOLLOW_MS })
            }
            Read::End => {
                self.malformed += reader.malformed();
                *state = State::Finished(reader.position().encode(split, true));
                Ok(SourcePoll::SplitFinished { split: index })
            }
        }
    }
}

impl Source for FilesSource {
    fn poll(&mut self, _: ProcessingTime, max_records: usize, batch: &mut Batch) -> Result<SourcePoll, ConnectorError> {
        self.poll_next(max_records, batch)
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let position = |(split, state): &(Split, State)| match state {
            State::Waiting { .. } => FilePosition::start().encode(split, false),
            State::Reading { reader, .. } => reader.position().encode(split, reader.exhausted()),
            State::Finished(position) => position.clone(),
        };
        self.splits.iter().map(position).collect()
    }

    fn declared_watermark(&self, split: usize) -> Option<EventTime> {
        match &self.splits[split].1 {
            State::Reading { reader, .. } => reader.declared_watermark(),
            State::Waiting { .. } | State::Finished(_) => None,
        }
    }

    fn remaining_bytes(&self) -> Option<u64> {
        if self.settings.follow {
            return None;
        }
        let remaining = |(_, state): &(Split, State)| match state {
            State::Waiting { stored_bytes } => *stored_bytes,
            State::Reading { reader, .. } => reader.remaining_bytes(),
            State::Finished(_) => 0,
        };
        Some(self.splits.iter().map(remaining).sum())
    }

    fn malformed(&self) -> u64 {
        let open = self.splits.iter().map(|(_, state)| match state {
            State::Reading { reader, .. } => reader.malformed(),
            State::Waiting { .. } | State::Finished(_) => 0,
        });
        self.malformed + open.sum::<u64>()
    }
}
