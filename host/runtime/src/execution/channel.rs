//! Channels between the threads of tasks: bounded by bytes, with room for control elements at any time.
//!
//! A channel holds [`CREDIT_BYTES`] of records and then refuses more; an empty one takes a batch of any size, so nothing is
//! too large to pass. Control elements are few: watermarks replace one another, barriers are bounded by the
//! checkpoints in flight. Whoever waits for the other side is woken by it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use cofferdam_dataflow::element::StreamElement;

/// Bytes of records in one channel, at most, unless a single batch is larger.
const CREDIT_BYTES: usize = 1 << 20;

/// Wakes the thread of a task. A wake-up that comes before the wait is not lost.
#[derive(Default)]
pub(super) struct Wakeup {
    thread: OnceLock<Thread>,
    /// Set while nobody has to be woken twice.
    pending: AtomicBool,
}

impl Wakeup {
    /// Makes the calling thread the one that is woken.
    pub(super) fn attach(&self) {
        drop(self.thread.set(std::thread::current()));
    }

    /// Ends the current wait, or the next.
    pub(super) fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Waits until woken, or for so long.
    pub(super) fn wait(&self, timeout: Duration) {
        if !self.pending.swap(false, Ordering::AcqRel) {
            std::thread::park_timeout(timeout);
            self.pending.store(false, Ordering::Release);
        }
    }
}

/// One FIFO from one task to another.
pub(super) struct Channel {
    queue: Mutex<Queue>,
    producer: Arc<Wakeup>,
    consumer: Arc<Wakeup>,
}

#[derive(Default)]
struct Queue {
    elements: VecDeque<StreamElement>,
    bytes: usize,
    /// Whether the producer was refused and must be woken.
    refused: bool,
}

impl Channel {
    pub(super) fn new(producer: Arc<Wakeup>, consumer: Arc<Wakeup>) -> Self {
        Self { queue: Mutex::default(), producer, consumer }
    }

    /// Appends an element; gives records back if the channel is full.
    #[expect(clippy::result_large_err, reason = "what is refused is given back by move")]
    pub(super) fn push(&self, element: StreamElement) -> Result<(), StreamElement> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = record_bytes(&element);
        if bytes > 0 && queue.bytes > 0 && queue.bytes + bytes > CREDIT_BYTES {
            queue.refused = true;
            return Err(element);
        }
        queue.bytes += bytes;
        let was_empty = queue.elements.is_empty();
        match queue.elements.back_mut() {
            Some(last) if element.replaces(last) => *last = element,
            _ => queue.elements.push_back(element),
        }
        drop(queue);
        if was_empty {
            self.consumer.wake();
        }
        Ok(())
    }

    /// Takes the next element.
    pub(super) fn pop(&self) -> Option<StreamElement> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let element = queue.elements.pop_front()?;
        queue.bytes -= record_bytes(&element);
        // Half empty, so that the producer is not woken for every batch.
        let wake = queue.refused && queue.bytes <= CREDIT_BYTES / 2;
        if wake {
            queue.refused = false;
        }
        drop(queue);
        if wake {
            self.producer.wake();
        }
        Some(element)
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).elements.is_empty()
    }
}

fn record_bytes(element: &StreamElement) -> usize {
    match element {
        StreamElement::Records(batch) => batch.bytes().max(1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::batch::Batch;
    use cofferdam_dataflow::element::Barrier;
    use cofferdam_dataflow::ids::CheckpointId;
    use cofferdam_dataflow::time::{EventTime, Watermark};

    use super::*;

    fn records(bytes: usize) -> StreamElement {
        let mut batch = Batch::default();
        batch.push(None, None, &vec![0; bytes]);
        StreamElement::Records(batch)
    }

    #[test]
    fn a_full_channel_refuses_records_and_takes_control_elements() {
        let channel = Channel::new(Arc::default(), Arc::default());
        channel.push(records(3 * CREDIT_BYTES)).expect("an empty channel takes a batch of any size");
        assert!(channel.push(records(1)).is_err());
        let barrier = StreamElement::Barrier(Barrier { checkpoint: CheckpointId(1), full: false, stop: false, cancelled: false });
        channel.push(barrier.clone()).unwrap();
        assert!(matches!(channel.pop(), Some(StreamElement::Records(_))));
        channel.push(records(1)).unwrap();
        assert_eq!(channel.pop(), Some(barrier), "order is kept");
    }

    #[test]
    fn watermarks_that_nobody_has_read_replace_one_another() {
        let channel = Channel::new(Arc::default(), Arc::default());
        for ms in 0..10 {
            channel.push(StreamElement::Watermark(Watermark(EventTime(ms)))).unwrap();
        }
        channel.push(StreamElement::Watermark(Watermark::MAX)).unwrap();
        assert_eq!(channel.pop(), Some(StreamElement::Watermark(Watermark(EventTime(9)))));
        assert_eq!(channel.pop(), Some(StreamElement::Watermark(Watermark::MAX)), "the end says less than how far it came");
        assert!(channel.is_empty());
    }

    #[test]
    fn a_refused_producer_is_woken_when_there_is_room() {
        let producer = Arc::new(Wakeup::default());
        let channel = Channel::new(Arc::clone(&producer), Arc::default());
        channel.push(records(CREDIT_BYTES)).unwrap();
        assert!(channel.push(records(1)).is_err());
        assert!(!producer.pending.load(Ordering::Acquire));
        channel.pop();
        assert!(producer.pending.load(Ordering::Acquire));
    }
}
