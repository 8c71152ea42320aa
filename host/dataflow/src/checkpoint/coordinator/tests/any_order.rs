//! Messages in any order, against the rules that hold in all of them.

use proptest::prelude::*;

use super::savepoint::order;
use super::*;

/// What may happen, in any order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Tick(u64),
    Snapshot(u64, usize),
    Ack(u64, usize),
    Decline(u64, usize),
    Published,
    PublishFailed(bool),
    Committed,
    Ended(usize),
    /// A checkpoint is asked for, by the number of the step.
    Ask,
    /// A savepoint is asked for.
    Save,
    Saved,
    SaveFailed,
}

fn step() -> impl Strategy<Value = Step> {
    let message = || (1u64..5, 0usize..5);
    prop_oneof![
        2 => (1u64..1500).prop_map(Step::Tick),
        6 => message().prop_map(|(checkpoint, task)| Step::Snapshot(checkpoint, task)),
        8 => message().prop_map(|(checkpoint, task)| Step::Ack(checkpoint, task)),
        1 => message().prop_map(|(checkpoint, task)| Step::Decline(checkpoint, task)),
        2 => Just(Step::Published),
        1 => any::<bool>().prop_map(Step::PublishFailed),
        2 => Just(Step::Committed),
        1 => (0usize..5).prop_map(Step::Ended),
        1 => Just(Step::Ask),
        1 => Just(Step::Save),
        2 => Just(Step::Saved),
        1 => Just(Step::SaveFailed),
    ]
}

