//! Goal: each anomaly that an isolation excludes is excluded, and each planted bug of transactions
//! is found. On the simulated system; `tests/database/transactions.rs` has the same on all engines.

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use super::{Isolation, Transaction, TransactionOptions};
use crate::{
    Error,
    contract::{Cursor, EngineKind, TableOptions},
    db::{Database, DeleteOptions, Durability, Options, PutOptions, Table},
    io::sim::{PolicyLimits, SimEnv},
    util::{
        mutant::{Bug, active, finds, plant},
        sync::thread,
    },
};

fn open(kinds: &[EngineKind]) -> (Database, Vec<Table>) {
    let db = open_in(&SimEnv::new(5));
    let tables = kinds.iter().map(|kind| {
        let table = db.create_table(kind.name(), TableOptions::new(*kind)).unwrap();
        table.put("a", "1").unwrap();
        table.put("b", "1").unwrap();
        table
    });
    let tables = tables.collect();
    (db, tables)
}

fn open_in(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(4 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn open_one() -> (Database, Table) {
    let (db, mut tables) = open(&[EngineKind::BTree]);
    (db, tables.remove(0))
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::new()).unwrap()
}

fn begin_snapshot(db: &Database) -> Transaction {
    db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).unwrap()
}

fn text(transaction: &Transaction, table: &Table, key: &str) -> String {
    let value = transaction.get(table, key).unwrap();
    value.map_or_else(|| "-".to_owned(), |value| String::from_utf8(value.to_vec()).unwrap())
}

fn conflict_key(committed: Result<(), Error>) -> String {
    match committed {
        Err(Error::Conflict { key, .. }) => String::from_utf8(key).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn keys(transaction: &Transaction, table: &Table) -> Vec<String> {
    let key = |entry: crate::Result<(Vec<u8>, _)>| String::from_utf8(entry.unwrap().0).unwrap();
    transaction.range(table, ..).unwrap().map(key).collect()
}

fn reads_are_of_one_moment() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    assert_eq!(text(&tx, &table, "a"), "1");
    db.batch().put(&table, "a", "2").put(&table, "b", "2").put(&table, "c", "2").commit().unwrap();
    assert_eq!(text(&tx, &table, "a"), "1");
    assert_eq!(text(&tx, &table, "b"), "1");
    assert_eq!(keys(&tx, &table), ["a", "b"]);
    tx.put(&table, "b", "own").unwrap();
    assert_eq!(text(&tx, &table, "b"), "own");
    assert_eq!(table.get("b").unwrap().unwrap(), "2", "no dirty read");
    drop(tx);
    assert_eq!(table.get("b").unwrap().unwrap(), "2");
}

#[test]
fn a_transaction_reads_one_moment_and_its_own_writes() {
    reads_are_of_one_moment();
}

fn an_absent_key_that_appears_is_a_conflict() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    assert_eq!(text(&tx, &table, "new"), "-");
    tx.put(&table, "a", "2").unwrap();
    table.put("new", "1").unwrap();
    assert_eq!(conflict_key(tx.commit()), "new");
    assert_eq!(table.get("a").unwrap().unwrap(), "1");
}

#[test]
fn an_absent_key_counts_as_read() {
    an_absent_key_that_appears_is_a_conflict();
    finds(Bug::AbsentReadsNotValidated, an_absent_key_that_appears_is_a_conflict);
}

fn an_entry_that_appears_in_a_range_is_a_conflict() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    assert_eq!(keys(&tx, &table).len(), 2);
    tx.put(&table, "sum", "2").unwrap();
    table.put("aa", "1").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
}

#[test]
fn a_range_counts_as_read() {
    an_entry_that_appears_in_a_range_is_a_conflict();
    finds(Bug::TransactionSkipsRanges, an_entry_that_appears_in_a_range_is_a_conflict);
}

