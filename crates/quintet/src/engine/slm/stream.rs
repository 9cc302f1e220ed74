//! Entries of the index in key order, either way, with their values.
//!
//! What: some places at a time are copied out of the index; the blocks that they name are taken
//! from the cache or read, all that are missing at once, neighbours of one file together; then the
//! entries are given out one by one. Each step takes more than the one before, because who reads
//! much goes on reading.
//!
//! Invariants: a stream holds the files that it reads from; a file that went before it got hold of
//! it makes it ask the index again, for that key alone.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Inner,
    runs::{FIRST_KEY, Place, Run},
    select::Sequence,
};
use crate::{
    Result,
    codec::{to_u64, to_usize},
    disk::{AlignedBuffer, Queue, Request},
    engine::{
        Value,
        lsm::{block, piece::Span, walk::Way},
    },
    index::bptree::run::{Ascent, Run as IndexRun},
};

/// Places of the first step; each further step takes twice as many.
const FIRST_STEP: usize = 16;
const STEP_MAX: usize = 1024;
/// Leaves of the index that are read from the disk at once.
const AHEAD_MAX: isize = 16;
/// Bytes of blocks that one step has in memory, about.
const STEP_BYTES: usize = 1 << 20;
/// Blocks of one file are read together up to so many bytes.
const READ_BYTES: usize = 256 << 10;

/// A place that was copied out of the index.
#[derive(Debug)]
struct Found {
    key: Vec<u8>,
    place: Place,
}

/// The entries of a block, and where the last look ended.
#[derive(Debug)]
struct Loaded {
    entries: Vec<u8>,
    at: usize,
}

impl Loaded {
    /// The value of a key. Looks on from where the last look ended, and then from the start.
    fn find(&mut self, key: &[u8]) -> Option<&[u8]> {
        let from_here = find_from(&self.entries, self.at, key);
        let (value, next) = from_here.or_else(|| find_from(&self.entries, 0, key))?;
        self.at = next;
        self.entries.get(value)
    }
}

