//! Ranges in key order, which can be read from both ends.
//!
//! A scan opens one cursor upwards from its start and one downwards from its end, each when it is
//! first needed. What a cursor reads is the engine's part ([`RangeSource`]).
//!
//! Invariants:
//! - The front never passes the back: no key is returned twice. [`RemainingRange`] has the keys
//!   that neither end has returned. Each entry that is returned leaves it, with all keys behind it.
//! - A scan sees the memtables of its beginning.
//! - A scan ends at its last entry or at an error.
//!
//! Threads: a scan belongs to one thread.

use std::{fmt, sync::Arc};

use super::direction::Direction;
use crate::{
    Result,
    contract::{Cursor, Entry, KeyRange},
};

/// The part of a range that neither end has returned.
#[derive(Debug)]
pub(crate) struct RemainingRange {
    /// First key.
    pub(crate) start: Vec<u8>,
    /// First key past the range; `None` is unbounded.
    pub(crate) end: Option<Vec<u8>>,
}

impl RemainingRange {
    pub(crate) fn new(range: KeyRange) -> Self {
        Self { start: range.start.unwrap_or_default(), end: range.end }
    }

    /// Returns whether the range can have no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns the bound at which a cursor of this direction begins.
    pub(crate) fn first_key(&self, direction: Direction) -> Option<Arc<[u8]>> {
        match direction {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        }
    }

    /// Returns whether a key that a cursor of this direction has reached is in the range.
    #[inline]
    pub(crate) fn contains(&self, direction: Direction, key: &[u8]) -> bool {
        match direction {
            Direction::Up => self.end.as_deref().is_none_or(|end| key < end),
            Direction::Down => key >= self.start.as_slice(),
        }
    }

    /// Removes a key and the keys that a cursor of this direction has passed.
    fn remove_to(&mut self, direction: Direction, key: &[u8]) {
        let bound = match direction {
            Direction::Up => &mut self.start,
            Direction::Down => self.end.get_or_insert_default(),
        };
        bound.clear();
        bound.extend_from_slice(key);
        if direction == Direction::Up {
            // The first key above it.
            bound.push(0);
        }
    }
}

/// What the scans of an engine read: a super version, and the cursors over it.
pub(crate) trait RangeSource {
    /// The table that the cursors read.
    type Table;
    /// A cursor of one direction.
    type Cursor: fmt::Debug;

    /// Opens a cursor at the start or the end of what remains of the range.
    fn open(
        &self,
        direction: Direction,
        remaining: &RemainingRange,
        table: &Self::Table,
    ) -> Result<Self::Cursor>;

    /// Advances past the next entry in the range and returns it; `None` if there is none.
    fn next_entry(
        cursor: &mut Self::Cursor,
        direction: Direction,
        remaining: &RemainingRange,
        table: &Self::Table,
    ) -> Result<Option<Entry>>;

    /// Does the same as [`Self::next_entry`] upwards, and returns the key alone.
    fn next_key(
        cursor: &mut Self::Cursor,
        remaining: &RemainingRange,
        table: &Self::Table,
    ) -> Result<Option<Vec<u8>>> {
        let entry = Self::next_entry(cursor, Direction::Up, remaining, table)?;
        Ok(entry.map(|entry| entry.key))
    }

    /// Called with each open cursor when its scan reaches its end or fails, and when the iterator
    /// is dropped. A cursor that fails is dropped without it. So are the cursors of a range delete
    /// that fails to insert a tombstone.
    fn end(_cursor: Self::Cursor, _table: &Self::Table) {}
}

/// A scan of a range from both ends. It does not own the table.
#[derive(Debug)]
pub(crate) struct TwoEndedScan<S: RangeSource> {
    source: S,
    remaining: RemainingRange,
    is_done: bool,
    /// The upward cursor, once it is open.
    front: Option<S::Cursor>,
    /// The downward cursor, once it is open.
    back: Option<S::Cursor>,
}

