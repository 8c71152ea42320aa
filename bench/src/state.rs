//! Keyed state without a pipeline: one thread, one slot of kind value, 32-byte keys, 100-byte values, through the engine's public API.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cofferdam::storage::{Compression, LocalStorage};
use cofferdam_dataflow::checkpoint::segment::{
    SegmentEncoder, SegmentError, SegmentHeader, SegmentId, SegmentInfo, SegmentReader,
};
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{Effects, StateKind, StateSlot, StateUpdate, op};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock, TableId};
use cofferdam_dataflow::state::entry::EntryReader;
use cofferdam_dataflow::state::{Deal, SlotRestore, StateOwner, SubtaskState};
use cofferdam_dataflow::time::ProcessingTime;

use crate::measure::{Pauses, percentile_us, process_cpu, thread_cpu};

const KEY_BYTES: usize = 32;
const VALUE_BYTES: usize = 100;
const ENTRY_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// Records of a call.
const FRAME: u64 = 1000;
/// Frozen entries that are encoded between two calls, as a task does.
const SLICE: usize = 512;
const GROUPS: u16 = 128;
const QUOTA_BYTES: u64 = 16 << 30;
const NOW: ProcessingTime = ProcessingTime(0);

/// Prints everything. `gigabyte` is the number of entries of the large tables, about 1 GB of keys and values.
pub(crate) fn print(gigabyte: u64) -> Result<()> {
    println!("\nstate: {KEY_BYTES}-byte keys, {VALUE_BYTES}-byte values, calls of {FRAME} records with random keys, one thread");
    println!("\nread-modify-write | entries | engine ns | hashbrown ns | ratio");
    for entries in [1_000_000, 5_000_000] {
        let (engine, plain) = (rmw_engine(entries), rmw_plain(entries));
        println!("of a value | {entries} | {engine:.0} | {plain:.0} | {:.2}", engine / plain);
    }
    let before = resident()?;
    let mut table = Filled::new(gigabyte);
    let (resident, payload) = (resident()?.saturating_sub(before), gigabyte * ENTRY_BYTES);
    println!("\nmemory | payload MB | resident MB | ratio");
    println!("{gigabyte} entries | {} | {} | {:.2}", mb(payload), mb(resident), resident as f64 / payload as f64);
    // What is frozen first is everything; later increments build upon it.
    table.snapshot(false, &mut |_| {});
    pauses(&mut table);
    increments(&mut table);
    under_snapshot(&mut table)?;
    full_and_restore(&mut table)
}

pub(crate) fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("resident memory")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
}

/// Numbers that look random (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    for (word, bytes) in (1_u64..).zip(key.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&mix(number.wrapping_mul(4).wrapping_add(word)).to_le_bytes());
    }
    key
}

/// A value about half of which can be compressed.
fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'v'; VALUE_BYTES];
    for (word, bytes) in (0_u64..6).zip(value.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&mix(number ^ word << 56).to_le_bytes());
    }
    value
}

fn slot() -> StateSlot {
    let [name, codec, schema] = ["n", "fixed", ""].map(str::to_owned);
    StateSlot { name, kind: StateKind::Value, codec, schema, ttl_ms: 0, ttl_on_read: false, prefetch: true }
}

fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(u32::from(GROUPS)).expect("in range")
}

fn empty() -> SubtaskState {
    let owner = StateOwner { max_parallelism: max_parallelism(), groups: 0..GROUPS, subtask: 0 };
    SubtaskState::new(owner, &[slot()], 42, QUOTA_BYTES)
}

/// A table with the entries 0 to `entries`.
struct Filled {
    state: SubtaskState,
    entries: u64,
    checkpoint: u64,
    random: Random,
}

impl Filled {
    fn new(entries: u64) -> Self {
        let mut filled = Self { state: empty(), entries, checkpoint: 0, random: Random(7) };
        let mut first = 0;
        while first < entries {
            filled.call(&(first..entries.min(first + FRAME)).collect::<Vec<_>>());
            first += FRAME;
        }
        filled
    }

