//! Ranges in key order, which can be read from both ends.
//!
//! A scan opens one cursor upwards from its start and one downwards from its end, each when it is
//! first needed. What a cursor reads is the engine's part ([`RangeSource`]).
//!
//! A cursor that passes deleted keys pauses ([`RangeStep::Paused`]) if the scan can continue behind
//! them, or if it should record them ([`super::tombstone_run`]). The scan then opens a new cursor.
//!
//! Invariants:
//! - The front never passes the back: no key is returned twice. [`RemainingRange`] has the keys
//!   that neither end has returned. Each entry that is returned leaves it, with all keys behind it.
//! - A scan sees the memtables of its beginning.
//! - A scan ends at its last entry or at an error.
//!
//! Threads: a scan belongs to one thread.

use std::{fmt, sync::Arc};

use super::empty_ranges::EmptyRanges;
pub(crate) use super::{remaining_range::RemainingRange, tombstone_run::TombstoneRun};
use crate::{
    Result,
    contract::{Cursor, Direction, Entry, KeyRange, Visit},
};

/// The outcome of a cursor's step.
#[derive(Debug)]
pub(crate) enum RangeStep<T> {
    Found(T),
    /// The cursor is at deleted keys and must be opened again, at the bound that the
    /// [`TombstoneRun`] says.
    Paused,
    /// The range has no further entry.
    End,
}

/// What the scans of an engine read: a super version, and the cursors over it.
pub(crate) trait RangeSource {
    /// The table that the cursors read.
    type Table;
    /// A cursor of one direction.
    type Cursor: fmt::Debug;

    /// Returns the empty ranges of the table.
    fn empty_ranges(table: &Self::Table) -> &Arc<EmptyRanges>;

    /// Orders the nodes of all memtables of the super version.
    fn order_memtables(&self);

    /// Returns whether writers insert into the active memtable of the super version.
    fn is_current(&self, table: &Self::Table) -> bool;

    /// Opens a cursor at the start or the end of what remains of the range.
    fn open(
        &self,
        direction: Direction,
        remaining: &RemainingRange,
        table: &Self::Table,
    ) -> Result<Self::Cursor>;

    /// Advances past the next entry in the range and returns it. Tells `run` of each deleted key
    /// and of the entry.
    fn next_entry(
        cursor: &mut Self::Cursor,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        table: &Self::Table,
    ) -> Result<RangeStep<Entry>>;

    /// Does the same as [`Self::next_entry`], and returns the key alone.
    fn next_key(
        cursor: &mut Self::Cursor,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        table: &Self::Table,
    ) -> Result<RangeStep<Vec<u8>>> {
        Ok(match Self::next_entry(cursor, run, remaining, table)? {
            RangeStep::Found(entry) => RangeStep::Found(entry.key),
            RangeStep::Paused => RangeStep::Paused,
            RangeStep::End => RangeStep::End,
        })
    }

    /// Passes the entries of the range to `each`, until it breaks ([`RangeStep::Found`]) or the
    /// cursor pauses or ends.
    fn visit(
        cursor: &mut Self::Cursor,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        table: &Self::Table,
        each: Visit<'_>,
    ) -> Result<RangeStep<()>>;

