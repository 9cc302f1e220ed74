//! Ranges in key order, which can be read from both ends.
//!
//! A range opens one merging cursor upwards from its start and one downwards from its end, each
//! when it is first needed.
//!
//! Invariants: the entries from the start are below those that the end may still return, and the
//! other way round. A range keeps the files of its version until it is dropped.

use std::sync::Arc;

use super::{
    cursor::{LevelCursor, TphCursor, TphMergeCursor, memtable_cursors, table_cursors},
    store::TphStore,
    version::SuperVersion,
};
use crate::{
    Result,
    contract::{Entry, KeyRange, Value, Visit},
    lsm::cursor::merge::{Direction, ReadAheadSizes, ScanStart},
    util::codec::to_u64,
};

/// An iterator over the entries of a range, in both directions. See the module head.
#[derive(Debug)]
pub(super) struct TphRange {
    store: Arc<TphStore>,
    scan: RangeScan,
}

/// The state of a range, without the store that it reads.
#[derive(Debug)]
struct RangeScan {
    super_version: SuperVersion,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    is_done: bool,
    /// The cursor from the start, once it is open.
    upward: Option<TphMergeCursor>,
    /// The cursor from the end, once it is open.
    downward: Option<TphMergeCursor>,
}

impl TphRange {
    pub(super) fn new(store: Arc<TphStore>, range: KeyRange) -> Self {
        let super_version = store.write_buffer.view.load();
        let scan = RangeScan::new(&super_version, range);
        drop(super_version);
        Self { store, scan }
    }
}

/// The keys of a range in order, for the engine itself.
#[derive(Debug)]
pub(super) struct RangeKeys<'a> {
    store: &'a TphStore,
    scan: RangeScan,
}

impl<'a> RangeKeys<'a> {
    pub(super) fn new(store: &'a TphStore, super_version: &SuperVersion, range: KeyRange) -> Self {
        Self { store, scan: RangeScan::new(super_version, range) }
    }

    /// Returns the next key that has a value.
    pub(super) fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        let entry = self.scan.step(Direction::Up, self.store)?;
        Ok(entry.map(|entry| entry.key))
    }
}

/// Calls `each` with the entries of a range in key order, until it breaks.
pub(super) fn visit(store: &TphStore, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let super_version = store.write_buffer.view.load_full();
    let scan = RangeScan::new(&super_version, range);
    if scan.is_done {
        return Ok(());
    }
    let mut merge = scan.open(Direction::Up, store)?;
    while let Some(key) = merge.key() {
        if scan.end.as_deref().is_some_and(|end| key >= end) {
            break;
        }
        if let Some(value) = merge.value()
            && each(key, value)?.is_break()
        {
            break;
        }
        merge.advance()?;
    }
    Ok(())
}

impl RangeScan {
    fn new(super_version: &SuperVersion, range: KeyRange) -> Self {
        let start = range.start.unwrap_or_default();
        let is_done = range.end.as_ref().is_some_and(|end| *end <= start);
        let super_version = super_version.share();
        Self { super_version, start, end: range.end, is_done, upward: None, downward: None }
    }

    /// Opens a cursor at the start or the end of what is left of the range.
    fn open(&self, way: Direction, store: &TphStore) -> Result<TphMergeCursor> {
        let key = match way {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        };
        let start = ScanStart { way, key, cache: Some(Arc::clone(&store.cache)), flow: None };
        let active = std::slice::from_ref(&self.super_version.active);
        let mut sources = memtable_cursors(active, &start);
        sources.extend(memtable_cursors(&self.super_version.frozen, &start));
        let version = &self.super_version.version;
        let ahead = ReadAheadSizes::scan(version.data_bytes);
        for table in &version.level0 {
            sources.extend(table_cursors(table, &start, ahead));
        }
        for (index, level) in version.levels.iter().enumerate() {
            if store.has_key_ranges() {
                let version = Arc::clone(version);
                // Each table has all keys of the level in its range, so the read-ahead of a table
                // is its part of the data.
                let ahead = ReadAheadSizes::scan(version.data_bytes / to_u64(level.len().max(1)));
                let cursor = LevelCursor::new(version, index, start.clone(), ahead);
                sources.push(TphCursor::Level(Box::new(cursor)));
            } else {
                // The order of the tables of a level does not matter: they share no key.
                for table in level {
                    sources.extend(table_cursors(table, &start, ahead));
                }
            }
        }
        let mut merge = TphMergeCursor::new(sources, way);
        merge.prime(&*store.context.env, &store.queues)?;
        merge.load_first()?;
        Ok(merge)
    }

    /// Returns the next entry in a direction. The range ends at its last entry or at an error.
    fn step(&mut self, way: Direction, store: &TphStore) -> Result<Option<Entry>> {
        if self.is_done {
            return Ok(None);
        }
        let found = self.find_next(way, store);
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
            self.upward = None;
            self.downward = None;
        }
        found
    }

    fn find_next(&mut self, way: Direction, store: &TphStore) -> Result<Option<Entry>> {
        let open = match way {
            Direction::Up => self.upward.take(),
            Direction::Down => self.downward.take(),
        };
        let mut merge = match open {
            Some(merge) => merge,
            None => self.open(way, store)?,
        };
        while let Some(key) = merge.key() {
            let inside = match way {
                Direction::Up => self.end.as_deref().is_none_or(|end| key < end),
                Direction::Down => key >= self.start.as_slice(),
            };
            if !inside {
                return Ok(None);
            }
            let entry = merge.value().map(|value| Entry {
                key: key.to_vec(),
                value: Value::fill_with(value.len(), |out| out.copy_from_slice(value)),
            });
            merge.advance()?;
            let Some(entry) = entry else { continue };
            match way {
                Direction::Up => {
                    // The downward cursor ends above this entry.
                    self.start.clear();
                    self.start.extend_from_slice(&entry.key);
                    self.start.push(0);
                    self.upward = Some(merge);
                }
                Direction::Down => {
                    self.end = Some(entry.key.clone());
                    self.downward = Some(merge);
                }
            }
            return Ok(Some(entry));
        }
        Ok(None)
    }
}

impl Iterator for TphRange {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.step(Direction::Up, &self.store).transpose()
    }
}

impl DoubleEndedIterator for TphRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.step(Direction::Down, &self.store).transpose()
    }
}
