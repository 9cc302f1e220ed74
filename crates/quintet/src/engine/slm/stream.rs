//! Entries of the index in key order, either way, with their values.
//!
//! What: some places at a time are copied out of the index; of the blocks that they name, those
//! that the cache has are on their way to the processor, and those that it lacks are read, all at
//! once, neighbours of one file together; then the entries are given out one by one, each from
//! where it lies. Steps grow, because who reads much goes on reading; they begin larger where the
//! ranges before this one found neighbours together on the disk.
//!
//! A key is taken from its entry, not from the index, where its block is in the cache and its place
//! says where it begins: so nothing is decoded, hashed or looked for. Who needs to know a key
//! before its entry is shown asks for it ([`Stream::key`]), and it is decoded.
//!
//! Invariants: a stream holds the files that it reads from; a file that went before it got hold of
//! it makes it ask the index again, for that key alone. So does a block that left the cache since.

#![deny(clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    Inner,
    keys::{IndexKey, Keys},
    runs::{Entered, FIRST_KEY, Place, Run, Runs},
    select::Sequence,
};
use crate::{
    Result,
    codec::{to_u64, to_usize},
    disk::{AlignedBuffer, Queue, Request},
    engine::{
        Visit,
        lsm::{
            block,
            memtable::Answer,
            piece::Span,
            take::{Copied, Take},
            walk::Way,
        },
    },
    index::{
        bptree::run::{Ascent, Run as IndexRun},
        key_code::Series,
    },
    sync::{AtomicU32, Ordering},
};

/// Places of the first step, and of the second; each two further steps take twice as many as the
/// two before. Half as many in all as with each step twice the one before: ranges are short.
const FIRST_STEP: usize = 16;
const DOUBLINGS: u32 = 6;
/// Leaves of the index that are read from the disk at once.
const AHEAD_MAX: isize = 16;
/// Bytes of blocks that one step has in memory, about.
const STEP_BYTES: usize = 1 << 20;
/// Places of a step for one read of the disk at least, where neighbours in key order lie together.
const TOGETHER: usize = 4;
/// So many steps are left out by ranges that lately found it so: who waits for the disk does better
/// to read some of it in vain than to wait again.
const STEPS_TOGETHER: u32 = 4;
/// Blocks of one file are read together up to so many bytes, and across so many between them.
const READ_BYTES: usize = 256 << 10;
const GAP_BYTES: u64 = 4 << 10;

/// Entries that are on their way to the processor while as many before them are given out.
const NEAR: usize = 16;
/// Values of so many bytes are not copied before they are shown.
const IN_PLACE_BYTES: usize = 512;

/// What was copied out of the index.
#[derive(Clone, Copy, Debug)]
struct Found {
    entered: Entered,
    /// Its run among those that there were; none, if it went before.
    run: Option<u32>,
}

impl Found {
    fn run_in(self, runs: &Runs) -> Option<&Arc<Run>> {
        runs.at(self.run?)
    }
}

/// Of keys that lie one behind the other, with where each ends, the one that so many are left from.
#[inline]
fn key_at<'k>((keys, ends): (&'k [u8], &[usize]), left: usize) -> Option<&'k [u8]> {
    let index = ends.len().checked_sub(left)?;
    let end = *ends.get(index)?;
    let start = index.checked_sub(1).and_then(|before| ends.get(before)).copied();
    keys.get(start.unwrap_or(0)..end)
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

/// Whether ranges that read the disk lately found together what they asked for.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// Up for steps of which that was so, down for others; down a little for those that read
    /// nothing, so that it is forgotten where memory has everything.
    score: AtomicU32,
}

impl Together {
    const MOST: u32 = 64;
    const READ: u32 = 8;

    fn is_usual(&self) -> bool {
        self.score.load(Ordering::Relaxed) > Self::MOST / 2
    }

