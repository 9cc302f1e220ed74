//! Goal: an iterator is at the entry of a sorted map where the program has moved it to, whether the
//! entries come one by one or in blocks.

use std::collections::BTreeMap;

use quintet::{Database, EngineKind, TableOptions};

use super::*;
use crate::random::Random;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn key_of(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A table of about half of 3,000 keys. Some values are longer than a block.
fn fill(table: &Table) -> Rows {
    let mut random = Random(7);
    let mut rows = Rows::new();
    for number in (1..3000_u64).filter(|number| number * 7919 % 13 < 7) {
        let length = if random.below(400) == 0 { 300_000 } else { random.below(200) };
        let value = vec![number.to_le_bytes()[0]; usize::try_from(length).expect("short")];
        table.put(key_of(number), &value).expect("a put");
        rows.insert(key_of(number), value);
    }
    rows
}

/// Compares the place of the iterator with a key of the map.
fn expect(iterator: &StoreIterator, rows: &Rows, place: Option<&Vec<u8>>, doing: &str) {
    assert!(iterator.failure().is_none(), "{doing}: {:?}", iterator.failure());
    assert_eq!(iterator.is_valid(), place.is_some(), "{doing}");
    assert_eq!(iterator.key(), place.map(Vec::as_slice), "{doing}");
    assert!(iterator.value() == place.and_then(|key| rows.get(key)).map(Vec::as_slice), "{doing}");
}

fn after_key(rows: &Rows, key: &[u8]) -> Option<Vec<u8>> {
    rows.range(after(key)..).next().map(|(key, _)| key.clone())
}

fn before_key(rows: &Rows, key: &[u8]) -> Option<Vec<u8>> {
    rows.range(..key.to_vec()).next_back().map(|(key, _)| key.clone())
}

#[test]
fn it_moves_as_in_a_sorted_map() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::open(directory.path()).expect("a database");
    for kind in [EngineKind::BTree, EngineKind::Slm, EngineKind::Tph] {
        let table = database.create_table(kind.name(), TableOptions::new(kind)).expect("a table");
        let all = fill(&table);
        for seed in 1..40 {
            let mut random = Random(seed * 1_000_003);
            let (first, last) = (random.below(1500), 1500 + random.below(1500));
            let bounds = Bounds {
                lower: (seed % 3 == 0).then(|| key_of(first)),
                upper: (seed % 4 == 0).then(|| key_of(last)),
            };
            let is_inside = |key: &Vec<u8>| {
                bounds.lower.as_ref().is_none_or(|lower| key >= lower)
                    && bounds.upper.as_ref().is_none_or(|upper| key < upper)
            };
            let rows: Rows = all
                .iter()
                .filter(|(key, _)| is_inside(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let snapshot = || database.snapshot().expect("a snapshot");
            let source = Source::Snapshot(snapshot());
            let mut iterator = StoreIterator::new(table.clone(), source, bounds.clone(), None);
            let mut place: Option<Vec<u8>> = None;
            for step in 0..40 {
                let doing = format!("{kind}, seed {seed}, step {step}");
                let number = key_of(random.below(3100));
                match random.below(6) {
                    0 => {
                        iterator.seek(&number);
                        place = rows.range(number..).next().map(|(key, _)| key.clone());
                    }
                    1 => {
                        iterator.seek_for_prev(&number);
                        place = rows.range(..=number).next_back().map(|(key, _)| key.clone());
                    }
                    2 => {
                        iterator.seek_to_first();
                        place = rows.keys().next().cloned();
                    }
                    3 => {
                        iterator.move_to_snapshot(snapshot());
                    }
                    _ => {}
                }
                expect(&iterator, &rows, place.as_ref(), &doing);
                // Runs of steps, so that blocks begin and end, and turns within blocks.
                let (count, is_up) = (random.below(300), random.below(3) > 0);
                for _ in 0..count {
                    if is_up {
                        iterator.next();
                        place = place.and_then(|key| after_key(&rows, &key));
                    } else {
                        iterator.prev();
                        place = place.and_then(|key| before_key(&rows, &key));
                    }
                    expect(&iterator, &rows, place.as_ref(), &doing);
                }
            }
        }
    }
}

#[test]
fn blocks_show_the_moment_of_their_snapshot() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::open(directory.path()).expect("a database");
    let options = TableOptions::new(EngineKind::Slm);
    let table = database.create_table("t", options).expect("a table");
    let rows = fill(&table);
    let source = Source::Snapshot(database.snapshot().expect("a snapshot"));
    let mut iterator = StoreIterator::new(table.clone(), source, Bounds::default(), None);
    iterator.seek_to_first();
    for (number, (key, value)) in rows.iter().enumerate() {
        assert_eq!(iterator.key(), Some(key.as_slice()), "entry {number}");
        assert!(iterator.value() == Some(value.as_slice()), "entry {number}");
        // Entries ahead change, leave and come.
        let ahead = u64::try_from(number).expect("a number") + 100;
        table.put(key_of(ahead * 3), b"later").expect("a put");
        table.delete(key_of(ahead * 2)).expect("a delete");
        iterator.next();
    }
    assert!(!iterator.is_valid() && iterator.failure().is_none());
}

#[test]
fn a_prefix_bounds_the_stored_forms_of_its_keys() {
    let keys: [&[u8]; 9] =
        [&[], &[0], &[0, 0], &[0, 0, 0], &[0, 0, 1], &[0, 1], &[1], &[1, 0], &[2]];
    for prefix in keys {
        let mut bounds = Bounds::default();
        bounds.narrow_to_prefix(prefix);
        for key in keys {
            let stored = Some(keys::stored(key).into_owned());
            let is_above = stored >= bounds.lower;
            let is_below = bounds.upper.is_none() || stored < bounds.upper;
            assert_eq!(is_above && is_below, key.starts_with(prefix), "{key:?} in {prefix:?}");
        }
    }
}
