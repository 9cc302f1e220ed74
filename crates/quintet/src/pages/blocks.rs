//! Hot blocks of immutable files, in frames of memory.
//!
//! What: whoever owns a block keeps a [`Place`] for it: a word that says in which frame it was put.
//! A read through the place takes no lock and writes no shared memory, but for a count of uses
//! that stops at three. Frames fill as blocks are read, and give way to others.
//! Why: no table to probe. The place is found by the block's number, so a hit costs one word and
//! the frame itself; and a block of an immutable file never changes, so nothing is written back.
//!
//! Which block gives way (S3-FIFO, Yang and others 2023): a new block waits in a short queue. If it
//! was used again by the time it comes to the queue's end, it goes to the long queue, else it
//! leaves and only its number is remembered for a while; a block that is remembered goes to the
//! long queue at once. In the long queue each use is worth another round. So what is read once, as
//! by a scan, passes through a tenth of the memory.
//!
//! A frame, in words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | version: the number of the fill that made it, never used again; 0: it is being written or empty |
//! | 1 | the block's identity, of the owner's choice, not 0 |
//! | 2 .. | what the owner put there |
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
    sync::{AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, fence, lock},
};

/// Memory comes and goes in chunks of this size, or a multiple of it.
const CHUNK_BYTES: u64 = if cfg!(any(test, loom, shuttle)) { 64 << 10 } else { 2 << 20 };
const HEAD_WORDS: usize = 2;
/// Uses that are counted.
const USES_MAX: u8 = 3;
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

/// Places of the blocks of one file, drawn from the budget.
#[derive(Debug)]
pub(crate) struct Places {
    places: Box<[Place]>,
    budget: Arc<Budget>,
}

