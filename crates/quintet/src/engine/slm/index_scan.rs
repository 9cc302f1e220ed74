//! Scans of the index in key order, in both directions, with the entries' values.
//!
//! How: a step copies some places out of the index. The stream prefetches their cached blocks, and
//! reads the missing blocks ahead ([`crate::engine::slm::read_ahead`]). Then it returns the entries
//! one by one, in the memory of their blocks. Steps grow with the length of the scan. They start
//! larger if earlier ranges found neighbours together on disk.
//!
//! If an entry's block is cached and the place says where the entry begins, the key comes from the
//! entry, not from the index: no key is decoded, hashed or searched. [`Stream::key`] decodes the
//! key for callers that need it before the entry.
//!
//! Invariant: a stream holds the files that it reads from. If a file was removed before the stream
//! got it, or a block has left the cache since, the stream asks the index again for that key.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use super::{
    Inner,
    keys::{IndexKey, Keys},
    runs::{Entered, FIRST_KEY, Place, Run, Runs},
};
use crate::{
    Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    contract::{ValueSink, Visit, value_sink::IntoBuffer},
    engine::slm::{
        compaction_picker::Sequence,
        key_code::Series,
        read_ahead::{Ahead, Wanted},
    },
    lsm::{cursor::merge::Direction, memtable::Answer},
    util::sync::{AtomicU32, Ordering},
};

