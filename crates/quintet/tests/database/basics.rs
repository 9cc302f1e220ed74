//! End-to-end tests of the public API, on the simulated system.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use quintet::{
    Cursor, Database, Durability, EngineKind, Error, KEY_BYTES_MAX, MountOptions, Options,
    PutOptions, Table, TableOptions, VALUE_BYTES_MAX,
    testing::disk::sim::{Policy, SimEnv},
};

fn open(env: &SimEnv) -> Database {
    options().open_in(Arc::new(env.clone()), "db").unwrap()
}

fn options() -> Options {
    Options::new().memory_budget(8 << 20).segment_bytes(64 << 10)
}

fn naive() -> TableOptions {
    TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "4096")
}

#[test]
fn puts_survive_reopening() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let users = db.create_table("app/users", naive()).unwrap();
    users.put(b"alice", b"1").unwrap();
    users.put("empty", "").unwrap();
    users.put_with("bob", b"2", PutOptions::new().durability(Durability::Sync)).unwrap();
    users.delete("bob").unwrap();
    assert_eq!(users.get("alice").unwrap().unwrap(), b"1");
    db.close().unwrap();
    assert!(matches!(users.get("alice"), Err(Error::Closed)));
    let db = open(&env);
    let users = db.table("app/users").unwrap();
    assert_eq!(users.get("alice").unwrap().unwrap(), b"1");
    assert_eq!(users.get("empty").unwrap().unwrap(), b"");
    assert!(users.get("bob").unwrap().is_none());
    assert!(db.check().unwrap().is_sound());
}

/// The block cache of one table may fill the memory budget. Writes to another table evict it.
#[test]
fn cached_blocks_are_evicted_for_writes_to_another_table() {
    let key = |number: u32| number.to_be_bytes();
    for (kind, other) in [
        (EngineKind::Tph, EngineKind::Naive),
        (EngineKind::Tph, EngineKind::Slm),
        (EngineKind::Slm, EngineKind::Naive),
        (EngineKind::Slm, EngineKind::Tph),
        (EngineKind::Tph, EngineKind::HashLog),
        (EngineKind::Tph, EngineKind::Trie),
        (EngineKind::Tph, EngineKind::BTree),
    ] {
        let env = SimEnv::new(8);
        let options = Options::new().memory_budget(32 << 20);
        let db = options.open_in(Arc::new(env), "db").unwrap();
        let read = db.create_table("read", TableOptions::new(kind)).unwrap();
        for number in 0..32_000 {
            read.put(key(number), [7; 1000]).unwrap();
        }
        db.persist().unwrap();
        for number in (0..32_000).chain(0..32_000) {
            assert_eq!(read.get(key(number)).unwrap().unwrap(), [7; 1000]);
        }
        let used = db.stats().memory_bytes;
        assert!(used > 24 << 20, "{kind}: {used} bytes: nothing is in the way");
        let written = db.create_table("written", TableOptions::new(other)).unwrap();
        // `naive` keeps all values in memory: more than the block cache has left free.
        for number in 0..12_000 {
            let outcome = written.put(key(number), [8; 1000]);
            assert!(outcome.is_ok(), "{kind}, {other}, {number}: {outcome:?}");
        }
        let stats = db.stats();
        assert!(stats.memory_bytes <= stats.memory_budget_bytes, "{kind}: {}", stats.memory_bytes);
        for number in 0..12_000 {
            assert_eq!(written.get(key(number)).unwrap().unwrap(), [8; 1000]);
            assert_eq!(read.get(key(number)).unwrap().unwrap(), [7; 1000]);
        }
    }
}

/// A writer that waits for a flush holds no memory that another writer needs. A budget with room
/// for the table's index is enough for any number of writers.
#[test]
fn pending_flushes_refuse_no_writer() {
    const WRITERS: u32 = 16;
    const EACH: u32 = 1_500;
    let key = |writer: u32, number: u32| (writer * EACH + number).to_be_bytes();
    for kind in [EngineKind::Tph, EngineKind::Slm] {
        let options = Options::new().memory_budget(4 << 20);
        let db = options.open_in(Arc::new(SimEnv::new(9)), "db").unwrap();
        let table = db.create_table("t", TableOptions::new(kind)).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let table = &table;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let outcome = table.put(key(writer, number), [7; 1000]);
                        assert!(outcome.is_ok(), "{kind}, {writer}, {number}: {outcome:?}");
                    }
                });
            }
        });
        for (writer, number) in (0..WRITERS).flat_map(|one| (0..EACH).map(move |n| (one, n))) {
            assert_eq!(table.get(key(writer, number)).unwrap().unwrap(), [7; 1000], "{kind}");
        }
    }
}

