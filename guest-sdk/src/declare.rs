//! What an operator says it is: ports, state and wishes.

use std::rc::Rc;

use crate::codec::StateCodec;
use crate::error::Error;
use crate::schema::schema_of;
use crate::state::{Cells, SlotCells, Value};

/// Collects an operator's ports and state, in [`crate::Operator::declare`].
///
/// An operator that declares no input gets one named `in`; one that declares no output, one named `out`. Names are 1 to
/// 64 of `a-z`, `0-9`, `_` and `-`. The host refuses an operator that breaks this before it runs.
#[derive(Default)]
pub struct Declare {
    inputs: Vec<String>,
    outputs: Vec<String>,
    no_output: bool,
    pub(crate) slots: Vec<Slot>,
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
enum SchemaText {
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
    /// Names; index = port.
    pub inputs: Vec<String>,
    /// Names; index = port.
    pub outputs: Vec<String>,
    /// Value slots, all handed in with each call; index = slot.
    pub slots: Vec<StateSlot>,
    /// Whether records must carry a key: asked for, or implied by state.
    pub keyed: bool,
    /// Records in one call, at most; 0 leaves it to the host.
    pub max_batch: u32,
}

/// A slot with at most one value for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSlot {
    /// Unique in the operator.
    pub name: String,
    /// The codec's name.
    pub codec: String,
    /// What the value looks like, for people and for compatibility checks; at most 4 KiB.
    pub schema: String,
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
        let slot = self.slots.len();
        let cells = Rc::new(Cells::<T, C>::new(name));
        let descriptor = StateSlot { name: name.into(), codec: C::NAME.into(), schema: String::new() };
        self.slots.push(Slot { descriptor, schema, cells: Rc::clone(&cells) as Rc<dyn SlotCells> });
        Value::new(slot, cells)
    }

    /// Declares an input port.
    pub fn input(&mut self, name: &str) -> InputPort {
        self.inputs.push(name.into());
        InputPort(index(self.inputs.len()))
    }

    /// Declares an output port. The first is the one that [`crate::Context::emit`] writes to.
    pub fn output(&mut self, name: &str) -> OutputPort {
        self.outputs.push(name.into());
        OutputPort(index(self.outputs.len()))
    }

    /// Declares that the operator emits nothing.
    pub fn no_output(&mut self) {
        self.no_output = true;
    }

    /// Asks for records with a key. Implied by state.
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
        let or_default = |names: &[String], name: &str| if names.is_empty() { vec![name.to_owned()] } else { names.to_vec() };
        Descriptor {
            inputs: or_default(&self.inputs, "in"),
            outputs: if self.no_output { self.outputs.clone() } else { or_default(&self.outputs, "out") },
            slots: self.slots.iter().map(|slot| slot.descriptor.clone()).collect(),
            keyed: self.keyed || !self.slots.is_empty(),
            max_batch: self.max_batch,
        }
    }
}

impl Descriptor {
    /// Checks the interface's rules, as the host does before it runs an operator.
    ///
    /// # Errors
    /// A permanent error that names what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let inputs: Vec<_> = self.inputs.iter().map(String::as_str).collect();
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
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// The index of the last of `len` items.
fn index(len: usize) -> u32 {
    u32::try_from(len - 1).expect("an operator declares few ports")
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
        assert_eq!((descriptor.inputs, descriptor.outputs), (vec!["in".to_owned()], vec!["out".to_owned()]));
        assert!(descriptor.keyed, "state implies keys");
        let slot =
            |name: &str, codec: &str, schema: &str| StateSlot { name: name.into(), codec: codec.into(), schema: schema.into() };
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
