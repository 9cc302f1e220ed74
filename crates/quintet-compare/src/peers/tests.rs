//! Every available peer fulfils what the workloads need.

use std::path::Path;

use quintet_bench::store::{
    Durability, MemoryMode, StoreFeature, StoreOptions, StoreTable, TransactionMode,
    conformance::{check_atomic_updates, check_operations, check_threads, check_transactions, get},
};

use super::*;

fn options(dir: &Path) -> StoreOptions {
    StoreOptions {
        dir: dir.to_path_buf(),
        durability: Durability::Buffered,
        records_max: 1000,
        bytes_written_max: 10 << 20,
        memory: Some(memory()),
        settings: Vec::new(),
    }
}

fn memory() -> MemoryMode {
    MemoryMode::Fits { budget_bytes: 64 << 20 }
}

/// Returns the peers that are available. Peers in C are not, unless `setup` has run.
fn there() -> Vec<&'static dyn Peer> {
    all().into_iter().filter(|peer| peer.check_available().is_ok()).collect()
}

#[test]
fn names_are_unique_and_settings_have_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let mut names = Vec::new();
    for peer in all() {
        assert!(!names.contains(&peer.name()), "{}", peer.name());
        names.push(peer.name());
        for memory in [memory(), MemoryMode::Direct { cache_bytes: 32 << 20 }] {
            let options = StoreOptions { memory: Some(memory), ..options.clone() };
            for setting in peer.settings(&options) {
                assert!(setting.reason.len() > 5, "{}: {setting:?}", peer.name());
            }
        }
    }
}

#[test]
fn every_peer_keeps_what_it_is_given() {
    for peer in there() {
        let name = peer.name();
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let opened = peer.open(&options).unwrap();
        let store = opened.as_ref();
        check_operations(store).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        let mut seen = Vec::new();
        let count = store.range(b"k\x05", 3, &mut |key, _| seen.push(key.to_vec())).unwrap();
        assert_eq!(count, 3, "{name}");
        assert_eq!(seen, [b"k\x05", b"k\x06", b"k\x07"], "{name}");
        assert_eq!(store.range(b"z", 3, &mut |_, _| ()).unwrap(), 0, "{name}");
        assert_eq!(store.range(b"", 1000, &mut |_, _| ()).unwrap(), 101, "{name}");
        assert_eq!(store.scan(&mut |_, _| ()).unwrap(), 101, "{name}");
        store.sync().unwrap();
        let stats = store.stats();
        assert!(stats.keys.is_none_or(|keys| keys == 101), "{name}: {stats:?}");
        opened.close().unwrap();
        let reopened = peer.open(&options).unwrap();
        assert_eq!(get(reopened.as_ref(), b"k\x07").unwrap(), Some(vec![7; 7]), "{name}");
        reopened.close().unwrap();
    }
}

#[test]
fn four_threads_see_their_own_writes() {
    for peer in there() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let opened = peer.open(&options).unwrap();
        check_threads(opened.as_ref(), 4, 100)
            .unwrap_or_else(|failure| panic!("{}: {failure}", peer.name()));
        opened.close().unwrap();
    }
}

#[test]
fn transactions_and_atomic_updates_keep_every_count() {
    for peer in there() {
        let name = peer.name();
        let dir = tempfile::tempdir().unwrap();
        let opened = peer.open(&options(dir.path())).unwrap();
        let store = opened.as_ref();
        for mode in
            [TransactionMode::Serializable, TransactionMode::Snapshot, TransactionMode::Locked]
        {
            if !peer.has_feature(StoreFeature::of(mode)) {
                assert!(check_transactions(store, mode, 1).is_err(), "{name}, {mode:?}");
                continue;
            }
            for threads in [1, 4] {
                check_transactions(store, mode, threads)
                    .unwrap_or_else(|failure| panic!("{name}, {mode:?}: {failure}"));
            }
        }
        let updates = check_atomic_updates(store, 4);
        assert_eq!(updates.is_ok(), peer.has_feature(StoreFeature::AtomicUpdate), "{name}");
        if peer.has_feature(StoreFeature::Transactions) {
            // The second table does not show in the first one.
            assert_eq!(store.get_into(b"y", &mut Vec::new()).ok(), Some(false), "{name}");
            store.delete(b"x").unwrap();
            store.delete(b"counter").unwrap();
            assert_eq!(store.scan(&mut |_, _| ()).unwrap(), 0, "{name}");
        }
        opened.close().unwrap();
    }
}

/// Two transactions that overlap: the second one reads before the first one commits.
#[test]
fn an_optimistic_conflict_is_counted_and_run_again() {
    let peer = &lsm::LsmLibrary::RocksOptimistic;
    if peer.check_available().is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let store = peer.open(&options(dir.path())).unwrap();
    store.put(b"x", b"0").unwrap();
    let (mut runs, mut value) = (0, Vec::new());
    let conflicts =
        store.transactions().unwrap().transact(TransactionMode::Serializable, &mut |transaction| {
            runs += 1;
            transaction.get_into(StoreTable::First, b"x", &mut value)?;
            if runs <= 2 {
                store.put(b"x", &[runs])?;
            }
            transaction.put(StoreTable::First, b"x", b"last")
        });
    assert_eq!((conflicts.unwrap(), runs, value), (2, 3, vec![2]));
    assert_eq!(get(store.as_ref(), b"x").unwrap(), Some(b"last".to_vec()));
    store.close().unwrap();
}

#[test]
fn synced_writes_and_direct_reads_work_or_say_why_not() {
    for peer in there() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        options.durability = Durability::Sync;
        let store = peer.open(&options).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(get(store.as_ref(), b"key").unwrap().as_deref(), Some(b"value".as_slice()));
        store.close().unwrap();
        let dir = tempfile::tempdir().unwrap();
        options.dir = dir.path().to_path_buf();
        options.memory = Some(MemoryMode::Direct { cache_bytes: 32 << 20 });
        match peer.open(&options) {
            Ok(store) => {
                store.put(b"key", b"value").unwrap();
                store.close().unwrap();
            }
            Err(failure) => {
                let name = peer.name().split('-').next().unwrap();
                assert!(failure.to_string().starts_with(name), "{failure}");
            }
        }
    }
}

#[test]
fn options_are_taken_or_refused_in_one_line() {
    for peer in there() {
        let name = peer.name();
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        let (right, wrong) = match name {
            "rocksdb" | "rocksdb-optimistic" | "rocksdb-pessimistic" => {
                (("write_buffer_size", "1048576"), ("write_bufer_size", "1048576"))
            }
            "lmdb" | "lmdb-readahead" | "mdbx" => (("flags", "WRITEMAP+NOMEMINIT"), ("flags", "X")),
            "leveldb" => (("block_size", "8192"), ("block_size", "many")),
            "fjall" => (("hash_percent", "75"), ("hash", "75")),
            "redb" => (("sync_every", "10"), ("cache", "10")),
            _ => {
                assert!(!peer.takes_options(), "{name}");
                continue;
            }
        };
        assert!(peer.takes_options(), "{name}");
        for ((option, value), is_right) in [(wrong, false), (right, true)] {
            options.settings = vec![(option.to_owned(), value.to_owned())];
            match peer.open(&options) {
                Ok(store) => {
                    assert!(is_right, "{name}: {option}={value}");
                    store.put(b"key", b"value").unwrap();
                    store.close().unwrap();
                }
                Err(failure) => {
                    let said = failure.to_string();
                    assert!(!is_right, "{name}: {said}");
                    assert_eq!(said.lines().count(), 1, "{name}: {said}");
                }
            }
        }
    }
}
