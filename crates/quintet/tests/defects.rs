//! Defects that were found in review, each with the behaviour that callers rely on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "an allocator that counts bytes")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
    time::Duration,
};

use quintet::{
    Database, EngineKind, Error, Options, PutOptions, Table, TableOptions,
    testing::disk::sim::SimEnv,
};

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated.
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator; the count is a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get() + layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn ordered() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.into_iter().filter(|kind| kind.is_ordered())
}

/// Opens a new database on a simulated system, whose background jobs do not run.
fn open(kind: EngineKind) -> (Database, Table) {
    let options = Options::new().memory_budget(32 << 20);
    let db = options.open_in(Arc::new(SimEnv::new(31)), "db").unwrap();
    let table = db.create_table("t", TableOptions::new(kind)).unwrap();
    (db, table)
}

#[test]
fn every_ordered_engine_estimates_the_keys_of_a_range() {
    const KEYS: u32 = 20_000;
    for kind in ordered() {
        let (db, table) = open(kind);
        let estimate = |from: u32, to: u32| {
            table.estimate_count(from.to_be_bytes()..to.to_be_bytes()).unwrap()
        };
        assert_eq!(table.estimate_count(..).unwrap(), 0, "{kind}");
        for number in 0..KEYS {
            table.put(number.to_be_bytes(), [7; 100]).unwrap();
        }
        for state in ["in memory", "in files"] {
            for (from, to) in [(0, KEYS), (0, KEYS / 2), (KEYS / 4, KEYS / 2)] {
                let (found, keys) = (estimate(from, to), u64::from(to - from));
                let small_factor = keys / 4..=keys * 4;
                assert!(small_factor.contains(&found), "{kind}, {state}: {found} of {keys} keys");
            }
            let beyond = estimate(KEYS, KEYS * 2);
            assert!(beyond < u64::from(KEYS) / 10, "{kind}, {state}: {beyond} keys of none");
            db.persist().unwrap();
        }
    }
}

#[test]
fn the_error_for_an_unordered_table_names_every_ordered_engine() {
    for kind in EngineKind::ALL.into_iter().filter(|kind| !kind.is_ordered()) {
        let (_db, table) = open(kind);
        let error = table.range(..).unwrap_err();
        assert!(matches!(error, Error::Unordered { .. }), "{error}");
        for ordered in ordered() {
            let message = error.to_string();
            assert!(message.contains(ordered.name()), "{ordered} is missing: {message}");
        }
    }
}

/// Ranges and rounds of persisting make the background want a compaction. That must not make the
/// user's `compact` do less.
#[test]
fn compact_does_all_of_its_work_whatever_the_background_wants() {
    for kind in [EngineKind::Slm, EngineKind::Tph] {
        let (_db, table) = open(kind);
        for round in 0..12_u64 {
            for number in 0..2_000_u64 {
                let key = (number * 7919 + round * 31) % 4_000;
                table.put(key.to_be_bytes(), [7; 100]).unwrap();
            }
            table.persist().unwrap();
            assert!(table.range(..).unwrap().all(|entry| entry.is_ok()));
            // Asks the engine what it wants, and writes nothing.
            table.persist().unwrap();
            if round % 4 == 3 {
                table.compact().unwrap();
                let dead = table.stats().unwrap().dead_bytes;
                assert_eq!(dead, 0, "{kind}, round {round}: bytes are left that are dead");
            }
        }
    }
}

#[test]
fn contains_copies_no_value() {
    const VALUE_BYTES: usize = 8 << 10;
    for kind in EngineKind::ALL {
        let (db, table) = open(kind);
        table.put("plain", vec![7; VALUE_BYTES]).unwrap();
        let hour = PutOptions::new().ttl(Duration::from_hours(1));
        table.put_with("expiring", vec![7; VALUE_BYTES], hour).unwrap();
        for state in ["in memory", "in files"] {
            // What is read from a file first goes to the cache.
            for key in ["plain", "expiring", "absent"] {
                table.get(key).unwrap();
                table.get(key).unwrap();
                let before = ALLOCATED_BYTES.get();
                assert_eq!(table.contains(key).unwrap(), key != "absent", "{kind}, {state}");
                let bytes = ALLOCATED_BYTES.get() - before;
                assert!(bytes < VALUE_BYTES / 2, "{kind}, {state}, {key}: {bytes} bytes allocated");
            }
            db.persist().unwrap();
        }
    }
}
