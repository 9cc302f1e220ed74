//! What stays in memory when blocks are written anew.

use super::*;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A table that is many times its cache, which is full of what was read.
fn full() -> Slm {
    let (engine, _) = Bench::new(48).open();
    for number in 0..6_000 {
        put(&engine, number + 1, &key(number), &[7; 100]);
    }
    engine.checkpoint(Lsn(6_001)).unwrap();
    assert!(reads(&engine, (0..6_000).step_by(10)) > 500);
    engine
}

/// How often a run is read when these keys are.
fn reads(engine: &Slm, numbers: impl IntoIterator<Item = u64>) -> u64 {
    let before = detail(engine, "reads_total");
    for number in numbers {
        assert!(engine.get(&key(number)).unwrap().is_some(), "{number}");
    }
    detail(engine, "reads_total") - before
}

#[test]
fn what_was_just_flushed_is_in_memory() {
    let engine = full();
    let some = || (0..6_000).step_by(150);
    assert!(reads(&engine, some()) > 30, "the cache has it all");
    for number in some() {
        put(&engine, 10_000 + number, &key(number), &[8; 100]);
    }
    engine.checkpoint(Lsn(20_000)).unwrap();
    assert_eq!(reads(&engine, some()), 0);
}

#[test]
fn what_is_read_often_stays_in_memory_through_a_merge() {
    let engine = full();
    let some = || (0..6_000).step_by(300);
    assert!(reads(&engine, some()) > 15, "the cache has it all");
    reads(&engine, some());
    assert_eq!(reads(&engine, some()), 0);
    engine.maintain(MaintenanceMode::Full).unwrap();
    assert_eq!(reads(&engine, some()), 0);
    check(&engine);
}
