//! Walking in key order, either way: over a memtable, a piece, a level, or many of these at once.
//!
//! A [`Merge`] has its sources from the newest to the oldest: of entries of one key, the first
//! source's counts. Its pieces' first reads go to the disk at once, through one queue; further
//! ones ask for twice as much each time, because who reads much goes on reading.
//!
//! Invariants: a walk sees the files of one version; of memtables it sees each key as it is when
//! the walk comes by.

#![deny(clippy::indexing_slicing)]

use std::{ops::Range, sync::Arc};

use super::{
    block::{self, EntryRef},
    cached::Cache,
    memtable::Memtable,
    piece::{Piece, Span},
};
use crate::{
    Result,
    codec::to_u64,
    disk::{AlignedBuffer, Env, Queue, Queues, Request},
    index::skiplist::Node,
};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// Where a walk starts: up from the first key not below, or down from the last key below.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) way: Way,
    pub(crate) key: Option<Vec<u8>>,
    /// Where blocks are looked for first. Of what is read, the first read's blocks go there.
    pub(crate) cache: Option<Arc<Cache>>,
}

impl Start {
    /// Up, and round the cache: what passes over a whole table would only fill it.
    pub(crate) fn up(key: Option<Vec<u8>>) -> Self {
        Self { way: Way::Up, key, cache: None }
    }
}

/// About how many bytes one read takes at first, and at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) first: u64,
    pub(crate) most: u64,
}

impl Ahead {
    /// One group, then more and more.
    pub(crate) const SCAN: Self = Self { first: 1, most: 512 << 10 };
    pub(crate) const WHOLE: Self = Self { first: 512 << 10, most: 1 << 20 };
}

/// What a walk that reads a second time asks for.
const READ_AHEAD_MIN: u64 = 16 << 10;

/// A walk over one memtable.
#[derive(Debug)]
pub(crate) struct MemCursor {
    memtable: Arc<Memtable>,
    way: Way,
    node: Option<Node>,
    key: Vec<u8>,
    value: Vec<u8>,
    tombstone: bool,
}

impl MemCursor {
    pub(crate) fn new(memtable: Arc<Memtable>, start: &Start) -> Self {
        let key = start.key.as_deref();
        let node = match start.way {
            Way::Up => memtable.seek(key.unwrap_or(&[])),
            Way::Down => memtable.seek_before(key),
        };
        let mut cursor = Self {
            memtable,
            way: start.way,
            node,
            key: Vec::new(),
            value: Vec::new(),
            tombstone: false,
        };
        cursor.load();
        cursor
    }

    fn load(&mut self) {
        if let Some(node) = self.node {
            self.tombstone = self.memtable.read(node, &mut self.key, &mut self.value);
        }
    }

    fn go_on(&mut self) {
        self.node = match (self.node, self.way) {
            (None, _) => None,
            (Some(node), Way::Up) => self.memtable.next_key(node),
            (Some(_), Way::Down) => self.memtable.seek_before(Some(&self.key)),
        };
        self.load();
    }
}

/// A walk over one piece.
#[derive(Debug)]
pub(crate) struct PieceCursor {
    piece: Arc<Piece>,
    start: Start,
    ahead: Ahead,
    /// Groups that are to be read next.
    pending: Option<Range<usize>>,
    /// Groups that were read, their entries with the blocks' numbers, and where the walk is.
    loaded: Range<usize>,
    bytes: Vec<u8>,
    entries: Vec<(EntryRef, u32)>,
    place: Option<usize>,
    placed: bool,
}

impl PieceCursor {
    pub(crate) fn new(piece: Arc<Piece>, start: Start, ahead: Ahead) -> Self {
        let groups = piece.fences.len();
        let pending = if groups == 0 {
            None
        } else {
            let at = match (&start.key, start.way) {
                (Some(key), _) => piece.fences.find(key),
                (None, Way::Up) => 0,
                (None, Way::Down) => groups - 1,
            };
            Some(match start.way {
                Way::Up => piece.groups_from(at, ahead.first),
                Way::Down => piece.groups_before(at + 1, ahead.first),
            })
        };
        Self {
            piece,
            start,
            ahead,
            pending,
            loaded: 0..0,
            bytes: Vec::new(),
            entries: Vec::new(),
            place: None,
            placed: false,
        }
    }

    /// What has to be read before the walk goes on.
    fn request(&self) -> Option<Span> {
        let groups = self.pending.clone()?;
        Some(self.piece.span(self.piece.fences.blocks(groups)))
    }

