//! Models of whole commits on the simulated system: writers run in parallel with a sync, a
//! checkpoint round, the sweep or a close, in many random interleavings. The planted bugs of this
//! kind are found.
//!
//! Run with `just shuttle`. The setup runs on one thread, so every choice of the checker is in the
//! concurrent part.

use std::time::Duration;

use super::{
    Database, Durability, Options, PutOptions, Table, UpdateOptions,
    api::session::jobs::sweep::delete_expired, expiry::ExpiryEntry,
};
use crate::{
    EngineKind, TableOptions,
    io::{
        Env as _,
        sim::{Policy, SimEnv},
    },
    util::{
        mutant::{Bug, finds},
        sync::{model_check::Exploration, thread},
    },
};

/// Runs `model` under schedules of two kinds: with a switch at any step, and (PCT) with a few
/// switches at chosen ones, so that a thread can stop in the middle while others finish.
fn explore(model: impl Fn() + Send + Sync + Copy + 'static) {
    explore_schedules(Exploration::DEFAULT.schedules, model);
}

fn explore_schedules(schedules: usize, model: impl Fn() + Send + Sync + Copy + 'static) {
    let exploration = Exploration {
        schedules,
        priority_changes: 3,
        random_switches: true,
        // Opening a database takes more than the default.
        stack_bytes: Some(1 << 20),
        ..Exploration::DEFAULT
    };
    exploration.explore(model);
}

fn open(env: &SimEnv) -> Database {
    // The minimum: the checker may switch threads at each word of a segment.
    let options = Options::new().memory_budget(4 << 20).segment_bytes(16 << 10);
    options.open_in(std::sync::Arc::new(env.clone()), "db").unwrap()
}

fn create(db: &Database, name: &str) -> Table {
    db.create_table(name, TableOptions::new(EngineKind::Naive)).unwrap()
}

fn value(db: &Database, table: &str, key: &str) -> Option<Vec<u8>> {
    db.table(table).unwrap().get(key).unwrap().map(|value| value.to_vec())
}

/// Commits a batch over both tables. Returns the disk after a power loss at the acknowledgement.
fn commit_batch(env: &SimEnv, db: &Database, text: &'static str) -> SimEnv {
    let (a, b) = (db.table("a").unwrap(), db.table("b").unwrap());
    let mut batch = db.batch();
    batch.put(&a, "k", text).put(&b, "k", text).put(&a, text, "done");
    batch.commit_with(Durability::Sync).unwrap();
    env.crash(Policy::AllLost)
}

/// Two batches over the same keys run in parallel with a checkpoint round and a sync. They have one
/// order, in memory, in the log and on disk. Acknowledged batches are durable.
#[test]
fn shuttle_batches_have_one_order_during_a_sync_and_a_checkpoint() {
    explore(|| {
        let env = SimEnv::new(1);
        let db = open(&env);
        create(&db, "a");
        create(&db, "b");
        let writers = ["one", "two"].map(|text| {
            let (env, db) = (env.clone(), db.clone());
            thread::spawn(move || (commit_batch(&env, &db, text), text))
        });
        let persisting = thread::spawn({
            let db = db.clone();
            move || db.persist().unwrap()
        });
        db.sync().unwrap();
        persisting.join().unwrap();
        for writer in writers {
            let (image, text) = writer.join().unwrap();
            let after = open(&image);
            assert_eq!(value(&after, "a", text).as_deref(), Some(b"done".as_slice()), "{text}");
            assert_eq!(value(&after, "a", "k"), value(&after, "b", "k"));
        }
        let last = value(&db, "a", "k");
        assert_eq!(value(&db, "b", "k"), last, "a batch is atomic in memory");
        let killed = open(&env.kill());
        assert_eq!(value(&killed, "a", "k"), last, "order in memory and in the log");
        assert_eq!(value(&killed, "b", "k"), last);
    });
}

/// Two `Sync` puts run in parallel. A put that has returned is on the disk, also if the other put's
/// sync was made while this put's record was being copied.
#[test]
fn shuttle_a_put_that_is_acknowledged_as_synced_is_durable() {
    explore(|| {
        let env = SimEnv::new(6);
        let db = open(&env);
        let table = create(&db, "a");
        let put = |env: SimEnv, table: Table, key: &'static str| {
            move || {
                table.put_with(key, "v", PutOptions::new().durability(Durability::Sync)).unwrap();
                (env.crash(Policy::AllLost), key)
            }
        };
        let other = thread::spawn(put(env.clone(), table.clone(), "other"));
        let images = [put(env, table, "one")(), other.join().unwrap()];
        // Opened after both puts: opening is not part of the exploration.
        for (image, key) in images {
            assert_eq!(value(&open(&image), "a", key).as_deref(), Some(b"v".as_slice()), "{key}");
        }
    });
}