    /// Does what a call with these keys does that increments each value, or adds it.
    fn call(&mut self, numbers: &[u64]) {
        let keys: BytesColumn =
            numbers.iter().map(|number| key(*number)).collect::<Vec<_>>().iter().map(|key| &key[..]).collect();
        self.call_with(numbers, &keys);
    }

    fn call_with(&mut self, numbers: &[u64], keys: &BytesColumn) {
        self.state.fill_frame(keys.as_slice(), &[], NOW).expect("all keys are its own");
        let rows = self.state.frame().rows().to_vec();
        let mut update = StateUpdate::default();
        self.state.frame().with_view(|frame| {
            let column = &frame.states[0];
            let mut next = 0;
            for (row, number) in rows.iter().zip(numbers) {
                // Rows are numbered as their keys come for the first time.
                if *row != next {
                    continue;
                }
                next += 1;
                let found = column.values.get(*row as usize);
                let mut new = <[u8; VALUE_BYTES]>::try_from(found).unwrap_or_else(|_| value(*number));
                increment(&mut new);
                update.rows.push(*row);
                update.ops.push(op::PUT);
                update.values.push(&new);
            }
        });
        self.state.apply(&Effects { updates: vec![update], ..Effects::default() });
    }

    fn random_keys(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.random.below(self.entries)).collect()
    }

    fn begin(&mut self, full: bool) -> CheckpointId {
        self.checkpoint += 1;
        self.state.begin_snapshot(CheckpointId(self.checkpoint), full);
        CheckpointId(self.checkpoint)
    }

    /// Takes a snapshot that completes.
    fn snapshot(&mut self, full: bool, emit: &mut dyn FnMut(StateBlock)) {
        let checkpoint = self.begin(full);
        while self.state.collect_some(SLICE, &mut |_, block| emit(block)) {}
        if !full {
            self.state.confirm(checkpoint);
        }
        while self.state.reap_some(SLICE) {}
    }
}

fn increment(value: &mut [u8; VALUE_BYTES]) {
    let count = value.first_chunk_mut::<8>().expect("100 bytes");
    *count = u64::from_le_bytes(*count).wrapping_add(1).to_le_bytes();
}

/// Nanoseconds of one read-modify-write, the keys ready before.
fn rmw_engine(entries: u64) -> f64 {
    let mut table = Filled::new(entries);
    let calls = prepared(&mut table.random, entries);
    let start = Instant::now();
    for (numbers, keys) in &calls {
        table.call_with(numbers, keys);
    }
    start.elapsed().as_secs_f64() * 1e9 / (calls.len() as u64 * FRAME) as f64
}

fn prepared(random: &mut Random, entries: u64) -> Vec<(Vec<u64>, BytesColumn)> {
    let call = |_| {
        let numbers: Vec<u64> = (0..FRAME).map(|_| random.below(entries)).collect();
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        (numbers, keys.iter().map(|key| &key[..]).collect())
    };
    (0..2000).map(call).collect()
}

