//! The table against a model, its size at every step, and readers beside writers.

use std::collections::BTreeMap;

use super::{shape::IndexShape, slot::LOCK_BITS, tag::placing, *};
use crate::util::{
    codec::{to_u64, to_usize},
    sync::{Ordering, lock},
};

/// What the table may take for each key, once there are more than a few hundred.
const BYTES_PER_KEY_MAX: u64 = 12;

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn get(table: &SlotTable, hash: u64, address: u64) -> Option<u64> {
    find(table, hash, |found| found == address)
}

/// Returns the first candidate that `is_it` accepts.
fn find(table: &SlotTable, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
    let mut candidates = table.candidates(hash);
    while let Some(address) = candidates.next() {
        if is_it(address) {
            if candidates.is_current() {
                return Some(address);
            }
            candidates.restart();
        }
    }
    None
}

fn insert(table: &SlotTable, hash: u64, address: u64) {
    assert!(table.lock(hash).insert(address));
    table.grow(2);
}

#[test]
fn behaves_like_a_map_through_growth_replacement_and_removal() {
    let table = SlotTable::new(1 << 16).unwrap();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    for step in 0..200_000_u64 {
        let key = mix(step) % 30_000;
        let hash = mix(key);
        let address = step + 1;
        match (model.get(&key).copied(), mix(step * 3) % 3) {
            (Some(old), 0) => {
                assert!(table.lock(hash).remove(old));
                model.remove(&key);
            }
            (Some(old), _) => {
                assert!(table.lock(hash).replace(old, address));
                model.insert(key, address);
            }
            (None, _) => {
                insert(&table, hash, address);
                model.insert(key, address);
            }
        }
        assert!(!table.lock(hash).remove(step + 2));
    }
    assert_eq!(table.len(), to_u64(model.len()));
    for (key, address) in &model {
        assert_eq!(get(&table, mix(*key), *address), Some(*address));
    }
    for (key, address) in model {
        assert!(table.lock(mix(key)).remove(address));
    }
    assert_eq!(table.nodes_used.load(Ordering::Relaxed), 0);
    let mut rest = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = table.walk(at, |address| rest.push(address));
    }
    assert_eq!(rest, Vec::<u64>::new());
}

#[test]
fn at_most_twelve_bytes_a_key_at_every_size() {
    let table = SlotTable::new(1 << 23).unwrap();
    let mut worst = 0.0_f64;
    let mut second_lines = 0.0_f64;
    for key in 1..=5_000_000_u64 {
        insert(&table, mix(key), key);
        if key >= 1000 && key.is_multiple_of(997) {
            let bytes = table.bytes();
            assert!(bytes <= key * BYTES_PER_KEY_MAX, "{bytes} bytes for {key} keys");
            worst = worst.max(crate::util::codec::to_f64(bytes) / crate::util::codec::to_f64(key));
            let nodes = table.nodes_used.load(Ordering::Relaxed);
            second_lines = second_lines
                .max(crate::util::codec::to_f64(nodes) / crate::util::codec::to_f64(key));
        }
    }
    println!("worst {worst:.2} bytes a key, {second_lines:.3} nodes a key");
    for key in 1..=5_000_000_u64 {
        assert_eq!(get(&table, mix(key), key), Some(key));
    }
}

#[test]
fn presized_tables_have_the_same_size_limits() {
    for keys in [1_000_u64, 50_000, 300_000] {
        let table = SlotTable::new(1 << 23).unwrap();
        table.presize(keys);
        for key in 1..=keys {
            insert(&table, mix(key), key);
        }
        assert!(table.bytes() <= keys * BYTES_PER_KEY_MAX, "{} for {keys}", table.bytes());
        assert!((1..=keys).all(|key| get(&table, mix(key), key).is_some()));
    }
}