impl Places {
    /// The place of a block.
    #[inline]
    pub(crate) fn get(&self, block: u32) -> Option<&Place> {
        self.places.get(to_usize(u64::from(block)))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.budget.give(to_u64(size_of_val(&*self.places)));
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
    /// Uses of each frame since it was looked at last.
    uses: Box<[AtomicU8]>,
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
    short: VecDeque<u32>,
    long: VecDeque<u32>,
    /// Identities of what left the short queue, each in the slot that its bits say.
    ghosts: Vec<u64>,
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
        // Frames begin at cache lines.
        let frame_words = (HEAD_WORDS + payload_bytes.div_ceil(WORD_BYTES)).next_multiple_of(8);
        let frame_bytes = to_u64(frame_words * WORD_BYTES);
        let chunk_bytes = round_up(8 * frame_bytes, CHUNK_BYTES);
        let chunks_max = to_usize(bytes / chunk_bytes);
        let chunk_frames = to_usize(chunk_bytes / frame_bytes);
        let frames = chunks_max * chunk_frames;
        Ok(Self {
            region: Region::reserve(to_u64(chunks_max) * chunk_bytes)?,
            frame_words,
            chunk_frames,
            chunk_words: to_usize(chunk_bytes) / WORD_BYTES,
            chunks_max,
            uses: (0..frames).map(|_| AtomicU8::new(0)).collect(),
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

    /// Places for so many blocks; `None` where there is no memory.
    pub(crate) fn places(&self, count: u32) -> Option<Places> {
        let places: Box<[Place]> = (0..count).map(|_| Place::default()).collect();
        self.budget.take(to_u64(size_of_val(&*places))).ok()?;
        Some(Places { places, budget: Arc::clone(&self.budget) })
    }

    /// Bytes that fit a frame.
    pub(crate) fn payload_bytes(&self) -> usize {
        (self.frame_words - HEAD_WORDS) * WORD_BYTES
    }

    #[inline]
    fn frame(&self, number: u32) -> Option<&[AtomicU64]> {
        let number = to_usize(u64::from(number));
        let first = number / self.chunk_frames * self.chunk_words
            + number % self.chunk_frames * self.frame_words;
        self.region.words().get(first..first + self.frame_words)
    }

    /// Starts loading what a place names. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, place: &Place) {
        let frame = place.0.load(Ordering::Relaxed).checked_sub(1);
        if let Some(frame) = frame.and_then(|number| self.frame(number)) {
            frame.iter().step_by(8).take(3).for_each(super::prefetch);
        }
    }

    /// What `look` makes of a block; `None` where it is not here. What `look` is given may change
    /// under it: then its result is thrown away.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        place: &Place,
        id: u64,
        look: impl FnOnce(&[AtomicU64]) -> T,
    ) -> Option<T> {
        let number = place.0.load(Ordering::Relaxed).checked_sub(1)?;
        let (head, payload) = self.frame(number)?.split_at_checked(HEAD_WORDS)?;
        let [version, owner] = head else { return None };
        let before = version.load(Ordering::Acquire);
        let is_other = owner.load(Ordering::Relaxed) != id;
        if before == 0 || (is_other && !seeded::active(Bug::BlockKeepsIdentity)) {
            return None;
        }
        let found = look(payload);
        fence(Ordering::Acquire);
        if version.load(Ordering::Relaxed) != before && !seeded::active(Bug::BlockNotValidated) {
            return None;
        }
        if let Some(uses) = self.uses.get(to_usize(u64::from(number))) {
            let count = uses.load(Ordering::Relaxed);
            if count < USES_MAX {
                uses.store(count + 1, Ordering::Relaxed);
            }
        }
        Some(found)
    }

    /// Puts a block into a frame, unless it is there, too large, or there is no memory.
    pub(crate) fn fill(&self, place: &Place, id: u64, payload: &[&[u8]]) {
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        if bytes > self.payload_bytes() || !self.is_on() {
            return;
        }
        let mut admin = lock(&self.admin);
        let current = place.0.load(Ordering::Relaxed).checked_sub(1);
        let owner = current.and_then(|number| self.frame(number)?.get(1));
        if owner.is_some_and(|owner| owner.load(Ordering::Relaxed) == id) {
            return;
        }
        let Some(number) = self.take_frame(&mut admin) else { return };
        let Some(frame) = self.frame(number) else { return };
        admin.version += 1;
        let [version, owner, words @ ..] = frame else { return };
        version.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        owner.store(id, Ordering::Relaxed);
        store_bytes(words, payload);
        version.store(admin.version, Ordering::Release);
        if let Some(uses) = self.uses.get(to_usize(u64::from(number))) {
            uses.store(0, Ordering::Relaxed);
        }
        if admin.forget(id) {
            admin.long.push_back(number);
        } else {
            admin.short.push_back(number);
        }
        place.0.store(number + 1, Ordering::Relaxed);
        self.fills_total.fetch_add(1, Ordering::Relaxed);
    }

    /// A frame that nobody needs.
    fn take_frame(&self, admin: &mut Admin) -> Option<u32> {
        if let Some(number) = admin.free.pop() {
            return Some(number);
        }
        if self.grow(admin) {
            return admin.free.pop();
        }
        let number = self.evict(admin)?;
        self.evicted_total.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// One more chunk, where there is memory that nobody else will need soon.
    fn grow(&self, admin: &mut Admin) -> bool {
        let bytes = to_u64(self.chunk_words * WORD_BYTES);
        let spare = self.budget.limit() / SPARE_SHARE;
        let is_free = self.budget.used().saturating_add(bytes + spare) <= self.budget.limit();
        if admin.chunks >= self.chunks_max || !is_free || self.budget.take(bytes).is_err() {
            return false;
        }
        let first = admin.chunks * self.chunk_frames;
        let range = to_u64(admin.chunks) * bytes;
        self.region.advise_huge(range..range + bytes);
        admin.chunks += 1;
        let frames = first..first + self.chunk_frames;
        admin.free.extend(frames.rev().map(|number| low_u32(to_u64(number))));
        let ghosts = (admin.chunks * self.chunk_frames).next_power_of_two();
        if ghosts > admin.ghosts.len() {
            admin.ghosts = vec![0; ghosts];
        }
        true
    }

    /// The frame whose turn it is to leave.
    fn evict(&self, admin: &mut Admin) -> Option<u32> {
        let frames = admin.chunks * self.chunk_frames;
        for look in 0..LOOKS_MAX {
            let is_short = admin.short.len() * SHORT_SHARE > frames || admin.long.is_empty();
            let queue = if is_short { &mut admin.short } else { &mut admin.long };
            let number = queue.pop_front()?;
            // A chunk that was given back has no frames.
            if to_usize(u64::from(number)) >= frames {
                continue;
            }
            let Some(uses) = self.uses.get(to_usize(u64::from(number))) else { continue };
            let count = uses.load(Ordering::Relaxed);
            if count > 0 && look + 1 < LOOKS_MAX {
                uses.store(if is_short { 0 } else { count - 1 }, Ordering::Relaxed);
                admin.long.push_back(number);
                continue;
            }
            if is_short && let Some(owner) = self.frame(number).and_then(|frame| frame.get(1)) {
                admin.remember(owner.load(Ordering::Relaxed));
            }
            return Some(number);
        }
        None
    }

    /// Gives back at least `bytes` of memory, or all there is; how much.
    pub(crate) fn shrink(&self, bytes: u64) -> u64 {
        let chunk = to_u64(self.chunk_words * WORD_BYTES);
        let mut admin = lock(&self.admin);
        let mut given = 0;
        while given < bytes && admin.chunks > 0 {
            admin.chunks -= 1;
            let first = admin.chunks * self.chunk_frames;
            for number in first..first + self.chunk_frames {
                let frame = self.frame(low_u32(to_u64(number)));
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
        let left = low_u32(to_u64(admin.chunks * self.chunk_frames));
        admin.free.retain(|number| *number < left);
        admin.short.retain(|number| *number < left);
        admin.long.retain(|number| *number < left);
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
