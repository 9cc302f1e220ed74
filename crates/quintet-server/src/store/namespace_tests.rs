//! Namespaces of a store: which tables are open, and removals that a crash has cut.

use std::path::Path;

use quintet::{Durability, Options};

use super::{Changes, DatabaseId, Databases, Engines, NAMESPACES_MAX, Store, Stripes, Unit};
use crate::sweeper::Sweeper;

const KEY: &[u8] = b"key";

fn open(dir: &Path) -> Store {
    let options = Options::new().durability(Durability::Buffered).memory_budget(64 << 20);
    let databases = Databases::open(options.open(dir).unwrap(), Engines::default()).unwrap();
    Store { databases, stripes: Stripes::new(), changes: Changes::default() }
}

fn put(store: &Store, database: DatabaseId) {
    let mut unit = Unit::new(store, 1_000_000);
    unit.lock_one(database, KEY);
    unit.set_string(database, KEY, b"value".to_vec(), None).unwrap();
    unit.commit(Durability::Buffered).unwrap();
}

fn has(store: &Store, database: DatabaseId) -> bool {
    Unit::new(store, 1_000_000).exists(database, KEY).unwrap()
}

fn id(store: &Store, name: &str) -> u32 {
    store.databases.enter(name).unwrap().unwrap().id()
}

#[test]
fn tables_open_when_a_namespace_is_entered_and_close_when_it_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..20 {
        let name = format!("n{number}");
        store.databases.add_namespace(&name).unwrap();
        put(&store, DatabaseId::of(id(&store, &name), 2));
    }
    drop(store);
    let store = open(dir.path());
    let open_tables = || store.databases.database().stats_of_open_tables(0).open_tables;
    assert_eq!(store.databases.loaded_namespaces(), [0]);
    let at_start = open_tables();
    let entered = store.databases.enter("n7").unwrap().unwrap();
    let database = DatabaseId::of(entered.id(), 2);
    assert!(has(&store, database));
    assert_eq!(store.databases.loaded_namespaces(), [0, entered.id()]);
    assert!(open_tables() <= at_start + 2);
    // Tables stay open while a connection is in there, however long that is.
    for _ in 0..1000 {
        Sweeper::step(&store, Some(1_000_000)).unwrap();
    }
    assert!(store.databases.get(database).is_some());
    drop(entered);
    for _ in 0..1000 {
        Sweeper::step(&store, Some(1_000_000)).unwrap();
    }
    assert_eq!(store.databases.loaded_namespaces(), [0]);
    assert!(store.databases.get(database).is_none());
    assert_eq!(id(&store, "n7"), database.namespace());
    assert!(has(&store, database));
}

#[test]
fn a_start_ends_the_removal_of_a_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.databases.add_namespace("one").unwrap();
    let one = id(&store, "one");
    put(&store, DatabaseId::of(one, 0));
    let directory = format!("redis/namespaces/{one}");
    let tables = store.databases.database().tables_in(&directory).unwrap();
    assert_eq!(tables.len(), 2);
    // The process ends between the commit of the removal and the drop of the tables.
    let mut batch = store.databases.database().batch();
    batch.delete(store.databases.meta(), "namespace/one");
    batch.put(store.databases.meta(), format!("dropped/{one}"), "");
    batch.commit().unwrap();
    drop((batch, tables, store));
    let store = open(dir.path());
    assert_eq!(store.databases.namespace_names(), ["default"]);
    assert!(store.databases.database().tables_in(&directory).is_err());
    assert!(store.databases.meta().get(format!("dropped/{one}")).unwrap().is_none());
    // Ids are used once.
    store.databases.add_namespace("one").unwrap();
    assert!(id(&store, "one") > one);
    assert!(!has(&store, DatabaseId::of(id(&store, "one"), 0)));
}

#[test]
fn a_unit_that_meets_a_removed_namespace_fails() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.databases.add_namespace("one").unwrap();
    let database = DatabaseId::of(id(&store, "one"), 0);
    put(&store, database);
    let mut unit = Unit::new(&store, 1_000_000);
    unit.lock_all();
    assert!(unit.exists(database, KEY).unwrap());
    unit.discard();
    unit.lock_all();
    assert_eq!(store.databases.remove_namespace("one").unwrap(), Some(database.namespace()));
    assert_eq!(store.databases.remove_namespace("one").unwrap(), None);
    assert!(!unit.exists(database, KEY).unwrap());
    unit.set_string(database, KEY, b"lost".to_vec(), None).unwrap();
    let failure = unit.commit(Durability::Buffered).unwrap_err().text();
    assert!(failure.starts_with("NONAMESPACE"), "{failure}");
}

#[test]
fn a_unit_commits_keys_of_several_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut databases = vec![DatabaseId::FIRST];
    for name in ["one", "two"] {
        store.databases.add_namespace(name).unwrap();
        databases.push(DatabaseId::of(id(&store, name), 0));
    }
    let mut unit = Unit::new(&store, 1_000_000);
    unit.lock_all();
    for round in 0..3 {
        for database in &databases {
            let value = format!("{round}{database:?}").into_bytes();
            unit.set_string(*database, KEY, value, None).unwrap();
        }
    }
    unit.flush(databases[1]).unwrap();
    unit.set_string(databases[1], b"other", b"1".to_vec(), None).unwrap();
    unit.commit(Durability::Buffered).unwrap();
    drop(unit);
    assert_eq!(
        databases.iter().map(|own| has(&store, *own)).collect::<Vec<_>>(),
        [true, false, true]
    );
    let counts =
        databases.iter().map(|own| store.databases.key_count(own.namespace())).collect::<Vec<_>>();
    assert_eq!(counts, [1, 1, 1]);
}

#[test]
fn there_is_a_limit_of_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..NAMESPACES_MAX {
        store.databases.add_namespace(&number.to_string()).unwrap();
    }
    let failure = store.databases.add_namespace("more").unwrap_err().text();
    assert!(failure.contains("1000 namespaces"), "{failure}");
    store.databases.remove_namespace("7").unwrap();
    store.databases.add_namespace("more").unwrap();
    assert_eq!(store.databases.database().table_count(), 1);
}
