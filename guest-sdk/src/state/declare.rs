//! The declarations of state beyond a value.

use std::any::type_name;
use std::rc::Rc;

use super::aggregating::{Aggregate, Aggregating};
use super::broadcast::{Broadcast, SharedCells};
use super::elements::Elements;
use super::list::List;
use super::map::{Map, MapCells};
use super::map_key::MapKey;
use super::operator_list::{OperatorList, SubtaskElements};
use super::reducing::Reducing;
use crate::codec::StateCodec;
use crate::declare::{Declare, SchemaText, StateKind};
use crate::schema::{schema_of, short_name};

impl Declare {
    /// Declares a list for each key.
    pub fn list<T: 'static, C: StateCodec<T>>(&mut self, name: &str) -> List<T, C> {
        let cells = Rc::new(Elements::new(name));
        let slot = self.slot((name, StateKind::List, C::NAME), SchemaText::Traced(schema_of::<T, C>), Rc::clone(&cells) as _);
        List::new(slot, cells)
    }

    /// Declares an ordered map for each key.
    pub fn map<K: MapKey, V: 'static, C: StateCodec<V>>(&mut self, name: &str) -> Map<K, V, C> {
        let cells = Rc::new(MapCells::new(name));
        let slot = self.slot((name, StateKind::Map, C::NAME), SchemaText::Traced(entries::<K, V, C>), Rc::clone(&cells) as _);
        Map::new(slot, cells)
    }

    /// Declares a value for each key that new ones are folded into: `declare.reducing("largest", u64::max)`. The result
    /// must not depend on where a replay begins, so nor may `fold` on anything but its arguments.
    pub fn reducing<T: 'static, C: StateCodec<T>>(&mut self, name: &str, fold: fn(T, T) -> T) -> Reducing<T, C> {
        Reducing::new(self.value(name), fold)
    }

    /// Declares an accumulator for each key.
    pub fn aggregating<A: Aggregate, C: StateCodec<A::Accumulator>>(&mut self, name: &str) -> Aggregating<A, C> {
        Aggregating::new(self.value(name))
    }

    /// Declares a list of the subtask that is dealt out evenly when the parallelism changes.
    pub fn split_list<T: 'static, C: StateCodec<T>>(&mut self, name: &str) -> OperatorList<T, C> {
        self.operator_list(name, StateKind::ListSplit)
    }

    /// Declares a list of the subtask of which every subtask gets all elements at a restore.
    pub fn union_list<T: 'static, C: StateCodec<T>>(&mut self, name: &str) -> OperatorList<T, C> {
        self.operator_list(name, StateKind::ListUnion)
    }

    fn operator_list<T: 'static, C: StateCodec<T>>(&mut self, name: &str, kind: StateKind) -> OperatorList<T, C> {
        let cells = Rc::new(SubtaskElements::new(name));
        let slot = self.slot((name, kind, C::NAME), SchemaText::Traced(schema_of::<T, C>), Rc::clone(&cells) as _);
        OperatorList::new(slot, cells)
    }

    /// Declares a map that is the same on all subtasks, written by the records of a [`Self::broadcast_input`].
    pub fn broadcast<K: MapKey, V: 'static, C: StateCodec<V>>(&mut self, name: &str) -> Broadcast<K, V, C> {
        let cells = Rc::new(SharedCells::new(name));
        let slot =
            self.slot((name, StateKind::Broadcast, C::NAME), SchemaText::Traced(entries::<K, V, C>), Rc::clone(&cells) as _);
        Broadcast::new(slot, cells)
    }
}

/// The schema of a map: the type of its entry keys, which never changes, and that of its values.
fn entries<K: MapKey, V: 'static, C: StateCodec<V>>() -> String {
    format!("{} -> {}", short_name(type_name::<K>()), schema_of::<V, C>())
}