/// Two puts of one key: memory and replay have the same last value.
#[test]
fn shuttle_puts_of_a_key_are_applied_in_log_order() {
    explore(|| {
        let env = SimEnv::new(2);
        let db = open(&env);
        let table = create(&db, "a");
        let other = thread::spawn({
            let table = table.clone();
            move || table.put("k", "other").unwrap()
        });
        table.put("k", "one").unwrap();
        other.join().unwrap();
        assert_eq!(value(&db, "a", "k"), value(&open(&env.kill()), "a", "k"));
    });
}

/// Of two writers with `if_absent`, exactly one writes.
#[test]
fn shuttle_one_of_two_conditional_writers_wins() {
    explore(|| {
        let env = SimEnv::new(3);
        let db = open(&env);
        let table = create(&db, "a");
        let put = |table: &Table, text: &str| {
            table.put_with("k", text, PutOptions::new().if_absent()).unwrap()
        };
        let other = thread::spawn({
            let table = table.clone();
            move || put(&table, "other")
        });
        let wins = put(&table, "one");
        assert_ne!(wins, other.join().unwrap());
        let expected: &[u8] = if wins { b"one" } else { b"other" };
        assert_eq!(value(&db, "a", "k").as_deref(), Some(expected));
    });
}

/// The sweep deletes a value that it has found expired, while a writer puts a new one.
#[test]
fn shuttle_the_sweep_keeps_a_value_that_was_written_meanwhile() {
    explore(|| {
        let env = SimEnv::new(4);
        let db = open(&env);
        let table = create(&db, "a");
        let ttl = PutOptions::new().ttl(Duration::from_millis(10));
        table.put_with("k", "old", ttl).unwrap();
        let time = env.unix_millis() + 10;
        env.advance(Duration::from_millis(10));
        let sweep = thread::spawn({
            let (db, table) = (db.clone(), table.clone());
            move || {
                let entry = ExpiryEntry { time, table_id: table.state.id, key: b"k" };
                delete_expired(&db.session.core, &table.state, &entry).unwrap()
            }
        });
        table.put("k", "new").unwrap();
        sweep.join().unwrap();
        assert_eq!(value(&db, "a", "k").as_deref(), Some(b"new".as_slice()));
    });
}

/// A batch replaces the value that is being swept by one with the same expiry. The batch is built
/// before that time and applied after it.
#[test]
fn shuttle_the_sweep_keeps_the_entry_of_a_value_that_was_written_meanwhile() {
    explore(|| {
        let env = SimEnv::new(4);
        let db = open(&env);
        let table = create(&db, "a");
        let ttl = PutOptions::new().ttl(Duration::from_millis(10));
        table.put_with("k", "old", ttl).unwrap();
        let time = env.unix_millis() + 10;
        let mut batch = db.batch();
        batch.put_with(&table, "k", "new", ttl);
        env.advance(Duration::from_millis(10));
        let sweep = thread::spawn({
            let (db, table) = (db.clone(), table.clone());
            move || {
                let entry = ExpiryEntry { time, table_id: table.state.id, key: b"k" };
                delete_expired(&db.session.core, &table.state, &entry).unwrap()
            }
        });
        batch.commit().unwrap();
        sweep.join().unwrap();
        assert!(db.check().unwrap().is_sound());
    });
}

/// A value is replaced before it expires. A reader that has read the old value and stalls until its
/// expiry still finds a value.
#[test]
fn shuttle_a_value_that_is_replaced_in_time_is_never_missed() {
    explore(|| {
        let env = SimEnv::new(4);
        let db = open(&env);
        let table = create(&db, "a");
        let ttl = PutOptions::new().ttl(Duration::from_millis(10));
        table.put_with("k", "old", ttl).unwrap();
        let reader = thread::spawn({
            let table = table.clone();
            move || (0..4).for_each(|_| assert!(table.get("k").unwrap().is_some()))
        });
        table.put("k", "new").unwrap();
        env.advance(Duration::from_millis(10));
        reader.join().unwrap();
    });
}

