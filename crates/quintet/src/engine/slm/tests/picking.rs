//! Overlapping runs that an idle table merges.

use super::*;

/// Returns the number of runs that the background would merge.
fn picked(engine: &Slm) -> usize {
    engine.table.pick().map_or(0, |runs| runs.len())
}

#[test]
fn an_idle_table_merges_overlapping_runs_that_a_busy_one_keeps() {
    let engine = of_runs(62, &[100; 6]);
    put(&engine, 601, b"a write", b"value");
    engine.table.scan_leaves().unwrap();
    assert_eq!(picked(&engine), 0);
    engine.checkpoint(Lsn(602)).unwrap();
    // The run with one key overlaps no other.
    assert_eq!(picked(&engine), 6);
    background(&engine, 602);
    // They do not overlap now.
    assert_eq!(picked(&engine), 0);
    check(&engine);
    // Three are too few.
    assert_eq!(picked(&of_runs(63, &[100; 3])), 0);
}

#[test]
fn a_run_with_a_few_entries_does_not_cause_others_to_be_rewritten() {
    let engine = of_runs(64, &[]);
    for part in 0..8 {
        add_runs(&engine, &[100], part * 125_000..(part + 1) * 125_000);
    }
    add_runs(&engine, &[5; 3], 0..1_000_000);
    assert_eq!(picked(&engine), 0);
    // Four such runs are merged with each other, without the others.
    add_runs(&engine, &[5], 0..1_000_000);
    let few = engine.table.pick().unwrap();
    assert!(few.len() == 4 && few.iter().all(|run| run.entries() == 5));
}

#[test]
fn leaf_threshold_0_disables_merges_of_idle_tables() {
    let (engine, _) = Bench::new(65).set("leaf_threshold", "0").open();
    add_runs(&engine, &[100; 6], 0..1_000_000);
    assert_eq!(picked(&engine), 0);
}

/// A merge without the run that all others overlap would change nothing, and would be picked again.
#[test]
fn the_most_overlapped_run_is_merged_if_not_all_can_be() {
    let (engine, _) = Bench::new(66).set("merge_runs", "3").open();
    // Older runs come first in the set, and a merge takes three.
    for part in 0..3 {
        add_runs(&engine, &[100], part * 100_000..(part + 1) * 100_000);
    }
    add_runs(&engine, &[300], 0..300_000);
    let wide = engine.table.write_buffer.view.load().version.iter().last().map(|run| run.number);
    let runs = engine.table.pick().unwrap();
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().any(|run| Some(run.number) == wide), "{runs:?}");
    background(&engine, 2_000);
    assert_eq!(picked(&engine), 0);
    check(&engine);
}

/// A full compaction of more runs than the budget has buffers for.
fn full_compaction() {
    let bench = Bench::new(67).with_budget(4 << 20).set("merge_runs", "64");
    let (engine, _) = bench.open();
    add_runs(&engine, &[20; 40], 0..1_000_000);
    assert_eq!(detail(&engine, "merges_total"), 0);
    engine.table.compact_all().unwrap();
    // 16 runs at a time: 40 leave 25, 25 leave 10, and the third merge has the rest.
    assert_eq!(detail(&engine, "merges_total"), 3);
    assert_eq!(engine.table.write_buffer.view.load().version.len(), 1);
    assert_eq!(engine.stats().keys, 800);
    check(&engine);
}

#[test]
fn a_full_compaction_holds_no_buffer_of_each_run() {
    full_compaction();
    finds(Bug::SlmCompactsAtOnce, full_compaction);
}
