//! What a scheduler delays, and whom it leaves standing.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_dataflow::ids::{CheckpointId, TaskIndex};

use super::random::Random;

/// The dials of a simulation that processes look at.
#[derive(Clone, Debug)]
pub struct Dials {
    /// The longest usual delay of a message, in microseconds.
    pub delay_us: u64,
    /// In how many of 1000 cases it takes up to 200 times as long.
    pub stall_permille: u64,
    /// In how many of 1000 cases the applier stands still for up to 400 ms.
    pub applier_stall_permille: u64,
    /// Bytes that a channel takes, at most.
    pub channel_bytes: usize,
    /// Until when, in microseconds, a task's snapshots are not written.
    pub frozen_writers: BTreeMap<usize, u64>,
    /// Tasks that may not encode any state: the writer has no room for it.
    pub full_writers: BTreeSet<usize>,
    /// Until when, in microseconds, a task does nothing.
    pub frozen_tasks: BTreeMap<usize, u64>,
    /// Until when, in microseconds, a task works and is told nothing.
    pub deaf_tasks: BTreeMap<usize, u64>,
    /// Until when, in microseconds, nobody learns what became of a task's snapshot for a checkpoint: a part of it is
    /// written by somebody slower.
    pub late_snapshots: BTreeMap<(CheckpointId, TaskIndex), u64>,
    /// Until when, in microseconds, no blocking work is done.
    pub frozen_io_us: u64,
}

impl Default for Dials {
    fn default() -> Self {
        Self {
            delay_us: 300,
            stall_permille: 5,
            applier_stall_permille: 0,
            channel_bytes: 400,
            frozen_writers: BTreeMap::new(),
            full_writers: BTreeSet::new(),
            frozen_tasks: BTreeMap::new(),
            deaf_tasks: BTreeMap::new(),
            late_snapshots: BTreeMap::new(),
            frozen_io_us: 0,
        }
    }
}

impl Dials {
    /// Until when a task is told nothing.
    pub(super) fn deaf(&self, task: usize) -> u64 {
        self.deaf_tasks.get(&task).copied().unwrap_or(0)
    }

    pub(super) fn delay(&self, random: &mut Random) -> u64 {
        let usual = 1 + random.below(self.delay_us);
        if random.chance(self.stall_permille) { usual * (1 + random.below(200)) } else { usual }
    }
}