proptest! {
    /// Whatever the order of messages: ids ascend, nothing that a manifest may name is ever discarded, completion comes
    /// after the commit and the commit after publishing, and no checkpoint both completes and is given up. A savepoint is
    /// none of this: it is saved or given up, once, and no manifest of a checkpoint names what it wrote. Who asks for a
    /// checkpoint is answered once, with one that was triggered later.
    #[test]
    fn any_order_of_messages_keeps_the_rules(steps in proptest::collection::vec(step(), 0..200)) {
        let mut bench = Bench::new(CheckpointConfig { max_concurrent: 2, tolerable_failures: 1000, ..config() });
        let (mut publishing, mut committing): (Option<u64>, Option<u64>) = (None, None);
        let (mut triggered, mut given_up, mut completed) = (0, BTreeSet::new(), BTreeSet::new());
        let mut named: BTreeSet<SegmentId> = BTreeSet::new();
        let (mut saving, mut saves): (Option<u64>, BTreeSet<u64>) = (None, BTreeSet::new());
        // By request: the newest checkpoint that was triggered before it.
        let mut waiting: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Ask => {
                    waiting.insert(number as u64, triggered);
                    bench.run(|coordinator, now| coordinator.ask(number as u64, now));
                }
                Step::Save => bench.run(|coordinator, now| coordinator.savepoint(order(), now)),
                Step::Saved => if let Some(n) = saving.take() {
                    named.retain(|segment| segment.checkpoint.0 != n);
                    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(n), now));
                },
                Step::SaveFailed => if let Some(n) = saving.take() {
                    let error = StorageError::new(StorageErrorKind::Full, "no");
                    named.retain(|segment| segment.checkpoint.0 != n);
                    bench.run(|coordinator, now| coordinator.savepoint_failed(CheckpointId(n), &error, now));
                },
                Step::Tick(ms) => { let now = bench.now + ms; bench.tick_at(now); }
                Step::Snapshot(n, task) => {
                    bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id(n, 1, TaskIndex(task)), false), now));
                }
                Step::Ack(n, task) => {
                    let id = id(n, 1, TaskIndex(task));
                    bench.run(|coordinator, now| coordinator.acknowledged(id, segment(id), now));
                }
                Step::Decline(n, task) => bench.decline(n, TaskIndex(task)),
                Step::Published => if let Some(n) = publishing.take() { bench.publish(n); },
                Step::PublishFailed(unknown) => if let Some(n) = publishing.take() {
                    let mut error = StorageError::new(StorageErrorKind::Io, "no");
                    error.outcome_unknown = unknown;
                    if !unknown {
                        named.retain(|segment| segment.checkpoint.0 != n);
                    }
                    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(n), &error, now));
                },
                Step::Committed => if let Some(n) = committing.take() { bench.commit(n); },
                Step::Ended(task) => bench.run(|coordinator, now| coordinator.task_ended(TaskIndex(task), now)),
            }
            let Outputs { commands, outcomes } = std::mem::take(&mut bench.out);
            for outcome in outcomes {
                match outcome {
                    CheckpointOutcome::AskedTaken { request, checkpoint } => {
                        let before = waiting.remove(&request);
                        prop_assert!(before.is_some_and(|before| before < checkpoint.0), "an older cut is no answer");
                        prop_assert!(!saves.contains(&checkpoint.0) && !given_up.contains(&checkpoint));
                    }
                    CheckpointOutcome::AskedFailed { request, .. } => prop_assert!(waiting.remove(&request).is_some()),
                    _ => {}
                }
            }
            for command in commands {
                match command {
                    CheckpointCommand::Trigger { checkpoint, tasks, full, .. } => {
                        prop_assert!(!full || saves.contains(&checkpoint.0) || checkpoint.0 > triggered);
                        if full {
                            saves.insert(checkpoint.0);
                        }
                        prop_assert!(checkpoint.0 == triggered + 1 || (tasks.len() == 1 && checkpoint.0 <= triggered));
                        triggered = triggered.max(checkpoint.0);
                    }
                    CheckpointCommand::PublishManifest { checkpoint, bytes, .. } => {
                        prop_assert_eq!((publishing, committing), (None, None));
                        publishing = Some(checkpoint.0);
                        let manifest = CheckpointManifest::decode(&bytes).unwrap();
                        prop_assert!(manifest.state.segments().keys().all(|segment| !saves.contains(&segment.checkpoint.0)));
                        named.extend(manifest.state.segments().keys());
                    }
                    CheckpointCommand::PublishSavepoint { checkpoint, segments, bytes, .. } => {
                        prop_assert!(saving.is_none() && saves.contains(&checkpoint.0));
                        saving = Some(checkpoint.0);
                        let manifest = CheckpointManifest::decode(&bytes).unwrap();
                        prop_assert_eq!(manifest.parent, None);
                        prop_assert_eq!(manifest.state.segments().keys().copied().collect::<Vec<_>>(), segments.clone());
                        prop_assert!(segments.iter().all(|segment| segment.checkpoint == checkpoint), "it stands on its own");
                        named.extend(segments);
                    }
                    CheckpointCommand::DiscardSavepoint { .. } => prop_assert!(false, "the attempt goes on"),
                    CheckpointCommand::CommitSinks { checkpoint, .. } => committing = Some(checkpoint.0),
                    CheckpointCommand::NotifyCompleted { checkpoint } => {
                        prop_assert!(!saves.contains(&checkpoint.0));
                        prop_assert!(committing.is_none() && !given_up.contains(&checkpoint));
                        prop_assert!(completed.last().is_none_or(|last| *last < checkpoint));
                        completed.insert(checkpoint);
                    }
                    CheckpointCommand::NotifyAborted { checkpoint } => {
                        prop_assert!(!completed.contains(&checkpoint) && given_up.insert(checkpoint));
                    }
                    CheckpointCommand::Discard { segments } => {
                        prop_assert!(segments.iter().all(|segment| !named.contains(segment)), "{:?} of {:?}", segments, named);
                    }
                    CheckpointCommand::Delete(deletion) => {
                        deletion.segments.iter().for_each(|segment| { named.remove(segment); });
                    }
                }
            }
        }
        bench.run(|coordinator, _| coordinator.end());
        let told = bench.outcomes().into_iter().filter(|outcome| matches!(outcome, CheckpointOutcome::AskedFailed { .. }));
        prop_assert_eq!(told.count(), waiting.len(), "who waits is told at the latest at the end");
    }
}
