//! The frame of a small file: magic, format version, length, body, checksum, hash. A half written, cut or altered file
//! is told from a whole one, and a newer one from a damaged one.

use std::ops::RangeInclusive;

use super::segment::ContentHash;

/// Magic, version, body length.
const HEAD_BYTES: usize = 20;
/// Checksum and hash.
const TAIL_BYTES: usize = 20;

/// A file that is not a whole frame of a known format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not such a file, or not all of it, or altered.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Written by a newer host.
    #[error("it has format {found}; this host reads up to {supported}")]
    Newer {
        /// Its version.
        found: u32,
        /// The newest version this host reads.
        supported: u32,
    },
}

/// Returns `body` in a frame.
pub(super) fn wrap(magic: [u8; 8], version: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + body.len() + TAIL_BYTES);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
    let hash = ContentHash::of(&out);
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out.extend_from_slice(&hash.0);
    out
}

/// Returns the version and the body of a frame of one of these versions.
pub(super) fn unwrap(magic: [u8; 8], versions: RangeInclusive<u32>, bytes: &[u8]) -> Result<(u32, &[u8]), FrameError> {
    if bytes.len() < HEAD_BYTES + TAIL_BYTES {
        return Err(FrameError::Damaged("it is too short"));
    }
    let (head, tail) = bytes.split_at(bytes.len() - TAIL_BYTES);
    if head[..8] != magic {
        return Err(FrameError::Damaged("it begins with something else"));
    }
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let found = number(&head[8..]);
    if found > *versions.end() {
        return Err(FrameError::Newer { found, supported: *versions.end() });
    }
    if !versions.contains(&found) {
        return Err(FrameError::Damaged("its format version is unknown"));
    }
    let body = &head[HEAD_BYTES..];
    let length = u64::from(number(&head[12..])) | u64::from(number(&head[16..])) << 32;
    if length != body.len() as u64 {
        return Err(FrameError::Damaged("its length is not the one it names"));
    }
    if number(tail) != crc32c::crc32c(head) {
        return Err(FrameError::Damaged("its checksum does not match"));
    }
    if tail[4..] != ContentHash::of(head).0 {
        return Err(FrameError::Damaged("its hash does not match"));
    }
    Ok((found, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let whole = wrap(*b"12345678", 3, b"the body");
        assert_eq!(unwrap(*b"12345678", 2..=3, &whole), Ok((3, &b"the body"[..])));
        for bit in 0..whole.len() * 8 {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(unwrap(*b"12345678", 2..=3, &broken).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(unwrap(*b"12345678", 2..=3, &whole[..length]).is_err(), "length {length}");
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert!(unwrap(*b"12345678", 2..=3, &longer).is_err());
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let whole = wrap(*b"12345678", 4, b"");
        assert_eq!(unwrap(*b"12345678", 2..=3, &whole), Err(FrameError::Newer { found: 4, supported: 3 }));
        let whole = wrap(*b"12345678", 1, b"");
        assert_eq!(unwrap(*b"12345678", 2..=3, &whole), Err(FrameError::Damaged("its format version is unknown")));
    }
}