fn what_an_iterator_passed_is_read() {
    let (db, table) = open_one();
    for key in ["c", "d", "e", "f"] {
        table.put(key, "1").unwrap();
    }
    // Reads up to b from the front, and down to e from the back.
    let read_ends = || {
        let mut tx = begin(&db);
        {
            let mut entries = tx.range(&table, .."z").unwrap();
            assert_eq!(entries.next().unwrap().unwrap().0, b"a");
            assert_eq!(entries.next().unwrap().unwrap().0, b"b");
            assert_eq!(entries.next_back().unwrap().unwrap().0, b"f");
            assert_eq!(entries.next_back().unwrap().unwrap().0, b"e");
        }
        tx.put(&table, "~", "1").unwrap();
        tx
    };
    let tx = read_ends();
    table.put("bb", "1").unwrap();
    table.put("dd", "1").unwrap();
    table.put("z", "1").unwrap();
    tx.commit().unwrap();
    for key in ["aa", "b", "e", "ee", "y"] {
        let tx = read_ends();
        table.delete(key).unwrap();
        table.put(key, "2").unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "{key}");
        table.delete("aa").unwrap();
        table.delete("ee").unwrap();
        table.delete("y").unwrap();
    }
    // The end counts once the iterator has reached it.
    let mut tx = begin(&db);
    assert_eq!(tx.range(&table, "d".."y").unwrap().count(), 4);
    tx.put(&table, "~", "1").unwrap();
    table.put("x", "1").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
}

#[test]
fn a_range_is_read_as_far_as_its_iterator_went() {
    what_an_iterator_passed_is_read();
    finds(Bug::RangeEndNotRead, what_an_iterator_passed_is_read);
}

/// Two transactions read both keys, and each writes one of them if both are 1.
fn one_of_two_writers_fails() {
    let bug = active(Bug::TransactionLocksWritesOnly);
    let (db, table) = open_one();
    let clear = |own: &str| {
        let mut tx = begin(&db);
        if text(&tx, &table, "a") == "1" && text(&tx, &table, "b") == "1" {
            tx.put(&table, own, "0").unwrap();
        }
        tx
    };
    for _ in 0..100 {
        db.batch().put(&table, "a", "1").put(&table, "b", "1").commit().unwrap();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            let (clear, both) = (&clear, &both);
            scope.spawn(move || {
                let _planted = bug.then(|| plant(Bug::TransactionLocksWritesOnly));
                let tx = clear("a");
                both.wait();
                let _ = tx.commit();
            });
            let tx = clear("b");
            both.wait();
            let _ = tx.commit();
        });
        let left = ["a", "b"].map(|key| table.get(key).unwrap().unwrap().to_vec());
        assert_ne!(left, [b"0", b"0"], "write skew");
    }
}

#[test]
fn validation_locks_what_was_read() {
    one_of_two_writers_fails();
    finds(Bug::TransactionLocksWritesOnly, one_of_two_writers_fails);
}

fn an_update_is_not_lost_with_snapshot_isolation() {
    let (db, table) = open_one();
    let (mut one, mut other) = (begin_snapshot(&db), begin_snapshot(&db));
    assert_eq!(text(&one, &table, "a"), text(&other, &table, "a"));
    one.put(&table, "a", "one").unwrap();
    other.put(&table, "a", "other").unwrap();
    one.commit().unwrap();
    assert_eq!(conflict_key(other.commit()), "a");
    // A deleted range is a write of its keys.
    let mut tx = begin_snapshot(&db);
    assert_eq!(text(&tx, &table, "x"), "-");
    tx.delete_range(&table, "b".."d").unwrap();
    table.put("c", "1").unwrap();
    assert_eq!(conflict_key(tx.commit()), "c");
}

#[test]
fn snapshot_isolation_validates_writes() {
    an_update_is_not_lost_with_snapshot_isolation();
    finds(Bug::SnapshotIsolationSkipsWrites, an_update_is_not_lost_with_snapshot_isolation);
}

