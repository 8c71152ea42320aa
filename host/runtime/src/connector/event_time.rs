//! Event times as text: whole or decimal numbers in a unit, or RFC 3339 dates.

use std::fmt;
use std::str::FromStr;

use cofferdam_dataflow::time::EventTime;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// The unit of numeric event times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TimeUnit {
    /// Seconds since the Unix epoch.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[default]
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
}

/// A text that is no event time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTime {
    /// Neither a number nor a date.
    #[error("{0:?} is neither a number nor an RFC 3339 time")]
    NoTime(String),
    /// A number that lies outside of the years 1 to 9999: almost always a wrong unit.
    #[error("{0:?} is outside of the years 1 to 9999, check event-time-unit")]
    OutOfRange(String),
}

/// 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z, in milliseconds.
const RANGE_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;
const DAY_S: i64 = 86_400;

impl TimeUnit {
    /// Reads a number of this unit (decimals are cut off below the millisecond), or an RFC 3339 time.
    ///
    /// # Errors
    /// [`InvalidTime`] if it is neither, or outside of the years 1 to 9999.
    pub fn parse(self, text: &str) -> Result<EventTime, InvalidTime> {
        let out_of_range = || InvalidTime::OutOfRange(text.to_owned());
        let ms = if let Ok(count) = text.parse::<i128>() {
            let ms = match self {
                Self::Seconds => count.checked_mul(1000),
                Self::Milliseconds => Some(count),
                Self::Microseconds => Some(count.div_euclid(1000)),
                Self::Nanoseconds => Some(count.div_euclid(1_000_000)),
            };
            ms.and_then(|ms| i64::try_from(ms).ok()).ok_or_else(out_of_range)?
        } else if let Some(ms) = parse_rfc3339(text) {
            ms
        } else {
            self.parse_decimal(text)?
        };
        if RANGE_MS.contains(&ms) { Ok(EventTime(ms)) } else { Err(out_of_range()) }
    }

    fn parse_decimal(self, text: &str) -> Result<i64, InvalidTime> {
        let is_number = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
        let count = text.parse::<f64>().ok().filter(|count| is_number && count.is_finite());
        let count = count.ok_or_else(|| InvalidTime::NoTime(text.to_owned()))?;
        let ms = match self {
            Self::Seconds => count * 1e3,
            Self::Milliseconds => count,
            Self::Microseconds => count / 1e3,
            Self::Nanoseconds => count / 1e6,
        };
        #[expect(clippy::cast_possible_truncation, reason = "a float saturates, and the caller checks the range")]
        Ok(ms.floor() as i64)
    }
}

/// Reads `2026-11-29T17:05:00.25+01:00` as milliseconds since the epoch. A leap second counts as the second after.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let separators_fit = bytes.len() >= 20
        && (bytes[4], bytes[7], bytes[13], bytes[16]) == (b'-', b'-', b':', b':')
        && matches!(bytes[10], b'T' | b't' | b' ');
    if !separators_fit {
        return None;
    }
    let (year, month, day) = (number(&bytes[..4])?, number(&bytes[5..7])?, number(&bytes[8..10])?);
    let (hour, minute, second) = (number(&bytes[11..13])?, number(&bytes[14..16])?, number(&bytes[17..19])?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &bytes[19..];
    let mut millis = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        let mut padded = [b'0'; 3];
        let kept = digits.min(3);
        padded[..kept].copy_from_slice(&fraction[..kept]);
        millis = number(&padded).filter(|_| digits > 0)?;
        rest = &fraction[digits..];
    }
    let seconds = days_since_epoch(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second - offset_s(rest)?;
    Some(seconds * 1000 + millis)
}

fn offset_s(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hours, minutes) = (number(&[*h0, *h1])?, number(&[*m0, *m1])?);
            let offset = hours * 3600 + minutes * 60;
            (hours <= 23 && minutes <= 59).then_some(if *sign == b'-' { -offset } else { offset })
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0')))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of the proleptic Gregorian calendar; years begin in March, so that a leap day is the last of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// An event time; in a pipeline file an RFC 3339 string, or an integer of milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTime(pub EventTime);

impl FromStr for StartTime {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        TimeUnit::Milliseconds.parse(text).map(Self)
    }
}

impl<'de> Deserialize<'de> for StartTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StartTimeVisitor)
    }
}

struct StartTimeVisitor;

impl Visitor<'_> for StartTimeVisitor {
    type Value = StartTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"2026-01-01T00:00:00Z\", or milliseconds since the Unix epoch")
    }

    fn visit_i64<E: de::Error>(self, ms: i64) -> Result<StartTime, E> {
        ms.to_string().parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, ms: u64) -> Result<StartTime, E> {
        ms.to_string().parse().map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StartTime, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(unit: TimeUnit, text: &str) -> Option<i64> {
        unit.parse(text).ok().map(|time| time.0)
    }

    #[test]
    fn dates_are_read_with_fractions_and_offsets() {
        let date = |text| ms(TimeUnit::Seconds, text);
        assert_eq!(date("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(date("2026-11-29T17:05:00Z"), Some(1_795_971_900_000));
        assert_eq!(date("2026-11-29T18:05:00.2509+01:00"), Some(1_795_971_900_250));
        assert_eq!(date("2026-11-29 12:05:00.5-05:00"), Some(1_795_971_900_500));
        assert_eq!(date("2000-02-29T00:00:00z"), Some(951_782_400_000));
        assert_eq!(date("1969-12-31T23:59:59.999Z"), Some(-1));
        assert_eq!(date("2016-12-31T23:59:60Z"), Some(1_483_228_800_000));
        assert_eq!(date("0001-01-01T00:00:00Z"), Some(*RANGE_MS.start()));
        assert_eq!(date("9999-12-31T23:59:59.999Z"), Some(*RANGE_MS.end()));
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for wrong in [
            "",
            "2026-11-29",
            "2026-11-29T17:05:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T17:05:00.Z",
            "2026-11-29T17:05:00+1:00",
            "noon",
            "NaN",
            "inf",
            "ä026-11-29T17:05:00Z",
        ] {
            assert!(matches!(TimeUnit::Seconds.parse(wrong), Err(InvalidTime::NoTime(_))), "{wrong}");
        }
    }

    #[test]
    fn numbers_count_in_the_unit_and_are_cut_off_downwards() {
        assert_eq!(ms(TimeUnit::Seconds, "1700000000"), Some(1_700_000_000_000));
        assert_eq!(ms(TimeUnit::Seconds, "1700000000.1239"), Some(1_700_000_000_123));
        assert_eq!(ms(TimeUnit::Milliseconds, "-1"), Some(-1));
        assert_eq!(ms(TimeUnit::Microseconds, "-1"), Some(-1));
        assert_eq!(ms(TimeUnit::Nanoseconds, "1700000000123456789"), Some(1_700_000_000_123));
        assert_eq!(ms(TimeUnit::Milliseconds, "1.7e12"), Some(1_700_000_000_000));
    }

    #[test]
    fn a_number_in_another_unit_is_told_from_a_time() {
        let wrong = TimeUnit::Milliseconds.parse("1700000000123456789");
        assert_eq!(wrong, Err(InvalidTime::OutOfRange("1700000000123456789".to_owned())));
        assert!(matches!(TimeUnit::Seconds.parse("1e300"), Err(InvalidTime::OutOfRange(_))));
        assert!(matches!(TimeUnit::Seconds.parse("99999999999999999999"), Err(InvalidTime::OutOfRange(_))));
    }
}
