//! The location cache of a table.

use super::*;

/// Returns a table whose location cache has room for all keys.
fn roomy(seed: u64) -> Slm {
    Bench::new(seed).set("cache_bytes", "33554432").open().0
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Gets all keys twice and compares the values.
fn agree(engine: &Slm, expected: &dyn Fn(u64) -> Option<u8>) {
    for round in 0..2 {
        for number in 0..2_000 {
            let found = engine.get(&key(number)).unwrap();
            let value = expected(number).map(|byte| vec![byte; 100]);
            assert_eq!(found.as_deref(), value.as_deref(), "key {number}, round {round}");
        }
    }
}

/// Reads keys, then writes some and deletes some, flushes and merges.
fn gets_see_what_was_flushed_since() {
    let engine = roomy(61);
    let mut lsn = 0;
    let mut next = || {
        lsn += 1;
        lsn
    };
    for number in 0..2_000 {
        put(&engine, next(), &key(number), &[1; 100]);
    }
    engine.checkpoint(Lsn(next())).unwrap();
    agree(&engine, &|_| Some(1));
    assert!(detail(&engine, "shortcuts") > 1_000, "{:?}", engine.stats());
    for number in (0..2_000).filter(|number| number % 5 == 0) {
        put(&engine, next(), &key(number), &[2; 100]);
    }
    for number in (0..2_000).filter(|number| number % 5 == 1) {
        delete(&engine, next(), &key(number));
    }
    let expected = |number: u64| match number % 5 {
        0 => Some(2),
        1 => None,
        _ => Some(1),
    };
    agree(&engine, &expected);
    engine.checkpoint(Lsn(next())).unwrap();
    agree(&engine, &expected);
    engine.maintain(MaintenanceMode::Full).unwrap();
    agree(&engine, &expected);
    check(&engine);
}

#[test]
fn a_flush_invalidates_cached_locations() {
    gets_see_what_was_flushed_since();
    finds(Bug::ShortcutsKeepPlace, gets_see_what_was_flushed_since);
}

#[test]
fn absent_keys_are_not_cached() {
    let engine = roomy(62);
    put(&engine, 1, &key(1), &[1; 100]);
    engine.checkpoint(Lsn(2)).unwrap();
    for number in 2..500 {
        assert_eq!(engine.get(&key(number)).unwrap(), None);
    }
    assert_eq!(detail(&engine, "shortcuts"), 0);
    assert!(engine.get(&key(1)).unwrap().is_some());
    assert_eq!(detail(&engine, "shortcuts"), 1);
}

/// If several entries begin in one part of a block, a location does not identify one of them.
#[test]
fn locations_of_small_entries_are_not_cached() {
    let engine = roomy(63);
    for number in 0..2_000_u64 {
        put(&engine, number + 1, &number.to_be_bytes()[5..], &[low(number)]);
    }
    engine.checkpoint(Lsn(2_001)).unwrap();
    for number in 0..2_000_u64 {
        let found = engine.get(&number.to_be_bytes()[5..]).unwrap();
        assert_eq!(found.as_deref(), Some(&[low(number)][..]));
    }
    assert_eq!(detail(&engine, "shortcuts"), 0);
}

/// Writers wait for transient memory, and this memory is never released while the table is open.
#[test]
fn the_memory_of_the_location_cache_is_not_transient() {
    let engine = roomy(64);
    let budget = Arc::clone(&engine.table.context.budget);
    assert_eq!(budget.transient_bytes(), 0);
    assert!(budget.used() >= detail(&engine, "shortcut_bytes"));
    drop(engine);
    assert_eq!(budget.used(), 0);
}