#[test]
fn snapshot_isolation_permits_write_skew_and_phantoms() {
    let (db, table) = open_one();
    let (mut one, mut other) = (begin_snapshot(&db), begin_snapshot(&db));
    for tx in [&one, &other] {
        assert_eq!(text(tx, &table, "a") + &text(tx, &table, "b"), "11");
    }
    assert_eq!(keys(&one, &table).len(), 2);
    one.put(&table, "a", "0").unwrap();
    other.put(&table, "b", "0").unwrap();
    other.put(&table, "aa", "0").unwrap();
    other.commit().unwrap();
    one.commit().unwrap();
}

fn a_condition_is_validated() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    assert!(tx.put_with(&table, "new", "1", PutOptions::new().if_absent()).unwrap());
    assert!(!tx.put_with(&table, "new", "2", PutOptions::new().if_absent()).unwrap());
    assert!(!tx.put_with(&table, "none", "2", PutOptions::new().if_present()).unwrap());
    assert!(!tx.delete_with(&table, "none", DeleteOptions::new().if_present()).unwrap());
    assert!(tx.delete_with(&table, "a", DeleteOptions::new().if_present()).unwrap());
    assert!(!tx.delete_with(&table, "a", DeleteOptions::new().if_present()).unwrap());
    table.put("new", "other").unwrap();
    assert_eq!(conflict_key(tx.commit()), "new");
    assert!(table.contains("a").unwrap());
}

#[test]
fn conditions_see_own_writes_and_are_validated() {
    a_condition_is_validated();
    finds(Bug::ConditionNotValidated, a_condition_is_validated);
}

fn ranges_show_own_writes() {
    let (db, table) = open_one();
    for key in ["c", "d", "e"] {
        table.put(key, "1").unwrap();
    }
    let mut tx = begin(&db);
    tx.put(&table, "0", "own").unwrap();
    tx.put(&table, "bb", "own").unwrap();
    tx.put(&table, "c", "own").unwrap();
    tx.delete(&table, "d").unwrap();
    tx.delete_range(&table, "e"..).unwrap();
    tx.put(&table, "z", "own").unwrap();
    let expected = ["0", "a", "b", "bb", "c", "z"];
    assert_eq!(keys(&tx, &table), expected);
    let back: Vec<_> = tx.range(&table, ..).unwrap().rev().map(|entry| entry.unwrap()).collect();
    assert!(back.iter().map(|(key, _)| key.as_slice()).rev().eq(expected.map(str::as_bytes)));
    assert_eq!(back[1].1, "own");
    tx.commit().unwrap();
    assert_eq!(keys(&begin(&db), &table), expected);
}

#[test]
fn a_range_shows_own_writes_from_both_ends() {
    ranges_show_own_writes();
    finds(Bug::RangeMissesOwnWrites, ranges_show_own_writes);
}

fn a_rollback_undoes_writes() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    tx.put(&table, "a", "2").unwrap();
    let first = tx.savepoint();
    tx.put(&table, "a", "3").unwrap();
    tx.delete_range(&table, "b"..).unwrap();
    let second = tx.savepoint();
    tx.put(&table, "c", "3").unwrap();
    tx.rollback_to(second).unwrap();
    assert_eq!(keys(&tx, &table), ["a"]);
    tx.rollback_to(first).unwrap();
    assert_eq!(text(&tx, &table, "a"), "2");
    assert_eq!(keys(&tx, &table), ["a", "b"]);
    assert!(matches!(tx.rollback_to(second), Err(Error::InvalidOption { .. })));
    tx.put(&table, "d", "4").unwrap();
    tx.rollback_to(first).unwrap();
    let mut other = begin(&db);
    assert!(matches!(other.rollback_to(first), Err(Error::InvalidOption { .. })));
    tx.put(&table, "e", "5").unwrap();
    tx.commit().unwrap();
    assert_eq!(keys(&begin(&db), &table), ["a", "b", "e"]);
    assert_eq!(table.get("a").unwrap().unwrap(), "2");
}

#[test]
fn savepoints_undo_the_writes_since() {
    a_rollback_undoes_writes();
    finds(Bug::SavepointForgotten, a_rollback_undoes_writes);
}

