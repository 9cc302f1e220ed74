//! Tables of several engines under one memory budget: memory moves to the tables in use.

use std::{
    thread,
    time::{Duration, Instant},
};

use quintet::{Database, EngineKind, Error, Options, Table, TableOptions};

use crate::scratch::Scratch;

const MIB: u64 = 1 << 20;
/// Engines whose memory can be released: the files hold their entries as well.
const RELEASING: [EngineKind; 5] =
    [EngineKind::HashLog, EngineKind::Trie, EngineKind::BTree, EngineKind::Slm, EngineKind::Tph];

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-0000........";
    key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn value(kind: EngineKind, number: u64) -> Vec<u8> {
    let mut value = format!("{kind}-{number}-").into_bytes();
    value.resize(200, b'.');
    value
}

fn create(db: &Database, kind: EngineKind) -> Table {
    db.create_table(kind.name(), TableOptions::new(kind)).unwrap()
}

fn fill(table: &Table, count: u64) {
    for number in 0..count {
        table.put(key(number), value(table.kind(), number)).unwrap();
    }
}

/// Reads one entry of each seventeen: most reads come from disk.
fn check(table: &Table, count: u64) {
    for number in (0..count).step_by(17) {
        let found = table.get(key(number)).unwrap().map(Vec::from);
        assert_eq!(found, Some(value(table.kind(), number)), "{} {number}", table.name());
    }
}

fn is_within_budget(db: &Database) -> bool {
    let stats = db.stats();
    stats.memory_bytes <= stats.memory_budget_bytes + MIB
}

fn memory(table: &Table) -> u64 {
    table.stats().unwrap().memory_bytes
}

/// Repeats `work` until `is_done`. It depends on background work, but on no particular speed of it.
fn until(what: &str, is_done: impl Fn() -> bool, mut work: impl FnMut(u64)) {
    for round in 0..20_000 {
        if is_done() {
            return;
        }
        work(round);
    }
    panic!("{what}");
}

/// An idle table of each engine holds most of the budget. A table of each other engine that is
/// written gets its memory, and reads of the first table get it back. No entry is lost.
#[test]
fn an_idle_table_releases_its_memory_to_a_table_in_use() {
    const COUNT: u64 = 100_000;
    for idle_kind in [EngineKind::HashLog, EngineKind::Trie, EngineKind::BTree] {
        for used_kind in RELEASING.into_iter().filter(|kind| *kind != idle_kind) {
            let dir = Scratch::new("arbitration-idle");
            let db = Options::new().memory_budget(32 * MIB).open(&dir.0).unwrap();
            let idle = create(&db, idle_kind);
            fill(&idle, COUNT);
            let before = memory(&idle);
            // More if the background has kept up with the writes.
            assert!(before > 8 * MIB, "{idle_kind} holds {before}");
            let used = create(&db, used_kind);
            fill(&used, COUNT);
            let what = format!("{idle_kind} keeps its memory while {used_kind} is written");
            let is_done = || memory(&idle) <= before / 2;
            until(&what, is_done, |round| {
                for number in 0..100 {
                    let number = (round * 100 + number) % COUNT;
                    used.put(key(number), value(used_kind, number)).unwrap();
                }
            });
            check(&used, COUNT);
            check(&idle, COUNT);
            // Background work may exceed the budget for a moment.
            let what = format!("{idle_kind} and {used_kind} exceed the budget");
            until(&what, || is_within_budget(&db), |_| thread::sleep(Duration::from_millis(1)));
        }
    }
}

