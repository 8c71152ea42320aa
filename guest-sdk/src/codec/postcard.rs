//! Any serde type in postcard's compact form.

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use crate::column::append;

use super::{Codec, CodecError, Decode, Encode, EncodeFn};

/// [postcard](https://postcard.jamesmunns.com) with serde: numbers as varints, no field names. A value ends with its last
/// byte. A changed type reads what the old one wrote only because the host brings stored values to the new form first:
/// `docs/schema.md` says which changes that allows.
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

impl Codec for Postcard {
    const NAME: &'static str = "postcard";
}

impl<T: Serialize + ?Sized> Encode<T> for Postcard {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        postcard::serialize_with_flavor(value, Append(out)).map_err(CodecError::Postcard)
    }
}

impl<'a, T: Deserialize<'a>> Decode<'a, T> for Postcard {
    fn decode(bytes: &'a [u8]) -> Result<T, CodecError> {
        let (value, rest) = postcard::take_from_bytes(bytes).map_err(CodecError::Postcard)?;
        if rest.is_empty() { Ok(value) } else { Err(CodecError::Trailing(rest.len())) }
    }

    fn schema(encode: EncodeFn<T>) -> String {
        crate::schema::trace(encode)
    }
}

/// Appends to a buffer in place; postcard's own flavours allocate one or take it by value.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        append(self.0, bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
