//! An iterator of the program: it moves both ways over a snapshot, within bounds.
//!
//! How: a range of the snapshot runs upwards, and another one downwards. Each is opened when the
//! iterator first moves that way from a key, and kept while it goes on. So a change of direction
//! costs a search, and a step in one direction costs none.

use std::{collections::VecDeque, fmt, ops::Deref, sync::Arc};

use quintet::{Entries, Key, KeyRange, Snapshot, Table, Value};

use crate::{comparator::ComparatorCalls, keys, status::Status};

/// Where an iterator may be.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The first key, in its stored form.
    pub lower: Option<Vec<u8>>,
    /// The first key past the end, in its stored form.
    pub upper: Option<Vec<u8>>,
}

impl Bounds {
    /// Leaves only the keys that begin with `prefix`.
    pub fn narrow_to_prefix(&mut self, prefix: &[u8]) {
        let range = KeyRange::prefix(prefix);
        // A prefix of zeros is itself a key, whose stored form has one zero more. The stored form
        // of the next shorter key begins with the prefix, and is below that.
        self.lower = self.lower.take().max(Some(keys::stored(prefix).into_owned()));
        self.upper = match (self.upper.take(), range.end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// The direction of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From lesser keys to greater ones.
    Up,
    /// From greater keys to lesser ones.
    Down,
}

/// A value that an iterator shows.
#[derive(Debug)]
pub enum EntryValue {
    /// One of a table.
    Stored(Value),
    /// One that is not in a table, such as that of a batch.
    Own(Vec<u8>),
}

impl Deref for EntryValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(value) => value,
            Self::Own(value) => value,
        }
    }
}

/// An entry that an iterator shows. The key is in its stored form.
pub type Entry = (Key, EntryValue);

/// A part of a range.
#[derive(Debug)]
pub struct Page {
    /// The entries, in the direction of the read. There may be none before the end.
    pub entries: VecDeque<Entry>,
    /// The range after the page. `None`: there is nothing.
    pub rest: Option<KeyRange>,
}

impl Page {
    /// Makes a page of up to `count` entries of a range.
    pub fn of(
        entries: impl DoubleEndedIterator<Item = quintet::Result<(Key, Value)>>,
        mut range: KeyRange,
        direction: Direction,
        count: usize,
    ) -> Result<Self, Status> {
        let stored =
            |entry: quintet::Result<_>| entry.map(|(key, value)| (key, EntryValue::Stored(value)));
        let entries: quintet::Result<VecDeque<_>> = match direction {
            Direction::Up => entries.take(count).map(stored).collect(),
            Direction::Down => entries.rev().take(count).map(stored).collect(),
        };
        let entries = entries?;
        let last = entries.back().filter(|_| entries.len() >= count).map(|(key, _)| key);
        let is_last = last.is_none();
        match (last, direction) {
            (Some(key), Direction::Up) => range.start = Some(after(key)),
            (Some(key), Direction::Down) => range.end = Some(key.clone()),
            (None, _) => {}
        }
        Ok(Self { entries, rest: (!is_last).then_some(range) })
    }
}

/// Entries of a table that are read a page at a time, such as those of a transaction.
pub trait PageSource: Send + Sync {
    /// Returns about `count` entries of a range.
    fn page(
        &self,
        table: &Table,
        range: KeyRange,
        direction: Direction,
        count: usize,
    ) -> Result<Page, Status>;
}

/// What an iterator reads.
pub enum Source {
    /// A snapshot.
    Snapshot(Snapshot),
    /// Pages.
    Pages(Arc<dyn PageSource>),
}

impl PageSource for Source {
    fn page(
        &self,
        table: &Table,
        range: KeyRange,
        direction: Direction,
        count: usize,
    ) -> Result<Page, Status> {
        match self {
            Self::Snapshot(snapshot) => {
                Page::of(snapshot.range(table, range.clone())?, range, direction, count)
            }
            Self::Pages(source) => source.page(table, range, direction, count),
        }
    }
}

/// Number of entries of a page. The first page has one, because a seek is often for one entry.
const PAGE_ENTRIES: usize = 64;

/// A range that is read in one direction.
enum OpenRange {
    Entries(Box<Entries>),
    Pages { source: Arc<dyn PageSource>, page: Page, count: usize },
}

impl OpenRange {
    fn new(source: &Source, table: &Table, range: KeyRange) -> Result<Self, Status> {
        Ok(match source {
            Source::Snapshot(snapshot) => Self::Entries(Box::new(snapshot.range(table, range)?)),
            Source::Pages(source) => Self::Pages {
                source: source.clone(),
                page: Page { entries: VecDeque::new(), rest: Some(range) },
                count: 1,
            },
        })
    }

    /// Returns the next entry in a direction, which is the same in each call.
    fn next(&mut self, table: &Table, direction: Direction) -> Result<Option<Entry>, Status> {
        match self {
            Self::Entries(entries) => {
                let entry = match direction {
                    Direction::Up => entries.next(),
                    Direction::Down => entries.next_back(),
                };
                Ok(entry.transpose()?.map(|(key, value)| (key, EntryValue::Stored(value))))
            }
            Self::Pages { source, page, count } => loop {
                if let Some(entry) = page.entries.pop_front() {
                    return Ok(Some(entry));
                }
                let Some(range) = page.rest.take() else { return Ok(None) };
                *page = source.page(table, range, direction, *count)?;
                *count = PAGE_ENTRIES;
            },
        }
    }
}

/// Returns the least key above a stored key.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// An iterator. One thread at a time uses it.
pub struct StoreIterator {
    table: Table,
    source: Source,
    bounds: Bounds,
    comparator: Option<ComparatorCalls>,
    /// The entries above the current one, if the last step was upwards.
    above: Option<OpenRange>,
    /// The entries below the current one, if the last step was downwards.
    below: Option<OpenRange>,
    current: Option<Entry>,
    failure: Option<Status>,
}

