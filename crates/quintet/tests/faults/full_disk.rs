//! A database whose disk is full opens again, and has every acknowledged write.
//!
//! Each engine, and all of them in one database, fills a disk: with most of the data in a log that
//! fits in memory or not, or in the tables' files. Then the process dies, closes the database, or
//! loses power. The databases keep no space for a full disk. What is asserted of the next opening
//! depends on the free space: [`open_again`].

use std::{collections::BTreeMap, panic::catch_unwind, sync::Arc, time::Duration};

use quintet::{
    Cursor, Database, EngineKind, Error, Options, Result, Table, TableOptions,
    testing::{
        disk::sim::{Policy, SimEnv},
        seeded::{Bug, plant},
    },
};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const MIB: u64 = 1 << 20;
/// With this much free space, a database of these tests opens for writing.
const NEEDED_BYTES: u64 = 4 * MIB;
/// Attempts of a writer that meets a full disk, with background work between them.
const ATTEMPTS: usize = 4;
/// Attempts of a writer whose writes go on after some: a disk that is nearly full may free a little
/// each time.
const ATTEMPTS_TOTAL: usize = 16;

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub disk: u64,
    pub reserve: u64,
    pub memory: u64,
    pub recovery: u64,
}

/// Most of the data is in the log, and fits in memory.
pub const LOG_IN_MEMORY: Sizes =
    Sizes { reserve: 0, disk: 12 * MIB, memory: 64 * MIB, recovery: 64 * MIB };
/// Most of the data is in the log, and does not fit in memory.
pub const LONG_LOG: Sizes =
    Sizes { reserve: 0, disk: 32 * MIB, memory: 3 * MIB, recovery: 128 * MIB };
/// Most of the data is in the files of the tables.
pub const SHORT_LOG: Sizes =
    Sizes { reserve: 0, disk: 16 * MIB, memory: 3 * MIB, recovery: 2 * MIB };

pub fn open(env: &SimEnv, sizes: Sizes, read_only: bool) -> Result<Database> {
    let options = Options::new()
        .memory_budget(sizes.memory)
        .recovery_budget(sizes.recovery)
        .segment_bytes(256 << 10)
        .space_reserve(sizes.reserve)
        .read_only(read_only);
    options.open_in(Arc::new(env.clone()), "db")
}

pub fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

pub fn value(number: u64, table: usize) -> Vec<u8> {
    let words = if number.is_multiple_of(64) { 800 } else { 80 };
    let mut value = key(number + 7).repeat(words);
    value[0] = table.to_le_bytes()[0];
    value
}

/// Writes until the disk is full and background work does not change that. Returns what was
/// acknowledged.
pub fn fill(env: &SimEnv, sizes: Sizes, kinds: &[EngineKind]) -> (Database, Vec<Rows>) {
    fill_with(env, sizes, kinds, &[])
}

/// As [`fill`], with options of the tables.
pub fn fill_with(
    env: &SimEnv,
    sizes: Sizes,
    kinds: &[EngineKind],
    options: &[(&str, &str)],
) -> (Database, Vec<Rows>) {
    env.set_capacity(Some(sizes.disk));
    let db = open(env, sizes, false).unwrap();
    let create = |kind: &EngineKind| {
        let new = TableOptions::new(*kind);
        let new = options.iter().fold(new, |new, (name, value)| new.set(*name, *value));
        db.create_table(kind.name(), new).unwrap()
    };
    let tables: Vec<Table> = kinds.iter().map(create).collect();
    let mut rows = vec![Rows::new(); kinds.len()];
    let (mut number, mut refused, mut refused_total) = (0, 0, 0);
    while refused < ATTEMPTS && refused_total < ATTEMPTS_TOTAL {
        let place = usize::try_from(number).unwrap() % tables.len();
        match tables[place].put(key(number), value(number, place)) {
            Ok(()) => {
                rows[place].insert(key(number), value(number, place));
                refused = 0;
                if number.is_multiple_of(64) {
                    env.advance(Duration::from_millis(100));
                }
            }
            // A `naive` table may be as large as the memory.
            Err(Error::OutOfMemory { .. }) if tables.len() > 1 => {}
            Err(Error::DiskFull { .. } | Error::OutOfMemory { .. }) => {
                refused += 1;
                refused_total += 1;
                env.advance(Duration::from_secs(2));
            }
            Err(error) => panic!("{error:?}"),
        }
        number += 1;
    }
    (db, rows)
}

pub fn contents(table: &Table) -> Result<Rows> {
    let (mut rows, mut cursor) = (Rows::new(), Cursor::START);
    loop {
        let (entries, next) = table.scan(&cursor, 1000)?;
        rows.extend(entries.into_iter().map(|(key, value)| (key, value.to_vec())));
        if next.is_start() {
            return Ok(rows);
        }
        cursor = next;
    }
}

fn check(db: &Database, kinds: &[EngineKind], rows: &[Rows]) {
    for (kind, rows) in kinds.iter().zip(rows) {
        let table = db.table(kind.name()).unwrap();
        let found = contents(&table).unwrap();
        assert!(found.keys().eq(rows.keys()), "{kind}: {} of {} keys", found.len(), rows.len());
        assert!(found == *rows, "{kind}: a value is wrong");
    }
}

