//! Tests of the database as a whole on the simulated system: recovery, commits and the sweep. Each
//! planted bug in them is found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use super::{
    Batch, Database, Durability, Options, PutOptions, Table,
    api::session::jobs::sweep::delete_expired,
    core::Core,
    expiry::ExpiryEntry,
    limits::KEY_BYTES_MAX,
    tables::{job_handles::JobKind, state::TableState, stripes::Stripes},
};
use crate::{
    Error,
    contract::{Engine as _, EngineKind, MaintenanceMode, TableOptions},
    io::{
        Env as _,
        sim::{Call, Damage, Effect, Fault, Policy, PolicyLimits, SimEnv, When},
    },
    util::{
        mutant::{Bug, finds, plant},
        sync::{AtomicU64, Ordering},
    },
};

const LIMITS: PolicyLimits = PolicyLimits { each: 8, random: 4, torn: 8, copying: 2 };

fn open(env: &SimEnv) -> Database {
    try_open(env).unwrap()
}

fn try_open(env: &SimEnv) -> crate::Result<Database> {
    let options = Options::new().memory_budget(4 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), "db")
}

fn create(db: &Database, name: &str) -> Table {
    db.create_table(name, TableOptions::new(EngineKind::Naive)).unwrap()
}

fn core(db: &Database) -> &Core {
    &db.session.core
}

fn checkpoint(db: &Database, tables: &[Arc<TableState>]) {
    core(db).checkpoints.checkpoint(&core(db).tables, tables).unwrap();
}

fn value(table: &Table, key: &str) -> Option<String> {
    let value = table.get(key).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

fn ttl(millis: u64) -> PutOptions {
    PutOptions::new().ttl(Duration::from_millis(millis))
}

#[test]
fn puts_deletes_and_batches_survive_a_kill() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let (a, b) = (create(&db, "a"), create(&db, "b"));
    a.put("gone", "1").unwrap();
    a.delete("gone").unwrap();
    db.batch().put(&a, "k", "2").put(&b, "k", "3").delete(&b, "none").commit().unwrap();
    let db = open(&env.kill());
    let (a, b) = (db.table("a").unwrap(), db.table("b").unwrap());
    assert_eq!(value(&a, "gone"), None);
    assert_eq!(value(&a, "k").as_deref(), Some("2"));
    assert_eq!(value(&b, "k").as_deref(), Some("3"));
}

#[test]
fn a_batch_is_all_or_nothing_after_a_power_loss() {
    let env = SimEnv::new(2);
    let db = open(&env);
    let (a, b) = (create(&db, "a"), create(&db, "b"));
    env.record_history();
    let start = env.mark();
    for round in 0..4 {
        // The two halves of a batch are in different sectors.
        let text = round.to_string().repeat(300);
        let mut batch = db.batch();
        batch.put(&a, "k", &text).put(&b, "k", &text);
        batch.commit_with(Durability::Sync).unwrap();
    }
    for event in start..=env.mark() {
        for policy in env.policies(event, LIMITS) {
            let db = open(&env.image_at(event, policy));
            let (a, b) = (db.table("a").unwrap(), db.table("b").unwrap());
            assert_eq!(value(&a, "k"), value(&b, "k"), "event {event}, {policy}");
        }
    }
}

