//! Map keys as bytes that sort as the keys do.

use crate::codec::CodecError;

/// A map key as bytes whose order is the key's order: unsigned integers big endian, signed ones with their sign bit
/// flipped, text and bytes as they are, tuples part by part.
///
/// In front of another part, text and bytes must say where they end: a zero byte becomes `00 FF`, and `00 01` follows
/// the last byte. The bytes are part of the checkpoint format.
pub trait KeyBytes {
    /// Appends the bytes of a key that other parts of a tuple follow.
    fn write_part(&self, out: &mut Vec<u8>);

    /// Appends the bytes of a key that nothing follows.
    fn write_last(&self, out: &mut Vec<u8>) {
        self.write_part(out);
    }
}

/// A key that can be read back. Borrowed forms, such as `str` for `String`, have the same bytes: that is how
/// [`crate::Map::get`] takes them.
pub trait MapKey: KeyBytes + Sized + 'static {
    /// Takes a part off the front of `bytes`.
    ///
    /// # Errors
    /// [`CodecError`] if they do not begin with one.
    fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError>;

    /// Reads a key that nothing follows.
    ///
    /// # Errors
    /// [`CodecError`] if the bytes are not those of one key.
    fn read_last(mut bytes: &[u8]) -> Result<Self, CodecError> {
        let key = Self::read_part(&mut bytes)?;
        if bytes.is_empty() { Ok(key) } else { Err(CodecError::Trailing(bytes.len())) }
    }
}

impl<K: KeyBytes + ?Sized> KeyBytes for &K {
    fn write_part(&self, out: &mut Vec<u8>) {
        (**self).write_part(out);
    }

    fn write_last(&self, out: &mut Vec<u8>) {
        (**self).write_last(out);
    }
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], CodecError> {
    let (own, rest) = bytes.split_first_chunk().ok_or(CodecError::Width { expected: N, found: bytes.len() })?;
    *bytes = rest;
    Ok(*own)
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl KeyBytes for $number {
            #[inline]
            fn write_part(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }

        impl MapKey for $number {
            #[inline]
            fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
                take(bytes).map(Self::from_be_bytes)
            }
        }
    )*};
}

macro_rules! signed {
    ($($number:ty),*) => {$(
        impl KeyBytes for $number {
            #[inline]
            fn write_part(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(self ^ Self::MIN).to_be_bytes());
            }
        }

        impl MapKey for $number {
            #[inline]
            fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
                take(bytes).map(|own| Self::from_be_bytes(own) ^ Self::MIN)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);
signed!(i8, i16, i32, i64, i128);

impl KeyBytes for bool {
    fn write_part(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl MapKey for bool {
    fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        match take::<1>(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(CodecError::Invalid(other)),
        }
    }
}

impl<const N: usize> KeyBytes for [u8; N] {
    fn write_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> MapKey for [u8; N] {
    fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        take(bytes)
    }
}

const ESCAPED_ZERO: u8 = 0xff;
const END: u8 = 0x01;

impl KeyBytes for [u8] {
    fn write_part(&self, out: &mut Vec<u8>) {
        for byte in self {
            out.push(*byte);
            if *byte == 0 {
                out.push(ESCAPED_ZERO);
            }
        }
        out.extend_from_slice(&[0, END]);
    }

    fn write_last(&self, out: &mut Vec<u8>) {
        crate::column::append(out, self);
    }
}

impl KeyBytes for str {
    fn write_part(&self, out: &mut Vec<u8>) {
        self.as_bytes().write_part(out);
    }

    fn write_last(&self, out: &mut Vec<u8>) {
        self.as_bytes().write_last(out);
    }
}

impl KeyBytes for Vec<u8> {
    fn write_part(&self, out: &mut Vec<u8>) {
        self.as_slice().write_part(out);
    }

    fn write_last(&self, out: &mut Vec<u8>) {
        self.as_slice().write_last(out);
    }
}

impl MapKey for Vec<u8> {
    fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        let mut key = Self::new();
        loop {
            let zero = bytes.iter().position(|byte| *byte == 0).ok_or(CodecError::Unterminated)?;
            key.extend_from_slice(&bytes[..zero]);
            *bytes = &bytes[zero + 1..];
            match take::<1>(bytes).map_err(|_| CodecError::Unterminated)? {
                [ESCAPED_ZERO] => key.push(0),
                [END] => return Ok(key),
                [other] => return Err(CodecError::Invalid(other)),
            }
        }
    }

    fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(bytes.to_vec())
    }
}

impl KeyBytes for String {
    fn write_part(&self, out: &mut Vec<u8>) {
        self.as_bytes().write_part(out);
    }

    fn write_last(&self, out: &mut Vec<u8>) {
        self.as_bytes().write_last(out);
    }
}

impl MapKey for String {
    fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        let key = Vec::read_part(bytes)?;
        Self::from_utf8(key).map_err(|error| CodecError::Utf8(error.utf8_error()))
    }

    fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(CodecError::Utf8)
    }
}

