//! Statistics, and estimates of the number of keys.

use super::{
    order_cursor::estimate_rows, range::TphRangeSource, store::TphStore, table::TphTable,
    version::SuperVersion,
};
use crate::{
    contract::{EngineStats, KeyRange},
    lsm::range::TwoEndedScan,
    util::{
        codec::to_u64,
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Maximum number of entries of a table whose keys the statistics count exactly.
const COUNTED_ENTRIES_MAX: u64 = 4096;

impl TphStore {
    /// Returns the statistics of the table.
    pub(super) fn stats(&self) -> EngineStats {
        let super_version = self.write_buffer.view.load_full();
        let (version, counters) = (&super_version.version, &self.counters);
        let write_counters = &self.write_buffer.counters;
        let memtables: Vec<_> = super_version.memtables().collect();
        let sum =
            |of: &dyn Fn(&TphTable) -> u64| version.tables().map(|table| of(table)).sum::<u64>();
        let in_memory: u64 = memtables.iter().map(|memtable| memtable.memory_bytes()).sum();
        let unflushed: u64 = memtables.iter().map(|memtable| memtable.payload_bytes()).sum();
        let part =
            |index: usize| sum(&|table| table.memory_bytes().get(index).copied().unwrap_or(0));
        let parts = [part(0), part(1), part(2), part(3), part(4), part(5)];
        let index_bytes = parts.iter().sum();
        let ssts = |table: &TphTable| to_u64(table.ssts.len());
        let file = |table: &TphTable| table.ssts.iter().map(|one| one.sst.file_bytes).sum();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let live_bytes = sum(&TphTable::live_bytes);
        // Before the keys are counted, which orders the entries.
        let unordered_entries = super_version.unordered_entries();
        EngineStats {
            keys: self.count_keys(&super_version),
            live_bytes: live_bytes + unflushed,
            dead_bytes: sum(&TphTable::payload_bytes) - live_bytes,
            file_bytes: sum(&file) + lock(&self.publisher).manifest.bytes(),
            memory_bytes: in_memory + index_bytes + self.cache.blocks.memory_bytes(),
            index_bytes,
            written_bytes_total: load(&counters.written_bytes),
            details: vec![
                ("levels", to_u64(version.levels.len())),
                ("level0_tables", to_u64(version.level0.len())),
                ("tables", to_u64(version.tables().count())),
                ("pieces", sum(&ssts)),
                ("pieces_in_a_table_max", version.tables().map(|t| ssts(t)).max().unwrap_or(0)),
                ("entries", sum(&TphTable::entries)),
                ("entries_live", sum(&TphTable::live)),
                ("tombstones", sum(&|table| table.tombstones)),
                ("keys_invalid", sum(&|table| table.invalid)),
                ("memtables", to_u64(memtables.len())),
                ("memtable_bytes", in_memory),
                ("unordered_entries", unordered_entries),
                ("index_hash_bytes", parts[0]),
                ("index_signature_bytes", parts[1]),
                ("index_block_bytes", parts[2]),
                ("index_offset_bytes", parts[3]),
                ("index_local_bytes", parts[4]),
                ("index_sample_bytes", parts[5]),
                ("cache_bytes", self.cache.blocks.memory_bytes()),
                ("cache_fills_total", self.cache.blocks.totals().0),
                ("cache_evicted_total", self.cache.blocks.totals().1),
                ("reads_total", load(&counters.reads)),
                ("read_bytes_total", load(&counters.read_bytes)),
                ("false_reads_total", load(&counters.false_reads)),
                ("flushes_total", load(&counters.flushes)),
                ("merges_total", load(&counters.merges)),
                ("merge_read_bytes_total", load(&counters.merge_read_bytes)),
                ("pieces_collected_total", load(&counters.collected)),
                ("write_rate", self.write_buffer.write_rate()),
                ("write_delays_total", load(&write_counters.delays_total)),
                ("write_delay_micros_total", load(&write_counters.delay_micros_total)),
                ("empty_ranges", self.write_buffer.empty_ranges.count()),
                ("tombstones_passed_total", self.write_buffer.empty_ranges.passed_total()),
                ("writer_helps_total", load(&write_counters.helps_total)),
                ("stall_micros_total", load(&write_counters.stall_micros_total)),
                ("stall_micros_max", load(&write_counters.stall_micros_max)),
                ("cleanup_failures_total", load(&counters.cleanup_failures)),
            ],
        }
    }

    /// Estimates the number of keys in a range, from the block indexes of all files and a sample of
    /// each memtable. A key counts once for all files, and once more if it is in memory.
    pub(super) fn estimate_count(&self, range: &KeyRange) -> u64 {
        let super_version = self.write_buffer.view.load_full();
        let (start, end) = (range.start.as_deref(), range.end.as_deref());
        let in_memory: u64 =
            super_version.memtables().map(|one| one.estimate_count(start, end)).sum();
        let in_files: u64 = super_version
            .version
            .tables()
            .map(|table| match table.order {
                Some(_) => estimate_rows(table, (start, end)),
                None => estimate_entries(table, (start, end)),
            })
            .sum();
        in_memory + in_files
    }

    /// Returns the number of keys: exact for small tables, otherwise an estimate.
    fn count_keys(&self, super_version: &SuperVersion) -> u64 {
        let memory: u64 = super_version.memtables().map(|memtable| memtable.keys()).sum();
        let files: u64 = super_version.version.tables().map(|table| table.live()).sum();
        let tombstones: u64 = super_version.version.tables().map(|table| table.tombstones).sum();
        if memory + files <= COUNTED_ENTRIES_MAX {
            let source = TphRangeSource::new(super_version);
            let mut keys = TwoEndedScan::new(source, KeyRange::default());
            let mut count = 0;
            while let Ok(Some(_)) = keys.next_key(self) {
                count += 1;
            }
            return count;
        }
        (memory + files).saturating_sub(2 * tombstones)
    }
}

/// Estimates the number of live entries in a range from the block indexes of a table's SSTs.
fn estimate_entries(table: &TphTable, (start, end): (Option<&[u8]>, Option<&[u8]>)) -> u64 {
    let entries = table.ssts.iter().map(|one| {
        let first = start.map_or(0, |key| one.sst.seek(key).start);
        let last = end.map_or(one.blocks, |key| one.sst.seek(key).end);
        let blocks = u64::from(last.saturating_sub(first));
        one.live * blocks / u64::from(one.blocks.max(1))
    });
    entries.sum()
}
