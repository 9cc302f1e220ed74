//! Stress test: many threads use one database in a real directory, every operation beside every
//! other, on every engine.
//!
//! The memory budget, chunks and segments are so small that eviction, compaction, rotation and
//! persisting never stop. A value contains its key, a counter and a filling computed from both, so
//! a torn or misplaced value is detected. The two rows of a batch carry one counter. Each thread
//! must read its own last write of its own keys, also after the database is reopened.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `QUINTET_STRESS_OPERATIONS` | 1,500 | operations of each thread |
//! | `QUINTET_STRESS_ENGINE` | all | the only engine |
//! | `QUINTET_STRESS_ROUNDS` | 1 | rounds |
//!
//! `.ci/tsan` runs this file under the thread sanitizer, and a deliberate race that it must report.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/modes.rs"]
mod modes;
#[expect(dead_code, reason = "shared with tests that use all of it")]
#[path = "common/random.rs"]
mod random;
#[path = "common/scratch.rs"]
mod scratch;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use quintet::{
    Cursor, Database, Durability, EngineKind, Error, Options, PutOptions, Result, Table,
    TableOptions,
};

use crate::{
    modes::{Mode, modes, with_mode},
    random::Random,
    scratch::Scratch,
};

const WRITERS: u64 = 3;
const READERS: u64 = 2;
/// Number of keys of each writer.
const KEYS: u64 = 1_000;

fn open(path: &Path) -> Database {
    Options::new()
        .memory_budget(1 << 20)
        .segment_bytes(128 << 10)
        .recovery_budget(256 << 10)
        .sync_interval(Duration::from_millis(2))
        .open(path)
        .unwrap()
}

/// The smallest chunks, memtables and caches that an engine accepts.
fn tiny(kind: EngineKind) -> TableOptions {
    let options = TableOptions::new(kind);
    match kind {
        EngineKind::Naive => options.set("snapshot_bytes", "65536"),
        EngineKind::HashLog => options.set("chunk_bytes", "16384").set("mutable_chunks", "2"),
        EngineKind::Trie => options
            .set("region_bytes", "65536")
            .set("journal_bytes", "65536")
            .set("cut_bytes", "65536")
            .set("sluggishness", "2"),
        EngineKind::Tph => options
            .set("memtable_bytes", "65536")
            .set("table_bytes", "65536")
            .set("level0_tables", "2")
            .set("max_pieces", "3"),
        EngineKind::Slm => options
            .set("memtable_bytes", "65536")
            .set("run_bytes", "65536")
            .set("compaction_runs", "2")
            .set("leaf_threshold", "3"),
        EngineKind::BTree => options,
    }
}

/// Returns a key. All keys agree at both ends, so they have one path in a trie of bytes of keys.
fn key_of(number: u64) -> Vec<u8> {
    format!("key-same{number:06}same-key").into_bytes()
}

fn value_of(number: u64, count: u64) -> Vec<u8> {
    let mut value = Vec::from(number.to_le_bytes());
    value.extend_from_slice(&count.to_le_bytes());
    let fill = u8::try_from((number ^ count) % 251).unwrap();
    // Few sizes, so that updates in place are common; now and then a large one.
    let bytes = if count.is_multiple_of(97) { 9_000 } else { 16 + count % 2 * 300 };
    value.resize(usize::try_from(bytes).unwrap(), fill);
    value
}

/// Checks a value that was read for a key and returns its counter.
fn count_in(number: u64, value: &[u8]) -> u64 {
    let count = u64::from_le_bytes(*value[8..].first_chunk().unwrap());
    assert!(value == value_of(number, count), "key {number}: not a value of it, or a torn one");
    count
}

