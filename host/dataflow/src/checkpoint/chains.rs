//! Which segments make up the state of each key group, and how a completed checkpoint changes that.
//!
//! The chain of a key group is the segments to apply in order: later entries win. A base section begins a chain anew; a
//! delta continues the chain of the newest completed checkpoint. That is right whichever completed checkpoint the task
//! knew of when it took the delta: it then holds every change since an older one, and applying a change twice is harmless.

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::{ManifestNode, ManifestNodeKind};
use super::segment::{SegmentId, SegmentInfo, SegmentRef};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, TableId};

/// The segments of a key group, oldest first.
pub type Chain = Vec<SegmentId>;

/// The chains of all tables of a checkpoint. A key group without a chain is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateChains {
    tables: BTreeMap<TableId, BTreeMap<KeyGroup, Chain>>,
    segments: BTreeMap<SegmentId, SegmentRef>,
}

impl StateChains {
    /// Returns the tables, each with the chains of its key groups.
    pub fn tables(&self) -> &BTreeMap<TableId, BTreeMap<KeyGroup, Chain>> {
        &self.tables
    }

    /// Returns exactly the segments that chains name.
    pub fn segments(&self) -> &BTreeMap<SegmentId, SegmentRef> {
        &self.segments
    }

    /// Returns how to refer to a segment of a chain.
    pub fn segment(&self, id: SegmentId) -> Option<&SegmentRef> {
        self.segments.get(&id)
    }

    /// Returns the bytes of all segments that are no files.
    pub fn inline_bytes(&self) -> usize {
        self.segments.values().filter_map(|segment| segment.inline.as_ref()).map(|bytes| bytes.len()).sum()
    }