#[test]
fn a_full_table_goes_on_in_chains() {
    let table = SlotTable::new(512).unwrap();
    for key in 1..=1000_u64 {
        insert(&table, mix(key), key);
    }
    assert!((1..=1000).all(|key| get(&table, mix(key), key).is_some()));
}

#[test]
fn a_walk_shows_everything_that_stays_while_the_table_grows() {
    let table = SlotTable::new(1 << 20).unwrap();
    for key in 1..=2000_u64 {
        insert(&table, mix(key), key);
    }
    let mut seen = Vec::new();
    let (mut cursor, mut next_key, mut steps) = (Some(0), 2001_u64, 0_u64);
    while let Some(at) = cursor {
        cursor = table.walk(at, |address| seen.push(address));
        steps += 1;
        if steps.is_multiple_of(3) {
            for _ in 0..200 {
                insert(&table, mix(next_key), next_key);
                next_key += 1;
            }
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert!((1..=2000).all(|key| seen.binary_search(&key).is_ok()));
}

#[test]
fn readers_never_miss_what_stays() {
    let table = SlotTable::new(1 << 20).unwrap();
    let stay = 500_u64;
    for key in 1..=stay {
        insert(&table, mix(key), key);
    }
    let done = crate::util::sync::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for reader in 0..2_u64 {
            let (table, done) = (&table, &done);
            threads.push(scope.spawn(move || {
                let mut round = reader;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let key = mix(round) % stay + 1;
                    let found = find(table, mix(key), |address| address % 1_000_000 == key);
                    assert!(found.is_some(), "key {key} was not found");
                    assert!(get(table, mix(key + 10_000_000), 77).is_none());
                }
            }));
        }
        for writer in 0..2_u64 {
            let table = &table;
            threads.push(scope.spawn(move || {
                for step in 0..60_000_u64 {
                    let key = (step * 2 + writer) % stay + 1;
                    let mut locked = table.lock(mix(key));
                    let old = locked.candidates().find(|at| at % 1_000_000 == key).unwrap();
                    assert!(locked.replace(old, key + (step % 1000) * 1_000_000));
                    drop(locked);
                    let extra = 1_000 + step * 2 + writer;
                    insert(table, mix(extra), 900_000_000_000 % ADDRESS_END + 999_999);
                    if step % 3 == 0 {
                        let _ =
                            table.lock(mix(extra)).remove(900_000_000_000 % ADDRESS_END + 999_999);
                    }
                }
            }));
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        done.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn the_table_shrinks_with_its_keys_and_gives_its_memory_back() {
    let table = SlotTable::new(1 << 22).unwrap();
    let keys = 1_000_000_u64;
    for key in 1..=keys {
        insert(&table, mix(key), key);
    }
    let largest = (table.bytes(), lock(&table.free_nodes).next);
    for key in 1..=keys {
        assert!(table.lock(mix(key)).remove(key));
        table.shrink(2);
        let left = keys - key;
        if left >= 1000 && left.is_multiple_of(997) {
            let bytes = table.bytes();
            assert!(bytes <= left * BYTES_PER_KEY_MAX + 256, "{bytes} bytes for {left} keys");
            for sample in [key + 1, keys, key + left / 2] {
                assert_eq!(get(&table, mix(sample), sample), Some(sample), "{left} left");
            }
            assert_eq!(get(&table, mix(key), key), None);
        }
    }
    assert_eq!(IndexShape(table.shape.load(Ordering::Relaxed)), IndexShape::new(LOCK_BITS));
    assert_eq!(table.nodes_used.load(Ordering::Relaxed), 0);
    let nodes = lock(&table.free_nodes);
    assert!(nodes.next * 20 < largest.1, "{} of {} nodes are kept", nodes.next, largest.1);
    drop(nodes);
    // What was given back reads as zeros: the pages are the system's again.
    for lines in &table.lines {
        let beyond = &lines.words()[to_usize(DISCARDED_BEYOND)..to_usize(largest.0 / 16)];
        assert!(beyond.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}

/// Words of an array that an empty table may keep.
const DISCARDED_BEYOND: u64 = 1 << 14;

#[test]
fn growing_and_shrinking_in_turn_keeps_every_entry() {
    let table = SlotTable::new(1 << 20).unwrap();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut next = 1_u64;
    for wave in 0..12_u64 {
        for _ in 0..mix(wave) % 40_000 + 1000 {
            insert(&table, mix(next), next);
            model.insert(next, next);
            next += 1;
        }
        let wanted = to_usize(mix(wave + 99) % 2000);
        while model.len() > wanted {
            // Now the oldest, now the newest.
            let (key, _) = if model.len().is_multiple_of(2) {
                model.pop_first().unwrap()
            } else {
                model.pop_last().unwrap()
            };
            assert!(table.lock(mix(key)).remove(key));
            table.shrink(2);
        }
        assert_eq!(table.len(), to_u64(model.len()));
        assert!(model.keys().all(|key| get(&table, mix(*key), *key) == Some(*key)), "wave {wave}");
        let mut walked = Vec::new();
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            cursor = table.walk(at, |address| walked.push(address));
        }
        walked.sort_unstable();
        assert!(walked.iter().eq(model.keys()), "wave {wave}");
    }
}

#[test]
fn a_walk_shows_everything_that_stays_while_the_table_shrinks() {
    for pace in [1, 3, 10] {
        let table = SlotTable::new(1 << 20).unwrap();
        for key in 1..=60_000_u64 {
            insert(&table, mix(key), key);
        }
        let mut seen = Vec::new();
        let (mut cursor, mut next_key, mut steps) = (Some(0), 2001_u64, 0_u64);
        while let Some(at) = cursor {
            cursor = table.walk(at, |address| seen.push(address));
            steps += 1;
            if steps.is_multiple_of(pace) {
                for _ in 0..100 {
                    if next_key <= 60_000 {
                        assert!(table.lock(mix(next_key)).remove(next_key));
                        table.shrink(2);
                        next_key += 1;
                    }
                }
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert!((1..=2000).all(|key| seen.binary_search(&key).is_ok()), "pace {pace}");
    }
}

#[test]
fn readers_never_miss_what_stays_while_the_table_breathes() {
    let table = SlotTable::new(1 << 20).unwrap();
    let stay = 500_u64;
    for key in 1..=stay {
        insert(&table, mix(key), key);
    }
    let done = crate::util::sync::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for reader in 0..2_u64 {
            let (table, done) = (&table, &done);
            threads.push(scope.spawn(move || {
                let mut round = reader;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let key = mix(round) % stay + 1;
                    assert_eq!(get(table, mix(key), key), Some(key));
                    assert!(get(table, mix(key + 10_000_000), 77).is_none());
                }
            }));
        }
        let (table, done) = (&table, &done);
        threads.push(scope.spawn(move || {
            for wave in 0..12_u64 {
                let keys = 1000 + wave * 100_000..1000 + wave * 100_000 + 20_000;
                for key in keys.clone() {
                    insert(table, mix(key), key);
                }
                for key in keys {
                    assert!(table.lock(mix(key)).remove(key));
                    table.shrink(2);
                }
            }
            done.store(true, Ordering::Relaxed);
        }));
        // Joined here: what the end of a scope waits for, the thread sanitizer does not see.
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A key moves, and its old address is somebody else's, while a reader looks at that.
fn moves_under_a_look() {
    let table = SlotTable::new(1 << 10).unwrap();
    insert(&table, 7, 100);
    let mut looked_at = Vec::new();
    let found = find(&table, 7, |address| {
        if looked_at.is_empty() {
            assert!(table.lock(7).replace(100, 200));
        }
        looked_at.push(address);
        true
    });
    assert_eq!((found, looked_at), (Some(200), vec![100, 200]));
}

#[test]
fn what_left_its_slot_while_it_was_looked_at_is_not_found() {
    use crate::util::mutant::{Bug, finds};
    moves_under_a_look();
    finds(Bug::FindForgetsItsSlot, moves_under_a_look);
}

#[test]
fn a_lost_overflow_node_is_found() {
    use crate::util::mutant::{Bug, finds};
    finds(Bug::SlotsShrinkLosesNodes, growing_and_shrinking_in_turn_keeps_every_entry);
}

/// Addresses that a reader of an absent key is shown, of `lookups` keys.
fn false_candidates(table: &SlotTable, lookups: u64) -> u64 {
    let mut shown = 0;
    for key in 1..=lookups {
        let none = find(table, mix(key + (1 << 40)), |_| {
            shown += 1;
            false
        });
        assert_eq!(none, None);
    }
    shown
}

#[test]
fn tags_tell_keys_apart_at_every_size() {
    for keys in [100_000_u64, 2_000_000] {
        let grown = SlotTable::new(1 << 22).unwrap();
        for key in 1..=keys {
            insert(&grown, mix(key), key);
        }
        let loaded = SlotTable::new(1 << 22).unwrap();
        loaded.presize(keys);
        let shares = loaded.loader(3);
        for key in 1..=keys {
            assert!(shares.load(mix(key), key));
        }
        loaded.add_len(keys);
        for table in [&grown, &loaded] {
            assert!((1..=keys).all(|key| get(table, mix(key), key).is_some()));
            let shown = false_candidates(table, 2_000_000);
            assert!(shown < 40, "{shown} of 2,000,000 absent keys were taken for others");
        }
    }
}

#[test]
fn shares_hold_whole_lines() {
    let table = SlotTable::new(1 << 20).unwrap();
    table.presize(70_000);
    let loader = table.loader(4);
    let mut owners: BTreeMap<(usize, u64), (usize, usize)> = BTreeMap::new();
    for key in 0..50_000_u64 {
        let hash = mix(key);
        let (array, pair, _) = loader_line(&table, hash);
        let mine = (loader.share(hash), loader.local_line(array, pair));
        assert!(mine.0 < 1 << loader.share_bits() && mine.1 < loader.lines_max());
        assert_eq!(*owners.entry((array, pair)).or_insert(mine), mine);
    }
    let mut places: Vec<_> = owners.values().collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), owners.len(), "two lines have the same number");
}

#[test]
fn of_entries_with_equal_hashes_a_share_takes_the_first() {
    let table = SlotTable::new(1 << 20).unwrap();
    // Too small: half of the lines continue in nodes.
    table.presize(30_000);
    let loader = table.loader(3);
    let low = |key: u64| mix(key) & ((1 << 56) - 1);
    for pass in 0..2 {
        let start = |share| loader.share_loader(share, pass == 0, Vec::new());
        let mut shares: Vec<_> = (0..8).map(start).collect();
        for step in 0..100_000_u64 {
            // A hash that another has taken, in the same line and with the same tag or not.
            let key = mix(step) % 25_000 * 2 + pass;
            let (hash, address) = (low(key), (pass << 30) | (key + 1));
            let share = &mut shares[loader.share(hash)];
            let expected = if share.has(hash) { AddOutcome::Older } else { AddOutcome::New };
            assert_eq!(share.add(hash, address + (step << 20)), expected);
            assert!(share.has(hash));
            let rest_differs = hash ^ 1 << 40;
            assert!(!share.has(rest_differs));
        }
    }
    let mut counts = BTreeMap::new();
    let mut addresses = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = table.walk(at, |address| addresses.push(address));
    }
    for address in addresses {
        *counts.entry(address & 0xf_ffff).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count == 1), "no key is there twice");
    assert!(counts.len() > 48_000, "{}", counts.len());
}

fn loader_line(table: &SlotTable, hash: u64) -> (usize, u64, u32) {
    IndexShape(table.shape.load(Ordering::Relaxed)).line(placing(hash))
}
