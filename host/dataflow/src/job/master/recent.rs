//! Recognises a failure that comes back at the same place: a record that no restart gets past.

use crate::ids::SubtaskId;
use crate::job::failure::Failure;

/// How often the same failure ends the job.
const TIMES_MAX: u32 = 3;

/// The last failure and how often it has come in a row, without a completed checkpoint in between.
#[derive(Clone, Debug, Default)]
pub(super) struct RepeatedFault {
    last: Option<(Option<SubtaskId>, u64, &'static str)>,
    times: u32,
}

impl RepeatedFault {
    /// Takes note of a failure. Returns how often it has come if that is too often.
    pub(super) fn note(&mut self, failure: &Failure) -> Option<u32> {
        let place = Some((failure.subtask.clone(), failure.place, failure.cause.code()));
        if self.last == place {
            self.times += 1;
        } else {
            self.last = place;
            self.times = 1;
        }
        (self.times >= TIMES_MAX).then_some(self.times)
    }

    /// A checkpoint has been completed: the job has got further.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.times = 0;
    }
}
