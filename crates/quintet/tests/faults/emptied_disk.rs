//! A disk that is full takes deletes, and has room again when entries were deleted.
//!
//! Two cases are left out, since they stay full: a `hashlog` table whose chunks fill the disk, and
//! an `slm` table with a long log. Their deletes are taken too, but the next checkpoint needs more
//! space than is kept.

use std::{panic::catch_unwind, time::Duration};

use quintet::{
    Database, EngineKind, Error,
    testing::{
        disk::sim::SimEnv,
        seeded::{Bug, plant},
    },
};

use super::full_disk::{self, LOG_IN_MEMORY, LONG_LOG, Rows, SHORT_LOG, Sizes};

/// Most bytes that are kept for a full disk.
const RESERVE_BYTES: u64 = 64 << 20;
/// Attempts of a write that meets a full disk. Background work frees space between them.
const ATTEMPTS: usize = 8;
/// After all was deleted, at least one part in this many of the entries fits again.
const REFILLED_PART: usize = 5;

/// Puts until the disk is full, also a while later. Returns how many were taken.
fn refill(env: &SimEnv, db: &Database, kinds: &[EngineKind]) -> usize {
    let mut taken = 0;
    for number in 1_u64 << 32.. {
        for (place, kind) in kinds.iter().enumerate() {
            let table = db.table(kind.name()).unwrap();
            let (key, value) = (full_disk::key(number), full_disk::value(number, place));
            let is_taken = (0..ATTEMPTS).any(|_| match table.put(&key, &value) {
                Ok(()) => true,
                Err(Error::DiskFull { .. } | Error::OutOfMemory { .. }) => {
                    env.advance(Duration::from_secs(2));
                    false
                }
                Err(error) => panic!("{kind}: {error:?}"),
            });
            if !is_taken {
                return taken;
            }
            taken += 1;
        }
        if number.is_multiple_of(64) {
            env.run_due();
        }
    }
    taken
}

/// Deletes all entries. Each delete is taken, if not at once.
fn empty(env: &SimEnv, db: &Database, kinds: &[EngineKind], rows: &[Rows]) {
    for (kind, rows) in kinds.iter().zip(rows) {
        let table = db.table(kind.name()).unwrap();
        for (number, key) in rows.keys().enumerate() {
            let taken = (0..ATTEMPTS).any(|_| match table.delete(key) {
                Ok(()) => true,
                Err(Error::DiskFull { .. }) => {
                    env.advance(Duration::from_secs(2));
                    false
                }
                Err(error) => panic!("{kind}: {error:?}"),
            });
            assert!(taken, "{kind}: delete {number} of {} is refused", rows.len());
            if number.is_multiple_of(64) {
                env.run_due();
            }
        }
    }
}

/// Fills a disk, deletes all, and fills it again.
fn fill_empty_and_fill(sizes: Sizes, kinds: &[EngineKind]) {
    let env = SimEnv::new(78);
    let sizes = Sizes { reserve: RESERVE_BYTES, ..sizes };
    let (db, rows) = full_disk::fill(&env, sizes, kinds);
    let filled: usize = rows.iter().map(Rows::len).sum();
    empty(&env, &db, kinds, &rows);
    for _ in 0..30 {
        env.advance(Duration::from_secs(2));
    }
    let (used, reserve) = (env.bytes_used(), db.stats().space_reserve_bytes);
    let again = refill(&env, &db, kinds);
    println!("{kinds:?}: {filled} entries; then {used} bytes, {reserve} kept; {again} entries");
    assert!(again * REFILLED_PART >= filled, "{kinds:?} {sizes:?}: {again} of {filled} entries");
}

#[test]
fn an_emptied_disk_with_the_data_in_the_log_fills_again() {
    for kind in EngineKind::AVAILABLE {
        fill_empty_and_fill(LOG_IN_MEMORY, &[*kind]);
    }
    fill_empty_and_fill(LOG_IN_MEMORY, EngineKind::AVAILABLE);
}

#[test]
fn an_emptied_disk_with_the_data_in_tables_fills_again() {
    for kind in [EngineKind::Trie, EngineKind::BTree, EngineKind::Slm, EngineKind::Tph] {
        fill_empty_and_fill(SHORT_LOG, &[kind]);
    }
    for kind in [EngineKind::HashLog, EngineKind::Tph] {
        fill_empty_and_fill(LONG_LOG, &[kind]);
    }
}

/// Puts wait until the space that deletes need is whole.
fn puts_wait_for_deletes() {
    let env = SimEnv::new(79);
    let sizes = Sizes { reserve: RESERVE_BYTES, ..SHORT_LOG };
    let (db, rows) = full_disk::fill(&env, sizes, &[EngineKind::BTree]);
    let table = db.table(EngineKind::BTree.name()).unwrap();
    let mut keys = rows[0].keys();
    // Until a round or the log has taken some.
    while db.stats().space_reserve_bytes > 256 << 10 {
        table.delete(keys.next().unwrap()).unwrap();
        env.run_due();
    }
    let error = table.put("small", "value").unwrap_err();
    assert!(error.to_string().contains("deletes need"), "{error}");
}

#[test]
fn planted_bugs_of_a_full_disk_are_found() {
    let in_log = || fill_empty_and_fill(LOG_IN_MEMORY, &[EngineKind::Trie]);
    let in_memory = || fill_empty_and_fill(LOG_IN_MEMORY, &[EngineKind::BTree]);
    puts_wait_for_deletes();
    let tests: [(Bug, &(dyn Fn() + std::panic::RefUnwindSafe)); 4] = [
        (Bug::ReserveIsKept, &in_log),
        (Bug::ReserveIsNotAllocated, &in_log),
        (Bug::FullDiskWaitsForALongLog, &in_memory),
        (Bug::WritesTakeTheReserve, &puts_wait_for_deletes),
    ];
    for (bug, test) in tests {
        let planted = plant(bug);
        let outcome = catch_unwind(test);
        assert!(planted.was_reached(), "{bug}: the test does not reach it");
        assert!(outcome.is_err(), "{bug} was not found");
    }
}
