//! Marks: tiny text files of names and numbers, with a hash against damage.
//!
//! ```text
//! cofferdam fence 1
//! attempt 3
//! checkpoint 12
//! xxh3 0123456789abcdef
//! ```

const VERSION: u32 = 1;
/// The version of a fence that says whose attempt it is.
pub(super) const OWNED_VERSION: u32 = 2;

/// Returns the text of a mark.
pub(super) fn encode(kind: &str, numbers: &[(&str, u64)]) -> String {
    encode_version(VERSION, kind, numbers)
}

/// Returns the text of a mark of a version.
pub(super) fn encode_version(version: u32, kind: &str, numbers: &[(&str, u64)]) -> String {
    let mut text = format!("cofferdam {kind} {version}\n");
    for (name, number) in numbers {
        text.push_str(&format!("{name} {number}\n"));
    }
    let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    text.push_str(&format!("xxh3 {hash:016x}\n"));
    text
}

/// Reads the numbers of a mark of this kind. `None` if it is not exactly what [`encode`] writes.
pub(super) fn decode<const N: usize>(kind: &str, names: [&str; N], text: &[u8]) -> Option<[u64; N]> {
    decode_version(VERSION, kind, names, text)
}

/// Reads the numbers of a mark of this kind and version.
pub(super) fn decode_version<const N: usize>(version: u32, kind: &str, names: [&str; N], text: &[u8]) -> Option<[u64; N]> {
    let text = str::from_utf8(text).ok()?;
    let mut numbers = [0; N];
    let mut lines = text.lines().skip(1);
    for (name, number) in names.into_iter().zip(&mut numbers) {
        *number = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()?;
    }
    let pairs: Vec<_> = names.into_iter().zip(numbers).collect();
    (encode_version(version, kind, &pairs) == text).then_some(numbers)
}

/// Returns the text of a mark that holds one text, which may be anything but more than a line.
pub(super) fn encode_text(kind: &str, value: &str) -> String {
    let mut text = format!("cofferdam {kind} {VERSION}\n{value}\n");
    let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    text.push_str(&format!("xxh3 {hash:016x}\n"));
    text
}

/// Reads the text of a mark of this kind. `None` if it is not exactly what [`encode_text`] writes.
pub(super) fn decode_text(kind: &str, text: &[u8]) -> Option<String> {
    let text = str::from_utf8(text).ok()?;
    let value = text.lines().nth(1)?;
    (encode_text(kind, value) == text).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_mark_is_no_mark() {
        let text = encode("fence", &[("attempt", 3), ("checkpoint", 12)]);
        assert!(text.starts_with("cofferdam fence 1\nattempt 3\ncheckpoint 12\nxxh3 "));
        let names = ["attempt", "checkpoint"];
        assert_eq!(decode("fence", names, text.as_bytes()), Some([3, 12]));
        assert_eq!(decode("finished", names, text.as_bytes()), None);
        for at in 0..text.len() {
            let mut broken = text.clone().into_bytes();
            broken[at] ^= 1;
            assert_eq!(decode("fence", names, &broken), None, "byte {at}");
            assert_eq!(decode("fence", names, &text.as_bytes()[..at]), None, "length {at}");
        }
    }
}
