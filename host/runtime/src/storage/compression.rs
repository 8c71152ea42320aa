//! How the blocks of segments are compressed. LZ4 is the engine's own; zstd is lent to it here, for it is no pure Rust.

use cofferdam_dataflow::checkpoint::segment::{Compressor, Lz4, Uncompressed};
use cofferdam_dataflow::checkpoint::storage::Codecs;

/// The codec's number in the format.
const CODEC_ZSTD: u8 = 2;
/// A level above it costs several times the time for a few percent.
const ZSTD_LEVEL: i32 = 1;

/// What to compress new segments with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing: for values that are compressed already.
    None,
    /// LZ4: the least work.
    #[default]
    Lz4,
    /// Zstandard at level 1: about a fifth smaller than LZ4 for about a fifth more work.
    Zstd,
}

impl Compression {
    /// The names that pipeline files use, in the order of the variants.
    pub const NAMES: &'static [&'static str] = &["none", "lz4", "zstd"];

    /// Returns the variant of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns what compresses the blocks of one segment.
    pub fn compressor(self) -> Box<dyn Compressor> {
        match self {
            Self::None => Box::new(Uncompressed),
            Self::Lz4 => Box::new(Lz4),
            Self::Zstd => Box::new(Zstd::default()),
        }
    }
}

/// The codecs with which segments can be read besides those of the engine.
pub(super) fn codecs() -> Codecs {
    Codecs { zstd: Some(unzstd) }
}

/// A compressor whose tables are kept from block to block: making them costs as much as compressing a small block.
#[derive(Default)]
struct Zstd(Option<zstd::bulk::Compressor<'static>>);

impl Compressor for Zstd {
    fn codec(&self) -> u8 {
        CODEC_ZSTD
    }

    fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if self.0.is_none() {
            // Only for want of memory: then blocks are stored as they are.
            self.0 = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        let Some(compressor) = &mut self.0 else { return false };
        out.resize(zstd::zstd_safe::compress_bound(raw.len()), 0);
        match compressor.compress_to_buffer(raw, out) {
            Ok(bytes) => {
                out.truncate(bytes);
                true
            }
            Err(_) => false,
        }
    }
}

fn unzstd(stored: &[u8], raw: &mut [u8]) -> bool {
    zstd::bulk::decompress_to_buffer(stored, raw).is_ok_and(|bytes| bytes == raw.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compression_has_its_name() {
        let named = Compression::NAMES.iter().map(|name| Compression::from_name(name).unwrap());
        assert!(named.eq([Compression::None, Compression::Lz4, Compression::Zstd]));
        assert_eq!(Compression::from_name("gzip"), None);
    }

    #[test]
    fn zstd_shrinks_and_gives_back_what_it_was_given() {
        let raw: Vec<u8> = (0..10_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let mut stored = Vec::new();
        let mut compressor = Compression::Zstd.compressor();
        // Twice, as its tables are kept.
        for _ in 0..2 {
            assert!(compressor.compress(&raw, &mut stored));
            assert!(stored.len() < raw.len() / 2);
            let mut back = vec![0; raw.len()];
            assert!(unzstd(&stored, &mut back));
            assert!(back == raw);
        }
        assert!(!unzstd(&stored, &mut vec![0; raw.len() - 1]), "too little room");
        assert!(!unzstd(&stored, &mut vec![0; raw.len() + 1]), "too much room");
        assert!(!unzstd(&stored[..stored.len() - 1], &mut vec![0; raw.len()]), "cut off");
    }
}