    /// Notes a step of so many places that made so many reads.
    fn note(&self, places: usize, reads: usize) {
        let before = self.score.load(Ordering::Relaxed);
        let after = match reads {
            0 => before.saturating_sub(1),
            reads if reads * TOGETHER <= places => (before + Self::READ).min(Self::MOST),
            _ => before.saturating_sub(Self::READ),
        };
        // Where nothing changes, no line of memory goes from processor to processor. Two at once
        // may count as one: nothing but speed depends on it.
        if after != before {
            self.score.store(after, Ordering::Relaxed);
        }
    }
}

/// See the module head.
#[derive(Debug)]
pub(super) struct Stream {
    way: Way,
    /// Where the index goes on: from `ascent.start` up, or from `ascent.end` down.
    ascent: Ascent,
    /// Steps that were taken.
    steps: u32,
    /// Copied out, in the order of the stream: keys as the index has them, and what it says.
    run: IndexRun,
    found: Vec<Found>,
    /// Those before this one were given out.
    next: usize,
    /// Keys as they were written, of some places up to `restored`, and where each ends: these, and
    /// what helped to decode them.
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    restored: usize,
    series: Series,
    /// The key that was shown last.
    shown: Vec<u8>,
    /// Entries of places before this one were sent for.
    near: usize,
    /// Blocks of places before this one were in the cache, or are in `blocks`.
    loaded: usize,
    blocks: BTreeMap<Place, Loaded>,
    /// The runs that there were once that was copied.
    runs: Arc<Runs>,
    /// What the runs of a range query are watched with.
    sequence: Option<Sequence>,
    /// Values are shown where they lie: the last one was worth it.
    are_large: bool,
}

impl Stream {
    /// Over the keys from `start` (included) to `end` (excluded).
    pub(super) fn new(
        keys: &Keys,
        way: Way,
        (start, end): (&[u8], Option<&[u8]>),
        sequence: Option<Sequence>,
    ) -> Self {
        let bound = |key: &[u8]| {
            let mut bound = Vec::new();
            keys.push(key, &mut bound).then_some(bound)
        };
        let start = bound(start).map(|start| start.max(FIRST_KEY.to_vec()));
        let is_empty = start.is_none();
        let mut ascent = Ascent::new(start.unwrap_or_default(), end.and_then(bound));
        // What comes later is none of its business: see `Keys`.
        ascent.is_over |= is_empty;
        Self {
            way,
            ascent,
            steps: 0,
            run: IndexRun::default(),
            found: Vec::new(),
            next: 0,
            keys: Vec::new(),
            key_ends: Vec::new(),
            restored: 0,
            series: Series::default(),
            shown: Vec::new(),
            near: 0,
            loaded: 0,
            blocks: BTreeMap::new(),
            runs: Arc::default(),
            sequence,
            are_large: false,
        }
    }

    /// Shows `each` key and value of the entry that the stream is at, the value where it lies if
    /// it is large, else in `buffer`; what `each` says, or `None` where the entry was removed.
    pub(super) fn show(
        &mut self,
        inner: &Inner,
        buffer: &mut Vec<u8>,
        each: Visit<'_>,
    ) -> Result<Option<ControlFlow<()>>> {
        if self.next >= self.loaded {
            self.load(inner)?;
        }
        if let Some(flow) = self.show_lying(inner, buffer, each)? {
            return Ok(Some(flow));
        }
        self.restore(inner)?;
        if self.are_large
            && let Some(flow) = self.show_in_place(inner, each)?
        {
            return Ok(Some(flow));
        }
        let found = self.value(inner, &mut Copied(buffer))?;
        self.are_large = buffer.len() >= IN_PLACE_BYTES;
        let key = self.key().filter(|_| found.is_some());
        key.map(|key| each(key, buffer)).transpose()
    }

