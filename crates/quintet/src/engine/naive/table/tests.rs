use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::util::mutant::{self, Bug};

#[derive(Clone, Debug, PartialEq)]
struct Pair(Vec<u8>, u64);

impl Keyed for Pair {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

/// `SplitMix64`: cheap, and every seed is a different test.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A weak hash on purpose: chains and equal hashes must be common.
fn hash(key: &[u8]) -> u64 {
    crate::util::codec::KeyHash::new([7, 9]).hash(key) % 4093
}

#[test]
fn behaves_like_a_map() {
    let mut state = 1;
    let (mut table, mut model) = (HashTable::default(), BTreeMap::new());
    for step in 0..20_000 {
        // The range of keys swells and shrinks, so that the table resizes both ways.
        let span = if step / 4000 % 2 == 0 { 3000 } else { 10 };
        let key = key(next(&mut state) % span);
        if next(&mut state).is_multiple_of(3) {
            assert_eq!(table.remove(hash(&key), &key).map(|pair: Pair| pair.1), model.remove(&key));
        } else {
            let old = table.insert(hash(&key), Pair(key.clone(), step)).map(|pair| pair.1);
            assert_eq!(old, model.insert(key.clone(), step));
        }
        assert_eq!(table.len(), model.len());
        assert_eq!(table.get(hash(&key), &key).map(|pair| pair.1), model.get(&key).copied());
    }
}

/// Every entry present throughout is visited, and the scan ends, whatever is inserted and removed
/// between its steps.
#[test]
fn scans_survive_growth_and_shrinking() {
    for seed in 0..200 {
        let mut state = seed;
        let mut table = HashTable::default();
        let stable: BTreeSet<_> = (0..next(&mut state) % 200).map(key).collect();
        for key in &stable {
            table.insert(hash(key), Pair(key.clone(), 0));
        }
        let mut others: Vec<Vec<u8>> = Vec::new();
        let (mut seen, mut cursor, mut steps) = (BTreeSet::new(), 0, 0);
        let growing = seed % 2 == 0;
        if !growing {
            for number in 1000..3000 {
                others.push(key(number));
                table.insert(hash(&key(number)), Pair(key(number), 0));
            }
        }
        loop {
            cursor = table.scan(cursor, |pair| _ = seen.insert(pair.0.clone()));
            steps += 1;
            assert!(steps < 100_000, "seed {seed}: the scan does not end");
            if cursor == 0 {
                break;
            }
            for _ in 0..next(&mut state) % 12 {
                if growing && steps < 300 {
                    let key = key(1000 + next(&mut state) % 100_000);
                    table.insert(hash(&key), Pair(key, 0));
                } else if let Some(key) = others.pop() {
                    table.remove(hash(&key), &key);
                }
            }
        }
        assert!(stable.is_subset(&seen), "seed {seed}: the scan missed entries");
    }
}

#[test]
fn sweep_removes_what_is_dead_and_keeps_the_rest() {
    let mut table = HashTable::default();
    for number in 0..1000 {
        table.insert(hash(&key(number)), Pair(key(number), number));
    }
    let (mut cursor, mut removed) = (0, 0);
    loop {
        cursor = table.sweep(cursor, |pair| pair.1 % 3 == 0, |_| removed += 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((removed, table.len()), (334, 666));
    for number in 0..1000 {
        assert_eq!(table.get(hash(&key(number)), &key(number)).is_some(), number % 3 != 0);
    }
    table.shrink();
    assert_eq!(table.len(), 666);
}

#[test]
fn a_scan_that_skips_on_growth_is_found() {
    mutant::finds(Bug::ScanSkipsOnGrowth, scans_survive_growth_and_shrinking);
}
