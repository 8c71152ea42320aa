//! Segments that are parts of manifests: which, for how long, and what becomes of those that do not fit.

use std::sync::Arc;

use super::*;
use crate::checkpoint::manifest::CheckpointManifest;
use crate::checkpoint::segment::SpilledSegment;
use crate::snapshot::SectionKind;

/// A segment of one base, or delta, that is to be a part of the manifest.
fn small(id: SegmentId, kind: SectionKind, bytes: usize) -> SegmentInfo {
    let mut info = segment(id).unwrap();
    let bytes: Arc<[u8]> = vec![u8::try_from(id.checkpoint.0).unwrap(); bytes].into();
    info.sections[0].kind = kind;
    info.reference = SegmentRef { id, length: bytes.len() as u64, hash: ContentHash::of(&bytes), inline: Some(bytes) };
    info
}

/// Both operators acknowledge with small segments, everybody else as always. Returns the manifest and what is spilled.
fn take(bench: &mut Bench, checkpoint: u64, kind: SectionKind, bytes: usize) -> (CheckpointManifest, Vec<SpilledSegment>) {
    for task in TASKS {
        let id = id(checkpoint, 1, task);
        bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id, false), now));
        let written = segment(id).map(|_| small(id, kind, bytes));
        bench.run(|coordinator, now| coordinator.acknowledged(id, written, now));
    }
    let command = bench.out.commands.iter().find_map(|command| match command {
        CheckpointCommand::PublishManifest { bytes, spilled, .. } => Some((bytes, spilled)),
        CheckpointCommand::PublishSavepoint { bytes, spilled, segments, .. } => {
            assert!(segments.iter().eq(spilled.iter().map(|file| &file.id)), "its files are those that are written for it");
            Some((bytes, spilled))
        }
        _ => None,
    });
    let (bytes, spilled) = command.unwrap();
    (CheckpointManifest::decode(bytes).unwrap(), spilled.clone())
}

fn complete(bench: &mut Bench, checkpoint: u64, kind: SectionKind, bytes: usize) -> (CheckpointManifest, Vec<SpilledSegment>) {
    let taken = take(bench, checkpoint, kind, bytes);
    bench.publish(checkpoint);
    bench.commit(checkpoint);
    bench.said();
    taken
}

#[test]
fn a_manifest_holds_small_segments_until_its_chains_need_them_no_more() {
    let mut bench = Bench::new(config());
    let mut held = Vec::new();
    for (checkpoint, kind) in (1..).zip([SectionKind::Base, SectionKind::Delta, SectionKind::Delta, SectionKind::Base]) {
        bench.tick_at(checkpoint * 1000);
        let (manifest, spilled) = complete(&mut bench, checkpoint, kind, 1000);
        assert_eq!(spilled, []);
        held.push(manifest.state.inline_bytes());
    }
    assert_eq!(held, [2000, 4000, 6000, 2000]);
}

#[test]
fn what_does_not_fit_is_a_file_and_is_written_once() {
    let mut bench = Bench::new(CheckpointConfig { inline_bytes: 5500, ..config() });
    let mut spilled_of = Vec::new();
    for (checkpoint, kind) in
        (1..).zip([SectionKind::Base, SectionKind::Delta, SectionKind::Delta, SectionKind::Delta, SectionKind::Base])
    {
        bench.tick_at(checkpoint * 1000);
        let (manifest, spilled) = complete(&mut bench, checkpoint, kind, 1000);
        assert!(manifest.state.inline_bytes() <= 5500);
        for file in &spilled {
            let reference = manifest.state.segment(file.id).unwrap();
            assert!(reference.is_file() && ContentHash::of(&file.bytes) == reference.hash);
        }
        let files = manifest.state.segments().values().filter(|segment| segment.is_file()).count();
        spilled_of.push((spilled.len(), files));
    }
    assert_eq!(spilled_of, [(0, 0), (0, 0), (1, 1), (2, 3), (0, 0)], "what is a file is not written again");
}

#[test]
fn a_spilled_segment_goes_with_its_checkpoint_like_any_file() {
    let mut bench = Bench::new(CheckpointConfig { inline_bytes: 1500, ..config() });
    bench.tick_at(1000);
    assert_eq!(take(&mut bench, 1, SectionKind::Base, 1000).1.len(), 1);
    bench.said();
    let error = StorageError::new(StorageErrorKind::Full, "no space");
    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(1), &error, now));
    assert_eq!(bench.said(), ["aborted 1", "discard 1-1-2,1-1-3"]);
    for checkpoint in 2..=4 {
        bench.tick_at(checkpoint * 1000);
        take(&mut bench, checkpoint, SectionKind::Base, 1000);
        bench.publish(checkpoint);
        bench.commit(checkpoint);
    }
    assert!(bench.said().contains(&"delete 2 with 2-1-2,2-1-3".to_owned()));
}

#[test]
fn a_savepoint_holds_small_segments_and_its_stop_names_the_same_files() {
    let mut bench = Bench::new(CheckpointConfig { inline_bytes: 1500, interval_ms: None, ..config() });
    let order = SavepointOrder { request: 7, target: SavepointTarget::At("saved".into()) };
    bench.run(|coordinator, now| coordinator.request(CheckpointPurpose::Stop, Some(order), now));
    let (saved, spilled) = take(&mut bench, 1, SectionKind::Base, 1000);
    assert_eq!((spilled.len(), saved.state.inline_bytes()), (1, 1000));
    bench.said();
    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(1), now));
    let Some(CheckpointCommand::PublishManifest { bytes, spilled, .. }) = bench.out.commands.last() else { panic!() };
    assert_eq!(spilled, &[], "they are there");
    assert_eq!(CheckpointManifest::decode(bytes).unwrap().state, saved.state);
}
