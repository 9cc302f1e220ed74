//! Walking in key order, either way, over many sources at once.
//!
//! A [`Merge`] has its sources from the newest to the oldest: of entries of one key, the first
//! source's counts. Sources that have an entry stand in the order of their keys: who gives the
//! next one stays in front as long as it can, and else finds its new place by halves. Pieces'
//! first reads go to the disk at once, through one queue, each as large as what a range of
//! [`SCAN_BYTES`] takes of that piece; further ones ask for twice as much each time, because who
//! reads much goes on reading.
//!
//! Invariants: a walk sees the files of one version; of memtables it sees each key as it is when
//! the walk comes by.

#![deny(clippy::indexing_slicing)]

use std::{cmp, sync::Arc};

pub(crate) use crate::lsm::cursor::source::{MemtableCursor, SstCursor};
use crate::{
    Result,
    io::{AlignedBuffer, Env, Flow, Queue, Queues, Request},
    lsm::block_cache::decoded_block::DecodedBlockCache,
    util::codec::to_u64,
};

/// What the first reads of a range take together, but for what of a block nobody wants: 30 entries
/// of 1 KiB, 200 of 128 bytes.
const SCAN_BYTES: u64 = 32 << 10;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Where a walk starts: up from the first key not below, or down from the last key below.
#[derive(Clone, Debug)]
pub(crate) struct ScanStart {
    pub(crate) way: Direction,
    pub(crate) key: Option<Arc<[u8]>>,
    /// Where blocks are looked for first. Of what is read, the first read's blocks go there.
    pub(crate) cache: Option<Arc<DecodedBlockCache>>,
    /// Upwards, what comes next is read before it is wanted.
    pub(crate) flow: Option<Flow>,
}

impl ScanStart {
    /// Up, and round the cache: what passes over a whole table would only fill it.
    pub(crate) fn up(key: Option<Vec<u8>>) -> Self {
        Self { way: Direction::Up, key: key.map(Arc::from), cache: None, flow: None }
    }

    /// The same, with reads that go on meanwhile.
    pub(crate) fn with(self, flow: &Flow) -> Self {
        Self { flow: Some(flow.clone()), ..self }
    }
}

/// How many bytes a walk reads at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// The first read of a piece, or of all pieces of a walk.
    first: u64,
    /// What the first read is shared out to, by pieces' bytes; 0: each piece reads so much.
    among: u64,
    /// A read at most.
    most: u64,
}

impl Ahead {
    pub(crate) const WHOLE: Self = Self { first: 512 << 10, among: 0, most: 1 << 20 };

    /// For a range that may end soon, over pieces of so many bytes together: each is read by its
    /// share, a block at least, because that is what a range takes of it.
    pub(crate) const fn scan(among: u64) -> Self {
        Self { first: SCAN_BYTES, among, most: 512 << 10 }
    }

    /// For a walk to the end, with buffers of so many bytes.
    pub(crate) fn bounded(bytes: u64) -> Self {
        let Self { first, most, .. } = Self::WHOLE;
        Self { first: first.min(bytes), among: 0, most: most.min(bytes) }
    }

    /// The most that a read takes.
    pub(crate) const fn most(self) -> u64 {
        self.most
    }

    /// About how much of a piece of so many bytes is read first.
    pub(crate) fn first_of(self, piece_bytes: u64) -> u64 {
        match self.among {
            0 => self.first,
            among => self.first.saturating_mul(piece_bytes).div_ceil(among).min(self.first),
        }
    }
}

/// One walk of a merge.
pub(crate) trait SortedCursor {
    /// The key that the walk is at.
    fn key(&self) -> Option<&[u8]>;
    /// Its value; `None` for a tombstone.
    fn value(&self) -> Option<&[u8]>;
    /// Goes to the next key.
    fn advance(&mut self) -> Result<()>;
    /// Goes to the first key, for whoever is not there yet.
    fn settle(&mut self) -> Result<()>;
    /// Has what [`waiting`](Self::waiting) will look at in the cache come nearer.
    fn approach(&self);
    /// Takes what the cache has, and appends the pieces that wait for a read.
    fn waiting<'a>(&'a mut self, out: &mut Vec<&'a mut SstCursor>) -> Result<()>;
}

