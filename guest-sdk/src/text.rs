//! Text put together from pieces, without the cost of `format!`.

use crate::column::append;
use crate::output::RecordWriter;

/// Something that is written as text: strings and bytes as they are, integers in decimal, tuples piece by piece.
///
/// `(word, "\t", 7u64)` is several times cheaper than `format_args!("{word}\t{}", 7)`.
pub trait Text {
    /// Appends the text.
    fn write_to(&self, out: &mut RecordWriter<'_>);
}

impl<T: Text + ?Sized> Text for &T {
    #[inline]
    fn write_to(&self, out: &mut RecordWriter<'_>) {
        (**self).write_to(out);
    }
}

impl Text for [u8] {
    #[inline]
    fn write_to(&self, out: &mut RecordWriter<'_>) {
        append(out.0, self);
    }
}

impl Text for str {
    #[inline]
    fn write_to(&self, out: &mut RecordWriter<'_>) {
        append(out.0, self.as_bytes());
    }
}

impl Text for String {
    #[inline]
    fn write_to(&self, out: &mut RecordWriter<'_>) {
        append(out.0, self.as_bytes());
    }
}

impl Text for Vec<u8> {
    #[inline]
    fn write_to(&self, out: &mut RecordWriter<'_>) {
        append(out.0, self);
    }
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl Text for $number {
            #[inline]
            fn write_to(&self, out: &mut RecordWriter<'_>) {
                decimal(u64::from(*self), false, out);
            }
        }
    )*};
}

macro_rules! signed {
    ($($number:ty),*) => {$(
        impl Text for $number {
            #[inline]
            fn write_to(&self, out: &mut RecordWriter<'_>) {
                decimal(u64::from(self.unsigned_abs()), *self < 0, out);
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64);
signed!(i8, i16, i32, i64);

macro_rules! tuple {
    ($($item:ident $index:tt),*) => {
        impl<$($item: Text),*> Text for ($($item,)*) {
            #[inline]
            fn write_to(&self, out: &mut RecordWriter<'_>) {
                $(self.$index.write_to(out);)*
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
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Writes a number from its last digit to its first.
fn decimal(number: u64, is_negative: bool, out: &mut RecordWriter<'_>) {
    // The largest number has 20 digits.
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        // Division by a constant is cheap in 32 bits only, where most numbers fit.
        digits[start] = match u32::try_from(rest) {
            Ok(small) => {
                rest = u64::from(small / 10);
                b'0' + (small % 10) as u8
            }
            Err(_) => {
                let digit = (rest % 10) as u8;
                rest /= 10;
                b'0' + digit
            }
        };
        if rest == 0 {
            break;
        }
    }
    if is_negative {
        out.0.push(b'-');
    }
    append(out.0, &digits[start..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    fn text(pieces: impl Text) -> String {
        let mut out = b"> ".to_vec();
        pieces.write_to(&mut RecordWriter(&mut out));
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_read_as_they_would_with_format(word: String, n: u64, small: u8, signed in any::<(i8, i16, i32, i64)>()) {
            let (a, b, c, d) = signed;
            let found = text((&word, "\t", n, b" ".as_slice(), small, (a, "/", b), c, &d));
            prop_assert_eq!(found, format!("> {word}\t{n} {small}{a}/{b}{c}{d}"));
        }
    }

    #[test]
    fn the_ends_of_the_ranges_are_whole() {
        assert_eq!(text((u64::MAX, " ", i64::MIN, " ", 0u8)), "> 18446744073709551615 -9223372036854775808 0");
        assert_eq!(text((1u64 << 32, " ", u32::MAX, " ", -1i8)), "> 4294967296 4294967295 -1");
    }
}
