//! Checkpoints of a job with little state: what they cost on the disk, with small segments as files and as parts of the manifest.
//! The writer of snapshots and the storage are the real ones; there are no tasks.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};
use cofferdam::execution::parts::{SnapshotKey, Writer, WriterMessage, Written};
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::chains::StateChains;
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::retention::{Deletion, Retention};
use cofferdam_dataflow::checkpoint::segment::{INLINE_BYTES_MAX, SegmentInfo};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, Fence};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, OperatorId, SubtaskId, TaskIndex};
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism};
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock, SubtaskPart, SubtaskSnapshot, TableId, TaskSnapshot};
use cofferdam_dataflow::state::entry::Entry;
use cofferdam_dataflow::time::ProcessingTime;

/// Keys that a task has changed between two checkpoints.
const KEYS: u32 = 20;
const CHECKPOINTS: u64 = 300;
/// How many are kept.
const KEEP: usize = 3;
/// Every so many checkpoints a task writes all it has, as the engine does when increments outweigh it.
const BASE_EVERY: u64 = 4;

pub(crate) fn print() -> Result<()> {
    println!(
        "\nsmall: {KEYS} changed keys a task, {CHECKPOINTS} checkpoints, {KEEP} kept; ms from the first block to the manifest"
    );
    println!("tasks | small segments | median | p90 | files a checkpoint");
    for tasks in [1, 2, 4, 8] {
        for (name, inline_bytes) in [("files", 0), ("in the manifest", INLINE_BYTES_MAX)] {
            let folder = std::env::temp_dir().join(format!("cofferdam-bench-small-{}", std::process::id()));
            let measured = run(&folder, tasks, inline_bytes);
            std::fs::remove_dir_all(&folder)?;
            let (mut ms, files) = measured?;
            ms.sort_by(f64::total_cmp);
            let at = |percent: usize| ms[(ms.len() - 1) * percent / 100];
            println!("{tasks} | {name} | {:.2} | {:.2} | {files:.1}", at(50), at(90));
        }
    }
    Ok(())
}

/// Returns how long each checkpoint took, and how many files it wrote on average.
fn run(folder: &Path, tasks: u32, inline_bytes: usize) -> Result<(Vec<f64>, f64)> {
    let storage = Arc::new(LocalStorage::open(folder)?.with_inline_bytes(inline_bytes));
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 })?;
    let written: Arc<Mutex<Vec<SegmentInfo>>> = Arc::default();
    let report = {
        let written = Arc::clone(&written);
        move |message| {
            if let Written::Durable { segment: Some(segment), .. } = message {
                written.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
            }
        }
    };
    let mut writer = Writer::new("small".to_owned(), Arc::<LocalStorage>::clone(&storage), report);
    let (mut chains, mut retention, mut ms, mut files) = (StateChains::default(), Retention::default(), Vec::new(), 0);
    for number in 1..=CHECKPOINTS {
        let checkpoint = CheckpointId(number);
        let begin = Instant::now();
        (0..tasks).try_for_each(|task| snapshot(&mut writer, checkpoint, task, tasks))?;
        let segments = std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner));
        if segments.len() != tasks as usize {
            bail!("{} of {tasks} snapshots were written", segments.len());
        }
        files += 1 + segments.iter().filter(|segment| segment.reference.is_file()).count();
        let manifest = manifest(checkpoint, tasks, chains.advance(&segments, &[]))?;
        storage.publish_manifest(Attempt(1), checkpoint, &manifest.encode())?;
        ms.push(begin.elapsed().as_secs_f64() * 1000.0);
        chains = manifest.state;
        retention.add(checkpoint, chains.segments().keys().copied());
        Deletion::apply(&retention.trim(KEEP), &*storage)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let files = files as f64 / CHECKPOINTS as f64;
    Ok((ms, files))
}

fn table() -> Result<TableId> {
    Ok(TableId { operator: OperatorId::new("count")?, slot: "n".to_owned() })
}

/// What the writer gets of one task.
fn snapshot<R: Fn(Written)>(writer: &mut Writer<R>, checkpoint: CheckpointId, task: u32, tasks: u32) -> Result<()> {
    let groups = u16::try_from(128 / tasks)?;
    let first = u16::try_from(task)? * groups;
    let key = SnapshotKey { attempt: Attempt(1), checkpoint, task: TaskIndex(task as usize) };
    let snapshot = TaskSnapshot {
        checkpoint,
        attempt: key.attempt,
        task: key.task,
        groups: first..first + groups,
        tables: vec![table()?],
        subtasks: Vec::new(),
        alignment_us: 0,
    };
    writer.take(WriterMessage::Begin { snapshot: Box::new(snapshot), prepared: Vec::new() });
    let kind = if checkpoint.0 % BASE_EVERY == 1 { SectionKind::Base } else { SectionKind::Delta };
    for number in 0..KEYS {
        let mut bytes = Vec::new();
        Entry::Put { key: &number.to_le_bytes(), value: &checkpoint.0.to_le_bytes() }.encode(&mut bytes);
        let group = KeyGroup(first + u16::try_from(number)? % groups);
        writer.take(WriterMessage::Block { key, block: StateBlock { table: 0, group, kind, entries: 1, bytes } });
    }
    writer.take(WriterMessage::End { key });
    Ok(())
}

fn manifest(checkpoint: CheckpointId, tasks: u32, state: StateChains) -> Result<CheckpointManifest> {
    let operator = OperatorId::new("count")?;
    let kind = ManifestNodeKind::Operator { digest: "00".repeat(32), slots: Vec::new(), imports: Vec::new() };
    let subtask = |index| SubtaskSnapshot {
        id: SubtaskId { operator: operator.clone(), index },
        watermark: None,
        finished: false,
        part: SubtaskPart::Operator { slots: Vec::new() },
    };
    let Some(max_parallelism) = MaxParallelism::new(128) else { bail!("128 key groups are possible") };
    Ok(CheckpointManifest {
        job: "small".to_owned(),
        checkpoint,
        attempt: Attempt(1),
        parent: None,
        created: ProcessingTime(0),
        engine: "bench".to_owned(),
        max_parallelism,
        is_final: false,
        nodes: vec![ManifestNode { id: operator.clone(), parallelism: tasks, kind }],
        subtasks: (0..tasks).map(subtask).collect(),
        state,
    })
}