/// Many walks as one.
#[derive(Debug)]
pub(crate) struct Merge<W> {
    /// Newest first.
    pub(crate) sources: Vec<W>,
    way: Direction,
    /// The sources that have an entry, in the order of the walk, of one key newest first;
    /// [`Merge::settle`] finds them.
    order: Vec<usize>,
    settled: bool,
}

impl<W: SortedCursor> Merge<W> {
    pub(crate) fn new(sources: Vec<W>, way: Direction) -> Self {
        Self { sources, way, order: Vec::new(), settled: false }
    }

    /// Makes the first reads of all pieces at once.
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

    /// Finds the first entry.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.settled {
            return Ok(());
        }
        for source in &mut self.sources {
            source.settle()?;
        }
        self.settled = true;
        let has_entry = |(index, source): (usize, &W)| source.key().map(|_| index);
        let mut order: Vec<usize> = self.sources.iter().enumerate().filter_map(has_entry).collect();
        order.sort_unstable_by(|one, other| self.compare(*one, *other));
        self.order = order;
        Ok(())
    }

    fn key_of(&self, source: usize) -> Option<&[u8]> {
        self.sources.get(source)?.key()
    }

    /// Which of two sources comes first.
    #[inline]
    fn compare(&self, one: usize, other: usize) -> cmp::Ordering {
        let keys = (self.key_of(one), self.key_of(other));
        let order = match self.way {
            Direction::Up => keys.0.cmp(&keys.1),
            Direction::Down => keys.1.cmp(&keys.0),
        };
        order.then(one.cmp(&other))
    }

    /// The source at a place of the order has another entry, or none: puts it where it belongs.
    fn replace(&mut self, place: usize) {
        let Some(&source) = self.order.get(place) else { return };
        if self.key_of(source).is_none() {
            self.order.remove(place);
            return;
        }
        let is_before = |other: &usize| self.compare(*other, source).is_lt();
        let rest = self.order.get(place + 1..).unwrap_or(&[]);
        let passed = match rest.split_first() {
            Some((next, others)) if is_before(next) => 1 + others.partition_point(is_before),
            _ => return,
        };
        if let Some(moved) = self.order.get_mut(place..=place + passed) {
            moved.rotate_left(1);
        }
    }

    /// There is nothing more.
    pub(crate) fn end(&mut self) {
        self.sources.clear();
        self.order.clear();
    }

    /// The source that has the newest entry of the next key.
    #[inline]
    pub(crate) fn current(&self) -> Option<usize> {
        self.order.first().copied()
    }

    /// The next key.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key_of(self.current()?)
    }

    /// Its value; `None` for a tombstone.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.sources.get(self.current()?)?.value()
    }

    /// Whether a source has an entry of the next key.
    pub(crate) fn has_key(&self, index: usize) -> bool {
        let key = self.key_of(index);
        key.is_some() && key == self.key()
    }

    fn advance_at(&mut self, place: usize) -> Result<()> {
        let source = self.order.get(place).and_then(|source| self.sources.get_mut(*source));
        source.map_or(Ok(()), SortedCursor::advance)?;
        self.replace(place);
        Ok(())
    }

    /// Goes past the next key.
    pub(crate) fn advance(&mut self) -> Result<()> {
        while let Some(&older) = self.order.get(1)
            && self.has_key(older)
        {
            self.advance_at(1)?;
        }
        self.advance_at(0)
    }
}

/// Makes the first reads of walks at once.
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
        let place = usize::try_from(completion.token).unwrap_or(usize::MAX);
        let Some(cursor) = waiting.get_mut(place) else { continue };
        let taken = match completion.result {
            Ok(count) if count == completion.buffer.len() => cursor.take(completion.buffer),
            // The walk reads it again, and says what is wrong.
            _ => Ok(()),
        };
        outcome = outcome.and(taken);
    }
    outcome
}
