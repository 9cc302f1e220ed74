//! Versions in files, on the simulated system: a database with the smallest budget, so that
//! versions move to files all the time.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use crate::{
    Cursor, Database, Error, Options, Snapshot, Table,
    contract::{EngineKind, TableOptions},
    io::sim::{Call, Effect, Fault, Policy, SimEnv, When},
    util::mutant::{Bug, finds},
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Versions have at most 256 KiB of memory, and spill from 128 KiB on.
fn open(env: &SimEnv) -> Database {
    open_with(env, 1 << 20)
}

fn open_with(env: &SimEnv, budget: u64) -> Database {
    let options = Options::new().memory_budget(budget).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

/// Returns the files of versions.
fn version_files(env: &SimEnv) -> Vec<String> {
    let paths = env.files().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.ends_with(".versions")).collect()
}

fn to_vec(entry: crate::Result<(Vec<u8>, crate::Value)>) -> (Vec<u8>, Vec<u8>) {
    entry.map(|(key, value)| (key, value.to_vec())).unwrap()
}

/// Checks every kind of read of a snapshot.
fn check(snapshot: &Snapshot, table: &Table, expected: &Rows, keys: u32) {
    for key in 0..keys {
        let key = key.to_be_bytes();
        let found = snapshot.get(table, key).unwrap().map(|value| value.to_vec());
        assert_eq!(found.as_ref(), expected.get(&key[..]));
    }
    let (mut scanned, mut cursor) = (Rows::new(), Cursor::START);
    loop {
        let (page, next) = snapshot.scan(table, &cursor, 7).unwrap();
        for (key, value) in page {
            assert!(scanned.insert(key, value.to_vec()).is_none(), "an entry came twice");
        }
        if next.is_start() {
            break;
        }
        cursor = next;
    }
    assert_eq!(scanned, *expected);
    if !table.kind().is_ordered() {
        return;
    }
    let all = || expected.iter().map(|(key, value)| (key.clone(), value.clone()));
    assert!(snapshot.range(table, ..).unwrap().map(to_vec).eq(all()), "up");
    assert!(snapshot.range(table, ..).unwrap().rev().map(to_vec).eq(all().rev()), "down");
    let mut both = snapshot.range(table, ..).unwrap();
    let mut ends = Rows::new();
    while let Some(entry) = both.next() {
        ends.extend([to_vec(entry)]);
        ends.extend(both.next_back().map(to_vec));
    }
    assert_eq!(ends, *expected, "from both ends");
    let mut visited = Rows::new();
    let each = |key: &[u8], value: &[u8]| {
        visited.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    snapshot.visit(table, .., each).unwrap();
    assert_eq!(visited, *expected);
}

/// A sequence of numbers that looks random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(end)).unwrap()
    }
}

const KEYS: u32 = 700;