    /// Takes what was read for the request.
    fn take(&mut self, buffer: &AlignedBuffer) -> Result<()> {
        let Some(groups) = self.pending.take() else { return Ok(()) };
        let blocks = self.piece.fences.blocks(groups.clone());
        let span = self.piece.span(blocks.clone());
        self.bytes.clear();
        self.entries.clear();
        for number in blocks.clone() {
            let open = self.piece.open_block(buffer, span, (blocks.start, number))?;
            let base = self.bytes.len();
            self.bytes.extend_from_slice(open.entries());
            if let Some(cache) = self.start.cache.as_ref().filter(|_| !self.placed) {
                cache.fill(self.piece.slot_to_fill(number, cache), open.entries());
            }
            self.list_entries(base, number)?;
        }
        self.start_on(groups);
        Ok(())
    }

    /// Takes what is wanted next from the cache, if all of it is there.
    fn take_cached(&mut self) -> Result<()> {
        let (Some(cache), Some(groups)) = (&self.start.cache, self.pending.clone()) else {
            return Ok(());
        };
        let cache = Arc::clone(cache);
        self.bytes.clear();
        self.entries.clear();
        for number in self.piece.fences.blocks(groups.clone()) {
            let base = self.bytes.len();
            if !cache.entries(self.piece.slot(number), &mut self.bytes) {
                return Ok(());
            }
            self.list_entries(base, number)?;
        }
        self.pending = None;
        self.start_on(groups);
        Ok(())
    }

    /// Lists the entries of a block that begins at `base`.
    fn list_entries(&mut self, base: usize, number: u32) -> Result<()> {
        let mut at = base;
        while at < self.bytes.len() {
            let Some((entry, next)) = block::entry_at(&self.bytes, at) else {
                let offset = self.piece.span(number..number + 1).offset;
                return Err(self.piece.damage(offset, "an entry does not parse"));
            };
            self.entries.push((entry, number));
            at = next;
        }
        Ok(())
    }

    /// Begins with groups that were loaded.
    fn start_on(&mut self, groups: Range<usize>) {
        self.loaded = groups;
        self.place = match self.start.way {
            _ if self.entries.is_empty() => None,
            Way::Up => Some(0),
            Way::Down => Some(self.entries.len() - 1),
        };
        if !self.placed {
            self.find_place();
        }
    }

    fn key_at(&self, place: usize) -> &[u8] {
        let entry = self.entries.get(place);
        entry.and_then(|(entry, _)| self.bytes.get(entry.key.clone())).unwrap_or(&[])
    }

    /// Puts the walk where it starts, in what was read first.
    fn find_place(&mut self) {
        self.placed = true;
        let Some(key) = self.start.key.take() else { return };
        let bytes = &self.bytes;
        let below = |(entry, _): &(EntryRef, u32)| {
            bytes.get(entry.key.clone()).unwrap_or(&[]) < key.as_slice()
        };
        let first = self.entries.partition_point(below);
        self.place = match self.start.way {
            Way::Up => (first < self.entries.len()).then_some(first),
            Way::Down => first.checked_sub(1),
        };
    }

    /// Reads on until there is an entry, or no more.
    fn read_on(&mut self) -> Result<()> {
        loop {
            self.take_cached()?;
            if let Some(span) = self.request() {
                let buffer = self.piece.read(span)?;
                self.take(&buffer)?;
            }
            if self.place.is_some() {
                return Ok(());
            }
            let groups = self.piece.fences.len();
            let (ahead, loaded) = (&mut self.ahead, &self.loaded);
            ahead.first = (ahead.first * 2).clamp(READ_AHEAD_MIN, ahead.most);
            let next = match self.start.way {
                Way::Up if loaded.end < groups => self.piece.groups_from(loaded.end, ahead.first),
                Way::Down if loaded.start > 0 => {
                    self.piece.groups_before(loaded.start, ahead.first)
                }
                _ => return Ok(()),
            };
            self.pending = Some(next);
        }
    }

    fn go_on(&mut self) -> Result<()> {
        self.place = match (self.place, self.start.way) {
            (None, _) => return Ok(()),
            (Some(place), Way::Up) => Some(place + 1).filter(|next| *next < self.entries.len()),
            (Some(place), Way::Down) => place.checked_sub(1),
        };
        if self.place.is_none() { self.read_on() } else { Ok(()) }
    }

    fn entry(&self) -> Option<&(EntryRef, u32)> {
        self.entries.get(self.place?)
    }

