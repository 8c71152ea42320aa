//! What state values look like, as text that the host stores with them and compares before a new version of the operator
//! starts. docs/schema.md has the language.
//!
//! Nobody writes schemas: [`trace`] runs a type's own `Deserialize` and takes note of what it asks for. That happens when
//! the host asks what the operator is, and never while records flow.

mod probe;
mod shape;
mod tracer;

#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::codec::{CodecError, Decode, Encode, StateCodec};
use tracer::Tracer;

/// The longest schema that the host takes, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// How a codec writes a `T`.
pub type EncodeFn<T> = fn(&T, &mut Vec<u8>) -> Result<(), CodecError>;

/// Returns the schema of values of type `T` in codec `C`, as text of at most 4 KiB: of a longer one, its hash.
pub fn schema_of<T: 'static, C: StateCodec<T>>() -> String {
    let text = <C as Decode<'static, T>>::schema(<C as Encode<T>>::encode);
    if text.len() <= TEXT_BYTES_MAX { text } else { format!("1 #{:032x}", hash(text.as_bytes())) }
}

/// Returns a schema that has only the type's name: it can be told to be the same or not, and no more.
pub(crate) fn opaque<T>() -> String {
    format!("1 ?{}", short_name(std::any::type_name::<T>()))
}

/// Returns the schema of a serde type that the codec writes without names, in the order of its fields.
pub(crate) fn trace<'de, T: Deserialize<'de>>(encode: EncodeFn<T>) -> String {
    let mut tracer = Tracer::default();
    traced(&mut tracer, encode).unwrap_or_else(opaque::<T>)
}

fn traced<'de, T: Deserialize<'de>>(tracer: &mut Tracer, encode: EncodeFn<T>) -> Option<String> {
    tracer.explore(|probe| T::deserialize(probe).map(drop))?;
    let encoded = |value: &T| {
        let mut bytes = Vec::new();
        encode(value, &mut bytes).ok().map(|()| bytes)
    };
    // What is read must be what is written: a type may do the two differently.
    let sample = tracer.run(|probe| T::deserialize(probe)).ok()?;
    if encoded(&sample)?.len() != tracer.bytes {
        return None;
    }
    for place in tracer.fields() {
        tracer.leave_out(place);
        let made = tracer.run(|probe| T::deserialize(probe)).ok();
        let bytes = made.as_ref().and_then(encoded);
        tracer.note_default(place, bytes.as_deref());
    }
    tracer.text()
}

/// FNV-1a in 128 bits: enough to tell a changed schema, which nobody has reason to forge for themselves.
fn hash(bytes: &[u8]) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(start, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b))
}

/// Removes the paths from a type name: `alloc::vec::Vec<my::Session>` is `Vec<Session>`, so that moving a type to
/// another module is no change of schema.
pub(crate) fn short_name(full: &str) -> String {
    let mut short = String::with_capacity(full.len());
    let mut word = 0;
    let mut chars = full.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ':' && chars.peek() == Some(&':') {
            chars.next();
            short.truncate(word);
            continue;
        }
        short.push(c);
        if !(c.is_alphanumeric() || c == '_') {
            word = short.len();
        }
    }
    short
}
