//! What an operator says it is: ports, state and wishes.

use std::rc::Rc;

use crate::codec::StateCodec;
use crate::error::Error;
use crate::schema::schema_of;
use crate::state::{Cells, SlotCells, Value};
use crate::timer_tags::Parts;
use crate::timers::{TimerCells, Timers};

/// Collects an operator's ports and state, in [`crate::Operator::declare`].
///
/// An operator that declares no input gets one named `in`; one that declares no output, one named `out`. Names are 1 to
/// 64 of `a-z`, `0-9`, `_` and `-`. The host refuses an operator that breaks this before it runs.
#[derive(Default)]
pub struct Declare {
    inputs: Vec<Input>,
    outputs: Vec<String>,
    no_output: bool,
    pub(crate) slots: Vec<Slot>,
    pub(crate) timers: Rc<TimerCells>,
    /// Parts of the SDK that have timers.
    pub(crate) parts: Parts,
    domains: Vec<TimeDomain>,
    keyed: bool,
    max_batch: u32,
}

/// A declared slot and the cells that its handle shares with the runner.
pub(crate) struct Slot {
    /// Its schema is left empty until it is asked for.
    descriptor: StateSlot,
    schema: SchemaText,
    pub(crate) cells: Rc<dyn SlotCells>,
}

/// A slot's schema, or what makes it: an instance that only runs records never needs it.
pub(crate) enum SchemaText {
    Own(String),
    Traced(fn() -> String),
}

/// An input port, as [`Declare::input`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputPort(pub(crate) u32);

/// An output port, as [`Declare::output`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPort(pub(crate) u32);

/// An operator's ports, state and wishes, as the host gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Index = port.
    pub inputs: Vec<Input>,
    /// Names; index = port.
    pub outputs: Vec<String>,
    /// Index = slot.
    pub slots: Vec<StateSlot>,
    /// The timers in use.
    pub timers: Vec<TimeDomain>,
    /// Whether records must carry a key: asked for, or implied by keyed state or timers. Not those of a broadcast input.
    pub keyed: bool,
    /// Records in one call, at most; 0 leaves it to the host.
    pub max_batch: u32,
}

/// A declared input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Unique in the operator.
    pub name: String,
    /// Whether every subtask gets every record.
    pub broadcast: bool,
}

/// How a slot's state is organised, and who it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// At most one value for each key.
    Value,
    /// A list for each key.
    List,
    /// An ordered map for each key.
    Map,
    /// A list for each subtask, dealt out evenly.
    ListSplit,
    /// A list for each subtask, all of it for everyone after a restore.
    ListUnion,
    /// A map that is the same on all subtasks.
    Broadcast,
}

impl StateKind {
    /// Whether the state belongs to keys.
    pub fn is_keyed(self) -> bool {
        matches!(self, Self::Value | Self::List | Self::Map)
    }
}

/// Which clock a timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeDomain {
    /// The watermark.
    EventTime,
    /// The host's clock.
    ProcessingTime,
}

/// A declared piece of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSlot {
    /// Unique in the operator.
    pub name: String,
    /// How it is organised.
    pub kind: StateKind,
    /// The codec's name.
    pub codec: String,
    /// What the value looks like, for people and for compatibility checks; at most 4 KiB.
    pub schema: String,
    /// Time to live in milliseconds; 0 is for ever.
    pub ttl_ms: u64,
    /// Whether reading renews it, too.
    pub ttl_on_read: bool,
    /// Whether values are handed in with each call.
    pub prefetch: bool,
}