/// Opens a full database with some free space.
///
/// Reading needs none. For writing it opens or fails with `DiskFull`, which it must not with
/// [`NEEDED_BYTES`], or if the log fits in memory (`opens`). In any case it has all rows, and it
/// loses none.
fn open_again(
    env: &SimEnv,
    (sizes, free, opens): (Sizes, u64, bool),
    (kinds, rows): (&[EngineKind], &[Rows]),
) {
    env.set_capacity(Some(env.bytes_used() + free));
    check(&open(env, sizes, true).unwrap(), kinds, rows);
    match open(env, sizes, false) {
        Ok(db) => {
            check(&db, kinds, rows);
            // The next opening has what the files and the rest of the log have.
            let killed = env.kill();
            killed.set_capacity(None);
            check(&open(&killed, sizes, false).unwrap(), kinds, rows);
            env.advance(Duration::from_secs(5));
            for (kind, rows) in kinds.iter().zip(rows) {
                // A `naive` table beside others may have found no memory at all.
                let Some(key) = rows.keys().next() else { continue };
                let table = db.table(kind.name()).unwrap();
                match table.delete(key) {
                    Ok(()) => assert!(table.get(key).unwrap().is_none(), "{kind}"),
                    Err(Error::DiskFull { .. }) => {}
                    Err(error) => panic!("{kind}: {error:?}"),
                }
            }
        }
        Err(error) => {
            assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
            assert!(error.to_string().contains("read_only"), "{error}");
            assert!(!opens && free < NEEDED_BYTES, "{free} bytes are free: {error}");
            // The failure has lost nothing, also for a reader.
            check(&open(env, sizes, true).unwrap(), kinds, rows);
            let env = env.kill();
            env.set_capacity(None);
            check(&open(&env, sizes, false).unwrap(), kinds, rows);
        }
    }
}

fn fill_and_open_again(sizes: Sizes, kinds: &[EngineKind]) {
    let env = SimEnv::new(77);
    let (db, rows) = fill(&env, sizes, kinds);
    let log = db.stats().log;
    println!("{kinds:?} {sizes:?}: log {} to {}, used {}", log.start, log.end, env.bytes_used());
    let in_memory = sizes.memory > sizes.disk;
    let found = (kinds, rows.as_slice());
    for free in [0, NEEDED_BYTES] {
        open_again(&env.kill(), (sizes, free, in_memory), found);
    }
    // A new log file needs space.
    open_again(&env.crash(Policy::AllKept), (sizes, 0, false), found);
    open_again(&env.crash(Policy::AllKept), (sizes, MIB, in_memory), found);
    open_again(&env.crash(Policy::AllKept), (sizes, NEEDED_BYTES, true), found);
    drop(db);
    open_again(&env.kill(), (sizes, 0, in_memory), found);
    open_again(&env.kill(), (sizes, NEEDED_BYTES, true), found);
}

fn every_way(kinds: &[EngineKind]) {
    for sizes in [LONG_LOG, LOG_IN_MEMORY, SHORT_LOG] {
        fill_and_open_again(sizes, kinds);
    }
}

#[test]
fn naive_opens_on_a_full_disk() {
    every_way(&[EngineKind::Naive]);
}

#[test]
fn hashlog_opens_on_a_full_disk() {
    every_way(&[EngineKind::HashLog]);
}

#[test]
fn trie_opens_on_a_full_disk() {
    // It shortens its log itself, so a long one is no other case.
    for sizes in [LOG_IN_MEMORY, SHORT_LOG] {
        fill_and_open_again(sizes, &[EngineKind::Trie]);
    }
}

#[test]
fn btree_opens_on_a_full_disk() {
    every_way(&[EngineKind::BTree]);
}

#[test]
fn slm_opens_on_a_full_disk() {
    every_way(&[EngineKind::Slm]);
}

#[test]
fn tph_opens_on_a_full_disk() {
    every_way(&[EngineKind::Tph]);
}

#[test]
fn tables_of_all_engines_open_on_a_full_disk() {
    every_way(EngineKind::AVAILABLE);
}

/// Openings between no free space and what is needed: tables get through the replay one by one, or
/// none does.
fn open_with_little_space(kinds: &[EngineKind]) {
    let env = SimEnv::new(77);
    let (_db, rows) = fill(&env, LONG_LOG, kinds);
    for free in (0..NEEDED_BYTES).step_by(256 << 10) {
        open_again(&env.kill(), (LONG_LOG, free, false), (kinds, &rows));
    }
}

#[test]
fn tables_open_with_little_free_space() {
    let kinds = [EngineKind::HashLog, EngineKind::Slm, EngineKind::Naive];
    for some in [&kinds[..1], &kinds[1..2], &[kinds[0], kinds[2]]] {
        open_with_little_space(some);
    }
}

#[test]
fn planted_bugs_of_openings_on_a_full_disk_are_found() {
    let whole = || fill_and_open_again(LONG_LOG, &[EngineKind::HashLog]);
    let little = || open_with_little_space(&[EngineKind::Slm]);
    let journal = || fill_and_open_again(LONG_LOG, &[EngineKind::BTree]);
    let tests: [(Bug, &(dyn Fn() + std::panic::RefUnwindSafe)); 3] = [
        (Bug::ReplayKeepsLog, &whole),
        (Bug::ReplayForgetsTables, &little),
        (Bug::FullDiskKeepsJournal, &journal),
    ];
    for (bug, test) in tests {
        let planted = plant(bug);
        let outcome = catch_unwind(test);
        assert!(planted.was_reached(), "{bug}: the test does not reach it");
        assert!(outcome.is_err(), "{bug} was not found");
    }
}
