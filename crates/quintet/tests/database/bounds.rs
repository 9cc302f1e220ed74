//! Bounds of ranges beside keys of maximum length, on every ordered engine.
//!
//! One engine: `cargo test -p quintet --test database bounds`.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use quintet::{
    EngineKind, Error, KEY_BYTES_MAX, KeyBounds, KeyRange, Options, Result, Table, TableOptions,
    testing::disk::sim::SimEnv,
};

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns a key of maximum length that ends in `last`.
fn longest(last: u8) -> Vec<u8> {
    [&vec![b'm'; KEY_BYTES_MAX - 1][..], &[last]].concat()
}

/// Returns keys in order: short ones, and keys of maximum length that differ in their last byte.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = vec![b"a".to_vec(), b"m".to_vec(), b"n".to_vec(), b"\xff".to_vec()];
    keys.extend([0, 1, b'm', 0xfe, 0xff].map(longest));
    keys.push(vec![b'm'; KEY_BYTES_MAX - 1]);
    keys.push(vec![0xff; KEY_BYTES_MAX]);
    keys.push(vec![0xff; KEY_BYTES_MAX - 1]);
    keys.sort();
    keys
}

/// Returns every pair of bounds at a key, and without one.
fn all_bounds() -> Vec<Bounds> {
    let ends = || {
        keys()
            .into_iter()
            .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key)])
            .chain([Bound::Unbounded])
    };
    ends().flat_map(|start| ends().map(move |end| (start.clone(), end))).collect()
}

fn in_bounds(key: &[u8], (start, end): &Bounds) -> bool {
    let from = match start {
        Bound::Included(start) => key >= &start[..],
        Bound::Excluded(start) => key > &start[..],
        Bound::Unbounded => true,
    };
    let to = match end {
        Bound::Included(end) => key <= &end[..],
        Bound::Excluded(end) => key < &end[..],
        Bound::Unbounded => true,
    };
    from && to
}

fn found(table: &Table, range: impl KeyBounds) -> Vec<Vec<u8>> {
    table.range(range).unwrap().map(|entry| entry.unwrap().0).collect()
}

fn fill(table: &Table) -> Result<()> {
    keys().iter().try_for_each(|key| table.put(key, "value"))
}

fn read_between(table: &Table) {
    for bounds in all_bounds() {
        let expected: Vec<_> = keys().into_iter().filter(|key| in_bounds(key, &bounds)).collect();
        assert!(found(table, bounds.clone()) == expected);
        let mut reversed: Vec<_> =
            table.range(bounds.clone()).unwrap().rev().map(|entry| entry.unwrap().0).collect();
        reversed.reverse();
        assert!(reversed == expected);
        let mut visited = Vec::new();
        let each = |key: &[u8], _: &[u8]| {
            visited.push(key.to_vec());
            ControlFlow::Continue(())
        };
        table.visit(bounds, each).unwrap();
        assert!(visited == expected);
    }
    for prefix in keys() {
        let expected: Vec<_> = keys().into_iter().filter(|key| key.starts_with(&prefix)).collect();
        assert!(found(table, KeyRange::prefix(&prefix)) == expected);
    }
}

/// Reads between all bounds, before and after a checkpoint. Deletes between every seventh pair of
/// bounds, and opens the database again after every tenth of these.
fn each_bound(kind: EngineKind) {
    let env = SimEnv::new(1);
    let open = || Options::new().memory_budget(64 << 20).open_in(Arc::new(env.clone()), "db");
    let mut db = open().unwrap();
    let mut table = db.create_table("t", TableOptions::new(kind)).unwrap();
    fill(&table).unwrap();
    read_between(&table);
    table.persist().unwrap();
    read_between(&table);
    for (number, bounds) in all_bounds().into_iter().step_by(7).enumerate() {
        fill(&table).unwrap();
        table.delete_range(bounds.clone()).unwrap();
        if number % 10 == 0 {
            // Replays the record of the range.
            drop(table);
            drop(db);
            db = open().unwrap();
            table = db.table("t").unwrap();
        }
        let kept: Vec<_> = keys().into_iter().filter(|key| !in_bounds(key, &bounds)).collect();
        assert!(found(&table, ..) == kept);
    }
    let too_long = vec![b'm'; KEY_BYTES_MAX + 1];
    assert!(matches!(table.delete_range(..=too_long), Err(Error::Limit { .. })));
}

#[test]
fn btree() {
    each_bound(EngineKind::BTree);
}

#[test]
fn slm() {
    each_bound(EngineKind::Slm);
}

#[test]
fn tph() {
    each_bound(EngineKind::Tph);
}