/// Places of the first step, and of the second; each two further steps take twice as many as the
/// two before. Half as many in all as with each step twice the one before: ranges are short.
const FIRST_STEP: usize = 16;
const DOUBLINGS: u32 = 6;
/// Leaves of the index that are read from the disk at once.
const AHEAD_MAX: isize = 16;
/// Places of a step for one read of the disk at least, where neighbours in key order lie together.
const TOGETHER: usize = 4;
/// So many steps are left out by ranges that lately found it so: who waits for the disk does better
/// to read some of it in vain than to wait again.
const STEPS_TOGETHER: u32 = 4;
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
    way: Direction,
    /// Where the index goes on: from `ascent.start` up, or from `ascent.end` down.
    ascent: ForwardScan,
    /// Steps that were taken.
    steps: u32,
    /// Copied out, in the order of the stream: keys as the index has them, and what it says.
    run: EntryRun,
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
    /// Blocks of places before this one were in the cache, or have come.
    loaded: usize,
    /// Those of places before this one were in the cache, or were asked for.
    asked: usize,
    ahead: Ahead,
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
        way: Direction,
        (start, end): (&[u8], Option<&[u8]>),
        sequence: Option<Sequence>,
    ) -> Self {
        let bound = |key: &[u8]| {
            let mut bound = Vec::new();
            keys.push(key, &mut bound).then_some(bound)
        };
        let start = bound(start).map(|start| start.max(FIRST_KEY.to_vec()));
        let is_empty = start.is_none();
        let mut ascent = ForwardScan::new(start.unwrap_or_default(), end.and_then(bound));
        // What comes later is none of its business: see `Keys`.
        ascent.is_over |= is_empty;
        Self {
            way,
            ascent,
            steps: 0,
            run: EntryRun::default(),
            found: Vec::new(),
            next: 0,
            keys: Vec::new(),
            key_ends: Vec::new(),
            restored: 0,
            series: Series::default(),
            shown: Vec::new(),
            near: 0,
            loaded: 0,
            asked: 0,
            ahead: Ahead::default(),
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
            self.load(inner);
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
        let found = self.value(inner, &mut IntoBuffer(buffer))?;
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
        if !self.ahead.is_empty() && self.ahead.has(place, self.next) {
            return Ok(None);
        }
        let Some(run) = found.run_in(&self.runs) else { return Ok(None) };
        let Some(at) = run.beginning(found.entered) else { return Ok(None) };
        let slot = run.sst.slot(place.block);
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
            let found = inner.cache.find_at(slot, at, &mut self.shown, &mut IntoBuffer(buffer));
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

    /// As [`Self::show`], of a value that lies in memory as one SST.
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
        let flow = if let Some(found) = self.ahead.find(place, key) {
            found.value().map(shown)
        } else {
            let slot = run.sst.slot(place.block);
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

    /// Gives back what it read into, and says what the runs of the query were like.
    pub(super) fn end(self, inner: &Inner) {
        self.ahead.end(inner);
        if let Some(sequence) = self.sequence {
            sequence.end(inner);
        }
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
    pub(super) fn value<T: ValueSink>(
        &mut self,
        inner: &Inner,
        take: &mut T,
    ) -> Result<Option<T::Output>> {
        if self.next >= self.loaded {
            self.load(inner);
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
            let answer = if let Some(found) = self.ahead.find(place, key) {
                Some(found.value().map(|value| take.of_bytes(value)))
            } else {
                let slot = run.sst.slot(place.block);
                inner.cache.find(slot, (hash, key), take).map(Answer::value)
            };
            match answer {
                Some(Some(taken)) => return Ok(Some(taken)),
                Some(None) => return Err(super::read::not_there(run, place.block, key)),
                None => {}
            }
        }
        inner.read_indexed(&inner.front.view.load(), (hash, key), None, take)
    }

    /// Copies places out of the index.
    fn copy_more(&mut self, inner: &Inner) -> Result<()> {
        self.found.clear();
        self.ahead.clear(inner);
        (self.next, self.near, self.loaded, self.asked, self.restored) = (0, 0, 0, 0, 0);
        if self.steps == 0 && inner.together.is_usual() {
            self.steps = STEPS_TOGETHER;
        }
        let step = FIRST_STEP << (self.steps / 2).min(DOUBLINGS);
        let ahead = AHEAD_MAX.min((1 << self.steps.min(DOUBLINGS)) - 1);
        self.steps += 1;
        let tree = &inner.paged.tree;
        match self.way {
            Direction::Up => tree.scan_forward(&mut self.ascent, (step, ahead), &mut self.run)?,
            Direction::Down => {
                self.run.clear();
                let range = (self.ascent.end.as_deref(), Some(&*self.ascent.start));
                let pair = |key, entered| (key, entered);
                let found = tree.scan_reverse(range, (step, ahead), Entered::take, pair)?;
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
    /// time, and asks the disk for those that it lacks.
    fn load(&mut self, inner: &Inner) {
        self.send(inner);
        if self.asked <= self.next {
            let last = self.found.len().min(self.next + NEAR);
            let is_near = |found: &Found| {
                let is_here =
                    |run: &Arc<Run>| inner.cache.has(run.sst.slot(found.entered.place.block));
                found.run_in(&self.runs).is_none_or(is_here)
            };
            if self.found.get(self.next..last).unwrap_or(&[]).iter().all(is_near) {
                inner.together.note(last - self.next, 0);
                (self.loaded, self.asked) = (last, last);
                return;
            }
        }
        self.ask(inner);
        if let Some(found) = self.found() {
            self.ahead.wait_for(found.entered.place, self.way, inner);
        }
        let rest = self.found.get(self.next..self.asked).unwrap_or(&[]);
        let here = rest.iter().take_while(|one| !self.ahead.is_under_way(one.entered.place));
        self.loaded = self.next + here.count().max(1);
    }

    /// Asks for the blocks of the next places that the cache lacks, if few are on their way.
    fn ask(&mut self, inner: &Inner) {
        self.ahead.pass(self.next, inner);
        let (first, mut bytes) = (self.asked.max(self.next), 0);
        let (mut wanted, mut room) = (BTreeMap::<Place, Wanted<'_>>::new(), None);
        self.asked = first;
        for (index, found) in (first..).zip(self.found.get(first..).unwrap_or(&[])) {
            let place = found.entered.place;
            let is_missing = |run: &&Arc<Run>| {
                place.block < run.sst.blocks()
                    && !self.ahead.has(place, index)
                    && !inner.cache.has(run.sst.slot(place.block))
            };
            if let Some(one) = wanted.get_mut(&place) {
                one.last = index;
            } else if let Some(run) = found.run_in(&self.runs).filter(is_missing) {
                let size = run.sst.span(place.block..place.block + 1).bytes;
                let most = *room.get_or_insert_with(|| self.ahead.room(size));
                if most == 0 || (bytes > 0 && bytes + size > most) {
                    break;
                }
                bytes += size;
                wanted.insert(place, Wanted { run, first: index, last: index });
            }
            self.asked = index + 1;
        }
        let places = self.asked - first;
        let reads = self.ahead.ask(wanted, self.way, inner);
        if places > 0 {
            inner.together.note(places, reads);
        }
    }
}
