//! Statistics of a table.

use super::{
    pool::SlmPool,
    range::SlmRangeSource,
    run::SortedRun,
    table::{SlmTable, SuperVersion},
};
use crate::{
    Result,
    contract::{EngineStats, KeyRange},
    lsm::range::TwoEndedScan,
    util::{
        codec::to_u64,
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Tables of at most this number of entries are counted exactly for the statistics.
const COUNTED_ENTRIES: u64 = 4096;

impl SlmTable {
    /// Returns the number of keys: exactly in small tables or without memtables, otherwise as if no
    /// key were both in memory and in the index.
    fn count_keys(&self, view: &SuperVersion) -> u64 {
        let memory: u64 = view.memtables().map(|memtable| memtable.keys()).sum();
        let stored: u64 = view.version.iter().map(|run| run.live()).sum();
        if memory == 0 || memory + stored > COUNTED_ENTRIES {
            return memory + stored;
        }
        let mut keys = TwoEndedScan::new(SlmRangeSource::new(view, false), KeyRange::default());
        let mut count = 0;
        while let Ok(Some(_)) = keys.next_key(self) {
            count += 1;
        }
        count
    }

    /// Returns about how many keys a range holds: two descents of the index, and a sample of each
    /// memtable. A key that is both in memory and in the index counts twice.
    pub(super) fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        let view = self.view()?;
        let (start, end) = (range.start.as_deref(), range.end.as_deref());
        let in_memory: u64 = view.memtables().map(|one| one.estimate_count(start, end)).sum();
        if !self.keys.is_decided() {
            return Ok(in_memory);
        }
        let index_key = |key: Option<&[u8]>| {
            key.map(|key| {
                let mut coded = Vec::new();
                self.keys.push(key, &mut coded);
                coded
            })
        };
        let stored: u64 = view.version.iter().map(|run| run.live()).sum();
        let (start, end) = (index_key(start), index_key(end));
        let (start, end) = (start.as_deref(), end.as_deref());
        let in_index = match self.pool_index() {
            Some(index) => index.estimate(start, end, stored)?,
            None => self.paged.tree.estimate(start, end, stored)?,
        };
        Ok(in_memory + in_index)
    }

    /// Returns the number of pages that take space in the file of the index.
    fn file_pages(&self) -> u64 {
        let (tree, space) = (&self.paged.tree, self.paged.tree.allocator());
        if tree.cache().file().is_ok() { space.end() - space.holes() } else { 0 }
    }

    /// Returns the number of pages of the index's tree.
    fn index_pages(&self) -> u64 {
        self.paged.tree.leaf_pages() + self.paged.tree.inner_pages()
    }

    /// Returns the bytes of the index's journal, and those of its live groups.
    fn journal_bytes(&self) -> (u64, u64) {
        let checkpointer = lock(&self.paged.checkpointer);
        (checkpointer.journal_bytes(), checkpointer.journal_state().0)
    }

    /// Returns the statistics. Counts small tables exactly, but for entries in memtables that an
    /// opening has left to read.
    pub(super) fn stats(&self) -> EngineStats {
        let view = self.write_buffer.view.load_full();
        let sum =
            |of: &dyn Fn(&SortedRun) -> u64| view.version.iter().map(|run| of(run)).sum::<u64>();
        let in_memory: u64 = view.memtables().map(|one| one.memory_bytes()).sum();
        let unflushed: u64 = view.memtables().map(|one| one.payload_bytes()).sum();
        // Before the keys are counted, which orders the entries.
        let details = self.details(&view);
        let page_bytes = to_u64(self.paged.tree.shape().page_bytes);
        let run_memory = sum(&SortedRun::memory_bytes);
        let live_bytes = sum(&SortedRun::live_bytes);
        let index_written = self.paged.written_bytes_total.load(Ordering::Relaxed);
        EngineStats {
            keys: self.count_keys(&view),
            live_bytes: live_bytes + unflushed,
            dead_bytes: sum(&|run| run.sst.footer.payload_bytes) - live_bytes,
            file_bytes: sum(&|run| run.sst.file_bytes)
                + self.file_pages() * page_bytes
                + self.journal_bytes().0
                + self.pool.as_ref().map_or(0, |pool| pool.pool.bytes()),
            memory_bytes: in_memory
                + run_memory
                + self.paged.tree.cache().memory_bytes()
                + self.cache.blocks.memory_bytes()
                + self.location_cache.memory_bytes(),
            index_bytes: self.index_pages() * page_bytes + run_memory,
            written_bytes_total: self.counters.written_bytes_total.load(Ordering::Relaxed)
                + index_written,
            details,
        }
    }

    /// Returns the statistics that only this engine has.
    fn details(&self, view: &SuperVersion) -> Vec<(&'static str, u64)> {
        let (counters, write_counters) = (&self.counters, &self.write_buffer.counters);
        let runs = || view.version.iter();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let index_cache = self.paged.tree.cache().stats();
        let [dead, leaves, ranges, small] = &counters.merges_by_reason;
        let mut details = vec![
            ("runs", to_u64(view.version.len())),
            ("runs_dead", to_u64(runs().filter(|run| run.is_dead()).count())),
            ("candidates", to_u64(runs().filter(|run| run.reasons() != 0).count())),
            ("entries", runs().map(|run| run.entries()).sum()),
            ("entries_live", runs().map(|run| run.live()).sum()),
            ("memtables", to_u64(view.memtables().count())),
            ("memtables_unread", u64::from(self.write_buffer.has_unread())),
            ("memtable_bytes", view.memtables().map(|one| one.memory_bytes()).sum()),
            ("unordered_entries", view.unordered_entries()),
            ("index_pages", self.index_pages()),
            ("index_height", self.paged.tree.height()),
            ("index_frames", index_cache.frames),
            ("index_misses_total", index_cache.misses_total),
            ("index_written_bytes_total", load(&self.paged.written_bytes_total)),
            ("journal_live_bytes", self.journal_bytes().1),
            ("cuts_total", load(&self.paged.checkpoints_total)),
            ("index_helps_total", load(&self.paged.helps_total)),
            ("cache_bytes", self.cache.blocks.memory_bytes()),
            ("shortcuts", self.location_cache.count()),
            ("shortcut_bytes", self.location_cache.memory_bytes()),
            ("cache_fills_total", self.cache.blocks.totals().0),
            ("cache_evicted_total", self.cache.blocks.totals().1),
            ("reads_total", load(&counters.reads_total)),
            ("read_bytes_total", load(&counters.read_bytes_total)),
            ("flushes_total", load(&counters.flushes_total)),
            ("merges_total", load(&counters.merges_total)),
            ("merges_for_dead_total", load(dead)),
            ("merges_for_leaves_total", load(leaves)),
            ("merges_for_ranges_total", load(ranges)),
            ("merges_for_small_total", load(small)),
            ("merge_read_bytes_total", load(&counters.merge_read_bytes_total)),
            ("left_behind_total", load(&counters.left_behind_total)),
            ("write_rate", self.write_buffer.write_rate()),
            ("write_delays_total", load(&write_counters.delays_total)),
            ("write_delay_micros_total", load(&write_counters.delay_micros_total)),
            ("empty_ranges", self.write_buffer.empty_ranges.count()),
            ("tombstones_passed_total", self.write_buffer.empty_ranges.passed_total()),
            ("writer_helps_total", load(&write_counters.helps_total)),
            ("stall_micros_total", load(&write_counters.stall_micros_total)),
            ("stall_micros_max", load(&write_counters.stall_micros_max)),
            ("cleanup_failures_total", load(&counters.cleanup_failures_total)),
        ];
        if let Some(pool) = &self.pool {
            details.extend(pool_details(pool, view));
        }
        details
    }
}

/// Returns the statistics of the pool.
fn pool_details(pool: &SlmPool, view: &SuperVersion) -> [(&'static str, u64); 10] {
    let counts = pool.pool.counts();
    let fallbacks = pool.memtables.as_ref().map_or(0, |memtables| memtables.fallbacks_total());
    let unmarked = pool.memtables.as_ref().map_or(0, |memtables| memtables.unmarked_bytes());
    [
        ("pmem_emulated", pool.is_emulated.into()),
        ("pmem_file_bytes", pool.pool.bytes()),
        ("pmem_used_bytes", pool.pool.used_bytes()),
        ("pmem_memtable_bytes", view.memtables().map(|one| one.pool_bytes()).sum()),
        ("pmem_lines_total", counts.lines),
        ("pmem_fences_total", counts.fences),
        ("pmem_complete", pool.complete().0),
        ("pmem_unmarked_bytes", unmarked),
        ("pmem_fallbacks_total", fallbacks),
        ("pmem_swept", u64::from(!pool.is_sweep_due())),
    ]
}
