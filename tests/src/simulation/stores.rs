//! Stores of state on the simulated disk: they survive processes, lose what was not durable when the power goes, and may be
//! lost, damaged or replaced by an older copy while nobody runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Weak};

use cofferdam::state_store::{StateMemory, StorePlace};
use cofferdam_dataflow::ids::{CheckpointId, SubtaskId};
use cofferdam_dataflow::state::memory_store::MemoryStore;
use cofferdam_dataflow::state::store::{SharedStore, StateStore, StoreBatch, StoreError};

use super::random::Random;
use super::world::{Op, Outcome, World};

/// How often a store that is made durable is copied, for a crash to bring the copy back; of 1000.
const COPIED_PERMILLE: u64 = 50;

/// What is on the disk of one subtask's store.
#[derive(Debug, Default)]
struct StoreFiles {
    content: MemoryStore,
    /// What survives the loss of power, and the writes since, of which the first few may.
    durable: MemoryStore,
    since: Vec<StoreBatch>,
    /// As it was at some time before.
    copy: Option<MemoryStore>,
    is_damaged: bool,
    /// Who has it open.
    holder: Weak<()>,
}

/// The stores of a job.
#[derive(Debug, Default)]
pub struct StoresOnDisk {
    files: BTreeMap<SubtaskId, StoreFiles>,
    /// In how many of 10,000 cases an operation fails.
    pub fail_per_10k: u64,
    /// In how many of 1000 cases a crash loses, damages or sets back a store.
    pub spoil_permille: u64,
    /// How many operations have failed, and stores been lost, damaged and set back.
    pub spoilt: [u64; 4],
}

impl StoresOnDisk {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The last process has ended. If the power has gone, so has the end of what was not durable.
    pub(super) fn crash(&mut self, power_is_off: bool, random: &mut Random) {
        for files in self.files.values_mut().filter(|_| power_is_off) {
            let kept = random.index(files.since.len() + 1);
            files.content = files.durable.copy();
            for batch in std::mem::take(&mut files.since).into_iter().take(kept) {
                files.content.write(batch).expect("nothing fails here");
            }
        }
        let spoil = self.spoil_permille;
        let spoilt = &mut self.spoilt;
        self.files.retain(|_, files| {
            if spoil == 0 || !random.chance(spoil) {
                return true;
            }
            let how = 1 + random.index(3);
            match (how, files.copy.take()) {
                (2, _) => files.is_damaged = true,
                (3, Some(copy)) => {
                    (files.content, files.durable) = (copy.copy(), copy);
                    files.since.clear();
                }
                (3, None) => return true,
                _ => {}
            }
            spoilt[how] += 1;
            how != 1
        });
    }
}

/// The place of a job's stores.
#[derive(Clone)]
pub(super) struct SimPlace(pub(super) World);

impl StorePlace for SimPlace {
    fn open(&self, id: &SubtaskId, _: StateMemory) -> Result<(SharedStore, Option<StoreError>), StoreError> {
        let mut state = self.0.state();
        if state.enter(Op::WriteStore) != Outcome::Done {
            state.stores.spoilt[0] += 1;
            return Err(StoreError("injected at opening".into()));
        }
        let mut problem = None;
        let files = state.stores.files.entry(id.clone()).or_default();
        let is_open = files.holder.strong_count() > 0;
        if std::mem::take(&mut files.is_damaged) {
            *files = StoreFiles::default();
            problem = Some(StoreError("damaged".into()));
        }
        let holder = Arc::new(());
        files.holder = Arc::downgrade(&holder);
        if is_open {
            state.violated(format!("the store of {id} is opened while somebody has it open"));
        }
        let store = SimStore { world: self.0.clone(), id: id.clone(), accounts: MemoryStore::default(), _holder: holder };
        Ok((Arc::new(store), problem))
    }

    fn retain(&self, wanted: &BTreeSet<SubtaskId>) -> io::Result<()> {
        let mut state = self.0.state();
        let unwanted = state.stores.files.iter().filter(|(id, _)| !wanted.contains(id));
        let open: Vec<_> = unwanted.filter(|(_, files)| files.holder.strong_count() > 0).map(|(id, _)| id.to_string()).collect();
        if !open.is_empty() {
            state.violated(format!("stores are deleted while somebody has them open: {open:?}"));
        }
        state.stores.files.retain(|id, _| wanted.contains(id));
        Ok(())
    }
}

/// An open store.
struct SimStore {
    world: World,
    id: SubtaskId,
    /// In the memory of the process.
    accounts: MemoryStore,
    _holder: Arc<()>,
}

impl SimStore {
    fn act<T>(&self, op: Op, act: impl FnOnce(&mut StoreFiles, &mut Random) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut state = self.world.state();
        let outcome = state.enter(op);
        let state = &mut *state;
        let Some(files) = state.stores.files.get_mut(&self.id) else {
            return Err(StoreError("it has been deleted".into()));
        };
        let result = match outcome {
            Outcome::Done => return act(files, &mut state.random),
            Outcome::FailedAfter => act(files, &mut state.random).map(drop),
            Outcome::Failed | Outcome::Full | Outcome::Unknown => Ok(()),
        };
        state.stores.spoilt[0] += 1;
        result.and(Err(StoreError(format!("injected: {outcome:?}"))))
    }
}

impl StateStore for SimStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.act(Op::ReadStore, |files, _| files.content.get(key, value))
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        self.act(Op::ReadStore, |files, _| files.content.scan(prefix, after, each))
    }

    fn write(&self, batch: StoreBatch) -> Result<(), StoreError> {
        self.act(Op::WriteStore, |files, _| {
            files.since.push(batch.clone());
            files.content.write(batch)
        })
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.act(Op::WriteStore, |files, random| {
            files.since.clear();
            files.durable = files.content.copy();
            if random.chance(COPIED_PERMILLE) {
                files.copy = Some(files.content.copy());
            }
            Ok(())
        })
    }

    fn wipe(&self) -> Result<(), StoreError> {
        self.act(Op::WriteStore, |files, _| {
            // As one write of everything that is there.
            let mut all = Vec::new();
            files.content.scan(&[], None, &mut |key, _| {
                all.push((key.to_vec(), None));
                true
            })?;
            files.since.push(all);
            files.content.wipe()
        })
    }

    fn keep_accounts(&self, checkpoint: CheckpointId, accounts: Vec<u8>) {
        self.accounts.keep_accounts(checkpoint, accounts);
    }

    fn take_accounts(&self, checkpoint: CheckpointId) -> Option<Vec<u8>> {
        self.accounts.take_accounts(checkpoint)
    }
}
