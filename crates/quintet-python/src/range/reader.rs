//! Reads the entries of a range in chunks.

use std::ops::{Bound as End, ControlFlow};

use pyo3::prelude::*;
use quintet::{Cursor, Entries, Snapshot, Table, Transaction};

use crate::{
    errors::OrRaise,
    options::Bounds,
    source::{SharedTransaction, Source, open_snapshot, with_transaction},
};

/// Entries of the first chunk. Small: many iterations end after a few entries.
const CHUNK_ENTRIES_FIRST: usize = 16;
/// Maximum number of entries of a chunk. Below 700, the number of new containers that starts a
/// garbage collection of Python.
pub(super) const CHUNK_ENTRIES_MAX: usize = 256;
/// A chunk ends at this many bytes, so that large values are not read far ahead.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// The part of entries that an iterator returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Keys,
    Values,
    Items,
    /// Nothing: entries are only counted.
    Count,
}

/// Where the chunks come from, fixed for the whole iteration.
enum Pinned {
    Snapshot(Snapshot),
    Transaction(SharedTransaction),
}

/// The place of the next chunk.
enum Place {
    /// In key order: what remains of the range.
    Ordered(Bounds),
    /// Backwards over a snapshot: the store's own iterator.
    Backward(Box<Entries>),
    /// On an engine without key order: the cursor of the next page.
    Page(Cursor),
    End,
}

/// Keys and values, back to back in one buffer.
#[derive(Default)]
struct Chunk {
    buffer: Vec<u8>,
    /// Where each key and its value end.
    ends: Vec<(usize, usize)>,
    /// The number of entries, also of those that are only counted.
    count: usize,
    /// The key of the last entry that is only counted.
    last: Vec<u8>,
}

/// Reads a range chunk by chunk.
pub(super) struct Reader {
    pinned: Pinned,
    table: Table,
    part: Part,
    reverse: bool,
    place: Place,
    /// The number of entries of the next chunk, and of the largest.
    wanted: usize,
    most: usize,
    chunk: Chunk,
}

impl Chunk {
    fn clear(&mut self) {
        self.buffer.clear();
        self.ends.clear();
        self.count = 0;
    }

    /// Adds an entry. Breaks if the chunk is full.
    fn push(&mut self, part: Part, key: &[u8], value: &[u8], wanted: usize) -> ControlFlow<()> {
        self.count += 1;
        if part == Part::Count {
            if self.count < wanted {
                return ControlFlow::Continue(());
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            return ControlFlow::Break(());
        }
        self.buffer.extend_from_slice(key);
        let key = self.buffer.len();
        if part != Part::Keys {
            self.buffer.extend_from_slice(value);
        }
        self.ends.push((key, self.buffer.len()));
        if self.count < wanted && self.buffer.len() < CHUNK_BYTES_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (key, value) = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = start.map_or(0, |(_, end)| *end);
        Some((self.buffer.get(start..key)?, self.buffer.get(key..value)?))
    }

    fn last_key(&self, part: Part) -> Vec<u8> {
        if part == Part::Count {
            return self.last.clone();
        }
        let last = self.ends.len().checked_sub(1).and_then(|index| self.entry(index));
        last.map(|(key, _)| key.to_vec()).unwrap_or_default()
    }
}

impl Reader {
    /// Begins an iteration. Takes a snapshot of a table that is read as it is now.
    pub(super) fn new(
        py: Python<'_>,
        (source, table): (&Source, &Table),
        bounds: Bounds,
        (part, reverse, most): (Part, bool, usize),
    ) -> PyResult<Self> {
        let pinned = match source {
            Source::Now(db) => Pinned::Snapshot(db.snapshot().or_raise(py)?),
            Source::Snapshot(shared) => Pinned::Snapshot(open_snapshot(py, shared)?),
            Source::Transaction(shared) => Pinned::Transaction(SharedTransaction::clone(shared)),
        };
        let whole = matches!(bounds, (End::Unbounded, End::Unbounded));
        let place = if !table.kind().is_ordered() && whole && !reverse {
            Place::Page(Cursor::START)
        } else {
            Place::Ordered(bounds)
        };
        let wanted = if part == Part::Count { most } else { most.min(CHUNK_ENTRIES_FIRST) };
        let (table, chunk) = (table.clone(), Chunk::default());
        Ok(Self { pinned, table, part, reverse, place, wanted, most, chunk })
    }