impl Declare {
    /// Declares state with at most one value for each key. Its schema follows from the type: the host compares it with
    /// that of stored values before a new version of the operator starts.
    pub fn value<T: 'static, C: StateCodec<T>>(&mut self, name: &str) -> Value<T, C> {
        self.value_slot(name, SchemaText::Traced(schema_of::<T, C>))
    }

    /// As [`Self::value`], with a schema of your own, for a type that cannot be traced: see `docs/schema.md`. It must
    /// change when the stored form changes, and say what is stored.
    pub fn value_with_schema<T: 'static, C: StateCodec<T>>(&mut self, name: &str, schema: &str) -> Value<T, C> {
        self.value_slot(name, SchemaText::Own(schema.into()))
    }

    fn value_slot<T: 'static, C: StateCodec<T>>(&mut self, name: &str, schema: SchemaText) -> Value<T, C> {
        let cells = Rc::new(Cells::<T, C>::new(name, number(self.slots.len())));
        self.slot((name, StateKind::Value, C::NAME), schema, Rc::clone(&cells) as _);
        Value::new(cells)
    }

    /// Declares a slot and returns its number.
    pub(crate) fn slot(
        &mut self,
        (name, kind, codec): (&str, StateKind, &str),
        schema: SchemaText,
        cells: Rc<dyn SlotCells>,
    ) -> u32 {
        let (name, codec) = (name.into(), codec.into());
        // What the handle is told after the declaration, and the schema, are added when the descriptor is asked for.
        let schema_later = String::new();
        let descriptor = StateSlot { name, kind, codec, schema: schema_later, ttl_ms: 0, ttl_on_read: false, prefetch: false };
        self.slots.push(Slot { descriptor, schema, cells });
        number(self.slots.len() - 1)
    }

    /// Declares timers in event time: they fire when the watermark reaches them.
    pub fn event_timers(&mut self) -> Timers {
        self.timers(TimeDomain::EventTime)
    }

    /// Declares timers in processing time: they fire when the host's clock reaches them.
    pub fn processing_timers(&mut self) -> Timers {
        self.timers(TimeDomain::ProcessingTime)
    }

    fn timers(&mut self, domain: TimeDomain) -> Timers {
        if !self.domains.contains(&domain) {
            self.domains.push(domain);
        }
        Timers::new(domain, Rc::clone(&self.timers))
    }

    /// Declares an input port.
    pub fn input(&mut self, name: &str) -> InputPort {
        self.add_input(name, false)
    }

    /// Declares an input port of which every subtask gets every record. They need no key, and go to
    /// [`crate::Operator::process_broadcast`].
    pub fn broadcast_input(&mut self, name: &str) -> InputPort {
        self.add_input(name, true)
    }

    fn add_input(&mut self, name: &str, broadcast: bool) -> InputPort {
        self.inputs.push(Input { name: name.into(), broadcast });
        InputPort(number(self.inputs.len() - 1))
    }

    /// Declares an output port. The first is the one that [`crate::Context::emit`] writes to.
    pub fn output(&mut self, name: &str) -> OutputPort {
        self.outputs.push(name.into());
        OutputPort(number(self.outputs.len() - 1))
    }

    /// Declares that the operator emits nothing.
    pub fn no_output(&mut self) {
        self.no_output = true;
    }

    /// Asks for records with a key. Implied by state and by timers.
    pub fn keyed(&mut self) {
        self.keyed = true;
    }

    /// Asks for at most `records` records in one call; the host may choose fewer.
    pub fn max_batch(&mut self, records: u32) {
        self.max_batch = records;
    }

    /// Returns what was declared.
    pub fn descriptor(&self) -> Descriptor {
        let mut descriptor = self.outline();
        for (slot, declared) in descriptor.slots.iter_mut().zip(&self.slots) {
            slot.schema = match &declared.schema {
                SchemaText::Own(text) => text.clone(),
                SchemaText::Traced(trace) => trace(),
            };
        }
        descriptor
    }

    /// Returns what was declared, but for the schemas: finding them out takes time.
    pub(crate) fn outline(&self) -> Descriptor {
        let mut inputs = self.inputs.clone();
        if inputs.is_empty() {
            inputs.push(Input { name: "in".into(), broadcast: false });
        }
        let mut outputs = self.outputs.clone();
        if outputs.is_empty() && !self.no_output {
            outputs.push("out".into());
        }
        let slots: Vec<_> = self.slots.iter().map(Slot::descriptor).collect();
        Descriptor {
            inputs,
            outputs,
            timers: self.domains.clone(),
            keyed: self.keyed || !self.domains.is_empty() || slots.iter().any(|slot| slot.kind.is_keyed()),
            slots,
            max_batch: self.max_batch,
        }
    }
}

