//! Ranges in key order, from both ends: a merge of the memtables and the index.
//!
//! Invariants:
//! - The front end never passes the back end: no key is returned twice.
//! - A range sees the memtables of its beginning, and the index at the time of each step.

use std::{cmp::Ordering, sync::Arc};

use super::{Inner, SuperVersion};
use crate::{
    Result,
    contract::{Entry, KeyRange, OwnedValue, Value, Visit},
    engine::slm::{compaction_picker::Sequence, index_scan::Stream},
    lsm::cursor::merge::{Direction, MemtableCursor, Merge, ScanStart},
    util::mutant::mutant,
};

/// An iterator over the entries of a range, from both ends.
#[derive(Debug)]
pub(super) struct Range {
    inner: Arc<Inner>,
    walk: Walk,
}

/// A scan of a range from both ends. It does not own the table.
#[derive(Debug)]
pub(super) struct Walk {
    view: SuperVersion,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Whether the runs that the scan reads count for compaction.
    is_query: bool,
    is_done: bool,
    /// The upward scan, once begun.
    front: Option<Both>,
    /// The downward scan, once begun.
    back: Option<Both>,
}

/// Passes the entries of a range to `each` in key order, until it breaks.
pub(super) fn visit(inner: &Inner, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let view = inner.front.view.load_full();
    let mut walk = Walk::new(&view, range, true);
    if walk.is_done {
        return Ok(());
    }
    let mut both = walk.open(Direction::Up, inner)?;
    let outcome = both.visit(walk.end.as_deref(), inner, each);
    walk.front = Some(both);
    walk.end(inner);
    outcome
}

/// A merged scan of memtables and index in one direction.
#[derive(Debug)]
struct Both {
    memory: Merge<MemtableCursor>,
    stored: Stream,
}

/// The source of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Memory,
    /// Memory; the index has an older entry of the same key.
    Both,
    Stored,
}

impl Both {
    /// Returns the source of the next entry in key order. `coded` keeps the key in memory as the
    /// index would store it, and is filled if it is empty.
    fn next(&self, coded: &mut Vec<u8>, inner: &Inner) -> Option<Next> {
        let (Some(memory), Some(stored)) = (self.memory.key(), self.stored.coded()) else {
            let memory = self.memory.key().map(|_| Next::Memory);
            return memory.or(self.stored.coded().map(|_| Next::Stored));
        };
        if coded.is_empty() {
            inner.keys.push(memory, coded);
        }
        Some(match stored.0.cmp(coded) {
            Ordering::Less => Next::Stored,
            Ordering::Equal => Next::Both,
            Ordering::Greater => Next::Memory,
        })
    }

    /// Returns the next user key, and whether memory has it.
    fn restored(&mut self, way: Direction, inner: &Inner) -> Result<Option<(&[u8], bool)>> {
        self.stored.restore(inner)?;
        Ok(match (self.memory.key(), self.stored.key()) {
            (Some(memory), Some(stored)) => {
                let is_memory = match way {
                    Direction::Up => memory <= stored,
                    Direction::Down => memory >= stored,
                };
                Some(if is_memory { (memory, true) } else { (stored, false) })
            }
            (Some(memory), None) => Some((memory, true)),
            (None, Some(stored)) => Some((stored, false)),
            (None, None) => None,
        })
    }

