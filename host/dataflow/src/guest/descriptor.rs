//! What an operator says it is, and the check that this host can serve it.

use serde::{Deserialize, Serialize};

/// How a slot's state is organised, and who it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateKind {
    /// At most one value for each key.
    Value,
    /// An append-only list for each key.
    List,
    /// An ordered map for each key.
    Map,
    /// A list for each subtask, dealt out evenly.
    ListSplit,
    /// A list for each subtask, all of it for everyone after a restore.
    ListUnion,
    /// A map identical on all subtasks.
    Broadcast,
}

impl StateKind {
    /// Returns the name that WIT and messages use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::ListSplit => "list-split",
            Self::ListUnion => "list-union",
            Self::Broadcast => "broadcast",
        }
    }

    /// Whether the state belongs to keys.
    pub fn is_keyed(self) -> bool {
        matches!(self, Self::Value | Self::List | Self::Map)
    }

    /// Whether it is a list: stored in chunks of elements.
    pub fn is_list(self) -> bool {
        matches!(self, Self::List | Self::ListSplit | Self::ListUnion)
    }

    /// Whether it has entries with keys of their own. Its schema is then `type of the entry keys -> schema of the values`.
    pub fn is_map(self) -> bool {
        matches!(self, Self::Map | Self::Broadcast)
    }
}

/// Which clock a timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeDomain {
    /// The watermark.
    EventTime,
    /// The host's clock.
    ProcessingTime,
}

impl TimeDomain {
    /// Both, in the order of their tables.
    pub const ALL: [Self; 2] = [Self::EventTime, Self::ProcessingTime];

    /// Returns the name that WIT and messages use.
    pub fn name(self) -> &'static str {
        match self {
            Self::EventTime => "event-time",
            Self::ProcessingTime => "processing-time",
        }
    }

    /// Returns the name of the table that holds pending timers. No slot can have it: slots' names have no dots. Part of the
    /// checkpoint format.
    pub fn table(self) -> &'static str {
        match self {
            Self::EventTime => "timers.event-time",
            Self::ProcessingTime => "timers.processing-time",
        }
    }

    /// Returns the domain whose timers a table of this name holds.
    pub fn of_table(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|domain| domain.table() == name)
    }

    /// Returns the table as a slot: a map of entries without value, whose entry keys are time and tag.
    fn slot(self) -> StateSlot {
        StateSlot {
            name: self.table().into(),
            kind: StateKind::Map,
            codec: "raw".into(),
            schema: "(i64, u64) -> ".into(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: false,
        }
    }
}

/// One declared piece of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSlot {
    /// Unique in the operator.
    pub name: String,
    /// How it is organised.
    pub kind: StateKind,
    /// How the guest encodes values.
    pub codec: String,
    /// A description of the value's shape.
    pub schema: String,
    /// Time to live in milliseconds; 0 = for ever.
    pub ttl_ms: u64,
    /// Whether reading renews the expiry.
    pub ttl_on_read: bool,
    /// Whether values are handed in with each call.
    pub prefetch: bool,
}

/// A named input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPort {
    /// Unique in the operator.
    pub name: String,
    /// Whether every subtask gets every record.
    pub broadcast: bool,
}

/// What an operator needs and offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Index = port.
    pub inputs: Vec<InputPort>,
    /// Index = port.
    pub outputs: Vec<String>,
    /// Index = slot.
    pub slots: Vec<StateSlot>,
    /// Timer domains in use.
    pub timers: Vec<TimeDomain>,
    /// Whether the operator asked for keys on its own account.
    pub keyed: bool,
    /// Records in one call, at most; 0 leaves it to the host.
    pub max_batch: u32,
}

/// A descriptor that breaks a rule, or asks for what this host does not serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// A rule of the interface is broken.
    #[error("state-declaration: {0}")]
    Declaration(String),
    /// A time to live of state that belongs to no key; not built.
    #[error("state-declaration: slot {slot:?} is of kind {} and has a time to live, which this host does not serve", kind.name())]
    Ttl {
        /// The slot's name.
        slot: String,
        /// Its kind.
        kind: StateKind,
    },
}

impl Descriptor {
    /// Returns all state that the host keeps: the declared slots, and then the timers of each declared domain.
    pub fn tables(&self) -> Vec<StateSlot> {
        let timers = TimeDomain::ALL.into_iter().filter(|domain| self.timers.contains(domain)).map(TimeDomain::slot);
        self.slots.iter().cloned().chain(timers).collect()
    }

    /// Whether records must carry a key.
    pub fn is_keyed(&self) -> bool {
        self.keyed || !self.timers.is_empty() || self.slots.iter().any(|slot| slot.kind.is_keyed())
    }

    /// Whether there is state of any kind.
    pub fn has_state(&self) -> bool {
        self.is_keyed() || !self.slots.is_empty()
    }

    /// Whether every subtask gets every record of an input port.
    pub fn is_broadcast(&self, port: u32) -> bool {
        self.inputs.get(port as usize).is_some_and(|input| input.broadcast)
    }

