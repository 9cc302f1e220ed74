//! Puts where memory is short: how often they wait for the disk.

use super::*;
use crate::io::sim::Call;

/// Syncs of a thousand puts of new keys, by a writer that no background helps, in chunks of 16 KiB.
fn syncs_of_thousand_puts(budget: u64, value_bytes: usize) -> usize {
    let bench = Bench::new(21).with_budget(budget);
    let (table, _) = bench.open();
    let put_all = |from: u64, to: u64| {
        for lsn in from..to {
            put(&table, lsn, format!("key{lsn:06}").as_bytes(), &vec![7; value_bytes]);
        }
    };
    put_all(1, 501);
    let before = bench.env.calls(&[Call::Sync]);
    put_all(501, 1501);
    let syncs = bench.env.calls(&[Call::Sync]) - before;
    assert_eq!(table.stats().keys, 1500);
    check(&table);
    usize::try_from(syncs).unwrap()
}

#[test]
fn puts_with_little_memory_share_their_syncs() {
    for (budget, value_bytes, most) in [
        (100 << 10, 100, 12),
        (200 << 10, 100, 6),
        (1 << 20, 100, 1),
        (100 << 10, 3000, 130),
        (200 << 10, 3000, 50),
        (1 << 20, 3000, 6),
        // In places of their own.
        (100 << 10, 6000, 180),
        (200 << 10, 6000, 80),
        (1 << 20, 6000, 12),
    ] {
        let syncs = syncs_of_thousand_puts(budget, value_bytes);
        println!("{budget} bytes of memory, values of {value_bytes}: {syncs} syncs");
        assert!(syncs <= most, "{budget}, {value_bytes}: {syncs}");
    }
}
