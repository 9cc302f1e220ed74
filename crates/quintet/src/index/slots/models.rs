//! Models of changes to slots against a reader, explored by shuttle (many random interleavings).
//! Lines have two slots here, nodes two, and there is one lock. A reader that does not compare
//! versions is found in the models of removal and of growth.
//!
//! Not for loom: the slots lie in a region of words that loom does not see as its own.

use super::{SlotTable, Verdict};
use crate::sync::{Arc, thread};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(5_000);
    shuttle::check_pct(model, iterations, 4);
}

/// Hashes of one line: the same low bits and the same highest bit.
fn hash(key: u64) -> u64 {
    key << 12
}

fn insert(table: &SlotTable, key: u64, address: u64) {
    assert!(table.lock(hash(key)).insert(address));
}

/// Whether a reader finds one of the addresses that the key has had.
fn finds(table: &SlotTable, key: u64, addresses: &[u64]) -> bool {
    let look = |address| {
        if addresses.contains(&address) { Verdict::Found(()) } else { Verdict::Other }
    };
    table.find(hash(key), look).is_some()
}

#[test]
fn shuttle_a_reader_finds_one_of_the_versions() {
    explore(|| {
        let table = Arc::new(SlotTable::new(16).unwrap());
        insert(&table, 1, 10);
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || assert!(table.lock(hash(1)).replace(10, 11)))
        };
        assert!(finds(&table, 1, &[10, 11]));
        writer.join().unwrap();
        assert!(!finds(&table, 1, &[10]));
    });
}

#[test]
fn shuttle_a_reader_finds_what_a_removal_moves() {
    explore(|| {
        let table = Arc::new(SlotTable::new(16).unwrap());
        // Three in a line of two: the last is in a node, and takes the place of the first.
        for key in 1..=3 {
            insert(&table, key, key * 10);
        }
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || assert!(table.lock(hash(1)).remove(10)))
        };
        assert!(finds(&table, 2, &[20]));
        assert!(finds(&table, 3, &[30]));
        writer.join().unwrap();
        assert!(!finds(&table, 1, &[10]));
    });
}

#[test]
fn shuttle_a_reader_finds_what_growth_moves() {
    explore(|| {
        let table = Arc::new(SlotTable::new(16).unwrap());
        for key in [1, 2, 0x7_ffff] {
            insert(&table, key, key);
        }
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.add_len(100);
                table.grow(1);
            })
        };
        assert!(finds(&table, 2, &[2]));
        assert!(finds(&table, 0x7_ffff, &[0x7_ffff]));
        writer.join().unwrap();
    });
}

#[test]
fn shuttle_two_writers_of_a_line_lose_nothing() {
    explore(|| {
        let table = Arc::new(SlotTable::new(16).unwrap());
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || insert(&table, 1, 10))
        };
        insert(&table, 2, 20);
        writer.join().unwrap();
        assert!(finds(&table, 1, &[10]) && finds(&table, 2, &[20]));
    });
}

#[test]
fn shuttle_a_reader_finds_what_shrinking_moves() {
    explore(|| {
        let table = Arc::new(SlotTable::new(16).unwrap());
        for key in [1, 2, 0x7_ffff] {
            insert(&table, key, key);
        }
        table.add_len(100);
        table.grow(1);
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                // As if most had been removed: three are left.
                table.add_len(u64::MAX - 102);
                table.shrink(1);
            })
        };
        assert!(finds(&table, 2, &[2]));
        assert!(finds(&table, 0x7_ffff, &[0x7_ffff]));
        writer.join().unwrap();
        assert!(finds(&table, 1, &[1]));
    });
}
