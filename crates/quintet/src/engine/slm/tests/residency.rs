//! Which blocks are cached after flushes and merges.

use super::*;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Returns a table many times as large as its block cache, which is full.
fn full() -> Slm {
    let (engine, _) = Bench::new(48).open();
    for number in 0..6_000 {
        put(&engine, number + 1, &key(number), &[7; 100]);
    }
    engine.checkpoint(Lsn(6_001)).unwrap();
    assert!(reads(&engine, (0..6_000).step_by(10)) > 500);
    engine
}

/// Gets these keys and returns the number of disk reads.
fn reads(engine: &Slm, numbers: impl IntoIterator<Item = u64>) -> u64 {
    let before = detail(engine, "reads_total");
    for number in numbers {
        assert!(engine.get(&key(number)).unwrap().is_some(), "{number}");
    }
    detail(engine, "reads_total") - before
}

#[test]
fn flushed_entries_are_cached() {
    let engine = full();
    let some = || (0..6_000).step_by(150);
    assert!(reads(&engine, some()) > 30, "the cache has all of them");
    for number in some() {
        put(&engine, 10_000 + number, &key(number), &[8; 100]);
    }
    engine.checkpoint(Lsn(20_000)).unwrap();
    assert_eq!(reads(&engine, some()), 0);
}

#[test]
fn used_blocks_stay_cached_through_a_merge() {
    let engine = full();
    let some = || (0..6_000).step_by(300);
    assert!(reads(&engine, some()) > 15, "the cache has all of them");
    reads(&engine, some());
    assert_eq!(reads(&engine, some()), 0);
    engine.maintain(MaintenanceMode::Full).unwrap();
    assert_eq!(reads(&engine, some()), 0);
    check(&engine);
}
