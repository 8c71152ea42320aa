//! A deterministic simulation of whole jobs: the real engine under a seeded scheduler, in virtual time, over a world
//! that fails, crashes and forgets.
//!
//! The tasks, the job master, recovery, and the executor's writer and blocking work are the real ones; threads, clocks,
//! channels, disks, sources and sinks are simulated. One scheduler picks who acts next, so that a run depends on its seed
//! alone: the same seed gives the same trace.

mod applying;
mod channels;
mod connectors;
mod dials;
mod guests;
mod job;
mod operators;
mod process;
mod random;
mod storage;
mod stores;
mod world;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::adopt::{AdoptError, AdoptOptions, StateName, adopt};
use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::recovery::verify;
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::checkpoint::storage::StorageError;
use cofferdam_dataflow::connector::SplitPosition;
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::job::master::{JobEnd, JobEvent, JobReport};
use cofferdam_dataflow::snapshot::SubtaskPart;
use cofferdam_dataflow::state::entry::{Entry, EntryReader};

pub use connectors::{SimSink, SinkKind, SourceRecord, SplitsSource};
pub use dials::Dials;
pub use guests::{FaultyFactory, GuestFaults, Owners, WatchedFactory, When};
pub use job::Graph;
pub use operators::{Change, CountAsJson, Cycle, Merge, Step, Store, Tally, key_of};
use process::Process;
pub use process::{Event, StartOptions};
pub use random::Random;
pub use storage::SimStorage;
use stores::SimPlace;
pub use stores::StoresOnDisk;
pub use world::{Op, Outcome, Row, Saved, World};

/// More than any honest run needs.
const STEPS_MAX: u64 = 3_000_000;

/// Looks at a checkpoint that has just come into being, or been committed.
pub type Check = Box<dyn Fn(&Checkpoint, &World) -> Result<(), String>>;

/// The content of a checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its manifest.
    pub manifest: CheckpointManifest,
    /// Keyed state by `operator/slot` and key.
    pub state: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// How many records of each split lie before it.
    pub positions: BTreeMap<String, u64>,
    /// Whether its transactions are committed.
    pub committed: bool,
}

/// A process that another has taken the job from.
struct Zombie {
    process: Process,
    is_awake: bool,
    events: Vec<Event>,
    end: Option<JobEnd>,
}

/// A world, and the process in it: one at a time, unless a job is taken over from a process that lives on.
pub struct Simulation {
    /// What survives processes.
    pub world: World,
    /// Delays and freezes.
    pub dials: Dials,
    /// In how many of 100,000 steps the process is killed.
    pub kill_per_100k: u64,
    /// What has happened so far, in all processes.
    pub events: Vec<Event>,
    /// What must hold of every checkpoint, when it exists and again when it is committed.
    pub checks: Vec<Check>,
    random: Random,
    clock_us: u64,
    steps: u64,
    trace: DefaultHasher,
    process: Option<Process>,
    processes: u64,
    zombie: Option<Zombie>,
    /// Checkpoints that have been checked, and whether as committed.
    checked: BTreeMap<CheckpointId, bool>,
}

