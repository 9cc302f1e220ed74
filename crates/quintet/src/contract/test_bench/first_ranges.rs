//! Tests of the first range after many writes, on one engine: the number of entries that it orders.

use super::{Bench, compare, detail, put};
use crate::contract::Engine;

/// Writes of one test. They fill several memtables.
const WRITES: u64 = 20_000;

/// Whatever was written before, the next range has few entries to order: those since the last task,
/// and a fraction of the active memtable.
pub(crate) fn ranges_order_few_entries<E: Engine>(bench: &Bench<E>) {
    let (engine, _) = bench.open();
    let (mut rows, mut tasks) = (super::Rows::new(), 0);
    for lsn in 1..=WRITES {
        // Every eleventh write is to one key.
        let number = if lsn % 11 == 0 { 0 } else { lsn * 7919 % 5_000 };
        let (key, value) = (format!("{number:06}").into_bytes(), lsn.to_le_bytes().to_vec());
        put(&engine, lsn, &key, &value);
        rows.insert(key, value);
        if lsn % 50 == 0 {
            tasks += bench.host.run_tasks();
        }
    }
    assert!(tasks > 5, "{tasks} tasks");
    assert!(tasks < 800, "{tasks} tasks: each orders few entries");
    let unordered = detail(&engine, "unordered_entries");
    assert!(unordered < WRITES / 20, "{unordered} entries are unordered");
    compare(&engine, &rows);
}
