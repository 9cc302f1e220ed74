//! Hot blocks of immutable files, in frames of memory.
//!
//! What: whoever owns a file keeps [`Places`] for its blocks: a word each that says in which frame
//! it was put. A read through the place takes no lock and writes no shared memory, but for a count
//! of uses that stops at three. Frames fill as blocks are read, and give way to others; a block
//! that has just been written goes into a frame that nobody needs, if there is one. With the
//! file's places go its blocks: what a merge replaced takes no memory.
//! Why: no table to probe. The place is found by the block's number, so a hit costs one word and
//! the frame itself; and a block of an immutable file never changes, so nothing is written back.
//!
//! Which block gives way (S3-FIFO, Yang and others 2023): a new block waits in a short queue. If it
//! was used again by the time it comes to the queue's end, it goes to the long queue, else it
//! leaves and only its number is remembered for a while; a block that is remembered goes to the
//! long queue at once. In the long queue each use is worth another round. So what is read once, as
//! by a scan, passes through a tenth of the memory. A queue says with each frame which fill it
//! waits for: a frame that was emptied and filled again meanwhile waits in its new place alone.
//!
//! A frame, in words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | version: the number of the fill that made it, never used again; 0: it is being written or empty |
//! | 1 | the block's identity, of the owner's choice, not 0 |
//! | 2 | uses since it was looked at last |
//! | 3 .. | what the owner put there |
//!
//! Frames are named by the line of 64 bytes that they begin at: a hit divides nothing.
//!
//! Invariants: a look at a frame counts only if its version was the same before and after, and its
//! identity is the one that was asked for. So a place may name a frame that has another block by
//! now, and needs no care when its block leaves. Memory is drawn from the budget in chunks,
//! while an eighth of it is free, and given back by [`Blocks::shrink`].
//!
//! Thread rules: any thread. Fills and shrinking hold `admin`.

#[cfg(all(test, any(loom, shuttle)))]
mod models;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

use std::{collections::VecDeque, io, sync::Arc};

use super::{Region, words::WORD_BYTES};
use crate::{
    budget::Budget,
    codec::{low_u32, round_up, to_u64, to_usize},
    pages::words::store_bytes,
    seeded::{self, Bug},
    sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, lock},
};

/// Memory comes and goes in chunks of this size, or a multiple of it.
const CHUNK_BYTES: u64 = if cfg!(any(test, loom, shuttle)) { 64 << 10 } else { 2 << 20 };
const HEAD_WORDS: usize = 3;
/// Words of a line. Frames begin at lines.
const LINE_WORDS: usize = 8;
/// Uses that are counted.
const USES_MAX: u64 = 3;
/// The short queue has one frame of so many.
const SHORT_SHARE: usize = 10;
/// One byte of so many of the budget is left to others.
const SPARE_SHARE: u64 = 8;
/// Frames that are looked at, at most, for one that can be used.
const LOOKS_MAX: usize = 128;

/// Where a block was put, if it was.
#[derive(Debug)]
pub(crate) struct Place(AtomicU32);

impl Default for Place {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A block's place, and the identity that its frame has to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    place: &'a Place,
    id: u64,
}

impl Slot<'_> {
    /// The frame that the place names.
    #[inline]
    fn frame(&self) -> Option<u32> {
        self.place.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Places of the blocks of one file, drawn from the budget. Their frames are free again when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct Places {
    all: Vec<Place>,
    /// The identity of block 0; the others follow.
    first: u64,
    /// Bytes that were drawn.
    charged: u64,
    blocks: Arc<Blocks>,
}

impl Places {
    /// Places of no blocks yet.
    pub(crate) fn new(blocks: &Arc<Blocks>, first: u64) -> Self {
        Self { all: Vec::new(), first, charged: 0, blocks: Arc::clone(blocks) }
    }

    /// Places for this many blocks.
    pub(crate) fn with_count(mut self, count: u32) -> Self {
        self.all.resize_with(to_usize(u64::from(count)), Place::default);
        self.all.shrink_to_fit();
        let bytes = to_u64(self.all.len() * size_of::<Place>());
        self.blocks.budget.take_anyway(bytes.saturating_sub(self.charged));
        self.charged = self.charged.max(bytes);
        self
    }

    /// One more block, which goes into a frame that is free, if there is one.
    pub(crate) fn push(&mut self, payload: Option<&[&[u8]]>) {
        let place = Place::default();
        if let Some(payload) = payload {
            let slot = Slot { place: &place, id: self.first + to_u64(self.all.len()) };
            self.blocks.put(slot, payload, Blocks::take_free);
        }
        self.all.push(place);
    }

    /// The place of a block.
    #[inline]
    pub(crate) fn get(&self, block: u32) -> Option<Slot<'_>> {
        let place = self.all.get(to_usize(u64::from(block)))?;
        Some(Slot { place, id: self.first + u64::from(block) })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.blocks.release(&self.all, self.first);
        self.blocks.budget.give(self.charged);
    }
}

