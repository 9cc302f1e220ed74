//! The public surface, end to end, on the simulated system.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use quintet::{
    Cursor, Database, Durability, EngineKind, Error, Options, PutOptions, TableOptions,
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
fn what_was_put_is_found_after_reopening() {
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
