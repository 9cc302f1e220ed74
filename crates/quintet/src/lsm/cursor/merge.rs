//! Merging cursors: an ordered scan, in either direction, over many sorted sources.
//!
//! A [`Merge`] has its sources from the newest to the oldest. Of entries with the same key, the
//! first source's is current. It keeps the sources sorted by their keys. When the first one
//! advances, it stays first if its next key allows, which costs one comparison. Otherwise a binary
//! search finds its new position.
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

pub(crate) use crate::lsm::cursor::source::{MemtableCursor, SstCursor};
use crate::{
    Result,
    io::{AlignedBuffer, Env, Flow, Queue, Queues, Request},
    lsm::block_cache::decoded_block::DecodedBlockCache,
    util::codec::to_u64,
};

/// Bytes that the first reads of a range take together, without the unused parts of blocks: 30
/// entries of 1 KiB, or 200 of 128 bytes.
const SCAN_BYTES: u64 = 32 << 10;

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Where a scan starts: upwards at the first key not below `key`, downwards at the last key below
/// it.
#[derive(Clone, Debug)]
pub(crate) struct ScanStart {
    pub(crate) way: Direction,
    pub(crate) key: Option<Arc<[u8]>>,
    /// The cache that is asked for blocks first. Blocks of the first disk read are added to it;
    /// `None` bypasses it.
    pub(crate) cache: Option<Arc<DecodedBlockCache>>,
    /// Upward scans read the next blocks ahead through this.
    pub(crate) flow: Option<Flow>,
}

impl ScanStart {
    /// An upward scan that bypasses the cache: a scan of a whole table would only evict other
    /// blocks.
    pub(crate) fn up(key: Option<Vec<u8>>) -> Self {
        Self { way: Direction::Up, key: key.map(Arc::from), cache: None, flow: None }
    }

    /// The same, with read-ahead through `flow`.
    pub(crate) fn with(self, flow: &Flow) -> Self {
        Self { flow: Some(flow.clone()), ..self }
    }
}

/// How many bytes a scan reads at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// Bytes of the first read of an SST, or of all SSTs of a scan together.
    first: u64,
    /// Bytes of all SSTs among which the first read is divided in proportion; 0: each SST reads
    /// `first`.
    among: u64,
    /// Maximum bytes of a read.
    most: u64,
}

impl Ahead {
    /// For a scan of a whole file.
    pub(crate) const WHOLE: Self = Self { first: 512 << 10, among: 0, most: 1 << 20 };

    /// For a range that may end soon, over SSTs of `among` bytes together. The first read of each
    /// is in proportion to its size, at least one block.
    pub(crate) const fn scan(among: u64) -> Self {
        Self { first: SCAN_BYTES, among, most: 512 << 10 }
    }

    /// For a scan of a whole file with buffers of at most `bytes`.
    pub(crate) fn bounded(bytes: u64) -> Self {
        let Self { first, most, .. } = Self::WHOLE;
        Self { first: first.min(bytes), among: 0, most: most.min(bytes) }
    }

    /// Returns the maximum bytes of a read.
    pub(crate) const fn most(self) -> u64 {
        self.most
    }

    /// Returns about how many bytes of an SST of this size are read first.
    pub(crate) fn first_of(self, piece_bytes: u64) -> u64 {
        match self.among {
            0 => self.first,
            among => self.first.saturating_mul(piece_bytes).div_ceil(among).min(self.first),
        }
    }
}

/// A cursor over sorted entries: one source of a [`Merge`].
pub(crate) trait SortedCursor {
    /// Returns the current key; `None` at the end.
    fn key(&self) -> Option<&[u8]>;
    /// Returns the current value; `None` for a tombstone.
    fn value(&self) -> Option<&[u8]>;
    /// Advances to the next key.
    fn advance(&mut self) -> Result<()>;
    /// Loads the first entry, if that has not happened yet.
    fn settle(&mut self) -> Result<()>;
    /// Prefetches the cached block that [`waiting`](Self::waiting) will read.
    fn approach(&self);
    /// Loads the first entries from the cache. Appends the SST cursors that need a disk read to
    /// `out`.
    fn waiting<'a>(&'a mut self, out: &mut Vec<&'a mut SstCursor>) -> Result<()>;
}

/// A merging cursor. See the module head.
#[derive(Debug)]
pub(crate) struct Merge<W> {
    /// Newest first.
    pub(crate) sources: Vec<W>,
    way: Direction,
    /// The sources that have an entry, in the order of the scan; of one key, newest first.
    /// [`Merge::settle`] fills it.
    order: Vec<usize>,
    is_sorted: bool,
}

impl<W: SortedCursor> Merge<W> {
    pub(crate) fn new(sources: Vec<W>, way: Direction) -> Self {
        Self { sources, way, order: Vec::new(), is_sorted: false }
    }

    /// Submits the first reads of all SSTs at once, if there are at least two.
    pub(crate) fn prime(&mut self, env: &dyn Env, queues: &Queues) -> Result<()> {
        self.sources.iter().for_each(SortedCursor::approach);
        let mut waiting = Vec::new();
        for source in &mut self.sources {
            source.waiting(&mut waiting)?;
        }
        if waiting.len() < 2 {
            return Ok(());
        }
        queues.with(env, |queue| read_all(&mut waiting, queue))
    }

    /// Loads the first entry of each source and sorts the sources.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.is_sorted {
            return Ok(());
        }
        for source in &mut self.sources {
            source.settle()?;
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
fn read_all(waiting: &mut [&mut SstCursor], queue: &mut dyn Queue) -> Result<()> {
    for (token, cursor) in waiting.iter().enumerate() {
        if let Some(span) = cursor.request() {
            let (file, offset) = (Arc::clone(cursor.piece().file()), span.offset);
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
