//! Any serde type in postcard's compact form.

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use super::{Codec, CodecError, Decode, Encode};

/// [postcard](https://postcard.jamesmunns.com) with serde: numbers as varints, no field names. Fields cannot be
/// reordered or inserted without breaking stored state. A value ends with its last byte.
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
}

/// Appends to a buffer in place; postcard's own flavours allocate one or take it by value.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
