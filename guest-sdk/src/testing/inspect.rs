//! Looking at stored state, and setting it before a test. What has expired by the harness's clock is not seen.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::harness::Harness;
use super::store::{Place, Stamped};
use crate::codec::{Codec, Decode, Encode, Postcard};
use crate::declare::StateKind;
use crate::operator::Operator;
use crate::state::MapKey;

impl<O: Operator> Harness<O> {
    /// Returns the value of a key in a slot that is encoded as [`Postcard`].
    ///
    /// # Panics
    /// If there is no such slot of this kind, if it has another codec, or if the value does not decode. So for all
    /// functions here.
    #[track_caller]
    pub fn state<T: DeserializeOwned>(&self, slot: &str, key: impl AsRef<[u8]>) -> Option<T> {
        self.state_as::<Postcard, T>(slot, key)
    }

    /// As [`Self::state`], for any codec: `state_as::<Fixed, u64>("n", "a")`.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn state_as<C: for<'a> Decode<'a, T>, T>(&self, slot: &str, key: impl AsRef<[u8]>) -> Option<T> {
        let place = self.place::<C>(slot, &[StateKind::Value], key.as_ref());
        let bytes = self.store.value(&self.descriptor.slots, &place, self.processing_time)?;
        Some(decoded::<C, T>(slot, bytes))
    }

    /// Returns the elements of a key's list in a slot that is encoded as [`Postcard`], oldest first.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn state_list<T: DeserializeOwned>(&self, slot: &str, key: impl AsRef<[u8]>) -> Vec<T> {
        self.state_list_as::<Postcard, T>(slot, key)
    }

    /// As [`Self::state_list`], for any codec.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn state_list_as<C: for<'a> Decode<'a, T>, T>(&self, slot: &str, key: impl AsRef<[u8]>) -> Vec<T> {
        let place = self.place::<C>(slot, &[StateKind::List], key.as_ref());
        let elements = self.store.list(&self.descriptor.slots, &place, self.processing_time);
        elements.into_iter().map(|bytes| decoded::<C, T>(slot, bytes)).collect()
    }

    /// Returns the entries of a key's map in a slot that is encoded as [`Postcard`], in order.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn state_map<K: MapKey, V: DeserializeOwned>(&self, slot: &str, key: impl AsRef<[u8]>) -> Vec<(K, V)> {
        self.state_map_as::<Postcard, K, V>(slot, key)
    }

    /// As [`Self::state_map`], for any codec of the values.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn state_map_as<C: for<'a> Decode<'a, V>, K: MapKey, V>(&self, slot: &str, key: impl AsRef<[u8]>) -> Vec<(K, V)> {
        let place = self.place::<C>(slot, &[StateKind::Map], key.as_ref());
        let entries = self.store.map(&self.descriptor.slots, &place, self.processing_time);
        entries.into_iter().map(|(key, value)| (entry_key(slot, key), decoded::<C, V>(slot, value))).collect()
    }

    /// Returns the elements of the subtask's list in a slot that is encoded as [`Postcard`], oldest first.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn operator_list<T: DeserializeOwned>(&self, slot: &str) -> Vec<T> {
        self.operator_list_as::<Postcard, T>(slot)
    }

    /// As [`Self::operator_list`], for any codec.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn operator_list_as<C: for<'a> Decode<'a, T>, T>(&self, slot: &str) -> Vec<T> {
        let (index, _) = self.place::<C>(slot, &[StateKind::ListSplit, StateKind::ListUnion], &[]);
        let elements = self.store.operator_lists.get(&index).into_iter().flatten();
        elements.map(|bytes| decoded::<C, T>(slot, bytes)).collect()
    }

    /// Returns the entries of broadcast state in a slot that is encoded as [`Postcard`], in order.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn broadcast<K: MapKey, V: DeserializeOwned>(&self, slot: &str) -> Vec<(K, V)> {
        self.broadcast_as::<Postcard, K, V>(slot)
    }

    /// As [`Self::broadcast`], for any codec of the values.
    ///
    /// # Panics
    /// As [`Self::state`].
    #[track_caller]
    pub fn broadcast_as<C: for<'a> Decode<'a, V>, K: MapKey, V>(&self, slot: &str) -> Vec<(K, V)> {
        let (index, _) = self.place::<C>(slot, &[StateKind::Broadcast], &[]);
        let entries = self.store.broadcast.get(&index).into_iter().flatten();
        entries.map(|(key, value)| (entry_key(slot, key), decoded::<C, V>(slot, value))).collect()
    }

    /// Returns the keys that have a value, a list or a map in a slot, in the order of their bytes.
    ///
    /// # Panics
    /// If there is no such slot.
    #[track_caller]
    pub fn keys(&self, slot: &str) -> Vec<&[u8]> {
        let index = self.slot_index(slot);
        let (store, slots, now) = (&self.store, &self.descriptor.slots, self.processing_time);
        let values = store.values.keys().filter(|place| store.value(slots, place, now).is_some());
        let lists = store.lists.keys().filter(|place| !store.list(slots, place, now).is_empty());
        let maps = store.maps.keys().filter(|place| !store.map(slots, place, now).is_empty());
        let places = values.chain(lists).chain(maps).filter(|place| place.0 == index);
        places.map(|place| place.1.as_slice()).collect()
    }

    /// Checks that no key has state or a pending timer: what an operator remembers must not outlive what it is about.
    ///
    /// # Panics
    /// If something is left. The message names it.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        for slot in self.descriptor.slots.iter().filter(|slot| slot.kind.is_keyed()) {
            let keys = self.keys(&slot.name);
            let first = keys.first().map(|key| key.escape_ascii().to_string());
            assert!(keys.is_empty(), "{} keys have state left in {:?}, the first is {:?}", keys.len(), slot.name, first);
        }
        let timers = &self.store.timers;
        let first = timers.first().map(|(domain, time, key, tag)| (domain, time, key.escape_ascii().to_string(), tag));
        assert!(timers.is_empty(), "{} timers are left, the first is {first:?}", timers.len());
    }

    /// Sets the value of a key in a slot that is encoded as [`Postcard`].
    ///
    /// # Panics
    /// If there is no such slot of this kind, if it has another codec, or if a value has no encoding. So for all functions
    /// that seed.
    #[track_caller]
    pub fn seed<T: Serialize>(&mut self, slot: &str, key: impl AsRef<[u8]>, value: &T) {
        self.seed_as::<Postcard, T>(slot, key, value);
    }

    /// As [`Self::seed`], for any codec.
    ///
    /// # Panics
    /// As [`Self::seed`].
    #[track_caller]
    pub fn seed_as<C: Encode<T>, T>(&mut self, slot: &str, key: impl AsRef<[u8]>, value: &T) {
        let place = self.place::<C>(slot, &[StateKind::Value], key.as_ref());
        let value = Stamped::new(&encoded::<C, T>(slot, value), self.processing_time);
        self.stored().values.insert(place, value);
    }

    /// Sets the stored bytes of a key, whatever the codec: to see what an operator makes of damaged or old state.
    ///
    /// # Panics
    /// If there is no such slot of values.
    #[track_caller]
    pub fn seed_bytes(&mut self, slot: &str, key: impl AsRef<[u8]>, bytes: &[u8]) {
        let index = self.slot_index(slot);
        assert!(self.descriptor.slots[index].kind == StateKind::Value, "slot {slot:?} has no values");
        let value = Stamped::new(bytes, self.processing_time);
        self.stored().values.insert((index, key.as_ref().to_vec()), value);
    }

    /// Appends to a key's list in a slot that is encoded as [`Postcard`].
    ///
    /// # Panics
    /// As [`Self::seed`].
    #[track_caller]
    pub fn seed_list<T: Serialize>(&mut self, slot: &str, key: impl AsRef<[u8]>, elements: &[T]) {
        let place = self.place::<Postcard>(slot, &[StateKind::List], key.as_ref());
        let now = self.processing_time;
        let elements = elements.iter().map(|element| Stamped::new(&encoded::<Postcard, T>(slot, element), now));
        self.stored().lists.entry(place).or_default().extend(elements);
    }

    /// Sets an entry of a key's map in a slot that is encoded as [`Postcard`].
    ///
    /// # Panics
    /// As [`Self::seed`].
    #[track_caller]
    pub fn seed_entry<K: MapKey, V: Serialize>(&mut self, slot: &str, key: impl AsRef<[u8]>, entry: &K, value: &V) {
        let place = self.place::<Postcard>(slot, &[StateKind::Map], key.as_ref());
        let value = Stamped::new(&encoded::<Postcard, V>(slot, value), self.processing_time);
        self.stored().maps.entry(place).or_default().insert(entry_bytes(entry), value);
    }

    /// Appends to the subtask's list in a slot that is encoded as [`Postcard`].
    ///
    /// # Panics
    /// As [`Self::seed`].
    #[track_caller]
    pub fn seed_operator_list<T: Serialize>(&mut self, slot: &str, elements: &[T]) {
        let (index, _) = self.place::<Postcard>(slot, &[StateKind::ListSplit, StateKind::ListUnion], &[]);
        let elements = elements.iter().map(|element| encoded::<Postcard, T>(slot, element));
        self.stored().operator_lists.entry(index).or_default().extend(elements);
    }

    /// Sets an entry of broadcast state in a slot that is encoded as [`Postcard`].
    ///
    /// # Panics
    /// As [`Self::seed`].
    #[track_caller]
    pub fn seed_broadcast<K: MapKey, V: Serialize>(&mut self, slot: &str, entry: &K, value: &V) {
        let (index, _) = self.place::<Postcard>(slot, &[StateKind::Broadcast], &[]);
        let value = encoded::<Postcard, V>(slot, value);
        self.stored().broadcast.entry(index).or_default().insert(entry_bytes(entry), value);
    }

    #[track_caller]
    fn slot_index(&self, name: &str) -> usize {
        match self.descriptor.slots.iter().position(|slot| slot.name == name) {
            Some(index) => index,
            None => panic!("the operator declares no slot {name:?}"),
        }
    }

    /// Where something is stored, in a slot that is checked to have a kind and a codec.
    #[track_caller]
    fn place<C: Codec>(&self, name: &str, kinds: &[StateKind], key: &[u8]) -> Place {
        let index = self.slot_index(name);
        let slot = &self.descriptor.slots[index];
        assert!(kinds.contains(&slot.kind), "slot {name:?} is of kind {:?}", slot.kind);
        assert!(slot.codec == C::NAME, "slot {name:?} is encoded as {:?}, not as {:?}", slot.codec, C::NAME);
        (index, key.to_vec())
    }
}

#[track_caller]
fn decoded<'a, C: Decode<'a, T>, T>(slot: &str, bytes: &'a [u8]) -> T {
    C::decode(bytes).unwrap_or_else(|error| panic!("the value in slot {slot:?} does not decode: {error}"))
}

#[track_caller]
fn encoded<C: Encode<T>, T>(slot: &str, value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    C::encode(value, &mut bytes).unwrap_or_else(|error| panic!("the value for slot {slot:?} has no encoding: {error}"));
    bytes
}

#[track_caller]
fn entry_key<K: MapKey>(slot: &str, bytes: &[u8]) -> K {
    K::read_last(bytes).unwrap_or_else(|error| panic!("an entry key in slot {slot:?} does not decode: {error}"))
}

fn entry_bytes(key: &impl MapKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write_last(&mut bytes);
    bytes
}
