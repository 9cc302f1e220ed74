//! Tests of the engine alone against a plain map. Memtables and runs are small, so that all paths
//! run.

mod bounds;
mod coded_keys;
mod durability;
mod idle;
mod location_cache;
mod offset_parts;
mod pausing;
mod picking;
mod pool;
mod pool_crashes;
mod queues;
mod reads;
mod residency;
mod visiting;

use std::{collections::BTreeMap, ops, sync::Arc};

use super::{index_update::IndexUpdates, *};
use crate::{
    contract::{
        EngineKind,
        test_bench::{
            self, Mix, Random, Rows, background, check, compare, delete, detail, load, low, put,
        },
    },
    io::sim::{Call, Effect, Fault, Policy, When},
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{MemtableCursor, ScanStart, SortedCursor as _},
    },
    util::{
        codec::{to_u64, to_usize},
        mutant::{Bug, finds},
        sync::{Ordering, lock},
    },
};

type Bench = test_bench::Bench<Slm>;

impl Bench {
    fn new(seed: u64) -> Self {
        let options = TableOptions::new(EngineKind::Slm)
            .set("memtable_bytes", "65536")
            .set("run_bytes", "65536")
            .set("block_bytes", "1024")
            .set("page_bytes", "4096")
            .set("leaf_threshold", "3")
            .set("range_threshold", "2")
            .set("range_keys", "10")
            .set("compaction_runs", "2")
            .set("merge_runs", "4")
            // So small that blocks are evicted.
            .set("cache_bytes", "131072");
        Self::with(seed, options, |options, context, _| Slm::open(options, context))
    }
}

fn run(bench: &Bench, seed: u64, steps: u64, keys: u64) -> Slm {
    test_bench::run(bench, &Mix::LSM, seed, (steps, keys)).0
}

/// Existence hints for keys in runs: absent, present, and with a value that may expire.
fn existence_hints() {
    let bench = Bench::new(33).set("cache_bytes", "0");
    let (engine, _) = bench.open();
    for number in 0..2_000_u64 {
        let value = if number % 4 == 0 { "expires later" } else { "stays" };
        put(&engine, number, &number.to_be_bytes(), value.as_bytes());
    }
    let ask = |number: u64| engine.exists_hint(&number.to_be_bytes()).unwrap();
    // A memtable has the value itself.
    assert_eq!(ask(1), Presence::InValue);
    engine.checkpoint(Lsn(2_000)).unwrap();
    for _ in 0..2 {
        let before = detail(&engine, "reads_total");
        for number in 0..2_000 {
            let kept = if number % 4 == 0 { Presence::InValue } else { Presence::Present };
            assert_eq!(ask(number), kept, "{number}");
        }
        assert!((2_000..3_000).all(|number| ask(number) == Presence::Absent));
        assert_eq!(detail(&engine, "reads_total"), before, "runs were read");
        // A merge keeps the hints.
        engine.maintain(MaintenanceMode::Full).unwrap();
    }
}

#[test]
fn the_index_answers_existence_hints_without_reading_runs() {
    existence_hints();
    finds(Bug::SlmTakesAllForLasting, existence_hints);
}

#[test]
fn agrees_with_a_map() {
    let engine = run(&Bench::new(1), 1, 12_000, 1_000);
    assert!(detail(&engine, "flushes_total") > 0);
    run(&Bench::new(2), 2, 6_000, 20);
    run(&Bench::new(3).set("compression", "lz4"), 3, 6_000, 1_000);
}

#[test]
fn agrees_with_a_map_without_any_selection() {
    let bench = Bench::new(4).set("live_ratio", "0");
    let bench = bench.set("leaf_threshold", "0").set("range_threshold", "0");
    run(&bench, 4, 6_000, 1_000);
}

/// Returns a table with runs of these numbers of keys, all over the same range. They are too few
/// for candidates by leaves or by size.
pub(super) fn of_runs(seed: u64, counts: &[u64]) -> Slm {
    let bench = Bench::new(seed).set("leaf_threshold", "10").set("merge_runs", "64");
    let (engine, _) = bench.open();
    add_runs(&engine, counts, 0..1_000_000);
    engine
}

/// Adds runs of these numbers of keys, all over a range.
fn add_runs(engine: &Slm, counts: &[u64], keys: ops::Range<u64>) {
    for count in counts {
        let version = Arc::clone(&engine.table.write_buffer.view.load().version);
        let (first, number): (u64, usize) =
            (version.iter().map(|run| run.entries()).sum(), version.len());
        for place in 0..*count {
            let key = keys.start + (keys.end - keys.start) * place / count;
            let key = (key * 100 + to_u64(number)).to_be_bytes();
            put(engine, first + place + 1, &key, b"value");
        }
        engine.checkpoint(Lsn(first + count)).unwrap();
    }
}

