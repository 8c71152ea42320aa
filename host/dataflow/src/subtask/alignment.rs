//! Barrier alignment: which channels wait for the others, and when the cut is reached.
//!
//! A channel that has delivered the barrier of the checkpoint at hand is blocked until every other has delivered it or
//! has ended. A newer barrier, a cancelled one, or an abort from outside gives the alignment up and releases everything.
//! Ids at or below the highest one handled are ignored, so late barriers and notices do no harm.

use std::collections::BTreeSet;

use crate::element::Barrier;
use crate::ids::CheckpointId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Open,
    Blocked,
    Ended,
}

/// The alignment of one task's input channels.
#[derive(Clone, Debug)]
pub struct BarrierAlignment {
    channels: Vec<Channel>,
    /// The checkpoint that is being aligned.
    current: Option<CheckpointId>,
    /// Whether that one is full.
    full: bool,
    /// Whether the job stops at it.
    stop: bool,
    /// The highest checkpoint that was snapshotted or given up.
    handled: Option<CheckpointId>,
    /// Checkpoints above `handled` that will not complete.
    aborted: BTreeSet<CheckpointId>,
}

/// What an event leads to. Both may be set: an older checkpoint is given up, and the newer one is complete at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aligned {
    /// This checkpoint was given up; its barriers must not be waited for downstream either.
    pub aborted: Option<CheckpointId>,
    /// Every channel is at the cut of this checkpoint: take the snapshot before anything else is read.
    pub snapshot: Option<CheckpointId>,
    /// Whether that snapshot holds all state.
    pub full: bool,
    /// Whether nothing may happen after it.
    pub stop: bool,
}

impl BarrierAlignment {
    /// Returns the alignment of so many open channels.
    pub fn new(channels: usize) -> Self {
        Self {
            channels: vec![Channel::Open; channels],
            current: None,
            full: false,
            stop: false,
            handled: None,
            aborted: BTreeSet::new(),
        }
    }

    /// Whether a channel may be read.
    pub fn may_read(&self, channel: usize) -> bool {
        self.channels[channel] == Channel::Open
    }

    /// Whether every channel has ended.
    pub fn all_ended(&self) -> bool {
        self.channels.iter().all(|channel| *channel == Channel::Ended)
    }

    /// Returns the checkpoint that is being aligned.
    pub fn current(&self) -> Option<CheckpointId> {
        self.current
    }

    /// A barrier was read from `channel`.
    pub fn barrier(&mut self, channel: usize, barrier: Barrier) -> Aligned {
        let id = barrier.checkpoint;
        if barrier.cancelled {
            return Aligned { aborted: self.give_up(id), ..Aligned::default() };
        }
        let is_old = self.handled.is_some_and(|handled| id <= handled) || self.current.is_some_and(|current| id < current);
        if is_old || self.aborted.contains(&id) {
            return Aligned::default();
        }
        let aborted = match self.current {
            Some(current) if current < id => self.give_up(current),
            _ => None,
        };
        (self.current, self.full, self.stop) = (Some(id), barrier.full, barrier.stop);
        self.channels[channel] = Channel::Blocked;
        Aligned { aborted, ..self.complete() }
    }

    /// `channel` has ended: it counts as aligned for every checkpoint.
    pub fn end(&mut self, channel: usize) -> Aligned {
        self.channels[channel] = Channel::Ended;
        self.complete()
    }

    /// Gives up every checkpoint up to `id`: its channel will deliver none of their barriers. Returns `id` if it had not
    /// been handled.
    fn give_up(&mut self, id: CheckpointId) -> Option<CheckpointId> {
        if self.handled.is_some_and(|handled| id <= handled) {
            return None;
        }
        if self.current.is_some_and(|current| current > id) {
            // That alignment goes on; the ids below it are not waited for anyway.
            return Some(id);
        }
        self.current = None;
        self.release();
        self.set_handled(id);
        Some(id)
    }

    /// The checkpoint `id` will not complete, says a notice from outside; others may. Returns it if that is news, even if
    /// no barrier has come yet.
    pub fn abort(&mut self, id: CheckpointId) -> Option<CheckpointId> {
        if self.current == Some(id) {
            return self.give_up(id);
        }
        let is_news = self.handled.is_none_or(|handled| id > handled) && self.aborted.insert(id);
        is_news.then_some(id)
    }

    fn set_handled(&mut self, id: CheckpointId) {
        self.handled = Some(id);
        self.aborted.retain(|aborted| *aborted > id);
    }

    fn complete(&mut self) -> Aligned {
        let Some(id) = self.current.take_if(|_| !self.channels.contains(&Channel::Open)) else {
            return Aligned::default();
        };
        self.set_handled(id);
        self.release();
        Aligned { aborted: None, snapshot: Some(id), full: self.full, stop: self.stop }
    }

    fn release(&mut self) {
        for channel in &mut self.channels {
            if *channel == Channel::Blocked {
                *channel = Channel::Open;
            }
        }
    }

