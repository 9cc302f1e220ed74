//! Ranges at keys that were deleted.

use super::*;
use crate::contract::test_bench::queues::{
    counts_keys_among_deleted_ones, puts_into_deleted_ranges, queues_pass_few_deleted_keys,
};

fn ranges_find_puts() {
    puts_into_deleted_ranges(&Bench::new(51));
}

#[test]
fn a_step_of_a_queue_passes_few_deleted_keys() {
    queues_pass_few_deleted_keys(|| Bench::new(50));
}

#[test]
fn ranges_find_puts_among_deleted_keys() {
    ranges_find_puts();
    finds(Bug::EmptyRangeKeepsPut, ranges_find_puts);
}

#[test]
fn statistics_count_keys_among_deleted_ones() {
    counts_keys_among_deleted_ones(&Bench::new(52));
}
