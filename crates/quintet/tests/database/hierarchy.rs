//! Directories of tables: children, default options, mounts.

use std::sync::Arc;

use quintet::{
    ChildKind, Database, EngineKind, Error, MountOptions, Options, TableOptions,
    testing::disk::sim::{Policy, SimEnv},
};

fn open(env: &SimEnv, path: &str) -> Database {
    options().open_in(Arc::new(env.clone()), path).unwrap()
}

fn options() -> Options {
    Options::new().memory_budget(64 << 20).segment_bytes(64 << 10)
}

fn naive() -> TableOptions {
    TableOptions::new(EngineKind::Naive)
}

fn children(db: &Database, path: &str) -> Vec<(String, ChildKind)> {
    db.children(path).unwrap().into_iter().map(|child| (child.name, child.kind)).collect()
}

fn names(db: &Database, path: &str) -> Vec<String> {
    db.walk(path).unwrap().into_iter().map(|table| table.name).collect()
}

fn mount_error<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Mount { .. }), "{error}");
    error.to_string()
}

/// Opens a database `a` that mounts the directory `eu` of the database `b` at `far`.
fn mounted(env: &SimEnv) -> (Database, Database) {
    let b = open(env, "b");
    b.create_table("eu/users", naive()).unwrap().put("k", "theirs").unwrap();
    b.create_table("other", naive()).unwrap();
    b.close().unwrap();
    let a = open(env, "a");
    a.create_table("near", naive()).unwrap();
    a.mount("far", MountOptions::new("b").subtree("eu")).unwrap();
    (a, b)
}

#[test]
fn children_are_listed_by_name_and_kind() {
    let env = SimEnv::new(1);
    let db = open(&env, "a");
    for name in ["app/eu/users", "app/us", "log"] {
        db.create_table(name, naive()).unwrap();
    }
    let table = ChildKind::Table(EngineKind::Naive);
    let directory = ChildKind::Directory;
    assert_eq!(children(&db, ""), [("app".to_owned(), directory), ("log".to_owned(), table)]);
    assert_eq!(children(&db, "app"), [("eu".to_owned(), directory), ("us".to_owned(), table)]);
    assert!(matches!(db.children("log"), Err(Error::NoSuchTable { .. })));
    assert!(matches!(db.children("nowhere"), Err(Error::NoSuchTable { .. })));
    assert_eq!(names(&db, "app"), ["app/eu/users", "app/us"]);
    assert_eq!(names(&db, ""), ["app/eu/users", "app/us", "log"]);
}

#[test]
fn default_options_are_checked_when_they_are_set() {
    let env = SimEnv::new(1);
    let db = open(&env, "a");
    for (kind, name, value) in [
        (EngineKind::Naive, "colour", "red"),
        (EngineKind::Naive, "snapshot_bytes", "1"),
        (EngineKind::HashLog, "compression", "zstd"),
    ] {
        let options = TableOptions::new(kind).set(name, value);
        let refused = db.set_default_options("app", Some(&options)).unwrap_err();
        assert!(matches!(&refused, Error::InvalidOption { name: n, .. } if n == name), "{refused}");
        assert!(refused.to_string().contains(kind.name()), "{refused}");
        assert_eq!(db.default_options("app").unwrap(), None);
        assert_eq!(children(&db, ""), []);
    }
}