    /// A snapshot of `id` was taken on a trigger rather than on barriers. Returns whether it is news.
    pub fn handle_trigger(&mut self, id: CheckpointId) -> bool {
        let is_news = self.handled.is_none_or(|handled| id > handled) && !self.aborted.contains(&id);
        if is_news {
            self.set_handled(id);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn barrier(id: u64) -> Barrier {
        Barrier { checkpoint: CheckpointId(id), full: false, stop: false, cancelled: false }
    }

    fn outcome(aborted: Option<u64>, snapshot: Option<u64>) -> Aligned {
        Aligned { aborted: aborted.map(CheckpointId), snapshot: snapshot.map(CheckpointId), ..Aligned::default() }
    }

    fn blocked(alignment: &BarrierAlignment) -> Vec<usize> {
        (0..alignment.channels.len()).filter(|channel| alignment.channels[*channel] == Channel::Blocked).collect()
    }

    #[test]
    fn a_channel_behind_its_barrier_waits_for_the_others() {
        let mut alignment = BarrierAlignment::new(2);
        assert_eq!(alignment.barrier(0, barrier(1)), outcome(None, None));
        assert!(!alignment.may_read(0) && alignment.may_read(1));
        assert_eq!(alignment.barrier(1, barrier(1)), outcome(None, Some(1)));
        assert!(alignment.may_read(0) && alignment.may_read(1));
    }

    #[test]
    fn overtaken_checkpoints_are_given_up_and_ended_channels_count() {
        let mut alignment = BarrierAlignment::new(3);
        assert_eq!(alignment.barrier(1, barrier(2)), outcome(None, None));
        assert_eq!(alignment.barrier(0, barrier(2)), outcome(None, None));
        assert_eq!(alignment.barrier(2, barrier(3)), outcome(Some(2), None));
        assert_eq!(blocked(&alignment), [2]);
        assert_eq!(alignment.barrier(0, barrier(3)), outcome(None, None));
        assert_eq!(alignment.barrier(1, barrier(4)), outcome(Some(3), None));
        assert_eq!(blocked(&alignment), [1]);
        assert_eq!(alignment.end(0), outcome(None, None));
        assert_eq!(alignment.end(2), outcome(None, Some(4)));
        assert_eq!(blocked(&alignment), [] as [usize; 0]);
    }

    #[test]
    fn a_full_snapshot_is_one_to_its_last_barrier_or_the_end_of_a_channel() {
        for ends in [false, true] {
            let mut alignment = BarrierAlignment::new(2);
            let full = Barrier { full: true, ..barrier(1) };
            assert_eq!(alignment.barrier(0, full), outcome(None, None));
            let aligned = if ends { alignment.end(1) } else { alignment.barrier(1, full) };
            assert_eq!(aligned, Aligned { full: true, ..outcome(None, Some(1)) });
            assert!(!alignment.barrier(0, barrier(2)).full);
        }
    }

    #[test]
    fn a_cancelled_barrier_releases_and_later_ones_of_that_id_are_ignored() {
        let mut alignment = BarrierAlignment::new(3);
        alignment.barrier(0, barrier(5));
        let cancelled = Barrier { checkpoint: CheckpointId(5), full: false, stop: false, cancelled: true };
        assert_eq!(alignment.barrier(1, cancelled), outcome(Some(5), None));
        assert_eq!(alignment.barrier(1, cancelled), outcome(None, None), "given up once");
        assert_eq!(alignment.barrier(2, barrier(5)), outcome(None, None));
        assert_eq!(blocked(&alignment), [] as [usize; 0]);
        alignment.barrier(0, barrier(6));
        alignment.barrier(1, barrier(6));
        assert_eq!(alignment.barrier(2, barrier(6)), outcome(None, Some(6)));
    }

    #[test]
    fn a_notice_ends_the_alignment_of_its_checkpoint_only() {
        let mut alignment = BarrierAlignment::new(2);
        alignment.barrier(0, barrier(1));
        assert_eq!(alignment.abort(CheckpointId(2)), Some(CheckpointId(2)));
        assert_eq!(blocked(&alignment), [0]);
        assert_eq!(alignment.barrier(1, barrier(1)), outcome(None, Some(1)));
        assert_eq!(alignment.barrier(0, barrier(2)), outcome(None, None), "given up in advance");
        assert!(alignment.may_read(0));
        alignment.barrier(1, barrier(3));
        assert_eq!(alignment.abort(CheckpointId(3)), Some(CheckpointId(3)));
        assert_eq!(alignment.abort(CheckpointId(3)), None);
        assert_eq!(blocked(&alignment), [] as [usize; 0]);
    }

    proptest! {
        /// Against a brute-force model: feed each channel the same ascending ids (some cancelled, some channels ending
        /// early) in a random interleaving that respects blocking; each id is snapshotted at most once, ascending, and
        /// only when every channel has delivered it or has ended.
        #[test]
        fn snapshots_are_taken_exactly_at_complete_cuts(order in prop::collection::vec(0..3_usize, 1..200), ends in prop::collection::vec(1..8_u64, 3)) {
            let mut alignment = BarrierAlignment::new(3);
            let mut next = [1_u64; 3];
            let mut ended = [false; 3];
            let mut taken = 0;
            for channel in order.into_iter().chain((0..60).map(|i| i % 3)) {
                if !alignment.may_read(channel) {
                    continue;
                }
                let result = if next[channel] > ends[channel] {
                    ended[channel] = true;
                    alignment.end(channel)
                } else {
                    next[channel] += 1;
                    alignment.barrier(channel, barrier(next[channel] - 1))
                };
                prop_assert_eq!(result.aborted, None);
                let at_cut = |id: u64| (0..3).all(|channel| ended[channel] || next[channel] > id);
                if let Some(CheckpointId(id)) = result.snapshot {
                    prop_assert_eq!(id, taken + 1);
                    prop_assert!(at_cut(id));
                    taken = id;
                } else {
                    let pending = (0..3).filter(|c| !ended[*c]).map(|c| next[c] - 1).max().unwrap_or(0);
                    prop_assert!(pending <= taken || !at_cut(taken + 1));
                }
            }
            prop_assert_eq!(taken, *ends.iter().max().unwrap());
            prop_assert!(alignment.all_ended());
        }
    }
}