#[test]
fn a_write_set_stays_small_when_a_key_is_written_again() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    let before = tx.savepoint();
    for number in 0..20_000_u32 {
        tx.put(&table, "counter", number.to_be_bytes()).unwrap();
        tx.put(&table, (number % 10).to_be_bytes(), number.to_be_bytes()).unwrap();
        if number == 10_000 {
            tx.savepoint();
        }
    }
    assert!(tx.state.get_mut().writes.body().len() < 32 << 10);
    assert_eq!(tx.get(&table, "counter").unwrap().unwrap(), 19_999_u32.to_be_bytes());
    tx.rollback_to(before).unwrap();
    assert_eq!(keys(&tx, &table), ["a", "b"]);
    tx.commit().unwrap();
}

fn attempts_read_anew() {
    let (db, table) = open_one();
    let mut attempts = 0;
    let options = TransactionOptions::new().retries(5);
    let seen: Result<String, Error> = db.transaction_with(options, |tx| {
        attempts += 1;
        let seen = text(tx, &table, "a");
        tx.put(&table, "b", &seen)?;
        if attempts < 4 {
            table.put("a", attempts.to_string())?;
        }
        Ok(seen)
    });
    assert_eq!(seen.unwrap(), "3");
    assert_eq!((attempts, table.get("b").unwrap().unwrap().to_vec()), (4, b"3".to_vec()));
}

#[test]
fn a_transaction_that_is_run_again_reads_anew() {
    attempts_read_anew();
    finds(Bug::RetryKeepsSnapshot, attempts_read_anew);
}

#[test]
fn retries_are_bounded_and_other_errors_end_the_transaction() {
    let (db, table) = open_one();
    for retries in [0, 3] {
        let mut attempts = 0;
        let options = TransactionOptions::new().retries(retries);
        let outcome: Result<(), Error> = db.transaction_with(options, |tx| {
            attempts += 1;
            tx.get(&table, "a")?;
            table.put("a", attempts.to_string())?;
            tx.put(&table, "a", "x")
        });
        assert_eq!(conflict_key(outcome), "a");
        assert_eq!(attempts, retries + 1);
    }
    let failed: Result<(), String> = db
        .transaction_with(TransactionOptions::new(), |tx| {
            tx.put(&table, "a", "x").map_err(Failure)?;
            Err(Failure(Error::ReadOnly))
        })
        .map_err(|Failure(error)| error.to_string());
    assert_eq!(failed.unwrap_err(), Error::ReadOnly.to_string());
    assert_eq!(table.get("a").unwrap().unwrap(), "4");
}

#[derive(Debug)]
struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

fn reads_without_a_snapshot_are_of_one_moment() {
    let (db, table) = open_one();
    let mut attempts = 0;
    let seen = db.transaction(|tx| {
        attempts += 1;
        let first = text(tx, &table, "a");
        if attempts == 1 {
            db.batch().put(&table, "a", "2").put(&table, "b", "2").commit()?;
        }
        let second = tx.get(&table, "b")?.unwrap();
        Ok((first, String::from_utf8(second.to_vec()).unwrap()))
    });
    assert_eq!(seen.unwrap(), ("2".to_owned(), "2".to_owned()));
    assert_eq!(attempts, 2);
}

#[test]
fn a_transaction_without_a_snapshot_reads_one_moment() {
    reads_without_a_snapshot_are_of_one_moment();
    finds(Bug::ReadsAtTwoMoments, reads_without_a_snapshot_are_of_one_moment);
}

