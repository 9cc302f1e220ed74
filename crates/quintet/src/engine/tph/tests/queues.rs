//! Ranges at keys that were deleted, and first ranges after many writes.

use super::{Bench, MODES};
use crate::{
    contract::test_bench::{
        first_ranges::ranges_order_few_entries,
        queues::{
            counts_keys_among_deleted_ones, puts_into_deleted_ranges, queues_pass_few_deleted_keys,
        },
    },
    util::mutant::{Bug, finds},
};

fn first_ranges() {
    ranges_order_few_entries(&Bench::new(53, "sorted").set("memtable_bytes", "1048576"));
}

#[test]
fn the_first_range_after_many_writes_orders_few_entries() {
    first_ranges();
    finds(Bug::MemtableStaysQueued, first_ranges);
}

fn ranges_find_puts() {
    for mode in MODES {
        puts_into_deleted_ranges(&Bench::new(51, mode));
    }
}

#[test]
fn a_step_of_a_queue_passes_few_deleted_keys() {
    queues_pass_few_deleted_keys(|| Bench::new(50, "sorted"));
    queues_pass_few_deleted_keys(|| Bench::new(50, "single_tier"));
    queues_pass_few_deleted_keys(|| Bench::new(50, "sorted two"));
}

#[test]
fn ranges_find_puts_among_deleted_keys() {
    ranges_find_puts();
    finds(Bug::EmptyRangeKeepsPut, ranges_find_puts);
}

#[test]
fn statistics_count_keys_among_deleted_ones() {
    counts_keys_among_deleted_ones(&Bench::new(52, "sorted"));
}
