//! A `trie` table several times as large as the memory budget is loaded, read, updated, compacted,
//! checked and opened again. The process, which does nothing else, never holds more than the
//! budget and a stated constant.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use std::path::Path;

use quintet::{Database, EngineKind, Options, Table, TableOptions};

const BUDGET_BYTES: u64 = 16 << 20;
/// Bytes outside the budget: the program and its test harness (about 6 MiB), the bytes that a
/// check reads at once, freed memory that the allocator keeps.
const BESIDE_BYTES: u64 = 24 << 20;
const RECORDS: u64 = 80_000;
const VALUE_BYTES: usize = 400;

/// Peak of the memory of the process since the last reading, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn check_peak(when: &str) {
    let (peak, limit) = (peak_bytes(), BUDGET_BYTES + BESIDE_BYTES);
    // Resets the high-water mark. Where that is not permitted, the mark covers the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    println!("{when}: peak {} KiB, limit {} KiB", peak >> 10, limit >> 10);
    assert!(peak <= limit, "{when}: the process held {peak} bytes, {limit} are allowed");
}

fn open(path: &Path) -> Database {
    Options::new().memory_budget(BUDGET_BYTES).open(path).unwrap()
}

fn key(number: u64) -> String {
    format!("key-{number:012}")
}

fn value(number: u64, version: u64) -> Vec<u8> {
    (number * 31 + version).to_le_bytes().repeat(VALUE_BYTES / 8)
}

/// Returns `count` record numbers, far from one another.
fn some(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|step| step * 7_919 % RECORDS)
}

fn read(table: &Table, version: u64) {
    for number in some(3_000) {
        let found = table.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number, version)[..]), "{number}");
    }
    let keys: Vec<String> = some(6_000).map(key).collect();
    for keys in keys.chunks(1_000) {
        assert!(table.multi_get(keys).unwrap().iter().all(Option::is_some));
    }
}

#[test]
fn a_table_larger_than_the_budget_stays_within_it() {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-trie-{}", std::process::id()));
    let db = open(&path);
    let table = db.create_table("t", TableOptions::new(EngineKind::Trie)).unwrap();
    for number in 0..RECORDS {
        table.put(key(number), value(number, 0)).unwrap();
    }
    check_peak("loaded");
    read(&table, 0);
    check_peak("read");
    for number in some(3_000) {
        table.put(key(number), value(number, 1)).unwrap();
    }
    check_peak("updated");
    drop(table);
    drop(db);

    let db = open(&path);
    let table = db.table("t").unwrap();
    read(&table, 1);
    check_peak("opened again and read");
    for number in (0..RECORDS).filter(|number| number % 3 == 1) {
        table.delete(key(number)).unwrap();
    }
    table.compact().unwrap();
    check_peak("compacted");
    assert!(db.check().unwrap().is_sound());
    check_peak("checked");
    db.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}
