//! Models of changes to slots beside a reader.
//!
//! loom explores every interleaving and every order that the memory model allows, up to a bound;
//! shuttle explores many random interleavings. Lines and nodes have two slots here, and there is
//! one lock. The words are of the checker's own type. The models of removal and of growth find a
//! reader that does not compare versions.

use super::SlotTable;
use crate::util::sync::{
    Arc,
    model_check::{Exploration, model_tests},
    thread,
};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    Exploration { schedules: 5_000, ..Exploration::DEFAULT }.explore(model);
}

/// Hashes of one line: the same low bits and the same highest bit.
fn hash(key: u64) -> u64 {
    key << 12
}

fn insert(table: &SlotTable, key: u64, address: u64) {
    assert!(table.lock(hash(key)).insert(address));
}

/// Returns whether a reader finds one of `addresses`.
fn finds(table: &SlotTable, key: u64, addresses: &[u64]) -> bool {
    let mut candidates = table.candidates(hash(key));
    while let Some(address) = candidates.next() {
        if addresses.contains(&address) {
            if candidates.is_current() {
                return true;
            }
            candidates.restart();
        }
    }
    false
}

fn a_reader_finds_one_of_the_versions() {
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

fn a_reader_finds_what_a_removal_moves() {
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

fn a_reader_finds_what_growth_moves() {
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

fn two_writers_of_a_line_lose_nothing() {
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

fn a_reader_finds_what_shrinking_moves() {
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

model_tests! {
    loom_slot_replacement, shuttle_slot_replacement: a_reader_finds_one_of_the_versions;
    loom_slot_removal, shuttle_slot_removal: a_reader_finds_what_a_removal_moves;
    loom_slot_growth, shuttle_slot_growth: a_reader_finds_what_growth_moves;
    loom_slot_writers, shuttle_slot_writers: two_writers_of_a_line_lose_nothing;
    loom_slot_shrinking, shuttle_slot_shrinking: a_reader_finds_what_shrinking_moves;
}