    /// Takes note that a segment is a file, whatever it was before.
    pub(in crate::checkpoint) fn set_file(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.inline = None;
        }
    }

    /// Sets the chain of a key group; used to build what a manifest says. Segments must be noted before.
    pub(super) fn set(&mut self, table: &TableId, group: KeyGroup, chain: Chain) {
        self.tables.entry(table.clone()).or_default().insert(group, chain);
    }

    /// Forgets all that these tables hold: the next checkpoint has it in full.
    pub fn forget(&mut self, tables: &BTreeSet<TableId>) {
        self.tables.retain(|table, _| !tables.contains(table));
        let used: BTreeSet<_> = self.tables.values().flat_map(BTreeMap::values).flatten().copied().collect();
        self.segments.retain(|id, _| used.contains(id));
    }

    /// Notes how to refer to a segment.
    pub(super) fn note(&mut self, segment: SegmentRef) {
        self.segments.insert(segment.id, segment);
    }

    /// Forgets the tables that are not to be kept, and the segments that no other names.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&TableId) -> bool) {
        self.tables.retain(|table, _| keep(table));
        self.forget_unused();
    }

    fn forget_unused(&mut self) {
        let used: BTreeSet<_> = self.tables.values().flat_map(BTreeMap::values).flatten().copied().collect();
        self.segments.retain(|id, _| used.contains(id));
    }

    /// Returns the chains after a checkpoint of a job with these nodes, that wrote these segments.
    #[must_use]
    pub fn advance(&self, written: &[SegmentInfo], nodes: &[ManifestNode]) -> Self {
        let mut next = self.clone();
        for segment in written {
            next.note(segment.reference.clone());
            for section in &segment.sections {
                let table = &segment.tables[usize::from(section.table)];
                let chain = next.tables.entry(table.clone()).or_default().entry(section.group).or_default();
                if section.kind == SectionKind::Base {
                    chain.clear();
                }
                // A delta may come with a section of clears, in the same segment.
                if chain.last() != Some(&segment.reference.id) {
                    chain.push(segment.reference.id);
                }
            }
        }
        nodes.iter().for_each(|node| next.drop_gone_subtasks(node));
        next.forget_unused();
        next
    }

    /// Forgets the state of subtasks that a node has no more: it has been dealt out to those that there are.
    fn drop_gone_subtasks(&mut self, node: &ManifestNode) {
        let ManifestNodeKind::Operator { slots, .. } = &node.kind else { return };
        for slot in slots.iter().filter(|slot| !slot.kind.is_keyed()) {
            let table = TableId { operator: node.id.clone(), slot: slot.name.clone() };
            if let Some(groups) = self.tables.get_mut(&table) {
                groups.retain(|group, _| u32::from(group.0) < node.parallelism);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::segment::{ContentHash, SectionInfo};
    use super::*;
    use crate::guest::{StateKind, StateSlot};
    use crate::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};

    pub(in crate::checkpoint) fn table() -> TableId {
        TableId { operator: OperatorId::new("count").unwrap(), slot: "n".into() }
    }

    pub(in crate::checkpoint) fn written(checkpoint: u64, sections: &[(u16, SectionKind)]) -> SegmentInfo {
        let id = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(0) };
        let section = |&(group, kind)| SectionInfo { table: 0, group: KeyGroup(group), kind, entries: 0, blocks: Vec::new() };
        SegmentInfo {
            reference: SegmentRef { id, length: checkpoint, hash: ContentHash([0; 16]), inline: None },
            tables: vec![table()],
            sections: sections.iter().map(section).collect(),
        }
    }

    fn chain(chains: &StateChains, group: u16) -> Vec<u64> {
        chains.tables()[&table()][&KeyGroup(group)].iter().map(|id| id.checkpoint.0).collect()
    }

    #[test]
    fn a_base_replaces_a_chain_and_a_delta_continues_it() {
        use SectionKind::{Base, Delta};
        let first = StateChains::default().advance(&[written(1, &[(0, Base), (1, Base)])], &[]);
        let second = first.advance(&[written(2, &[(0, Delta)])], &[]);
        let third = second.advance(&[written(3, &[(0, Delta), (1, Base)])], &[]);
        assert_eq!((chain(&third, 0), chain(&third, 1)), (vec![1, 2, 3], vec![3]));
        let fourth = third.advance(&[written(4, &[(0, Base)])], &[]);
        assert_eq!((chain(&fourth, 0), chain(&fourth, 1)), (vec![4], vec![3]));
        let named: Vec<_> = fourth.segments().keys().map(|id| id.checkpoint.0).collect();
        assert_eq!(named, [3, 4], "what no chain names is dropped");
    }

    #[test]
    fn clears_and_a_delta_of_one_segment_are_one_link() {
        use SectionKind::{Base, Clears, Delta};
        let first = StateChains::default().advance(&[written(1, &[(0, Base), (1, Base)])], &[]);
        let second = first.advance(&[written(2, &[(0, Clears), (0, Delta), (1, Clears)])], &[]);
        assert_eq!((chain(&second, 0), chain(&second, 1)), (vec![1, 2], vec![1, 2]));
    }

    #[test]
    fn the_state_of_subtasks_that_are_gone_goes_with_the_first_checkpoint_after_them() {
        let slot = |kind| StateSlot {
            name: "n".into(),
            kind,
            codec: String::new(),
            schema: String::new(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: false,
        };
        let node = |kind, parallelism| {
            let kind = ManifestNodeKind::Operator { digest: String::new(), imports: Vec::new(), slots: vec![slot(kind)] };
            [ManifestNode { id: table().operator, parallelism, kind }]
        };
        let all = [written(1, &[(0, SectionKind::Base)]), written(2, &[(1, SectionKind::Base), (2, SectionKind::Base)])];
        for (kind, left) in [(StateKind::ListSplit, vec![3]), (StateKind::Broadcast, vec![3]), (StateKind::Map, vec![2, 3])] {
            let three = StateChains::default().advance(&all, &node(kind, 3));
            assert_eq!(three.tables()[&table()].len(), 3);
            let one = three.advance(&[written(3, &[(0, SectionKind::Base)])], &node(kind, 1));
            assert_eq!(one.segments().keys().map(|id| id.checkpoint.0).collect::<Vec<_>>(), left, "{kind:?}");
        }
    }

    /// What a task writes, as the table does it: changes since the newest checkpoint that it was told of.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write(u8, u8),
        Snapshot { base: bool },
        Complete,
        Abort,
        Confirm,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..6, any::<u8>()).prop_map(|(key, value)| Step::Write(key, value)),
            2 => any::<bool>().prop_map(|base| Step::Snapshot { base }),
            2 => Just(Step::Complete),
            1 => Just(Step::Abort),
            1 => Just(Step::Confirm),
        ]
    }

    type State = BTreeMap<u8, u8>;

    proptest! {
        /// Checkpoints overlap, are aborted, complete out of step with the task's knowledge: what a chain restores is
        /// always the state at the cut of the newest completed checkpoint.
        #[test]
        fn a_chain_restores_the_state_at_the_cut(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut live, mut chains) = (State::new(), StateChains::default());
            let mut files: BTreeMap<u64, State> = BTreeMap::new();
            // (checkpoint, state at the cut, kind); the oldest first.
            let mut pending: Vec<(u64, State, SectionKind)> = Vec::new();
            let (mut completed, mut confirmed) = (vec![(0, State::new())], 0);
            let mut next = 1;
            // Writes are counted: a value that goes and comes back has been written, and belongs into the increment.
            let (mut writes, mut last_write, mut cuts) = (0, BTreeMap::new(), BTreeMap::from([(0, 0)]));
            for step in steps {
                match step {
                    Step::Write(key, value) => {
                        writes += 1;
                        last_write.insert(key, writes);
                        live.insert(key, value);
                    }
                    Step::Snapshot { base } => {
                        let changed = |(key, _): &(&u8, &u8)| base || last_write[*key] > cuts[&confirmed];
                        files.insert(next, live.iter().filter(changed).map(|(k, v)| (*k, *v)).collect());
                        let kind = if base || confirmed == 0 { SectionKind::Base } else { SectionKind::Delta };
                        pending.push((next, live.clone(), kind));
                        cuts.insert(next, writes);
                        next += 1;
                    }
                    // The newest pending one completes and subsumes the older.
                    Step::Complete => if let Some((id, state, kind)) = pending.pop() {
                        pending.clear();
                        chains = chains.advance(&[written(id, &[(0, kind)])], &[]);
                        completed.push((id, state));
                    },
                    Step::Abort => { pending.pop(); }
                    Step::Confirm => confirmed = completed.last().unwrap().0,
                }
                let mut restored = State::new();
                if let Some(groups) = chains.tables().get(&table()) {
                    for id in &groups[&KeyGroup(0)] {
                        restored.extend(files[&id.checkpoint.0].clone());
                    }
                }
                prop_assert_eq!(&restored, &completed.last().unwrap().1);
            }
        }
    }
}