impl fmt::Debug for StoreIterator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreIterator").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl StoreIterator {
    /// Makes an iterator at no entry.
    pub fn new(
        table: Table,
        source: Source,
        bounds: Bounds,
        comparator: Option<ComparatorCalls>,
    ) -> Self {
        Self {
            table,
            source,
            bounds,
            comparator,
            above: None,
            below: None,
            current: None,
            failure: None,
        }
    }

    /// Sets the snapshot for the next seek.
    pub fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.source = Source::Snapshot(snapshot);
    }

    /// Replaces what the iterator reads. It is at no entry then.
    #[must_use]
    pub fn map_source(mut self, map: impl FnOnce(Source) -> Source) -> Self {
        self.reset();
        self.current = None;
        self.source = map(self.source);
        self
    }

    /// Sets the snapshot for the next movement from the present entry.
    pub fn move_to_snapshot(&mut self, snapshot: Snapshot) {
        (self.above, self.below) = (None, None);
        self.source = Source::Snapshot(snapshot);
    }

    /// Sets the bounds for the next seek.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Returns whether the iterator is at an entry.
    pub fn is_valid(&self) -> bool {
        self.current.is_some()
    }

    /// Returns the key of the entry. It is valid until the iterator moves.
    pub fn key(&self) -> Option<&[u8]> {
        self.current.as_ref().map(|(key, _)| keys::key(key))
    }

    /// Returns the value of the entry. It is valid until the iterator moves.
    pub fn value(&self) -> Option<&[u8]> {
        self.current.as_ref().map(|(_, value)| &**value)
    }

    /// Returns why the last movement failed. A seek forgets it.
    pub fn failure(&self) -> Option<&Status> {
        self.failure.as_ref()
    }

    /// Forgets a failure, before a seek.
    fn reset(&mut self) {
        (self.above, self.below, self.failure) = (None, None, None);
    }

    /// Reads the next entry in a direction.
    fn step(&mut self, direction: Direction) -> Result<Option<Entry>, Status> {
        let range = match direction {
            Direction::Up => self.above.as_mut(),
            Direction::Down => self.below.as_mut(),
        };
        let next = range.map(|range| range.next(&self.table, direction)).transpose()?.flatten();
        if let (Some(comparator), Some((before, _)), Some((after, _))) =
            (&self.comparator, &self.current, &next)
        {
            comparator.check(keys::key(before), keys::key(after))?;
        }
        Ok(next)
    }

    /// Moves to the first entry of a range, or to the last one.
    fn enter(&mut self, start: Option<Vec<u8>>, end: Option<Vec<u8>>, direction: Direction) {
        let opened = OpenRange::new(&self.source, &self.table, KeyRange { start, end });
        let entered = opened.and_then(|range| {
            let entries = Some(range);
            (self.above, self.below) =
                if direction == Direction::Up { (entries, None) } else { (None, entries) };
            self.step(direction)
        });
        self.set(entered);
    }

    fn set(&mut self, entry: Result<Option<Entry>, Status>) {
        match entry {
            Ok(entry) => self.current = entry,
            Err(status) => {
                self.reset();
                (self.current, self.failure) = (None, Some(status));
            }
        }
        if self.current.is_none() {
            (self.above, self.below) = (None, None);
        }
    }

    fn jump(&mut self, start: Option<Vec<u8>>, end: Option<Vec<u8>>, direction: Direction) {
        self.reset();
        self.current = None;
        let start = start.max(self.bounds.lower.clone());
        let end = match (end, self.bounds.upper.clone()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.enter(start, end, direction);
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        self.jump(None, None, Direction::Up);
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        self.jump(None, None, Direction::Down);
    }

    /// Moves to the first entry whose key is `key` or greater.
    pub fn seek(&mut self, key: &[u8]) {
        self.jump(Some(keys::stored(key).into_owned()), None, Direction::Up);
    }

    /// Moves to the last entry whose key is `key` or less.
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.jump(None, Some(keys::stored_after(key)), Direction::Down);
    }

    /// Moves to the next greater key. Does nothing if the iterator is at no entry.
    pub fn next(&mut self) {
        let Some((key, _)) = &self.current else { return };
        if self.above.is_none() {
            let start = after(key);
            self.enter(Some(start), self.bounds.upper.clone(), Direction::Up);
            return;
        }
        let entry = self.step(Direction::Up);
        self.set(entry);
    }

    /// Moves to the next lesser key. Does nothing if the iterator is at no entry.
    pub fn prev(&mut self) {
        let Some((key, _)) = &self.current else { return };
        if self.below.is_none() {
            let end = key.clone();
            self.enter(self.bounds.lower.clone(), Some(end), Direction::Down);
            return;
        }
        let entry = self.step(Direction::Down);
        self.set(entry);
    }

    /// Stores a failure: the iterator is at no entry, and `failure` returns it.
    pub fn fail(&mut self, status: Status) {
        self.set(Err(status));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_bounds_the_stored_forms_of_its_keys() {
        let keys: [&[u8]; 9] =
            [&[], &[0], &[0, 0], &[0, 0, 0], &[0, 0, 1], &[0, 1], &[1], &[1, 0], &[2]];
        for prefix in keys {
            let mut bounds = Bounds::default();
            bounds.narrow_to_prefix(prefix);
            for key in keys {
                let stored = Some(keys::stored(key).into_owned());
                let is_above = stored >= bounds.lower;
                let is_below = bounds.upper.is_none() || stored < bounds.upper;
                assert_eq!(is_above && is_below, key.starts_with(prefix), "{key:?} in {prefix:?}");
            }
        }
    }
}
