//! Blocking work for the job, in the order it was asked for, on a thread of its own: storage, and the sinks' committers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use cofferdam_dataflow::checkpoint::coordinator::CheckpointCommand;
use cofferdam_dataflow::checkpoint::recovery::{Claim, recover};
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::retention::Deletion;
use cofferdam_dataflow::checkpoint::segment::SpilledSegment;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, NewSavepoint, StorageError};
use cofferdam_dataflow::connector::{SinkCommitter, Transaction};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, OperatorId, SubtaskId};
use cofferdam_dataflow::job::failure::FailureCause;
use cofferdam_dataflow::job::master::{JobCommand, JobEvent};
use cofferdam_dataflow::subtask::TaskFailure;

use super::build::{Splits, discover};
use super::definition::{JobDefinition, NodeParts};

/// What the thread does.
pub enum Work {
    /// A command of the job master that touches storage or sinks.
    Command(JobCommand),
    /// Find the splits of an attempt's sources.
    Discover {
        /// The attempt.
        attempt: Attempt,
        /// What it begins with.
        restore: Option<Box<RestorePlan>>,
    },
}

/// What came of it.
pub enum Done {
    /// An event for the job master.
    Job(JobEvent),
    /// The splits, or why there are none.
    Discovered {
        /// The attempt.
        attempt: Attempt,
        /// What it begins with.
        restore: Option<Box<RestorePlan>>,
        /// What was found.
        splits: Result<Splits, Box<TaskFailure>>,
    },
}

/// Starts the thread. It ends when the sender is dropped.
pub(super) fn start(
    definition: Arc<JobDefinition>,
    storage: Arc<dyn CheckpointStorage>,
    report: impl Fn(Done) + Send + 'static,
) -> std::io::Result<(Sender<Work>, JoinHandle<()>)> {
    let (sender, receiver) = channel::<Work>();
    let run = move || {
        let mut io = Io::new(definition, storage);
        for work in receiver {
            if let Some(done) = io.perform(work) {
                report(done);
            }
        }
    };
    let thread = std::thread::Builder::new().name("job-io".into()).spawn(run)?;
    Ok((sender, thread))
}

/// Does blocking work, one piece after the other.
pub struct Io {
    definition: Arc<JobDefinition>,
    storage: Arc<dyn CheckpointStorage>,
    /// Opened when first needed.
    committers: BTreeMap<OperatorId, Box<dyn SinkCommitter>>,
    /// What could not be deleted yet.
    undeleted: Deletion,
    /// The attempts of this process: what another has taken over, it leaves alone.
    claim: Claim,
}

impl Io {
    /// Returns what works on this storage.
    pub fn new(definition: Arc<JobDefinition>, storage: Arc<dyn CheckpointStorage>) -> Self {
        Self { definition, storage, committers: BTreeMap::new(), undeleted: Deletion::default(), claim: Claim::default() }
    }

    /// Does a piece of work and returns what came of it, if anybody wants to know.
    pub fn perform(&mut self, work: Work) -> Option<Done> {
        match work {
            Work::Command(command) => self.command(command).map(Done::Job),
            Work::Discover { attempt, restore } => {
                let splits = discover(&self.definition, restore.as_deref()).map_err(Box::new);
                Some(Done::Discovered { attempt, restore, splits })
            }
        }
    }

    fn command(&mut self, command: JobCommand) -> Option<JobEvent> {
        match command {
            JobCommand::Recover(options) => {
                // What is on the storage is found anew.
                self.undeleted = Deletion::default();
                Some(match recover(&*self.storage, options, &mut self.claim) {
                    Ok(recovery) => JobEvent::Recovered(Box::new(recovery)),
                    Err(error) => JobEvent::RecoverFailed(error),
                })
            }
            JobCommand::SettleSinks { attempt, checkpoint, commit } => Some(match self.settle(attempt, checkpoint, &commit) {
                Ok(()) => JobEvent::SinksSettled,
                Err(cause) => JobEvent::SettleFailed(cause),
            }),
            JobCommand::MarkFinished { checkpoint } => Some(match self.mark_finished(checkpoint) {
                Ok(()) => JobEvent::FinishedMarked,
                Err(error) => JobEvent::MarkFailed(error),
            }),
            JobCommand::Checkpoint(command) => self.checkpoint(command),
            JobCommand::StartAttempt { .. }
            | JobCommand::DrainSources { .. }
            | JobCommand::CancelTasks { .. }
            | JobCommand::ScheduleTick { .. }
            | JobCommand::Report(_)
            | JobCommand::End(_) => None,
        }
    }

    /// Writes what a manifest names and cannot hold.
    fn spill(&self, attempt: Attempt, spilled: &[SpilledSegment]) -> Result<(), StorageError> {
        if !spilled.is_empty() {
            self.storage.check_fence(attempt)?;
        }
        spilled.iter().try_for_each(|segment| segment.write(&*self.storage))
    }