    /// As [`Self::show`], of an entry that lies in the cache where its place says; `None` where
    /// that is not known.
    fn show_lying(
        &mut self,
        inner: &Inner,
        buffer: &mut Vec<u8>,
        each: Visit<'_>,
    ) -> Result<Option<ControlFlow<()>>> {
        let Some(found) = self.found() else { return Ok(None) };
        let place = found.entered.place;
        if !self.blocks.is_empty() && self.blocks.contains_key(&place) {
            return Ok(None);
        }
        let Some(run) = found.run_in(&self.runs) else { return Ok(None) };
        let Some(at) = run.beginning(found.entered) else { return Ok(None) };
        let slot = run.piece.slot(place.block);
        let flow = if self.are_large {
            let mut bytes = 0;
            let flow = inner.cache.show_at(slot, at, |key, value| {
                debug_assert!(self.is_at(inner, key), "{place:?} is not that of its key");
                bytes = value.len();
                each(key, value)
            });
            if flow.is_some() {
                self.are_large = bytes >= IN_PLACE_BYTES;
            }
            flow
        } else {
            let found = inner.cache.find_at(slot, at, &mut self.shown, &mut Copied(buffer));
            self.are_large = buffer.len() >= IN_PLACE_BYTES;
            debug_assert!(
                found.is_none() || self.is_at(inner, &self.shown),
                "{place:?} is not that of its key"
            );
            found.map(|()| each(&self.shown, buffer))
        };
        if flow.is_some()
            && let Some(sequence) = &mut self.sequence
        {
            sequence.note(place.run);
        }
        flow.transpose()
    }

    /// As [`Self::show`], of a value that lies in memory as one piece.
    fn show_in_place(&mut self, inner: &Inner, each: Visit<'_>) -> Result<Option<ControlFlow<()>>> {
        let Some(found) = self.found() else { return Ok(None) };
        let Some(run) = found.run_in(&self.runs) else { return Ok(None) };
        let place = found.entered.place;
        let Some(key) = key_at((&self.keys, &self.key_ends), self.restored - self.next) else {
            return Ok(None);
        };
        let mut bytes = 0;
        let shown = |value: &[u8]| {
            bytes = value.len();
            each(key, value)
        };
        let flow = if let Some(loaded) = self.blocks.get_mut(&place) {
            loaded.find(key).map(shown)
        } else {
            let slot = run.piece.slot(place.block);
            inner.cache.show(slot, (inner.hash(key), key), shown).and_then(Answer::value)
        };
        if flow.is_some() {
            self.are_large = bytes >= IN_PLACE_BYTES;
            if let Some(sequence) = &mut self.sequence {
                sequence.note(place.run);
            }
        }
        flow.transpose()
    }

    /// What its runs were watched with.
    pub(super) fn into_sequence(self) -> Option<Sequence> {
        self.sequence
    }

    /// What the stream is at.
    fn found(&self) -> Option<Found> {
        self.found.get(self.next).copied()
    }

    /// Whether the stream is at this key.
    fn is_at(&self, inner: &Inner, key: &[u8]) -> bool {
        let mut coded = Vec::new();
        inner.keys.push(key, &mut coded) && self.coded().is_some_and(|at| at.0 == coded)
    }