macro_rules! tuple {
    ($($part:ident $index:tt),*; $last:ident $last_index:tt) => {
        impl<$($part: KeyBytes,)* $last: KeyBytes> KeyBytes for ($($part,)* $last,) {
            fn write_part(&self, out: &mut Vec<u8>) {
                $(self.$index.write_part(out);)*
                self.$last_index.write_part(out);
            }

            fn write_last(&self, out: &mut Vec<u8>) {
                $(self.$index.write_part(out);)*
                self.$last_index.write_last(out);
            }
        }

        impl<$($part: MapKey,)* $last: MapKey> MapKey for ($($part,)* $last,) {
            fn read_part(bytes: &mut &[u8]) -> Result<Self, CodecError> {
                Ok(($($part::read_part(bytes)?,)* $last::read_part(bytes)?,))
            }

            fn read_last(mut bytes: &[u8]) -> Result<Self, CodecError> {
                Ok(($($part::read_part(&mut bytes)?,)* $last::read_last(bytes)?,))
            }
        }
    };
}

tuple!(A 0; B 1);
tuple!(A 0, B 1; C 2);
tuple!(A 0, B 1, C 2; D 3);

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};

    use super::*;

    fn bytes_of(key: &impl KeyBytes) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.write_last(&mut bytes);
        bytes
    }

    /// Strings that are prefixes of each other and full of the bytes that escaping is about.
    fn nasty() -> impl Strategy<Value = Vec<u8>> {
        vec(proptest::sample::select(vec![0u8, 1, 2, 0xfe, 0xff]), 0..5)
    }

    proptest! {
        #[test]
        fn bytes_sort_as_keys_do_and_come_back(
            a in (nasty(), any::<i32>(), nasty(), any::<bool>()),
            b in (nasty(), any::<i32>(), nasty(), any::<bool>()),
            nested in ((nasty(), any::<u8>()), nasty()),
            other in ((nasty(), any::<u8>()), nasty()),
            words in (any::<(String, i64)>(), any::<(String, i64)>()),
        ) {
            prop_assert_eq!(a.cmp(&b), bytes_of(&a).cmp(&bytes_of(&b)));
            prop_assert_eq!(<(Vec<u8>, i32, Vec<u8>, bool)>::read_last(&bytes_of(&a)).unwrap(), a);
            prop_assert_eq!(nested.cmp(&other), bytes_of(&nested).cmp(&bytes_of(&other)));
            prop_assert_eq!(<((Vec<u8>, u8), Vec<u8>)>::read_last(&bytes_of(&nested)).unwrap(), nested);
            prop_assert_eq!(words.0.cmp(&words.1), bytes_of(&words.0).cmp(&bytes_of(&words.1)));
            prop_assert_eq!(<(String, i64)>::read_last(&bytes_of(&words.0)).unwrap(), words.0);
        }

        #[test]
        fn numbers_sort_as_bytes(a in any::<(i8, i128, u16)>(), b in any::<(i8, i128, u16)>()) {
            prop_assert_eq!(a.cmp(&b), bytes_of(&a).cmp(&bytes_of(&b)));
            prop_assert_eq!(a.0.cmp(&b.0), bytes_of(&a.0).cmp(&bytes_of(&b.0)));
            prop_assert_eq!(i128::read_last(&bytes_of(&a.1)).unwrap(), a.1);
        }

        #[test]
        fn damaged_keys_are_errors(bytes in nasty()) {
            let _ = <(String, u16)>::read_last(&bytes);
            let _ = <(Vec<u8>, Vec<u8>, bool)>::read_last(&bytes);
            let _ = u32::read_last(&bytes);
        }
    }

    #[test]
    fn borrowed_forms_have_the_same_bytes() {
        assert_eq!(bytes_of(&"a\0b"), bytes_of(&"a\0b".to_owned()));
        assert_eq!(bytes_of(&("a\0b", 7u8)), bytes_of(&("a\0b".to_owned(), 7u8)));
        assert_eq!(bytes_of(&("a\0b", 7u8)), b"a\0\xffb\0\x01\x07");
        assert_eq!(String::read_part(&mut &b"a\0"[..]).unwrap_err().to_string(), "text or bytes in a key do not end");
    }
}
