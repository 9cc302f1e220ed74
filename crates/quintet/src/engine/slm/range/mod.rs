//! Ranges in key order: a merge of the memtables and the index ([`crate::lsm::range`]).
//!
//! Invariant: a range sees the memtables of its beginning, and the index at the time of each step.

mod fragmentation;
mod index_scan;
mod merged_scan;

use self::{fragmentation::ScanFragmentation, index_scan::IndexScan, merged_scan::MergedScan};
use super::table::{SlmTable, SuperVersion};
use crate::{
    Result,
    contract::{Entry, KeyRange, Visit},
    lsm::{
        cursor::merge::{Direction, MemtableCursor, MergeCursor, ScanStart},
        range::{RangeSource, RemainingRange},
    },
};

/// What a range reads: the memtables of a super version, and the index.
#[derive(Debug)]
pub(super) struct SlmRangeSource {
    view: SuperVersion,
    /// Whether the runs that the scan reads count for compaction.
    is_query: bool,
}

/// Passes the entries of a range to `each` in key order, until it breaks.
pub(super) fn visit(table: &SlmTable, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let source = SlmRangeSource::new(&table.write_buffer.view.load(), true);
    let range = RemainingRange::new(range);
    if range.is_empty() {
        return Ok(());
    }
    let mut merged = source.open(Direction::Up, &range, table)?;
    let outcome = merged.visit(range.end.as_deref(), table, each);
    SlmRangeSource::end(merged, table);
    outcome
}

impl SlmRangeSource {
    pub(super) fn new(view: &SuperVersion, is_query: bool) -> Self {
        Self { view: view.share(), is_query }
    }
}

impl RangeSource for SlmRangeSource {
    type Table = SlmTable;
    type Cursor = MergedScan;

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
        direction: Direction,
        remaining: &RemainingRange,
        table: &SlmTable,
    ) -> Result<Option<Entry>> {
        while let Some((key, is_memory)) = merged.next_user_key(direction, table)? {
            if !remaining.contains(direction, key) {
                break;
            }
            let key = key.to_vec();
            if let Some(value) = merged.take((&key, is_memory), table)? {
                return Ok(Some(Entry { key, value }));
            }
        }
        Ok(None)
    }

    /// Reads no run.
    fn next_key(
        merged: &mut MergedScan,
        remaining: &RemainingRange,
        table: &SlmTable,
    ) -> Result<Option<Vec<u8>>> {
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
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Records the runs of a range query, and ends its reads.
    fn end(merged: MergedScan, table: &SlmTable) {
        merged.stored.end(table);
    }
}
