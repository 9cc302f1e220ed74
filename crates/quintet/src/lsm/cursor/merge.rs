//! Merging cursors: an ordered scan, in either direction, over many sorted sources.
//!
//! A [`MergeCursor`] has its sources from the newest to the oldest. Of entries with the same key,
//! that of the first source is current. It keeps the sources sorted by their keys. When the first
//! one advances, it stays first if its next key allows, which costs one comparison. Otherwise a
//! binary search finds its new position.
//!
//! The first reads of all SSTs go to the disk at once, through one queue. Each reads what a range
//! of [`SCAN_BYTES`] needs of its file. Later reads double in size, because a long scan tends to go
//! on.
//!
//! Invariants:
//! - A scan sees the files of one version.
//! - Of a memtable, it sees each key as it is when the scan reaches it.
//!
//! Threads: a cursor belongs to one thread.

#![deny(clippy::indexing_slicing)]

use std::{cmp, sync::Arc};

pub(crate) use super::{
    memtable_cursor::MemtableCursor,
    sorted_cursor::{DiskCursor, ReadAheadSizes, ScanStart, SortedCursor, range_read_bytes},
    sst_cursor::SstCursor,
};
pub(crate) use crate::contract::Direction;
use crate::{
    Result,
    io::{AlignedBuffer, Env, Queue, Queues, Request},
    util::codec::to_u64,
};

/// A merging cursor. See the module head.
#[derive(Debug)]
pub(crate) struct MergeCursor<W> {
    /// Newest first.
    pub(crate) sources: Vec<W>,
    way: Direction,
    /// The sources that have an entry, in the order of the scan; of one key, newest first.
    /// [`MergeCursor::load_first`] fills it.
    order: Vec<usize>,
    is_sorted: bool,
}

impl<W: SortedCursor> MergeCursor<W> {
    pub(crate) fn new(sources: Vec<W>, way: Direction) -> Self {
        Self { sources, way, order: Vec::new(), is_sorted: false }
    }

    /// Submits the first reads of all SSTs at once, if there are at least two.
    pub(crate) fn prime(&mut self, env: &dyn Env, queues: &Queues) -> Result<()> {
        self.sources.iter().for_each(SortedCursor::prefetch);
        let mut waiting = Vec::new();
        for source in &mut self.sources {
            source.collect_disk_reads(&mut waiting)?;
        }
        if waiting.len() < 2 {
            return Ok(());
        }
        queues.with(env, |queue| read_all(&mut waiting, queue))
    }

    /// Loads the first entry of each source and sorts the sources.
    pub(crate) fn load_first(&mut self) -> Result<()> {
        if self.is_sorted {
            return Ok(());
        }
        for source in &mut self.sources {
            source.load_first()?;
        }
        self.is_sorted = true;
        let has_entry = |(index, source): (usize, &W)| source.key().map(|_| index);
        let mut order: Vec<usize> = self.sources.iter().enumerate().filter_map(has_entry).collect();
        order.sort_unstable_by(|one, other| self.compare(*one, *other));
        self.order = order;
        Ok(())
    }

    fn key_of(&self, source: usize) -> Option<&[u8]> {
        self.sources.get(source)?.key()
    }

    /// Orders two sources: by key in the direction of the scan, then the newer first.
    #[inline]
    fn compare(&self, one: usize, other: usize) -> cmp::Ordering {
        let keys = (self.key_of(one), self.key_of(other));
        let order = match self.way {
            Direction::Up => keys.0.cmp(&keys.1),
            Direction::Down => keys.1.cmp(&keys.0),
        };
        order.then(one.cmp(&other))
    }

    /// Moves the source at `position`, whose entry has changed, to its new position; removes
    /// it if it has ended.
    fn reposition(&mut self, position: usize) {
        let Some(&source) = self.order.get(position) else { return };
        if self.key_of(source).is_none() {
            self.order.remove(position);
            return;
        }
        let is_before = |other: &usize| self.compare(*other, source).is_lt();
        let rest = self.order.get(position + 1..).unwrap_or(&[]);
        let passed = match rest.split_first() {
            Some((next, others)) if is_before(next) => 1 + others.partition_point(is_before),
            _ => return,
        };
        if let Some(moved) = self.order.get_mut(position..=position + passed) {
            moved.rotate_left(1);
        }
    }

    /// Ends the scan and drops the sources.
    pub(crate) fn end(&mut self) {
        self.sources.clear();
        self.order.clear();
    }

    /// Returns the index of the source that has the newest entry of the current key.
    #[inline]
    pub(crate) fn current(&self) -> Option<usize> {
        self.order.first().copied()
    }

    /// Returns the current key.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key_of(self.current()?)
    }

    /// Returns the current value; `None` for a tombstone.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.sources.get(self.current()?)?.value()
    }

    /// Returns whether a source has an entry of the current key.
    pub(crate) fn has_key(&self, index: usize) -> bool {
        let key = self.key_of(index);
        key.is_some() && key == self.key()
    }

    /// Returns the indexes of the sources that have an entry of the current key, newest first.
    pub(crate) fn holders(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied().take_while(|source| self.has_key(*source))
    }

    fn advance_at(&mut self, position: usize) -> Result<()> {
        let source = self.order.get(position).and_then(|source| self.sources.get_mut(*source));
        source.map_or(Ok(()), SortedCursor::advance)?;
        self.reposition(position);
        Ok(())
    }

    /// Advances past all entries of the current key.
    pub(crate) fn advance(&mut self) -> Result<()> {
        while let Some(&older) = self.order.get(1)
            && self.has_key(older)
        {
            self.advance_at(1)?;
        }
        self.advance_at(0)
    }
}

/// Reads the first blocks of cursors at once.
fn read_all(waiting: &mut [&mut dyn DiskCursor], queue: &mut dyn Queue) -> Result<()> {
    for (token, cursor) in waiting.iter().enumerate() {
        if let Some((file, span)) = cursor.request() {
            let (file, offset) = (Arc::clone(file), span.offset);
            let buffer = AlignedBuffer::zeroed(span.whole());
            let length = buffer.len();
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length });
        }
    }
    let mut done = Vec::new();
    queue.wait(queue.pending(), &mut done);
    let mut outcome = Ok(());
    for completion in done {
        let index = usize::try_from(completion.token).unwrap_or(usize::MAX);
        let Some(cursor) = waiting.get_mut(index) else { continue };
        let taken = match completion.result {
            Ok(count) if count == completion.buffer.len() => cursor.accept(completion.buffer),
            // The cursor reads it again and reports the error.
            _ => Ok(()),
        };
        outcome = outcome.and(taken);
    }
    outcome
}
