//! Goal: a prefetch reads the entries of several keys at once. A get never takes a copy that is out
//! of date.

use super::*;
use crate::{
    io::sim::{Call, Effect, Fault, When},
    util::mutant::{Bug, finds},
};

/// Copies have one part in 32 of it: room for 16 reads of a block.
const BUDGET: u64 = 2 << 20;

/// Keys of a table whose entries exceed the budget.
const KEYS: u64 = 40_000;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn prefetch(table: &HashLog, numbers: &[u64]) {
    let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    table.prefetch(Hint::Gets(&keys));
}

#[test]
fn gets_after_a_prefetch_read_nothing() {
    let bench = Bench::new(7).with_budget(BUDGET);
    let (table, _) = bench.open();
    (0..KEYS).for_each(|number| put(&table, number + 1, &key(number), &number.to_be_bytes()));
    table.checkpoint(Lsn(KEYS + 1)).unwrap();
    compare_reads(&bench, &table);
    drop(table);
    compare_reads(&bench, &bench.open().0);
}

/// Prefetches and gets keys of a table that has `KEYS` of them, most of them not in memory.
fn compare_reads(bench: &Bench, table: &HashLog) {
    let reads = || bench.env.calls(&[Call::Read]);
    let get = |number: u64| table.get(&key(number)).unwrap().unwrap();
    let memory = table.context.budget.used();
    // A span of keys that were written one after the other is on the disk as a whole.
    for first in (0..8_000).step_by(400) {
        let numbers: Vec<u64> = (first..first + 200).step_by(20).collect();
        let before = reads();
        prefetch(table, &numbers);
        let of_prefetch = reads() - before;
        assert!(of_prefetch >= 10, "{of_prefetch} reads of 10 keys from {first}");
        // Copies that are there are not read again.
        prefetch(table, &numbers);
        assert_eq!(reads() - before, of_prefetch);
        assert!(table.context.budget.used() > memory, "copies count as memory");
        for number in &numbers {
            assert_eq!(get(*number), number.to_be_bytes());
        }
        assert_eq!(reads() - before, of_prefetch);
        // A get takes its copy.
        assert_eq!(get(first), first.to_be_bytes());
        assert_eq!(reads() - before, of_prefetch + 1);
    }
    assert_eq!(table.context.budget.used(), memory);
    // One key alone, keys without entries, and more than there is room for.
    prefetch(table, &[1]);
    prefetch(table, &[KEYS, KEYS + 1, KEYS + 2]);
    assert_eq!(table.context.budget.used(), memory);
    prefetch(table, &(0..1000).collect::<Vec<u64>>());
    assert!(table.context.budget.used() <= memory + BUDGET / 32);
    (0..1000).for_each(|number| assert_eq!(get(number), number.to_be_bytes()));
}

/// Prefetches keys, changes the table so that chunks get a new life, and gets all keys.
fn copies_of_other_lives_are_not_taken() {
    const FEW_KEYS: u64 = 4_000;
    let bench = Bench::new(8).with_budget(256 << 10).set("mutable_chunks", "1");
    let (table, _) = bench.open();
    let mut random = Random(8);
    let mut written = vec![0_u64; to_usize(FEW_KEYS)];
    let mut lsn = 0;
    for round in 0..40 {
        for _ in 0..2 * FEW_KEYS {
            let number = random.below(FEW_KEYS);
            lsn += 1;
            put(&table, lsn, &key(number), &[&lsn.to_be_bytes()[..], &[1; 92]].concat());
            written[to_usize(number)] = lsn;
            if lsn % 64 == 0 {
                match table.pending_work() {
                    PendingWork::None | PendingWork::Later => {}
                    PendingWork::Checkpoint => drop(table.checkpoint(Lsn(lsn + 1)).unwrap()),
                    PendingWork::Maintain => table.maintain(MaintenanceMode::Step).unwrap(),
                }
            }
        }
        for (number, lsn) in (0..).zip(&written).filter(|(_, lsn)| **lsn > 0) {
            let value = table.get(&key(number)).unwrap();
            let found = value.as_deref().and_then(|value| value.first_chunk()).copied();
            assert_eq!(found.map(u64::from_be_bytes), Some(*lsn), "key {number}, round {round}");
        }
        let numbers: Vec<u64> = (0..8).map(|_| random.below(FEW_KEYS)).collect();
        numbers.chunks(2).for_each(|numbers| prefetch(&table, numbers));
    }
    check(&table);
}

#[test]
fn a_get_takes_no_copy_of_another_life() {
    copies_of_other_lives_are_not_taken();
    finds(Bug::HashlogTakesOldCopies, copies_of_other_lives_are_not_taken);
}

#[test]
fn a_prefetch_leaves_errors_to_gets() {
    let bench = Bench::new(9).with_budget(BUDGET);
    let (table, _) = bench.open();
    (0..KEYS).for_each(|number| put(&table, number + 1, &key(number), &[7; 20]));
    table.checkpoint(Lsn(KEYS + 1)).unwrap();
    let memory = table.context.budget.used();
    bench.env.inject(Fault::new(&[Call::Read], When::From(1), Effect::Io));
    let numbers: Vec<u64> = (0..200).step_by(20).collect();
    prefetch(&table, &numbers);
    assert!(bench.env.faults_fired() > 0);
    bench.env.clear_faults();
    assert!(table.context.budget.used() >= memory);
    for number in numbers {
        assert_eq!(table.get(&key(number)).unwrap().unwrap(), [7; 20]);
    }
}