/// The frames. See the module head.
#[derive(Debug)]
pub(crate) struct Blocks {
    region: Region,
    /// Words of a frame; frames of a chunk, and the chunk's words.
    frame_words: usize,
    chunk_frames: usize,
    chunk_words: usize,
    /// Chunks at most.
    chunks_max: usize,
    budget: Arc<Budget>,
    admin: Mutex<Admin>,
    fills_total: AtomicU64,
    evicted_total: AtomicU64,
}

#[derive(Debug, Default)]
struct Admin {
    /// Chunks that are drawn from the budget.
    chunks: usize,
    free: Vec<u32>,
    short: VecDeque<Waiting>,
    long: VecDeque<Waiting>,
    /// Identities of what left the short queue, each in the slot that its bits say.
    ghosts: Vec<u64>,
    version: u64,
}

/// A frame that waits for its turn to leave.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    frame: u32,
    /// The fill that it waits for.
    version: u64,
}

/// Spreads the bits of an identity.
fn mix(id: u64) -> u64 {
    let mixed = (id ^ id >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

impl Blocks {
    /// Frames of up to `payload_bytes` each, in at most `bytes` of memory.
    pub(crate) fn new(bytes: u64, payload_bytes: usize, budget: &Arc<Budget>) -> io::Result<Self> {
        let words = HEAD_WORDS + payload_bytes.div_ceil(WORD_BYTES);
        let frame_words = words.next_multiple_of(LINE_WORDS);
        let frame_bytes = to_u64(frame_words * WORD_BYTES);
        let chunk_bytes = round_up(8 * frame_bytes, CHUNK_BYTES);
        // Lines have numbers of 32 bits: 256 GiB.
        let bytes = bytes.min(u64::from(u32::MAX) * to_u64(LINE_WORDS * WORD_BYTES));
        let chunks_max = to_usize(bytes / chunk_bytes);
        let chunk_frames = to_usize(chunk_bytes / frame_bytes);
        Ok(Self {
            region: Region::reserve(to_u64(chunks_max) * chunk_bytes)?,
            frame_words,
            chunk_frames,
            chunk_words: to_usize(chunk_bytes) / WORD_BYTES,
            chunks_max,
            budget: Arc::clone(budget),
            admin: Mutex::new(Admin::default()),
            fills_total: AtomicU64::new(0),
            evicted_total: AtomicU64::new(0),
        })
    }

    /// Whether it can hold anything.
    pub(crate) fn is_on(&self) -> bool {
        self.chunks_max > 0
    }

    /// Bytes that fit a frame.
    pub(crate) fn payload_bytes(&self) -> usize {
        (self.frame_words - HEAD_WORDS) * WORD_BYTES
    }

    #[inline]
    fn frame(&self, number: u32) -> Option<&[AtomicU64]> {
        let first = to_usize(u64::from(number)) * LINE_WORDS;
        self.region.words().get(first..first + self.frame_words)
    }

    /// Starts loading what a place names. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, slot: Slot<'_>) {
        if let Some(frame) = slot.frame().and_then(|number| self.frame(number)) {
            frame.iter().step_by(8).take(3).for_each(super::prefetch);
        }
    }

    /// Whether a block is here. It may leave at any time.
    pub(crate) fn has(&self, slot: Slot<'_>) -> bool {
        slot.frame().is_some_and(|number| self.holds(number, slot.id))
    }

    /// What `look` makes of a block; `None` where it is not here. What `look` is given may change
    /// under it: then its result is thrown away.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        slot: Slot<'_>,
        look: impl FnOnce(&[AtomicU64]) -> T,
    ) -> Option<T> {
        let number = slot.frame()?;
        let (head, payload) = self.frame(number)?.split_at_checked(HEAD_WORDS)?;
        let [version, owner, uses] = head else { return None };
        // What stands at the front of a block goes over its first line.
        payload.get(8).into_iter().for_each(super::prefetch);
        let before = version.load(Ordering::Acquire);
        let is_other = owner.load(Ordering::Relaxed) != slot.id;
        if before == 0 || (is_other && !seeded::active(Bug::BlockKeepsIdentity)) {
            return None;
        }
        let found = look(payload);
        fence(Ordering::Acquire);
        if version.load(Ordering::Relaxed) != before && !seeded::active(Bug::BlockNotValidated) {
            return None;
        }
        // Where another block has the frame by now, its count is one off.
        let count = uses.load(Ordering::Relaxed);
        if count < USES_MAX {
            uses.store(count + 1, Ordering::Relaxed);
        }
        Some(found)
    }

    /// Puts a block into a frame, unless it is there, too large, or there is no memory.
    pub(crate) fn fill(&self, slot: Slot<'_>, payload: &[&[u8]]) {
        self.put(slot, payload, Self::take_frame);
    }

    fn put(&self, slot: Slot<'_>, payload: &[&[u8]], take: fn(&Self, &mut Admin) -> Option<u32>) {
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        if bytes > self.payload_bytes() || !self.is_on() {
            return;
        }
        let mut admin = lock(&self.admin);
        if slot.frame().is_some_and(|number| self.holds(number, slot.id)) {
            return;
        }
        let Some(number) = take(self, &mut admin) else { return };
        let Some(frame) = self.frame(number) else { return };
        admin.version += 1;
        let [version, owner, uses, words @ ..] = frame else { return };
        version.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        owner.store(slot.id, Ordering::Relaxed);
        store_bytes(words, payload);
        uses.store(0, Ordering::Relaxed);
        version.store(admin.version, Ordering::Release);
        let waiting = Waiting { frame: number, version: admin.version };
        if admin.forget(slot.id) {
            admin.long.push_back(waiting);
        } else {
            admin.short.push_back(waiting);
        }
        self.tidy(&mut admin);
        slot.place.0.store(number + 1, Ordering::Relaxed);
        self.fills_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a frame has this block, as far as fills go; it stays for those who hold `admin`.
    fn holds(&self, frame: u32, id: u64) -> bool {
        let Some([version, owner, ..]) = self.frame(frame) else { return false };
        version.load(Ordering::Relaxed) != 0 && owner.load(Ordering::Relaxed) == id
    }

    /// Whether a frame is still that of the fill it waits for.
    fn waits(&self, one: Waiting) -> bool {
        let version = self.frame(one.frame).and_then(<[AtomicU64]>::first);
        version.is_some_and(|version| version.load(Ordering::Relaxed) == one.version)
    }

    /// Takes those that wait for nothing out of the queues, once they are as many as the others.
    fn tidy(&self, admin: &mut Admin) {
        let frames = admin.chunks * self.chunk_frames;
        if admin.short.len() + admin.long.len() > 2 * frames {
            admin.short.retain(|one| self.waits(*one));
            admin.long.retain(|one| self.waits(*one));
        }
    }

    /// Empties the frames of blocks whose file is gone.
    fn release(&self, places: &[Place], first: u64) {
        let mut admin = lock(&self.admin);
        for (place, id) in places.iter().zip(first..) {
            let Some(number) = Slot { place, id }.frame() else { continue };
            if !self.holds(number, id) {
                continue;
            }
            if let Some(version) = self.frame(number).and_then(<[AtomicU64]>::first) {
                version.store(0, Ordering::Relaxed);
                admin.free.push(number);
            }
        }
    }

    /// A frame that holds nothing.
    fn take_free(&self, admin: &mut Admin) -> Option<u32> {
        if admin.free.is_empty() {
            self.grow(admin);
        }
        admin.free.pop()
    }

    /// A frame that holds nothing, or whose turn it is to leave.
    fn take_frame(&self, admin: &mut Admin) -> Option<u32> {
        if let Some(number) = self.take_free(admin) {
            return Some(number);
        }
        let number = self.evict(admin)?;
        self.evicted_total.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// The line that a chunk begins at.
    fn line_of(&self, chunk: usize) -> u32 {
        low_u32(to_u64(chunk * self.chunk_words / LINE_WORDS))
    }

    /// The frames of a chunk.
    fn frames_of(&self, chunk: usize) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let (first, step) = (self.line_of(chunk), low_u32(to_u64(self.frame_words / LINE_WORDS)));
        (0..low_u32(to_u64(self.chunk_frames))).map(move |number| first + number * step)
    }

    /// One more chunk, where there is memory that nobody else will need soon.
    fn grow(&self, admin: &mut Admin) {
        let bytes = to_u64(self.chunk_words * WORD_BYTES);
        let spare = self.budget.limit() / SPARE_SHARE;
        let is_free = self.budget.used().saturating_add(bytes + spare) <= self.budget.limit();
        if admin.chunks >= self.chunks_max || !is_free || self.budget.take(bytes).is_err() {
            return;
        }
        let frames = self.frames_of(admin.chunks);
        let range = to_u64(admin.chunks) * bytes;
        self.region.advise_huge(range..range + bytes);
        admin.chunks += 1;
        admin.free.extend(frames.rev());
        let ghosts = (admin.chunks * self.chunk_frames).next_power_of_two();
        if ghosts > admin.ghosts.len() {
            admin.ghosts = vec![0; ghosts];
        }
    }

    /// The frame whose turn it is to leave.
    fn evict(&self, admin: &mut Admin) -> Option<u32> {
        let frames = admin.chunks * self.chunk_frames;
        let mut looks = 0;
        loop {
            let is_short = admin.short.len() * SHORT_SHARE > frames || admin.long.is_empty();
            let queue = if is_short { &mut admin.short } else { &mut admin.long };
            let one = queue.pop_front()?;
            if !self.waits(one) {
                continue;
            }
            let number = one.frame;
            let Some(uses) = self.frame(number).and_then(|frame| frame.get(2)) else { continue };
            let count = uses.load(Ordering::Relaxed);
            looks += 1;
            if count > 0 && looks < LOOKS_MAX {
                uses.store(if is_short { 0 } else { count - 1 }, Ordering::Relaxed);
                admin.long.push_back(one);
                continue;
            }
            if is_short && let Some(owner) = self.frame(number).and_then(|frame| frame.get(1)) {
                admin.remember(owner.load(Ordering::Relaxed));
            }
            return Some(number);
        }
    }

    /// Gives back at least `bytes` of memory, or all there is; how much.
    pub(crate) fn shrink(&self, bytes: u64) -> u64 {
        let chunk = to_u64(self.chunk_words * WORD_BYTES);
        let mut admin = lock(&self.admin);
        let mut given = 0;
        while given < bytes && admin.chunks > 0 {
            admin.chunks -= 1;
            for number in self.frames_of(admin.chunks) {
                let frame = self.frame(number);
                if let Some(version) = frame.and_then(<[AtomicU64]>::first) {
                    version.store(0, Ordering::SeqCst);
                }
            }
            // Whoever reads zeros from here on sees the versions gone as well: taking the pages
            // away waits for every processor.
            fence(Ordering::SeqCst);
            let range = to_u64(admin.chunks) * chunk;
            self.region.discard(range..range + chunk);
            given += chunk;
        }
        let left = self.line_of(admin.chunks);
        admin.free.retain(|number| *number < left);
        admin.short.retain(|one| one.frame < left);
        admin.long.retain(|one| one.frame < left);
        drop(admin);
        self.budget.give(given);
        given
    }

    /// Bytes that are drawn from the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        to_u64(lock(&self.admin).chunks * self.chunk_words * WORD_BYTES)
    }

    /// Blocks that were put into frames, and those that gave way, since the start.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.fills_total), load(&self.evicted_total))
    }
}

impl Admin {
    fn ghost(&mut self, id: u64) -> Option<&mut u64> {
        let mask = to_u64(self.ghosts.len()).checked_sub(1)?;
        self.ghosts.get_mut(to_usize(mix(id) & mask))
    }

    fn remember(&mut self, id: u64) {
        if let Some(slot) = self.ghost(id) {
            *slot = id;
        }
    }

    /// Whether the block left lately; from now on it did not.
    fn forget(&mut self, id: u64) -> bool {
        match self.ghost(id) {
            Some(slot) if *slot == id => {
                *slot = 0;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.shrink(u64::MAX);
    }
}
