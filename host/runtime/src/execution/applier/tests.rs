//! The applier without its thread: over a storage and stores in memory, told one thing after the other.

use std::cell::RefCell;
use std::rc::Rc;

use cofferdam_dataflow::checkpoint::memory::MemoryStorage;
use cofferdam_dataflow::checkpoint::segment::{SegmentEncoder, SegmentHeader, SegmentId, SpilledSegment};
use cofferdam_dataflow::guest::{StateKind, StateSlot};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism};
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock, TableId};
use cofferdam_dataflow::state::entry::Entry;
use cofferdam_dataflow::state::memory_store::MemoryStore;
use cofferdam_dataflow::state::{StateOwner, SubtaskState};

use super::*;

const ATTEMPT: Attempt = Attempt(1);
const TASK: TaskIndex = TaskIndex(0);

struct Fixture {
    storage: MemoryStorage,
    store: SharedStore,
    applier: Applier<Box<dyn Fn(Applied)>>,
    /// The checkpoints that the store was said to hold, and failures as 0.
    told: Rc<RefCell<Vec<u64>>>,
}

fn count() -> SubtaskId {
    SubtaskId { operator: OperatorId::new("count").unwrap(), index: 0 }
}

/// Gives a store its mark, as a task does that begins without a checkpoint.
fn mark(store: &SharedStore) {
    let max_parallelism = MaxParallelism::new(1).unwrap();
    let owner = StateOwner { max_parallelism, groups: max_parallelism.range(0, 1), subtask: 0 };
    let slot = StateSlot {
        name: "n".into(),
        kind: StateKind::Value,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: 0,
        ttl_on_read: false,
        prefetch: true,
    };
    let mut state = SubtaskState::new(owner, &[slot], 1, 1 << 20);
    state.attach_store(Rc::new(Arc::clone(store)), 0, b"count", None).unwrap();
    state.settle_store(None).unwrap();
}

impl Fixture {
    fn new() -> Self {
        let storage = MemoryStorage::default();
        let store: SharedStore = Arc::new(MemoryStore::default());
        mark(&store);
        let told = Rc::<RefCell<Vec<u64>>>::default();
        let to_list = Rc::clone(&told);
        let report: Box<dyn Fn(Applied)> = Box::new(move |applied| {
            to_list.borrow_mut().push(match applied {
                Applied::Done { checkpoint, .. } => checkpoint.0,
                Applied::Failed { .. } => 0,
            });
        });
        let mut applier = Applier::new(Arc::new(storage.clone()), report);
        let of = SubtaskStore { id: count(), slots: vec![("n".into(), true)], store: Arc::clone(&store) };
        applier.take(ApplierMessage::Opened { attempt: ATTEMPT, task: TASK, store: of }, &VecDeque::new());
        Self { storage, store, applier, told }
    }

    /// Writes the task's part of a checkpoint, and tells of it.
    fn write(&mut self, checkpoint: u64, kind: SectionKind, entries: &[(&str, &str)]) -> SegmentId {
        let id = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: ATTEMPT, task: TASK };
        let tables = vec![TableId { operator: count().operator, slot: "n".into() }];
        let mut encoder = SegmentEncoder::new(Vec::new(), SegmentHeader { job: "j".into(), id, tables }).unwrap();
        let mut bytes = Vec::new();
        entries.iter().for_each(|(key, value)| Entry::Put { key: key.as_bytes(), value: value.as_bytes() }.encode(&mut bytes));
        let count = u32::try_from(entries.len()).unwrap();
        encoder.push(&StateBlock { table: 0, group: KeyGroup(0), kind, entries: count, bytes }).unwrap();
        let (bytes, info) = encoder.finish().unwrap();
        SpilledSegment { id, bytes: bytes.into() }.write(&self.storage).unwrap();
        let key = SnapshotKey { attempt: ATTEMPT, checkpoint: id.checkpoint, task: TASK };
        self.applier.take(ApplierMessage::Written { key, segment: Some(info.reference) }, &VecDeque::new());
        id
    }

    /// Lets it take all of these in turn, each of which it has been told by the time of the first.
    fn complete(&mut self, checkpoints: impl IntoIterator<Item = u64>) {
        let completed = |id| ApplierMessage::Completed { attempt: ATTEMPT, checkpoint: CheckpointId(id) };
        let mut waiting: VecDeque<_> = checkpoints.into_iter().map(completed).collect();
        while let Some(message) = waiting.pop_front() {
            self.applier.take(message, &waiting);
        }
    }

    fn stored(&self, key: &str) -> Option<String> {
        let mut value = Vec::new();
        let found = self.store.get(&[&[0, 0, 0, 0], key.as_bytes()].concat(), &mut value).unwrap();
        found.then(|| String::from_utf8(value).unwrap())
    }
}

