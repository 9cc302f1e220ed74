//! Reads and changes of whole tables against a model, on every engine: iterators, first and last,
//! length, cursors, extend, clear.

use std::{collections::BTreeMap, sync::Arc};

use quintet::{
    Database, EngineKind, Error, Options, ReadableTable, Table, TableCursor, TableOptions,
    testing::disk::sim::SimEnv,
};

use crate::random::mix;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(64 << 20).segment_bytes(256 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn each_engine(test: impl Fn(&Database, &Table)) {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        let db = open(&SimEnv::new(seed));
        let table = db.create_table("t", TableOptions::new(*kind)).unwrap();
        test(&db, &table);
        assert!(db.check().unwrap().is_sound(), "{kind}");
    }
}

fn each_ordered_engine(test: impl Fn(&Database, &Table)) {
    each_engine(|db, table| {
        if table.kind().is_ordered() {
            test(db, table);
        }
    });
}

/// Fills a table with random keys and values, some of them deleted again, some in files.
fn fill(db: &Database, table: &Table, count: u64) -> Model {
    let entry = |number: u64| {
        let key = (mix(number) % (count * 2)).to_be_bytes().to_vec();
        let length = usize::try_from(mix(number * 3) % 300).unwrap();
        (key, vec![u8::try_from(number % 251).unwrap(); length])
    };
    let mut model: Model = (0..count).map(entry).collect();
    let written = table.extend((0..count).map(entry)).unwrap();
    assert_eq!(written, count);
    db.persist().unwrap();
    for number in (0..count).step_by(5) {
        let (key, _) = entry(number);
        model.remove(&key);
        table.delete(&key).unwrap();
    }
    model
}

/// What code sees that is generic over its source.
fn contents(table: &impl ReadableTable) -> Model {
    let contents: Model = table
        .iter()
        .map(|entry| entry.map(|(key, value)| (key, value.to_vec())))
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(table.len().unwrap(), u64::try_from(contents.len()).unwrap());
    assert_eq!(table.keys().count(), contents.len());
    let total: usize = table.values().map(|value| value.unwrap().len()).sum();
    assert_eq!(total, contents.values().map(Vec::len).sum::<usize>());
    assert_eq!(table.is_empty().unwrap(), contents.is_empty());
    for (key, value) in contents.iter().take(10) {
        assert_eq!(table.get(key).unwrap().unwrap(), value);
        assert!(table.contains(key).unwrap());
    }
    contents
}

#[test]
fn iterators_and_len_agree_with_a_model() {
    each_engine(|db, table| {
        assert_eq!(contents(table), Model::new());
        let model = fill(db, table, 2000);
        assert_eq!(contents(table), model);
        let mut by_loop = Model::new();
        for entry in table {
            let (key, value) = entry.unwrap();
            assert!(by_loop.insert(key, value.into()).is_none());
        }
        assert_eq!(by_loop, model);
        table.clear().unwrap();
        assert_eq!(contents(table), Model::new());
        // The table is as usable as before.
        assert_eq!(table.extend([("a", "1"), ("b", "2")]).unwrap(), 2);
        assert_eq!(table.len().unwrap(), 2);
    });
}

#[test]
fn ordered_reads_agree_with_a_model_or_fail() {
    each_engine(|db, table| {
        let model = fill(db, table, 2000);
        if !table.kind().is_ordered() {
            let unordered = |error: Error| assert!(matches!(error, Error::Unordered { .. }));
            unordered(table.first().unwrap_err());
            unordered(table.last().unwrap_err());
            unordered(table.prefix("a").unwrap_err());
            unordered(table.pop_first().unwrap_err());
            unordered(table.pop_last().unwrap_err());
            unordered(table.cursor().unwrap_err());
            let mut reversed = table.iter().rev();
            unordered(reversed.next().unwrap().unwrap_err());
            assert!(reversed.next().is_none());
            return;
        }
        assert!(table.iter().map(|entry| entry.unwrap().0).eq(model.keys().cloned()));
        assert!(table.keys().rev().map(Result::unwrap).eq(model.keys().rev().cloned()));
        assert_eq!(table.first().unwrap().map(|entry| entry.0).as_ref(), model.keys().next());
        assert_eq!(table.last().unwrap().map(|entry| entry.0).as_ref(), model.keys().next_back());
        let prefix = 5_u64.to_be_bytes()[..7].to_vec();
        let with_prefix = model.keys().filter(|key| key.starts_with(&prefix)).cloned();
        assert!(table.prefix(&prefix).unwrap().map(|entry| entry.unwrap().0).eq(with_prefix));
        let mut model = model;
        for step in 0..100 {
            let (popped, expected) = if step % 2 == 0 {
                (table.pop_first().unwrap(), model.pop_first())
            } else {
                (table.pop_last().unwrap(), model.pop_last())
            };
            assert_eq!(popped.map(|(key, value)| (key, value.to_vec())), expected);
        }
        assert_eq!(contents(table), model);
    });
}

fn check_position(cursor: &TableCursor, expected: Option<(&Vec<u8>, &Vec<u8>)>) {
    let found = cursor.key().zip(cursor.value());
    assert_eq!(found, expected.map(|(key, value)| (&key[..], &value[..])));
}

#[test]
fn random_walks_of_a_cursor_agree_with_a_model() {
    each_ordered_engine(|db, table| {
        let model = fill(db, table, 1000);
        let mut cursor = table.cursor().unwrap();
        let mut expected = None;
        let mut run = 0;
        for step in 0..20_000_u64 {
            let choice = mix(step + 77);
            let target = (choice % 2200).to_be_bytes().to_vec();
            // Runs in one direction, so that windows grow.
            run = if run == 0 { choice % 200 } else { run - 1 };
            let is_found = match (run, choice % 4) {
                (0, 0) => {
                    expected = model.range(target.clone()..).next();
                    cursor.seek(&target)
                }
                (0, 1) => {
                    expected = model.range(..=target.clone()).next_back();
                    cursor.seek_for_prev(&target)
                }
                (0, 2) => {
                    expected = model.iter().next();
                    cursor.seek_to_first()
                }
                (0, _) => {
                    expected = model.iter().next_back();
                    cursor.seek_to_last()
                }
                _ if (step / 300) % 2 == 0 => {
                    expected = match expected {
                        None => model.iter().next(),
                        Some((key, _)) => model.range(key.clone()..).nth(1),
                    };
                    cursor.next()
                }
                _ => {
                    expected = match expected {
                        None => model.iter().next_back(),
                        Some((key, _)) => model.range(..key.clone()).next_back(),
                    };
                    cursor.prev()
                }
            };
            assert_eq!(is_found.unwrap(), expected.is_some(), "step {step}");
            check_position(&cursor, expected);
        }
    });
}

#[test]
fn typed_tables_have_the_same_reads() {
    each_ordered_engine(|db, table| {
        let options = TableOptions::new(table.kind());
        let squares = db.create_typed::<i64, u64>("squares", options).unwrap();
        for number in -3..=3_i64 {
            squares.put(&number, &number.unsigned_abs().pow(2)).unwrap();
        }
        assert_eq!(squares.first().unwrap(), Some((-3, 9)));
        assert_eq!(squares.last().unwrap(), Some((3, 9)));
        assert_eq!(squares.pop_first().unwrap(), Some((-3, 9)));
        assert_eq!(squares.pop_last().unwrap(), Some((3, 9)));
        assert_eq!(squares.len().unwrap(), 5);
        assert!(squares.iter().map(Result::unwrap).map(|entry| entry.0).eq(-2..=2));
    });
}