/// A writer changes the first and the last key of a large batch, over and over. A reader sees both
/// changes or none.
fn a_commit_is_read_whole() {
    let bug = active(Bug::ReadDuringApply);
    let (db, mut tables) = open(&[EngineKind::Naive]);
    let table = tables.remove(0);
    table.put("reached", "by this thread").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let torn = thread::scope(|scope| {
        let (db, table, done) = (&db, &table, &done);
        scope.spawn(move || {
            let _planted = bug.then(|| plant(Bug::ReadDuringApply));
            for round in 0_u32.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let mut batch = db.batch();
                batch.put(table, "a", round.to_string());
                for number in 0..50_u32 {
                    batch.put(table, number.to_be_bytes(), "filling");
                }
                batch.put(table, "b", round.to_string()).commit().unwrap();
            }
        });
        let end = if bug { 2_000_000 } else { 20_000 };
        let torn = (0..end).any(|_| {
            let seen = db.transaction(|tx| Ok((tx.get(table, "a")?, tx.get(table, "b")?)));
            let (first, second) = seen.unwrap();
            first.unwrap().to_vec() != second.unwrap().to_vec()
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        torn
    });
    assert!(!torn, "half of a batch");
}

#[test]
fn a_reader_without_a_snapshot_sees_whole_commits() {
    a_commit_is_read_whole();
    finds(Bug::ReadDuringApply, a_commit_is_read_whole);
}

fn locks_end_with_the_transaction() {
    let (db, table) = open_one();
    let options = TransactionOptions::new().lock_timeout(Duration::ZERO);
    let mut one = db.begin(options).unwrap();
    assert_eq!(one.get_for_update(&table, "a").unwrap().unwrap(), "1");
    assert_eq!(one.get_for_update(&table, "a").unwrap().unwrap(), "1", "again");
    let mut other = db.begin(options).unwrap();
    let refused = other.get_for_update(&table, "a");
    assert!(matches!(refused, Err(Error::LockTimeout { table, key })
        if table == "btree" && key == b"a"));
    assert!(other.get_for_update(&table, "b").unwrap().is_some());
    one.rollback();
    other.put(&table, "a", "2").unwrap();
    assert_eq!(other.get_for_update(&table, "a").unwrap().unwrap(), "2");
    other.commit().unwrap();
    assert_eq!(db.session.core.key_locks.locked_count(), 0);
}

#[test]
fn a_lock_is_held_until_the_transaction_ends() {
    locks_end_with_the_transaction();
    finds(Bug::RollbackKeepsLocks, locks_end_with_the_transaction);
}

fn a_locked_key_is_current() {
    let (db, table) = open_one();
    let mut tx = begin(&db);
    assert_eq!(tx.get_for_update(&table, "a").unwrap().unwrap(), "1");
    table.put("b", "2").unwrap();
    assert_eq!(tx.get_for_update(&table, "b").unwrap().unwrap(), "2");
    tx.put(&table, "b", "3").unwrap();
    tx.commit().unwrap();
    // What was read before must be current as well.
    let mut tx = begin(&db);
    assert_eq!(text(&tx, &table, "a"), "1");
    db.batch().put(&table, "a", "5").put(&table, "b", "5").commit().unwrap();
    let refused = tx.get_for_update(&table, "b").map(drop);
    assert_eq!(conflict_key(refused), "a");
    assert!(matches!(tx.get(&table, "c"), Err(Error::Conflict { .. })));
    assert!(matches!(tx.put(&table, "c", "1"), Err(Error::Conflict { .. })));
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    // With snapshot isolation a locked key is validated, and others are not.
    let mut tx = begin_snapshot(&db);
    assert_eq!(tx.get_for_update(&table, "a").unwrap().unwrap(), "5");
    assert_eq!(text(&tx, &table, "b"), "5");
    tx.put(&table, "c", "1").unwrap();
    table.put("b", "6").unwrap();
    table.put("a", "6").unwrap();
    assert_eq!(conflict_key(tx.commit()), "a");
    let mut tx = begin_snapshot(&db);
    assert_eq!(text(&tx, &table, "b"), "6");
    table.put("a", "7").unwrap();
    assert_eq!(conflict_key(tx.get_for_update(&table, "a").map(drop)), "a");
}

#[test]
fn a_read_for_update_returns_the_current_value() {
    a_locked_key_is_current();
    finds(Bug::LockedReadIsStale, a_locked_key_is_current);
}

#[test]
fn scans_of_unordered_tables_show_own_writes_and_count_as_read() {
    for kind in EngineKind::ALL {
        let (db, mut tables) = open(&[kind]);
        let table = tables.remove(0);
        for number in 0..40 {
            table.put(format!("k{number:02}"), "1").unwrap();
        }
        let mut tx = begin(&db);
        tx.delete(&table, "a").unwrap();
        tx.put(&table, "b", "own").unwrap();
        tx.put(&table, "new", "own").unwrap();
        let scan = |tx: &Transaction| {
            let (mut found, mut cursor) = (std::collections::BTreeMap::new(), Cursor::START);
            loop {
                let (entries, next) = tx.scan(&table, &cursor, 7).unwrap();
                found.extend(entries.into_iter().map(|(key, value)| (key, value.to_vec())));
                if next.is_start() {
                    return found;
                }
                cursor = next;
            }
        };
        let found = scan(&tx);
        assert_eq!(found.len(), 42, "{kind}");
        assert!(!found.contains_key(b"a".as_slice()));
        assert_eq!(found[b"b".as_slice()], b"own");
        assert_eq!(found[b"new".as_slice()], b"own");
        table.put("phantom", "1").unwrap();
        assert_eq!(scan(&tx), found, "{kind}");
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "{kind}");
        let tx = begin(&db);
        assert!(matches!(tx.scan(&table, Cursor(vec![9]), 1), Err(Error::Limit { .. })));
    }
}