#[test]
fn tables_inherit_the_default_options_of_their_directory() {
    let env = SimEnv::new(2);
    let db = open(&env, "a");
    let refused = db.create_default_table("app/x").unwrap_err();
    assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
    db.set_default_options("", Some(&naive())).unwrap();
    let hashlog = TableOptions::new(EngineKind::HashLog);
    db.set_default_options("app/eu", Some(&hashlog)).unwrap();
    assert_eq!(children(&db, "app"), [("eu".to_owned(), ChildKind::Directory)]);
    assert_eq!(db.create_default_table("app/eu/deep/t").unwrap().kind(), EngineKind::HashLog);
    assert_eq!(db.create_default_table("app/t").unwrap().kind(), EngineKind::Naive);
    assert!(matches!(
        db.set_default_options("app/t", Some(&naive())),
        Err(Error::TableExists { .. })
    ));
    db.drop_tree("app/eu/deep").unwrap();
    db.persist().unwrap();
    let db = open(&env.crash(Policy::AllLost), "a");
    assert_eq!(db.default_options("app/eu/x").unwrap(), Some(hashlog));
    assert_eq!(db.default_options("app/x").unwrap(), Some(naive()));
    db.set_default_options("app/eu", None).unwrap();
    assert!(matches!(db.children("app/eu"), Err(Error::NoSuchTable { .. })));
    assert_eq!(db.default_options("app/eu/x").unwrap(), Some(naive()));
    assert!(db.set_default_options("nowhere", None).is_err());
    assert!(db.check().unwrap().is_sound());
}

#[test]
fn a_mount_shows_a_directory_of_another_database() {
    let env = SimEnv::new(3);
    let (a, _) = mounted(&env);
    let users = a.table("far/users").unwrap();
    assert_eq!(users.get("k").unwrap().unwrap(), "theirs");
    users.put("k", "ours").unwrap();
    a.create_table("far/new/t", naive()).unwrap();
    assert_eq!(names(&a, ""), ["far/new/t", "far/users", "near"]);
    assert_eq!(names(&a, "far/new"), ["far/new/t"]);
    assert_eq!(children(&a, "")[0], ("far".to_owned(), ChildKind::Mount));
    assert_eq!(children(&a, "far").len(), 2);
    a.rename("far/new/t", "far/t").unwrap();
    a.drop_table("far/t").unwrap();
    a.rename("far", "archive/b").unwrap();
    assert_eq!(a.mounts()[0].name, "archive/b");
    assert_eq!(a.table("archive/b/users").unwrap().get("k").unwrap().unwrap(), "ours");
    a.close().unwrap();
    assert!(matches!(users.get("k"), Err(Error::Closed)));
    let b = open(&env, "b");
    assert_eq!(b.table("eu/users").unwrap().get("k").unwrap().unwrap(), "ours");
    assert_eq!(names(&b, ""), ["eu/users", "other"]);
}

#[test]
fn batches_and_renames_do_not_cross_a_mount() {
    let env = SimEnv::new(4);
    let (a, _) = mounted(&env);
    let (near, far) = (a.table("near").unwrap(), a.table("far/users").unwrap());
    let mut batch = a.batch();
    batch.put(&near, "k", "v").put(&far, "k", "v");
    let error = batch.commit().unwrap_err();
    assert!(matches!(error, Error::OtherDatabase { .. }), "{error}");
    assert!(!near.contains("k").unwrap());
    assert_eq!(far.get("k").unwrap().unwrap(), "theirs");
    let mut batch = a.mounted("far").unwrap().batch();
    batch.put(&far, "k", "v").commit().unwrap();
    assert_eq!(far.get("k").unwrap().unwrap(), "v");
    mount_error(a.rename("near", "far/near"));
    mount_error(a.rename("far/users", "users"));
    mount_error(a.drop_table("far"));
    mount_error(a.drop_tree("far"));
    mount_error(a.mount("far/deeper", MountOptions::new("b")));
    assert_eq!(names(&a, ""), ["far/users", "near"]);
}

#[test]
fn a_read_only_mount_takes_no_writes() {
    let env = SimEnv::new(5);
    let (a, _) = mounted(&env);
    a.unmount("far").unwrap();
    a.mount("ro", MountOptions::new("b").read_only(true)).unwrap();
    let users = a.table("ro/eu/users").unwrap();
    assert_eq!(users.get("k").unwrap().unwrap(), "theirs");
    assert!(matches!(users.put("k", "v"), Err(Error::ReadOnly)));
    assert!(matches!(a.create_table("ro/t", naive()), Err(Error::ReadOnly)));
    a.mount("rw", MountOptions::new("b")).unwrap();
    assert!(mount_error(a.table("rw/other")).contains("open for reading only"));
    a.unmount("ro").unwrap();
    drop(users);
    a.table("rw/other").unwrap().put("k", "v").unwrap();
}