/// The log of an idle database moves to a small segment. No power loss during the move loses a
/// write.
#[test]
fn an_idle_log_is_small_and_a_power_loss_loses_nothing() {
    let env = SimEnv::new(4);
    let open = |env: &SimEnv| {
        let options = Options::new().memory_budget(64 << 20).segment_bytes(512 << 10);
        options.open_in(Arc::new(env.clone()), "db").unwrap()
    };
    let log_bytes = || -> u64 {
        let files = env.files().into_iter().filter(|(path, _)| path.contains("log/"));
        files.map(|(_, bytes)| bytes).sum()
    };
    let db = open(&env);
    let table = create(&db, "a");
    for number in 0..60_u32 {
        table.put(number.to_be_bytes(), [1; 500]).unwrap();
    }
    db.sync().unwrap();
    assert!(log_bytes() >= 512 << 10);
    env.record_history();
    let start = env.mark();
    db.persist().unwrap();
    assert_eq!(log_bytes(), 16 << 10);
    table.put("later", "1").unwrap();
    db.sync().unwrap();
    let synced = env.mark();
    for number in 60..120_u32 {
        table.put(number.to_be_bytes(), [1; 500]).unwrap();
    }
    db.sync().unwrap();
    for event in start..=env.mark() {
        for policy in env.policies(event, LIMITS) {
            let place = format!("event {event}, {policy}");
            let db = open(&env.image_at(event, policy));
            let table = db.table("a").unwrap();
            for number in 0..60_u32 {
                assert!(table.get(number.to_be_bytes()).unwrap().is_some(), "{place}");
            }
            assert!(event < synced || value(&table, "later").is_some(), "{place}");
            table.put("after", "2").unwrap();
            db.persist().unwrap();
            assert!(db.check().unwrap().is_sound(), "{place}");
        }
    }
}

/// A power loss during a checkpoint: no table lacks a write that the log has pruned.
#[test]
fn a_power_loss_during_a_checkpoint_loses_nothing() {
    let env = SimEnv::new(3);
    let db = open(&env);
    let (a, b) = (create(&db, "a"), create(&db, "b"));
    // More segments than the log recycles.
    for number in 0..900_u32 {
        a.put(number.to_be_bytes(), [1; 500]).unwrap();
    }
    b.put("k", "v").unwrap();
    db.sync().unwrap();
    env.record_history();
    let start = env.mark();
    db.persist().unwrap();
    for event in start..=env.mark() {
        for policy in env.policies(event, LIMITS) {
            let image = env.image_at(event, policy);
            let db = try_open(&image).unwrap_or_else(|error| panic!("{event}, {policy}: {error}"));
            assert_eq!(db.table("a").unwrap().stats().unwrap().keys, 900, "{event}, {policy}");
            assert_eq!(value(&db.table("b").unwrap(), "k").as_deref(), Some("v"));
        }
    }
}

#[test]
fn each_table_is_replayed_from_its_own_persisted_lsn() {
    let env = SimEnv::new(4);
    let db = open(&env);
    let (a, b) = (create(&db, "a"), create(&db, "b"));
    a.put("k", "1").unwrap();
    b.put("k", "2").unwrap();
    b.persist().unwrap();
    let db = open(&env.kill());
    assert_eq!(value(&db.table("a").unwrap(), "k").as_deref(), Some("1"));
    assert_eq!(value(&db.table("b").unwrap(), "k").as_deref(), Some("2"));
}

#[test]
fn an_expiry_is_replayed() {
    let env = SimEnv::new(5);
    let db = open(&env);
    create(&db, "t").put_with("k", "v", ttl(1000)).unwrap();
    let env = env.kill();
    let db = open(&env);
    let table = db.table("t").unwrap();
    assert_eq!(value(&table, "k").as_deref(), Some("v"));
    env.advance(Duration::from_secs(1));
    assert_eq!(value(&table, "k"), None);
}

/// Lets the sweep process the entry of `key` and `time`. Returns whether it deleted a value.
fn sweep(db: &Database, table: &Table, key: &str, time: u64) -> bool {
    let entry = ExpiryEntry { time, table_id: table.state.id, key: key.as_bytes() };
    delete_expired(core(db), &table.state, &entry).unwrap()
}

fn pending(db: &Database) -> u64 {
    db.stats().expiries_pending
}

#[test]
fn the_sweep_keeps_a_value_that_was_written_meanwhile() {
    let env = SimEnv::new(6);
    let db = open(&env);
    let table = create(&db, "t");
    table.put_with("k", "old", ttl(10)).unwrap();
    let time = env.unix_millis() + 10;
    env.advance(Duration::from_millis(10));
    // The sweep has read the entry, and deletes the value after the put.
    table.put("k", "new").unwrap();
    assert!(!sweep(&db, &table, "k", time));
    assert_eq!(value(&table, "k").as_deref(), Some("new"));
    table.put_with("k", "old", ttl(10)).unwrap();
    env.advance(Duration::from_millis(10));
    assert!(sweep(&db, &table, "k", time + 10));
    assert_eq!(table.stats().unwrap().keys, 0);
    assert_eq!(pending(&db), 0);
}

