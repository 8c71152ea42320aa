//! What is written: slots, and their entries as operators see them.

use cofferdam_dataflow::guest::{StateKind, StateSlot};
use cofferdam_dataflow::state::entry::ordered_key;
use cofferdam_dataflow::time::ProcessingTime;

use super::super::show_bytes;

/// A slot to fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSlot {
    /// The operator's id in the pipeline.
    pub operator: String,
    /// The slot as the operator declares it.
    pub slot: StateSlot,
    /// In a slot with a time to live: when its entries were last used, in milliseconds since the Unix epoch, unless they say
    /// so themselves.
    pub used_ms: Option<i64>,
}

impl NewSlot {
    /// Returns a slot without a time to live. Kind, codec and schema are those that `cofferdam inspect` shows for the operator's
    /// component: a pipeline refuses state that says something else.
    pub fn new(operator: &str, name: &str, kind: StateKind, codec: &str, schema: &str) -> Self {
        let slot = StateSlot {
            name: name.to_owned(),
            kind,
            codec: codec.to_owned(),
            schema: schema.to_owned(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: kind == StateKind::Value,
        };
        Self { operator: operator.to_owned(), slot, used_ms: None }
    }

    /// Returns a slot of kind `value`, without a time to live.
    pub fn value(operator: &str, name: &str, codec: &str, schema: &str) -> Self {
        Self::new(operator, name, StateKind::Value, codec, schema)
    }

    /// Gives it a time to live, in milliseconds, and a time at which its entries were last used, in milliseconds since the Unix
    /// epoch: an entry that has expired by then is not restored. Kinds `value`, `map` and `list` only.
    #[must_use]
    pub fn expiring(mut self, ttl_ms: u64, used_ms: i64) -> Self {
        self.slot.ttl_ms = ttl_ms;
        self.used_ms = Some(used_ms);
        self
    }
}

/// An entry to write: keys as the pipeline's records carry them, values in the slot's codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    pub(super) place: Place,
    pub(super) value: Vec<u8>,
    pub(super) used_ms: Option<i64>,
}

/// Where an entry belongs, and so which kinds of slots take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Value { key: Vec<u8> },
    Map { key: Vec<u8>, entry_key: Vec<u8> },
    List { key: Vec<u8> },
    OwnList,
    Broadcast { entry_key: Vec<u8> },
}

impl NewEntry {
    fn at(place: Place, value: impl Into<Vec<u8>>) -> Self {
        Self { place, value: value.into(), used_ms: None }
    }

    /// The value of a key, for slots of kind `value`.
    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::at(Place::Value { key: key.into() }, value)
    }

    /// An entry of a key's map, for slots of kind `map`. The entry key is encoded as the operator does it, in an order that keeps.
    pub fn map(key: impl Into<Vec<u8>>, entry_key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::at(Place::Map { key: key.into(), entry_key: entry_key.into() }, value)
    }

    /// The next element of a key's list, for slots of kind `list`.
    pub fn element(key: impl Into<Vec<u8>>, element: impl Into<Vec<u8>>) -> Self {
        Self::at(Place::List { key: key.into() }, element)
    }

    /// The next element of a list that belongs to no key, for slots of kind `list-split` (which deals its elements out to the
    /// subtasks) and `list-union` (which gives all of them to every subtask).
    pub fn own_element(element: impl Into<Vec<u8>>) -> Self {
        Self::at(Place::OwnList, element)
    }

    /// An entry of the map that all subtasks have, for slots of kind `broadcast`.
    pub fn broadcast(entry_key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::at(Place::Broadcast { entry_key: entry_key.into() }, value)
    }

    /// When it was last used, in milliseconds since the Unix epoch. Only for slots with a time to live.
    #[must_use]
    pub fn used_at(mut self, used_ms: i64) -> Self {
        self.used_ms = Some(used_ms);
        self
    }

    /// Returns when it was last used, as a slot of this kind stamps it.
    pub(super) fn stamp(&self, default_ms: Option<i64>) -> Option<ProcessingTime> {
        self.used_ms.or(default_ms).map(ProcessingTime)
    }
}

impl Place {
    pub(super) fn fits(&self, kind: StateKind) -> bool {
        match self {
            Self::Value { .. } => kind == StateKind::Value,
            Self::Map { .. } => kind == StateKind::Map,
            Self::List { .. } => kind == StateKind::List,
            Self::OwnList => matches!(kind, StateKind::ListSplit | StateKind::ListUnion),
            Self::Broadcast { .. } => kind == StateKind::Broadcast,
        }
    }

    /// Returns what it is, for messages.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Value { .. } => "the value of a key",
            Self::Map { .. } => "an entry of a key's map",
            Self::List { .. } => "an element of a key's list",
            Self::OwnList => "an element of a list without key",
            Self::Broadcast { .. } => "an entry of the broadcast map",
        }
    }

    /// Returns the key that it belongs to; empty for state without keys.
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Value { key } | Self::Map { key, .. } | Self::List { key } => key,
            Self::OwnList | Self::Broadcast { .. } => &[],
        }
    }

    /// Puts the key under which it is stored into `out`; under which number a list's chunk is stored is known when it is full.
    pub(super) fn stored_key(&self, chunk: u64, out: &mut Vec<u8>) {
        match self {
            Self::Value { key } => {
                out.clear();
                out.extend_from_slice(key);
            }
            Self::Map { key, entry_key } => ordered_key(out, key, entry_key),
            Self::List { key } => ordered_key(out, key, &chunk.to_be_bytes()),
            Self::OwnList => ordered_key(out, &[], &chunk.to_be_bytes()),
            Self::Broadcast { entry_key } => ordered_key(out, &[], entry_key),
        }
    }

    /// Returns bytes of key and entry key.
    pub(super) fn key_bytes(&self) -> usize {
        let entry_key = match self {
            Self::Map { entry_key, .. } | Self::Broadcast { entry_key } => entry_key.len(),
            Self::List { .. } | Self::OwnList => size_of::<u64>(),
            Self::Value { .. } => 0,
        };
        self.key().len().saturating_add(entry_key)
    }

    /// Shows the beginning of its key.
    pub(super) fn show(&self) -> String {
        let show = |bytes: &[u8]| show_bytes(&bytes[..bytes.len().min(100)]);
        match self {
            Self::Value { key } | Self::List { key } => show(key),
            Self::Map { key, entry_key } => format!("{}, entry {}", show(key), show(entry_key)),
            Self::OwnList => "none".to_owned(),
            Self::Broadcast { entry_key } => show(entry_key),
        }
    }
}
