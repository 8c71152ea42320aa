//! What reads bytes from a disk, fed with bytes that were changed: it never panics, never takes more memory than the bytes allow
//! it, and what it accepts is whole.
//!
//! Inputs are samples that this code writes and the files in `tests/corpus/<target>`, as they are and mutated. Checksums are made
//! right again after a mutation, so that what lies behind them is reached. `PROPTEST_CASES=1000000 cargo test -p cofferdam-dataflow
//! fuzz` does so for longer; an input that fails is put into the corpus.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::frame;
use super::manifest::tests::manifest;
use super::manifest::{CheckpointManifest, MAGIC, MANIFEST_FORMAT};
use super::segment::fuzz::{read_block, resealed, sample_block, sample_segment, segment_id};
use super::segment::{ContentHash, SegmentError, SegmentReader, SegmentRef};
use crate::state::entry::{Entry, EntryReader};

/// One change of an input.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Truncate(Index),
    /// Copies a piece to another place.
    Copy(Index, Index, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let interesting = prop_oneof![Just(0u8), Just(1), Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    prop_oneof![
        4 => (any::<Index>(), interesting.clone()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        4 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        2 => (any::<Index>(), proptest::collection::vec(interesting, 1..9)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        2 => (any::<Index>(), 1usize..9).prop_map(|(at, count)| Mutation::Remove(at, count)),
        1 => any::<Index>().prop_map(Mutation::Truncate),
        1 => (any::<Index>(), any::<Index>(), 1usize..40).prop_map(|(from, to, count)| Mutation::Copy(from, to, count)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutations: &[Mutation]) {
    for mutation in mutations {
        let place = |index: &Index, length: usize| if length == 0 { 0 } else { index.index(length) };
        let length = bytes.len();
        match mutation {
            Mutation::Insert(at, more) => {
                let at = place(at, length + 1);
                bytes.splice(at..at, more.iter().copied());
            }
            _ if length == 0 => {}
            Mutation::Set(at, byte) => bytes[at.index(length)] = *byte,
            Mutation::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Mutation::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..(at + count).min(length));
            }
            Mutation::Truncate(at) => bytes.truncate(at.index(length)),
            Mutation::Copy(from, to, count) => {
                let from = from.index(length);
                let piece = bytes[from..(from + count).min(length)].to_vec();
                let to = to.index(length);
                let end = (to + piece.len()).min(length);
                bytes.splice(to..end, piece);
            }
        }
    }
}

/// Returns the files of a target's corpus. Each is an input that was found to be worth keeping.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn sample_entries() -> Vec<u8> {
    let mut bytes = Vec::new();
    Entry::Put { key: b"key", value: &[7; 200] }.encode(&mut bytes);
    Entry::Delete { key: b"gone" }.encode(&mut bytes);
    Entry::Clear { key: b"all" }.encode(&mut bytes);
    Entry::Put { key: b"", value: b"" }.encode(&mut bytes);
    bytes
}

/// Entries that are accepted cover all bytes, in a shortest encoding or a longer one.
fn entries(bytes: &[u8]) {
    let read: Result<Vec<_>, _> = EntryReader::new(bytes).collect();
    if let Ok(read) = read {
        let encoded: usize = read.iter().map(Entry::encoded_len).sum();
        assert!(encoded <= bytes.len());
        let mut again = Vec::new();
        read.iter().for_each(|entry| entry.encode(&mut again));
        assert_eq!(EntryReader::new(&again).collect::<Result<Vec<_>, _>>().unwrap(), read);
    }
}

fn segment(bytes: &[u8]) {
    let reference = SegmentRef { id: segment_id(), length: bytes.len() as u64, hash: ContentHash::of(bytes), inline: None };
    let Ok(reader) = SegmentReader::open(bytes, &reference) else { return };
    for section in reader.sections() {
        let mut entries = 0;
        let read = reader.read(section, |bytes| {
            entries += EntryReader::new(bytes).map(Result::unwrap).count() as u64;
            Ok::<(), SegmentError>(())
        });
        if read.is_ok() {
            assert_eq!(entries, section.entries, "a section holds as many entries as it says");
        }
    }
}

/// A manifest that is accepted is one that could be written.
fn manifest_file(bytes: &[u8]) {
    if let Ok(manifest) = CheckpointManifest::decode(bytes) {
        assert_eq!(CheckpointManifest::decode(&manifest.encode()), Ok(manifest));
    }
}

fn manifest_body(body: &[u8]) {
    manifest_file(&frame::wrap(MAGIC, MANIFEST_FORMAT, body));
}

#[test]
fn fuzz_corpus_is_replayed() {
    corpus("entries").iter().for_each(|bytes| entries(bytes));
    corpus("block").iter().for_each(|bytes| read_block(bytes));
    for bytes in corpus("segment") {
        segment(&bytes);
        segment(&resealed(bytes));
    }
    for bytes in corpus("manifest") {
        manifest_file(&bytes);
        manifest_body(&bytes);
    }
    // The samples are what they should be: without a mutation they are read to the end.
    assert!(EntryReader::new(&sample_entries()).all(|entry| entry.is_ok()));
    let bytes = sample_segment();
    let reference = SegmentRef { id: segment_id(), length: bytes.len() as u64, hash: ContentHash::of(&bytes), inline: None };
    assert_eq!(SegmentReader::open(&bytes[..], &reference).unwrap().sections().len(), 3);
    assert_eq!(resealed(bytes.clone()), bytes, "what is right is not changed");
}

/// A sample, or a file of the corpus.
fn seed(sample: Vec<u8>, target: &str, choice: Index) -> Vec<u8> {
    let mut seeds = corpus(target);
    // The sample is as likely as all files together.
    let count = seeds.len();
    seeds.extend(std::iter::repeat_n(sample, count));
    choice.get(&seeds).clone()
}

proptest! {
    #[test]
    fn fuzz_entries(choice in any::<Index>(), mutations in proptest::collection::vec(mutation(), 0..6)) {
        let mut bytes = seed(sample_entries(), "entries", choice);
        mutate(&mut bytes, &mutations);
        entries(&bytes);
    }

    #[test]
    fn fuzz_block(choice in any::<Index>(), mutations in proptest::collection::vec(mutation(), 0..6)) {
        let mut bytes = seed(sample_block(), "block", choice);
        mutate(&mut bytes, &mutations);
        read_block(&bytes);
    }

    #[test]
    fn fuzz_segment(choice in any::<Index>(), mutations in proptest::collection::vec(mutation(), 0..6), seal in any::<bool>()) {
        let mut bytes = seed(sample_segment(), "segment", choice);
        mutate(&mut bytes, &mutations);
        segment(&if seal { resealed(bytes) } else { bytes });
    }

    #[test]
    fn fuzz_manifest(choice in any::<Index>(), mutations in proptest::collection::vec(mutation(), 0..6), seal in any::<bool>()) {
        let mut bytes = seed(manifest().encode(), "manifest", choice);
        if seal {
            // The body alone; a frame is put around it again.
            let body = bytes.len().saturating_sub(20).max(20.min(bytes.len()));
            bytes = bytes[20.min(bytes.len())..body].to_vec();
        }
        mutate(&mut bytes, &mutations);
        if seal { manifest_body(&bytes) } else { manifest_file(&bytes) }
    }
}