#[test]
fn a_transaction_survives_a_power_loss_as_a_whole() {
    let env = SimEnv::new(2);
    let db = open_in(&env);
    let [a, b] =
        ["a", "b"].map(|name| db.create_table(name, TableOptions::new(EngineKind::BTree)).unwrap());
    env.record_history();
    let start = env.mark();
    let options = TransactionOptions::new().durability(Durability::Sync);
    for round in 0..4 {
        // The two halves are in different sectors.
        let text = round.to_string().repeat(300);
        let committed: Result<(), Error> = db.transaction_with(options, |tx| {
            tx.get(&a, "k")?;
            tx.delete_range(&b, "l"..)?;
            tx.put(&a, "k", &text)?;
            tx.put(&b, "k", &text)?;
            tx.put(&b, format!("l{round}"), &text)
        });
        committed.unwrap();
    }
    let limits = PolicyLimits { each: 8, random: 4, torn: 8, copying: 2 };
    for event in start..=env.mark() {
        for policy in env.policies(event, limits) {
            let db = open_in(&env.image_at(event, policy));
            let (a, b) = (db.table("a").unwrap(), db.table("b").unwrap());
            let first = a.get("k").unwrap().map(|value| value.to_vec());
            assert_eq!(first, b.get("k").unwrap().map(|value| value.to_vec()), "event {event}");
            let rest: Vec<_> =
                b.range("l"..).unwrap().map(|entry| entry.unwrap().1.to_vec()).collect();
            assert!(rest.iter().eq(first.iter()), "event {event}");
        }
    }
}

#[test]
fn a_transaction_larger_than_memory_is_refused_before_it_changes_anything() {
    let (db, table) = open_one();
    let used = db.session.core.budget.used();
    let mut tx = begin(&db);
    let mut refused = None;
    for number in 0..100_u32 {
        if let Err(error) = tx.put(&table, number.to_be_bytes(), vec![1; 100_000]) {
            refused = Some(error);
            break;
        }
    }
    let Some(Error::OutOfMemory { budget, needed }) = refused else { panic!("{refused:?}") };
    assert_eq!(budget, 4 << 20);
    assert!(needed > 1 << 20, "{needed}");
    assert!(tx.get(&table, 0_u32.to_be_bytes()).unwrap().is_some());
    drop(tx);
    assert!(db.session.core.budget.used() <= used);
    assert!(!table.contains(0_u32.to_be_bytes()).unwrap());
}

