//! Channels between simulated tasks, and a task's view of them.

use std::collections::VecDeque;

use cofferdam_dataflow::element::StreamElement;
use cofferdam_dataflow::subtask::{Ports, TaskEvent};

/// One FIFO; takes records up to a number of bytes, or any one batch if it is empty.
#[derive(Debug)]
pub(super) struct SimChannel {
    pub(super) elements: VecDeque<StreamElement>,
    bytes: usize,
    capacity: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl SimChannel {
    pub(super) fn new(from: usize, to: usize, capacity: usize) -> Self {
        Self { elements: VecDeque::new(), bytes: 0, capacity, from, to }
    }
}

fn record_bytes(element: &StreamElement) -> usize {
    match element {
        StreamElement::Records(batch) => batch.bytes().max(1),
        _ => 0,
    }
}

/// What a task sees of the world in one step, and what it did to it.
pub(super) struct SimPorts<'a> {
    pub(super) channels: &'a mut [SimChannel],
    pub(super) inputs: &'a [usize],
    pub(super) outputs: &'a [usize],
    pub(super) has_snapshot_room: bool,
    /// Tasks that have reason to look.
    pub(super) woken: Vec<usize>,
    pub(super) events: Vec<TaskEvent>,
}

impl Ports for SimPorts<'_> {
    fn pop(&mut self, input: usize) -> Option<StreamElement> {
        let channel = &mut self.channels[self.inputs[input]];
        let element = channel.elements.pop_front()?;
        channel.bytes -= record_bytes(&element);
        self.woken.push(channel.from);
        Some(element)
    }

    fn push(&mut self, output: usize, element: StreamElement) -> Result<(), StreamElement> {
        let channel = &mut self.channels[self.outputs[output]];
        let bytes = record_bytes(&element);
        if bytes > 0 && channel.bytes > 0 && channel.bytes + bytes > channel.capacity {
            return Err(element);
        }
        channel.bytes += bytes;
        match channel.elements.back_mut() {
            Some(last) if element.replaces(last) => *last = element,
            _ => channel.elements.push_back(element),
        }
        self.woken.push(channel.to);
        Ok(())
    }

    fn is_starving(&self, output: usize) -> bool {
        self.channels[self.outputs[output]].elements.is_empty()
    }

    fn has_snapshot_room(&self) -> bool {
        self.has_snapshot_room
    }

    fn monotonic_us(&self) -> u64 {
        // Time passes between steps only: one slice of encoding a step.
        u64::MAX
    }

    fn report(&mut self, event: TaskEvent) {
        self.events.push(event);
    }
}