impl Slot {
    fn descriptor(&self) -> StateSlot {
        let options = self.cells.options();
        StateSlot {
            ttl_ms: options.ttl_ms,
            ttl_on_read: options.ttl_on_read,
            prefetch: self.descriptor.kind == StateKind::Value && !options.on_demand,
            ..self.descriptor.clone()
        }
    }
}

impl Descriptor {
    /// Checks the interface's rules, as the host does before it runs an operator.
    ///
    /// # Errors
    /// A permanent error that names what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let inputs: Vec<_> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        let outputs: Vec<_> = self.outputs.iter().map(String::as_str).collect();
        let slots: Vec<_> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
        for (what, names) in [("input", inputs), ("output", outputs), ("slot", slots)] {
            if names.len() > 64 {
                return Err(Error::permanent(format!("{} {what}s are declared, more than 64", names.len())));
            }
            for (index, name) in names.iter().enumerate() {
                if !is_name(name) {
                    return Err(Error::permanent(format!("{what} name {name:?} is not 1 to 64 of a-z, 0-9, '_' and '-'")));
                }
                if names[..index].contains(name) {
                    return Err(Error::permanent(format!("{what} {name:?} is declared twice")));
                }
            }
        }
        if let Some(slot) = self.slots.iter().find(|slot| slot.codec.len() > 64 || slot.schema.len() > 4096) {
            return Err(Error::permanent(format!("slot {:?}: codec over 64 bytes or schema over 4 KiB", slot.name)));
        }
        if let Some(slot) = self.slots.iter().find(|slot| slot.ttl_on_read && slot.ttl_ms == 0) {
            return Err(Error::permanent(format!("slot {:?}: reads renew a time to live that it does not have", slot.name)));
        }
        let has_broadcast_input = self.inputs.iter().any(|input| input.broadcast);
        if let Some(slot) = self.slots.iter().find(|slot| slot.kind == StateKind::Broadcast && !has_broadcast_input) {
            return Err(Error::permanent(format!("slot {:?} is broadcast state, but no input is broadcast", slot.name)));
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// An index as the interface writes it.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("an operator declares few ports and slots")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Fixed, Postcard};

    #[test]
    fn defaults_are_one_input_and_one_output() {
        let mut declare = Declare::default();
        let _: Value<u64> = declare.value("n");
        let _: Value<(u32, f64), Fixed> = declare.value("pair");
        let descriptor = declare.descriptor();
        assert_eq!(descriptor.inputs, [Input { name: "in".into(), broadcast: false }]);
        assert_eq!(descriptor.outputs, ["out"]);
        assert!(descriptor.keyed, "state implies keys");
        let slot = |name: &str, codec: &str, schema: &str| {
            let (name, codec, schema) = (name.into(), codec.into(), schema.into());
            StateSlot { name, kind: StateKind::Value, codec, schema, ttl_ms: 0, ttl_on_read: false, prefetch: true }
        };
        assert_eq!(descriptor.slots, [slot("n", "postcard", "1 u64"), slot("pair", "fixed", "1 (u32,f64)")]);
    }

    #[test]
    fn a_bad_declaration_is_named() {
        let error = |declare: &dyn Fn(&mut Declare)| {
            let mut d = Declare::default();
            declare(&mut d);
            d.descriptor().check().unwrap_err().to_string()
        };
        assert_eq!(
            error(&|d| {
                let _ = d.input("A");
            }),
            "input name \"A\" is not 1 to 64 of a-z, 0-9, '_' and '-'"
        );
        let twice = |d: &mut Declare| {
            let _: Value<u8, Postcard> = d.value("n");
            let _: Value<u8, Postcard> = d.value("n");
        };
        assert_eq!(error(&twice), "slot \"n\" is declared twice");
        let many = |d: &mut Declare| {
            for i in 0..65 {
                let _ = d.output(&format!("o{i}"));
            }
        };
        assert_eq!(error(&many), "65 outputs are declared, more than 64");
    }
}
