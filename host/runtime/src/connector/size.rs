//! Byte sizes in pipeline files: `1048576` or `"1MiB"`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes; in a pipeline file an integer, or a string such as `"64MiB"` or `"10 kB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A text that is no byte size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size: use a whole number of bytes, or one with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")]
pub struct InvalidByteSize(pub String);

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

impl ByteSize {
    /// Returns a size of so many KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns a size of so many MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
}

impl FromStr for ByteSize {
    type Err = InvalidByteSize;

    fn from_str(text: &str) -> Result<Self, InvalidByteSize> {
        let invalid = || InvalidByteSize(text.to_owned());
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let count: u64 = digits.replace('_', "").parse().map_err(|_| invalid())?;
        let unit = unit.trim_start().to_ascii_lowercase();
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        count.checked_mul(*scale).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.iter().find(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale)) {
            Some((name, scale)) => write!(f, "{}{name}", self.0 / scale),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in bytes, such as 1048576 or \"1MiB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom(format_args!("a size of {bytes} bytes is negative")))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_or_a_number_with_a_unit() {
        let size = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("10 kB"), Ok(10_000));
        assert_eq!(size("1_000b"), Ok(1000));
        for wrong in ["", "MiB", "-1", "1.5MiB", "1 MiBs", "99999999TiB", "1e3"] {
            assert_eq!(size(wrong), Err(InvalidByteSize(wrong.to_owned())), "{wrong}");
        }
    }

    #[test]
    fn a_size_in_toml_may_be_either_and_never_negative() {
        #[derive(serde::Deserialize)]
        struct Table {
            size: ByteSize,
        }
        assert_eq!(toml::from_str::<Table>("size = 7").unwrap().size, ByteSize(7));
        assert_eq!(toml::from_str::<Table>("size = \"2KiB\"").unwrap().size, ByteSize::kib(2));
        assert!(toml::from_str::<Table>("size = -7").err().unwrap().to_string().contains("negative"));
        assert!(toml::from_str::<Table>("size = true").err().unwrap().to_string().contains("a size in bytes"));
    }

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_divides_it() {
        assert_eq!(ByteSize::mib(64).to_string(), "64MiB");
        assert_eq!(ByteSize(1500).to_string(), "1500 bytes");
        assert_eq!(ByteSize(0).to_string(), "0 bytes");
    }
}