/// On real files: a `Sync` write waits for no disk, and the next opening finds it.
#[test]
fn a_log_in_emulated_persistent_memory_is_found_again() {
    let path = std::env::temp_dir().join(format!("quintet-memory-{}", std::process::id()));
    let options = options().durability(Durability::Sync);
    let options = options.emulate_persistent_memory(Duration::from_nanos(500), 2_000_000_000);
    let db = options.open(&path).unwrap();
    let slm = TableOptions::new(EngineKind::Slm).set("memtable_bytes", "65536");
    let table = db.create_table("t", slm).unwrap();
    // More than a segment.
    for number in 0..2000_u32 {
        table.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    assert!(db.stats().log.syncs_total >= 2000);
    db.close().unwrap();
    let db = options.open(&path).unwrap();
    let table = db.table("t").unwrap();
    assert!((0..2000_u32).all(|number| table.contains(number.to_be_bytes()).unwrap()));
    db.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_killed_process_loses_nothing_and_a_crash_keeps_what_was_synced() {
    let env = SimEnv::new(2);
    let db = open(&env);
    let table = db.create_table("t", naive()).unwrap();
    for number in 0..500_u32 {
        table.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    table.put_with("last", "synced", PutOptions::new().durability(Durability::Sync)).unwrap();
    for number in 500..600_u32 {
        table.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    let count = |env: SimEnv| {
        let db = open(&env);
        assert!(db.check().unwrap().is_sound());
        let table = db.table("t").unwrap();
        assert_eq!(table.get("last").unwrap().unwrap(), b"synced");
        let (mut cursor, mut count) = (Cursor::START, 0);
        loop {
            let (entries, next) = table.scan(&cursor, 10).unwrap();
            count += entries.len();
            if next.is_start() {
                return count;
            }
            cursor = next;
        }
    };
    assert_eq!(count(env.kill()), 601);
    assert_eq!(count(env.crash(Policy::AllLost)), 501);
    db.persist().unwrap();
    assert_eq!(count(env.crash(Policy::AllLost)), 601);
}

#[test]
fn jobs_keep_recovery_bounded() {
    let env = SimEnv::new(3);
    let db = options().recovery_budget(256 << 10).open_in(Arc::new(env.clone()), "db").unwrap();
    let table = db.create_table("busy", naive()).unwrap();
    let idle = db.create_table("idle", naive()).unwrap();
    idle.put("k", "v").unwrap();
    for number in 0..10_000_u32 {
        table.put((number % 100).to_be_bytes(), [7; 200]).unwrap();
        if number % 64 == 0 {
            env.advance(Duration::from_millis(10));
            env.run_due();
        }
    }
    let stats = db.stats();
    assert!(stats.unpersisted_bytes <= 256 << 10, "{stats:?}");
    assert!(stats.log.file_bytes <= 1 << 20, "{stats:?}");
    assert!(stats.memory_bytes <= stats.memory_budget_bytes);
    assert_eq!(stats.background_failure, None);
    drop((db, table, idle));
    let db = open(&env);
    assert_eq!(db.table("idle").unwrap().get("k").unwrap().unwrap(), b"v");
    assert_eq!(db.table("busy").unwrap().stats().unwrap().keys, 100);
}

#[test]
fn a_table_may_be_renamed_to_its_own_name() {
    let db = open(&SimEnv::new(1));
    db.create_table("app/users", naive()).unwrap().put("k", "v").unwrap();
    for name in ["app/users", "app"] {
        db.rename(name, name).unwrap();
    }
    assert_eq!(db.table("app/users").unwrap().get("k").unwrap().unwrap(), b"v");
    assert!(matches!(db.rename("absent", "absent"), Err(Error::NoSuchTable { .. })));
    assert_eq!(db.tables().len(), 1);
}

/// Returns figures that change with every write: the log's end, the catalog's length, the tables.
fn marks(db: &Database) -> (u64, u64, u64, Vec<String>, u64) {
    let stats = db.stats();
    let names = db.tables().into_iter().map(|table| table.name).collect();
    let keys = stats.tables.iter().map(|table| table.keys).sum();
    (stats.log.end.0, stats.catalog_bytes, stats.expiries_pending, names, keys)
}

fn refused_puts(table: &Table) {
    let limit = |result: Result<bool, Error>| {
        assert!(matches!(result, Err(Error::Limit { .. })), "{result:?}");
    };
    let plain = PutOptions::new();
    limit(table.put_with("", "v", plain));
    limit(table.put_with(vec![7; KEY_BYTES_MAX + 1], "v", plain));
    limit(table.put_with("k", vec![7; VALUE_BYTES_MAX + 1], plain));
    limit(table.put_with("k", "v", plain.ttl(Duration::ZERO)));
    limit(table.put_with("k", "v", plain.ttl(Duration::from_micros(999))));
    limit(table.put_with("k", "v", plain.expires_at(SystemTime::UNIX_EPOCH)));
    limit(table.put_with(
        "k",
        "v",
        plain.expires_at(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
    ));
    assert!(matches!(table.get(""), Err(Error::Limit { .. })));
    assert!(matches!(table.delete(vec![7; KEY_BYTES_MAX + 1]), Err(Error::Limit { .. })));
}

#[test]
fn refused_calls_change_nothing_on_any_engine() {
    for kind in EngineKind::AVAILABLE {
        let env = SimEnv::new(9);
        let db = open(&env);
        let table = db.create_table("dir/t", TableOptions::new(*kind)).unwrap();
        table.put("k", "before").unwrap();
        let typed = db.create_typed::<u64, f64>("typed", TableOptions::new(*kind)).unwrap();
        typed.put(&1, &0.5).unwrap();
        let before = marks(&db);
        refused_puts(&table);
        let mismatch = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::TypeMismatch { .. })), "{result:?}");
        };
        mismatch(db.table("typed").unwrap().put("short", [0; 8]));
        mismatch(db.table("typed").unwrap().put([0; 8], "no"));
        mismatch(db.typed::<String, f64>("typed").map(drop));
        let mut batch = db.batch();
        batch.put(&table, "k", "after");
        batch.put_with(&table, "k", "after", PutOptions::new().ttl(Duration::ZERO));
        assert!(matches!(batch.commit(), Err(Error::Limit { .. })));
        for unknown in ["nowhere", "dir", "dir/t/below", "dir//t", ""] {
            let refused = db.table(unknown);
            assert!(matches!(refused, Err(Error::NoSuchTable { .. })), "{unknown}: {refused:?}");
            assert!(db.drop_table(unknown).is_err(), "{unknown}");
            assert!(db.rename(unknown, "dir/t").is_err(), "{unknown}");
        }
        for name in ["", "a//b", "/a", "a/", ".expiry", "a b", &"n".repeat(65)] {
            let refused = db.create_table(name, TableOptions::new(*kind));
            assert!(matches!(refused, Err(Error::Limit { .. })), "{name}: {refused:?}");
        }
        assert!(matches!(db.rename("dir", "dir/deeper"), Err(Error::Limit { .. })));
        for target in ["db", "nowhere"] {
            let refused = db.mount("m", MountOptions::new(target));
            assert!(matches!(refused, Err(Error::Mount { .. })), "{target}: {refused:?}");
        }
        assert_eq!(marks(&db), before, "{kind}");
        assert_eq!(table.get("k").unwrap().unwrap(), b"before");
        assert!(db.check().unwrap().is_sound());
    }
}

/// From its expiry on, no kind of read returns a value, on any engine. The sweep then removes it.
#[test]
fn no_read_returns_an_expired_value_on_any_engine() {
    for kind in EngineKind::AVAILABLE {
        let env = SimEnv::new(10);
        let db = open(&env);
        let table = db.create_table("t", TableOptions::new(*kind)).unwrap();
        let typed = db.create_typed::<u64, String>("typed", TableOptions::new(*kind)).unwrap();
        // Swept before the table rests: a flush of `tph` at rest leaves out what has expired.
        let ttl = PutOptions::new().ttl(Duration::from_millis(500));
        typed.put_with(&1, "gone", ttl).unwrap();
        table.put("stays", "v").unwrap();
        table.put_with("goes", "v", ttl).unwrap();
        env.advance(Duration::from_millis(500));
        assert_eq!(typed.get(&1).unwrap(), None, "{kind}");
        assert!(table.get("goes").unwrap().is_none() && !table.contains("goes").unwrap());
        assert!(table.multi_get(&["goes"]).unwrap()[0].is_none());
        assert_eq!(table.scan(Cursor::START, 10).unwrap().0.len(), 1, "{kind}");
        if kind.is_ordered() {
            assert_eq!(table.range(..).unwrap().count(), 1);
            assert_eq!(table.range(..).unwrap().rev().count(), 1);
        }
        assert!(!table.put_with("goes", "v", PutOptions::new().if_present()).unwrap());
        for _ in 0..3 {
            env.advance(Duration::from_millis(100));
            env.run_due();
        }
        let stats = db.stats();
        assert_eq!((stats.expiries_pending, stats.expired_swept_total), (0, 2), "{kind}");
        assert_eq!(table.stats().unwrap().keys, 1, "{kind}");
        assert_eq!(db.table("typed").unwrap().stats().unwrap().keys, 0, "{kind}");
        assert!(db.check().unwrap().is_sound());
    }
}
