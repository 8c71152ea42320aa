//! The applier of a process: the executor's own, without its thread.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam::execution::JobDefinition;
use cofferdam::execution::parts::{Applied, Applier, ApplierMessage, Stores};
use cofferdam::state_store::StorePlace;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::ids::Attempt;

use super::dials::Dials;
use super::random::Random;

/// The longest that it stands still, in microseconds: many checkpoints.
const STALL_US: u64 = 400_000;
/// With so much to do it stands still no more: it would never be done where checkpoints are frequent.
const WAITING_MAX: usize = 20;

/// What the applier says.
pub(super) enum Said {
    Applied(Applied),
    /// No store of an attempt is open any more.
    Closed(Attempt),
}

type Saying = Arc<Mutex<VecDeque<Said>>>;

/// The stores of a process, and who writes checkpoints into them.
pub(super) struct Applying {
    place: Arc<dyn StorePlace>,
    applier: Applier<Box<dyn Fn(Applied)>>,
    sender: Sender<ApplierMessage>,
    receiver: Receiver<ApplierMessage>,
    waiting: VecDeque<ApplierMessage>,
    said: Saying,
    ready_at: u64,
    /// Whether a store has failed: the next attempt builds all of them again.
    pub(super) suspect: bool,
}

fn say(said: &Saying, what: Said) {
    said.lock().unwrap_or_else(PoisonError::into_inner).push_back(what);
}

impl Applying {
    pub(super) fn new(storage: Arc<dyn CheckpointStorage>, place: Arc<dyn StorePlace>) -> Self {
        let said = Saying::default();
        let to_queue = Arc::clone(&said);
        let report: Box<dyn Fn(Applied)> = Box::new(move |applied| say(&to_queue, Said::Applied(applied)));
        let (sender, receiver) = channel();
        let (applier, waiting) = (Applier::new(storage, report), VecDeque::new());
        Self { place, applier, sender, receiver, waiting, said, ready_at: 0, suspect: false }
    }

    /// Returns the stores of a new attempt, without those that are of no use to it.
    pub(super) fn stores(&mut self, definition: &JobDefinition) -> std::io::Result<Stores> {
        let stores = Stores::new(Arc::clone(&self.place), self.sender.clone());
        stores.clean(definition, std::mem::take(&mut self.suspect))?;
        Ok(stores)
    }

    pub(super) fn tell(&self, message: ApplierMessage) {
        self.sender.send(message).expect("its receiver is here");
    }

    pub(super) fn reset(&self, attempt: Attempt) {
        let said = Arc::clone(&self.said);
        self.tell(ApplierMessage::Reset { attempt, done: Box::new(move || say(&said, Said::Closed(attempt))) });
    }

    /// Takes in what has been sent, whoever sent it.
    pub(super) fn gather(&mut self) {
        self.waiting.extend(self.receiver.try_iter());
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.ready_at)
    }

    /// Does what it was told first, and returns what came of it.
    pub(super) fn act(&mut self, now_us: u64, dials: &Dials, random: &mut Random) -> Vec<Said> {
        if let Some(message) = self.waiting.pop_front() {
            self.applier.take(message, &self.waiting);
        }
        self.ready_at = now_us + dials.delay(random);
        if self.waiting.len() < WAITING_MAX && random.chance(dials.applier_stall_permille) {
            self.ready_at += random.below(STALL_US);
        }
        self.said.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