impl Simulation {
    /// Returns an empty world. `seed` decides everything.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            world: World::new(random.fork()),
            dials: Dials::default(),
            kill_per_100k: 0,
            events: Vec::new(),
            checks: Vec::new(),
            random,
            clock_us: 0,
            steps: 0,
            trace: DefaultHasher::new(),
            process: None,
            processes: 0,
            zombie: None,
            checked: BTreeMap::new(),
        }
    }

    /// Starts a process that runs a job. One that is there is killed.
    pub fn start(&mut self, graph: &Graph) {
        self.start_with(graph, StartOptions::default());
    }

    /// As [`Self::start`].
    ///
    /// # Panics
    /// If the lock of the storage is held.
    pub fn start_with(&mut self, graph: &Graph, options: StartOptions) {
        if self.process.is_some() {
            self.kill();
        }
        self.process = Some(self.open(graph, options).expect("nobody holds the lock"));
    }

    /// Starts a process beside the one that runs, which becomes a zombie: its steps are taken as well, if it is awake,
    /// but its events are not noted, and what it does is watched.
    ///
    /// # Errors
    /// [`StorageError`] if the lock of the storage is held; then nothing has changed.
    pub fn take_over(&mut self, graph: &Graph, is_awake: bool) -> Result<(), StorageError> {
        let process = self.open(graph, StartOptions::default())?;
        let before = self.process.replace(process).expect("a process runs");
        self.zombie = Some(Zombie { process: before, is_awake, events: Vec::new(), end: None });
        Ok(())
    }

    fn open(&mut self, graph: &Graph, options: StartOptions) -> Result<Process, StorageError> {
        let id = self.processes + 1;
        let storage = Arc::new(SimStorage::open(&self.world, id)?);
        let place = Arc::new(SimPlace(self.world.clone()));
        self.processes = id;
        Ok(Process::new(id, graph, (storage, place), &options, self.random.draw()))
    }

    /// Lets the zombie go on, and tells it something first.
    ///
    /// # Panics
    /// If there is none.
    pub fn wake(&mut self, order: Option<JobEvent>) {
        let zombie = self.zombie.as_mut().expect("a job was taken over");
        zombie.is_awake = true;
        order.into_iter().for_each(|order| zombie.process.control(order));
    }

    /// Steps until the zombie has ended, and returns how. The other process may end before.
    ///
    /// # Panics
    /// If there is none, or it hangs.
    pub fn run_zombie_to_end(&mut self) -> JobEnd {
        loop {
            let zombie = self.zombie.as_ref().expect("a job was taken over");
            if let Some(end) = &zombie.end {
                return end.clone();
            }
            self.step();
        }
    }

    /// Kills the process, if there is one.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            self.events.push(Event::Killed);
            self.world.release(process.id);
            let power_is_off = self.world.state().dead;
            if power_is_off {
                self.zombie = None;
            }
            // What one process leaves in memory is not lost while the machine runs, for all that the other can tell.
            if self.zombie.as_ref().is_none_or(|zombie| zombie.end.is_some()) {
                self.world.crash();
            }
            self.verify_checkpoints();
        }
    }

    /// Tells the job's master something, as people would.
    pub fn ask(&mut self, event: JobEvent) {
        if let Some(process) = &mut self.process {
            process.control(event);
        }
    }

    /// Makes a savepoint the newest checkpoint of a job that does not run.
    ///
    /// # Errors
    /// What it is refused for.
    pub fn adopt(&mut self, graph: &Graph, path: &str, drop: &[StateName]) -> Result<CheckpointId, AdoptError> {
        let saved = self.world.state().disk.savepoints.get(path).cloned().unwrap_or_default();
        let definition = graph.plan();
        let (spec, plan, digests) = (&definition.spec, &definition.plan, &definition.digests);
        let options = AdoptOptions { spec, plan, digests, fresh: false, drop, claim: None };
        adopt(&SimStorage::quiet(&self.world), &saved, &options)
    }

    /// Asks the job to stop with a checkpoint.
    pub fn stop(&mut self) {
        self.process.iter_mut().for_each(|process| process.control(JobEvent::StopRequested));
    }

    /// Cancels the job.
    pub fn cancel(&mut self) {
        self.process.iter_mut().for_each(|process| process.control(JobEvent::CancelRequested));
    }

    /// Whether a process runs.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Returns the time since the simulation began, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.clock_us / 1000
    }

    /// Returns the digest of everything that has happened.
    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// Lets one actor do one thing. Returns how the job ended, if it did; what it left in its queues is done as well.
    ///
    /// # Panics
    /// If nobody can do anything, or a rule is broken.
    pub fn step(&mut self) -> Option<JobEnd> {
        self.step_before(u64::MAX)
    }

    /// As [`Self::step`]; if there is nothing to do before a time, only that time passes.
    fn step_before(&mut self, limit_us: u64) -> Option<JobEnd> {
        if let Some(end) = self.reap() {
            return end;
        }
        if self.process.is_none() && self.zombie.as_ref().is_some_and(|zombie| zombie.end.is_some()) {
            return None;
        }
        let actors = |process: &Process| {
            let mut actors = process.actors(&self.dials);
            // When the job has ended, the executor's threads finish what they were given.
            actors.retain(|(_, actor)| process.end.is_none() || actor.is_blocking_work());
            actors
        };
        let mut all: Vec<_> = self.process.iter().flat_map(actors).map(|(at, actor)| (at, false, actor)).collect();
        let awake = self.zombie.iter().filter(|zombie| zombie.is_awake && zombie.end.is_none());
        all.extend(awake.flat_map(|zombie| actors(&zombie.process)).map(|(at, actor)| (at, true, actor)));
        let Some(first) = all.iter().map(|(at, ..)| *at).min() else { panic!("the job is stuck: {}", self.describe()) };
        if first > limit_us {
            self.clock_us = limit_us;
            return None;
        }
        self.clock_us = self.clock_us.max(first);
        all.retain(|(at, ..)| *at <= self.clock_us);
        let (_, is_zombie, actor) = all[self.random.index(all.len())];
        let events = if is_zombie { self.act_zombie(actor) } else { self.act(actor) };
        self.clock_us += 1 + self.random.below(10);
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the job does not come to an end: {}", self.describe());
        (format!("{actor:?} {events:?}"), self.clock_us).hash(&mut self.trace);
        match &mut self.zombie {
            Some(zombie) if is_zombie => zombie.events.extend(events),
            _ => self.events.extend(events),
        }
        self.look();
        if self.world.state().dead || self.random.below(100_000) < self.kill_per_100k {
            self.kill();
        }
        None
    }

    fn act(&mut self, actor: process::Actor) -> Vec<Event> {
        let process = self.process.as_mut().expect("it has just offered to act");
        process.act(actor, self.clock_us, &self.dials, &mut self.random);
        std::mem::take(&mut process.events)
    }

    /// Lets the zombie do something. Once another process has raised the fence, that must be nothing.
    fn act_zombie(&mut self, actor: process::Actor) -> Vec<Event> {
        let Zombie { process, .. } = self.zombie.as_mut().expect("it has just offered to act");
        let before = {
            let state = self.world.state();
            (state.fenced_by != Some(process.id)).then(|| state.owned(None))
        };
        process.act(actor, self.clock_us, &self.dials, &mut self.random);
        if let Some(before) = before {
            assert_eq!(before, self.world.state().owned(Some(&before)), "what a process has taken over is changed by {actor:?}");
        }
        std::mem::take(&mut process.events)
    }

    /// Removes processes that have ended and have nothing left to do. Returns how the job ended, if it was not the zombie.
    fn reap(&mut self) -> Option<Option<JobEnd>> {
        let is_gone = |process: &Process, dials: &Dials| {
            let is_busy = || process.actors(dials).iter().any(|(_, actor)| actor.is_blocking_work());
            process.end.is_some() && !is_busy()
        };
        if let Some(zombie) = self.zombie.as_mut().filter(|zombie| zombie.end.is_none() && is_gone(&zombie.process, &self.dials))
        {
            zombie.end.clone_from(&zombie.process.end);
            self.world.release(zombie.process.id);
        }
        let process = self.process.take_if(|process| is_gone(process, &self.dials))?;
        process.close();
        self.world.release(process.id);
        self.verify_checkpoints();
        Some(process.end)
    }

    /// Says where everything stands, for a run that is stuck.
    fn describe(&self) -> String {
        let zombie = self.zombie.as_ref().map(|zombie| &zombie.process);
        self.process.iter().chain(zombie).map(Process::describe).collect()
    }

    /// Steps until something is the case.
    ///
    /// # Panics
    /// If the process ends before.
    pub fn run_until(&mut self, mut reached: impl FnMut(&Self) -> bool) {
        while !reached(self) {
            let end = self.step();
            assert!(self.is_running() || reached(self), "the process ended too early: {end:?}");
        }
    }

    /// Steps until the job ends. `None` if the process was killed instead.
    pub fn run_to_end(&mut self) -> Option<JobEnd> {
        while self.is_running() {
            if let Some(end) = self.step() {
                return Some(end);
            }
        }
        None
    }

    /// Steps for so many milliseconds of virtual time, or until the process ends.
    pub fn run_for_ms(&mut self, ms: u64) {
        let until = self.clock_us + ms * 1000;
        while self.is_running() && self.clock_us < until {
            self.step_before(until);
        }
    }

    /// Returns the reports so far.
    pub fn reports(&self) -> impl Iterator<Item = &JobReport> {
        self.events.iter().filter_map(|event| match event {
            Event::Report(report) => Some(report),
            _ => None,
        })
    }

    /// Returns the ids of the checkpoints that completed, in that order.
    pub fn completed(&self) -> Vec<u64> {
        let id = |report: &JobReport| match report {
            JobReport::CheckpointCompleted { checkpoint, .. } => Some(checkpoint.0),
            _ => None,
        };
        self.reports().filter_map(id).collect()
    }

    /// Returns the ids of the checkpoints that were given up, each with its reason.
    pub fn failed(&self) -> Vec<(u64, String)> {
        let failed = |report: &JobReport| match report {
            JobReport::CheckpointFailed { checkpoint, failure, .. } => Some((checkpoint.0, failure.to_string())),
            _ => None,
        };
        self.reports().filter_map(failed).collect()
    }

    /// Returns how often the job restarted by itself.
    pub fn restarts(&self) -> usize {
        self.reports().filter(|report| matches!(report, JobReport::Restarting { .. })).count()
    }

    /// Checks what has changed in the world.
    fn look(&mut self) {
        let unchecked: Vec<_> = {
            let state = self.world.state();
            let recent = self.events[self.events.len().saturating_sub(30)..].iter().map(|event| format!("\n{event:?}"));
            assert!(state.violations.is_empty(), "{:?} after {}", state.violations, recent.collect::<String>());
            let news = |id: &CheckpointId| self.checked.get(id) != Some(&state.disk.committed.contains(id));
            state.disk.manifests.keys().copied().filter(news).collect()
        };
        for id in unchecked {
            let checkpoint = self.checkpoint(id).unwrap_or_else(|error| panic!("checkpoint {id}: {error}"));
            for check in &self.checks {
                check(&checkpoint, &self.world).unwrap_or_else(|error| panic!("checkpoint {id}: {error}"));
            }
            self.checked.insert(id, checkpoint.committed);
        }
    }

    /// Every checkpoint can be restored at any time.
    fn verify_checkpoints(&self) {
        if self.world.state().damaged {
            return;
        }
        let ids: Vec<_> = self.world.state().disk.manifests.keys().copied().collect();
        for id in ids {
            drop(self.checkpoint(id).unwrap_or_else(|error| panic!("checkpoint {id} cannot be restored: {error}")));
        }
    }

    /// Reads a checkpoint as a restore would, and all of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<Checkpoint, String> {
        let storage = SimStorage::quiet(&self.world);
        let bytes = self.world.state().disk.manifests.get(&id).cloned().ok_or("it does not exist")?;
        let manifest = CheckpointManifest::decode(&bytes).map_err(|error| error.to_string())?;
        verify(&storage, &manifest).map_err(|error| error.to_string())?;
        let mut state: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        if let Some(process) = &self.process {
            let definition = &process.definition;
            let plan = RestorePlan::new(&manifest, &definition.spec, &definition.plan, &definition.digests);
            // A job that goes on at another parallelism may not take an old checkpoint; that is its own affair.
            for task in plan.iter().flat_map(|plan| &plan.tasks) {
                let read = task.read(&storage, |table, _, bytes| {
                    let entries = state.entry(format!("{}/{}", table.operator, table.slot)).or_default();
                    for entry in EntryReader::new(bytes) {
                        match entry.expect("checked by the reader") {
                            Entry::Put { key, value } => {
                                drop(entries.insert(String::from_utf8_lossy(key).into_owned(), value.to_vec()));
                            }
                            Entry::Delete { key } | Entry::Clear { key } => drop(entries.remove(&*String::from_utf8_lossy(key))),
                        }
                    }
                    Ok::<_, SegmentError>(())
                });
                read.map_err(|error| error.to_string())?;
            }
        }
        let positions = manifest.subtasks.iter().flat_map(|subtask| match &subtask.part {
            SubtaskPart::Source { positions } => positions.as_slice(),
            SubtaskPart::Operator { .. } | SubtaskPart::Sink { .. } => &[],
        });
        let count = |position: &SplitPosition| position.position.as_slice().try_into().map_or(0, u64::from_le_bytes);
        let positions = positions.map(|position| (position.split.clone(), count(position))).collect();
        let committed = self.world.state().disk.committed.contains(&id);
        Ok(Checkpoint { manifest, state, positions, committed })
    }

    /// Returns the ids of the checkpoints on the disk.
    pub fn on_disk(&self) -> Vec<u64> {
        self.world.state().disk.manifests.keys().map(|id| id.0).collect()
    }

    /// After the end of a job: nothing is left that no checkpoint names.
    ///
    /// # Panics
    /// If there is.
    pub fn assert_no_orphans(&self) {
        let state = self.world.state();
        let named: Vec<_> = storage::manifests(&state.disk).flat_map(|m| m.state.segments().clone().into_keys()).collect();
        let orphans: Vec<_> = state.disk.segments.keys().filter(|id| !named.contains(id)).collect();
        assert!(orphans.is_empty(), "segments that no checkpoint names: {orphans:?}");
        // Nobody has aborted what a zombie has staged since.
        let names: Vec<_> = state.staged.keys().filter(|_| self.zombie.is_none()).collect();
        assert!(state.stores.is_empty() || self.zombie.is_some(), "a job that has finished leaves stores: {:?}", state.stores);
        assert!(names.is_empty(), "transactions that are neither committed nor aborted: {names:?}");
    }
}

/// Decodes a number as the SDK stores it.
pub fn stored_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}
