//! Snapshots on the simulated system. Each planted bug that needs one thread is found here; the
//! others are found in `db::models`.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc, time::Duration};

use crate::{
    Cursor, Database, Error, Options, PutOptions, Snapshot, Table,
    contract::{EngineKind, TableOptions},
    io::sim::SimEnv,
    util::mutant::{Bug, finds},
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(env: &SimEnv, options: &Options) -> Database {
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn options() -> Options {
    Options::new().memory_budget(8 << 20).segment_bytes(64 << 10)
}

/// Calls `test` with a table of each engine in turn.
fn for_each_engine(test: impl Fn(&SimEnv, &Database, &Table)) {
    for kind in EngineKind::AVAILABLE.iter().copied() {
        let env = SimEnv::new(1);
        let db = open(&env, &options());
        let table = db.create_table("table", TableOptions::new(kind)).unwrap();
        test(&env, &db, &table);
    }
}

/// All rows by a scan, and for ordered engines by a range and a visit, which must agree.
fn rows(snapshot: &Snapshot, table: &Table) -> Rows {
    let (mut rows, mut cursor) = (Rows::new(), Cursor::START);
    loop {
        let (page, next) = snapshot.scan(table, &cursor, 3).unwrap();
        for (key, value) in page {
            assert!(rows.insert(key, value.to_vec()).is_none(), "an entry came twice");
        }
        if next.is_start() {
            break;
        }
        cursor = next;
    }
    if table.kind().is_ordered() {
        let pair = |entry: crate::Result<(Vec<u8>, crate::Value)>| {
            entry.map(|(key, value)| (key, value.to_vec())).unwrap()
        };
        assert!(snapshot.range(table, ..).unwrap().map(pair).eq(rows.clone()), "up");
        assert!(
            snapshot.range(table, ..).unwrap().rev().map(pair).eq(rows.clone().into_iter().rev())
        );
        let mut visited = Rows::new();
        let visit = |key: &[u8], value: &[u8]| {
            visited.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        snapshot.visit(table, .., visit).unwrap();
        assert_eq!(visited, rows);
    }
    for (key, value) in &rows {
        assert_eq!(snapshot.get(table, key).unwrap().unwrap(), value);
    }
    rows
}

fn fill(table: &Table, keys: std::ops::Range<u32>, value: &str) {
    for key in keys {
        table.put(key.to_be_bytes(), value).unwrap();
    }
}

fn expected(keys: std::ops::Range<u32>, value: &str) -> Rows {
    keys.map(|key| (key.to_be_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

fn a_snapshot_shows_its_moment() {
    for_each_engine(|_, db, table| {
        fill(table, 0..40, "first");
        let first = db.snapshot().unwrap();
        fill(table, 20..60, "second");
        for key in 0..10_u32 {
            table.delete(key.to_be_bytes()).unwrap();
        }
        let second = db.snapshot().unwrap();
        if table.kind().is_ordered() {
            table.delete_range(5_u32.to_be_bytes()..15_u32.to_be_bytes()).unwrap();
        }
        let mut batch = db.batch();
        for key in 0..60_u32 {
            batch.put(table, key.to_be_bytes(), "third");
        }
        batch.commit().unwrap();
        if table.kind().is_ordered() {
            table.delete_range(5_u32.to_be_bytes()..50_u32.to_be_bytes()).unwrap();
        }
        table.persist().unwrap();
        table.compact().unwrap();
        assert_eq!(rows(&first, table), expected(0..40, "first"));
        let mut between = expected(10..20, "first");
        between.append(&mut expected(20..60, "second"));
        assert_eq!(rows(&second, table), between);
        drop(second);
        assert_eq!(rows(&first, table), expected(0..40, "first"));
    });
}

#[test]
fn a_snapshot_shows_its_moment_whatever_is_written() {
    a_snapshot_shows_its_moment();
    for bug in [
        Bug::SnapshotForgetsRanges,
        Bug::SnapshotForgetsAbsentKeys,
        Bug::SnapshotForgetsBatches,
        Bug::SnapshotRangeMissesDeleted,
        Bug::SnapshotReadsNewestVersion,
    ] {
        finds(bug, a_snapshot_shows_its_moment);
    }
}

/// A segment of the version store has a 16th of the limit: 32 KiB.
fn versions_stay_while_they_are_needed() {
    let env = SimEnv::new(2);
    let db = open(&env, &options().memory_budget(4 << 20).snapshot_limit(512 << 10));
    let table = db.create_table("table", TableOptions::new(EngineKind::HashLog)).unwrap();
    let value = "v".repeat(400);
    fill(&table, 0..200, &value);
    let old = db.snapshot().unwrap();
    fill(&table, 0..200, "new");
    for round in 0..20 {
        let young = db.snapshot().unwrap();
        fill(&table, 0..200, &format!("round {round}"));
        assert!(young.lsn() > old.lsn());
    }
    assert_eq!(rows(&old, &table), expected(0..200, &value));
    let held = db.stats();
    assert_eq!((held.open_snapshots, held.oldest_snapshot_lsn), (1, Some(old.lsn())));
    assert!(held.snapshot_bytes > 200 * 400, "{}", held.snapshot_bytes);
    drop(old);
    let stats = db.stats();
    assert_eq!((stats.open_snapshots, stats.oldest_snapshot_lsn), (0, None));
    assert!(stats.snapshot_bytes < 64 << 10, "{}", stats.snapshot_bytes);
}

#[test]
fn versions_stay_while_they_are_needed_and_go_afterwards() {
    versions_stay_while_they_are_needed();
    finds(Bug::SnapshotFreesTooEarly, versions_stay_while_they_are_needed);
}

/// A snapshot is held while others come and go: what only these needed is dropped.
fn compaction_keeps_what_is_needed() {
    let env = SimEnv::new(10);
    let db = open(&env, &options().memory_budget(4 << 20).snapshot_limit(512 << 10));
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    let value = "v".repeat(400);
    fill(&table, 0..200, &value);
    let old = db.snapshot().unwrap();
    let mut middle = None;
    for round in 0..60 {
        let young = db.snapshot().unwrap();
        fill(&table, 0..200, &format!("{round}{value}"));
        if round == 31 {
            middle = Some(young);
        }
        if round % 7 == 0 {
            env.run_due();
        }
    }
    assert!(db.stats().snapshot_bytes <= 512 << 10);
    assert_eq!(rows(&old, &table), expected(0..200, &value));
    assert_eq!(rows(&middle.unwrap(), &table), expected(0..200, &format!("30{value}")));
    drop(old);
}

#[test]
fn compaction_keeps_what_open_snapshots_need_and_no_more() {
    compaction_keeps_what_is_needed();
    finds(Bug::SnapshotCompactsTooMuch, compaction_keeps_what_is_needed);
}

fn a_snapshot_beyond_the_limit_ends() {
    let env = SimEnv::new(3);
    let db = open(&env, &options().snapshot_limit(300 << 10));
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    fill(&table, 0..2000, &"v".repeat(200));
    let old = db.snapshot().unwrap();
    let mut range = table.range(..).unwrap();
    assert!(range.next().unwrap().is_ok());
    fill(&table, 0..2000, "new");
    let outcome = old.get(&table, 0_u32.to_be_bytes());
    assert!(matches!(outcome, Err(Error::SnapshotExpired { .. })), "{outcome:?}");
    assert!(matches!(range.next(), Some(Err(Error::SnapshotExpired { .. }))));
    assert!(range.next().is_none(), "it ends after an error");
    assert_eq!(db.stats().snapshots_expired_total, 2);
    let next = db.snapshot().unwrap();
    assert_eq!(rows(&next, &table), expected(0..2000, "new"));
}

#[test]
fn a_snapshot_beyond_the_limit_ends_and_says_so() {
    a_snapshot_beyond_the_limit_ends();
    finds(Bug::SnapshotEndsSilently, a_snapshot_beyond_the_limit_ends);
}

#[test]
fn a_snapshot_ends_at_its_maximum_age() {
    let env = SimEnv::new(4);
    let db = open(&env, &options().snapshot_max_age(Duration::from_secs(5)));
    let table = db.create_table("table", TableOptions::new(EngineKind::Naive)).unwrap();
    let old = db.snapshot().unwrap();
    env.advance(Duration::from_secs(4));
    let young = db.snapshot().unwrap();
    env.advance(Duration::from_secs(3));
    assert!(old.get(&table, "k").is_ok(), "nothing needs its memory");
    drop(db.snapshot().unwrap());
    let outcome = old.get(&table, "k");
    assert!(
        matches!(outcome, Err(Error::SnapshotExpired { ref reason }) if reason.contains("max_age"))
    );
    assert!(young.get(&table, "k").unwrap().is_none());
}

fn a_snapshot_judges_expiry_at_its_own_moment() {
    for_each_engine(|env, db, table| {
        let ttl = |millis| PutOptions::new().ttl(Duration::from_millis(millis));
        table.put_with("soon", "value", ttl(10)).unwrap();
        table.put_with("later", "value", ttl(1000)).unwrap();
        let snapshot = db.snapshot().unwrap();
        env.advance(Duration::from_millis(100));
        // The sweep deletes the value, and compactions drop what has expired.
        env.run_due();
        table.put("other", "value").unwrap();
        table.persist().unwrap();
        table.compact().unwrap();
        assert_eq!(table.get("soon").unwrap(), None);
        assert_eq!(snapshot.get(table, "soon").unwrap().unwrap(), "value");
        assert_eq!(rows(&snapshot, table).len(), 2);
        let late = db.snapshot().unwrap();
        assert_eq!(rows(&late, table).len(), 2, "later and other");
        drop((snapshot, late));
        env.advance(Duration::from_secs(10));
        env.run_due();
        table.compact().unwrap();
        assert_eq!(
            db.snapshot().unwrap().multi_get(table, &["soon", "later"]).unwrap(),
            [None, None]
        );
    });
}

/// Without the sweep: engines alone drop the values.
fn engines_keep_what_a_snapshot_shows() {
    for_each_engine(|env, db, table| {
        let ttl = PutOptions::new().ttl(Duration::from_millis(10));
        for key in 0..50_u32 {
            table.put_with(key.to_be_bytes(), "value", ttl).unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        env.advance(Duration::from_millis(100));
        table.persist().unwrap();
        table.compact().unwrap();
        assert_eq!(rows(&snapshot, table), expected(0..50, "value"));
    });
}

#[test]
fn expiry_is_judged_at_the_moment_of_the_snapshot() {
    a_snapshot_judges_expiry_at_its_own_moment();
    engines_keep_what_a_snapshot_shows();
    finds(Bug::SnapshotJudgesExpiryNow, a_snapshot_judges_expiry_at_its_own_moment);
    finds(Bug::SnapshotExpiresByTheClock, engines_keep_what_a_snapshot_shows);
}

fn a_load_is_absent_before() {
    let env = SimEnv::new(5);
    let db = open(&env, &options());
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    fill(&table, 0..20, "put");
    let before = db.snapshot().unwrap();
    for key in 10..20_u32 {
        table.delete(key.to_be_bytes()).unwrap();
    }
    let loaded = (10..40_u32).map(|key| (key.to_be_bytes(), "loaded"));
    table.load_sorted(loaded).unwrap();
    let after = db.snapshot().unwrap();
    fill(&table, 15..40, "replaced");
    assert_eq!(rows(&before, &table), expected(0..20, "put"));
    let mut all = expected(0..10, "put");
    all.append(&mut expected(10..40, "loaded"));
    assert_eq!(rows(&after, &table), all);
    // A load that is given up changes nothing.
    let mut given_up = table.sorted_loader(crate::LoadOptions::new()).unwrap();
    given_up.put([9; 4], "value").unwrap();
    drop(given_up);
    assert_eq!(rows(&before, &table), expected(0..20, "put"));
}

#[test]
fn a_sorted_load_is_absent_in_earlier_snapshots() {
    a_load_is_absent_before();
    finds(Bug::SnapshotSeesLoads, a_load_is_absent_before);
}

#[test]
fn a_dropped_table_is_read_until_the_snapshot_ends() {
    let env = SimEnv::new(6);
    let db = open(&env, &options());
    for kind in EngineKind::AVAILABLE.iter().copied() {
        let table = db.create_table("tree/table", TableOptions::new(kind)).unwrap();
        let stays = db.open_or_create_table("stays", TableOptions::new(kind)).unwrap();
        stays.put("k", "old").unwrap();
        fill(&table, 0..50, "value");
        table.persist().unwrap();
        let snapshot = db.snapshot().unwrap();
        fill(&table, 20..30, "late");
        db.rename("stays", "renamed").unwrap();
        db.drop_tree("tree").unwrap();
        stays.put("k", "new").unwrap();
        let late = db.snapshot().unwrap();
        env.run_due();
        assert!(matches!(table.get("k"), Err(Error::StaleTable { .. })));
        assert!(matches!(late.get(&table, "k"), Err(Error::StaleTable { .. })));
        assert_eq!(rows(&snapshot, &table), expected(0..50, "value"), "{kind}");
        assert_eq!(snapshot.get(&stays, "k").unwrap().unwrap(), "old");
        // A table that is created later is empty in the snapshot.
        let young = db.create_table("young", TableOptions::new(kind)).unwrap();
        fill(&young, 0..10, "value");
        assert_eq!(rows(&snapshot, &young), Rows::new());
        let directories = || env.files().into_iter().filter(|(path, _)| path.contains("tables/"));
        let before = directories().count();
        drop((snapshot, late, table));
        env.run_due();
        assert!(directories().count() < before, "{kind}: the files of the dropped table are there");
        db.drop_table("young").unwrap();
        db.drop_table("renamed").unwrap();
    }
}

#[test]
fn a_typed_table_is_read_in_a_snapshot() {
    let env = SimEnv::new(11);
    let db = open(&env, &options());
    let types = TableOptions::new(EngineKind::Slm);
    let table = db.create_typed::<(String, u64), i64>("readings", types).unwrap();
    let key = |number| ("roof".to_owned(), number);
    (0..5).for_each(|number| table.put(&key(number), &-1).unwrap());
    let snapshot = db.snapshot().unwrap();
    (0..9).for_each(|number| table.put(&key(number), &7).unwrap());
    let at = snapshot.typed(&table).clone();
    assert_eq!(at.get(&key(2)).unwrap(), Some(-1));
    assert_eq!(at.multi_get(&[key(1), key(8)]).unwrap(), [Some(-1), None]);
    assert!(!at.contains(&key(8)).unwrap());
    let all: Vec<_> = (0..5).map(|number| (key(number), -1)).collect();
    assert!(at.prefix(&("roof".to_owned(),)).unwrap().map(Result::unwrap).eq(all.clone()));
    assert!(
        at.range(key(1)..).unwrap().rev().map(Result::unwrap).eq(all.iter().skip(1).rev().cloned())
    );
    assert_eq!(at.scan(Cursor::START, 9).unwrap(), (all, Cursor::START));
}

#[test]
fn an_iterator_shows_one_moment() {
    let env = SimEnv::new(7);
    let db = open(&env, &options());
    for kind in [EngineKind::BTree, EngineKind::Slm, EngineKind::Tph] {
        let table = db.create_table(kind.name(), TableOptions::new(kind)).unwrap();
        fill(&table, 0..500, "value");
        let mut range = table.range(..).unwrap();
        assert!(range.next().unwrap().is_ok());
        table.delete_range(..).unwrap();
        assert_eq!(range.count(), 499, "{kind}");
        fill(&table, 0..10, "value");
        // The loop inserts ahead of itself, and ends.
        let mut count = 0_u32;
        for entry in table.range(..).unwrap() {
            let (key, _) = entry.unwrap();
            table.put([&*key, b"next"].concat(), "ahead").unwrap();
            count += 1;
        }
        assert_eq!(count, 10);
        let visit = |key: &[u8], _: &[u8]| {
            table.put([key, b"more"].concat(), "ahead").unwrap();
            count += 1;
            ControlFlow::Continue(())
        };
        table.visit(.., visit).unwrap();
        assert_eq!(count, 30);
    }
}

#[test]
fn misuse_of_a_snapshot_is_an_error() {
    let env = SimEnv::new(8);
    let db = open(&env, &options());
    let table = db.create_table("table", TableOptions::new(EngineKind::Naive)).unwrap();
    let other = open(&SimEnv::new(9), &options());
    let foreign = other.create_table("table", TableOptions::new(EngineKind::Naive)).unwrap();
    let snapshot = db.snapshot().unwrap();
    assert!(matches!(snapshot.get(&foreign, "k"), Err(Error::OtherDatabase { .. })));
    assert!(matches!(snapshot.range(&table, ..), Err(Error::Unordered { .. })));
    assert!(matches!(snapshot.get(&table, ""), Err(Error::Limit { .. })));
    let cursor = Cursor(vec![1, 2, 3]);
    assert!(matches!(snapshot.scan(&table, cursor, 1), Err(Error::Limit { .. })));
    let clone = snapshot.clone();
    drop(snapshot);
    assert!(!clone.contains(&table, "k").unwrap());
    db.close().unwrap();
    assert!(matches!(clone.get(&table, "k"), Err(Error::Closed)));
    assert!(matches!(db.snapshot(), Err(Error::Closed)));
}
