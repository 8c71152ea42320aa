//! Numbers at their full width: the fastest codec.

use super::{Codec, CodecError, Decode, Encode, EncodeFn};

/// Fixed width, little endian, without padding. Encoding and decoding allocate nothing.
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

/// A type whose values all have the same number of bytes.
pub trait FixedWidth: Copy + 'static {
    /// The number of bytes.
    const WIDTH: usize;

    /// Any value, to fill an array with before its items are read.
    const ZERO: Self;

    /// Appends [`Self::WIDTH`] bytes.
    fn write(self, out: &mut Vec<u8>);

    /// Reads a value from exactly [`Self::WIDTH`] bytes.
    ///
    /// # Errors
    /// [`CodecError::Invalid`] if the bytes stand for no value.
    ///
    /// # Panics
    /// If there are fewer bytes.
    fn read(bytes: &[u8]) -> Result<Self, CodecError>;

    /// Returns what the bytes are, in the language of `docs/schema.md` and without its version, such as `(u32,f64)`;
    /// `None` to be described by the type's name.
    fn shape() -> Option<String> {
        None
    }
}

impl Codec for Fixed {
    const NAME: &'static str = "fixed";
}

impl<T: FixedWidth> Encode<T> for Fixed {
    #[inline]
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.reserve(T::WIDTH);
        value.write(out);
        Ok(())
    }
}

impl<T: FixedWidth> Decode<'_, T> for Fixed {
    #[inline]
    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        if bytes.len() != T::WIDTH {
            return Err(CodecError::Width { expected: T::WIDTH, found: bytes.len() });
        }
        T::read(bytes)
    }

    fn schema(_: EncodeFn<T>) -> String {
        T::shape().map_or_else(crate::schema::opaque::<T>, |shape| format!("1 {shape}"))
    }
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl FixedWidth for $number {
            const WIDTH: usize = size_of::<$number>();
            const ZERO: Self = 0 as $number;

            #[inline]
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(bytes: &[u8]) -> Result<Self, CodecError> {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(&bytes[..size_of::<$number>()]);
                Ok(Self::from_le_bytes(own))
            }

            fn shape() -> Option<String> {
                Some(stringify!($number).into())
            }
        }
    )*};
}

number!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl FixedWidth for bool {
    const WIDTH: usize = 1;
    const ZERO: Self = false;

    fn write(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }

    fn read(bytes: &[u8]) -> Result<Self, CodecError> {
        match bytes[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(CodecError::Invalid(other)),
        }
    }

    fn shape() -> Option<String> {
        Some("bool".into())
    }
}

impl<T: FixedWidth, const N: usize> FixedWidth for [T; N] {
    const WIDTH: usize = T::WIDTH * N;
    const ZERO: Self = [T::ZERO; N];

    #[inline]
    fn write(self, out: &mut Vec<u8>) {
        for item in self {
            item.write(out);
        }
    }

    #[inline]
    fn read(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut items = Self::ZERO;
        for (index, item) in items.iter_mut().enumerate() {
            *item = T::read(&bytes[index * T::WIDTH..(index + 1) * T::WIDTH])?;
        }
        Ok(items)
    }

    fn shape() -> Option<String> {
        T::shape().map(|item| format!("({item}*{N})"))
    }
}

macro_rules! tuple {
    ($($item:ident $index:tt),*) => {
        impl<$($item: FixedWidth),*> FixedWidth for ($($item,)*) {
            const WIDTH: usize = 0 $(+ $item::WIDTH)*;
            const ZERO: Self = ($($item::ZERO,)*);

            #[inline]
            fn write(self, out: &mut Vec<u8>) {
                $(self.$index.write(out);)*
            }

            #[inline]
            fn read(bytes: &[u8]) -> Result<Self, CodecError> {
                let mut rest = bytes;
                let value = ($({
                    let (own, after) = rest.split_at($item::WIDTH);
                    rest = after;
                    $item::read(own)?
                },)*);
                // The last item leaves what follows the value, which is nothing.
                debug_assert!(rest.len() == bytes.len() - Self::WIDTH, "a tuple reads its own width");
                Ok(value)
            }

            fn shape() -> Option<String> {
                Some(format!("({})", [$($item::shape()?),*].join(",")))
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