    /// Called with each open cursor when it pauses, when its scan reaches its end or fails, and
    /// when the iterator is dropped. A cursor that fails is dropped without it. So are the cursors
    /// of a range delete that fails to insert a tombstone.
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
        self.step(direction, table, |cursor, run, remaining| {
            let found = S::next_entry(cursor, run, remaining, table)?;
            if let RangeStep::Found(entry) = &found {
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
        self.step(Direction::Up, table, |cursor, run, remaining| {
            S::next_key(cursor, run, remaining, table)
        })
    }

    /// Calls `advance` with the cursor of one direction. Ends the scan if that returns nothing.
    fn step<T>(
        &mut self,
        direction: Direction,
        table: &S::Table,
        advance: impl FnMut(
            &mut S::Cursor,
            &mut TombstoneRun<'_>,
            &mut RemainingRange,
        ) -> Result<RangeStep<T>>,
    ) -> Result<Option<T>> {
        if self.is_done {
            return Ok(None);
        }
        let found = self.find(direction, table, advance);
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
            self.end(table);
        }
        found
    }

    /// Calls `advance` until the cursor does not pause.
    fn find<T>(
        &mut self,
        direction: Direction,
        table: &S::Table,
        mut advance: impl FnMut(
            &mut S::Cursor,
            &mut TombstoneRun<'_>,
            &mut RemainingRange,
        ) -> Result<RangeStep<T>>,
    ) -> Result<Option<T>> {
        let slot = match direction {
            Direction::Up => &mut self.front,
            Direction::Down => &mut self.back,
        };
        // Keys that a key scan returned are still in the remaining range.
        let is_at_bound = slot.is_none();
        let mut run = TombstoneRun::new(S::empty_ranges(table), direction, is_at_bound);
        loop {
            if slot.is_none() {
                *slot = open_cursor(&self.source, direction, &mut self.remaining, table)?;
            }
            let Some(cursor) = slot else {
                run.end_at_limit(&self.remaining);
                return Ok(None);
            };
            let step = advance(cursor, &mut run, &mut self.remaining);
            if step.is_err() {
                *slot = None;
            }
            match step? {
                RangeStep::Found(found) => return Ok(Some(found)),
                RangeStep::End => {
                    run.end_at_limit(&self.remaining);
                    return Ok(None);
                }
                RangeStep::Paused => {
                    slot.take().into_iter().for_each(|cursor| S::end(cursor, table));
                    if !run.resume(&mut self.remaining, || self.source.is_current(table)) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Ends both cursors.
    fn end(&mut self, table: &S::Table) {
        for cursor in [self.front.take(), self.back.take()].into_iter().flatten() {
            S::end(cursor, table);
        }
    }
}

/// Opens a cursor at the bound of what remains, or behind the empty range that contains the bound.
/// Returns `None` if nothing remains.
fn open_cursor<S: RangeSource>(
    source: &S,
    direction: Direction,
    remaining: &mut RemainingRange,
    table: &S::Table,
) -> Result<Option<S::Cursor>> {
    let empty = S::empty_ranges(table);
    if empty.has_ranges() {
        // Reports the puts that returned before the scan began.
        source.order_memtables();
        let bound = empty.skip(direction, remaining.bound(direction));
        if bound.is_some_and(|bound| !remaining.continue_at(direction, bound)) {
            return Ok(None);
        }
    }
    source.open(direction, remaining, table).map(Some)
}

/// Passes the entries of a range to `each` in key order, until it breaks.
pub(crate) fn visit_range<S: RangeSource>(
    source: &S,
    range: KeyRange,
    table: &S::Table,
    each: Visit<'_>,
) -> Result<()> {
    let mut remaining = RemainingRange::new(range);
    if remaining.is_empty() {
        return Ok(());
    }
    let mut run = TombstoneRun::new(S::empty_ranges(table), Direction::Up, true);
    while let Some(mut cursor) = open_cursor(source, Direction::Up, &mut remaining, table)? {
        let step = S::visit(&mut cursor, &mut run, &remaining, table, each);
        S::end(cursor, table);
        let is_paused = matches!(step?, RangeStep::Paused);
        if !is_paused || !run.resume(&mut remaining, || source.is_current(table)) {
            break;
        }
    }
    run.end_at_limit(&remaining);
    Ok(())
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
    entries: impl FnOnce(KeyRange) -> Result<I>,
) -> Result<(Vec<Entry>, Cursor)> {
    let range = KeyRange { start: Some(from.key()?.to_vec()), end: None };
    let mut page = Vec::new();
    for entry in entries(range)?.take(limit.max(1)) {
        page.push(entry?);
    }
    let next = match page.last() {
        Some(last) if page.len() >= limit => Cursor::after_key(&last.key),
        _ => Cursor::START,
    };
    Ok((page, next))
}