#[test]
fn the_sweep_empties_a_table_and_sleeps() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let table = create(&db, "t");
    for number in 0..3000_u32 {
        table.put_with(number.to_be_bytes(), "v", ttl(100)).unwrap();
    }
    table.put("stays", "v").unwrap();
    assert_eq!(pending(&db), 3000);
    for _ in 0..20 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!(table.stats().unwrap().keys, 1);
    assert_eq!(db.stats().expired_swept_total, 3000);
    assert_eq!(pending(&db), 0);
    // Nothing expires any more: the job is not due at any later time.
    env.advance(Duration::from_secs(100));
    env.run_due();
    env.advance(Duration::from_secs(100));
    assert_eq!(env.due_jobs(), Vec::<&str>::new());
}

/// The sweep reads only entries that are due. It sleeps until the first value expires, and wakes
/// for a put that expires earlier.
#[test]
fn the_sweep_sleeps_until_the_first_value_expires() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let table = create(&db, "t");
    table.put_with("late", "v", ttl(50_000)).unwrap();
    env.run_due();
    env.advance(Duration::from_secs(1));
    env.run_due();
    env.advance(Duration::from_secs(40));
    assert!(!env.due_jobs().contains(&"expire"));
    // A later expiry than the first wakes no job. An earlier one does.
    table.put_with("later", "v", ttl(60_000)).unwrap();
    assert!(!env.due_jobs().contains(&"expire"));
    table.put_with("early", "v", ttl(500)).unwrap();
    assert!(env.due_jobs().contains(&"expire"));
    env.run_due();
    env.advance(Duration::from_millis(500));
    env.run_due();
    assert_eq!(table.stats().unwrap().keys, 2);
    env.advance(Duration::from_secs(9));
    env.run_due();
    assert_eq!(table.stats().unwrap().keys, 1);
}

#[test]
fn a_database_without_expiries_has_no_index() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let table = create(&db, "t");
    table.put("k", "v").unwrap();
    assert!(table.put_with("k", "v", ttl(0)).is_err());
    assert!(core(&db).expiry.table().is_none());
    table.put_with("k", "v", ttl(10)).unwrap();
    // The index is not listed as a table.
    assert_eq!(db.tables().len(), 1);
    assert_eq!(db.stats().tables.len(), 1);
    assert!(matches!(db.table(".expiry"), Err(Error::NoSuchTable { .. })));
    assert!(db.drop_table(".expiry").is_err());
    assert!(db.rename(".expiry", "x").is_err());
    assert!(db.rename("t", ".expiry").is_err());
}

/// A put with a ttl replaces the entry of the value before it. Plain puts and deletes leave the
/// entry until it is due.
/// An engine drops an expired value from memory, and the sweep removes its entry. The entry's
/// removal is durable, and the engine's files still lack the value: replay applies the put again.
fn a_swept_value_is_not_revived() {
    let env = SimEnv::new(41);
    let db = open(&env);
    let table = create(&db, "a");
    let time = env.unix_millis() + 10;
    table.put_with("k", "v", ttl(10)).unwrap();
    env.advance(Duration::from_millis(20));
    table.state.engine.maintain(MaintenanceMode::Full).unwrap();
    assert!(!sweep(&db, &table, "k", time), "there is nothing to delete");
    checkpoint(&db, &[Arc::clone(core(&db).expiry.table().unwrap())]);
    let db = open(&env.kill());
    let report = db.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(value(&db.table("a").unwrap(), "k"), None);
}

#[test]
fn a_swept_value_stays_away_after_a_kill() {
    a_swept_value_is_not_revived();
    finds(Bug::ReplayRevivesSweptValues, a_swept_value_is_not_revived);
}

