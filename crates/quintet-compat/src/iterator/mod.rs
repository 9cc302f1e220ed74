//! An iterator of the program: it moves both ways over a snapshot, within bounds.
//!
//! How: a range of the snapshot runs upwards, and another one downwards. Each is opened when the
//! iterator first moves that way from a key, and kept while it goes on. So a change of direction
//! costs a search, and a step in one direction costs none. An iterator that goes on upwards copies
//! blocks of entries, because each entry of a range is allocated for itself.

use std::{
    collections::VecDeque,
    fmt,
    ops::{ControlFlow, Deref},
    sync::Arc,
};

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

/// Number of steps upwards after which entries are copied in blocks.
const SINGLE_ENTRIES: usize = 16;
/// Bytes of entries in the first block, and at most. Each block costs a search.
const BLOCK_BYTES: usize = 8 << 10;
const BLOCK_BYTES_MAX: usize = 256 << 10;

/// Entries of a snapshot that were copied at once, in ascending order, and those after them.
#[derive(Debug)]
struct Block {
    /// Keys and values, back to back.
    bytes: Vec<u8>,
    /// Where each entry's key and value end.
    ends: Vec<(usize, usize)>,
    /// The number of the current entry, and where it begins.
    place: usize,
    start: usize,
    /// The range after the block. `None`: there is nothing.
    rest: Option<KeyRange>,
    /// Bytes of the next block.
    next_bytes: usize,
}

