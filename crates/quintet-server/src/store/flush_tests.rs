//! Flushes and exchanges of databases as parts of commits, and crashes around them.

use std::path::Path;

use quintet::{Durability, Options};

use super::{Changes, DATABASES, DatabaseId, Databases, Engines, Kind, Store, Stripes, Unit};

const KEY: &[u8] = b"key";
const HASH: &[u8] = b"hash";

fn open(dir: &Path) -> Store {
    let options = Options::new().durability(Durability::Buffered).memory_budget(64 << 20);
    let databases = Databases::open(options.open(dir).unwrap(), Engines::default()).unwrap();
    Store { databases, stripes: Stripes::new(), changes: Changes::default() }
}

fn unit(store: &Store) -> Unit<'_> {
    let mut unit = Unit::new(store, 1_000_000);
    unit.lock_all();
    unit
}

/// Sets a key, and a hash that is too large for its head.
fn fill(unit: &mut Unit<'_>, database: DatabaseId, value: &str) {
    unit.set_string(database, KEY, value.as_bytes().to_vec(), None).unwrap();
    let mut hash = unit.open_or_create(database, HASH, Kind::Hash).unwrap();
    for number in 0..300 {
        hash.put(format!("{value}{number}").as_bytes(), b"1").unwrap();
    }
    hash.set_count(300);
}

fn value(store: &Store, database: DatabaseId) -> Option<String> {
    let mut unit = unit(store);
    let copy =
        |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
    unit.with_string(database, KEY, copy).unwrap()
}

fn commit(store: &Store, change: impl FnOnce(&mut Unit<'_>)) {
    let mut unit = unit(store);
    change(&mut unit);
    unit.commit(Durability::Buffered).unwrap();
}

/// Entries of the tables that no database has.
fn unused_entries(store: &Store) -> u64 {
    let database = store.databases.database();
    let count = |path: String| database.table(&path).map_or(0, |table| table.len().unwrap());
    let all: u64 = (0..2 * DATABASES)
        .map(|number| {
            count(format!("redis/{number}/keys")) + count(format!("redis/{number}/elements"))
        })
        .sum();
    let own = DatabaseId::all_of(0).filter_map(|own| store.databases.get(own));
    all - own.map(|own| own.keys.len().unwrap() + own.elements.len().unwrap()).sum::<u64>()
}

#[test]
fn a_flush_takes_effect_with_the_other_changes_of_its_unit() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    commit(&store, |unit| {
        fill(unit, DatabaseId::FIRST, "old");
        fill(unit, DatabaseId::of_default(1), "other");
    });
    // Many rounds use all numbers of tables.
    for round in 0..50 {
        let new = format!("new{round}");
        let before = value(&store, DatabaseId::FIRST);
        let mut running = unit(&store);
        running.set_string(DatabaseId::FIRST, b"early", b"1".to_vec(), None).unwrap();
        running.flush(DatabaseId::FIRST).unwrap();
        assert!(!running.exists(DatabaseId::FIRST, KEY).unwrap());
        assert!(!running.exists(DatabaseId::FIRST, b"early").unwrap());
        fill(&mut running, DatabaseId::FIRST, "twice");
        running.flush(DatabaseId::FIRST).unwrap();
        fill(&mut running, DatabaseId::FIRST, &new);
        // What others read without the unit is unchanged until the commit.
        let tables = store.databases.get(DatabaseId::FIRST).unwrap();
        assert!(tables.keys.contains(KEY).unwrap());
        drop(tables);
        if round % 3 == 0 {
            running.discard();
            assert!(running.exists(DatabaseId::FIRST, KEY).unwrap());
            drop(running);
            assert_eq!(value(&store, DatabaseId::FIRST), before);
        } else {
            assert!(running.commit(Durability::Buffered).unwrap() > 0);
            drop(running);
            assert_eq!(value(&store, DatabaseId::FIRST), Some(new));
            assert_eq!(unused_entries(&store), 0);
        }
        assert_eq!(value(&store, DatabaseId::of_default(1)), Some("other".to_owned()));
        if round % 10 == 0 {
            let before = value(&store, DatabaseId::FIRST);
            drop(store);
            store = open(dir.path());
            assert_eq!(value(&store, DatabaseId::FIRST), before);
            assert_eq!(store.databases.get(DatabaseId::FIRST).unwrap().keys.len().unwrap(), 2);
        }
    }
}