#[test]
fn a_closed_database_and_a_dropped_table_refuse_transactions() {
    let (db, mut tables) = open(&[EngineKind::BTree, EngineKind::Naive]);
    let other = tables.remove(1);
    let table = tables.remove(0);
    let (mut reader, mut writer) = (begin(&db), begin(&db));
    assert_eq!(text(&reader, &table, "a"), "1");
    reader.put(&other, "a", "2").unwrap();
    writer.put(&table, "a", "2").unwrap();
    db.drop_table("btree").unwrap();
    assert!(matches!(reader.get(&table, "a"), Err(Error::StaleTable { .. })));
    assert!(matches!(reader.commit(), Err(Error::StaleTable { .. })));
    assert!(matches!(writer.commit(), Err(Error::StaleTable { .. })));
    let mut tx = begin(&db);
    assert_eq!(text(&tx, &other, "a"), "1");
    tx.put(&other, "a", "3").unwrap();
    db.close().unwrap();
    assert!(matches!(tx.get(&other, "a"), Err(Error::Closed)));
    assert!(matches!(tx.commit(), Err(Error::Closed)));
    assert!(matches!(db.begin(TransactionOptions::new()), Err(Error::Closed)));
    let closed = db.transaction(|_| Ok(()));
    assert!(matches!(closed, Err(Error::Closed)));
}

#[test]
fn values_expire_as_of_the_moment_of_the_transaction() {
    let env = SimEnv::new(7);
    let db = open_in(&env);
    let table = db.create_table("t", TableOptions::new(EngineKind::Naive)).unwrap();
    let ttl = PutOptions::new().ttl(Duration::from_millis(50));
    table.put_with("k", "1", ttl).unwrap();
    let tx = begin(&db);
    let first = db.transaction(|tx| Ok(tx.get(&table, "k")?.is_some())).unwrap();
    assert!(first && tx.get(&table, "k").unwrap().is_some());
    let mut writer = begin(&db);
    assert!(writer.put_with(&table, "own", "1", ttl).unwrap());
    crate::io::Env::pause(&env, Duration::from_millis(60));
    assert!(table.get("k").unwrap().is_none());
    assert!(tx.get(&table, "k").unwrap().is_some());
    assert!(!db.transaction(|tx| Ok(tx.get(&table, "k")?.is_some())).unwrap());
    assert!(writer.get(&table, "own").unwrap().is_some());
    writer.commit().unwrap();
    assert!(table.get("own").unwrap().is_none());
}

#[test]
fn snapshot_of_a_transaction_shows_what_it_reads_without_its_writes() {
    for begin in [begin, begin_snapshot] {
        let (db, table) = open_one();
        let mut transaction = begin(&db);
        assert_eq!(text(&transaction, &table, "a"), "1");
        transaction.put(&table, "b", "2").unwrap();
        let snapshot = transaction.snapshot().unwrap();
        table.put("c", "3").unwrap();
        assert_eq!(text(&transaction, &table, "c"), "-");
        assert!(snapshot.get(&table, "c").unwrap().is_none());
        assert_eq!(snapshot.get(&table, "b").unwrap().unwrap(), "1");
        assert_eq!(transaction.snapshot().unwrap().lsn(), snapshot.lsn());
        transaction.rollback();
        table.put("b", "3").unwrap();
        assert_eq!(snapshot.get(&table, "b").unwrap().unwrap(), "1");
    }
    // A read before that is not current any more is a conflict, after which the transaction runs
    // again.
    let (db, table) = open_one();
    let mut runs = 0;
    let read = db.transaction(|transaction| {
        runs += 1;
        let before = text(transaction, &table, "a");
        if runs == 1 {
            table.put("a", "2")?;
        }
        let snapshot = transaction.snapshot()?;
        assert_eq!(snapshot.get(&table, "a")?.unwrap(), before.as_bytes());
        Ok(before)
    });
    assert_eq!((read.unwrap().as_str(), runs), ("2", 2));
}
