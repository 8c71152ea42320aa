//! Kinds of numbers, and which can become which.

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Unsigned(u32),
    Signed(u32),
    Float(u32),
}

const NAMES: [(&str, Number); 12] = [
    ("u8", Number::Unsigned(8)),
    ("u16", Number::Unsigned(16)),
    ("u32", Number::Unsigned(32)),
    ("u64", Number::Unsigned(64)),
    ("u128", Number::Unsigned(128)),
    ("i8", Number::Signed(8)),
    ("i16", Number::Signed(16)),
    ("i32", Number::Signed(32)),
    ("i64", Number::Signed(64)),
    ("i128", Number::Signed(128)),
    ("f32", Number::Float(32)),
    ("f64", Number::Float(64)),
];

impl Number {
    /// Returns the kind of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }

    /// Returns the name that schemas use.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, number)| *number == self).map_or("number", |(name, _)| name)
    }

    /// Whether every value of this kind is one of the other.
    pub(super) fn widens_to(self, to: Self) -> bool {
        match (self, to) {
            (Self::Unsigned(from), Self::Signed(to)) => from < to,
            (Self::Unsigned(from), Self::Unsigned(to))
            | (Self::Signed(from), Self::Signed(to))
            | (Self::Float(from), Self::Float(to)) => from <= to,
            _ => false,
        }
    }
}

/// A number of any kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Unsigned(u128),
    Signed(i128),
    F32(f32),
    F64(f64),
}

impl Scalar {
    /// Returns the same number as one of another kind, if that can hold it.
    pub(super) fn to(self, kind: Number) -> Option<Self> {
        let fits_unsigned = |bits: u32, value: u128| bits == 128 || value >> bits == 0;
        match (self, kind) {
            (Self::Unsigned(value), Number::Unsigned(bits)) => fits_unsigned(bits, value).then_some(self),
            (Self::Unsigned(value), Number::Signed(bits)) => {
                fits_unsigned(bits - 1, value).then(|| i128::try_from(value).ok()).flatten().map(Self::Signed)
            }
            (Self::Signed(value), Number::Signed(bits)) => {
                let (least, most) = (i128::MIN >> (128 - bits), i128::MAX >> (128 - bits));
                (least..=most).contains(&value).then_some(self)
            }
            (Self::F32(value), Number::Float(64)) => Some(Self::F64(value.into())),
            (Self::F32(_), Number::Float(32)) | (Self::F64(_), Number::Float(64)) => Some(self),
            _ => None,
        }
    }
}