/// Returns whether a write was done. The small memory budget may refuse it, which is no failure.
fn made<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::OutOfMemory { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// One writer: writes its own keys through every write method, and reads them back.
fn write(db: &Database, tables: &[Table; 2], writer: u64, operations: u64) -> Rows {
    let mut random = Random(writer);
    let mut rows = Rows::new();
    for count in 1..=operations {
        let number = random.below(KEYS) * WRITERS + writer;
        let (key, value) = (key_of(number), value_of(number, count));
        let table = &tables[0];
        match random.below(20) {
            0..2 => {
                if made(table.delete(&key)) {
                    rows.remove(&number);
                }
            }
            2..4 => {
                let mut batch = db.batch();
                batch.put(table, &key, &value).put(&tables[1], &key, &value);
                if made(batch.commit()) {
                    rows.insert(number, count);
                }
            }
            4 => {
                let options = PutOptions::new().if_absent();
                match table.put_with(&key, &value, options) {
                    Ok(true) => assert!(rows.insert(number, count).is_none()),
                    Ok(false) => assert!(rows.contains_key(&number)),
                    Err(error) => assert!(matches!(error, Error::OutOfMemory { .. }), "{error}"),
                }
            }
            5 => {
                let options = PutOptions::new().durability(Durability::Sync);
                if made(table.put_with(&key, &value, options)) {
                    rows.insert(number, count);
                }
            }
            6 => {
                // Keys that no writer checks, for the sweep and compaction to drop.
                let options = PutOptions::new().ttl(Duration::from_millis(1));
                made(tables[1].put_with(format!("short-{count}"), b"lived", options));
            }
            _ => {
                if made(table.put(&key, &value)) {
                    rows.insert(number, count);
                }
            }
        }
        let found = table.get(&key).unwrap().map(|value| count_in(number, &value));
        assert_eq!(found, rows.get(&number).copied(), "writer {writer}, key {number}");
    }
    rows
}

type Rows = BTreeMap<u64, u64>;

/// One reader: gets, batches of gets and whole scans. A key's counter must never decrease.
fn read(tables: &[Table; 2], reader: u64, done: &AtomicBool) {
    let mut random = Random(100 + reader);
    let mut newest = Rows::new();
    let mut see = |number: u64, value: &[u8]| {
        let count = count_in(number, value);
        let before = newest.insert(number, count).unwrap_or(0);
        assert!(before <= count, "key {number} went back from {before} to {count}");
    };
    while !done.load(Ordering::Relaxed) {
        let number = random.below(KEYS * WRITERS);
        match random.below(10) {
            0..7 => {
                if let Some(value) = tables[0].get(key_of(number)).unwrap() {
                    see(number, &value);
                }
            }
            7..9 => {
                let numbers: Vec<u64> =
                    (0..20).map(|step| (number + step * 7) % (KEYS * WRITERS)).collect();
                let keys: Vec<Vec<u8>> = numbers.iter().copied().map(key_of).collect();
                for (number, value) in numbers.iter().zip(tables[0].multi_get(&keys).unwrap()) {
                    if let Some(value) = value {
                        see(*number, &value);
                    }
                }
            }
            _ => scan(&tables[usize::from(number.is_multiple_of(2))]),
        }
    }
}

fn scan(table: &Table) {
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = table.scan(&cursor, 64).unwrap();
        for (key, value) in entries {
            let key = std::str::from_utf8(&key).unwrap();
            match key.strip_prefix("key-same").and_then(|rest| rest.strip_suffix("same-key")) {
                Some(number) => drop(count_in(number.parse().unwrap(), &value)),
                None => assert!(key.starts_with("short-") && value == *b"lived"),
            }
        }
        if next.is_start() {
            break;
        }
        cursor = next;
    }
    if table.kind().is_ordered() {
        let mut before = None;
        for entry in table.range(key_of(100)..key_of(300)).unwrap() {
            let (key, _) = entry.unwrap();
            assert!(before.as_ref() < Some(&key), "a range is in order");
            before = Some(key);
        }
    }
}

