//! A disk that is full takes deletes, and has room again when entries were deleted.

use std::{panic::catch_unwind, time::Duration};

use quintet::{
    Database, EngineKind, Error, Table,
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
/// Kills of the process while a disk is emptied.
const KILLS: usize = 12;
/// After all was deleted, at least one part in this many of the entries fits again.
const REFILLED_PART: usize = 5;
/// As [`REFILLED_PART`], of tables of all engines.
const REFILLED_PART_OF_MANY: usize = 16;

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
            // A `naive` table may be as large as the memory.
            if !is_taken && *kind == EngineKind::Naive && kinds.len() > 1 {
                continue;
            }
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

/// Deletes an entry. Returns whether the delete is taken, if not at once.
fn delete(env: &SimEnv, table: &Table, key: &[u8]) -> bool {
    (0..ATTEMPTS).any(|_| match table.delete(key) {
        Ok(()) => true,
        Err(Error::DiskFull { .. }) => {
            env.advance(Duration::from_secs(2));
            false
        }
        Err(error) => panic!("{error:?}"),
    })
}

/// Deletes all entries. Each delete is taken, if not at once.
fn empty(env: &SimEnv, db: &Database, kinds: &[EngineKind], rows: &[Rows]) {
    for (kind, rows) in kinds.iter().zip(rows) {
        let table = db.table(kind.name()).unwrap();
        for (number, key) in rows.keys().enumerate() {
            let taken = delete(env, &table, key);
            assert!(taken, "{kind}: delete {number} of {} is refused", rows.len());
            if number.is_multiple_of(64) {
                env.run_due();
            }
        }
    }
}

/// Fills a disk, deletes all, and fills it again.
fn fill_empty_and_fill(sizes: Sizes, kinds: &[EngineKind]) {
    let part = if kinds.len() == 1 { REFILLED_PART } else { REFILLED_PART_OF_MANY };
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
    assert!(again * part >= filled, "{kinds:?} {sizes:?}: {again} of {filled} entries");
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
    // A `naive` table is as large as the memory.
    for kind in EngineKind::AVAILABLE.iter().filter(|kind| **kind != EngineKind::Naive) {
        fill_empty_and_fill(SHORT_LOG, &[*kind]);
        fill_empty_and_fill(LONG_LOG, &[*kind]);
    }
}

/// Puts wait until the space that deletes need is whole.
fn puts_wait_for_deletes() {
    let env = SimEnv::new(79);
    let sizes = Sizes { reserve: RESERVE_BYTES, ..LOG_IN_MEMORY };
    let (db, rows) = full_disk::fill(&env, sizes, &[EngineKind::Trie]);
    let table = db.table(EngineKind::Trie.name()).unwrap();
    let waits = rows[0].keys().any(|key| {
        assert!(delete(&env, &table, key), "a delete is refused");
        let refused = table.put("small", "value").err();
        env.run_due();
        refused.is_some_and(|error| error.to_string().contains("deletes need"))
    });
    assert!(waits, "no put waits for the space that deletes need");
}

#[test]
fn an_emptied_disk_with_tables_of_all_engines_fills_again() {
    for sizes in [SHORT_LOG, LONG_LOG] {
        fill_empty_and_fill(sizes, EngineKind::AVAILABLE);
    }
}

/// Returns what an opening finds after a kill, in a copy of the disk with free space.
fn after_a_kill(env: &SimEnv, sizes: Sizes, kind: EngineKind) -> Rows {
    let env = env.kill();
    env.set_capacity(None);
    let db = full_disk::open(&env, sizes, false).unwrap();
    full_disk::contents(&db.table(kind.name()).unwrap()).unwrap()
}

/// Empties a full disk, kills the process every so often, and compares what an opening finds.
fn kills_lose_nothing(kind: EngineKind, options: &[(&str, &str)]) {
    let env = SimEnv::new(80);
    let sizes = Sizes { reserve: RESERVE_BYTES, ..SHORT_LOG };
    let (db, mut rows) = full_disk::fill_with(&env, sizes, &[kind], options);
    let (table, mut rows) = (db.table(kind.name()).unwrap(), rows.remove(0));
    let keys: Vec<Vec<u8>> = rows.keys().cloned().collect();
    let between_kills = keys.len() / KILLS;
    for (number, key) in keys.iter().enumerate() {
        assert!(delete(&env, &table, key), "{kind}: delete {number} is refused");
        rows.remove(key);
        if number.is_multiple_of(64) {
            env.advance(Duration::from_secs(1));
        }
        if number.is_multiple_of(between_kills) {
            let found = after_a_kill(&env, sizes, kind);
            assert!(found == rows, "{kind}: {} of {} after {number}", found.len(), rows.len());
        }
    }
}

#[test]
fn a_kill_while_a_full_disk_is_emptied_loses_nothing() {
    for kind in EngineKind::AVAILABLE {
        kills_lose_nothing(*kind, &[]);
    }
    kills_lose_nothing(EngineKind::HashLog, &[("compression", "lz4")]);
}

#[test]
fn planted_bugs_of_a_full_disk_are_found() {
    let in_log = || fill_empty_and_fill(LOG_IN_MEMORY, &[EngineKind::Trie]);
    let in_memory = || fill_empty_and_fill(LOG_IN_MEMORY, &[EngineKind::BTree]);
    let in_tables = || fill_empty_and_fill(LONG_LOG, &[EngineKind::BTree]);
    let in_trie = || fill_empty_and_fill(SHORT_LOG, &[EngineKind::Trie]);
    puts_wait_for_deletes();
    let tests: [(Bug, &(dyn Fn() + std::panic::RefUnwindSafe)); 6] = [
        (Bug::ReserveIsKept, &in_log),
        (Bug::ReserveIsNotAllocated, &in_log),
        (Bug::FullDiskWaitsForALongLog, &in_memory),
        (Bug::WritesTakeTheReserve, &puts_wait_for_deletes),
        (Bug::TrieMovesWithoutSpace, &in_trie),
        (Bug::FullLogWakesNothing, &in_tables),
    ];
    for (bug, test) in tests {
        let planted = plant(bug);
        let outcome = catch_unwind(test);
        assert!(planted.was_reached(), "{bug}: the test does not reach it");
        assert!(outcome.is_err(), "{bug} was not found");
    }
}