    /// Passes the entries below `end` to `each`, until it breaks.
    fn visit(&mut self, end: Option<&[u8]>, inner: &Inner, each: Visit<'_>) -> Result<()> {
        let (mut value, mut coded) = (Vec::new(), Vec::new());
        while let Some(next) = self.next(&mut coded, inner) {
            // The index scan has the bound already.
            let is_over = |key: &[u8]| end.is_some_and(|end| key >= end);
            if next != Next::Stored && self.memory.key().is_some_and(is_over) {
                return Ok(());
            }
            let flow = if next == Next::Stored {
                let flow = self.stored.show(inner, &mut value, each)?;
                self.stored.advance(inner)?;
                flow
            } else {
                let shown = self.memory.key().zip(self.memory.value());
                let flow = shown.map(|(key, value)| each(key, value)).transpose()?;
                if mutant!(SlmRangeShowsBoth: false, else next == Next::Both) {
                    self.stored.advance(inner)?;
                }
                self.memory.advance()?;
                coded.clear();
                flow
            };
            if flow.is_some_and(|flow| flow.is_break()) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the value of the next key, if it has one, and advances.
    fn take(&mut self, (key, is_memory): (&[u8], bool), inner: &Inner) -> Result<Option<Value>> {
        if !is_memory {
            let value = self.stored.value(inner, &mut OwnedValue)?;
            self.stored.advance(inner)?;
            return Ok(value);
        }
        let value = self.memory.value().map(Value::copy);
        let is_stored = self.stored.key() == Some(key);
        if mutant!(SlmRangeShowsBoth: false, else is_stored) {
            self.stored.advance(inner)?;
        }
        self.memory.advance()?;
        Ok(value)
    }
}

impl Range {
    /// Creates an iterator. It reads nothing before the first call.
    pub(super) fn new(inner: Arc<Inner>, range: KeyRange, is_query: bool) -> Self {
        let view = inner.front.view.load();
        let walk = Walk::new(&view, range, is_query);
        drop(view);
        Self { inner, walk }
    }
}

impl Walk {
    /// Creates a scan. It reads nothing before the first call.
    pub(super) fn new(view: &SuperVersion, range: KeyRange, is_query: bool) -> Self {
        let start = range.start.unwrap_or_default();
        let is_done = range.end.as_ref().is_some_and(|end| *end <= start);
        let (view, end) = (view.share(), range.end);
        Self { view, start, end, is_query, is_done, front: None, back: None }
    }

    /// Opens the merged scan of one direction.
    fn open(&self, way: Direction, inner: &Inner) -> Result<Both> {
        let key = match way {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        };
        let sequence = self.is_query.then(|| Sequence::new(inner)).flatten();
        let bounds = (self.start.as_slice(), self.end.as_deref());
        let mut stored = Stream::new(&inner.keys, way, bounds, sequence);
        stored.settle(inner)?;
        // The prefetches run while the memtables are searched.
        stored.send(inner);
        let start = ScanStart { way, key, cache: None, flow: None };
        let memtables = self.view.memtables().cloned().collect();
        let mut memory = Merge::new(MemtableCursor::all(memtables, &start), way);
        memory.settle()?;
        Ok(Both { memory, stored })
    }

    /// Returns the next entry from one end.
    pub(super) fn step(
        &mut self,
        way: Direction,
        inner: &Inner,
    ) -> Result<Option<(Vec<u8>, Value)>> {
        if self.is_done {
            return Ok(None);
        }
        let found = self.find(way, inner);
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
            self.end(inner);
        }
        found
    }

    /// Ends both scans, and records the runs of a range query.
    fn end(&mut self, inner: &Inner) {
        for both in [self.front.take(), self.back.take()].into_iter().flatten() {
            both.stored.end(inner);
        }
    }

    /// As [`Self::step`], for a scan that is not done.
    fn find(&mut self, way: Direction, inner: &Inner) -> Result<Option<(Vec<u8>, Value)>> {
        let open = match way {
            Direction::Up => self.front.take(),
            Direction::Down => self.back.take(),
        };
        let mut both = match open {
            Some(both) => both,
            None => self.open(way, inner)?,
        };
        while let Some((key, is_memory)) = both.restored(way, inner)? {
            let inside = match way {
                Direction::Up => self.end.as_deref().is_none_or(|end| key < end),
                Direction::Down => key >= self.start.as_slice(),
            };
            if !inside {
                break;
            }
            let key = key.to_vec();
            let Some(value) = both.take((&key, is_memory), inner)? else { continue };
            match way {
                Direction::Up => {
                    // The back end stops before this key.
                    self.start.clear();
                    self.start.extend_from_slice(&key);
                    self.start.push(0);
                    self.front = Some(both);
                }
                Direction::Down => {
                    self.end = Some(key.clone());
                    self.back = Some(both);
                }
            }
            return Ok(Some((key, value)));
        }
        match way {
            Direction::Up => self.front = Some(both),
            Direction::Down => self.back = Some(both),
        }
        Ok(None)
    }

    /// Returns the next key with an entry. Reads no run.
    pub(super) fn next_key(&mut self, inner: &Inner) -> Result<Option<Vec<u8>>> {
        let mut both = match self.front.take() {
            Some(both) => both,
            None => self.open(Direction::Up, inner)?,
        };
        while let Some((key, is_memory)) = both.restored(Direction::Up, inner)? {
            if self.end.as_deref().is_some_and(|end| key >= end) {
                return Ok(None);
            }
            let key = key.to_vec();
            let mut is_there = !is_memory;
            if is_memory {
                is_there = both.memory.value().is_some();
                both.memory.advance()?;
            }
            if both.stored.key() == Some(&*key) {
                both.stored.advance(inner)?;
            }
            if is_there {
                self.front = Some(both);
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        self.walk.end(&self.inner);
    }
}

impl Iterator for Range {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.walk.step(Direction::Up, &self.inner).transpose();
        found.map(|found| found.map(|(key, value)| Entry { key, value }))
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        let found = self.walk.step(Direction::Down, &self.inner).transpose();
        found.map(|found| found.map(|(key, value)| Entry { key, value }))
    }
}