/// Reads of a table whose memory went to others bring it back into memory.
#[test]
fn a_table_that_is_read_gets_memory_of_an_idle_one() {
    const COUNT: u64 = 100_000;
    for idle_kind in [EngineKind::HashLog, EngineKind::Trie, EngineKind::BTree] {
        for read_kind in RELEASING.into_iter().filter(|kind| *kind != idle_kind) {
            let dir = Scratch::new("arbitration-read");
            let db = Options::new().memory_budget(32 * MIB).open(&dir.0).unwrap();
            let read = create(&db, read_kind);
            fill(&read, COUNT);
            let idle = create(&db, idle_kind);
            fill(&idle, COUNT);
            let what = format!("{read_kind} gets no memory beside {idle_kind}");
            let is_done = || memory(&read) >= 8 * MIB;
            until(&what, is_done, |round| {
                for number in 0..100 {
                    let number = (round * 7919 + number * 104_729) % COUNT;
                    assert!(read.get(key(number)).unwrap().is_some());
                }
            });
            check(&idle, COUNT);
            check(&read, COUNT);
        }
    }
}

/// `naive` cannot release memory. The others release theirs to it, and it refuses a write that
/// finds none, within the bound of its wait.
#[test]
fn a_table_that_keeps_its_memory_gets_what_others_can_release() {
    const COUNT: u64 = 60_000;
    let dir = Scratch::new("arbitration-naive");
    let db = Options::new().memory_budget(32 * MIB).open(&dir.0).unwrap();
    let others: Vec<_> = RELEASING.into_iter().map(|kind| create(&db, kind)).collect();
    for table in &others {
        fill(table, COUNT);
    }
    let naive = create(&db, EngineKind::Naive);
    let mut written = 0;
    let error = loop {
        let start = Instant::now();
        match naive.put(key(written), value(EngineKind::Naive, written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(start.elapsed() < Duration::from_mins(1), "the write {written} hangs");
        assert!(written < 1_000_000, "no write was refused");
    };
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    let held = memory(&naive);
    assert!(held > 8 * MIB, "naive got {held} bytes");
    check(&naive, written);
    for table in &others {
        check(table, COUNT);
    }
    // The refused write changed nothing, and a delete makes room for it.
    for number in 0..100 {
        naive.delete(key(number)).unwrap();
    }
    naive.put(key(written), value(EngineKind::Naive, written)).unwrap();
}

/// Prints the time of an import into each table of a database of six, filled in turn, as a ratio to
/// the time alone, and that of gets afterwards: `just budget`.
#[test]
#[ignore = "a measurement"]
fn the_cost_of_one_budget() {
    const COUNT: u64 = 400_000;
    let import = |table: &Table| {
        let start = Instant::now();
        for number in 0..COUNT {
            table.put(key(number), [1; 44]).unwrap();
        }
        start.elapsed().as_secs_f64()
    };
    let get = |table: &Table| {
        let start = Instant::now();
        let mut number = 7_u64;
        for _ in 0..COUNT / 4 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            assert!(table.get(key((number >> 33) % COUNT)).unwrap().is_some());
        }
        start.elapsed().as_secs_f64() * 1e6 / 100_000.0
    };
    let open = |dir: &Scratch| Options::new().memory_budget(128 * MIB).open(&dir.0).unwrap();
    let alone: Vec<_> = EngineKind::ALL
        .into_iter()
        .map(|kind| {
            let dir = Scratch::new("arbitration-alone");
            let db = open(&dir);
            let table = create(&db, kind);
            (kind, import(&table), get(&table))
        })
        .collect();
    for first in 0..EngineKind::ALL.len() {
        for is_reversed in [false, true] {
            let mut order = alone.clone();
            order.rotate_left(first);
            if is_reversed {
                order.reverse();
            }
            let dir = Scratch::new("arbitration-order");
            let db = open(&dir);
            print!("imports:");
            let mut tables = Vec::new();
            for (kind, alone, _) in &order {
                let table = create(&db, *kind);
                let seconds = import(&table);
                print!(" {kind} {seconds:.2} s ({:.1} x)", seconds / alone);
                tables.push(table);
            }
            print!("\n   gets:");
            for (table, (kind, _, alone)) in tables.iter().zip(&order) {
                print!(" {kind} {:.1} us (alone {alone:.1})", get(table));
            }
            println!();
        }
    }
}
