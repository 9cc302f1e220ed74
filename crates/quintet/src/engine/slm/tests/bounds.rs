//! Options, memory limits, and bytes written.

use super::*;
use crate::engine::slm::{compaction_picker::overlap, run::SortedRun};

#[test]
fn options_are_checked_and_a_closed_table_releases_its_memory() {
    let bench = Bench::new(20);
    let wrong = [("live_ratio", "101"), ("merge_runs", "1"), ("page_bytes", "5"), ("x", "1")];
    test_bench::refuse_options(&bench, &wrong);
    test_bench::release_memory(&bench);
}

#[test]
fn a_journal_larger_than_the_index_cache_is_written_back_in_the_background() {
    let bench = Bench::new(31);
    let (engine, _) = bench.open();
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_be_bytes();
    for round in 0..2 {
        for number in 0..20_000 {
            put(&engine, round * 20_000 + number + 1, &key(number), &round.to_be_bytes());
        }
        engine.checkpoint(Lsn(round * 20_000 + 20_001)).unwrap();
    }
    drop(engine);
    let bench = bench.set("index_cache_bytes", "65536");
    let (engine, lsn) = bench.open();
    assert!(engine.table.paged.is_overlay_too_large());
    background(&engine, lsn.0);
    assert!(!engine.table.paged.tree.cache().has_overlay());
    for number in 0..20_000 {
        assert_eq!(engine.get(&key(number)).unwrap().unwrap(), 1_u64.to_be_bytes());
    }
}

#[test]
fn a_small_budget_causes_flushes_and_is_never_exceeded() {
    let bench = Bench::new(21).set("cache_bytes", "1048576").with_budget(6 << 20);
    test_bench::exceed_budget(&bench);
}

#[test]
fn the_block_cache_takes_the_memory_that_the_index_leaves() {
    let options = TableOptions::new(EngineKind::Slm).set("page_bytes", "4096");
    let bench = Bench::new(23).with_options(options).with_budget(8 << 20);
    let (budget, (engine, _)) = (&bench.budget, bench.open());
    let mut step = 0;
    let mut fill = |keys: ops::Range<u64>, key_bytes: usize, value_bytes: usize| {
        let key = |number: u64| format!("{number:0key_bytes$}").into_bytes();
        for number in keys.clone() {
            step += 1;
            put(&engine, step, &key(number), &vec![low(number); value_bytes]);
        }
        engine.checkpoint(Lsn(step)).unwrap();
        for number in keys {
            assert_eq!(engine.get(&key(number)).unwrap().unwrap(), vec![low(number); value_bytes]);
        }
        assert!(budget.used() <= 8 << 20, "{}", budget.used());
        detail(&engine, "cache_bytes")
    };
    let alone = fill(0..12_000, 10, 500);
    assert!(alone > 4 << 20, "more than three eighths of memory: {alone}");
    let beside = fill(1_000_000..1_060_000, 60, 10);
    // The index takes the rest: an idle table holds no memory of memtables.
    assert!(beside <= 7 << 19, "seven sixteenths: {beside}");
    check(&engine);
}

#[test]
fn a_full_compaction_leaves_runs_that_do_not_overlap() {
    let (engine, rows) = load(&Bench::new(22), 1 << 40, 6_000);
    engine.maintain(MaintenanceMode::Full).unwrap();
    let view = engine.table.write_buffer.view.load_full();
    let mut runs: Vec<_> = view.version.iter().collect();
    runs.sort_by(|one, other| one.low.cmp(&other.low));
    assert!(runs.len() > 5);
    assert!(runs.windows(2).all(|pair| pair[0].high < pair[1].low));
    let bounds = |run: &SortedRun| (run.low.clone(), run.high.clone());
    let (one, other) = (bounds(runs[0]), bounds(runs[1]));
    assert_eq!(overlap((&one.0, &one.1), (&other.0, &other.1)), 0);
    compare(&engine, &rows);
}

/// Prints the write amplification.
#[test]
#[ignore = "prints figures: run it with --nocapture"]
fn bytes_written_for_each_user_byte() {
    for (name, keys, value, memtable) in
        [("100 bytes", 400_000, 100, 4 << 20), ("1000 bytes", 100_000, 1000, 8 << 20)]
    {
        let memtable: u64 = memtable;
        let options = TableOptions::new(EngineKind::Slm)
            .set("memtable_bytes", memtable.to_string())
            .set("run_bytes", (memtable / 2).to_string());
        let bench = Bench::new(1).with_options(options).with_budget(256 << 20);
        let (engine, _) = bench.open();
        let (mut random, mut user, mut since, count) = (Random(7), 0, 0, keys * 2);
        for step in 1..=count {
            let key = format!("{:020}", random.below(keys));
            put(&engine, step, key.as_bytes(), &vec![low(step); value]);
            user += to_u64(key.len() + value);
            since += to_u64(key.len() + value);
            if since > 2 * memtable {
                // The database does this for its recovery budget.
                since = 0;
                engine.checkpoint(Lsn(step)).unwrap();
            }
            if engine.pending_work() == PendingWork::Maintain {
                background(&engine, step);
            }
        }
        engine.checkpoint(Lsn(count)).unwrap();
        background(&engine, count);
        let stats = engine.stats();
        let share = |bytes: u64| bytes * 100 / user;
        let index = detail(&engine, "index_written_bytes_total");
        println!(
            "{name}: written {} % of what users wrote, index {} %; runs {}, merges {}, cuts {}, \
             dead {} %; index {} bytes a key in pages",
            share(stats.written_bytes_total),
            share(index),
            detail(&engine, "runs"),
            detail(&engine, "merges_total"),
            detail(&engine, "cuts_total"),
            stats.dead_bytes * 100 / (stats.live_bytes + stats.dead_bytes),
            stats.index_bytes / stats.keys.max(1),
        );
    }
}

fn full_disk() {
    test_bench::apply_logged_on_a_full_disk(&Bench::new(61).with_budget(4 << 20));
    test_bench::delete_on_a_full_disk(&Bench::new(62).with_budget(4 << 20));
}

#[test]
fn a_full_disk_is_not_tried_for_each_change() {
    full_disk();
    finds(Bug::RoomTriesEachTime, full_disk);
    finds(Bug::RoomIsUnbounded, full_disk);
}

fn without_memory() {
    test_bench::change_without_memory(&Bench::new(63).with_budget(4 << 20));
}

#[test]
fn changes_go_on_without_memory() {
    without_memory();
    finds(Bug::RoomNeedsMemory, without_memory);
}

fn waits() {
    test_bench::wait_together(&Bench::new(64).with_budget(1 << 20));
}

#[test]
fn operations_of_a_commit_wait_together() {
    waits();
    finds(Bug::WaitsAreApart, waits);
}
