//! Slots of an operator that has changed: whether their values can be taken over, and how.

use crate::guest::StateSlot;
use crate::schema::{Plan, Verdict, compare};
use crate::state::entry::{Entry, EntryReader};
use crate::state::{StoredForm, rewrite_values};

/// What becomes of the values of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotVerdict {
    /// They stay as they are.
    Same,
    /// They stay as they are: one side has no schema to compare.
    Unchecked,
    /// They stay as they are, though the schema has changed in this way.
    Compatible(Vec<String>),
    /// They are brought to the new schema.
    Migrated(Migration),
    /// They cannot be taken over. Each reason continues "slot x ...".
    Incompatible(Vec<String>),
}

/// How to bring the stored entries of a slot to its present schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    plan: Plan,
    /// What is stored, beside the values.
    form: StoredForm,
}

/// Compares a slot as it was with the slot of that name as it is.
pub fn compare_slots(was: &StateSlot, is: &StateSlot) -> SlotVerdict {
    let refused = |why: String| SlotVerdict::Incompatible(vec![why]);
    if was.kind != is.kind {
        return refused(format!("was of kind {} and is of kind {}", was.kind.name(), is.kind.name()));
    }
    if was.codec != is.codec {
        return refused(format!("was encoded as \"{}\" and is as \"{}\"", was.codec, is.codec));
    }
    let (was_keys, was_values) = parts(was);
    let (is_keys, is_values) = parts(is);
    if was_keys != is_keys {
        return refused(format!("had entry keys of type {was_keys} and has {is_keys}"));
    }
    match compare(&was.codec, was_values, is_values) {
        Verdict::Same if was_values.is_empty() != is_values.is_empty() => SlotVerdict::Unchecked,
        Verdict::Same => SlotVerdict::Same,
        Verdict::Incompatible(mismatches) => {
            SlotVerdict::Incompatible(mismatches.iter().map(|mismatch| format!("cannot be migrated: {mismatch}")).collect())
        }
        Verdict::Compatible(plan) if plan.keeps_bytes() => SlotVerdict::Compatible(plan.changes().to_vec()),
        Verdict::Compatible(plan) => {
            SlotVerdict::Migrated(Migration { plan, form: StoredForm { kind: was.kind, stamped: was.ttl_ms != 0 } })
        }
    }
}

/// Returns the type of a slot's entry keys, empty if it has none, and the schema of its values.
fn parts(slot: &StateSlot) -> (&str, &str) {
    if !slot.kind.is_map() {
        return ("", &slot.schema);
    }
    slot.schema.split_once(" -> ").unwrap_or(("", &slot.schema))
}

impl Migration {
    /// Returns what differs, for people.
    pub fn changes(&self) -> &[String] {
        self.plan.changes()
    }

    /// Appends the encoded entries with their values in the new form.
    ///
    /// # Errors
    /// What is wrong with the entries, or with a value that does not follow the schema it was stored with.
    pub fn apply(&self, entries: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut new = Vec::new();
        for entry in EntryReader::new(entries) {
            match entry.map_err(|error| error.to_string())? {
                Entry::Put { key, value } => {
                    new.clear();
                    let broken = |what: &'static str| what.to_owned();
                    let transcode =
                        |value: &[u8], out: &mut Vec<u8>| self.plan.transcode(value, out).map_err(|error| error.to_string());
                    rewrite_values(self.form, value, &mut new, broken, transcode)
                        .map_err(|error| format!("the value of key {:?} cannot be migrated: {error}", Shown(key)))?;
                    Entry::Put { key, value: &new }.encode(out);
                }
                entry @ (Entry::Delete { .. } | Entry::Clear { .. }) => entry.encode(out),
            }
        }
        Ok(())
    }
}

/// The beginning of a key, for messages.
struct Shown<'a>(&'a [u8]);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0[..self.0.len().min(64)].escape_ascii())
    }
}