/// A value expires beside a write that needs it. Either a reader misses the value and the write is
/// refused, or the write was in time and the reader finds what it wrote.
fn a_write_that_needs_a_value_or_a_reader_is_in_time(write: fn(&Table) -> bool) {
    explore(move || {
        let env = SimEnv::new(4);
        let db = open(&env);
        let table = create(&db, "a");
        let ttl = PutOptions::new().ttl(Duration::from_millis(10));
        table.put_with("k", "old", ttl).unwrap();
        let writer = thread::spawn({
            let table = table.clone();
            move || write(&table)
        });
        env.advance(Duration::from_millis(10));
        let found = table.get("k").unwrap();
        assert_eq!(writer.join().unwrap(), found.is_some());
    });
}

#[test]
fn shuttle_a_put_if_present_and_a_reader_agree_on_an_expiry() {
    a_write_that_needs_a_value_or_a_reader_is_in_time(|table| {
        table.put_with("k", "new", PutOptions::new().if_present()).unwrap()
    });
}

#[test]
fn shuttle_an_update_and_a_reader_agree_on_an_expiry() {
    a_write_that_needs_a_value_or_a_reader_is_in_time(|table| {
        let options = UpdateOptions::new().without_expiry();
        table.update_with("k", options, |old| old.map(|_| "new")).unwrap().is_some()
    });
}

/// A put in parallel with a close is refused, or it is durable when the close has returned.
#[test]
fn shuttle_a_close_makes_what_was_acknowledged_durable() {
    explore(|| {
        let env = SimEnv::new(5);
        let db = open(&env);
        let table = create(&db, "a");
        let writer = thread::spawn(move || table.put("k", "v").is_ok());
        db.close().unwrap();
        let image = env.crash(Policy::AllLost);
        let found = value(&open(&image), "a", "k").is_some();
        assert_eq!(found, writer.join().unwrap());
    });
}

/// A snapshot that is taken beside a batch and a put shows both values of the batch or neither.
/// Each read shows the same, also when both writes are done.
#[test]
fn shuttle_a_snapshot_is_one_moment_beside_writers() {
    explore(|| {
        let env = SimEnv::new(7);
        let db = open(&env);
        let tables = [create(&db, "a"), create(&db, "b")];
        let put_all = |text: &str| {
            let mut batch = db.batch();
            tables.iter().for_each(|table| _ = batch.put(table, "k", text));
            batch.commit().unwrap();
        };
        put_all("old");
        let writer = thread::spawn({
            let (db, tables) = (db.clone(), tables.clone());
            move || {
                let mut batch = db.batch();
                tables.iter().for_each(|table| _ = batch.put(table, "k", "new"));
                batch.commit().unwrap();
                tables[1].put("k", "newer").unwrap();
            }
        });
        let snapshot = db.snapshot().unwrap();
        let read = || {
            let get = |table: &Table| snapshot.get(table, "k").unwrap().unwrap().to_vec();
            tables.each_ref().map(get).map(|value| String::from_utf8(value).unwrap())
        };
        let first = read();
        let is_moment =
            [["old", "old"], ["new", "new"], ["new", "newer"]].iter().any(|m| *m == first);
        assert!(is_moment, "{first:?}");
        writer.join().unwrap();
        assert_eq!(read(), first);
        let (page, _) = snapshot.scan(&tables[1], crate::Cursor::START, 10).unwrap();
        assert!(page.iter().map(|(_, value)| &**value).eq([first[1].as_bytes()]));
    });
}

/// Two transactions read both keys, and each deletes one of them if both are there. One fails.
#[test]
fn shuttle_transactions_have_no_write_skew() {
    explore(|| {
        let env = SimEnv::new(8);
        let db = open(&env);
        let table = create(&db, "a");
        db.batch().put(&table, "x", "1").put(&table, "y", "1").commit().unwrap();
        let delete = |key: &'static str| {
            let (db, table) = (db.clone(), table.clone());
            move || {
                let deleted: crate::Result<()> = db.transaction(|tx| {
                    if tx.contains(&table, "x")? && tx.contains(&table, "y")? {
                        tx.delete(&table, key)?;
                    }
                    Ok(())
                });
                deleted.unwrap();
            }
        };
        let other = thread::spawn(delete("x"));
        delete("y")();
        other.join().unwrap();
        let left = ["x", "y"].map(|key| table.contains(key).unwrap());
        assert_eq!(left.iter().filter(|has| **has).count(), 1);
    });
}

