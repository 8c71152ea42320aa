//! Scalars as people write them: durations, sizes, counts.

/// Parses a duration, such as `500ms`, `1m 30s`. Whole milliseconds.
///
/// # Errors
/// What was expected.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "a duration such as \"500ms\", \"10s\" or \"1h 30m\"";
    let duration = humantime::parse_duration(text.trim()).map_err(|_| EXPECTED.to_owned())?;
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("a duration of whole milliseconds".to_owned());
    }
    u64::try_from(duration.as_millis()).map_err(|_| EXPECTED.to_owned())
}

/// Parses a size in bytes, such as `64MiB` (1024-based), `64MB` (1000-based), `512`.
///
/// # Errors
/// What was expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("", 1),
        ("B", 1),
        ("kB", 1000),
        ("KB", 1000),
        ("MB", 1000 * 1000),
        ("GB", 1000 * 1000 * 1000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    parse_with_unit(text, &units).ok_or_else(|| "a size such as \"64MiB\", \"100kB\" or a number of bytes".to_owned())
}

/// Parses a count, such as `10M`, `50k`, `5G` (1000-based).
///
/// # Errors
/// What was expected.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("k", 1000), ("K", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];
    parse_with_unit(text, &units).ok_or_else(|| "a number such as 5000, \"10M\" or \"5G\"".to_owned())
}

/// Returns a number with its decimal fraction times its unit; `None` unless that is whole and fits.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let unit_start = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_start);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = whole.parse::<u64>().ok()? as u128 * scale + fraction.parse::<u64>().ok()? as u128;
    let product = scaled * u128::from(*factor);
    u64::try_from(product / scale).ok().filter(|_| product.is_multiple_of(scale))
}

/// Returns bytes as people read them, exact if that is short, such as `64 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    let mut unit = 0;
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = bytes as f64;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 || size.fract() == 0.0 { format!("{size:.0} {}", units[unit]) } else { format!("{size:.1} {}", units[unit]) }
}

/// Returns a count as people read it: with units if that is exact, such as `10M`.
pub fn format_count(count: u64) -> String {
    for (name, factor) in [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000)] {
        if count >= factor && count.is_multiple_of(factor) {
            return format!("{}{name}", count / factor);
        }
    }
    count.to_string()
}

/// Returns milliseconds as people read them, such as `10s`, `1m 30s`.
pub fn format_duration_ms(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_counts_and_durations_are_read_as_written() {
        let sizes = [("0", 0), ("64MiB", 64 << 20), ("1.5 KiB", 1536), ("100kB", 100_000), ("1_000", 1000), ("2 GiB", 2 << 30)];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for (text, count) in [("10M", 10_000_000), ("5G", 5_000_000_000), ("0.5k", 500), ("7", 7)] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for (text, ms) in [("1s", 1000), ("500ms", 500), ("1m 30s", 90_000), ("1h", 3_600_000), (" 2 min ", 120_000)] {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_count_or_duration_is_refused() {
        for text in ["", "MiB", "64 mib", "-1", "1.2.3", "99999999999GiB", "0.3B", "1.", "1e3"] {
            assert!(parse_bytes(text).is_err(), "{text}");
            assert!(parse_count(text).is_err(), "{text}");
        }
        for text in ["", "10", "1.5us", "5 fortnights", "1us", "999999999999999999999h"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_shown_short() {
        assert_eq!([format_bytes(0), format_bytes(64 << 20), format_bytes(1536)], ["0 B", "64 MiB", "1.5 KiB"]);
        assert_eq!([format_count(10_000_000), format_count(1_500), format_count(12)], ["10M", "1500", "12"]);
        assert_eq!(format_duration_ms(90_000), "1m 30s");
    }
}