#[test]
fn each_selection_works_alone() {
    let only = |name: &str| {
        let mut bench = Bench::new(5);
        for other in ["live_ratio", "leaf_threshold", "range_threshold"] {
            if other != name {
                bench = bench.set(other, "0");
            }
        }
        bench
    };
    let (engine, _) = load(&only("live_ratio"), 3_000, 20_000);
    assert!(detail(&engine, "merges_for_dead_total") > 3);
    assert_eq!(detail(&engine, "merges_for_leaves_total"), 0);
    assert!(engine.stats().dead_bytes < engine.stats().live_bytes);
    let (engine, _) = load(&only("leaf_threshold"), 1 << 40, 12_000);
    assert!(detail(&engine, "merges_for_leaves_total") > 3);
    assert_eq!(detail(&engine, "merges_for_dead_total"), 0);
    let (engine, rows) = load(&only("range_threshold").set("merge_runs", "200"), 1 << 40, 6_000);
    background(&engine, 1 << 30);
    // The ranges of `compare` have made candidates.
    assert!(detail(&engine, "merges_for_ranges_total") > 0);
    compare(&engine, &rows);
}

#[test]
fn small_runs_are_merged() {
    let bench = Bench::new(6);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..200_u64 {
        let key = format!("{step:05}").into_bytes();
        put(&engine, step, &key, b"value");
        rows.insert(key, b"value".to_vec());
        engine.checkpoint(Lsn(step)).unwrap();
        background(&engine, step);
    }
    assert!(detail(&engine, "runs") <= 12, "{}", detail(&engine, "runs"));
    assert!(detail(&engine, "merges_for_small_total") > 3);
    compare(&engine, &rows);
}

#[test]
fn a_get_reads_one_block_and_none_for_an_absent_key() {
    let (engine, rows) = load(&Bench::new(7).set("cache_bytes", "0"), 6_000, 9_000);
    engine.checkpoint(Lsn(1 << 20)).unwrap();
    let before = detail(&engine, "reads_total");
    for key in rows.keys() {
        engine.get(key).unwrap().unwrap();
    }
    assert_eq!(detail(&engine, "reads_total") - before, to_u64(rows.len()));
    let before = detail(&engine, "reads_total");
    for number in 0..1000 {
        assert!(engine.get(format!("absent-{number}").as_bytes()).unwrap().is_none());
    }
    assert_eq!(detail(&engine, "reads_total"), before);
}

#[test]
fn cached_blocks_are_not_read_again() {
    let (engine, rows) = load(&Bench::new(8).set("cache_bytes", "4194304"), 6_000, 9_000);
    engine.checkpoint(Lsn(1 << 20)).unwrap();
    background(&engine, 1 << 20);
    let all = || {
        let before = detail(&engine, "reads_total");
        for (key, value) in &rows {
            assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
        assert!(found.iter().flatten().map(|value| &**value).eq(rows.values()));
        detail(&engine, "reads_total") - before
    };
    all();
    assert_eq!(all(), 0);
    assert!(detail(&engine, "cache_bytes") > 0);
    compare(&engine, &rows);
}

#[test]
fn a_full_compaction_leaves_no_dead_or_expired_entries() {
    let bench = Bench::new(9);
    let engine = test_bench::compact_expired(&bench);
    assert_eq!(detail(&engine, "runs"), 0);
    assert!(bench.env.files().iter().all(|(path, _)| path.rsplit('.').next() != Some("run")));
}

#[test]
fn values_of_all_sizes_are_stored() {
    test_bench::compare_values_of_all_sizes(&Bench::new(10));
}

/// The updates of a flush or a merge take a part of the budget: a run of small entries ends early.
#[test]
fn updates_of_small_entries_take_a_part_of_the_budget() {
    for budget in [1 << 20, 16 << 20, 1 << 30] {
        let most = IndexUpdates::memory_bytes(u64::MAX, u64::MAX / 2, budget);
        assert!(most <= (budget / 16).max(1 << 20), "{most} bytes of {budget}");
    }
    let bench = Bench::new(90).set("memtable_bytes", "1048576").set("run_bytes", "1048576");
    let bench = bench.with_budget(8 << 20);
    let (engine, _) = bench.open();
    for number in 0..20_000_u32 {
        put(&engine, 1, &number.to_be_bytes(), b"");
    }
    engine.table.flush_all().unwrap();
    let runs = engine.table.write_buffer.view.load_full().version.iter().count();
    assert!(runs >= 4, "{runs} runs");
    check(&engine);
}
