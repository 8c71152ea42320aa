//! Any serde type as JSON text.

use serde::{Deserialize, Serialize};

use super::{Codec, CodecError, Decode, Encode};

/// JSON text on one line. Larger and slower than [`super::Postcard`], but readable by other programs.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl Codec for Json {
    const NAME: &'static str = "json";
}

impl<T: Serialize + ?Sized> Encode<T> for Json {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        serde_json::to_writer(out, value).map_err(CodecError::Json)
    }
}

impl<'a, T: Deserialize<'a>> Decode<'a, T> for Json {
    fn decode(bytes: &'a [u8]) -> Result<T, CodecError> {
        serde_json::from_slice(bytes).map_err(CodecError::Json)
    }
}
