//! Blocks: encoded entries, compressed where that helps, with a checksum of their own.
//!
//! `raw length u32 | stored length u32 | codec u8 | crc32c u32 | stored bytes`, little-endian; the checksum covers the
//! nine bytes before it and the stored bytes.

use super::BlockRef;
use crate::checkpoint::storage::{Decompress, SegmentSource, StorageError};

/// The largest block, in bytes of encoded entries.
pub const BLOCK_BYTES_MAX: usize = 128 << 20;

pub(super) const HEAD_BYTES: usize = 13;
const CODEC_NONE: u8 = 0;
const CODEC_LZ4: u8 = 1;
const CODEC_ZSTD: u8 = 2;
/// No lz4 block expands further than this.
const LZ4_RATIO_MAX: u64 = 256;
/// No zstd frame that a storage may write expands further: a block of 128 KiB takes three bytes of header and one of content.
const ZSTD_RATIO_MAX: u64 = 128 << 10;

/// Compresses blocks, with one of the codecs that the format knows.
pub trait Compressor: Send {
    /// Returns the codec's number in the format.
    fn codec(&self) -> u8;

    /// Replaces `out` by the compressed `raw`. What is not shorter is not used. False if it could not be compressed.
    fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool;
}

/// LZ4 blocks: the engine's own codec.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lz4;

impl Compressor for Lz4 {
    fn codec(&self) -> u8 {
        CODEC_LZ4
    }

    fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        out.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        let compressed = lz4_flex::block::compress_into(raw, out).expect("the buffer holds the worst case");
        out.truncate(compressed);
        true
    }
}

/// Stores blocks as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncompressed;

impl Compressor for Uncompressed {
    fn codec(&self) -> u8 {
        CODEC_NONE
    }

    fn compress(&mut self, _: &[u8], _: &mut Vec<u8>) -> bool {
        false
    }
}

/// Appends the block that holds `raw` to `out`. `scratch` is reused between calls.
pub(super) fn encode(raw: &[u8], compressor: &mut dyn Compressor, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> u32 {
    let length = |bytes: usize| u32::try_from(bytes).expect("at most the largest block");
    let shrinks = compressor.compress(raw, scratch) && scratch.len() < raw.len();
    let (codec, stored) = if shrinks { (compressor.codec(), scratch.as_slice()) } else { (CODEC_NONE, raw) };
    let start = out.len();
    out.extend_from_slice(&length(raw.len()).to_le_bytes());
    out.extend_from_slice(&length(stored.len()).to_le_bytes());
    out.push(codec);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out[start..]), stored);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(stored);
    length(stored.len())
}

/// Why a block cannot be read.
#[derive(Debug)]
pub(super) enum BlockFault {
    /// It is not what was written.
    Damaged(String),
    /// The storage could not deliver it.
    Storage(StorageError),
}

/// Reads the block at `place`, which has been checked against the file's length.
pub(super) fn read(source: &dyn SegmentSource, place: BlockRef) -> Result<Vec<u8>, BlockFault> {
    let at = place.offset;
    let damaged = |what: &str| BlockFault::Damaged(format!("block at byte {at}: {what}"));
    let mut bytes = vec![0; HEAD_BYTES + place.stored_bytes as usize];
    source.read_exact_at(at, &mut bytes).map_err(BlockFault::Storage)?;
    let (head, stored) = bytes.split_at(HEAD_BYTES);
    let number = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
    let (raw_bytes, stored_bytes, codec, crc) = (number(0), number(4), head[8], number(9));
    if (raw_bytes, stored_bytes) != (place.raw_bytes, place.stored_bytes) {
        return Err(damaged("its lengths differ from the footer's"));
    }
    if crc32c::crc32c_append(crc32c::crc32c(&head[..9]), stored) != crc {
        return Err(damaged("the checksum does not match"));
    }
    match codec {
        CODEC_NONE if raw_bytes == stored_bytes => {
            bytes.drain(..HEAD_BYTES);
            Ok(bytes)
        }
        CODEC_LZ4 if u64::from(raw_bytes) <= u64::from(stored_bytes) * LZ4_RATIO_MAX => {
            let inflate: Decompress =
                |stored, raw| lz4_flex::block::decompress_into(stored, raw).is_ok_and(|written| written == raw.len());
            inflated(inflate, stored, raw_bytes).ok_or_else(|| damaged("it does not decompress to its length"))
        }
        CODEC_ZSTD if u64::from(raw_bytes) <= u64::from(stored_bytes) * ZSTD_RATIO_MAX => {
            let inflate = source.codecs().zstd.ok_or_else(|| damaged("it is compressed with zstd, which this reader lacks"))?;
            inflated(inflate, stored, raw_bytes).ok_or_else(|| damaged("it does not decompress to its length"))
        }
        CODEC_NONE | CODEC_LZ4 | CODEC_ZSTD => Err(damaged("its lengths do not fit its codec")),
        _ => Err(damaged("its codec is unknown")),
    }
}

fn inflated(inflate: Decompress, stored: &[u8], raw_bytes: u32) -> Option<Vec<u8>> {
    let mut raw = vec![0; raw_bytes as usize];
    inflate(stored, &mut raw).then_some(raw)
}
