//! Ranges in key order, from both ends: a merge of the memtables and the index.
//!
//! Invariants:
//! - The front end never passes the back end: no key is returned twice.
//! - A range sees the memtables of its beginning, and the index at the time of each step.

mod fragmentation;
mod index_scan;
mod merged_scan;

use std::sync::Arc;

use self::{fragmentation::ScanFragmentation, index_scan::IndexScan, merged_scan::MergedScan};
use super::table::{SlmTable, SuperVersion};
use crate::{
    Result,
    contract::{Entry, KeyRange, Value, Visit},
    lsm::cursor::merge::{Direction, MemtableCursor, MergeCursor, ScanStart},
};

/// An iterator over the entries of a range, from both ends.
#[derive(Debug)]
pub(super) struct RangeEntries {
    table: Arc<SlmTable>,
    scan: TwoEndedScan,
}

/// A scan of a range from both ends. It does not own the table.
#[derive(Debug)]
pub(super) struct TwoEndedScan {
    view: SuperVersion,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Whether the runs that the scan reads count for compaction.
    is_query: bool,
    is_done: bool,
    /// The upward scan, once begun.
    front: Option<MergedScan>,
    /// The downward scan, once begun.
    back: Option<MergedScan>,
}

/// Passes the entries of a range to `each` in key order, until it breaks.
pub(super) fn visit(table: &SlmTable, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let view = table.write_buffer.view.load_full();
    let mut scan = TwoEndedScan::new(&view, range, true);
    if scan.is_done {
        return Ok(());
    }
    let mut merged = scan.open(Direction::Up, table)?;
    let outcome = merged.visit(scan.end.as_deref(), table, each);
    scan.front = Some(merged);
    scan.end(table);
    outcome
}

impl RangeEntries {
    /// Creates an iterator. It reads nothing before the first call.
    pub(super) fn new(table: Arc<SlmTable>, range: KeyRange, is_query: bool) -> Self {
        let view = table.write_buffer.view.load();
        let scan = TwoEndedScan::new(&view, range, is_query);
        drop(view);
        Self { table, scan }
    }
}

impl TwoEndedScan {
    /// Creates a scan. It reads nothing before the first call.
    pub(super) fn new(view: &SuperVersion, range: KeyRange, is_query: bool) -> Self {
        let start = range.start.unwrap_or_default();
        let is_done = range.end.as_ref().is_some_and(|end| *end <= start);
        let (view, end) = (view.share(), range.end);
        Self { view, start, end, is_query, is_done, front: None, back: None }
    }

    /// Opens the merged scan of one direction.
    fn open(&self, direction: Direction, table: &SlmTable) -> Result<MergedScan> {
        let key = match direction {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        };
        let fragmentation = self.is_query.then(|| ScanFragmentation::new(table)).flatten();
        let bounds = (self.start.as_slice(), self.end.as_deref());
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

    /// Returns the next entry from one end.
    pub(super) fn step(
        &mut self,
        direction: Direction,
        table: &SlmTable,
    ) -> Result<Option<(Vec<u8>, Value)>> {
        if self.is_done {
            return Ok(None);
        }
        let found = self.find(direction, table);
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
            self.end(table);
        }
        found
    }

    /// Ends both scans, and records the runs of a range query.
    fn end(&mut self, table: &SlmTable) {
        for merged in [self.front.take(), self.back.take()].into_iter().flatten() {
            merged.stored.end(table);
        }
    }

    /// As [`Self::step`], for a scan that is not done.
    fn find(&mut self, direction: Direction, table: &SlmTable) -> Result<Option<(Vec<u8>, Value)>> {
        let open = match direction {
            Direction::Up => self.front.take(),
            Direction::Down => self.back.take(),
        };
        let mut merged = match open {
            Some(merged) => merged,
            None => self.open(direction, table)?,
        };
        while let Some((key, is_memory)) = merged.next_user_key(direction, table)? {
            let inside = match direction {
                Direction::Up => self.end.as_deref().is_none_or(|end| key < end),
                Direction::Down => key >= self.start.as_slice(),
            };
            if !inside {
                break;
            }
            let key = key.to_vec();
            let Some(value) = merged.take((&key, is_memory), table)? else { continue };
            match direction {
                Direction::Up => {
                    // The back end stops before this key.
                    self.start.clear();
                    self.start.extend_from_slice(&key);
                    self.start.push(0);
                    self.front = Some(merged);
                }
                Direction::Down => {
                    self.end = Some(key.clone());
                    self.back = Some(merged);
                }
            }
            return Ok(Some((key, value)));
        }
        match direction {
            Direction::Up => self.front = Some(merged),
            Direction::Down => self.back = Some(merged),
        }
        Ok(None)
    }

    /// Returns the next key with an entry. Reads no run.
    pub(super) fn next_key(&mut self, table: &SlmTable) -> Result<Option<Vec<u8>>> {
        let mut merged = match self.front.take() {
            Some(merged) => merged,
            None => self.open(Direction::Up, table)?,
        };
        while let Some((key, is_memory)) = merged.next_user_key(Direction::Up, table)? {
            if self.end.as_deref().is_some_and(|end| key >= end) {
                return Ok(None);
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
                self.front = Some(merged);
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Drop for RangeEntries {
    fn drop(&mut self) {
        self.scan.end(&self.table);
    }
}

impl Iterator for RangeEntries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.scan.step(Direction::Up, &self.table).transpose();
        found.map(|found| found.map(|(key, value)| Entry { key, value }))
    }
}

impl DoubleEndedIterator for RangeEntries {
    fn next_back(&mut self) -> Option<Self::Item> {
        let found = self.scan.step(Direction::Down, &self.table).transpose();
        found.map(|found| found.map(|(key, value)| Entry { key, value }))
    }
}