    /// Checks the interface's rules and that this host serves all that is declared.
    ///
    /// # Errors
    /// [`Unsupported`], for the first thing found.
    pub fn check(&self) -> Result<(), Unsupported> {
        let declaration = |text: String| Err(Unsupported::Declaration(text));
        if self.inputs.is_empty() {
            return declaration("no input is declared".into());
        }
        if self.inputs.len() > 64 || self.outputs.len() > 64 || self.slots.len() > 64 {
            return declaration("more than 64 inputs, outputs or slots".into());
        }
        let inputs: Vec<_> = self.inputs.iter().map(|port| port.name.as_str()).collect();
        let outputs: Vec<_> = self.outputs.iter().map(String::as_str).collect();
        let slots: Vec<_> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
        for (what, names) in [("input", &inputs), ("output", &outputs), ("slot", &slots)] {
            for (index, name) in names.iter().enumerate() {
                if !is_name(name) {
                    return declaration(format!("{what} name {:?} is not 1 to 64 of a-z, 0-9, '_' and '-'", cut(name)));
                }
                if names[..index].contains(name) {
                    return declaration(format!("{what} {name:?} is declared twice"));
                }
            }
        }
        self.slots.iter().try_for_each(check_slot)?;
        for (index, domain) in self.timers.iter().enumerate() {
            if self.timers[..index].contains(domain) {
                return declaration(format!("{} timers are declared twice", domain.name()));
            }
        }
        Ok(())
    }
}

fn check_slot(slot: &StateSlot) -> Result<(), Unsupported> {
    if slot.codec.len() > 64 || slot.schema.len() > 4096 {
        return Err(Unsupported::Declaration(format!("slot {:?}: codec over 64 bytes or schema over 4 KiB", slot.name)));
    }
    if slot.ttl_ms != 0 && !slot.kind.is_keyed() {
        return Err(Unsupported::Ttl { slot: slot.name.clone(), kind: slot.kind });
    }
    if slot.ttl_ms == 0 && slot.ttl_on_read {
        return Err(Unsupported::Declaration(format!(
            "slot {:?}: reading cannot renew a time to live that is not set",
            slot.name
        )));
    }
    if slot.prefetch && slot.kind != StateKind::Value {
        let kind = slot.kind.name();
        return Err(Unsupported::Declaration(format!("slot {:?} is of kind {kind}: only values can be prefetched", slot.name)));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, kind: StateKind) -> StateSlot {
        StateSlot {
            name: name.into(),
            kind,
            codec: "raw".into(),
            schema: String::new(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: kind == StateKind::Value,
        }
    }

    fn descriptor(slots: Vec<StateSlot>) -> Descriptor {
        let input = InputPort { name: "in".into(), broadcast: false };
        Descriptor { inputs: vec![input], outputs: vec!["out".into()], slots, timers: vec![], keyed: false, max_batch: 0 }
    }

    #[test]
    fn what_is_not_served_is_refused_by_name() {
        for kind in [StateKind::Value, StateKind::List, StateKind::Map] {
            assert_eq!(descriptor(vec![StateSlot { ttl_ms: 1, ttl_on_read: true, ..slot("a", kind) }]).check(), Ok(()));
        }
        for kind in [StateKind::ListSplit, StateKind::ListUnion, StateKind::Broadcast] {
            assert_eq!(descriptor(vec![slot("a", kind)]).check(), Ok(()));
            let error = descriptor(vec![StateSlot { ttl_ms: 1, ..slot("a", kind) }]).check().unwrap_err().to_string();
            assert!(error.contains(kind.name()) && error.contains("\"a\""), "{error}");
        }
        let renewed = StateSlot { ttl_on_read: true, ..slot("a", StateKind::Value) };
        assert!(matches!(descriptor(vec![renewed]).check(), Err(Unsupported::Declaration(_))));
        let prefetched = StateSlot { prefetch: true, ..slot("a", StateKind::Map) };
        assert!(matches!(descriptor(vec![prefetched]).check(), Err(Unsupported::Declaration(_))));
        let timers = Descriptor { timers: vec![TimeDomain::EventTime], ..descriptor(vec![]) };
        assert_eq!(timers.check(), Ok(()));
        assert!(timers.is_keyed());
        let twice = Descriptor { timers: vec![TimeDomain::EventTime; 2], ..descriptor(vec![]) };
        let error = twice.check().unwrap_err().to_string();
        assert_eq!(error, "state-declaration: event-time timers are declared twice");
    }

    #[test]
    fn timers_have_tables_after_the_slots_under_names_that_no_slot_can_have() {
        let timers = vec![TimeDomain::ProcessingTime, TimeDomain::EventTime];
        let tables = Descriptor { timers, ..descriptor(vec![slot("a", StateKind::Value)]) }.tables();
        let names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["a", "timers.event-time", "timers.processing-time"]);
        for domain in TimeDomain::ALL {
            assert_eq!(TimeDomain::of_table(domain.table()), Some(domain));
            assert!(descriptor(vec![slot(domain.table(), StateKind::Map)]).check().is_err());
        }
    }

    #[test]
    fn names_are_unique_and_plain() {
        for slots in [vec![slot("a", StateKind::Value), slot("a", StateKind::Value)], vec![slot("a/b", StateKind::Value)]] {
            assert!(matches!(descriptor(slots).check(), Err(Unsupported::Declaration(_))));
        }
    }
}
