//! [`Table::clear`](crate::Table::clear) on the simulated system.

use std::sync::Arc;

use crate::{
    Cursor, Database, Error, Options, Table,
    contract::{EngineKind, TableOptions},
    io::sim::{Call, Effect, Fault, Policy, SimEnv, When},
    util::mutant::{Bug, finds},
};

fn open(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(8 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn fill(table: &Table, keys: std::ops::Range<u32>, value: &str) {
    for key in keys {
        table.put(key.to_be_bytes(), value).unwrap();
    }
}

/// Calls `test` with a table of each engine that has 50 entries.
fn for_each_engine(test: impl Fn(&SimEnv, &Database, &Table)) {
    for kind in EngineKind::AVAILABLE.iter().copied() {
        let env = SimEnv::new(1);
        let db = open(&env);
        let table = db.create_table("tree/table", TableOptions::new(kind)).unwrap();
        fill(&table, 0..50, "old");
        test(&env, &db, &table);
    }
}

fn get(table: &Table, key: u32) -> Option<Vec<u8>> {
    table.get(key.to_be_bytes()).unwrap().map(|value| value.to_vec())
}

fn count(table: &Table) -> usize {
    let (mut count, mut cursor) = (0, Cursor::START);
    loop {
        let (page, next) = table.scan(&cursor, 7).unwrap();
        count += page.len();
        if next.is_start() {
            return count;
        }
        cursor = next;
    }
}

fn handles_go_on() {
    for_each_engine(|env, db, table| {
        let other = db.table("tree/table").unwrap();
        table.clear().unwrap();
        for handle in [table, &other, &db.table("tree/table").unwrap()] {
            assert_eq!((count(handle), get(handle, 3)), (0, None));
            assert_eq!(handle.name(), "tree/table");
            assert!(!handle.contains(3_u32.to_be_bytes()).unwrap());
            assert!(!handle.get_into(3_u32.to_be_bytes(), &mut Vec::new()).unwrap());
            assert_eq!(handle.multi_get(&[3_u32.to_be_bytes()]).unwrap(), [None]);
        }
        fill(table, 0..5, "new");
        other.delete(2_u32.to_be_bytes()).unwrap();
        assert!(other.replace(3_u32.to_be_bytes(), "next").unwrap().is_some());
        assert_eq!(get(table, 3).unwrap(), b"next");
        assert_eq!(count(&other), 4);
        if table.kind().is_ordered() {
            assert_eq!(other.range(..).unwrap().count(), 4);
            other.delete_range(4_u32.to_be_bytes()..).unwrap();
            assert_eq!(table.range(..).unwrap().count(), 3);
            assert!(other.estimate_count(..).unwrap() < 50);
        }
        table.persist().unwrap();
        other.compact().unwrap();
        other.stats().unwrap();
        // Again, through a handle of the first table.
        other.clear().unwrap();
        assert_eq!(get(table, 3), None);
        fill(&other, 7..9, "third");
        env.run_due();
        assert_eq!(count(table), 2);
        db.close().unwrap();
        assert!(matches!(table.get("k"), Err(Error::Closed)));
        let db = open(env);
        assert_eq!(count(&db.table("tree/table").unwrap()), 2);
        db.drop_table("tree/table").unwrap();
        assert!(matches!(db.table("tree/table"), Err(Error::NoSuchTable { .. })));
    });
}

#[test]
fn all_handles_of_a_cleared_table_go_on() {
    handles_go_on();
    finds(Bug::ClearLosesHandles, handles_go_on);
}

fn snapshots_keep_their_moment() {
    for_each_engine(|env, db, table| {
        let old = db.snapshot().unwrap();
        let mut iterator = table.kind().is_ordered().then(|| table.range(..).unwrap());
        fill(table, 40..60, "late");
        table.persist().unwrap();
        table.clear().unwrap();
        let young = db.snapshot().unwrap();
        fill(table, 0..10, "new");
        env.run_due();
        let reopened = db.table("tree/table").unwrap();
        let value = |snapshot: &crate::Snapshot, handle, key: u32| {
            snapshot.get(handle, key.to_be_bytes()).unwrap().map(|value| value.to_vec())
        };
        for handle in [table, &reopened] {
            assert_eq!(value(&old, handle, 3).as_deref(), Some(&b"old"[..]));
            assert_eq!(value(&old, handle, 45).as_deref(), Some(&b"old"[..]));
            assert_eq!(value(&old, handle, 55), None);
            assert_eq!(old.scan(handle, Cursor::START, 100).unwrap().0.len(), 50);
            assert_eq!(value(&young, handle, 3), None);
            assert_eq!(young.scan(handle, Cursor::START, 100).unwrap().0.len(), 0);
            if handle.kind().is_ordered() {
                assert_eq!(old.range(handle, ..).unwrap().rev().count(), 50);
            }
        }
        if let Some(iterator) = &mut iterator {
            assert_eq!(iterator.map(Result::unwrap).count(), 50);
        }
        let directory = format!("tables/{}/", table.state.id);
        let has_old = || env.files().iter().any(|(path, _)| path.contains(&directory));
        assert!(has_old());
        drop((old, young, iterator));
        env.run_due();
        assert!(!has_old(), "the files of the old table are there");
        assert_eq!(count(table), 10);
    });
}

#[test]
fn snapshots_show_a_cleared_table_as_it_was() {
    snapshots_keep_their_moment();
    finds(Bug::ClearChangesOldSnapshots, snapshots_keep_their_moment);
}

#[test]
fn batches_and_transactions_that_began_before() {
    for_each_engine(|_, db, table| {
        let other = db.create_table("other", TableOptions::new(EngineKind::Naive)).unwrap();
        let mut batch = db.batch();
        batch.put(table, "k", "batch").put(&other, "k", "batch");
        let mut written = db.begin(crate::TransactionOptions::new()).unwrap();
        written.put(table, "k", "transaction").unwrap();
        let mut read = db.begin(crate::TransactionOptions::new()).unwrap();
        read.get(table, 3_u32.to_be_bytes()).unwrap();
        read.put(&other, "k", "transaction").unwrap();
        let mut single = db.begin(crate::TransactionOptions::new()).unwrap();
        single.get(table, 3_u32.to_be_bytes()).unwrap();
        single.put(table, 3_u32.to_be_bytes(), "transaction").unwrap();
        let untouched = db.begin(crate::TransactionOptions::new()).unwrap();
        untouched.get(&other, "k").unwrap();
        table.clear().unwrap();
        batch.commit().unwrap();
        assert_eq!(count(table), 1);
        assert_eq!(other.get("k").unwrap().unwrap(), "batch");
        assert!(matches!(written.commit(), Err(Error::Conflict { .. })));
        let conflict = single.commit().unwrap_err();
        assert!(matches!(conflict, Error::Conflict { .. }));
        let told = "table tree/table: another commit changed what the transaction depends on";
        assert!(conflict.to_string().starts_with(told), "{conflict}");
        assert!(matches!(read.commit(), Err(Error::Conflict { .. })));
        drop(untouched);
        assert_eq!(table.get("k").unwrap().unwrap(), "batch");
        // A transaction that is run again reads the empty table.
        let mut runs = 0;
        let seen = db.transaction(|tx| {
            runs += 1;
            let seen = tx.get(table, "k")?.is_some();
            if runs == 1 {
                table.clear()?;
            }
            tx.put(table, "k", "last")?;
            Ok(seen)
        });
        assert_eq!((seen.unwrap(), runs), (false, 2));
        assert_eq!(table.get("k").unwrap().unwrap(), "last");
        db.drop_table("other").unwrap();
    });
}

/// Clears the table of each engine many times. One handle, and perhaps a snapshot, are from before.
fn tables_between_are_freed(has_snapshot: bool) {
    for_each_engine(|env, db, table| {
        let old = has_snapshot.then(|| db.snapshot().unwrap());
        let mut between = Vec::new();
        for key in 0..20 {
            table.clear().unwrap();
            between.push(Arc::downgrade(&db.table("tree/table").unwrap().state));
            fill(table, key..key + 1, "new");
            env.run_due();
        }
        let last = between.pop().unwrap();
        assert_eq!(between.iter().filter(|state| state.strong_count() > 0).count(), 0);
        assert!(last.strong_count() > 0);
        assert_eq!((count(table), get(table, 19).as_deref()), (1, Some(&b"new"[..])));
        if let Some(old) = &old {
            for handle in [table, &db.table("tree/table").unwrap()] {
                assert_eq!(old.scan(handle, Cursor::START, 100).unwrap().0.len(), 50);
            }
        }
    });
}

#[test]
fn handles_and_snapshots_do_not_keep_the_tables_between_clears() {
    tables_between_are_freed(false);
    tables_between_are_freed(true);
}

fn types_stay() {
    let env = SimEnv::new(2);
    let db = open(&env);
    let types = TableOptions::new(EngineKind::BTree);
    let table = db.create_typed::<u64, String>("typed", types).unwrap();
    table.put(&7, &"old".to_owned()).unwrap();
    table.clear().unwrap();
    assert_eq!(table.get(&7).unwrap(), None);
    table.put(&8, &"new".to_owned()).unwrap();
    assert!(matches!(db.typed::<u64, u64>("typed"), Err(Error::TypeMismatch { .. })));
    db.close().unwrap();
    let db = open(&env);
    let table = db.typed::<u64, String>("typed").unwrap();
    assert_eq!(table.get(&8).unwrap().as_deref(), Some("new"));
}

#[test]
fn a_cleared_table_keeps_its_types_and_options() {
    types_stay();
    finds(Bug::ClearForgetsTypes, types_stay);
}

/// Returns the number of entries after a restart, which are all old ones or all new ones.
fn entries_of(env: &SimEnv) -> usize {
    let db = open(env);
    let table = db.table("tree/table").unwrap();
    let (entries, _) = table.scan(Cursor::START, 100).unwrap();
    let is_old = |(_, value): &(Vec<u8>, crate::Value)| **value == *b"old";
    assert!(entries.iter().all(is_old) || !entries.iter().any(is_old));
    entries.len()
}

#[test]
fn a_crash_shows_a_cleared_table_before_or_after() {
    for kind in EngineKind::AVAILABLE.iter().copied() {
        let env = SimEnv::new(3);
        env.record_history();
        let db = open(&env);
        let table = db.create_table("tree/table", TableOptions::new(kind)).unwrap();
        fill(&table, 0..20, "old");
        let begun = env.mark();
        table.clear().unwrap();
        let cleared = env.mark();
        fill(&table, 0..3, "new");
        table.persist().unwrap();
        env.run_due();
        let mut seen = std::collections::BTreeSet::new();
        for event in begun..=env.mark() {
            for policy in [Policy::AllLost, Policy::AllKept] {
                let count = entries_of(&env.image_at(event, policy));
                assert!(event < cleared || count <= 3, "{kind}: {count} at {event}");
                seen.insert(count);
            }
        }
        assert!(seen.contains(&20) && seen.contains(&0) && seen.contains(&3), "{kind}: {seen:?}");
    }
}

/// Calls of a clear fail one after the other.
fn a_failed_clear() {
    for number in 1..60 {
        let env = SimEnv::new(4);
        let db = open(&env);
        let table = db.create_table("tree/table", TableOptions::new(EngineKind::BTree)).unwrap();
        fill(&table, 0..20, "old");
        env.inject(Fault::new(&[Call::Write, Call::Sync], When::Nth(number), Effect::NoSpace));
        let cleared = table.clear();
        let has_fired = env.faults_fired() > 0;
        env.clear_faults();
        assert_eq!(count(&table), if cleared.is_ok() { 0 } else { 20 }, "{number}: {cleared:?}");
        if !has_fired {
            assert!(number > 3, "a clear writes and syncs");
            return;
        }
    }
    panic!("a clear ends");
}

#[test]
fn a_clear_that_fails_changes_nothing() {
    a_failed_clear();
    finds(Bug::ClearShowsEarly, a_failed_clear);
}

#[test]
fn a_clear_costs_the_same_for_any_number_of_entries() {
    for kind in EngineKind::AVAILABLE.iter().copied() {
        let calls = |entries| {
            let env = SimEnv::new(5);
            let db = open(&env);
            let table = db.create_table("table", TableOptions::new(kind)).unwrap();
            fill(&table, 0..entries, "value");
            table.persist().unwrap();
            let all = || env.calls(Call::ALL);
            let before = all();
            table.clear().unwrap();
            all() - before
        };
        assert_eq!(calls(10), calls(5000), "{kind}");
    }
}

#[test]
fn a_clear_is_refused_where_writes_are() {
    let env = SimEnv::new(6);
    let db = open(&env);
    let table = db.create_table("table", TableOptions::new(EngineKind::BTree)).unwrap();
    let loader = table.sorted_loader(crate::LoadOptions::new()).unwrap();
    assert!(matches!(table.clear(), Err(Error::Loading { .. })));
    drop(loader);
    table.clear().unwrap();
    table.load_sorted([("a", "b")]).unwrap();
    assert_eq!(count(&table), 1);
    db.drop_table("table").unwrap();
    assert!(matches!(table.clear(), Err(Error::StaleTable { .. })));
    db.close().unwrap();
    let read_only = Options::new().read_only(true).open_in(Arc::new(env), "db").unwrap();
    assert!(matches!(read_only.table("table"), Err(Error::NoSuchTable { .. })));
}
