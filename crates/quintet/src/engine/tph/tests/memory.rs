//! Options, and the memory budget.

use super::*;

#[test]
fn options_are_checked_and_memory_is_released() {
    let bench = Bench::new(14, "sorted");
    let wrong = [("mode", "tree"), ("max_pieces", "0"), ("block_bytes", "5"), ("x", "1")];
    test_bench::refuse_options(&bench, &wrong);
    test_bench::release_memory(&bench);
}

#[test]
fn writers_flush_and_keep_to_a_small_budget() {
    let bench = Bench::new(15, "sorted").with_budget(4 << 20);
    let bench = bench.set("cache_bytes", "2097152");
    let engine = test_bench::exceed_budget(&bench);
    // A running merge has most of the memory: writers do not wait for its end.
    let merging = lock(&engine.store.compacting);
    let merge_memory = bench.budget.reserve_transient(3 << 20);
    for step in 20_000..30_000 {
        put(&engine, step, &test_bench::budget_key(step), &[7; 500]);
    }
    assert_eq!(engine.store.write_buffer.reserved(), 0, "reserved twice");
    drop(merge_memory);
    drop(merging);
    check(&engine);
}

#[test]
fn a_full_disk_is_not_tried_for_each_change() {
    test_bench::apply_logged_on_a_full_disk(&Bench::new(16, "sorted").with_budget(4 << 20));
    test_bench::delete_on_a_full_disk(&Bench::new(17, "sorted").with_budget(4 << 20));
}

#[test]
fn changes_go_on_without_memory() {
    test_bench::change_without_memory(&Bench::new(18, "sorted").with_budget(4 << 20));
}

#[test]
fn operations_of_a_commit_wait_together() {
    test_bench::wait_together(&Bench::new(19, "sorted").with_budget(1 << 20));
}