#[test]
fn a_value_that_is_put_again_has_one_entry() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let table = create(&db, "t");
    for millis in 1000..1100 {
        table.put_with("k", "v", ttl(millis)).unwrap();
        let mut batch = db.batch();
        batch.put_with(&table, "k", "v", ttl(millis * 2));
        batch.put_with(&table, "other", "v", ttl(millis));
        batch.commit().unwrap();
    }
    assert_eq!(pending(&db), 2);
    table.put("k", "stays").unwrap();
    table.delete("other").unwrap();
    assert_eq!(pending(&db), 2);
    for _ in 0..30 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!((pending(&db), table.stats().unwrap().keys), (0, 1));
    assert_eq!(db.stats().expired_swept_total, 0);
}

#[test]
fn the_entries_of_a_dropped_table_are_removed() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let (dropped, kept) = (create(&db, "d/t"), create(&db, "kept"));
    for number in 0..1000_u32 {
        dropped.put_with(number.to_be_bytes(), "v", ttl(1 << 40)).unwrap();
        kept.put_with(number.to_be_bytes(), "v", ttl(1 << 40)).unwrap();
    }
    db.rename("d", "e").unwrap();
    assert_eq!(pending(&db), 2000);
    db.drop_tree("e").unwrap();
    for _ in 0..40 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!(pending(&db), 1000);
    assert!(db.check().unwrap().is_sound());
}

/// A stopped table keeps its entries. Those of other tables are swept.
#[test]
fn a_stopped_table_does_not_stop_the_sweep() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let (stopped, table) = (create(&db, "a"), create(&db, "b"));
    for number in 0..500_u32 {
        stopped.put_with(number.to_be_bytes(), "v", ttl(100)).unwrap();
        table.put_with(number.to_be_bytes(), "v", ttl(200)).unwrap();
    }
    stopped.state.fail(&Error::Closed);
    for _ in 0..10 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!((table.stats().unwrap().keys, pending(&db)), (0, 500));
    assert!(matches!(stopped.put_with("k", "v", ttl(5)), Err(Error::TableFailed { .. })));
    drop((stopped, table, db));
    let db = open(&env);
    for _ in 0..10 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!((db.table("a").unwrap().stats().unwrap().keys, pending(&db)), (0, 0));
}

/// Values are swept after a restart if only the log has them, only the files of the index have
/// their entries, or only the files of the table have them.
#[test]
fn values_that_expire_are_swept_after_a_kill() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let table = create(&db, "t");
    for number in (0..1000_u32).step_by(2) {
        // A batch of one operation would take the path of one write.
        let mut batch = db.batch();
        batch.put_with(&table, number.to_be_bytes(), "v", ttl(5000));
        batch.put_with(&table, (number + 1).to_be_bytes(), "v", ttl(5000));
        batch.commit().unwrap();
        match number {
            300 => checkpoint(&db, &core(&db).tables.all()[..1]),
            600 => checkpoint(&db, &core(&db).tables.all()[1..]),
            _ => {}
        }
    }
    let env = env.kill();
    let db = open(&env);
    assert!(db.check().unwrap().is_sound());
    assert_eq!(pending(&db), 1000);
    for _ in 0..100 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    let table = db.table("t").unwrap();
    assert_eq!((table.stats().unwrap().keys, pending(&db)), (0, 0));
}

