//! Runs that are merged at rest because they lie over one another.

use super::*;

/// How many runs the background would merge.
fn picked(engine: &Slm) -> usize {
    engine.table.pick().map_or(0, |runs| runs.len())
}

#[test]
fn fewer_runs_lie_over_one_another_at_rest_than_while_somebody_writes() {
    let engine = of_runs(62, &[100; 6]);
    put(&engine, 601, b"somebody writes", b"value");
    engine.table.scan_leaves().unwrap();
    assert_eq!(picked(&engine), 0);
    engine.checkpoint(Lsn(602)).unwrap();
    // The run of the one key is over no other.
    assert_eq!(picked(&engine), 6);
    background(&engine, 602);
    // They follow one another now.
    assert_eq!(picked(&engine), 0);
    check(&engine);
    // Three are few enough.
    assert_eq!(picked(&of_runs(63, &[100; 3])), 0);
}

#[test]
fn a_few_entries_from_all_over_are_no_reason_to_write_others_again() {
    let engine = of_runs(64, &[]);
    for part in 0..8 {
        add_runs(&engine, &[100], part * 125_000..(part + 1) * 125_000);
    }
    add_runs(&engine, &[5; 3], 0..1_000_000);
    assert_eq!(picked(&engine), 0);
    // Once there are four, these are merged with one another alone.
    add_runs(&engine, &[5], 0..1_000_000);
    let few = engine.table.pick().unwrap();
    assert!(few.len() == 4 && few.iter().all(|run| run.entries() == 5));
}

#[test]
fn order_at_rest_is_switched_off_with_that_of_leaves() {
    let (engine, _) = Bench::new(65).set("leaf_threshold", "0").open();
    add_runs(&engine, &[100; 6], 0..1_000_000);
    assert_eq!(picked(&engine), 0);
}

/// A merge that leaves out the run that all the others lie over changes nothing, for ever.
#[test]
fn the_run_that_others_lie_over_is_merged_with_them_where_not_all_can_be() {
    let (engine, _) = Bench::new(66).set("merge_runs", "3").open();
    // The older ones come first among the runs, and a merge takes three.
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