    /// Reads the next chunk, detached from the interpreter. Returns its number of entries: 0 at
    /// the end.
    pub(super) fn read(&mut self, py: Python<'_>) -> PyResult<usize> {
        self.chunk.clear();
        let Self { pinned, table, part, reverse, place, wanted, chunk, .. } = self;
        let mut step = Step { table, part: *part, reverse: *reverse, wanted: *wanted, chunk };
        let next = std::mem::replace(place, Place::End);
        *place = match pinned {
            Pinned::Snapshot(snapshot) => {
                py.detach(|| step.read_snapshot(snapshot, next)).or_raise(py)?
            }
            Pinned::Transaction(shared) => {
                with_transaction(py, shared, |tx| step.read_transaction(tx, next))?
            }
        };
        self.wanted = (self.wanted * 4).min(self.most);
        Ok(self.chunk.count)
    }

    /// Returns the entries of the chunk that was read last.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        (0..self.chunk.ends.len()).map(|index| self.chunk.entry(index).unwrap_or_default())
    }
}

/// A page of a scan, and the cursor of the next one.
type Page = (Vec<(quintet::Key, quintet::Value)>, Cursor);

/// One read of a chunk.
struct Step<'a> {
    table: &'a Table,
    part: Part,
    reverse: bool,
    wanted: usize,
    chunk: &'a mut Chunk,
}

impl Step<'_> {
    fn push(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.chunk.push(self.part, key, value, self.wanted)
    }

    /// Reads a chunk of a snapshot. Returns the place of the next one.
    fn read_snapshot(&mut self, snapshot: &Snapshot, place: Place) -> quintet::Result<Place> {
        let table = self.table;
        match place {
            Place::Ordered(bounds) if self.reverse => {
                let entries = snapshot.range(table, bounds)?;
                self.read_snapshot(snapshot, Place::Backward(Box::new(entries)))
            }
            Place::Ordered(bounds) => {
                let mut is_full = false;
                snapshot.visit(table, bounds.clone(), |key, value| {
                    let next = self.push(key, value);
                    is_full = next.is_break();
                    next
                })?;
                Ok(self.remainder(bounds, is_full))
            }
            Place::Backward(mut entries) => {
                while let Some(entry) = entries.next_back() {
                    let (key, value) = entry?;
                    if self.push(&key, &value).is_break() {
                        return Ok(Place::Backward(entries));
                    }
                }
                Ok(Place::End)
            }
            Place::Page(cursor) => {
                self.read_pages(cursor, |cursor, count| snapshot.scan(table, cursor, count))
            }
            Place::End => Ok(Place::End),
        }
    }

    /// Reads a chunk of a transaction, with its own writes.
    fn read_transaction(&mut self, tx: &Transaction, place: Place) -> quintet::Result<Place> {
        let table = self.table;
        match place {
            Place::Ordered(bounds) => {
                let mut entries = tx.range(table, bounds.clone())?;
                loop {
                    let next = if self.reverse { entries.next_back() } else { entries.next() };
                    let Some(entry) = next else { return Ok(Place::End) };
                    let (key, value) = entry?;
                    if self.push(&key, &value).is_break() {
                        return Ok(self.remainder(bounds, true));
                    }
                }
            }
            Place::Page(cursor) => {
                self.read_pages(cursor, |cursor, count| tx.scan(table, cursor, count))
            }
            Place::Backward(_) | Place::End => Ok(Place::End),
        }
    }

    /// Reads pages until one has an entry.
    fn read_pages(
        &mut self,
        mut cursor: Cursor,
        scan: impl Fn(&Cursor, usize) -> quintet::Result<Page>,
    ) -> quintet::Result<Place> {
        loop {
            let (entries, next) = scan(&cursor, self.wanted.min(CHUNK_ENTRIES_MAX))?;
            for (key, value) in &entries {
                // A page is taken whole.
                let _ = self.push(key, value);
            }
            if next.is_start() {
                return Ok(Place::End);
            }
            if !entries.is_empty() {
                return Ok(Place::Page(next));
            }
            cursor = next;
        }
    }

    /// Returns the place behind the last entry of the chunk.
    fn remainder(&self, (start, end): Bounds, is_full: bool) -> Place {
        if !is_full {
            return Place::End;
        }
        let last = End::Excluded(self.chunk.last_key(self.part));
        Place::Ordered(if self.reverse { (start, last) } else { (last, end) })
    }
}
