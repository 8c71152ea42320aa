//! Bytes and text as they are.

use super::{Codec, CodecError, Decode, Encode, EncodeFn};

/// No encoding at all: for values that are bytes or text already.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Codec for Raw {
    const NAME: &'static str = "raw";
}

impl<T: AsRef<[u8]> + ?Sized> Encode<T> for Raw {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value.as_ref());
        Ok(())
    }
}

impl<'a> Decode<'a, &'a [u8]> for Raw {
    fn decode(bytes: &'a [u8]) -> Result<&'a [u8], CodecError> {
        Ok(bytes)
    }
}

impl<'a> Decode<'a, &'a str> for Raw {
    fn decode(bytes: &'a [u8]) -> Result<&'a str, CodecError> {
        std::str::from_utf8(bytes).map_err(CodecError::Utf8)
    }
}

impl Decode<'_, Vec<u8>> for Raw {
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }

    fn schema(_: EncodeFn<Vec<u8>>) -> String {
        "1 bytes".into()
    }
}

impl Decode<'_, String> for Raw {
    fn decode(bytes: &[u8]) -> Result<String, CodecError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(CodecError::Utf8)
    }

    fn schema(_: EncodeFn<String>) -> String {
        "1 str".into()
    }
}