#[test]
fn a_missing_mount_target_fails_at_use_and_not_at_open() {
    let env = SimEnv::new(6);
    let (a, _) = mounted(&env);
    a.close().unwrap();
    // Another handle has it open.
    let b = open(&env, "b");
    let a = open(&env, "a");
    a.table("near").unwrap().put("k", "v").unwrap();
    assert!(mount_error(a.table("far/users")).contains("open in another process"));
    assert!(a.check().unwrap().is_sound());
    b.close().unwrap();
    a.table("far/users").unwrap();
    assert!(mount_error(a.mount("gone", MountOptions::new("nowhere"))).contains("nowhere"));
    assert!(matches!(a.unmount("near"), Err(Error::NoSuchTable { .. })));
    assert!(matches!(a.unmount("far/users"), Err(Error::NoSuchTable { .. })));
}

#[test]
fn mount_cycles_are_refused() {
    let env = SimEnv::new(7);
    let (a, _) = mounted(&env);
    assert!(mount_error(a.mount("self", MountOptions::new("a"))).contains("back to this"));
    a.close().unwrap();
    let b = open(&env, "b");
    assert!(mount_error(b.mount("back", MountOptions::new("a"))).contains("back to this"));
    let c = open(&env, "c");
    c.mount("a", MountOptions::new("a")).unwrap();
    c.close().unwrap();
    assert!(mount_error(b.mount("c", MountOptions::new("c"))).contains("back to this"));
    b.close().unwrap();
    // Through the chain c -> a -> b. Each database is opened once.
    let c = open(&env, "c");
    c.mount("b", MountOptions::new("b")).unwrap();
    c.table("a/far/users").unwrap().put("k", "v").unwrap();
    assert_eq!(c.table("b/eu/users").unwrap().get("k").unwrap().unwrap(), "v");
    assert_eq!(names(&c, ""), ["a/far/users", "a/near", "b/eu/users", "b/other"]);
}

#[test]
fn a_mount_survives_a_crash_and_goes_with_its_directory() {
    let env = SimEnv::new(8);
    let (a, _) = mounted(&env);
    a.rename("far", "x/far").unwrap();
    let crashed = env.crash(Policy::AllLost);
    let a = open(&crashed, "a");
    assert_eq!(a.table("x/far/users").unwrap().get("k").unwrap().unwrap(), "theirs");
    a.drop_tree("x").unwrap();
    assert!(a.mounts().is_empty());
    a.close().unwrap();
    assert_eq!(names(&open(&crashed, "b"), ""), ["eu/users", "other"]);
}

/// A mounted database has its own expiry index and its own sweep. One that is mounted for reading
/// hides expired values and removes none.
#[test]
fn a_mounted_database_sweeps_its_own_expired_values() {
    let env = SimEnv::new(9);
    let (a, _) = mounted(&env);
    let users = a.table("far/users").unwrap();
    let ttl = |millis| quintet::PutOptions::new().ttl(std::time::Duration::from_millis(millis));
    users.put_with("soon", "v", ttl(100)).unwrap();
    users.put_with("later", "v", ttl(10_000)).unwrap();
    assert_eq!(a.stats().expiries_pending, 0);
    let b = a.mounted("far").unwrap();
    assert_eq!(b.stats().expiries_pending, 2);
    for _ in 0..3 {
        env.advance(std::time::Duration::from_millis(100));
        env.run_due();
    }
    assert_eq!((b.stats().expiries_pending, users.stats().unwrap().keys), (1, 2));
    drop((users, b));
    a.unmount("far").unwrap();
    a.mount("ro", MountOptions::new("b").read_only(true)).unwrap();
    let users = a.table("ro/eu/users").unwrap();
    assert_eq!(users.get("later").unwrap().unwrap(), "v");
    env.advance(std::time::Duration::from_secs(10));
    env.run_due();
    assert!(users.get("later").unwrap().is_none());
    assert_eq!(users.stats().unwrap().keys, 2);
}
