//! The store on disk against an ordered map, with reopening, and what becomes of a broken one.

use std::rc::Rc;

use cofferdam_dataflow::state::memory_store::MemoryStore;
use proptest::prelude::*;

use super::*;

fn memory() -> StateMemory {
    StateMemory::divide(8 << 20)
}

fn open(dir: &Path) -> DiskStore {
    let (store, problem) = DiskStore::open(dir, memory()).unwrap();
    assert_eq!(problem, None);
    store
}

fn all(store: &dyn StateStore, prefix: &[u8], after: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    store
        .scan(prefix, after, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < 5
        })
        .unwrap();
    found
}

#[derive(Clone, Debug)]
enum Action {
    Write(Vec<(Vec<u8>, Option<u8>)>),
    Wipe,
    Sync,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff)], 1..4)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => prop::collection::vec((key(), prop::option::weighted(0.7, any::<u8>())), 0..20).prop_map(Action::Write),
        1 => Just(Action::Wipe),
        1 => Just(Action::Sync),
        2 => Just(Action::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_store_on_disk_is_an_ordered_map(
        actions in prop::collection::vec(action(), 1..20),
        prefix in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff)], 0..3),
        rest in key(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let model = Rc::new(MemoryStore::default());
        let mut store = Some(open(&path));
        for action in actions {
            match action {
                Action::Write(writes) => {
                    let writes: BTreeMap<_, _> = writes.into_iter().map(|(key, value)| (key, value.map(|v| vec![v; 3]))).collect();
                    let batch: StoreBatch = writes.into_iter().collect();
                    model.write(batch.clone()).unwrap();
                    store.as_ref().unwrap().write(batch).unwrap();
                }
                Action::Wipe => {
                    model.wipe().unwrap();
                    store.as_ref().unwrap().wipe().unwrap();
                }
                Action::Sync => store.as_ref().unwrap().sync().unwrap(),
                Action::Reopen => {
                    drop(store.take());
                    store = Some(open(&path));
                }
            }
            let store = store.as_ref().unwrap();
            let after = [&prefix[..], &rest].concat();
            for after in [None, Some(&after[..])] {
                prop_assert_eq!(all(store, &prefix, after), all(&*model, &prefix, after));
            }
            let (mut found, mut expected) = (vec![9], vec![]);
            prop_assert_eq!(store.get(&rest, &mut found).unwrap(), model.get(&rest, &mut expected).unwrap());
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = open(&path);
    store.write(vec![(b"key".to_vec(), Some(b"value".to_vec()))]).unwrap();
    drop(store);
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::write(entry.path(), b"nonsense").unwrap();
        }
    }
    let (store, problem) = DiskStore::open(&path, memory()).unwrap();
    assert!(problem.is_some());
    assert!(!store.get(b"key", &mut Vec::new()).unwrap());
}

#[test]
fn accounts_are_those_of_the_checkpoint_and_older_ones_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    (1..4).for_each(|id| store.keep_accounts(CheckpointId(id), vec![u8::try_from(id).unwrap()]));
    assert_eq!(store.take_accounts(CheckpointId(2)), Some(vec![2]));
    assert_eq!((store.take_accounts(CheckpointId(1)), store.take_accounts(CheckpointId(3))), (None, Some(vec![3])));
}

#[test]
fn memory_is_divided_and_never_more_than_there_is() {
    for bytes in [4_u64 << 20, 256 << 20, 4 << 30] {
        let StateMemory { table_bytes, cache_bytes, memtable_bytes } = StateMemory::divide(bytes);
        assert!(table_bytes + cache_bytes + memtable_bytes * (SEALED_TABLES + 1) <= bytes);
        assert!(table_bytes >= bytes / 4);
    }
}