#[test]
fn every_checkpoint_gets_into_the_store_and_is_told_of() {
    let mut fixture = Fixture::new();
    fixture.write(1, SectionKind::Base, &[("a", "1"), ("b", "1")]);
    fixture.write(2, SectionKind::Delta, &[("b", "2")]);
    fixture.complete([1, 2]);
    assert_eq!(*fixture.told.borrow(), [1, 2]);
    assert_eq!((fixture.stored("a"), fixture.stored("b")), (Some("1".into()), Some("2".into())));
}

#[test]
fn after_one_that_is_gone_nothing_may_be_evicted_before_the_newest_is_in_the_store() {
    let mut fixture = Fixture::new();
    let gone = fixture.write(1, SectionKind::Delta, &[("a", "1")]);
    fixture.write(2, SectionKind::Delta, &[("b", "2")]);
    // What the deleted segment held of the group is in a later one: here the last, there might be more between.
    fixture.write(3, SectionKind::Base, &[("a", "1"), ("b", "2")]);
    fixture.storage.delete_segment(gone).unwrap();
    let told = Rc::clone(&fixture.told);
    let completed = |id| ApplierMessage::Completed { attempt: ATTEMPT, checkpoint: CheckpointId(id) };
    let mut waiting = VecDeque::from([completed(1), completed(2), completed(3)]);
    for applied in 1..=2 {
        let message = waiting.pop_front().unwrap();
        fixture.applier.take(message, &waiting);
        assert_eq!(fixture.stored("a"), None, "nothing that is there has it");
        assert!(told.borrow().is_empty(), "a may be evicted after checkpoint {applied}, and be read as missing");
    }
    fixture.complete([3]);
    assert_eq!(fixture.stored("a"), Some("1".into()));
    assert_eq!(*told.borrow(), [3]);
    // All is as ever after that.
    fixture.write(4, SectionKind::Delta, &[("b", "4")]);
    fixture.write(5, SectionKind::Delta, &[("b", "5")]);
    fixture.complete([4, 5]);
    assert_eq!(*told.borrow(), [3, 4, 5]);
}

#[test]
fn an_applier_that_is_always_late_lets_evict_again_all_the_same() {
    let mut fixture = Fixture::new();
    let gone = fixture.write(1, SectionKind::Delta, &[("a", "1")]);
    fixture.write(2, SectionKind::Base, &[("a", "2")]);
    for checkpoint in 3..=6 {
        fixture.write(checkpoint, SectionKind::Delta, &[("b", "1")]);
    }
    fixture.storage.delete_segment(gone).unwrap();
    let completed = |id| ApplierMessage::Completed { attempt: ATTEMPT, checkpoint: CheckpointId(id) };
    // There is always one more that has completed.
    for applied in 1..=5 {
        fixture.applier.take(completed(applied), &VecDeque::from([completed(applied + 1)]));
    }
    // After the first, 2 had completed; when that was looked at, 3.
    assert_eq!(*fixture.told.borrow(), [3, 4, 5]);
}

#[test]
fn a_segment_that_is_gone_while_its_checkpoint_is_the_newest_fails_the_task() {
    let mut fixture = Fixture::new();
    let gone = fixture.write(1, SectionKind::Base, &[("a", "1")]);
    fixture.storage.delete_segment(gone).unwrap();
    fixture.complete([1]);
    assert_eq!(*fixture.told.borrow(), [0]);
}

#[test]
fn nothing_is_applied_once_the_tasks_are_to_be_reset() {
    let mut fixture = Fixture::new();
    fixture.write(1, SectionKind::Base, &[("a", "1")]);
    let reset = || ApplierMessage::Reset { attempt: ATTEMPT, done: Box::new(|| {}) };
    let completed = ApplierMessage::Completed { attempt: ATTEMPT, checkpoint: CheckpointId(1) };
    fixture.applier.take(completed, &VecDeque::from([reset()]));
    assert_eq!(fixture.stored("a"), None);
    fixture.applier.take(reset(), &VecDeque::new());
    assert_eq!(Arc::strong_count(&fixture.store), 1, "the store is closed");
    assert!(fixture.told.borrow().is_empty());
}