/// The longest keys have entries too.
#[test]
fn the_longest_keys_expire() {
    let env = SimEnv::new(7);
    let db = open(&env);
    let table = create(&db, "t");
    for length in [16, 15, 14, 1, 0].map(|less| KEY_BYTES_MAX - less) {
        table.put_with(vec![7; length], "v", ttl(100)).unwrap();
    }
    table.put_with(vec![7; KEY_BYTES_MAX], "v", ttl(150)).unwrap();
    assert!(db.check().unwrap().is_sound());
    let env = env.kill();
    let db = open(&env);
    let table = db.table("t").unwrap();
    assert!(db.check().unwrap().is_sound());
    for _ in 0..3 {
        env.advance(Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!((table.stats().unwrap().keys, pending(&db)), (0, 0));
}

/// The last record is known to be durable from the catalog, because no later record says so.
#[test]
fn damage_to_the_last_record_is_detected_after_a_clean_close() {
    let env = SimEnv::new(8);
    let db = open(&env);
    let table = create(&db, "t");
    table.put("k", "precious").unwrap();
    let end = core(&db).log.end().0;
    db.close().unwrap();
    let (name, _) = env.files().into_iter().find(|(name, _)| name.starts_with("db/log/")).unwrap();
    // The offset is inside the value.
    env.damage(&name, &Damage::FlipBit { offset: end - 10, bit: 1 }).unwrap();
    let env = env.crash(Policy::AllLost);
    assert!(try_open(&env).is_err_and(|error| error.is_corruption()));
}

/// Of two writers with `if_absent`, exactly one writes.
fn first_writers(bug: Option<Bug>) {
    let env = SimEnv::new(9);
    let db = open(&env);
    let table = create(&db, "t");
    let start = Barrier::new(2);
    let writer = |name: &'static str| {
        let _planted = bug.map(plant);
        let mut wins = Vec::new();
        for number in 0..200_u32 {
            start.wait();
            let options = PutOptions::new().if_absent();
            wins.push(table.put_with(number.to_be_bytes(), name, options).unwrap());
        }
        wins
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| writer("one"));
        let other = writer("other");
        (one.join().unwrap(), other)
    });
    for (number, (one, other)) in (0_u32..).zip(one.into_iter().zip(other)) {
        assert!(one != other, "key {number}: {one} and {other}");
        let expected = if one { "one" } else { "other" };
        assert_eq!(table.get(number.to_be_bytes()).unwrap().unwrap(), expected);
    }
}

#[test]
fn one_of_two_conditional_writers_wins() {
    first_writers(None);
}

