//! Dealing records out to the channels of an edge.
//!
//! Records gather in a batch for each channel until it is full, or its consumer has nothing to do, or a control element
//! must follow. What a full channel does not take waits here, in order; the task reads nothing meanwhile.

use std::collections::VecDeque;

use super::ports::Ports;
use crate::batch::Batch;
use crate::element::StreamElement;
use crate::graph::spec::Partition;
use crate::key_group::{KeyGroup, MaxParallelism, key_hash};

/// A batch is handed on at this many records...
const BATCH_RECORDS: usize = 1000;
/// ... or bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Records without a key reached an edge that is dealt out by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoKey;

/// One edge out of a task.
pub(super) struct OutputEdge {
    /// The output port of the chain's last node.
    pub(super) port: u32,
    partition: Partition,
    channels: Vec<OutputChannel>,
    /// For keyed edges: the channel of each key group.
    owners: Vec<u32>,
    max_parallelism: MaxParallelism,
    /// For rebalancing: the channel whose turn it is.
    turn: usize,
}

struct OutputChannel {
    /// Its number among the task's outputs.
    output: usize,
    gathering: Batch,
    waiting: VecDeque<StreamElement>,
}

impl OutputEdge {
    pub(super) fn new(port: u32, partition: Partition, outputs: std::ops::Range<usize>, max_parallelism: MaxParallelism) -> Self {
        let channel = |output| OutputChannel { output, gathering: Batch::default(), waiting: VecDeque::new() };
        let channels: Vec<_> = outputs.map(channel).collect();
        let receivers = u32::try_from(channels.len()).expect("at most 32,768 subtasks");
        let owners = match partition {
            Partition::Keyed => {
                (0..max_parallelism.get()).map(|group| max_parallelism.owner(KeyGroup(group), receivers)).collect()
            }
            Partition::Forward | Partition::Rebalance | Partition::Broadcast => Vec::new(),
        };
        Self { port, partition, channels, owners, max_parallelism, turn: 0 }
    }

    /// Takes records on.
    pub(super) fn route(&mut self, batch: Batch) -> Result<(), NoKey> {
        match self.partition {
            Partition::Keyed if self.channels.len() > 1 => return self.route_by_key(&batch),
            Partition::Keyed if batch.keys.is_none() => return Err(NoKey),
            Partition::Keyed | Partition::Forward => self.channels[0].take(batch),
            Partition::Rebalance => {
                self.channels[self.turn].take(batch);
                self.turn = (self.turn + 1) % self.channels.len();
            }
            Partition::Broadcast => {
                let (last, others) = self.channels.split_last_mut().expect("an edge has a channel");
                others.iter_mut().for_each(|channel| channel.take(batch.clone()));
                last.take(batch);
            }
        }
        Ok(())
    }

    fn route_by_key(&mut self, batch: &Batch) -> Result<(), NoKey> {
        let keys = batch.keys.as_ref().ok_or(NoKey)?;
        for record in 0..batch.len() {
            let key = keys.get(record);
            let hash = batch.hashes.get(record).copied().unwrap_or_else(|| key_hash(key));
            let owner = self.owners[usize::from(self.max_parallelism.group_of(hash).0)];
            let channel = &mut self.channels[owner as usize];
            channel.make_uniform(true);
            channel.gathering.push_hashed(key, hash, batch.timestamps.get(record), batch.values.get(record));
            channel.close_if_full();
        }
        Ok(())
    }

    /// Sends a control element after everything before it, to every channel.
    pub(super) fn control(&mut self, element: &StreamElement) {
        for channel in &mut self.channels {
            channel.close();
            channel.waiting.push_back(element.clone());
        }
    }

    /// Hands on what the channels take. `all`: even batches that are not full. Returns whether nothing waits.
    pub(super) fn flush(&mut self, ports: &mut dyn Ports, all: bool) -> bool {
        let mut clear = true;
        for channel in &mut self.channels {
            if !channel.gathering.is_empty() && (all || ports.is_starving(channel.output)) {
                channel.close();
            }
            clear &= channel.flush(ports);
        }
        clear
    }
}

impl OutputChannel {
    fn take(&mut self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        self.make_uniform(batch.keys.is_some());
        let fits = batch.len() <= BATCH_RECORDS && batch.bytes() <= BATCH_BYTES;
        if fits && self.gathering.is_empty() {
            self.gathering = batch;
            self.close_if_full();
            return;
        }
        // About as many records at a time as make a batch.
        let step = (BATCH_BYTES / (batch.bytes() / batch.len()).max(1)).clamp(1, BATCH_RECORDS);
        for from in (0..batch.len()).step_by(step) {
            self.gathering.extend(&batch, from, (from + step).min(batch.len()));
            self.close_if_full();
        }
    }

    /// A batch is keyed, or it is not: records of the other kind begin a new one.
    fn make_uniform(&mut self, keyed: bool) {
        if self.gathering.keys.is_some() != keyed {
            self.close();
        }
    }

    fn close_if_full(&mut self) {
        if self.gathering.len() >= BATCH_RECORDS || self.gathering.bytes() >= BATCH_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.gathering.is_empty() {
            self.waiting.push_back(StreamElement::Records(std::mem::take(&mut self.gathering)));
        }
    }

    fn flush(&mut self, ports: &mut dyn Ports) -> bool {
        while let Some(element) = self.waiting.pop_front() {
            if let Err(element) = ports.push(self.output, element) {
                self.waiting.push_front(element);
                return false;
            }
        }
        true
    }
}
