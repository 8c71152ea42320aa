//! The stores of a job's state: where they are, whose they are, and which of them go.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use cofferdam_dataflow::connector::ConnectorError;
use cofferdam_dataflow::graph::plan::TaskPlan;
use cofferdam_dataflow::guest::StateSlot;
use cofferdam_dataflow::ids::{Attempt, CheckpointId, SubtaskId};
use cofferdam_dataflow::state::SubtaskState;
use cofferdam_dataflow::state::store::StoreError;
use cofferdam_dataflow::subtask::{Cause, TaskFailure};

use super::applier::{ApplierMessage, SubtaskStore};
use super::definition::{JobDefinition, NodeParts, StateBackend};
use crate::state_store::{LocalPlace, StateMemory, StorePlace};

/// The place of a job's stores, and who brings checkpoints into them.
pub struct Stores {
    place: Arc<dyn StorePlace>,
    applier: Sender<ApplierMessage>,
}

/// Whose state a store holds: another is of no use.
#[derive(serde::Serialize)]
struct Identity<'a> {
    job: &'a str,
    id: &'a SubtaskId,
    parallelism: u32,
    groups: (u16, u16),
    max_parallelism: u32,
    /// Name, kind, codec, schema, and whether values expire.
    slots: Vec<(&'a str, &'a str, &'a str, &'a str, bool)>,
}

/// The code of failures of stores.
const FAILURE: &str = "state-store";

/// Whether a task failed for its store, or for who knows what: then stores are built again.
pub fn is_suspect(failure: &TaskFailure) -> bool {
    match &failure.cause {
        Cause::Connector(error) => error.code == FAILURE,
        Cause::Internal(_) => true,
        Cause::Guest(_) | Cause::Rejected { .. } => false,
    }
}

pub(super) fn store_failure(id: &SubtaskId, error: &StoreError) -> TaskFailure {
    TaskFailure::connector(id.clone(), ConnectorError::transient(FAILURE, error.to_string()))
}

/// Deletes all stores of a job. They are copies of what checkpoints hold.
///
/// # Errors
/// What the operating system says.
pub fn delete_all(dir: &Path) -> std::io::Result<()> {
    LocalPlace::new(dir.to_owned()).retain(&BTreeSet::new())
}

impl Stores {
    /// Returns the stores of a place. Those that are opened are handed to the applier.
    pub fn new(place: Arc<dyn StorePlace>, applier: Sender<ApplierMessage>) -> Self {
        Self { place, applier }
    }

    /// Deletes the stores that no subtask will open: they would miss what happens from here on. Deletes all if they are
    /// suspect.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn clean(&self, definition: &JobDefinition, suspect: bool) -> std::io::Result<()> {
        let mut wanted = BTreeSet::new();
        if suspect {
            tracing::warn!("a store of state has failed; all of them are built again");
            return self.place.retain(&wanted);
        }
        for (node, part) in definition.spec.nodes.iter().zip(&definition.parts) {
            if let NodeParts::Operator { backend: StateBackend::Disk { .. }, .. } = part {
                let of = |index| SubtaskId { operator: node.id.clone(), index };
                wanted.extend((0..node.parallelism).map(of));
            }
        }
        self.place.retain(&wanted)
    }

    /// Opens the store of a subtask and puts it behind its state.
    pub(super) fn attach(
        &self,
        (attempt, definition): (Attempt, &JobDefinition),
        (plan, id): (&TaskPlan, &SubtaskId),
        slots: &[StateSlot],
        memory_bytes: u64,
        restore: Option<CheckpointId>,
        state: &mut SubtaskState,
    ) -> Result<(), TaskFailure> {
        let memory = StateMemory::divide(memory_bytes);
        let (store, problem) = self.place.open(id, memory).map_err(|error| store_failure(id, &error))?;
        if let Some(problem) = problem {
            tracing::warn!(subtask = %id, %problem, "the store of state could not be opened; it is built again");
        }
        let describe = |slot: &'_ StateSlot| slot.ttl_ms != 0;
        let identity = Identity {
            job: &definition.spec.name,
            id,
            parallelism: plan.parallelism,
            groups: (plan.groups.start, plan.groups.end),
            max_parallelism: definition.spec.max_parallelism.get().into(),
            slots: slots
                .iter()
                .map(|slot| (&*slot.name, slot.kind.name(), &*slot.codec, &*slot.schema, describe(slot)))
                .collect(),
        };
        let identity = postcard::to_allocvec(&identity).map_err(|error| store_failure(id, &StoreError(error.to_string())))?;
        let resumed = state
            .attach_store(Rc::new(Arc::clone(&store)), memory.table_bytes, &identity, restore)
            .map_err(|error| store_failure(id, &error))?;
        match (resumed, restore) {
            (Some(resumed), Some(restore)) => {
                tracing::info!(subtask = %id, %resumed, %restore, "the local store of state is used again");
            }
            (_, Some(restore)) => tracing::info!(subtask = %id, %restore, "the store of state is loaded from the checkpoint"),
            (_, None) => {}
        }
        let slots = slots.iter().enumerate().map(|(index, slot)| (slot.name.clone(), state.is_stored(index))).collect();
        let store = SubtaskStore { id: id.clone(), slots, store };
        // Lost if the applier has ended, which it does last of all.
        drop(self.applier.send(ApplierMessage::Opened { attempt, task: plan.index, store }));
        Ok(())
    }
}