/// One thread that persists, compacts, checks, reads statistics and changes names in a loop.
fn maintain(db: &Database, tables: &[Table; 2], kind: EngineKind, done: &AtomicBool) {
    let mut round = 0_usize;
    while !done.load(Ordering::Relaxed) {
        round += 1;
        tables[round % 2].persist().unwrap();
        tables[round % 2].compact().unwrap();
        assert!(db.stats().tables.len() >= 2);
        match round % 4 {
            0 => db.persist().unwrap(),
            1 => assert_sound(db),
            2 => {
                let name = format!("passing/{round}");
                let other = db.create_table(&name, tiny(kind)).unwrap();
                made(other.put(b"k", b"v"));
                db.rename(&name, "passing/other").unwrap();
                db.drop_tree("passing").unwrap();
            }
            _ => db.sync().unwrap(),
        }
    }
}

fn assert_sound(db: &Database) {
    let report = db.check().unwrap();
    assert!(report.is_sound(), "{:#?}", &report.findings[..report.findings.len().min(5)]);
}

/// Lets the threads use two tables of an engine, in these modes.
fn hammer(kind: EngineKind, pair: [Mode; 2], operations: u64) {
    let scratch = Scratch::new(&format!("threads-{kind}"));
    let db = open(&scratch.0);
    let [first, second] = pair;
    let tables = [("first", first), ("second", second)]
        .map(|(name, mode)| db.create_table(name, with_mode(tiny(kind), mode)).unwrap());
    let done = AtomicBool::new(false);
    let rows: Vec<Rows> = thread::scope(|scope| {
        let (db, tables, done) = (&db, &tables, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(db, tables, writer, operations)))
            .collect();
        let mut others: Vec<_> =
            (0..READERS).map(|reader| scope.spawn(move || read(tables, reader, done))).collect();
        others.push(scope.spawn(move || maintain(db, tables, kind, done)));
        // Also when a writer panics: otherwise the others would never end.
        let rows: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        for other in others {
            other.join().unwrap();
        }
        rows.into_iter().map(Result::unwrap).collect()
    });
    println!("{kind} {pair:?}: {:?}", tables[0].stats().unwrap());
    db.close().unwrap();
    drop((tables, db));
    let db = open(&scratch.0);
    let table = db.table("first").unwrap();
    for number in 0..KEYS * WRITERS {
        let writer = usize::try_from(number % WRITERS).unwrap();
        let found = table.get(key_of(number)).unwrap().map(|value| count_in(number, &value));
        assert_eq!(found, rows[writer].get(&number).copied(), "key {number} after opening again");
    }
    scan(&table);
    assert_sound(&db);
    db.close().unwrap();
}

#[test]
fn concurrent_threads_lose_and_mix_no_value_on_every_engine() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let operations = number("QUINTET_STRESS_OPERATIONS", 1_500);
    let kinds: Vec<EngineKind> = match std::env::var("QUINTET_STRESS_ENGINE") {
        Ok(name) => vec![name.parse().unwrap()],
        Err(_) => EngineKind::AVAILABLE.to_vec(),
    };
    for _ in 0..number("QUINTET_STRESS_ROUNDS", 1) {
        for kind in &kinds {
            for pair in modes(*kind).chunks(2) {
                hammer(*kind, [pair[0], pair[pair.len() - 1]], operations);
            }
        }
    }
}

/// Tests the sanitizer: it must report a race planted in an update in place. The test runs itself
/// as a child, because the report ends the process.
#[cfg(tsan)]
mod planted {
    use std::process::Command;

    use quintet::testing::seeded::{Bug, plant_everywhere};

    use super::*;

    const CHILD: &str = "QUINTET_PLANTED_RACE_CHILD";

    #[test]
    fn update_stores_plainly() {
        if std::env::var_os(CHILD).is_some() {
            let _planted = plant_everywhere(Bug::UpdateStoresPlainly);
            hammer(EngineKind::HashLog, [&[]; 2], 2_000);
            return;
        }
        let test = "planted::update_stores_plainly";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "the race was not reported");
        assert!(report.contains("ThreadSanitizer: data race"), "{report}");
        assert!(report.contains("store_plainly"), "another race than the planted one: {report}");
    }
}
