//! Queues beside other threads: ranges skip deleted keys, and never an entry.
//!
//! Each writer puts keys among deleted ones and must find each by a range that begins or ends at
//! it. Scanners read the whole table from both ends meanwhile: each key that stays is there. A
//! deleted key is not found again. Runs on every ordered engine in a real directory.
//!
//! `QUINTET_QUEUE_STEPS` sets the steps of each writer (400).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use quintet::{EngineKind, Options, Table, TableOptions};

use crate::scratch::Scratch;

const WRITERS: usize = 3;
/// Keys at the beginning. One in [`KEPT`] stays.
const KEYS: usize = 9_000;
const KEPT: usize = 500;

fn key(number: usize, part: usize) -> String {
    format!("{number:06}-{part}")
}

/// Returns the first key from `key` on, and the last key up to it.
fn nearest(table: &Table, key: &str) -> [Option<Vec<u8>>; 2] {
    let first = table.range(key..).unwrap().next().map(|entry| entry.unwrap().0);
    let last = table.range(..=key).unwrap().next_back().map(|entry| entry.unwrap().0);
    [first, last]
}

/// Puts keys among deleted ones, finds them, and deletes them again.
fn write(table: &Table, writer: usize, steps: usize) {
    for step in 0..steps {
        let number = step * 7919 % KEYS;
        // No other writer uses the keys of this part.
        let one = key(number, writer + 1);
        table.put(&one, "value").unwrap();
        assert_eq!(
            nearest(table, &one),
            [Some(one.clone().into()), Some(one.clone().into())],
            "{one}"
        );
        let other = key(number, writer + 1) + "x";
        if step % 3 == 0 {
            table.put(&other, "value").unwrap();
            table.delete_range(one.as_str()..=other.as_str()).unwrap();
        } else {
            table.delete(&one).unwrap();
        }
        let left = table.range(one.as_str()..=other.as_str()).unwrap().next();
        assert!(left.is_none(), "{one} or {other} is there again");
    }
}

/// Reads all entries in both directions until the writers have ended.
fn scan(table: &Table, is_over: &AtomicBool) {
    let kept: Vec<String> = (0..KEYS).step_by(KEPT).map(|number| key(number, 0)).collect();
    let is_kept = |key: &Vec<u8>| key.ends_with(b"-0");
    while !is_over.load(Ordering::Relaxed) {
        let up: Vec<_> = table.range(..).unwrap().map(|entry| entry.unwrap().0).collect();
        assert!(up.is_sorted());
        assert!(up.iter().filter(|key| is_kept(key)).eq(kept.iter().map(String::as_bytes)));
        let down: Vec<_> = table.range(..).unwrap().rev().map(|entry| entry.unwrap().0).collect();
        assert!(down.is_sorted_by(|one, next| one > next));
        let found = down.iter().filter(|key| is_kept(key)).rev();
        assert!(found.eq(kept.iter().map(String::as_bytes)));
    }
}

fn ranges_find_every_put(kind: EngineKind) {
    let steps = std::env::var("QUINTET_QUEUE_STEPS").ok().map_or(400, |text| text.parse().unwrap());
    let scratch = Scratch::new(&format!("queues-{kind}"));
    let db = Options::new().memory_budget(32 << 20).open(&scratch.0).unwrap();
    let table = db.create_table("queue", TableOptions::new(kind)).unwrap();
    for number in 0..KEYS {
        table.put(key(number, 0), "value").unwrap();
    }
    db.persist().unwrap();
    for number in (0..KEYS).filter(|number| number % KEPT != 0) {
        table.delete(key(number, 0)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| scan(&table, &is_over));
        }
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                db.persist().unwrap();
            }
        });
        let table = &table;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| threads.spawn(move || write(table, writer, steps))).collect();
        let outcomes: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        for outcome in outcomes {
            outcome.unwrap();
        }
    });
    assert!(db.check().unwrap().is_sound());
    db.close().unwrap();
}

#[test]
fn ranges_of_btree_find_every_put() {
    ranges_find_every_put(EngineKind::BTree);
}

#[test]
fn ranges_of_slm_find_every_put() {
    ranges_find_every_put(EngineKind::Slm);
}

#[test]
fn ranges_of_tph_find_every_put() {
    ranges_find_every_put(EngineKind::Tph);
}
