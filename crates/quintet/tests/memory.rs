//! The memory budget bounds the process. A `naive` table is filled until it refuses writes, opened
//! again from the log alone, persisted, and opened from its snapshot.
//!
//! The process, which does nothing else, never holds more than the budget and a stated constant.
//! Mapped pages of files have a second constant.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use quintet::{Database, EngineKind, Error, Options, Result, TableOptions};

const BUDGET_BYTES: u64 = 64 << 20;
/// Bytes outside the budget: stacks and data of the program, one window of the log and one block
/// of a snapshot at a time (2 MiB), freed memory that the allocator keeps.
const BESIDE_BYTES: u64 = 2 << 20;
/// Bytes of mapped file pages beside that: the program, and pages of the log that no sync has
/// written yet. The number of those depends on the disk.
const FILES_BYTES: u64 = 20 << 20;
/// Sizes of values. Small entries are nearly all overhead, large ones nearly all value.
const VALUE_BYTES: [usize; 3] = [8, 300, 10_000];

/// Peak of anonymous memory since the last reading, in bytes.
static MOST_OWN: AtomicU64 = AtomicU64::new(0);

/// Returns a figure of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Samples anonymous memory in a loop: the kernel keeps no high-water mark of it.
fn watch() {
    loop {
        MOST_OWN.fetch_max(status("RssAnon:"), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open(path: &Path) -> Result<Database> {
    // No persist in the background, so that the first opening replays the whole log.
    Options::new().memory_budget(BUDGET_BYTES).recovery_budget(1 << 30).open(path)
}

fn count(db: &Database) -> u64 {
    db.stats().tables.iter().map(|table| table.keys).sum()
}

fn check_peak(when: &str) {
    let (all, limit) = (status("VmHWM:"), BUDGET_BYTES + BESIDE_BYTES);
    let own = MOST_OWN.swap(0, Ordering::Relaxed).max(status("RssAnon:"));
    // Resets the high-water mark. Where that is not permitted, the mark covers the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    println!("{when}: peak {} KiB, limit {}; with files {}", own >> 10, limit >> 10, all >> 10);
    assert!(own <= limit, "{when}: the process held {own} bytes, {limit} are allowed");
    let limit = limit + FILES_BYTES;
    assert!(all <= limit, "{when}: with files it held {all} bytes, {limit} are allowed");
}

fn fill_and_reopen(path: &Path, value_bytes: usize) {
    let value = vec![7; value_bytes];
    let key = |number: u64| format!("key-{number:010}");
    let db = open(path).unwrap();
    let options = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "1099511627776");
    let table = db.create_table("t", options).unwrap();
    let mut written = 0;
    let refusal = loop {
        match table.put(key(written), &value) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, Error::OutOfMemory { budget: BUDGET_BYTES, .. }), "{refusal}");
    check_peak(&format!("{written} values of {value_bytes} bytes"));
    // Deletes make room for new writes.
    table.delete(key(0)).unwrap();
    table.put(key(0), &value).unwrap();
    assert!(written * (u64::try_from(value_bytes).unwrap() + 150) > BUDGET_BYTES / 2, "{written}");
    drop(table);
    db.close().unwrap();
    drop(db);

    let db = open(path).unwrap();
    assert_eq!(count(&db), written, "replayed from the log");
    check_peak("opened from the log");
    let refused = db.table("t").unwrap().put("one-more", &value);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    db.persist().unwrap();
    check_peak("persisted");
    db.close().unwrap();
    drop(db);

    let db = open(path).unwrap();
    assert_eq!(count(&db), written, "loaded from the snapshot");
    assert_eq!(db.table("t").unwrap().get(key(written - 1)).unwrap().unwrap(), value[..]);
    assert!(db.check().unwrap().is_sound());
    check_peak("opened from the snapshot, and checked");
    db.close().unwrap();
}

#[test]
fn a_full_table_stays_within_the_budget_through_recovery_and_persisting() {
    std::thread::spawn(watch);
    let root =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-{}", std::process::id()));
    for value_bytes in VALUE_BYTES {
        let path = root.join(value_bytes.to_string());
        fill_and_reopen(&path, value_bytes);
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::remove_dir_all(&root).unwrap();
}
