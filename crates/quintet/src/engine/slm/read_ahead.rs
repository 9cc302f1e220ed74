//! Read-ahead of a scan's blocks.
//!
//! Problem: a disk returns 64 KiB in 90 us and 1 MiB in 800 us. A scan that waits for each read
//! before it submits the next gets half of the disk's throughput. A scan that reads far ahead reads
//! blocks that nobody needs.
//!
//! How: the stream names the blocks that it will need. Adjacent blocks of one file become one read.
//! Reads are in flight while the stream returns entries. The stream submits more reads when less
//! than half of a window is left, so the disk stays busy. A range reads at most one window in vain.
//! The window grows with the blocks that the stream has read.
//!
//! Invariants: a failed read-ahead is dropped; the stream reads that block alone when it reaches
//! it, and only then returns an error. Reads in flight at the end of a range complete unobserved.
//!
//! Thread rules: one stream owns it.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::{
    Inner,
    runs::{Place, Run},
};
use crate::{
    io::{AlignedBuffer, Flow, Pending, Request},
    lsm::{
        cursor::merge::Direction,
        memtable::Answer,
        sst::{OpenBlock, Span, block},
    },
    util::{codec::to_u64, sync::Ordering},
};

/// Bytes of blocks in a window at least: so many blocks, within these bounds. A disk needs about
/// the first to give what it can, and several requests at a time where they are of one block each.
const WINDOW_BYTES_MIN: usize = 128 << 10;
const WINDOW_BLOCKS: usize = 16;
const WINDOW_BLOCKS_BYTES_MAX: usize = 384 << 10;
/// From there on, one byte of so many that the stream has read, and at most so many.
const WINDOW_SHARE: usize = 16;
const WINDOW_BYTES_MAX: usize = 1 << 20;
/// Blocks of one file are read together up to half a window, and across so many bytes between them.
const GAP_BYTES: u64 = 4 << 10;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    flow: Option<Flow>,
    /// In the order in which they were asked for; those before `oldest` are gone.
    reads: Vec<Read>,
    oldest: usize,
    blocks: BTreeMap<Place, Block>,
    /// Bytes of blocks that were asked for so far.
    bytes: usize,
    /// Bytes of the window.
    window: usize,
}

/// Blocks of one run that lie together, in order, with few bytes between them.
#[derive(Debug)]
struct Read {
    run: Arc<Run>,
    blocks: Vec<u32>,
    /// The first and the last of the stream's places that want one of them.
    first_place: usize,
    last_place: usize,
    bytes: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    UnderWay(Pending),
    Here(AlignedBuffer),
    Gone,
}

#[derive(Debug)]
struct Block {
    /// The read that brings it.
    read: usize,
    entries: Entries,
    /// Where the last look ended.
    at: usize,
}

#[derive(Debug)]
enum Entries {
    UnderWay,
    /// In these bytes of what was read.
    Lying(Range<usize>),
    Unpacked(Vec<u8>),
}