#[test]
fn a_crash_keeps_the_commit_of_a_flush_whole() {
    for is_committed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        commit(&store, |unit| {
            for database in DatabaseId::all_of(0) {
                fill(unit, database, "old");
            }
        });
        let held = unit(&store);
        let mut replacements = Vec::new();
        for database in DatabaseId::all_of(0) {
            let new = store.databases.replacement(database, &replacements).unwrap();
            replacements.push(new.unwrap());
        }
        if is_committed {
            // The process ends between the commit and the clear of the old tables.
            let mut batch = store.databases.database().batch();
            store.databases.put_replacements(&mut batch, &replacements);
            batch.put(&replacements[3].tables.keys, b"x", b"\0new");
            batch.commit_with(Durability::Buffered).unwrap();
        }
        drop((held, replacements));
        drop(store);
        let store = open(dir.path());
        for database in DatabaseId::all_of(0) {
            let expected = (!is_committed).then(|| "old".to_owned());
            assert_eq!(value(&store, database), expected, "{database:?}");
        }
        let mut reader = unit(&store);
        assert_eq!(reader.exists(DatabaseId::of_default(3), b"x").unwrap(), is_committed);
        drop(reader);
        assert_eq!(unused_entries(&store), 0);
        // The tables can be used again.
        commit(&store, |unit| {
            for database in DatabaseId::all_of(0) {
                unit.flush(database).unwrap();
                fill(unit, database, "new");
            }
        });
        for database in DatabaseId::all_of(0) {
            assert_eq!(value(&store, database), Some("new".to_owned()));
        }
    }
}

#[test]
fn an_exchange_takes_effect_with_the_other_changes_of_its_unit() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let [a, b, c] = [0, 1, 2].map(DatabaseId::of_default);
    commit(&store, |unit| {
        fill(unit, a, "a");
        fill(unit, b, "b");
    });
    // Many rounds use all numbers of tables. The third database has no tables in the first one.
    for round in 0..50 {
        let before = [a, b, c].map(|database| value(&store, database));
        let mut running = unit(&store);
        running.set_string(a, b"early", b"1".to_vec(), None).unwrap();
        running.swap(a, b).unwrap();
        assert!(running.exists(b, b"early").unwrap());
        assert!(!running.exists(a, b"early").unwrap());
        running.swap(b, c).unwrap();
        running.set_string(c, b"late", b"1".to_vec(), None).unwrap();
        running.remove(c, b"early").unwrap();
        running.flush(a).unwrap();
        fill(&mut running, a, &format!("new{round}"));
        // What others read without the unit is unchanged until the commit.
        if round > 0 {
            let tables = store.databases.get(c).unwrap();
            assert_eq!(tables.keys.contains(KEY).unwrap(), before[2].is_some());
        }
        if round % 3 == 1 {
            running.discard();
            drop(running);
            assert_eq!([a, b, c].map(|database| value(&store, database)), before);
            continue;
        }
        assert!(running.commit(Durability::Buffered).unwrap() > 0);
        drop(running);
        let after = [Some(format!("new{round}")), before[2].clone(), before[0].clone()];
        assert_eq!([a, b, c].map(|database| value(&store, database)), after);
        assert_eq!(unused_entries(&store), 0);
        if round % 10 == 0 {
            drop(store);
            store = open(dir.path());
            assert_eq!([a, b, c].map(|database| value(&store, database)), after);
            let counts = [a, b, c].map(|own| store.databases.get(own).unwrap().keys.len().unwrap());
            assert_eq!(counts, [2, u64::from(round > 0) * 3, 3]);
        }
    }
}

#[test]
fn a_crash_keeps_the_commit_of_an_exchange_whole() {
    for is_committed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let [a, b] = [3, 9].map(DatabaseId::of_default);
        commit(&store, |unit| {
            fill(unit, a, "a");
            fill(unit, b, "b");
        });
        let held = unit(&store);
        let new = store.databases.exchange(a, b, &[]).unwrap().unwrap();
        if is_committed {
            // The process ends between the commit and its effect on the memory.
            let mut batch = store.databases.database().batch();
            store.databases.put_replacements(&mut batch, &new);
            batch.put(&new[0].tables.keys, b"x", b"\0new");
            batch.commit_with(Durability::Buffered).unwrap();
        }
        drop((held, new));
        drop(store);
        let store = open(dir.path());
        let found = [a, b].map(|database| value(&store, database).unwrap());
        assert_eq!(found, if is_committed { ["b", "a"] } else { ["a", "b"] });
        assert_eq!(unit(&store).exists(a, b"x").unwrap(), is_committed);
        assert_eq!(unused_entries(&store), 0);
    }
}