    fn checkpoint(&mut self, command: CheckpointCommand) -> Option<JobEvent> {
        match command {
            CheckpointCommand::PublishManifest { attempt, checkpoint, bytes, spilled } => {
                let publish = || {
                    self.spill(attempt, &spilled)?;
                    self.storage.publish_manifest(attempt, checkpoint, &bytes)
                };
                Some(match publish() {
                    Ok(()) => JobEvent::ManifestPublished { checkpoint },
                    Err(error) => JobEvent::ManifestFailed { checkpoint, error },
                })
            }
            CheckpointCommand::PublishSavepoint { attempt, checkpoint, path, segments, bytes, spilled } => {
                let savepoint = NewSavepoint { checkpoint, path: &path, segments: &segments, manifest: &bytes };
                let publish = || {
                    self.spill(attempt, &spilled)?;
                    self.storage.publish_savepoint(attempt, savepoint)
                };
                Some(match publish() {
                    Ok(()) => JobEvent::SavepointPublished { checkpoint },
                    Err(error) => JobEvent::SavepointFailed { checkpoint, error },
                })
            }
            CheckpointCommand::DiscardSavepoint { path } => {
                warn_of(self.storage.delete_savepoint(&path));
                None
            }
            CheckpointCommand::CommitSinks { attempt, checkpoint, transactions, savepoint } => {
                Some(match self.commit(attempt, Some(checkpoint), &transactions) {
                    Ok(()) => {
                        if let Some(path) = savepoint
                            && let Err(error) = self.storage.mark_savepoint_committed(&path, checkpoint)
                        {
                            // Committing again what is committed changes nothing.
                            tracing::warn!(%error, "could not mark the savepoint as committed");
                        }
                        JobEvent::SinksCommitted { checkpoint }
                    }
                    Err(cause) => JobEvent::CommitFailed { checkpoint, cause },
                })
            }
            CheckpointCommand::Discard { segments } => {
                match self.claim.check(&*self.storage) {
                    Ok(()) => segments.into_iter().for_each(|segment| warn_of(self.storage.delete_segment(segment))),
                    Err(error) => warn_of(Err(error)),
                }
                None
            }
            CheckpointCommand::Delete(deletion) => {
                // A segment may go only after every checkpoint that names it: what failed before comes first.
                self.undeleted.checkpoints.extend(deletion.checkpoints);
                self.undeleted.segments.extend(deletion.segments);
                let result = self.claim.check(&*self.storage).and_then(|()| self.undeleted.apply(&*self.storage));
                if result.is_ok() {
                    self.undeleted = Deletion::default();
                }
                warn_of(result);
                None
            }
            CheckpointCommand::Trigger { .. }
            | CheckpointCommand::NotifyCompleted { .. }
            | CheckpointCommand::NotifyAborted { .. } => None,
        }
    }

    fn mark_finished(&self, checkpoint: CheckpointId) -> Result<(), StorageError> {
        self.claim.check(&*self.storage)?;
        self.storage.mark_finished(checkpoint)
    }

    /// Commits transactions and marks their checkpoint, after a last look at whether this attempt may.
    fn commit(
        &mut self,
        attempt: Attempt,
        checkpoint: Option<CheckpointId>,
        transactions: &BTreeMap<OperatorId, Vec<Transaction>>,
    ) -> Result<(), FailureCause> {
        self.storage.check_fence(attempt).map_err(|error| FailureCause::from(&error))?;
        for (sink, transactions) in transactions {
            if let Some(committer) = self.committer(sink)? {
                committer.commit(transactions).map_err(|error| FailureCause::from(&error))?;
            }
        }
        match checkpoint {
            Some(checkpoint) => self.storage.mark_committed(checkpoint).map_err(|error| FailureCause::from(&error)),
            None => Ok(()),
        }
    }

    /// Settles what an earlier attempt left: commits what its checkpoint promises, and aborts the rest.
    fn settle(
        &mut self,
        attempt: Attempt,
        checkpoint: Option<CheckpointId>,
        commit: &BTreeMap<OperatorId, Vec<Transaction>>,
    ) -> Result<(), FailureCause> {
        self.commit(attempt, checkpoint, commit)?;
        // The commit may have taken long: what is aborted below must not be that of another process.
        self.storage.check_fence(attempt).map_err(|error| FailureCause::from(&error))?;
        let nodes = self.definition.spec.nodes.iter().zip(&self.definition.parts);
        let sinks: Vec<_> =
            nodes.filter(|(_, parts)| matches!(parts, NodeParts::Sink { .. })).map(|(node, _)| node.id.clone()).collect();
        for sink in sinks {
            if let Some(committer) = self.committer(&sink)? {
                committer.abort_all_except(&[]).map_err(|error| FailureCause::from(&error))?;
            }
        }
        Ok(())
    }

    fn committer(&mut self, sink: &OperatorId) -> Result<Option<&mut Box<dyn SinkCommitter>>, FailureCause> {
        if !self.committers.contains_key(sink) {
            let position = self.definition.spec.nodes.iter().position(|node| node.id == *sink);
            let Some(NodeParts::Sink { factory }) = position.map(|position| &self.definition.parts[position]) else {
                return Err(FailureCause::Restore(format!(
                    "the checkpoint has transactions of \"{sink}\", which is not a sink here"
                )));
            };
            match factory.committer().map_err(|error| FailureCause::from(&error))? {
                Some(committer) => drop(self.committers.insert(sink.clone(), committer)),
                None => return Ok(None),
            }
        }
        Ok(self.committers.get_mut(sink))
    }
}

/// What could not be deleted is an orphan: the next start removes it.
fn warn_of(result: Result<(), StorageError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "could not delete what is not needed any more");
    }
}

/// The subtask that a failure of a whole attempt is charged to.
pub(super) fn anyone(definition: &JobDefinition) -> SubtaskId {
    SubtaskId { operator: definition.spec.nodes[0].id.clone(), index: 0 }
}