/// A block that is to be asked for, and the first and the last of the stream's places that want it.
#[derive(Debug)]
pub(super) struct Wanted<'r> {
    pub(super) run: &'r Arc<Run>,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Ahead {
    /// Lets go of what lies before place `next`, where the stream is.
    pub(super) fn pass(&mut self, next: usize, inner: &Inner) {
        while let Some(read) = self.reads.get_mut(self.oldest).filter(|read| read.last_place < next)
        {
            let state = std::mem::replace(&mut read.state, State::Gone);
            for block in &read.blocks {
                self.blocks.remove(&Place { run: read.run.number, block: *block });
            }
            match state {
                State::Here(buffer) => inner.buffers.keep(buffer),
                // The stream went past it: what it would bring must not pile up.
                State::UnderWay(pending) => inner.buffers.keep(pending.wait().buffer),
                State::Gone => {}
            }
            self.oldest += 1;
        }
    }

    /// Bytes of blocks that may be asked for now, if the next one is of `block_bytes`: none, or
    /// half a window and more.
    pub(super) fn room(&mut self, block_bytes: usize) -> usize {
        let least = (block_bytes * WINDOW_BLOCKS).min(WINDOW_BLOCKS_BYTES_MAX);
        let least = least.max(WINDOW_BYTES_MIN);
        self.window = (self.bytes / WINDOW_SHARE).min(WINDOW_BYTES_MAX).max(least);
        let left: usize = self.reads.iter().skip(self.oldest).map(|read| read.bytes).sum();
        if left > self.window / 2 { 0 } else { self.window - left }
    }

    /// Whether a block was asked for, and is not behind; if so, place `index` wants it too.
    pub(super) fn has(&mut self, place: Place, index: usize) -> bool {
        let Some(block) = self.blocks.get(&place) else { return false };
        if let Some(read) = self.reads.get_mut(block.read) {
            read.last_place = read.last_place.max(index);
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether a block is on its way.
    pub(super) fn is_under_way(&self, place: Place) -> bool {
        let block = self.blocks.get(&place);
        block.is_some_and(|block| matches!(block.entries, Entries::UnderWay))
    }

    /// Asks for blocks; how many reads that are.
    pub(super) fn ask(
        &mut self,
        wanted: BTreeMap<Place, Wanted<'_>>,
        way: Direction,
        inner: &Inner,
    ) -> usize {
        let most = self.window / 2;
        let mut fresh: Vec<Read> = Vec::new();
        for (Place { block, .. }, Wanted { run, first, last }) in wanted {
            let bytes = run.sst.span(block..block + 1).bytes;
            self.bytes += bytes;
            match fresh.last_mut().filter(|read| read.takes(run, block, most)) {
                Some(read) => {
                    read.first_place = read.first_place.min(first);
                    read.last_place = read.last_place.max(last);
                    read.blocks.push(block);
                    read.bytes += bytes;
                }
                None => fresh.push(Read {
                    run: Arc::clone(run),
                    blocks: vec![block],
                    first_place: first,
                    last_place: last,
                    bytes,
                    state: State::Gone,
                }),
            }
        }
        fresh.sort_unstable_by_key(|read| read.first_place);
        for read in &fresh {
            inner.note_read(read.span());
        }
        let count = fresh.len();
        inner.counters.range_reads_total.fetch_add(to_u64(count), Ordering::Relaxed);
        let first = self.reads.len();
        for (token, read) in (first..).zip(&fresh) {
            for block in &read.blocks {
                let place = Place { run: read.run.number, block: *block };
                let block = Block { read: token, entries: Entries::UnderWay, at: 0 };
                self.blocks.insert(place, block);
            }
        }
        let is_alone = first == self.oldest && count == 1;
        self.reads.append(&mut fresh);
        if is_alone {
            self.read_alone(first, way, inner);
        } else if count > 0 {
            self.start(first, way, inner);
        }
        count
    }

    /// Reads what is waited for at once, with nothing else under way: one call of the system.
    fn read_alone(&mut self, token: usize, way: Direction, inner: &Inner) {
        let Some(read) = self.reads.get(token) else { return };
        let mut buffer = inner.buffers.lend(read.span().whole());
        let outcome = read.run.sst.read_into(read.span(), &mut buffer);
        self.take(token, outcome.is_ok().then_some(buffer), way, inner);
    }

    /// Has the reads from this one on under way.
    fn start(&mut self, first: usize, way: Direction, inner: &Inner) {
        if self.flow.is_none() {
            self.flow = inner.queues.flow(&*inner.context.env).ok();
        }
        let Some(flow) = &self.flow else {
            (first..self.reads.len()).for_each(|token| self.read_alone(token, way, inner));
            return;
        };
        let request = |read: &Read| {
            let span = read.span();
            let buffer = inner.buffers.lend(span.whole());
            let (file, length) = (Arc::clone(read.run.sst.file()), buffer.len());
            Request::Read { file, offset: span.offset, buffer, length }
        };
        let started = flow.start_all(self.reads.iter().skip(first).map(request));
        for (read, pending) in self.reads.iter_mut().skip(first).zip(started) {
            read.state = State::UnderWay(pending);
        }
    }

    /// Waits for a block that is on its way.
    pub(super) fn wait_for(&mut self, place: Place, way: Direction, inner: &Inner) {
        if !self.is_under_way(place) {
            return;
        }
        let Some(token) = self.blocks.get(&place).map(|block| block.read) else { return };
        let Some(read) = self.reads.get_mut(token) else { return };
        let State::UnderWay(pending) = std::mem::replace(&mut read.state, State::Gone) else {
            return;
        };
        let completion = pending.wait();
        let is_whole = completion.result.is_ok_and(|count| count == completion.buffer.len());
        self.take(token, is_whole.then_some(completion.buffer), way, inner);
        let is_waiting = |read: &Read| matches!(read.state, State::UnderWay(_));
        if !self.reads.iter().skip(self.oldest).any(is_waiting) {
            // Whoever rests here has no queue of the system.
            self.flow = None;
        }
    }

    /// Takes the blocks of a read, if it went well.
    fn take(&mut self, token: usize, buffer: Option<AlignedBuffer>, way: Direction, inner: &Inner) {
        let Some(read) = self.reads.get_mut(token) else { return };
        let sst = &read.run.sst;
        // What came along, on the way that the stream goes, is likely what it asks for next.
        let whole = sst.whole_blocks(read.first_block()..read.last_block() + 1, way);
        let span = sst.span(whole.clone());
        for number in whole.clone() {
            let place = Place { run: read.run.number, block: number };
            let wanted = self.blocks.get_mut(&place).filter(|block| block.read == token);
            let within = (read.first_block()..=read.last_block()).contains(&number);
            let open = buffer.as_ref().filter(|_| wanted.is_some() || !within);
            let open =
                open.and_then(|buffer| sst.open_block(buffer, span, (whole.start, number)).ok());
            match (open, wanted) {
                (Some(open), wanted) => {
                    inner.cache.fill(sst.slot_to_fill(number, &inner.cache), open.entries());
                    if let Some(block) = wanted {
                        block.entries = Entries::of(open);
                    }
                }
                // Who comes to it reads it alone, and is told what is wrong.
                (None, Some(_)) => drop(self.blocks.remove(&place)),
                (None, None) => {}
            }
        }
        read.state = buffer.map_or(State::Gone, State::Here);
    }

    /// The value of a key in a block that was asked for; `None` where it was not.
    pub(super) fn find(&mut self, place: Place, key: &[u8]) -> Option<Answer<&[u8]>> {
        let Block { read, entries, at } = self.blocks.get_mut(&place)?;
        let entries = match (entries, self.reads.get(*read).map(|read| &read.state)) {
            (Entries::Lying(range), Some(State::Here(buffer))) => {
                buffer.as_slice().get(range.clone())?
            }
            (Entries::Unpacked(bytes), _) => bytes.as_slice(),
            _ => return None,
        };
        let found = find_from(entries, *at, key).or_else(|| find_from(entries, 0, key));
        let value = found.and_then(|(value, next)| {
            *at = next;
            entries.get(value)
        });
        Some(value.map_or(Answer::Nothing, Answer::Value))
    }

    /// Forgets everything: the stream numbers its places anew.
    pub(super) fn clear(&mut self, inner: &Inner) {
        self.pass(usize::MAX, inner);
        self.reads.clear();
        self.blocks.clear();
        self.oldest = 0;
    }

    /// The stream ends here: what is under way is left to itself.
    pub(super) fn end(self, inner: &Inner) {
        for read in self.reads {
            match read.state {
                State::Here(buffer) => inner.buffers.keep(buffer),
                State::UnderWay(pending) => pending.abandon(),
                State::Gone => {}
            }
        }
    }
}

impl Entries {
    fn of(open: OpenBlock<'_>) -> Self {
        let lying = open.in_place().map(Self::Lying);
        lying.unwrap_or_else(|| Self::Unpacked(open.into_entries()))
    }
}

impl Read {
    fn first_block(&self) -> u32 {
        self.blocks.first().copied().unwrap_or(0)
    }

    fn last_block(&self) -> u32 {
        self.blocks.last().copied().unwrap_or(0)
    }

    fn span(&self) -> Span {
        self.run.sst.span(self.first_block()..self.last_block() + 1)
    }

    /// Whether a block follows, and there is room for it. Those between it and the last one are in
    /// the cache, or nobody asked for them: to read a page of them costs less than another read.
    fn takes(&self, run: &Run, block: u32, most: usize) -> bool {
        run.number == self.run.number
            && self.run.sst.gap_bytes(self.last_block()..block) <= GAP_BYTES
            && self.span().bytes < most
    }
}

/// The value of a key in a block's entries from one on, and where the next entry begins.
fn find_from(entries: &[u8], mut at: usize, key: &[u8]) -> Option<(Range<usize>, usize)> {
    while let Some((entry, next)) = block::entry_at(entries, at) {
        let found = entries.get(entry.key)?;
        if found == key && !entry.tombstone {
            return Some((entry.value, next));
        }
        if found > key {
            return None;
        }
        at = next;
    }
    None
}
