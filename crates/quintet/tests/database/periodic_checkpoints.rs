//! `Options::checkpoint_interval`, on the simulated clock.

use std::{sync::Arc, time::Duration};

use quintet::{
    Database, EngineKind, Options, TableOptions,
    testing::disk::sim::{Call, Effect, Fault, SimEnv, When},
};

const INTERVAL: Duration = Duration::from_secs(5);

fn open(env: &SimEnv, interval: Duration) -> Database {
    let options = Options::new().memory_budget(64 << 20).segment_bytes(64 << 10);
    options.checkpoint_interval(interval).open_in(Arc::new(env.clone()), "db").unwrap()
}

fn pass(env: &SimEnv, time: Duration) {
    env.advance(time);
    env.run_due();
}

/// One update of a table of each engine. No engine asks for a checkpoint for so little while the
/// table is written to.
fn update(db: &Database, number: u32) {
    for kind in EngineKind::ALL {
        let table = db.open_or_create_table(kind.name(), TableOptions::new(kind)).unwrap();
        table.put(number.to_be_bytes(), "value").unwrap();
    }
}

#[test]
fn every_interval_persists_all_tables() {
    let env = SimEnv::new(1);
    let db = open(&env, INTERVAL);
    for number in 0..20 {
        update(&db, number);
        // Before the engines see an idle table.
        pass(&env, Duration::from_millis(100));
        assert!(db.stats().unpersisted_bytes > 0, "{number}");
        pass(&env, INTERVAL);
        let stats = db.stats();
        assert_eq!(stats.unpersisted_bytes, 0, "{number}");
        for table in &stats.tables {
            // What was written before the round is in the files.
            assert!(table.persisted.0 > 0, "{number}: {table:?}");
        }
        assert_eq!(stats.background_failure, None);
    }
    drop(db);
    let db = open(&env, INTERVAL);
    for kind in EngineKind::ALL {
        assert_eq!(db.table(kind.name()).unwrap().stats().unwrap().keys, 20, "{kind}");
    }
}

#[test]
fn without_an_interval_few_updates_stay_in_the_log() {
    let env = SimEnv::new(2);
    let db = open(&env, Duration::ZERO);
    for kind in [EngineKind::Naive, EngineKind::BTree] {
        let table = db.create_table(kind.name(), TableOptions::new(kind)).unwrap();
        table.put("key", "value").unwrap();
    }
    pass(&env, 1000 * INTERVAL);
    assert!(db.stats().unpersisted_bytes > 0);
}

#[test]
fn an_interval_without_updates_writes_nothing() {
    let env = SimEnv::new(3);
    let db = open(&env, INTERVAL);
    update(&db, 1);
    for _ in 0..20 {
        pass(&env, INTERVAL);
    }
    let before = db.stats();
    for _ in 0..10 {
        pass(&env, INTERVAL);
    }
    let after = db.stats();
    assert_eq!(after.persist_rounds_total, before.persist_rounds_total);
    assert_eq!(after.catalog_bytes, before.catalog_bytes);
    assert_eq!(after.log.end, before.log.end);
    // The job sleeps meanwhile, and the next update is in time again.
    assert_eq!(env.due_jobs(), Vec::<&str>::new());
    update(&db, 2);
    pass(&env, INTERVAL);
    assert_eq!(db.stats().unpersisted_bytes, 0);
}

#[test]
fn a_failed_round_is_repeated() {
    let env = SimEnv::new(4);
    let db = open(&env, INTERVAL);
    let table = db.create_table("t", TableOptions::new(EngineKind::Naive)).unwrap();
    pass(&env, INTERVAL);
    table.put("key", "value").unwrap();
    env.inject(Fault::new(&[Call::Rename], When::From(1), Effect::Io).on("snapshot"));
    pass(&env, INTERVAL);
    assert!(db.stats().background_failure.is_some());
    assert!(db.stats().unpersisted_bytes > 0);
    env.clear_faults();
    pass(&env, INTERVAL);
    let stats = db.stats();
    assert_eq!((stats.unpersisted_bytes, stats.background_failure), (0, None));
}

#[test]
fn the_time_of_rounds_is_counted() {
    let env = SimEnv::new(5);
    let db = open(&env, Duration::ZERO);
    update(&db, 1);
    let before = db.stats();
    // Only calls that are delayed take time on the simulated clock.
    let delay = Effect::Delay(Duration::from_millis(10));
    env.inject(Fault::new(&[Call::Sync], When::From(1), delay).on("tables/"));
    db.persist().unwrap();
    env.clear_faults();
    let after = db.stats();
    assert_eq!(after.persist_rounds_total, before.persist_rounds_total + 1);
    // At least one sync of each table.
    let micros = after.persist_micros_total - before.persist_micros_total;
    assert!(micros >= 60_000, "{micros}");
    let detail = |table: &str, name: &str| {
        let stats = db.table(table).unwrap().stats().unwrap();
        stats.details.iter().find(|(one, _)| *one == name).unwrap().1
    };
    assert_eq!(detail("naive", "snapshots_total"), 1);
    assert!(detail("naive", "snapshot_micros_total") >= 10_000);
    assert_eq!(detail("hashlog", "checkpoints_total"), 1);
    // The data file and the manifest.
    assert!(detail("hashlog", "checkpoint_micros_total") >= 20_000);
    assert_eq!(detail("hashlog", "chunks_created_total"), 1);
}