    /// The number of the entry's block.
    pub(crate) fn block(&self) -> u32 {
        self.entry().map_or(0, |(_, block)| *block)
    }
}

/// One walk of a merge.
pub(crate) trait Walk {
    /// The key that the walk is at.
    fn key(&self) -> Option<&[u8]>;
    /// Its value; `None` for a tombstone.
    fn value(&self) -> Option<&[u8]>;
    /// Goes to the next key.
    fn advance(&mut self) -> Result<()>;
    /// Goes to the first key, for whoever is not there yet.
    fn settle(&mut self) -> Result<()>;
    /// Appends the pieces that wait for a read.
    fn waiting<'a>(&'a mut self, out: &mut Vec<&'a mut PieceCursor>) -> Result<()>;
}

impl Walk for MemCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.node.is_some().then_some(self.key.as_slice())
    }

    fn value(&self) -> Option<&[u8]> {
        (!self.tombstone).then_some(self.value.as_slice())
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn waiting<'a>(&'a mut self, _out: &mut Vec<&'a mut PieceCursor>) -> Result<()> {
        Ok(())
    }
}

impl Walk for PieceCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.place.map(|place| self.key_at(place))
    }

    fn value(&self) -> Option<&[u8]> {
        let (entry, _) = self.entry().filter(|(entry, _)| !entry.tombstone)?;
        self.bytes.get(entry.value.clone())
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on()
    }

    fn settle(&mut self) -> Result<()> {
        self.read_on()
    }

    fn waiting<'a>(&'a mut self, out: &mut Vec<&'a mut PieceCursor>) -> Result<()> {
        self.take_cached()?;
        if self.pending.is_some() {
            out.push(self);
        }
        Ok(())
    }
}

/// Many walks as one.
#[derive(Debug)]
pub(crate) struct Merge<W> {
    /// Newest first.
    pub(crate) sources: Vec<W>,
    way: Way,
    /// The source whose entry is next; [`Merge::settle`] finds it first.
    current: Option<usize>,
    settled: bool,
}

impl<W: Walk> Merge<W> {
    pub(crate) fn new(sources: Vec<W>, way: Way) -> Self {
        Self { sources, way, current: None, settled: false }
    }

    /// Makes the first reads of all pieces at once.
    pub(crate) fn prime(&mut self, env: &dyn Env, queues: &Queues) -> Result<()> {
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
        self.choose();
        Ok(())
    }

    fn choose(&mut self) {
        let mut best: Option<(usize, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            let better = match (best, self.way) {
                (None, _) => true,
                (Some((_, least)), Way::Up) => key < least,
                (Some((_, most)), Way::Down) => key > most,
            };
            if better {
                best = Some((index, key));
            }
        }
        self.current = best.map(|(index, _)| index);
    }

    /// There is nothing more.
    pub(crate) fn end(&mut self) {
        self.sources.clear();
        self.current = None;
    }

    /// The source that has the newest entry of the next key.
    pub(crate) fn current(&self) -> Option<usize> {
        self.current
    }

    fn source(&self) -> Option<&W> {
        self.sources.get(self.current?)
    }

    /// The next key.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.source()?.key()
    }

    /// Its value; `None` for a tombstone.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.source()?.value()
    }

    /// Whether a source has an entry of the next key.
    pub(crate) fn has_key(&self, index: usize) -> bool {
        let key = self.sources.get(index).and_then(Walk::key);
        key.is_some() && key == self.key()
    }

    /// Goes past the next key.
    pub(crate) fn advance(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        let (front, rest) = self.sources.split_at_mut(current);
        debug_assert!(!front.is_empty() || current == 0);
        let Some((newest, older)) = rest.split_first_mut() else { return Ok(()) };
        for source in older {
            if source.key().is_some() && source.key() == newest.key() {
                source.advance()?;
            }
        }
        newest.advance()?;
        self.choose();
        Ok(())
    }
}

/// Makes the first reads of walks at once.
fn read_all(waiting: &mut [&mut PieceCursor], queue: &mut dyn Queue) -> Result<()> {
    for (token, cursor) in waiting.iter().enumerate() {
        if let Some(span) = cursor.request() {
            let (file, offset) = (Arc::clone(cursor.piece.file()), span.offset);
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
            Ok(count) if count == completion.buffer.len() => cursor.take(&completion.buffer),
            // The walk reads it again, and says what is wrong.
            _ => Ok(()),
        };
        outcome = outcome.and(taken);
    }
    outcome
}