fn find_from(entries: &[u8], mut at: usize, key: &[u8]) -> Option<(std::ops::Range<usize>, usize)> {
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

/// See the module head.
#[derive(Debug)]
pub(super) struct Stream {
    way: Way,
    /// Where the index goes on: from `ascent.start` up, or from `ascent.end` down.
    ascent: Ascent,
    run: IndexRun,
    step: usize,
    ahead: isize,
    /// Copied out, in the order of the stream; those before `next` were given out.
    found: Vec<Found>,
    next: usize,
    /// Places before this one have their blocks in `blocks`.
    loaded: usize,
    blocks: BTreeMap<Place, Loaded>,
    /// The entry that comes next.
    value: Option<Value>,
    /// What the runs of a range query are watched with.
    sequence: Option<Sequence>,
}

impl Stream {
    /// Over the keys from `start` (included) to `end` (excluded).
    pub(super) fn new(
        way: Way,
        start: &[u8],
        end: Option<&[u8]>,
        sequence: Option<Sequence>,
    ) -> Self {
        let start = start.max(FIRST_KEY).to_vec();
        Self {
            way,
            ascent: Ascent::new(start, end.map(<[u8]>::to_vec)),
            run: IndexRun::default(),
            step: FIRST_STEP,
            ahead: 0,
            found: Vec::new(),
            next: 0,
            loaded: 0,
            blocks: BTreeMap::new(),
            value: None,
            sequence,
        }
    }

    /// What its runs were watched with.
    pub(super) fn into_sequence(self) -> Option<Sequence> {
        self.sequence
    }

    /// The key that the stream is at, once it was settled.
    pub(super) fn key(&self) -> Option<&[u8]> {
        Some(&self.found.get(self.next)?.key)
    }

    /// Copies on where nothing is left.
    pub(super) fn settle(&mut self, inner: &Inner) -> Result<()> {
        while self.next >= self.found.len() && !self.ascent.is_over {
            self.copy_more(inner)?;
        }
        Ok(())
    }

    /// Goes past the key that the stream is at.
    pub(super) fn advance(&mut self, inner: &Inner) -> Result<()> {
        self.next += 1;
        self.value = None;
        self.settle(inner)
    }

    /// The value of the key that the stream is at; `None` where it was removed meanwhile.
    pub(super) fn value(&mut self, inner: &Inner) -> Result<Option<Value>> {
        if self.next >= self.loaded {
            self.load(inner)?;
        }
        let Some(found) = self.found.get(self.next) else { return Ok(None) };
        if let Some(sequence) = &mut self.sequence {
            sequence.note(found.place.run);
        }
        if let Some(loaded) = self.blocks.get_mut(&found.place) {
            if let Some(value) = loaded.find(&found.key) {
                return Ok(Some(Value::copy(value)));
            }
            let view = inner.front.view.load();
            if let Some(run) = view.version.find(found.place.run) {
                return Err(super::read::not_there(run, found.place.block, &found.key));
            }
        }
        // Its run went before this stream got hold of it.
        inner.read_stored(&inner.front.view.load(), inner.hash(&found.key), &found.key)
    }

    /// Copies places out of the index.
    fn copy_more(&mut self, inner: &Inner) -> Result<()> {
        self.found.clear();
        self.blocks.clear();
        (self.next, self.loaded) = (0, 0);
        let step = (self.step, self.ahead);
        self.step = (self.step * 2).min(STEP_MAX);
        self.ahead = (self.ahead * 2 + 1).min(AHEAD_MAX);
        let tree = &inner.paged.tree;
        match self.way {
            Way::Up => {
                tree.ascend(&mut self.ascent, step, &mut self.run)?;
                for (key, value) in (0..self.run.len()).filter_map(|index| self.run.entry(index)) {
                    let place = Place::decode(value).ok_or_else(|| inner.no_place(key))?;
                    self.found.push(Found { key: key.to_vec(), place });
                }
            }
            Way::Down => {
                let range = (self.ascent.end.as_deref(), Some(&*self.ascent.start));
                let pair = |key, place| (key, place);
                let found = tree.scan_down(range, step, Place::take, pair)?;
                for (key, place) in found.entries {
                    let place = place.ok_or_else(|| inner.no_place(&key))?;
                    self.found.push(Found { key, place });
                }
                match found.next {
                    Some(next) => self.ascent.end = Some(next),
                    None => self.ascent.is_over = true,
                }
            }
        }
        Ok(())
    }

    /// Brings the blocks of the next places.
    fn load(&mut self, inner: &Inner) -> Result<()> {
        let view = inner.front.view.load_full();
        self.blocks.clear();
        let mut wanted: BTreeMap<Place, &Arc<Run>> = BTreeMap::new();
        let (mut bytes, mut last) = (0, self.next);
        for found in self.found.get(self.next..).unwrap_or(&[]) {
            let (place, run) = (found.place, view.version.find(found.place.run));
            if let Some(run) = run.filter(|_| !wanted.contains_key(&place)) {
                if place.block >= run.piece.blocks() {
                    return Err(super::read::not_there(run, place.block, &found.key));
                }
                let size = run.piece.span(place.block..place.block + 1).bytes;
                if bytes > 0 && bytes + size > STEP_BYTES {
                    break;
                }
                bytes += size;
                wanted.insert(place, run);
            }
            last += 1;
        }
        self.loaded = last;
        let mut missing: Vec<Read> = Vec::new();
        for (place, run) in wanted {
            let mut entries = Vec::new();
            if inner.cache.entries(run.piece.slot(place.block), &mut entries) {
                self.blocks.insert(place, Loaded { entries, at: 0 });
                continue;
            }
            match missing.last_mut() {
                Some(read) if read.takes(place) => read.last = place.block,
                _ => missing.push(Read {
                    run: Arc::clone(run),
                    first: place.block,
                    last: place.block,
                }),
            }
        }
        match missing.as_slice() {
            [] => Ok(()),
            [read] => {
                let buffer = read.run.piece.read(read.span())?;
                self.take(inner, read, &buffer)
            }
            _ => inner
                .queues
                .with(&*inner.context.env, |queue| self.read_all(inner, &missing, queue)),
        }
    }

    fn read_all(&mut self, inner: &Inner, reads: &[Read], queue: &mut dyn Queue) -> Result<()> {
        for (token, read) in reads.iter().enumerate() {
            let (file, span) = (Arc::clone(read.run.piece.file()), read.span());
            let buffer = AlignedBuffer::zeroed(span.whole());
            let (offset, length) = (span.offset, buffer.len());
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length });
        }
        let mut done = Vec::new();
        queue.wait(queue.pending(), &mut done);
        let mut outcome = Ok(());
        for completion in done {
            let Some(read) = reads.get(to_usize(completion.token)) else { continue };
            let taken = match completion.result {
                Ok(count) if count == completion.buffer.len() => {
                    self.take(inner, read, &completion.buffer)
                }
                // Once more, alone: it says what is wrong.
                _ => read
                    .run
                    .piece
                    .read(read.span())
                    .and_then(|buffer| self.take(inner, read, &buffer)),
            };
            outcome = outcome.and(taken);
        }
        outcome
    }

    /// Takes the blocks of a read.
    fn take(&mut self, inner: &Inner, read: &Read, buffer: &AlignedBuffer) -> Result<()> {
        inner.note_read(read.span());
        for block in read.first..=read.last {
            let open = read.run.piece.open_block(buffer, read.span(), (read.first, block))?;
            let entries = open.entries();
            inner.cache.fill(read.run.piece.slot_to_fill(block, &inner.cache), entries);
            let place = Place { run: read.run.number, block };
            self.blocks.insert(place, Loaded { entries: entries.to_vec(), at: 0 });
        }
        Ok(())
    }
}

/// Blocks of one run that lie together.
#[derive(Debug)]
struct Read {
    run: Arc<Run>,
    first: u32,
    last: u32,
}

impl Read {
    fn span(&self) -> Span {
        self.run.piece.span(self.first..self.last + 1)
    }

    /// Whether a block follows, and there is room for it.
    fn takes(&self, place: Place) -> bool {
        place.run == self.run.number
            && place.block == self.last + 1
            && self.span().bytes < READ_BYTES
    }
}
