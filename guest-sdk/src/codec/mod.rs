//! How values become bytes, in state and in records.
//!
//! | codec | for | form |
//! |---|---|---|
//! | [`Postcard`] | any serde type | compact, varints; the default |
//! | [`Fixed`] | numbers, arrays and tuples of them | fixed width, little endian, no allocation |
//! | [`Raw`] | bytes and text | as they are |
//! | [`Json`] | any serde type | JSON text, for people and other programs |

mod fixed;
mod json;
mod postcard;
mod raw;

pub use self::fixed::{Fixed, FixedWidth};
pub use self::json::Json;
pub use self::postcard::Postcard;
pub use self::raw::Raw;
pub use crate::schema::EncodeFn;

/// A way to encode values.
pub trait Codec: 'static {
    /// What the host is told about state in this codec; at most 64 bytes. Part of the checkpoint format.
    const NAME: &'static str;
}

/// A codec that can write `T`.
pub trait Encode<T: ?Sized>: Codec {
    /// Appends the value's bytes to `out`, and changes nothing that is there already.
    ///
    /// # Errors
    /// [`CodecError`] if the value has no encoding. `out` may then have a part of it.
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError>;
}

/// A codec that can read `T`, which may borrow from the bytes.
pub trait Decode<'a, T>: Codec {
    /// Returns the value that `bytes`, all of them, stand for.
    ///
    /// # Errors
    /// [`CodecError`] if they stand for none.
    fn decode(bytes: &'a [u8]) -> Result<T, CodecError>;

    /// Returns the schema of values in this codec: see `docs/schema.md`. Without one of its own, a codec's values are
    /// described by the name of their type. `encode` is the same codec's.
    fn schema(encode: EncodeFn<T>) -> String {
        let _ = encode;
        crate::schema::opaque::<T>()
    }
}

/// A codec for state of type `T`: it writes it and reads it back as an owned value.
pub trait StateCodec<T>: Encode<T> + for<'a> Decode<'a, T> {}

impl<T, C: Encode<T> + for<'a> Decode<'a, T>> StateCodec<T> for C {}

/// Bytes that stand for no value, or a value that has no bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Postcard's reason.
    #[error("not valid postcard")]
    Postcard(#[source] ::postcard::Error),
    /// There are bytes after the value.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
    /// JSON's reason, with line and column.
    #[error("not valid JSON")]
    Json(#[source] serde_json::Error),
    /// A fixed-width value of another length.
    #[error("a fixed-width value has {expected} bytes, not {found}")]
    Width {
        /// The type's width in bytes.
        expected: usize,
        /// How many bytes there are.
        found: usize,
    },
    /// A byte that is no value of its type, such as 2 for a `bool`.
    #[error("byte {0} stands for no value")]
    Invalid(u8),
    /// Text or bytes that lack their end, in front of another part of a map key.
    #[error("text or bytes in a key do not end")]
    Unterminated,
    /// Text that is not UTF-8.
    #[error("not valid UTF-8")]
    Utf8(#[source] std::str::Utf8Error),
}

#[cfg(test)]
mod tests;
