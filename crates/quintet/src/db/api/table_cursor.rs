//! A cursor over an ordered table: a position that moves in both directions.
//!
//! Problem: an engine's iterator allocates each key, and cannot be moved to another key.
//! How: the cursor copies a window of entries into one buffer, and steps are moves within it. A
//! seek reads one entry. Each further window in the same direction has twice as many, up to
//! [`WINDOW_ENTRIES_MAX`]. So a scan needs few descents, and a lookup reads little.
//!
//! Invariant: the entries of the window are consecutive in the direction of the window.

use std::ops::{Bound, ControlFlow};

use super::table::Table;
use crate::{Result, contract::Direction, util::mutant::mutant};

/// Maximum number of entries of a window. A descent costs as much as some ten steps.
const WINDOW_ENTRIES_MAX: usize = 64;
/// A window ends at this many bytes, so that large values are not read ahead.
const WINDOW_BYTES_MAX: usize = 64 << 10;

/// Ends of one entry in the buffer: of its key, and of its value behind.
#[derive(Clone, Copy, Debug)]
struct EntryEnds {
    key: usize,
    value: usize,
}

/// A position in an ordered table; [`Table::cursor`] creates it.
///
/// It is at an entry, or at none: at first, before the first entry and after the last. From there
/// [`TableCursor::next`] goes to the first entry and [`TableCursor::prev`] to the last.
///
/// A step that finds its entry in the cursor's buffer allocates nothing and takes no lock. The
/// buffer holds up to 64 entries or 64 KiB that were read together; one read in 64 steps allocates.
/// A read backwards allocates each key in the engine. So entries may be some steps old: a write to
/// an entry that was read ahead is not seen. A seek always reads the table.
#[derive(Debug)]
pub struct TableCursor {
    table: Table,
    /// Keys and values of the window, one after the other.
    buffer: Vec<u8>,
    ends: Vec<EntryEnds>,
    direction: Direction,
    /// Whether no entry follows the window in its direction.
    is_at_end: bool,
    /// Index of the current entry in the window.
    current: Option<usize>,
    /// Number of entries of the next window.
    wanted: usize,
}

impl Table {
    /// Returns a cursor, which is at no entry yet. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("events")?;
    /// let mut cursor = table.cursor()?;
    /// cursor.seek("2026-01-03")?;
    /// while let (Some(key), Some(value)) = (cursor.key(), cursor.value()) {
    ///     println!("{} bytes at {key:?}", value.len());
    ///     cursor.next()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor(&self) -> Result<TableCursor> {
        self.check_ordered()?;
        Ok(TableCursor {
            table: self.clone(),
            buffer: Vec::new(),
            ends: Vec::new(),
            direction: Direction::Up,
            is_at_end: false,
            current: None,
            wanted: 1,
        })
    }
}

impl TableCursor {
    /// Moves to the first entry whose key is `key` or greater. Returns whether there is one;
    /// otherwise the cursor is at no entry. Fails as [`Table::range`] does; the cursor is at no
    /// entry then.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.wanted = 1;
        self.read_forward(Bound::Included(key.to_vec()))
    }

    /// Moves to the last entry whose key is `key` or less. Otherwise as [`TableCursor::seek`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.wanted = 1;
        self.read_backward(Bound::Included(key.to_vec()))
    }

    /// Moves to the first entry. Returns whether there is one.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.wanted = 1;
        self.read_forward(Bound::Unbounded)
    }

    /// Moves to the last entry. Returns whether there is one.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.wanted = 1;
        self.read_backward(Bound::Unbounded)
    }

    /// Moves to the entry with the next greater key. Returns whether there is one; otherwise the
    /// cursor is at no entry. Fails as [`Table::range`] does; the cursor is at no entry then.
    #[expect(clippy::should_implement_trait, reason = "an entry borrows from the cursor")]
    pub fn next(&mut self) -> Result<bool> {
        self.step(Direction::Up)
    }

    /// Moves to the entry with the next lesser key. Otherwise as [`TableCursor::next`].
    pub fn prev(&mut self) -> Result<bool> {
        self.step(Direction::Down)
    }

    /// Returns the key of the current entry. `None`: the cursor is at no entry.
    pub fn key(&self) -> Option<&[u8]> {
        let index = self.current?;
        self.buffer.get(self.start(index)..self.ends.get(index)?.key)
    }

    /// Returns the value of the current entry, as it was when it was read. `None`: the cursor is at
    /// no entry.
    pub fn value(&self) -> Option<&[u8]> {
        let ends = self.ends.get(self.current?)?;
        self.buffer.get(ends.key..ends.value)
    }

    /// Returns where an entry begins in the buffer.
    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |ends| ends.value)
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        let Some(current) = self.current else {
            self.wanted = 1;
            return self.read(direction, Bound::Unbounded);
        };
        if direction == self.direction {
            if current + 1 < self.ends.len() {
                self.current = Some(current + 1);
                return Ok(true);
            }
            if self.is_at_end {
                self.current = None;
                return Ok(false);
            }
        } else {
            if let Some(before) = current.checked_sub(1) {
                self.current = Some(before);
                return Ok(true);
            }
            self.wanted = 1;
        }
        let key = self.key().unwrap_or_default().to_vec();
        let bound = mutant!(CursorRepeatsAtTurn: Bound::Included(key), else Bound::Excluded(key));
        self.read(direction, bound)
    }

    fn read(&mut self, direction: Direction, bound: Bound<Vec<u8>>) -> Result<bool> {
        match direction {
            Direction::Up => self.read_forward(bound),
            Direction::Down => self.read_backward(bound),
        }
    }

    fn read_forward(&mut self, start: Bound<Vec<u8>>) -> Result<bool> {
        let wanted = self.begin_window(Direction::Up);
        let table = self.table.clone();
        table.visit((start, Bound::Unbounded), |key, value| self.push(key, value, wanted))?;
        Ok(self.end_window())
    }

    fn read_backward(&mut self, end: Bound<Vec<u8>>) -> Result<bool> {
        let wanted = self.begin_window(Direction::Down);
        for entry in self.table.range((Bound::Unbounded, end))?.rev() {
            let (key, value) = entry?;
            if self.push(&key, &value, wanted).is_break() {
                break;
            }
        }
        Ok(self.end_window())
    }

    /// Empties the window. Returns how many entries to read.
    fn begin_window(&mut self, direction: Direction) -> usize {
        self.buffer.clear();
        self.ends.clear();
        self.current = None;
        self.direction = direction;
        self.is_at_end = true;
        let wanted = self.wanted;
        self.wanted = (wanted * 2).min(WINDOW_ENTRIES_MAX);
        wanted
    }

    /// Adds an entry to the window. Breaks if the window is full.
    fn push(&mut self, key: &[u8], value: &[u8], wanted: usize) -> ControlFlow<()> {
        self.buffer.extend_from_slice(key);
        let key = self.buffer.len();
        self.buffer.extend_from_slice(value);
        self.ends.push(EntryEnds { key, value: self.buffer.len() });
        if self.ends.len() < wanted && self.buffer.len() < WINDOW_BYTES_MAX {
            return ControlFlow::Continue(());
        }
        self.is_at_end = false;
        ControlFlow::Break(())
    }

    /// Moves to the first entry of the window. Returns whether it has one.
    fn end_window(&mut self) -> bool {
        self.current = (!self.ends.is_empty()).then_some(0);
        self.current.is_some()
    }
}