/// The same with a map whose entries lie in place.
fn rmw_plain(entries: u64) -> f64 {
    type Plain = hashbrown::HashMap<[u8; KEY_BYTES], [u8; VALUE_BYTES], foldhash::fast::FixedState>;
    let mut map = Plain::with_hasher(foldhash::fast::FixedState::with_seed(42));
    map.extend((0..entries).map(|number| (key(number), value(number))));
    let calls = prepared(&mut Random(7), entries);
    let start = Instant::now();
    for (_, keys) in &calls {
        for key in keys.iter() {
            let key = <&[u8; KEY_BYTES]>::try_from(key).expect("32 bytes");
            increment(map.get_mut(key).expect("it was filled"));
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / (calls.len() as u64 * FRAME) as f64
}

/// What a barrier costs, with 100,000 writes between two.
fn pauses(table: &mut Filled) {
    const ROUNDS: usize = 100;
    let mut pauses = Pauses::default();
    for _ in 0..ROUNDS {
        for _ in 0..100 {
            let numbers = table.random_keys(FRAME);
            table.call(&numbers);
        }
        let (start, cpu) = (Instant::now(), thread_cpu());
        let checkpoint = table.begin(false);
        pauses.push(start.elapsed(), thread_cpu() - cpu);
        while table.state.collect_some(SLICE, &mut |_, _| {}) {}
        table.state.confirm(checkpoint);
        while table.state.reap_some(SLICE) {}
    }
    pauses.sort();
    println!("\nbarrier, {} entries, {ROUNDS} rounds | p50 µs | p99 µs | most µs", table.entries);
    for (name, times) in [("wall", pauses.wall), ("thread CPU", pauses.cpu)] {
        let at = |percent| percentile_us(&times, percent);
        println!("{name} | {:.1} | {:.1} | {:.1}", at(50), at(99), at(100));
    }
}

/// Bytes of increments against those of the entries that were changed, and what writing groups in full again adds to them.
fn increments(table: &mut Filled) {
    const ROUNDS: u64 = 10;
    println!("\nincrement, mean of {ROUNDS} | changed entries | their MB | increment MB | ratio | groups in full again MB");
    for (percent, part) in [("0.1 %", 1000), ("1 %", 100), ("10 %", 10)] {
        let (mut changed_entries, mut ideal, mut delta, mut base) = (0, 0, 0, 0);
        for _ in 0..ROUNDS {
            let mut changed = table.random_keys(table.entries / part);
            changed.sort_unstable();
            changed.dedup();
            for numbers in changed.chunks(usize::try_from(FRAME).expect("small")) {
                table.call(numbers);
            }
            let mut in_full = [false; GROUPS as usize];
            table.snapshot(false, &mut |block| {
                let bytes = if block.kind == SectionKind::Base { &mut base } else { &mut delta };
                in_full[usize::from(block.group.0)] |= block.kind == SectionKind::Base;
                *bytes += block.bytes.len() as u64;
            });
            // The changes of groups written in full are part of those.
            let is_delta = |number: &&u64| !in_full[usize::from(group(**number))];
            changed_entries += changed.len() as u64;
            ideal += changed.iter().filter(is_delta).count() as u64 * ENTRY_BYTES;
        }
        let ratio = delta as f64 / ideal as f64;
        let mean = |bytes: u64| bytes as f64 / 1e6 / ROUNDS as f64;
        let entries = changed_entries / ROUNDS;
        println!("{percent} | {entries} | {:.1} | {:.1} | {ratio:.2} | {:.1}", mean(ideal), mean(delta), mean(base));
    }
}

fn group(number: u64) -> u16 {
    max_parallelism().group_of(key_hash(&key(number))).0
}

/// The rate of calls alone, and while a second thread writes a full snapshot.
fn under_snapshot(table: &mut Filled) -> Result<()> {
    let folder = Folder::new()?;
    let rate = |table: &mut Filled, go_on: &mut dyn FnMut(&mut Filled) -> bool| {
        let (start, mut calls) = (Instant::now(), 0_u64);
        loop {
            let numbers = table.random_keys(FRAME);
            table.call(&numbers);
            calls += 1;
            if !go_on(table) {
                return (calls * FRAME) as f64 / start.elapsed().as_secs_f64() / 1e6;
            }
        }
    };
    let end = Instant::now() + Duration::from_secs(3);
    let alone = rate(table, &mut |_| Instant::now() < end);
    let (sender, writer) = Writer::start(&folder.0, Compression::Lz4);
    table.begin(true);
    // As a task does: it goes on where the writer lags behind.
    let during =
        rate(table, &mut |table| !sender.has_room() || table.state.collect_some(SLICE, &mut |_, block| sender.send(block)));
    drop(sender);
    writer.join().map_err(|_| anyhow::anyhow!("the writer has panicked"))??;
    println!("\nthroughput, {} entries | M records/s | to alone", table.entries);
    println!("alone | {alone:.2} |");
    println!("while a full snapshot is written with lz4 | {during:.2} | {:.2}", during / alone);
    Ok(())
}

/// Full checkpoints to a directory with each codec, encoded here and written by a second thread, and their restores.
fn full_and_restore(table: &mut Filled) -> Result<()> {
    let payload = table.entries * ENTRY_BYTES;
    println!(
        "\nfull checkpoint, {} MB | written MB | of payload | MB/s | MB/CPU-s | MB/s of this thread | restore MB/s",
        mb(payload)
    );
    for name in Compression::NAMES {
        let compression = Compression::from_name(name).context("a known name")?;
        let folder = Folder::new()?;
        let (start, cpu, own) = (Instant::now(), process_cpu(), thread_cpu());
        let (sender, writer) = Writer::start(&folder.0, compression);
        table.snapshot(true, &mut |block| {
            while !sender.has_room() {
                std::thread::sleep(Duration::from_micros(100));
            }
            sender.send(block);
        });
        drop(sender);
        let own = thread_cpu() - own;
        let info = writer.join().map_err(|_| anyhow::anyhow!("the writer has panicked"))??;
        let (written, cpu) = (start.elapsed(), process_cpu() - cpu);
        let start = Instant::now();
        let entries = restore(&LocalStorage::open(&folder.0)?, &info)?;
        anyhow::ensure!(entries == table.entries, "{entries} entries were restored");
        let rate = |time: Duration| payload as f64 / 1e6 / time.as_secs_f64();
        let (bytes, restored) = (info.reference.length, start.elapsed());
        let part = bytes as f64 / payload as f64;
        let rates = [written, cpu, own, restored].map(|time| format!("{:.0}", rate(time))).join(" | ");
        println!("{name} | {} | {part:.2} | {rates}", mb(bytes));
    }
    Ok(())
}

/// What a task has of the thread that writes its blocks.
struct Writer {
    blocks: Sender<StateBlock>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Writer {
    fn start(dir: &Path, compression: Compression) -> (Self, JoinHandle<Result<SegmentInfo>>) {
        let (blocks, receiver) = channel::<StateBlock>();
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let (dir, queued) = (dir.to_owned(), Arc::clone(&queued_bytes));
        let thread = std::thread::spawn(move || {
            let storage = LocalStorage::open(&dir)?.with_compression(compression);
            let mut encoder = encoder(&storage, 1)?;
            for block in receiver {
                queued.fetch_sub(block.bytes.len(), Ordering::Relaxed);
                encoder.push(&block)?;
            }
            finish(encoder)
        });
        (Self { blocks, queued_bytes }, thread)
    }

    fn has_room(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) < 32 << 20
    }

    fn send(&self, block: StateBlock) {
        self.queued_bytes.fetch_add(block.bytes.len(), Ordering::Relaxed);
        // If it has ended, joining it says why.
        let _ = self.blocks.send(block);
    }
}

type Encoder = SegmentEncoder<Box<dyn cofferdam_dataflow::checkpoint::storage::SegmentFile>>;

fn encoder(storage: &LocalStorage, checkpoint: u64) -> Result<Encoder> {
    let id = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(0) };
    let tables = vec![TableId { operator: OperatorId::new("bench")?, slot: "n".into() }];
    let header = SegmentHeader { job: "bench".into(), id, tables };
    Ok(SegmentEncoder::new(storage.create_segment(id)?, header)?.compressing(storage.compressor()))
}

/// Closes a segment and makes it durable.
fn finish(encoder: Encoder) -> Result<SegmentInfo> {
    let (file, info) = encoder.finish()?;
    file.sync()?;
    Ok(info)
}

/// Loads a segment into an empty table and returns how many entries it has then.
fn restore(storage: &LocalStorage, info: &SegmentInfo) -> Result<u64> {
    let mut state = empty();
    let mut slot = SlotRestore::new(0, Deal::InPlace, 0, NOW);
    let reader = SegmentReader::open(storage.open_segment(info.reference.id)?, &info.reference)?;
    for section in reader.sections() {
        let mut failed = Ok(());
        reader.read(section, |bytes| {
            for entry in EntryReader::new(bytes).flatten() {
                if failed.is_ok() {
                    failed = slot.apply(&mut state, section.group, &entry);
                }
            }
            Ok::<(), SegmentError>(())
        })?;
        failed?;
    }
    slot.finish(&mut state, (0..GROUPS).map(|group| (KeyGroup(group), 0, 0)))?;
    Ok(state.entries())
}

/// A temporary folder.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("cofferdam-bench-state-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Of no use any more, whatever came of it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