/// A transaction that takes no snapshot reads beside a batch. It sees both values or neither.
#[test]
fn shuttle_a_transaction_reads_one_moment_beside_a_batch() {
    explore(|| {
        let env = SimEnv::new(9);
        let db = open(&env);
        let (a, b) = (create(&db, "a"), create(&db, "b"));
        db.batch().put(&a, "k", "old").put(&b, "k", "old").commit().unwrap();
        let writer = thread::spawn({
            let (db, a, b) = (db.clone(), a.clone(), b.clone());
            move || db.batch().put(&a, "k", "new").put(&b, "k", "new").commit().unwrap()
        });
        let seen = db.transaction(|tx| Ok([tx.get(&a, "k")?.unwrap(), tx.get(&b, "k")?.unwrap()]));
        let [first, second] = seen.unwrap().map(|value| value.to_vec());
        assert_eq!(first, second);
        writer.join().unwrap();
    });
}

/// Two transactions lock two keys in opposite order. Both commit, one of them after it was run
/// again.
#[test]
fn shuttle_a_deadlock_ends() {
    explore(|| {
        let env = SimEnv::new(10);
        let db = open(&env);
        let table = create(&db, "a");
        let write = |keys: [&'static str; 2]| {
            let (db, table) = (db.clone(), table.clone());
            move || {
                let written: crate::Result<()> = db.transaction(|tx| {
                    for key in keys {
                        let count = tx.get_for_update(&table, key)?.map_or(0, |value| value[0]);
                        tx.put(&table, key, [count + 1])?;
                    }
                    Ok(())
                });
                written.is_ok()
            }
        };
        let other = thread::spawn(write(["x", "y"]));
        let own = write(["y", "x"])();
        let count = u8::from(own) + u8::from(other.join().unwrap());
        // In a model a wait may time out at once.
        let found = ["x", "y"].map(|key| value(&db, "a", key).map_or(0, |value| value[0]));
        assert_eq!(found, [count; 2]);
        assert_eq!(db.session.core.key_locks.locked_count(), 0);
    });
}

#[test]
fn shuttle_finds_bugs_of_transactions() {
    finds(Bug::TransactionLocksWritesOnly, shuttle_transactions_have_no_write_skew);
    for bug in [Bug::ReadDuringApply, Bug::ReadsAtTwoMoments] {
        finds(bug, shuttle_a_transaction_reads_one_moment_beside_a_batch);
    }
}

/// A snapshot is taken while versions are compacted, and its versions fill a segment meanwhile.
#[test]
fn shuttle_a_compaction_of_versions_keeps_what_a_new_snapshot_needs() {
    // With a third of them its planted bug is found or not, as the seed happens to choose.
    explore_schedules(6_000, || {
        let env = SimEnv::new(8);
        let db = open(&env);
        let table = create(&db, "a");
        // A segment of versions has 512 bytes under the checker, so each of these has its own.
        let large = |byte: u8| vec![byte; 400];
        ["a", "k"].iter().for_each(|key| table.put(key, large(1)).unwrap());
        let old = db.snapshot().unwrap();
        table.put("a", large(2)).unwrap();
        let compaction = thread::spawn({
            let db = db.clone();
            move || db.session.core.versions.compact_now().unwrap()
        });
        let snapshot = db.snapshot().unwrap();
        // The version of `a` is for the new snapshot alone. That of `k` fills the next segment.
        ["a", "k"].iter().for_each(|key| table.put(key, large(3)).unwrap());
        compaction.join().unwrap();
        let get = |snapshot: &crate::Snapshot, key| snapshot.get(&table, key).unwrap().unwrap()[0];
        assert_eq!([get(&snapshot, "k"), get(&snapshot, "a")], [1, 2]);
        assert_eq!([get(&old, "k"), get(&old, "a")], [1, 1]);
    });
}

