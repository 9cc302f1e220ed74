//! Goal: a scan that is overtaken by compaction never takes an entry of a chunk's next life for
//! one that it came for.

use super::*;
use crate::util::mutant::{Bug, finds};

/// Every address of the index, as a scan takes it, with the key that is there.
fn addresses(table: &HashLog) -> Vec<(u64, u64, Vec<u8>)> {
    let (mut cursor, mut out, mut found) = (0, Vec::new(), Vec::new());
    loop {
        found.clear();
        let next = table.walk(cursor, &mut found);
        for (address, state) in &found {
            let entry = table.read_entry(*address, *state).unwrap().unwrap();
            out.push((*address, *state, entry.key));
        }
        match next {
            Some(next) => cursor = next,
            None => return out,
        }
    }
}

fn reads_after_reuse() {
    let bench = Bench::new(41);
    let (table, _) = bench.open();
    let mut lsn = 0;
    let mut step = || {
        lsn += 8;
        lsn
    };
    for number in 0..500 {
        put(&table, step(), format!("old-{number}").as_bytes(), &[1; 100]);
    }
    let before = addresses(&table);
    assert_eq!(before.len(), 500);
    // All of it dies, and its chunks' numbers are used anew: for entries and for tombstones.
    for round in 0..6 {
        for number in 0..500 {
            delete(&table, step(), format!("old-{number}").as_bytes());
            put(&table, step(), format!("new-{number}").as_bytes(), &[round; 100]);
        }
        let now = step();
        table.checkpoint(Lsn(now)).unwrap();
        bench.finish_background(&table, now);
    }
    let is_reused = |address: u64, state: u64| {
        let now = table.arena.state_of(address);
        now != state && table.arena.is_resident(table.arena.split(address).0)
    };
    let reused = before.iter().filter(|(address, state, _)| is_reused(*address, *state)).count();
    assert!(reused > 100, "{reused} addresses are in chunks of another life");
    for (address, state, key) in &before {
        if let Some(entry) = table.read_entry(*address, *state).unwrap() {
            assert_eq!(entry.key, *key, "an entry that the scan did not come for");
        }
    }
}

#[test]
fn scans_read_from_the_life_of_a_chunk_that_they_saw() {
    reads_after_reuse();
    finds(Bug::ScanForgetsReuse, reads_after_reuse);
}