#[test]
fn a_full_disk_refuses_puts_and_not_reads_and_writes_resume() {
    let env = SimEnv::new(10);
    let db = open(&env);
    let table = create(&db, "t");
    table.put("k", "v").unwrap();
    env.inject(Fault::new(
        &[Call::Write, Call::Create, Call::Allocate],
        When::From(1),
        Effect::NoSpace,
    ));
    let mut refused = false;
    for number in 0..3000_u32 {
        match table.put((number % 50).to_be_bytes(), [1; 500]) {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) => {
                refused = true;
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused);
    assert_eq!(value(&table, "k").as_deref(), Some("v"));
    env.clear_faults();
    env.advance(Duration::from_secs(2));
    env.run_due();
    table.put("k", "again").unwrap();
    assert_eq!(db.stats().background_failure, None);
    assert!(db.check().unwrap().is_sound());
    let db = open(&env.kill());
    assert_eq!(value(&db.table("t").unwrap(), "k").as_deref(), Some("again"));
}

#[test]
fn a_failed_log_refuses_writes_and_not_reads() {
    let env = SimEnv::new(11);
    let db = open(&env);
    let table = create(&db, "t");
    table.put_with("k", "v", PutOptions::new().durability(Durability::Sync)).unwrap();
    env.inject(Fault::new(&[Call::Sync], When::Nth(1), Effect::Io));
    let sync = PutOptions::new().durability(Durability::Sync);
    assert_eq!(db.write_failure(), None);
    assert!(table.put_with("lost", "v", sync).is_err());
    assert!(db.write_failure().is_some());
    for _ in 0..3 {
        assert!(matches!(table.put("k", "w"), Err(Error::LogFailed { .. })));
        let refused = db.create_table("u", TableOptions::new(EngineKind::Naive));
        assert!(matches!(refused, Err(Error::LogFailed { .. })));
    }
    assert_eq!(value(&table, "k").as_deref(), Some("v"));
    assert!(db.close().is_err());
    env.clear_faults();
    let db = open(&env);
    assert_eq!(value(&db.table("t").unwrap(), "k").as_deref(), Some("v"));
}

/// Creating a table fails at each of its I/Os in turn. Nothing remains of it, and the next attempt
/// succeeds.
#[test]
fn a_creation_that_fails_at_any_io_can_be_tried_again() {
    for number in 1..40 {
        let env = SimEnv::new(12);
        let db = open(&env);
        create(&db, "first").put("k", "v").unwrap();
        let calls = [Call::Write, Call::CreateDir, Call::SyncDir];
        env.inject(Fault::new(&calls, When::Nth(number), Effect::Io));
        let outcome = db.create_table("t", TableOptions::new(EngineKind::Naive));
        let fired = env.faults_fired() > 0;
        env.clear_faults();
        let table = match outcome {
            Ok(table) => table,
            Err(_) => create(&db, "t"),
        };
        table.put("k", "v").unwrap();
        env.run_due();
        db.persist().unwrap();
        let db = open(&env.crash(Policy::AllLost));
        assert_eq!(value(&db.table("t").unwrap(), "k").as_deref(), Some("v"), "call {number}");
        assert_eq!(db.tables().len(), 2);
        if !fired {
            return;
        }
    }
    panic!("a creation makes more calls than this test knows");
}

/// The directory of a table without a checkpoint may be lost with the power.
fn a_power_loss_after_a_creation(with_checkpoint: bool) {
    let env = SimEnv::new(31);
    // All tables stay open.
    let options = Options::new().memory_budget(64 << 20).segment_bytes(64 << 10);
    let open = |env: &SimEnv| options.open_in(Arc::new(env.clone()), "db").unwrap();
    let db = open(&env);
    // A table without a handle may be closed, and has a checkpoint then.
    let create = |kind: EngineKind| {
        let table = db.create_table(kind.name(), TableOptions::new(kind)).unwrap();
        table.put("k", kind.name()).unwrap();
        table
    };
    let _handles = EngineKind::ALL.map(create);
    core(&db).log.sync().unwrap();
    if with_checkpoint {
        db.persist().unwrap();
    }
    let crashed = env.crash(Policy::AllLost);
    let has_files = crashed.files().iter().any(|(name, _)| name.starts_with("db/tables/"));
    assert_eq!(has_files, with_checkpoint);
    for read_only in [true, false] {
        let options = options.clone().read_only(read_only);
        let db = options.open_in(Arc::new(crashed.clone()), "db").unwrap();
        for kind in EngineKind::ALL {
            let table = db.table(kind.name()).unwrap();
            assert_eq!(value(&table, "k").as_deref(), Some(kind.name()));
        }
        db.close().unwrap();
    }
    // What was created by the open is used as before.
    let db = open(&crashed);
    for kind in EngineKind::ALL {
        db.table(kind.name()).unwrap().put("again", "v").unwrap();
    }
    db.persist().unwrap();
    let db = open(&crashed.crash(Policy::AllLost));
    for kind in EngineKind::ALL {
        let table = db.table(kind.name()).unwrap();
        assert_eq!(value(&table, "k").as_deref(), Some(kind.name()));
        assert_eq!(value(&table, "again").as_deref(), Some("v"));
    }
}

#[test]
fn a_power_loss_after_a_creation_loses_nothing_that_is_durable() {
    a_power_loss_after_a_creation(false);
    a_power_loss_after_a_creation(true);
    finds(Bug::TableDirectoryUnsynced, || a_power_loss_after_a_creation(true));
}

#[test]
fn handles_and_errors_cross_threads() {
    fn check_send<T: Send>() {}
    fn check<T: Send + Sync>() {}
    check::<Database>();
    check::<Table>();
    check::<Batch>();
    check::<super::Value>();
    check::<Options>();
    check::<Error>();
    check_send::<super::Entries>();
}

/// The memory job orders the entries of memtables while a table is written.
#[test]
fn the_memory_job_orders_written_entries() {
    for kind in [EngineKind::Slm, EngineKind::Tph] {
        let env = SimEnv::new(7);
        let db = open(&env);
        let table = db.create_table("t", TableOptions::new(kind)).unwrap();
        env.run_due();
        for number in 0..300_u32 {
            table.put(number.to_be_bytes(), "v").unwrap();
        }
        assert!(env.due_jobs().contains(&"memory"), "{:?}", env.due_jobs());
        while env.due_jobs().contains(&"memory") {
            env.run_job("memory");
        }
        let details = table.stats().unwrap().details;
        let unordered = details.iter().find(|(name, _)| *name == "unordered_entries").unwrap().1;
        assert_eq!(unordered, 0);
    }
}

#[test]
fn a_dropped_table_releases_its_files_and_its_memory() {
    let env = SimEnv::new(13);
    let db = open(&env);
    let before = db.stats().memory_bytes;
    let table = create(&db, "t");
    table.put("k", [1; 10_000]).unwrap();
    table.persist().unwrap();
    assert!(db.stats().memory_bytes > before + 10_000);
    db.drop_table("t").unwrap();
    drop(table);
    core(&db).host.jobs.wake(JobKind::Persist);
    env.run_due();
    assert_eq!(db.stats().memory_bytes, before);
    let left = env.files().into_iter().filter(|(name, _)| name.starts_with("db/tables/"));
    assert_eq!(left.count(), 0);
    let dir = env.open_dir("db/tables".as_ref(), false).unwrap();
    assert_eq!(dir.list().unwrap(), []);
}

/// Two threads never hold one stripe at the same time.
fn exclusion(bug: Option<Bug>) {
    let (stripes, inside) = (Stripes::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            scope.spawn(|| {
                let _planted = bug.map(plant);
                for _ in 0..200 {
                    let _held = stripes.hold(stripes.index(1, 42));
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    // Gives the other thread time to enter, if the stripe is not locked.
                    (0..1000).for_each(|_| std::thread::yield_now());
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_stripe_has_one_holder() {
    exclusion(None);
}

/// Each planted bug makes a test above fail.
mod seeded_bugs {
    use super::*;

    macro_rules! found {
        ($($name:ident: $bug:ident by $test:ident;)+) => {
            $(#[test]
            fn $name() {
                finds(Bug::$bug, $test);
            })+
        };
    }

    found! {
        catalog_forgets_watermark: CatalogForgetsWatermark by
            damage_to_the_last_record_is_detected_after_a_clean_close;
        catalog_records_complete_early: CatalogRecordsCompleteEarly by
            a_power_loss_during_a_checkpoint_loses_nothing;
        prunes_before_catalog: PrunesBeforeCatalog by
            a_power_loss_during_a_checkpoint_loses_nothing;
        batch_logs_first_only: BatchLogsFirstOnly by
            puts_deletes_and_batches_survive_a_kill;
        batch_splits: BatchSplits by a_batch_is_all_or_nothing_after_a_power_loss;
        replay_skips_deletes: ReplaySkipsDeletes by
            puts_deletes_and_batches_survive_a_kill;
        replay_ignores_complete: ReplayIgnoresComplete by
            each_table_is_replayed_from_its_own_persisted_lsn;
        replay_forgets_expiry: ReplayForgetsExpiry by an_expiry_is_replayed;
        batch_forgets_expiry_index: BatchForgetsExpiryIndex by
            values_that_expire_are_swept_after_a_kill;
        replay_forgets_expiry_index: ReplayForgetsExpiryIndex by
            values_that_expire_are_swept_after_a_kill;
        sweep_does_not_look_again: SweepDoesNotLookAgain by
            the_sweep_keeps_a_value_that_was_written_meanwhile;
    }

    #[test]
    fn stripes_not_locked() {
        let test = || exclusion(Some(Bug::StripesNotLocked));
        assert!(std::panic::catch_unwind(test).is_err(), "not found");
    }

    #[test]
    fn condition_outside_stripe() {
        let test = || first_writers(Some(Bug::ConditionOutsideStripe));
        assert!(std::panic::catch_unwind(test).is_err(), "not found");
    }
}

/// More tables than stay open: a write to each closes others. The handles are dropped at once.
fn written_tables(env: &SimEnv, db: &Database, rounds: u32) {
    const TABLES: u32 = 12;
    for number in 0..TABLES * rounds {
        let name = format!("t{}", number % TABLES);
        let table = db.open_or_create_table(&name, TableOptions::new(EngineKind::Naive)).unwrap();
        assert_eq!(value(&table, "k"), number.checked_sub(TABLES).map(|last| last.to_string()));
        table.put("k", number.to_string()).unwrap();
        assert!(core(db).tables.open_count() <= 5, "{}", core(db).tables.open_count());
    }
    let db = open(&env.kill());
    assert!(core(&db).tables.open_count() <= 5, "{}", core(&db).tables.open_count());
    for number in 0..TABLES {
        let table = db.table(&format!("t{number}")).unwrap();
        let last = (TABLES * (rounds - 1) + number).to_string();
        assert_eq!(value(&table, "k"), Some(last), "t{number}");
    }
}

#[test]
fn closed_tables_lose_nothing() {
    let env = SimEnv::new(11);
    written_tables(&env, &open(&env), 3);
}

/// Opening a database opens the tables that the log has records for, and no others.
#[test]
fn an_open_opens_only_what_it_replays() {
    let env = SimEnv::new(12);
    let db = open(&env);
    let tables: Vec<_> = (0..3).map(|number| create(&db, &format!("t{number}"))).collect();
    for table in &tables {
        table.put("k", "1").unwrap();
    }
    db.persist().unwrap();
    tables[1].put("k", "2").unwrap();
    let db = open(&env.kill());
    assert_eq!(core(&db).tables.open_count(), 1);
    assert!(core(&db).tables.find(tables[1].state.id).is_some());
    assert_eq!(value(&db.table("t1").unwrap(), "k").as_deref(), Some("2"));
    assert_eq!(value(&db.table("t0").unwrap(), "k").as_deref(), Some("1"));
    assert_eq!(core(&db).tables.open_count(), 2);
}

/// A value that expires in a table that replay does not open is swept.
#[test]
fn expiry_entries_of_closed_tables_are_replayed() {
    let env = SimEnv::new(13);
    let db = open(&env);
    let (a, b) = (create(&db, "a"), create(&db, "b"));
    b.put("k", "1").unwrap();
    a.put_with("k", "1", ttl(1000)).unwrap();
    // The table's files have the value; the index's files lack its entry.
    checkpoint(&db, std::slice::from_ref(&a.state));
    let db = open(&env.kill());
    assert!(core(&db).tables.find(a.state.id).is_none());
    assert_eq!(pending(&db), 1);
}

/// Memory that tables without a handle hold is given to a write that lacks it.
#[test]
fn a_write_without_memory_closes_unused_tables() {
    let env = SimEnv::new(14);
    let db = open(&env);
    // Three tables stay open within the bound on their number, and hold most of the budget.
    for number in 0..3 {
        let table = create(&db, &format!("t{number}"));
        for key in 0..100_u32 {
            table.put(key.to_be_bytes(), [1; 10_000]).unwrap();
        }
    }
    let last = create(&db, "last");
    for key in 0..200_u32 {
        last.put(key.to_be_bytes(), [2; 10_000]).unwrap();
    }
    assert!(db.stats().memory_bytes <= db.stats().memory_budget_bytes);
    let mut batch = db.batch();
    let first = db.table("t0").unwrap();
    assert_eq!(first.get(7_u32.to_be_bytes()).unwrap().unwrap(), [1; 10_000]);
    drop(first);
    for key in 200..290_u32 {
        batch.put(&last, key.to_be_bytes(), [2; 10_000]);
    }
    batch.commit().unwrap();
    assert_eq!(last.stats().unwrap().keys, 290);
}

#[test]
fn the_planted_bugs_of_closed_tables_are_found() {
    finds(Bug::ClosesUnsavedTables, closed_tables_lose_nothing);
    finds(Bug::ReplayOpensNothing, an_open_opens_only_what_it_replays);
}