/// Versions move to a file while a snapshot reads them, another one is taken and a writer adds
/// versions.
#[test]
fn shuttle_a_spill_hides_no_version() {
    explore(|| {
        let env = SimEnv::new(9);
        let db = open(&env);
        let table = create(&db, "a");
        // A segment of versions has 512 bytes under the checker, so each of these has its own.
        let large = |byte: u8| vec![byte; 400];
        ["a", "k"].iter().for_each(|key| table.put(key, large(1)).unwrap());
        let old = db.snapshot().unwrap();
        ["a", "k"].iter().for_each(|key| table.put(key, large(2)).unwrap());
        let spill = thread::spawn({
            let db = db.clone();
            move || db.session.core.versions.spill_now(true).unwrap()
        });
        let get = |snapshot: &crate::Snapshot, key| snapshot.get(&table, key).unwrap().unwrap()[0];
        assert_eq!([get(&old, "a"), get(&old, "k")], [1, 1]);
        let snapshot = db.snapshot().unwrap();
        ["a", "k"].iter().for_each(|key| table.put(key, large(3)).unwrap());
        assert_eq!([get(&snapshot, "a"), get(&old, "a")], [2, 1]);
        spill.join().unwrap();
        assert_eq!([get(&snapshot, "k"), get(&old, "k")], [2, 1]);
    });
}

/// A writer saves a version in a segment that is full by then, and that is about to move to a file.
#[test]
fn shuttle_a_spill_takes_no_segment_that_a_writer_fills() {
    explore(|| {
        let env = SimEnv::new(11);
        let db = open(&env);
        let table = create(&db, "a");
        ["a", "b", "c"].iter().for_each(|key| table.put(key, [1; 40]).unwrap());
        table.put("large", [1; 400]).unwrap();
        let old = db.snapshot().unwrap();
        table.put("a", [2; 40]).unwrap();
        let writers = ["b", "c", "large"].map(|key| {
            let table = table.clone();
            thread::spawn(move || table.put(key, [2; 40]).unwrap())
        });
        db.session.core.versions.spill_now(true).unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        for key in ["a", "b", "c", "large"] {
            assert_eq!(old.get(&table, key).unwrap().unwrap()[0], 1, "{key}");
        }
    });
}

#[test]
fn shuttle_finds_bugs_of_spills() {
    finds(Bug::SpillLeavesGap, shuttle_a_spill_hides_no_version);
    finds(Bug::SpillTakesIncomplete, shuttle_a_spill_takes_no_segment_that_a_writer_fills);
}

#[test]
fn shuttle_finds_stripes_not_locked() {
    finds(Bug::StripesNotLocked, shuttle_puts_of_a_key_are_applied_in_log_order);
    finds(Bug::StripesNotLocked, shuttle_batches_have_one_order_during_a_sync_and_a_checkpoint);
}

#[test]
fn shuttle_finds_condition_outside_stripe() {
    finds(Bug::ConditionOutsideStripe, shuttle_one_of_two_conditional_writers_wins);
}

#[test]
fn shuttle_finds_log_syncs_past_holes() {
    finds(Bug::LogSyncsPastHoles, shuttle_a_put_that_is_acknowledged_as_synced_is_durable);
}

#[test]
fn shuttle_finds_sweep_does_not_look_again() {
    finds(Bug::SweepDoesNotLookAgain, shuttle_the_sweep_keeps_a_value_that_was_written_meanwhile);
}

#[test]
fn shuttle_finds_writes_and_readers_that_disagree_on_an_expiry() {
    for bug in [Bug::ExpiredReadPassesWrites, Bug::ConditionForgetsTheClock] {
        finds(bug, shuttle_a_put_if_present_and_a_reader_agree_on_an_expiry);
        finds(bug, shuttle_an_update_and_a_reader_agree_on_an_expiry);
    }
}

#[test]
fn shuttle_finds_expiry_is_not_looked_at_again() {
    let model = shuttle_a_value_that_is_replaced_in_time_is_never_missed;
    finds(Bug::ExpiryIsNotLookedAtAgain, model);
}

#[test]
fn shuttle_finds_sweep_unlists_outside_stripe() {
    finds(
        Bug::SweepUnlistsOutsideStripe,
        shuttle_the_sweep_keeps_the_entry_of_a_value_that_was_written_meanwhile,
    );
}

#[test]
fn shuttle_finds_a_compaction_beside_taking() {
    let model = shuttle_a_compaction_of_versions_keeps_what_a_new_snapshot_needs;
    finds(Bug::SnapshotCompactsBesideTaking, model);
}

#[test]
fn shuttle_finds_bugs_of_snapshots() {
    for bug in [Bug::SnapshotNotAnnounced, Bug::SnapshotDoesNotSettle, Bug::SnapshotAsksEngineLast]
    {
        finds(bug, shuttle_a_snapshot_is_one_moment_beside_writers);
    }
}
