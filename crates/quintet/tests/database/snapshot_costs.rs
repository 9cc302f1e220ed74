//! What snapshots cost: `just snapshots`.

use std::{
    hint::black_box,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use quintet::{Database, EngineKind, Options, Table, TableOptions};

use crate::{random::Random, scratch::Scratch};

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 128;
/// Each figure is the median of this many rounds.
const ROUNDS: usize = 5;
const OPERATIONS: u64 = 200_000;

fn nanoseconds(count: u64, work: impl FnOnce()) -> u64 {
    let began = Instant::now();
    work();
    u64::try_from(began.elapsed().as_nanos()).unwrap() / count
}

fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user............";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn put_random(table: &Table, random: &mut Random, count: u64) {
    for _ in 0..count {
        table.put(key(random.below(KEYS)), [7; VALUE_BYTES]).unwrap();
    }
}

fn cost_of_taking(db: &Database) {
    for open in [0, 1000] {
        let held: Vec<_> = (0..open).map(|_| db.snapshot().unwrap()).collect();
        let take = || (0..OPERATIONS).for_each(|_| drop(black_box(db.snapshot().unwrap())));
        let rounds = (0..ROUNDS).map(|_| nanoseconds(OPERATIONS, take)).collect();
        println!("take and drop a snapshot, {open} open: {} ns", median(rounds));
        drop(held);
    }
}

/// Puts: without a snapshot, with one whose keys are written for the first time, and with one whose
/// keys were written since.
fn cost_of_puts(db: &Database, table: &Table) {
    let mut random = Random(1);
    let [mut without, mut first, mut again] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        without.push(nanoseconds(OPERATIONS, || put_random(table, &mut random, OPERATIONS)));
        let snapshot = db.snapshot().unwrap();
        first.push(nanoseconds(OPERATIONS, || put_random(table, &mut random, OPERATIONS)));
        drop(snapshot);
        let snapshot = db.snapshot().unwrap();
        // Keys of a small range, which soon all have a version.
        let put =
            |random: &mut Random| table.put(key(random.below(2000)), [7; VALUE_BYTES]).unwrap();
        (0..20_000).for_each(|_| put(&mut random));
        again.push(nanoseconds(OPERATIONS, || (0..OPERATIONS).for_each(|_| put(&mut random))));
        drop(snapshot);
    }
    let (without, first, again) = (median(without), median(first), median(again));
    println!("put {}: {without} ns; first after a snapshot {first}, again {again}", table.kind());
}

fn cost_of_ranges(db: &Database, table: &Table) {
    let mut random = Random(2);
    let count = OPERATIONS / 40;
    let [mut iterate, mut visit] = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        iterate.push(nanoseconds(count, || {
            for _ in 0..count {
                let range = table.range(key(random.below(KEYS - 100))..).unwrap();
                assert_eq!(range.take(100).map(Result::unwrap).count(), 100);
            }
        }));
        visit.push(nanoseconds(count, || {
            for _ in 0..count {
                let mut seen = 0;
                let each = |_: &[u8], _: &[u8]| {
                    seen += 1;
                    if seen < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                table.visit(key(random.below(KEYS - 100)).., each).unwrap();
            }
        }));
    }
    let (iterate, visit) = (median(iterate), median(visit));
    println!("range of 100 {}: iterator {iterate} ns, visit {visit} ns", table.kind());
    let snapshot = db.snapshot().unwrap();
    put_random(table, &mut random, OPERATIONS / 10);
    let with = nanoseconds(count, || {
        for _ in 0..count {
            let range = snapshot.range(table, key(random.below(KEYS - 100))..).unwrap();
            assert_eq!(range.take(100).map(Result::unwrap).count(), 100);
        }
    });
    println!(
        "range of 100 {}: of a snapshot with {} versions {with} ns",
        table.kind(),
        OPERATIONS / 10
    );
}

/// Bytes of a version beside key and value.
fn cost_of_versions(db: &Database, table: &Table) {
    let snapshot = db.snapshot().unwrap();
    let before = db.stats().snapshot_bytes;
    for number in 0..OPERATIONS {
        table.put(key(number), [8; VALUE_BYTES]).unwrap();
    }
    let bytes = (db.stats().snapshot_bytes - before) / OPERATIONS;
    let payload = u64::try_from(16 + VALUE_BYTES).unwrap();
    println!("versions {}: {} bytes each beside key and value", table.kind(), bytes - payload);
    drop(snapshot);
}

#[test]
#[ignore = "a measurement of minutes: just snapshots"]
fn cost_of_snapshots() {
    let scratch = Scratch::new("snapshot-costs");
    let db = Options::new().memory_budget(4 << 30).open(&scratch.0).unwrap();
    for kind in EngineKind::AVAILABLE {
        let table = db.create_table(kind.name(), TableOptions::new(*kind)).unwrap();
        for number in 0..KEYS {
            table.put(key(number), [7; VALUE_BYTES]).unwrap();
        }
        table.persist().unwrap();
        if *kind == EngineKind::Naive {
            cost_of_taking(&db);
        }
        cost_of_puts(&db, &table);
        if kind.is_ordered() {
            table.persist().unwrap();
            cost_of_ranges(&db, &table);
        }
        cost_of_versions(&db, &table);
    }
}

/// One snapshot is held while a million keys are updated many times. `QUINTET_SNAPSHOT_UPDATES`
/// sets the number of updates (100 million). The versions take three times the memory that they
/// may, so most are in files.
#[test]
#[ignore = "a measurement of minutes: just snapshot-held"]
fn cost_of_a_snapshot_that_is_held() {
    let updates = std::env::var("QUINTET_SNAPSHOT_UPDATES").ok();
    let updates: u64 = updates.map_or(100_000_000, |text| text.parse().unwrap());
    let scratch = Scratch::new("snapshot-held");
    let db = Options::new().memory_budget(256 << 20).open(&scratch.0).unwrap();
    let table = db.create_table("table", TableOptions::new(EngineKind::HashLog)).unwrap();
    for number in 0..KEYS {
        table.put(key(number), number.to_le_bytes().repeat(16)).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    let (mut random, began, mut slowest) = (Random(3), Instant::now(), Duration::ZERO);
    for _ in 0..updates / 1000 {
        let began = Instant::now();
        put_random(&table, &mut random, 1000);
        // Iterators and readers come and go.
        drop(db.snapshot().unwrap());
        slowest = slowest.max(began.elapsed());
    }
    let rate = u128::from(updates) * 1000 / began.elapsed().as_millis().max(1);
    let stats = db.stats();
    println!(
        "{updates} updates, {rate} a second, the slowest thousand {slowest:?}; {} bytes of \
         versions in memory and {} in files, {} of a budget of {}",
        stats.snapshot_bytes,
        stats.snapshot_file_bytes,
        stats.memory_bytes,
        stats.memory_budget_bytes
    );
    assert!(stats.memory_bytes <= stats.memory_budget_bytes);
    for number in 0..KEYS {
        let value = snapshot.get(&table, key(number)).unwrap().unwrap();
        assert_eq!(value, number.to_le_bytes().repeat(16), "key {number}");
    }
}