impl Block {
    /// Makes an empty block before a range.
    fn before(range: KeyRange) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            place: 0,
            start: 0,
            rest: Some(range),
            next_bytes: BLOCK_BYTES,
        }
    }

    /// Returns the key and the value of the current entry.
    fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (key_end, value_end) = *self.ends.get(self.place)?;
        Some((self.bytes.get(self.start..key_end)?, self.bytes.get(key_end..value_end)?))
    }

    /// Moves to the next entry of the block. Returns `false` if there is none, and stays then.
    #[inline]
    fn step(&mut self) -> bool {
        let has_next = self.place + 1 < self.ends.len();
        if has_next && let Some((_, end)) = self.ends.get(self.place) {
            (self.place, self.start) = (self.place + 1, *end);
        }
        has_next
    }

    /// Moves to the next entry. Returns `false` at the end of the range.
    fn advance(&mut self, snapshot: &Snapshot, table: &Table) -> Result<bool, Status> {
        Ok(self.step() || self.fill(snapshot, table)?)
    }

    /// Returns the key of the last entry.
    fn last_key(&self) -> Option<&[u8]> {
        let (key_end, _) = *self.ends.last()?;
        let start = self.ends.iter().rev().nth(1).map_or(0, |(_, end)| *end);
        self.bytes.get(start..key_end)
    }

    fn fill(&mut self, snapshot: &Snapshot, table: &Table) -> Result<bool, Status> {
        let Some(mut range) = self.rest.take() else { return Ok(false) };
        self.bytes.clear();
        // One that had a long value.
        self.bytes.shrink_to(2 * BLOCK_BYTES_MAX);
        self.ends.clear();
        let (bytes, ends, most) = (&mut self.bytes, &mut self.ends, self.next_bytes);
        snapshot.visit(table, range.clone(), |key, value| {
            bytes.extend_from_slice(key);
            let key_end = bytes.len();
            bytes.extend_from_slice(value);
            ends.push((key_end, bytes.len()));
            if bytes.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let is_full = self.bytes.len() >= most;
        (self.place, self.start) = (0, 0);
        if is_full && let Some(last) = self.last_key() {
            range.start = Some(after(last));
            self.rest = Some(range);
        }
        self.next_bytes = (most * 4).min(BLOCK_BYTES_MAX);
        Ok(!self.ends.is_empty())
    }
}

/// A range that is read in one direction.
enum OpenRange {
    /// One by one. After some steps upwards, blocks follow.
    Entries {
        entries: Box<Entries>,
        taken: usize,
        end: Option<Vec<u8>>,
    },
    Block(Block),
    Pages {
        source: Arc<dyn PageSource>,
        page: Page,
        count: usize,
    },
}

impl OpenRange {
    fn new(source: &Source, table: &Table, range: KeyRange) -> Result<Self, Status> {
        Ok(match source {
            Source::Snapshot(snapshot) => {
                let end = range.end.clone();
                let entries = Box::new(snapshot.range(table, range)?);
                Self::Entries { entries, taken: 0, end }
            }
            Source::Pages(source) => Self::Pages {
                source: source.clone(),
                page: Page { entries: VecDeque::new(), rest: Some(range) },
                count: 1,
            },
        })
    }

    /// Moves to the next entry in a direction, which is the same in each call. `key` is that of the
    /// current entry: a block begins only with it.
    fn next(
        &mut self,
        (source, table): (&Source, &Table),
        direction: Direction,
        key: Option<&[u8]>,
    ) -> Result<Current, Status> {
        if let (Self::Entries { taken: SINGLE_ENTRIES.., end, .. }, Direction::Up, Some(key)) =
            (&mut *self, direction, key)
        {
            let range = KeyRange { start: Some(after(key)), end: end.take() };
            *self = Self::Block(Block::before(range));
        }
        let entry = match self {
            Self::Entries { entries, taken, .. } => {
                *taken += 1;
                let entry = match direction {
                    Direction::Up => entries.next(),
                    Direction::Down => entries.next_back(),
                };
                entry.transpose()?.map(|(key, value)| (key, EntryValue::Stored(value)))
            }
            Self::Block(block) => {
                let Source::Snapshot(snapshot) = source else { return Ok(Current::None) };
                let has_next = block.advance(snapshot, table)?;
                return Ok(if has_next { Current::InBlock } else { Current::None });
            }
            Self::Pages { source, page, count } => loop {
                if let Some(entry) = page.entries.pop_front() {
                    break Some(entry);
                }
                let Some(range) = page.rest.take() else { break None };
                *page = source.page(table, range, direction, *count)?;
                *count = PAGE_ENTRIES;
            },
        };
        Ok(entry.map_or(Current::None, Current::Entry))
    }
}

/// The current entry of an iterator.
enum Current {
    None,
    Entry(Entry),
    /// The current one of the block above.
    InBlock,
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
    current: Current,
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
            current: Current::None,
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
        self.source = map(self.source);
        self
    }

    /// Sets the snapshot for the next movement from the present entry.
    pub fn move_to_snapshot(&mut self, snapshot: Snapshot) {
        self.own_current();
        (self.above, self.below) = (None, None);
        self.source = Source::Snapshot(snapshot);
    }

    /// Sets the bounds for the next seek.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Returns the current entry. The key is in its stored form.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        match (&self.current, &self.above) {
            (Current::Entry((key, value)), _) => Some((key, value)),
            (Current::InBlock, Some(OpenRange::Block(block))) => block.entry(),
            _ => None,
        }
    }

    /// Takes the current entry out of its block, which may leave then.
    fn own_current(&mut self) {
        if matches!(self.current, Current::InBlock) {
            let owned =
                self.entry().map(|(key, value)| (key.to_vec(), EntryValue::Own(value.to_vec())));
            self.current = owned.map_or(Current::None, Current::Entry);
        }
    }

    /// Returns whether the iterator is at an entry.
    pub fn is_valid(&self) -> bool {
        !matches!(self.current, Current::None)
    }

    /// Returns the key of the entry. It is valid until the iterator moves.
    pub fn key(&self) -> Option<&[u8]> {
        self.entry().map(|(key, _)| keys::key(key))
    }

    /// Returns the value of the entry. It is valid until the iterator moves.
    pub fn value(&self) -> Option<&[u8]> {
        self.entry().map(|(_, value)| value)
    }

    /// Returns why the last movement failed. A seek forgets it.
    pub fn failure(&self) -> Option<&Status> {
        self.failure.as_ref()
    }

    /// Leaves the entry and forgets a failure.
    fn reset(&mut self) {
        self.current = Current::None;
        (self.above, self.below, self.failure) = (None, None, None);
    }

    /// Moves to the next entry in a direction.
    fn step(&mut self, direction: Direction) -> Result<(), Status> {
        let open = match direction {
            Direction::Up => self.above.as_mut(),
            Direction::Down => self.below.as_mut(),
        };
        let Some(open) = open else {
            self.current = Current::None;
            return Ok(());
        };
        let begins_block = direction == Direction::Up
            && matches!(open, OpenRange::Entries { taken: SINGLE_ENTRIES.., .. });
        let key = match (&self.current, &*open) {
            _ if !begins_block && self.comparator.is_none() => None,
            (Current::Entry((key, _)), _) => Some(key.clone()),
            (Current::InBlock, OpenRange::Block(block)) => {
                block.entry().map(|(key, _)| key.to_vec())
            }
            _ => None,
        };
        self.current = open.next((&self.source, &self.table), direction, key.as_deref())?;
        if let (Some(comparator), Some(before), Some((after, _))) =
            (&self.comparator, &key, self.entry())
        {
            comparator.check(keys::key(before), keys::key(after))?;
        }
        Ok(())
    }

    /// Moves to the first entry of a range, or to the last one.
    fn enter(&mut self, start: Option<Vec<u8>>, end: Option<Vec<u8>>, direction: Direction) {
        self.own_current();
        let opened = OpenRange::new(&self.source, &self.table, KeyRange { start, end });
        let entered = opened.and_then(|range| {
            let entries = Some(range);
            (self.above, self.below) =
                if direction == Direction::Up { (entries, None) } else { (None, entries) };
            self.step(direction)
        });
        self.end_move(entered);
    }

    /// Ends a movement: forgets the ranges if it has left the entries.
    fn end_move(&mut self, moved: Result<(), Status>) {
        if let Err(status) = moved {
            self.reset();
            self.failure = Some(status);
        } else if !self.is_valid() {
            (self.above, self.below) = (None, None);
        }
    }

    fn jump(&mut self, start: Option<Vec<u8>>, end: Option<Vec<u8>>, direction: Direction) {
        self.reset();
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

    /// Moves to the first entry whose stored form is `stored` or greater.
    pub fn seek_stored(&mut self, stored: Vec<u8>) {
        self.jump(Some(stored), None, Direction::Up);
    }

    /// Moves to the last entry whose stored form is less than `stored`.
    pub fn seek_before_stored(&mut self, stored: Vec<u8>) {
        self.jump(None, Some(stored), Direction::Down);
    }

    /// Moves to the next greater key. Does nothing if the iterator is at no entry.
    pub fn next(&mut self) {
        // Most steps of a scan stay within a block.
        if let (Current::InBlock, Some(OpenRange::Block(block)), None) =
            (&self.current, &mut self.above, &self.comparator)
            && block.step()
        {
            return;
        }
        if self.above.is_none() {
            let Some(start) = self.entry().map(|(key, _)| after(key)) else { return };
            return self.enter(Some(start), self.bounds.upper.clone(), Direction::Up);
        }
        let moved = self.step(Direction::Up);
        self.end_move(moved);
    }

    /// Moves to the next lesser key. Does nothing if the iterator is at no entry.
    pub fn prev(&mut self) {
        if self.below.is_none() {
            let Some(end) = self.entry().map(|(key, _)| key.to_vec()) else { return };
            return self.enter(self.bounds.lower.clone(), Some(end), Direction::Down);
        }
        let moved = self.step(Direction::Down);
        self.end_move(moved);
    }

    /// Stores a failure: the iterator is at no entry, and `failure` returns it.
    pub fn fail(&mut self, status: Status) {
        self.end_move(Err(status));
    }
}

#[cfg(test)]
mod tests;
