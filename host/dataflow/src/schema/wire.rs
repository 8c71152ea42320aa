//! The bytes of values in the codecs that schemas describe: reading trusts nothing, writing is what serde would write.

use super::VALUE_DEPTH_MAX;
use super::number::{Number, Scalar};

/// Steps that a value may take, whatever its size, and more for each of its bytes: a list of a billion empty tuples has
/// five bytes.
const STEPS: u64 = 4096;
const STEPS_PER_BYTE: u64 = 32;

/// Bytes that are no value of their schema, or cannot be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// It ends too early.
    #[error("the value ends before its schema does")]
    Short,
    /// It goes on.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
    /// A byte or number that stands for nothing here.
    #[error("the value does not follow its schema: {0}")]
    Invalid(&'static str),
    /// A bound that protects the host.
    #[error("the value is {0}")]
    Bound(&'static str),
    /// A schema that does not say what values look like.
    #[error("the schema does not describe values")]
    Opaque,
}

/// How values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Postcard,
    Fixed,
    Raw,
}

impl Codec {
    /// Returns the codec of that name, if its values can be read.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "postcard" => Some(Self::Postcard),
            "fixed" => Some(Self::Fixed),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }
}

/// Reads one value.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    codec: Codec,
    steps: u64,
    depth: u32,
}

type Read<T> = Result<T, ValueError>;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], codec: Codec) -> Self {
        let steps = STEPS + STEPS_PER_BYTE * bytes.len() as u64;
        Self { rest: bytes, codec, steps, depth: 0 }
    }

    /// Enters a part of the value; to be paired with [`Self::leave`].
    pub(super) fn enter(&mut self) -> Read<()> {
        self.steps = self.steps.checked_sub(1).ok_or(ValueError::Bound("too many parts for its size"))?;
        self.depth += 1;
        if self.depth > VALUE_DEPTH_MAX { Err(ValueError::Bound("nested too deep")) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn end(&self) -> Read<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(ValueError::Trailing(self.rest.len())) }
    }

    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(ValueError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ValueError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a byte that is 0 or 1: a `bool`, or whether there is a value.
    pub(super) fn flag(&mut self) -> Read<bool> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(ValueError::Invalid("a byte is neither 0 nor 1")),
        }
    }

    fn varint(&mut self, bits: u32) -> Read<u128> {
        let mut value = 0u128;
        for shift in (0..bits).step_by(7) {
            let [byte] = self.array()?;
            let part = u128::from(byte & 0x7f);
            if shift + 7 > bits && part >> (bits - shift) != 0 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ValueError::Invalid("a number is too large for its type"))
    }

    /// Reads the number of items of a list or map, or of bytes.
    pub(super) fn length(&mut self) -> Read<u64> {
        self.postcard_only()?;
        self.varint(64).and_then(|length| u64::try_from(length).map_err(|_| ValueError::Short))
    }

    /// Reads the index of a variant.
    pub(super) fn index(&mut self) -> Read<u32> {
        self.postcard_only()?;
        self.varint(32).and_then(|index| u32::try_from(index).map_err(|_| ValueError::Short))
    }

    /// Reads bytes with their length before them, or all there are.
    pub(super) fn bytes(&mut self) -> Read<&'a [u8]> {
        if self.codec == Codec::Raw {
            return self.take(self.rest.len());
        }
        let length = self.length()?;
        self.take(usize::try_from(length).map_err(|_| ValueError::Short)?)
    }

    pub(super) fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ValueError::Invalid("text is not UTF-8"))
    }

    pub(super) fn char(&mut self) -> Read<char> {
        let mut chars = self.text()?.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(c),
            _ => Err(ValueError::Invalid("a char is not one character")),
        }
    }

    pub(super) fn number(&mut self, kind: Number) -> Read<Scalar> {
        let fixed = self.codec == Codec::Fixed;
        if self.codec == Codec::Raw {
            return Err(ValueError::Invalid("the codec \"raw\" has bytes and text only"));
        }
        match kind {
            Number::Float(32) => Ok(Scalar::F32(f32::from_le_bytes(self.array()?))),
            Number::Float(_) => Ok(Scalar::F64(f64::from_le_bytes(self.array()?))),
            Number::Unsigned(bits) if fixed || bits == 8 => Ok(Scalar::Unsigned(self.little_endian(bits)?)),
            Number::Unsigned(bits) => Ok(Scalar::Unsigned(self.varint(bits)?)),
            Number::Signed(bits) if fixed || bits == 8 => {
                let shift = 128 - bits;
                Ok(Scalar::Signed(((self.little_endian(bits)? << shift).cast_signed()) >> shift))
            }
            Number::Signed(bits) => {
                let zigzag = self.varint(bits)?;
                Ok(Scalar::Signed((zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed())))
            }
        }
    }

    fn little_endian(&mut self, bits: u32) -> Read<u128> {
        let mut bytes = [0; 16];
        let width = bits as usize / 8;
        bytes[..width].copy_from_slice(self.take(width)?);
        Ok(u128::from_le_bytes(bytes))
    }

    fn postcard_only(&self) -> Read<()> {
        match self.codec {
            Codec::Postcard => Ok(()),
            _ => Err(ValueError::Invalid("the codec has no lists, text or variants")),
        }
    }
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a number as one of this kind, which must be able to hold it.
pub(super) fn put_number(out: &mut Vec<u8>, codec: Codec, value: Scalar, kind: Number) -> Result<(), ValueError> {
    let fixed = codec == Codec::Fixed;
    match (value.to(kind).ok_or(ValueError::Invalid("a number does not fit its new type"))?, kind) {
        (Scalar::F32(value), _) => out.extend_from_slice(&value.to_le_bytes()),
        (Scalar::F64(value), _) => out.extend_from_slice(&value.to_le_bytes()),
        (Scalar::Unsigned(value), Number::Unsigned(bits)) if fixed || bits == 8 => {
            out.extend_from_slice(&value.to_le_bytes()[..bits as usize / 8]);
        }
        (Scalar::Signed(value), Number::Signed(bits)) if fixed || bits == 8 => {
            out.extend_from_slice(&value.to_le_bytes()[..bits as usize / 8]);
        }
        (Scalar::Unsigned(value), _) => put_varint(out, value),
        (Scalar::Signed(value), _) => put_varint(out, ((value << 1) ^ (value >> 127)).cast_unsigned()),
    }
    Ok(())
}
