//! Where state is between checkpoints: the `[state]` table, and what operators set for themselves.

use super::diagnostic::Problems;
use super::section::Section;

pub(super) const KEYS: &[&str] = &["backend", "memory"];

const MIB: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 256 * MIB;
/// Below, a store has no room for its own buffers.
const MEMORY_RANGE: std::ops::RangeInclusive<u64> = 4 * MIB..=1 << 40;

/// Where the state of an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateOptions {
    /// In memory.
    Memory,
    /// On the local disk, with so much memory for each subtask.
    Disk {
        /// Bytes.
        memory_bytes: u64,
    },
}

/// The names that a table has for the two keys.
pub(super) struct Names {
    backend: &'static str,
    memory: &'static str,
}

/// Those of `[state]`.
pub(super) const IN_STATE: Names = Names { backend: "backend", memory: "memory" };
/// Those of an operator.
pub(super) const IN_OPERATOR: Names = Names { backend: "state-backend", memory: "state-memory" };

/// What a table says, key by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StateKeys {
    on_disk: Option<bool>,
    memory_bytes: Option<u64>,
}

impl StateKeys {
    /// Reads the keys. `outer` is what is set around the table, as far as it is.
    pub(super) fn read(section: &Section<'_, '_>, names: &Names, outer: &Self, problems: &mut Problems) -> Self {
        let word = section.word(names.backend, &["memory", "disk"], problems);
        let on_disk = word.map(|word| word.value == "disk").or(outer.on_disk);
        if section.get(names.memory).is_some() && on_disk != Some(true) {
            let message = format!("\"{}\" is set for state that is in memory", names.memory);
            let help = format!("add {} = \"disk\", or drop the key", names.backend);
            problems.add_with_help(section.key_span(names.memory), "contradiction", message, help);
        }
        let memory_bytes = section.bytes(names.memory, MEMORY_RANGE, problems).or(outer.memory_bytes);
        Self { on_disk, memory_bytes }
    }

    pub(super) fn options(&self) -> StateOptions {
        match self.on_disk {
            Some(true) => StateOptions::Disk { memory_bytes: self.memory_bytes.unwrap_or(MEMORY_BYTES) },
            _ => StateOptions::Memory,
        }
    }
}
