//! What a process does for the stores behind its state, as the executor's loop does it.

use cofferdam::execution::parts::{Applied, failure_of};
use cofferdam_dataflow::ids::{Attempt, TaskIndex};
use cofferdam_dataflow::job::master::JobEvent;
use cofferdam_dataflow::state::MemoryPressure;
use cofferdam_dataflow::subtask::TaskCommand;

use super::super::applying::Said;
use super::super::dials::Dials;
use super::super::random::Random;
use super::{Event, Message, Process, Sender};

impl Process {
    pub(super) fn act_applier(&mut self, now_us: u64, dials: &Dials, random: &mut Random) {
        let said = self.applying.iter_mut().flat_map(|applying| applying.act(now_us, dials, random)).collect::<Vec<_>>();
        let at = now_us + dials.delay(random);
        for said in said {
            let message = match said {
                Said::Applied(applied) => Message::Applied(applied),
                Said::Closed(attempt) => Message::Event(JobEvent::TasksStopped { attempt }),
            };
            self.inbox.entry(Sender::Applier).or_default().push_back((at, message));
        }
    }

    pub(super) fn note_applied(&mut self, applied: Applied, now_us: u64, dials: &Dials, random: &mut Random) {
        match applied {
            Applied::Done { attempt, task, checkpoint } => {
                if self.running.as_ref().is_some_and(|running| running.parts.attempt == attempt) {
                    self.events.push(Event::Applied(checkpoint, task));
                    self.command_tasks(Some(&[task]), TaskCommand::Applied(checkpoint), (now_us, dials, random));
                }
            }
            Applied::Failed { attempt, failure } => {
                self.suspect();
                self.tell(JobEvent::Failed { attempt, failure: failure_of(*failure) }, now_us, dials, random);
            }
        }
    }

    pub(super) fn suspect(&mut self) {
        self.applying.iter_mut().for_each(|applying| applying.suspect = true);
    }

    pub(super) fn note_pressure(
        &mut self,
        (attempt, task, pressure): (Attempt, TaskIndex, MemoryPressure),
        now_us: u64,
        dials: &Dials,
        random: &mut Random,
    ) {
        let Some(running) = self.running.as_mut().filter(|running| running.parts.attempt == attempt) else { return };
        if let Some(held) = running.holding.note(task, pressure) {
            self.command_tasks(None, TaskCommand::Hold(held), (now_us, dials, random));
        }
        if pressure != MemoryPressure::None {
            self.tell(JobEvent::CheckpointWanted { attempt }, now_us, dials, random);
        }
    }
}
