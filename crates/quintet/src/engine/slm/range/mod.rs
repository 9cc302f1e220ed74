//! Ranges in key order: a merge of the memtables and the index ([`crate::lsm::range`]).
//!
//! Invariant: a range sees the memtables of its beginning, and the index at the time of each step.

mod fragmentation;
mod index_scan;
mod merged_scan;

use std::sync::Arc;

use self::{fragmentation::ScanFragmentation, index_scan::IndexScan, merged_scan::MergedScan};
use super::table::{SlmTable, SuperVersion};
use crate::{
    Result,
    contract::{Entry, Visit},
    lsm::{
        cursor::merge::{Direction, MemtableCursor, MergeCursor, ScanStart},
        empty_ranges::EmptyRanges,
        range::{RangeSource, RangeStep, RemainingRange, TombstoneRun},
    },
};

/// What a range reads: the memtables of a super version, and the index.
#[derive(Debug)]
pub(super) struct SlmRangeSource {
    view: SuperVersion,
    /// Whether the runs that the scan reads count for compaction.
    is_query: bool,
}

impl SlmRangeSource {
    pub(super) fn new(view: &SuperVersion, is_query: bool) -> Self {
        Self { view: view.share(), is_query }
    }
}

impl RangeSource for SlmRangeSource {
    type Table = SlmTable;
    type Cursor = MergedScan;

    fn empty_ranges(table: &SlmTable) -> &Arc<EmptyRanges> {
        &table.write_buffer.empty_ranges
    }

    fn order_memtables(&self) {
        self.view.order_memtables();
    }

    fn is_current(&self, table: &SlmTable) -> bool {
        table.write_buffer.is_current(&self.view)
    }

    fn open(
        &self,
        direction: Direction,
        remaining: &RemainingRange,
        table: &SlmTable,
    ) -> Result<MergedScan> {
        let key = remaining.first_key(direction);
        let fragmentation = self.is_query.then(|| ScanFragmentation::new(table)).flatten();
        let bounds = (remaining.start.as_slice(), remaining.end.as_deref());
        let mut stored = IndexScan::new(&table.keys, direction, bounds, fragmentation);
        stored.refill(table)?;
        // The prefetches run while the memtables are searched.
        stored.prefetch_entries(table);
        let start = ScanStart { way: direction, key, cache: None, flow: None };
        let memtables = self.view.memtables().cloned().collect();
        let mut memory = MergeCursor::new(MemtableCursor::all(memtables, &start), direction);
        memory.load_first()?;
        Ok(MergedScan { memory, stored })
    }

    fn next_entry(
        merged: &mut MergedScan,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        table: &SlmTable,
    ) -> Result<RangeStep<Entry>> {
        let direction = run.direction();
        while let Some((key, is_memory)) = merged.next_user_key(direction, table)? {
            if !remaining.contains(direction, key) {
                break;
            }
            let key = key.to_vec();
            if let Some(value) = merged.take((&key, is_memory), table)? {
                run.end_at(&key);
                return Ok(RangeStep::Found(Entry { key, value }));
            }
            if run.pass(&key) {
                return Ok(RangeStep::Paused);
            }
        }
        Ok(RangeStep::End)
    }

    /// Reads no run.
    fn next_key(
        merged: &mut MergedScan,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        table: &SlmTable,
    ) -> Result<RangeStep<Vec<u8>>> {
        while let Some((key, is_memory)) = merged.next_user_key(Direction::Up, table)? {
            if !remaining.contains(Direction::Up, key) {
                break;
            }
            let key = key.to_vec();
            let mut is_there = !is_memory;
            if is_memory {
                is_there = merged.memory.value().is_some();
                merged.memory.advance()?;
            }
            if merged.stored.key() == Some(&*key) {
                merged.stored.advance(table)?;
            }
            if is_there {
                run.end_at(&key);
                return Ok(RangeStep::Found(key));
            }
            if run.pass(&key) {
                return Ok(RangeStep::Paused);
            }
        }
        Ok(RangeStep::End)
    }

    fn visit(
        merged: &mut MergedScan,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        table: &SlmTable,
        each: Visit<'_>,
    ) -> Result<RangeStep<()>> {
        merged.visit(remaining.end.as_deref(), run, table, each)
    }

    /// Records the runs of a range query, and ends its reads.
    fn end(merged: MergedScan, table: &SlmTable) {
        merged.stored.end(table);
    }
}