impl<S: RangeSource> TwoEndedScan<S> {
    /// Creates a scan. It reads nothing before the first step.
    pub(crate) fn new(source: S, range: KeyRange) -> Self {
        let remaining = RemainingRange::new(range);
        Self { source, is_done: remaining.is_empty(), remaining, front: None, back: None }
    }

    /// Returns the next entry from one end.
    fn next_entry(&mut self, direction: Direction, table: &S::Table) -> Result<Option<Entry>> {
        self.step(direction, table, |cursor, remaining| {
            let found = S::next_entry(cursor, direction, remaining, table)?;
            if let Some(entry) = &found {
                remaining.remove_to(direction, &entry.key);
            }
            Ok(found)
        })
    }

    /// Returns the next key from the front that has a value.
    ///
    /// The key stays in the remaining range, which saves a copy of each key. So a scan that calls
    /// this method must not call [`Self::next_entry`].
    pub(crate) fn next_key(&mut self, table: &S::Table) -> Result<Option<Vec<u8>>> {
        self.step(Direction::Up, table, |cursor, remaining| S::next_key(cursor, remaining, table))
    }

    /// Calls `advance` with the cursor of one direction. Ends the scan if that returns nothing.
    fn step<T>(
        &mut self,
        direction: Direction,
        table: &S::Table,
        advance: impl FnOnce(&mut S::Cursor, &mut RemainingRange) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if self.is_done {
            return Ok(None);
        }
        let slot = match direction {
            Direction::Up => &mut self.front,
            Direction::Down => &mut self.back,
        };
        let opened = if let Some(cursor) = slot {
            Ok(cursor)
        } else {
            let cursor = self.source.open(direction, &self.remaining, table);
            cursor.map(|cursor| slot.insert(cursor))
        };
        let found = opened.and_then(|cursor| advance(cursor, &mut self.remaining));
        if found.is_err() {
            *slot = None;
        }
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
            self.end(table);
        }
        found
    }

    /// Ends both cursors.
    fn end(&mut self, table: &S::Table) {
        for cursor in [self.front.take(), self.back.take()].into_iter().flatten() {
            S::end(cursor, table);
        }
    }
}

/// An iterator over the entries of a range, from both ends.
#[derive(Debug)]
pub(crate) struct RangeEntries<S: RangeSource> {
    table: Arc<S::Table>,
    scan: TwoEndedScan<S>,
}

impl<S: RangeSource> RangeEntries<S> {
    /// Creates an iterator. It reads nothing before the first call.
    pub(crate) fn new(table: &Arc<S::Table>, source: S, range: KeyRange) -> Self {
        Self { table: Arc::clone(table), scan: TwoEndedScan::new(source, range) }
    }
}

impl<S: RangeSource> Drop for RangeEntries<S> {
    fn drop(&mut self) {
        self.scan.end(&self.table);
    }
}

impl<S: RangeSource> Iterator for RangeEntries<S> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next_entry(Direction::Up, &self.table).transpose()
    }
}

impl<S: RangeSource> DoubleEndedIterator for RangeEntries<S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.next_entry(Direction::Down, &self.table).transpose()
    }
}

/// Returns `limit` entries (at least one) from a scan's cursor on, and the next cursor. See
/// [`crate::contract::Engine::scan`]. `entries` returns the entries of a range.
pub(crate) fn scan_page<I: Iterator<Item = Result<Entry>>>(
    from: &Cursor,
    limit: usize,
    entries: impl FnOnce(KeyRange) -> I,
) -> Result<(Vec<Entry>, Cursor)> {
    let range = KeyRange { start: Some(from.key()?.to_vec()), end: None };
    let mut page = Vec::new();
    for entry in entries(range).take(limit.max(1)) {
        page.push(entry?);
    }
    let next = match page.last() {
        Some(last) if page.len() >= limit => Cursor::after_key(&last.key),
        _ => Cursor::START,
    };
    Ok((page, next))
}
