//! Inputs for the fuzz tests of segments and blocks, and the ways into what is private here.

use super::block;
use super::{BlockRef, Lz4, SegmentEncoder, SegmentHeader, SegmentId};
use crate::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, StateBlock, TableId};
use crate::state::entry::Entry;

pub(in crate::checkpoint) fn segment_id() -> SegmentId {
    SegmentId { checkpoint: CheckpointId(3), attempt: Attempt(1), task: TaskIndex(0) }
}

fn content(keys: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    keys.iter().for_each(|key| Entry::Put { key: &[*key], value }.encode(&mut bytes));
    bytes
}

/// A compressed block.
pub(in crate::checkpoint) fn sample_block() -> Vec<u8> {
    let mut out = Vec::new();
    block::encode(&content(&[1, 2, 3], &[7; 100]), &mut Lz4, &mut Vec::new(), &mut out);
    out
}

/// A segment of two tables with compressed, plain and empty sections.
pub(in crate::checkpoint) fn sample_segment() -> Vec<u8> {
    let table = |slot: &str| TableId { operator: OperatorId::new("count").unwrap(), slot: slot.into() };
    let header = SegmentHeader { job: "words".into(), id: segment_id(), tables: vec![table("n"), table("m")] };
    let mut encoder = SegmentEncoder::new(Vec::new(), header).unwrap();
    for (table, group, keys, value) in
        [(1, 5, &[1u8, 2][..], &[0u8; 100][..]), (0, 7, &[3], b"x"), (1, 5, &[9], b""), (0, 2, &[], b"")]
    {
        let entries = u32::try_from(keys.len()).unwrap();
        let bytes = content(keys, value);
        encoder.push(&StateBlock { table, group: KeyGroup(group), kind: SectionKind::Base, entries, bytes }).unwrap();
    }
    encoder.finish().unwrap().0
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 4)?;
    usize::try_from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).ok()
}

fn seal(bytes: &mut [u8], from: usize, to: usize, at: usize) {
    if from <= to && at + 4 <= bytes.len() && to <= bytes.len() {
        let crc = crc32c::crc32c(&bytes[from..to]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Makes the checksums of header, blocks and footer right, where their places can be told.
pub(in crate::checkpoint) fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len();
    let Some(header_end) = number(&bytes, 12).and_then(|header| header.checked_add(16)).filter(|end| end + 4 <= length) else {
        return bytes;
    };
    seal(&mut bytes, 0, header_end, header_end);
    let footer = length.checked_sub(16).and_then(|tail| Some((tail, number(&bytes, tail)?)));
    let Some((tail, footer)) = footer.filter(|(tail, footer)| footer <= tail) else { return bytes };
    let mut at = header_end + 4;
    while at + block::HEAD_BYTES <= tail - footer {
        let Some(end) = number(&bytes, at + 4).and_then(|stored| (at + block::HEAD_BYTES).checked_add(stored)) else { break };
        if end > tail - footer {
            break;
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 9]), &bytes[at + block::HEAD_BYTES..end]);
        bytes[at + 9..at + 13].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    seal(&mut bytes, tail - footer, tail + 4, tail + 4);
    bytes
}

/// Reads bytes as one block, as they are and with a right checksum.
pub(in crate::checkpoint) fn read_block(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= block::HEAD_BYTES {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&sealed[..9]), &sealed[block::HEAD_BYTES..]);
        sealed[9..13].copy_from_slice(&crc.to_le_bytes());
    }
    for bytes in [bytes, &sealed] {
        let (Some(raw), Some(stored)) = (number(bytes, 0), bytes.len().checked_sub(block::HEAD_BYTES)) else { return };
        let [raw_bytes, stored_bytes] = [raw, stored].map(|bytes| u32::try_from(bytes).unwrap());
        // A footer with other lengths never gets here.
        if raw > block::BLOCK_BYTES_MAX {
            return;
        }
        if let Ok(raw) = block::read(&bytes, BlockRef { offset: 0, raw_bytes, stored_bytes }) {
            assert_eq!(raw.len(), raw_bytes as usize, "a block has the length it says");
        }
    }
}