/// Changes a table at random, and `rows` in the same way.
fn change(table: &Table, rows: &mut Rows, numbers: &mut Numbers, round: u32) {
    for _ in 0..150 {
        let key = numbers.below(KEYS).to_be_bytes();
        match numbers.below(8) {
            0 => {
                table.delete(key).unwrap();
                rows.remove(&key[..]);
            }
            1 if numbers.below(20) == 0 && table.kind().is_ordered() => {
                let end = (u32::from_be_bytes(key) + 30).to_be_bytes();
                table.delete_range(key..end).unwrap();
                rows.retain(|other, _| **other < key[..] || **other >= end[..]);
            }
            _ => {
                let value = format!("{round}-{}", "v".repeat(to_usize(numbers.below(600))));
                table.put(key, &value).unwrap();
                rows.insert(key.to_vec(), value.into_bytes());
            }
        }
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap()
}

/// Old and young snapshots of each engine, while versions spill.
fn snapshots_beside_spills_are_exact_on(kind: EngineKind) {
    let env = SimEnv::new(1);
    let db = open_with(&env, 2 << 20);
    let table = db.create_table("table", TableOptions::new(kind)).unwrap();
    let (mut rows, mut numbers) = (Rows::new(), Numbers(7));
    let mut held: Vec<(Snapshot, Rows)> = Vec::new();
    let mut has_spilled = false;
    for round in 0..40 {
        change(&table, &mut rows, &mut numbers, round);
        env.run_due();
        if round % 4 == 1 {
            held.push((db.snapshot().unwrap(), rows.clone()));
        }
        if held.len() > 4 {
            // Not the oldest, so files have versions that nothing needs.
            held.remove(to_usize(numbers.below(3)) + 1);
        }
        if round % 8 == 7 {
            for (snapshot, rows) in &held {
                check(snapshot, &table, rows, KEYS);
            }
        }
        let stats = db.stats();
        has_spilled |= stats.snapshot_file_bytes > 0;
        assert!(stats.snapshot_bytes <= 512 << 10, "{kind}: {} bytes", stats.snapshot_bytes);
        assert!(version_files(&env).len() <= 8, "{kind}: sizes are a geometric series");
    }
    assert!(has_spilled, "{kind}");
    assert_eq!(db.stats().snapshots_expired_total, 0);
    for (snapshot, rows) in &held {
        check(snapshot, &table, rows, KEYS);
    }
    drop(held);
    assert_eq!(version_files(&env), Vec::<String>::new(), "no snapshot needs them");
    db.close().unwrap();
}

fn snapshots_beside_spills_are_exact() {
    EngineKind::AVAILABLE.iter().copied().for_each(snapshots_beside_spills_are_exact_on);
}

#[test]
fn snapshots_are_exact_while_versions_move_to_files() {
    snapshots_beside_spills_are_exact();
    for bug in [
        Bug::VersionFilterMissesKeys,
        Bug::VersionFenceSkipsBlock,
        Bug::SnapshotReadsNewestVersion,
        Bug::SnapshotCompactsTooMuch,
        Bug::SnapshotFreesTooEarly,
    ] {
        finds(bug, snapshots_beside_spills_are_exact);
    }
}

/// Fills `keys` and replaces them beside a snapshot until versions are in files.
fn held_through_spills(env: &SimEnv, db: &Database, table: &Table) -> (Snapshot, Rows) {
    let value = "v".repeat(300);
    let mut rows = Rows::new();
    for key in 0..KEYS {
        table.put(key.to_be_bytes(), &value).unwrap();
        rows.insert(key.to_be_bytes().to_vec(), value.clone().into_bytes());
    }
    let snapshot = db.snapshot().unwrap();
    for key in 0..KEYS {
        table.put(key.to_be_bytes(), "new").unwrap();
        if key % 50 == 0 {
            env.run_due();
        }
    }
    env.run_due();
    (snapshot, rows)
}

fn nothing_survives() {
    let env = SimEnv::new(2);
    let db = open(&env);
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    let (snapshot, rows) = held_through_spills(&env, &db, &table);
    assert!(!version_files(&env).is_empty());
    check(&snapshot, &table, &rows, KEYS);
    let crashed = env.crash(Policy::AllKept);
    let killed = env.kill();
    db.close().unwrap();
    assert!(matches!(snapshot.get(&table, "k"), Err(Error::Closed)));
    assert_eq!(version_files(&env), Vec::<String>::new(), "closed");
    for (env, how) in [(crashed, "power loss"), (killed, "kill")] {
        let read_only = Options::new().read_only(true);
        drop(read_only.open_in(Arc::new(env.clone()), "db").unwrap());
        let db = open(&env);
        assert_eq!(version_files(&env), Vec::<String>::new(), "{how}");
        let table = db.table("table").unwrap();
        let (snapshot, rows) = held_through_spills(&env, &db, &table);
        check(&snapshot, &table, &rows, KEYS);
    }
}

#[test]
fn files_of_versions_do_not_survive_a_close_or_a_crash() {
    nothing_survives();
    finds(Bug::VersionFilesStay, nothing_survives);
}

/// Writes of versions fail from some call on.
fn a_failing_spill_ends_the_oldest() {
    for kind in [Call::Create, Call::Write] {
        let env = SimEnv::new(3);
        let db = open(&env);
        let table = db.create_table("table", TableOptions::new(EngineKind::Naive)).unwrap();
        let value = "v".repeat(300);
        (0..1500_u32).for_each(|key| table.put(key.to_be_bytes(), &value).unwrap());
        table.persist().unwrap();
        let old = db.snapshot().unwrap();
        env.inject(Fault::new(&[kind], When::From(1), Effect::NoSpace).on(".versions"));
        let mut ended = None;
        for key in 0..1500_u32 {
            table.put(key.to_be_bytes(), "new").unwrap();
            if key % 50 == 0 {
                env.run_job("versions");
            }
            assert!(db.stats().snapshot_bytes <= 256 << 10);
            match old.get(&table, 0_u32.to_be_bytes()) {
                Ok(found) => assert_eq!(found.unwrap(), *value),
                Err(error) => ended = ended.or(Some(error)),
            }
        }
        let Some(Error::SnapshotExpired { reason }) = ended else { panic!("it has not ended") };
        assert!(reason.contains("disk"), "{reason}");
        env.clear_faults();
        assert_eq!(version_files(&env), Vec::<String>::new(), "{kind:?}: left behind");
        drop(old);
        let (snapshot, rows) = held_through_spills(&env, &db, &table);
        assert_eq!(version_files(&env).len(), 1, "it works again");
        for (key, value) in &rows {
            assert_eq!(snapshot.get(&table, key).unwrap().unwrap(), value);
        }
    }
}

#[test]
fn a_full_disk_ends_the_oldest_snapshot_and_no_write_fails() {
    a_failing_spill_ends_the_oldest();
    finds(Bug::VersionFileIgnoresErrors, a_failing_spill_ends_the_oldest);
}

#[test]
fn a_failed_read_of_a_file_is_an_error_and_never_a_wrong_value() {
    let env = SimEnv::new(4);
    let db = open(&env);
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    let (snapshot, rows) = held_through_spills(&env, &db, &table);
    env.inject(Fault::new(&[Call::Read], When::From(1), Effect::Io).on(".versions"));
    let mut failed = 0;
    for (key, value) in &rows {
        match snapshot.get(&table, key) {
            Ok(found) => assert_eq!(found.unwrap(), value),
            Err(Error::Io { .. }) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed > 0);
    assert!(snapshot.range(&table, ..).unwrap().any(|entry| entry.is_err()));
    env.clear_faults();
    check(&snapshot, &table, &rows, KEYS);
}

#[test]
fn the_limit_holds_for_memory_and_files_together() {
    let env = SimEnv::new(5);
    let options = Options::new().memory_budget(1 << 20).segment_bytes(64 << 10);
    let options = options.snapshot_limit(600 << 10);
    let db = options.open_in(Arc::new(env.clone()), "db").unwrap();
    let table = db.create_table("table", TableOptions::new(EngineKind::HashLog)).unwrap();
    let value = "v".repeat(300);
    (0..4000_u32).for_each(|key| table.put(key.to_be_bytes(), &value).unwrap());
    table.persist().unwrap();
    let old = db.snapshot().unwrap();
    let mut young = None;
    for key in 0..4000_u32 {
        table.put(key.to_be_bytes(), "new").unwrap();
        if key % 50 == 0 {
            env.run_due();
        }
        if key == 1000 {
            assert_eq!(old.get(&table, 3_u32.to_be_bytes()).unwrap().unwrap(), *value);
            young = Some(db.snapshot().unwrap());
        }
        let stats = db.stats();
        assert!(stats.snapshot_bytes + stats.snapshot_file_bytes <= 700 << 10);
    }
    let Err(Error::SnapshotExpired { reason }) = old.get(&table, "k") else { panic!() };
    assert!(reason.contains("snapshot_limit"), "{reason}");
    drop(young);
}

#[test]
fn a_snapshot_of_a_transaction_conflicts_by_versions_in_files() {
    let env = SimEnv::new(6);
    let db = open(&env);
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    table.put(5_u32.to_be_bytes(), "first").unwrap();
    let mut runs = 0;
    let outcome = db.transaction(|tx| {
        runs += 1;
        let seen = tx.range(&table, ..)?.count();
        if runs == 1 {
            drop(held_through_spills(&env, &db, &table));
            assert!(!version_files(&env).is_empty(), "the snapshot of the transaction needs them");
        }
        tx.put(&table, "count", seen.to_string())?;
        Ok(seen)
    });
    assert_eq!((outcome.unwrap(), runs), (to_usize(KEYS), 2));
}
