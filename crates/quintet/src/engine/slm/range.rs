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
    util::mutant::{self, Bug},
};

/// See the module head.
#[derive(Debug)]
pub(super) struct Range {
    inner: Arc<Inner>,
    walk: Walk,
}

/// A range without what keeps its table alive.
#[derive(Debug)]
pub(super) struct Walk {
    view: SuperVersion,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Whether its runs are watched for compaction.
    is_query: bool,
    /// Nothing is left.
    is_done: bool,
    front: Option<Both>,
    back: Option<Both>,
}

/// Shows `each` the entries of a range, in key order, until it breaks off.
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

/// Memory and files, walked side by side.
#[derive(Debug)]
struct Both {
    memory: Merge<MemtableCursor>,
    stored: Stream,
}

/// Which of the two has the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Memory,
    /// Memory, and what is stored under the same key is older.
    Both,
    Stored,
}

impl Both {
    /// Who has the next entry in key order. `coded` is for the key in memory as the index would
    /// have it; it is made where it is empty.
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

    /// The next key, and whether memory has it.
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

    /// Shows `each` the entries below `end`, until it breaks off.
    fn visit(&mut self, end: Option<&[u8]>, inner: &Inner, each: Visit<'_>) -> Result<()> {
        let (mut value, mut coded) = (Vec::new(), Vec::new());
        while let Some(next) = self.next(&mut coded, inner) {
            // What is stored ends there by itself.
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
                if next == Next::Both && !mutant::active(Bug::SlmRangeShowsBoth) {
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

    /// The value of the next key, where it has one, and goes past it.
    fn take(&mut self, (key, is_memory): (&[u8], bool), inner: &Inner) -> Result<Option<Value>> {
        if !is_memory {
            let value = self.stored.value(inner, &mut OwnedValue)?;
            self.stored.advance(inner)?;
            return Ok(value);
        }
        let value = self.memory.value().map(Value::copy);
        if self.stored.key() == Some(key) && !mutant::active(Bug::SlmRangeShowsBoth) {
            self.stored.advance(inner)?;
        }
        self.memory.advance()?;
        Ok(value)
    }
}

impl Range {
    pub(super) fn new(inner: Arc<Inner>, range: KeyRange, is_query: bool) -> Self {
        let view = inner.front.view.load();
        let walk = Walk::new(&view, range, is_query);
        drop(view);
        Self { inner, walk }
    }
}

impl Walk {
    pub(super) fn new(view: &SuperVersion, range: KeyRange, is_query: bool) -> Self {
        let start = range.start.unwrap_or_default();
        let is_done = range.end.as_ref().is_some_and(|end| *end <= start);
        let (view, end) = (view.share(), range.end);
        Self { view, start, end, is_query, is_done, front: None, back: None }
    }

    fn open(&self, way: Direction, inner: &Inner) -> Result<Both> {
        let key = match way {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        };
        let sequence = self.is_query.then(|| Sequence::new(inner)).flatten();
        let bounds = (self.start.as_slice(), self.end.as_deref());
        let mut stored = Stream::new(&inner.keys, way, bounds, sequence);
        stored.settle(inner)?;
        // The first entries come nearer while memory is searched.
        stored.send(inner);
        let start = ScanStart { way, key, cache: None, flow: None };
        let memtables = self.view.memtables().cloned().collect();
        let mut memory = Merge::new(MemtableCursor::all(memtables, &start), way);
        memory.settle()?;
        Ok(Both { memory, stored })
    }

    /// The next entry from one end.
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

    /// Lets go of everything, and says what the runs of the query were like.
    fn end(&mut self, inner: &Inner) {
        for both in [self.front.take(), self.back.take()].into_iter().flatten() {
            both.stored.end(inner);
        }
    }

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
                    // The back stops before what the front has given.
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

    /// The next key that has an entry. No run is read.
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
