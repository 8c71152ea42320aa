//! The input gate: which channel to read next, and what its elements mean.

use super::alignment::{Aligned, BarrierAlignment};
use super::ports::{Now, Ports};
use super::time_report::{Activity, InputTime};
use super::watermark::WatermarkCombiner;
use crate::batch::Batch;
use crate::element::StreamElement;
use crate::ids::CheckpointId;
use crate::time::Watermark;

/// Reads the channels of one task in turn, leaving out those that wait for a barrier.
pub(super) struct InputGate {
    /// The input port of each channel.
    ports: Vec<u32>,
    /// What was read in search of a barrier, by channel: it is read next.
    held: Vec<Option<StreamElement>>,
    alignment: BarrierAlignment,
    watermarks: WatermarkCombiner,
    /// The channel to try first.
    next: usize,
    aligning_since_us: u64,
    /// What is due before anything else is read.
    due: Vec<GateEvent>,
    reported_end: bool,
    /// Whether it was told that every channel is idle.
    idle: bool,
}

/// What a gate has for the task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GateEvent {
    Records {
        port: u32,
        batch: Batch,
    },
    Watermark(Watermark),
    /// Every channel that has not ended is idle.
    Idle,
    /// One is not any more.
    Active,
    Snapshot {
        checkpoint: CheckpointId,
        full: bool,
        stop: bool,
        alignment_us: u64,
    },
    Aborted(CheckpointId),
    /// Once, when every channel has ended.
    AllEnded,
}

impl InputGate {
    pub(super) fn new(ports: Vec<u32>, restored: Option<Watermark>) -> Self {
        Self {
            alignment: BarrierAlignment::new(ports.len()),
            watermarks: WatermarkCombiner::new(ports.len(), restored),
            held: ports.iter().map(|_| None).collect(),
            ports,
            next: 0,
            aligning_since_us: 0,
            due: Vec::new(),
            reported_end: false,
            idle: false,
        }
    }

    /// Returns the combined watermark.
    pub(super) fn watermark(&self) -> Option<Watermark> {
        self.watermarks.current()
    }

    /// Returns a snapshot to take, or one to give up, if nothing that must be handled before it is due or comes before it in
    /// a channel. `None` if there is none for now.
    pub(super) fn poll_cut(&mut self, ports: &mut dyn Ports, now: Now) -> Option<GateEvent> {
        for channel in 0..self.ports.len() {
            if !self.due.is_empty() || !self.alignment.may_read(channel) || self.held[channel].is_some() {
                continue;
            }
            match ports.pop(channel) {
                Some(barrier @ StreamElement::Barrier(_)) => self.control(channel, &barrier, now),
                other => self.held[channel] = other,
            }
        }
        let is_cut = matches!(self.due.first(), Some(GateEvent::Snapshot { .. } | GateEvent::Aborted(_)));
        is_cut.then(|| self.due.remove(0))
    }

    /// Reads on. `None` if nothing can be read.
    pub(super) fn poll(&mut self, ports: &mut dyn Ports, now: Now) -> Option<GateEvent> {
        loop {
            if !self.due.is_empty() {
                return Some(self.due.remove(0));
            }
            if self.alignment.all_ended() {
                let first = !std::mem::replace(&mut self.reported_end, true);
                return first.then_some(GateEvent::AllEnded);
            }
            let channels = self.ports.len();
            let turn = (0..channels).map(|offset| (self.next + offset) % channels);
            let (channel, element) = turn.filter(|channel| self.alignment.may_read(*channel)).find_map(|channel| {
                let element = self.held[channel].take().or_else(|| ports.pop(channel))?;
                Some((channel, element))
            })?;
            self.next = (channel + 1) % channels;
            if let StreamElement::Records(batch) = element {
                return Some(GateEvent::Records { port: self.ports[channel], batch });
            }
            self.control(channel, &element, now);
        }
    }

    fn control(&mut self, channel: usize, element: &StreamElement, now: Now) {
        match element {
            StreamElement::Records(_) => {}
            StreamElement::Watermark(watermark) => {
                self.active(channel);
                let advanced = self.watermarks.advance(channel, *watermark);
                self.due.extend(advanced.map(GateEvent::Watermark));
            }
            StreamElement::Idle => {
                let advanced = self.watermarks.idle(channel);
                self.inactive(advanced);
            }
            StreamElement::Active => self.active(channel),
            StreamElement::Barrier(barrier) => {
                let was_aligning = self.alignment.current();
                let aligned = self.alignment.barrier(channel, *barrier);
                if was_aligning != Some(barrier.checkpoint) {
                    self.aligning_since_us = now.monotonic_us;
                }
                self.aligned(aligned, now);
            }
            StreamElement::EndOfInput => {
                // The cut first: what the watermark of an ended input makes due comes after it.
                let aligned = self.alignment.end(channel);
                self.aligned(aligned, now);
                let advanced = self.watermarks.end(channel);
                self.inactive(advanced);
            }
        }
    }

    /// A channel counts again. That is told before what comes of it.
    fn active(&mut self, channel: usize) {
        self.watermarks.active(channel);
        if std::mem::replace(&mut self.idle, false) {
            self.due.push(GateEvent::Active);
        }
    }

    /// A channel counts no more, by which the watermark may have `advanced`. What comes of that is told before.
    fn inactive(&mut self, advanced: Option<Watermark>) {
        self.due.extend(advanced.map(GateEvent::Watermark));
        if self.watermarks.all_idle() && !std::mem::replace(&mut self.idle, true) {
            self.due.push(GateEvent::Idle);
        }
    }

    /// Returns where each channel is in event time.
    pub(super) fn time(&self) -> Vec<InputTime> {
        let inputs = self.watermarks.inputs().enumerate();
        inputs
            .map(|(channel, (watermark, activity))| {
                let waits_for_barriers = activity != Activity::Ended && !self.alignment.may_read(channel);
                InputTime { watermark, activity, waits_for_barriers }
            })
            .collect()
    }

    fn aligned(&mut self, aligned: Aligned, now: Now) {
        self.due.extend(aligned.aborted.map(GateEvent::Aborted));
        let alignment_us = now.monotonic_us.saturating_sub(self.aligning_since_us);
        let (full, stop) = (aligned.full, aligned.stop);
        self.due.extend(aligned.snapshot.map(|checkpoint| GateEvent::Snapshot { checkpoint, full, stop, alignment_us }));
    }

    /// A checkpoint will not complete. Returns whether it had not been handled.
    pub(super) fn give_up(&mut self, checkpoint: CheckpointId) -> bool {
        self.due.retain(|event| !matches!(event, GateEvent::Snapshot { checkpoint: due, .. } if *due == checkpoint));
        self.alignment.abort(checkpoint).is_some()
    }

    /// A trigger has come. Returns whether to take a snapshot for it: all channels have ended, and it is news.
    pub(super) fn accepts_trigger(&mut self, checkpoint: CheckpointId) -> bool {
        self.reported_end && self.alignment.handle_trigger(checkpoint)
    }
}