    /// The key that the stream is at, as the index has it.
    pub(super) fn coded(&self) -> Option<IndexKey<'_>> {
        self.run.entry(self.next).map(|(key, _)| IndexKey(key))
    }

    /// The key that the stream is at, once it was restored.
    pub(super) fn key(&self) -> Option<&[u8]> {
        key_at((&self.keys, &self.key_ends), self.restored.checked_sub(self.next)?)
    }

    /// Copies on where nothing is left.
    pub(super) fn settle(&mut self, inner: &Inner) -> Result<()> {
        while self.next >= self.found.len() && !self.ascent.is_over {
            self.copy_more(inner)?;
        }
        Ok(())
    }

    /// Restores the key that the stream is at, if it is at one, with some of those that follow: of
    /// what a step copies much may never be asked for.
    pub(super) fn restore(&mut self, inner: &Inner) -> Result<()> {
        if self.next < self.restored || self.next >= self.found.len() {
            return Ok(());
        }
        self.keys.clear();
        self.key_ends.clear();
        let last = self.found.len().min(self.next + NEAR);
        for index in self.next..last {
            let coded = IndexKey(self.run.entry(index).map_or(&[][..], |(key, _)| key));
            let restored = inner.keys.restore_next(coded, &mut self.series, &mut self.keys);
            restored.ok_or_else(|| inner.no_key(coded))?;
            self.key_ends.push(self.keys.len());
        }
        self.restored = last;
        Ok(())
    }

    /// Goes past the key that the stream is at.
    pub(super) fn advance(&mut self, inner: &Inner) -> Result<()> {
        self.next += 1;
        self.settle(inner)
    }

    /// What `take` makes of the value of the key that the stream is at, which was restored; `None`
    /// where it was removed meanwhile.
    pub(super) fn value<T: Take>(
        &mut self,
        inner: &Inner,
        take: &mut T,
    ) -> Result<Option<T::Taken>> {
        if self.next >= self.loaded {
            self.load(inner)?;
        }
        let Some(found) = self.found() else { return Ok(None) };
        let place = found.entered.place;
        let key = self.restored.checked_sub(self.next);
        let Some(key) = key.and_then(|left| key_at((&self.keys, &self.key_ends), left)) else {
            return Ok(None);
        };
        if let Some(sequence) = &mut self.sequence {
            sequence.note(place.run);
        }
        let hash = inner.hash(key);
        // Without its run, it went before this stream got hold of it.
        if let Some(run) = found.run_in(&self.runs) {
            let answer = if let Some(loaded) = self.blocks.get_mut(&place) {
                Some(loaded.find(key).map(|value| take.of_bytes(value)))
            } else {
                let slot = run.piece.slot(place.block);
                inner.cache.find(slot, (hash, key), take).map(Answer::value)
            };
            match answer {
                Some(Some(taken)) => return Ok(Some(taken)),
                Some(None) => return Err(super::read::not_there(run, place.block, key)),
                None => {}
            }
        }
        inner.read_stored(&inner.front.view.load(), (hash, key), take)
    }

    /// Copies places out of the index.
    fn copy_more(&mut self, inner: &Inner) -> Result<()> {
        self.found.clear();
        self.blocks.clear();
        (self.next, self.near, self.loaded, self.restored) = (0, 0, 0, 0);
        if self.steps == 0 && inner.together.is_usual() {
            self.steps = STEPS_TOGETHER;
        }
        let step = FIRST_STEP << (self.steps / 2).min(DOUBLINGS);
        let ahead = AHEAD_MAX.min((1 << self.steps.min(DOUBLINGS)) - 1);
        self.steps += 1;
        let tree = &inner.paged.tree;
        match self.way {
            Way::Up => tree.ascend(&mut self.ascent, (step, ahead), &mut self.run)?,
            Way::Down => {
                self.run.clear();
                let range = (self.ascent.end.as_deref(), Some(&*self.ascent.start));
                let pair = |key, entered| (key, entered);
                let found = tree.scan_down(range, (step, ahead), Entered::take, pair)?;
                for (key, entered) in found.entries {
                    let entered = entered.ok_or_else(|| inner.no_place(IndexKey(&key)))?;
                    self.run.push(&key, &entered.encode());
                }
                match found.next {
                    Some(next) => self.ascent.end = Some(next),
                    None => self.ascent.is_over = true,
                }
            }
        }
        // Later than the index: a run that went since then is the only one that may be missing.
        self.runs = Arc::clone(&inner.front.view.load().version);
        for (key, value) in (0..self.run.len()).filter_map(|index| self.run.entry(index)) {
            let entered = Entered::decode(value);
            let entered = entered.ok_or_else(|| inner.no_place(IndexKey(key)))?;
            let run = self.runs.index_of(entered.place.run);
            if let Some(run) = run.and_then(|run| self.runs.at(run)) {
                run.prefetch_place(entered.place);
            }
            self.found.push(Found { entered, run });
        }
        Ok(())
    }

    /// Sends for the next entries whose blocks are in the cache.
    pub(super) fn send(&mut self, inner: &Inner) {
        let after = self.found.len().min(self.next + 2 * NEAR);
        for found in self.found.get(self.near.max(self.next)..after).unwrap_or(&[]) {
            if let Some(run) = found.run_in(&self.runs) {
                run.prefetch(found.entered, &inner.cache);
            }
        }
        self.near = after;
    }

    /// Brings the blocks of the next places: has those that the cache has come nearer, a few at a
    /// time, and reads those that it lacks.
    fn load(&mut self, inner: &Inner) -> Result<()> {
        self.blocks.clear();
        self.send(inner);
        let last = self.found.len().min(self.next + NEAR);
        let is_near = |found: &Found| {
            let is_here =
                |run: &Arc<Run>| inner.cache.has(run.piece.slot(found.entered.place.block));
            found.run_in(&self.runs).is_none_or(is_here)
        };
        if self.found.get(self.next..last).unwrap_or(&[]).iter().all(is_near) {
            inner.together.note(last - self.next, 0);
            self.loaded = last;
            return Ok(());
        }
        self.load_missing(inner)
    }

    /// Reads the blocks of the next places that the cache lacks.
    fn load_missing(&mut self, inner: &Inner) -> Result<()> {
        let next = self.found.get(self.next..).unwrap_or(&[]);
        let mut wanted: BTreeMap<Place, &Arc<Run>> = BTreeMap::new();
        let (mut bytes, mut last) = (0, self.next);
        for (index, found) in (self.next..).zip(next) {
            let place = found.entered.place;
            let is_missing = |run: &&Arc<Run>| {
                !inner.cache.has(run.piece.slot(place.block)) && !wanted.contains_key(&place)
            };
            if let Some(run) = found.run_in(&self.runs).filter(is_missing) {
                if place.block >= run.piece.blocks() {
                    let coded = IndexKey(self.run.entry(index).map_or(&[][..], |(key, _)| key));
                    let mut key = Vec::new();
                    let restored = inner.keys.restore(coded, &mut key);
                    restored.ok_or_else(|| inner.no_key(coded))?;
                    return Err(super::read::not_there(run, place.block, &key));
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
            match missing.last_mut() {
                Some(read) if read.takes(place) => read.blocks.push(place.block),
                _ => missing.push(Read { run: Arc::clone(run), blocks: vec![place.block] }),
            }
        }
        inner.together.note(last - self.next, missing.len());
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
        inner.counters.range_reads_total.fetch_add(1, Ordering::Relaxed);
        let piece = &read.run.piece;
        // What came along, on the way that the stream goes, is likely what the next step asks for.
        let whole = piece.whole_blocks(read.first()..read.last() + 1, self.way);
        let span = piece.span(whole.clone());
        let came_along =
            whole.clone().filter(|block| !(read.first()..=read.last()).contains(block));
        for block in came_along {
            // Nobody asked for it: who does is told if it is damaged.
            if let Ok(open) = piece.open_block(buffer, span, (whole.start, block)) {
                inner.cache.fill(piece.slot_to_fill(block, &inner.cache), open.entries());
            }
        }
        for block in read.blocks.iter().copied() {
            let open = piece.open_block(buffer, span, (whole.start, block))?;
            let entries = open.entries();
            inner.cache.fill(piece.slot_to_fill(block, &inner.cache), entries);
            let place = Place { run: read.run.number, block };
            self.blocks.insert(place, Loaded { entries: entries.to_vec(), at: 0 });
        }
        Ok(())
    }
}

/// Blocks of one run that lie together, in order, with few bytes between them.
#[derive(Debug)]
struct Read {
    run: Arc<Run>,
    blocks: Vec<u32>,
}

impl Read {
    fn first(&self) -> u32 {
        self.blocks.first().copied().unwrap_or(0)
    }

    fn last(&self) -> u32 {
        self.blocks.last().copied().unwrap_or(0)
    }

    fn span(&self) -> Span {
        self.run.piece.span(self.first()..self.last() + 1)
    }

    /// Whether a block follows, and there is room for it. Those between it and the last one are in
    /// the cache, or nobody asked for them: to read a page of them costs less than another read.
    fn takes(&self, place: Place) -> bool {
        place.run == self.run.number
            && self.run.piece.gap_bytes(self.last()..place.block) <= GAP_BYTES
            && self.span().bytes < READ_BYTES
    }
}
