//! Chunks in memory: addresses, frames, and reads without locks.
//!
//! An address is a chunk's id and a position in units of 8 bytes. A table of four words a chunk
//! holds its frame and its fill level. A frame is memory for one chunk, in one reserved region of
//! huge pages.
//! A get reads the entry's cache lines and writes nothing, while other threads evict, recycle and
//! update frames.
//!
//! | word | bits | meaning |
//! |---|---|---|
//! | 0 | 0 to 31 | frame number + 1; 0: not in memory |
//! | 0 | 32 to 63 | generation: changes whenever the chunk leaves its frame or its number is used anew |
//! | 1 | | units below this are frozen: no entry there changes any more |
//! | 2 | 0 to 31 | dead units |
//! | 2 | 32 to 63 | units of tombstones |
//! | 3 | 0 to 31 | units in use |
//! | 3 | 63 | sealed: no more appends |
//!
//! Invariants: word 0 changes before the frame is written for another chunk. A reader that finds
//! word 0 unchanged after its reads has read this chunk. Frames stay mapped until the table is
//! closed, so a stale read returns wrong bytes but never faults.
//!
//! Locks: `allocator` guards the lists of frames. Reads take none. Any thread may call any method,
//! but only the thread that starts, evicts or drops a chunk calls `begin`, `attach` and `detach`
//! for it.

use std::{io, sync::Arc};

use super::entry::{EntryHead, UNIT_BYTES};
use crate::{
    engine::hashlog::index::ADDRESS_END,
    io::{Region, prefetch},
    util::{
        budget::Budget,
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock},
        words::{copy_out, equals},
    },
};

/// Units of an extent's head. Appends start behind it.
pub(super) const EXTENT_HEAD_UNITS: u64 = 16;
/// Words of a chunk in `table`.
const ROW_WORDS: u64 = 4;
/// Maximum number of chunks of a table.
const CHUNKS_MAX: u64 = 1 << 20;
const SEALED: u64 = 1 << 63;
/// One generation, in word 0.
const GENERATION: u64 = 1 << 32;
const UNITS_MASK: u64 = 0xffff_ffff;
/// Maximum number of free frames whose memory is not returned to the system.
const SPARE_FRAMES: usize = 2;
/// Number of frames populated ahead of fast writers: more than they fill during a flush.
const POPULATED_FRAMES: usize = 8;
/// Number of frames in ordinary pages: a small table should not take whole huge pages.
const SMALL_FRAMES: u64 = 2;
/// Smallest size of chunks that use huge pages, in bytes.
const HUGE_CHUNK_BYTES: u64 = 2 << 20;

/// The arena. See the module documentation.
#[derive(Debug)]
pub(super) struct ChunkArena {
    frames: Region,
    /// Word 0 of each chunk. Gets read it, so it is on cache lines that appends do not change.
    states: Region,
    /// Words 1 to 3 of each chunk; the first word of each row is unused.
    table: Region,
    unit_bits: u32,
    frames_max: u64,
    allocator: Mutex<Allocator>,
    /// Writers fill chunks fast: frames are to be populated ahead.
    is_filling: AtomicBool,
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Allocator {
    next: u64,
    /// Free frames that are populated and reserved from the budget.
    spare: Vec<u64>,
    /// Free frames whose memory went back to the system.
    free: Vec<u64>,
    in_use: u64,
}

/// The result of a read at an address.
#[derive(Debug)]
pub(super) enum ArenaRead<T> {
    Found(T),
    OtherKey,
    /// The memory changed during the read: repeat the lookup.
    Changed,
    /// The chunk is not in memory. Holds its word 0, to detect a later change.
    Cold(u64),
}

impl ChunkArena {
    pub(super) fn new(chunk_bytes: u64, budget: Arc<Budget>) -> io::Result<Self> {
        let unit_bits = (chunk_bytes / to_u64(UNIT_BYTES)).trailing_zeros();
        // Replay of acknowledged writes may exceed the limit: reserve addresses for twice as much.
        let frames_max = (budget.limit() / chunk_bytes * 2 + 256).min(1 << 31);
        let chunks_max = (ADDRESS_END >> unit_bits).min(CHUNKS_MAX);
        Ok(Self {
            frames: Region::reserve(frames_max * chunk_bytes)?,
            states: Region::reserve(chunks_max * 8)?,
            table: Region::reserve(chunks_max * ROW_WORDS * 8)?,
            unit_bits,
            frames_max,
            allocator: Mutex::new(Allocator::default()),
            is_filling: AtomicBool::new(false),
            budget,
        })
    }

    pub(super) fn chunk_units(&self) -> u64 {
        1 << self.unit_bits
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk_units() * to_u64(UNIT_BYTES)
    }

    pub(super) fn chunks_max(&self) -> u64 {
        to_u64(self.table.words().len()) / ROW_WORDS
    }

    pub(super) fn address(&self, chunk: u64, unit: u64) -> u64 {
        chunk << self.unit_bits | unit
    }

    /// Returns the chunk and the position of an address.
    #[inline]
    pub(super) fn split(&self, address: u64) -> (u64, u64) {
        (address >> self.unit_bits, address & (self.chunk_units() - 1))
    }

    #[inline]
    fn row(&self, chunk: u64, word: u64) -> &AtomicU64 {
        // Slots hold only addresses of chunks made by this arena.
        &self.table.words()[to_usize(chunk * ROW_WORDS + word)]
    }

    #[inline]
    fn state_word(&self, chunk: u64) -> &AtomicU64 {
        // As above.
        &self.states.words()[to_usize(chunk)]
    }

    /// Returns word 0 of a chunk.
    #[inline]
    pub(super) fn state(&self, chunk: u64) -> u64 {
        self.state_word(chunk).load(Ordering::Acquire)
    }

    pub(super) fn is_resident(&self, chunk: u64) -> bool {
        self.state(chunk) & UNITS_MASK != 0
    }

    /// Returns a free frame, reserved from the budget. With `beyond_limit` it may exceed the limit.
    /// `None`: the budget or the address space has none.
    pub(super) fn reserve_frame(&self, beyond_limit: bool) -> Option<u64> {
        let mut frames = lock(&self.allocator);
        if let Some(frame) = frames.spare.pop() {
            frames.in_use += 1;
            return Some(frame);
        }
        self.reserve_new_frame(&mut frames, beyond_limit)
    }

    /// As [`Self::reserve_frame`], for a frame that is not populated. The first stores commit its
    /// memory.
    fn reserve_new_frame(&self, frames: &mut Allocator, beyond_limit: bool) -> Option<u64> {
        if frames.free.is_empty() && frames.next >= self.frames_max {
            return None;
        }
        if beyond_limit {
            self.budget.reserve_unchecked(self.chunk_bytes());
        } else {
            self.budget.try_reserve(self.chunk_bytes()).ok()?;
        }
        frames.in_use += 1;
        let frame = frames.free.pop().unwrap_or_else(|| {
            frames.next += 1;
            frames.next - 1
        });
        if frame >= SMALL_FRAMES && self.chunk_bytes() >= HUGE_CHUNK_BYTES {
            let start = frame * self.chunk_bytes();
            self.frames.advise_huge(start..start + self.chunk_bytes());
        }
        Some(frame)
    }

    /// Records whether writers fill chunks so fast that frames are to be populated ahead.
    pub(super) fn set_filling(&self, fast: bool) {
        let fast = fast && self.chunk_bytes() >= HUGE_CHUNK_BYTES;
        self.is_filling.store(fast, Ordering::Relaxed);
    }

    /// Returns whether writers fill chunks fast.
    pub(super) fn is_filling(&self) -> bool {
        self.is_filling.load(Ordering::Relaxed)
    }

    /// Returns whether [`Self::populate_ahead`] has work, if there is memory for it.
    pub(super) fn wants_frames(&self) -> bool {
        self.is_filling.load(Ordering::Relaxed)
            && lock(&self.allocator).spare.len() < POPULATED_FRAMES / 2
    }

    /// Populates one frame ahead, so that the next writer does not wait for the system to clear its
    /// memory. Returns `false` if there is no need or no memory.
    pub(super) fn populate_ahead(&self) -> bool {
        let mut frames = lock(&self.allocator);
        if !self.is_filling.load(Ordering::Relaxed) || frames.spare.len() >= POPULATED_FRAMES {
            return false;
        }
        let Some(frame) = self.reserve_new_frame(&mut frames, false) else {
            self.is_filling.store(false, Ordering::Relaxed);
            return false;
        };
        drop(frames);
        let start = frame * self.chunk_bytes();
        self.frames.populate(start..start + self.chunk_bytes());
        let mut frames = lock(&self.allocator);
        frames.in_use -= 1;
        frames.spare.push(frame);
        true
    }

    /// Returns whether frames were populated ahead and not used.
    pub(super) fn has_populated(&self) -> bool {
        lock(&self.allocator).spare.len() > SPARE_FRAMES
    }

    /// Returns the frames populated ahead to the system. Call it when the table is idle.
    pub(super) fn release_populated(&self) {
        self.is_filling.store(false, Ordering::Relaxed);
        let mut frames = lock(&self.allocator);
        while frames.spare.len() > SPARE_FRAMES
            && let Some(frame) = frames.spare.pop()
        {
            self.discard_frame(&mut frames, frame);
        }
    }

    fn discard_frame(&self, frames: &mut Allocator, frame: u64) {
        let start = frame * self.chunk_bytes();
        self.frames.discard(start..start + self.chunk_bytes());
        frames.free.push(frame);
        self.budget.release(self.chunk_bytes());
    }

    pub(super) fn release_frame(&self, frame: u64) {
        let mut frames = lock(&self.allocator);
        frames.in_use -= 1;
        if frames.spare.len() < SPARE_FRAMES && self.budget.used() <= self.budget.limit() {
            frames.spare.push(frame);
            return;
        }
        self.discard_frame(&mut frames, frame);
    }

    /// Returns the bytes reserved from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        let frames = lock(&self.allocator);
        (frames.in_use + to_u64(frames.spare.len())) * self.chunk_bytes()
    }

    /// Returns the words of a frame.
    #[inline]
    pub(super) fn frame(&self, frame: u64) -> &[AtomicU64] {
        let first = to_usize(frame << self.unit_bits);
        self.frames.words().get(first..first + to_usize(self.chunk_units())).unwrap_or(&[])
    }

    /// Returns the words of a chunk; `None` if it is not in memory.
    pub(super) fn words(&self, chunk: u64) -> Option<&[AtomicU64]> {
        frame_in(self.state(chunk)).map(|frame| self.frame(frame))
    }

    /// Initialises the counts of an unused chunk id. `frozen` and `used` are in units.
    pub(super) fn begin(&self, chunk: u64, frozen: u64, used: u64, sealed: bool) {
        self.row(chunk, 1).store(frozen, Ordering::Relaxed);
        self.row(chunk, 2).store(0, Ordering::Relaxed);
        self.row(chunk, 3).store(used | if sealed { SEALED } else { 0 }, Ordering::Relaxed);
    }

    /// Makes `frame`, which is filled, the frame of a chunk.
    pub(super) fn attach(&self, chunk: u64, frame: u64) {
        let state = self.state_word(chunk);
        let generation = state.load(Ordering::Relaxed) & !UNITS_MASK;
        state.store(generation | (frame + 1), Ordering::Release);
    }

    /// Removes a chunk from memory and increments its generation, which running reads detect.
    /// Returns its frame, if it had one; the caller owns it.
    pub(super) fn detach(&self, chunk: u64) -> Option<u64> {
        let state = self.state_word(chunk);
        let before = state.load(Ordering::Relaxed);
        mutant!(HashlogRecyclesUnderReaders => return frame_in(before));
        let step = mutant!(RecycleKeepsGeneration: 0, else GENERATION);
        state.store((before & !UNITS_MASK).wrapping_add(step), Ordering::Relaxed);
        // Readers see the change before any later store to the frame. Pairs with the fence in
        // `read_at_state`.
        fence(Ordering::Release);
        frame_in(before)
    }

    pub(super) fn frozen(&self, chunk: u64) -> u64 {
        self.row(chunk, 1).load(Ordering::Acquire)
    }

    pub(super) fn freeze(&self, chunk: u64, units: u64) {
        self.row(chunk, 1).store(units, Ordering::Release);
    }

    pub(super) fn add_dead(&self, chunk: u64, units: u64) {
        self.row(chunk, 2).fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn add_tombstone(&self, chunk: u64, units: u64) {
        self.row(chunk, 2).fetch_add(units << 32, Ordering::Relaxed);
    }

    /// Returns the units of dead entries, and of tombstones.
    pub(super) fn waste(&self, chunk: u64) -> (u64, u64) {
        let word = self.row(chunk, 2).load(Ordering::Relaxed);
        (word & UNITS_MASK, word >> 32)
    }

    /// Returns the units in use, and whether the chunk is sealed.
    pub(super) fn used(&self, chunk: u64) -> (u64, bool) {
        let word = self.row(chunk, 3).load(Ordering::Acquire);
        (word & UNITS_MASK, word & SEALED != 0)
    }

    /// Reserves `units` at the end of a chunk. Returns their position, or `None` if the chunk is
    /// full or sealed.
    pub(super) fn reserve(&self, chunk: u64, units: u64) -> Option<u64> {
        let capacity = self.chunk_units();
        let add =
            |word: u64| (word & SEALED == 0 && word + units <= capacity).then_some(word + units);
        self.row(chunk, 3).fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()
    }

    /// Undoes the last reservation. The chunk must have a single writer.
    pub(super) fn unreserve(&self, chunk: u64, units: u64) {
        self.row(chunk, 3).fetch_sub(units, Ordering::AcqRel);
    }

    /// Prevents further appends. Returns the units in use.
    pub(super) fn seal(&self, chunk: u64) -> u64 {
        self.row(chunk, 3).fetch_or(SEALED, Ordering::AcqRel) & UNITS_MASK
    }

    /// Ends the current extent of a chunk. The next append goes behind the head of a new extent,
    /// which starts at a multiple of `align` units; without room for one the chunk is sealed.
    /// Returns the end of the extent, and whether the chunk is sealed.
    pub(super) fn end_extent(&self, chunk: u64, align: u64) -> (u64, bool) {
        let capacity = self.chunk_units();
        let next = |word: u64| {
            let start = (word & UNITS_MASK).next_multiple_of(align);
            let end = start + EXTENT_HEAD_UNITS;
            // An extent with less room than an alignment is not worth its head.
            if start + align > capacity { word & UNITS_MASK | SEALED } else { end }
        };
        let before = self
            .row(chunk, 3)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & SEALED == 0).then(|| next(word))
            })
            .unwrap_or_else(|word| word);
        let sealed = before & SEALED != 0 || next(before) & SEALED != 0;
        (before & UNITS_MASK, sealed)
    }

    /// Reads the entry at `address` if it is in memory and has this `key`. Calls `take` with the
    /// head and the words of the entry. `take` may get inconsistent bytes; its result is discarded
    /// then.
    #[inline]
    pub(super) fn read<T>(
        &self,
        address: u64,
        key: &[u8],
        take: impl FnOnce(&EntryHead, &[AtomicU64]) -> T,
    ) -> ArenaRead<T> {
        self.read_at_state(address, self.state_of(address), key, take)
    }

    /// As [`Self::read`], with word 0 of the chunk at the time when the index held the address.
    #[inline]
    pub(super) fn read_at_state<T>(
        &self,
        address: u64,
        state: u64,
        key: &[u8],
        take: impl FnOnce(&EntryHead, &[AtomicU64]) -> T,
    ) -> ArenaRead<T> {
        let (chunk, unit) = self.split(address);
        let Some(frame) = frame_in(state) else { return ArenaRead::Cold(state) };
        let words = self.frame(frame).get(to_usize(unit)..).unwrap_or(&[]);
        // The head decides the position of the value. Load the next lines before it arrives.
        for line in [8, 16] {
            if let Some(word) = words.get(line) {
                prefetch(word);
            }
        }
        let Some((head, first)) = load_head(words) else { return ArenaRead::Changed };
        let taken = words.get(..head.units()).and_then(|words| {
            let matches = head.key_bytes == key.len()
                && equals(words.get(head.key_at() / UNIT_BYTES..)?, key);
            Some(matches.then(|| take(&head, words)))
        });
        fence(Ordering::Acquire);
        let unchanged = words.first().is_some_and(|word| word.load(Ordering::Relaxed) == first)
            && mutant!(ReadForgetsRecycling: true, else self.state(chunk) == state);
        match taken {
            Some(Some(taken)) if unchanged => ArenaRead::Found(taken),
            Some(None) if unchanged => ArenaRead::OtherKey,
            _ => ArenaRead::Changed,
        }
    }

    /// Returns word 0 of the chunk of an address.
    #[inline]
    pub(super) fn state_of(&self, address: u64) -> u64 {
        self.state(self.split(address).0)
    }

    /// Copies head, key and value of the entry at `address`. Returns `Changed` if word 0 of its
    /// chunk is no longer `state`, and `Cold` if `state` has no frame.
    pub(super) fn copy(
        &self,
        address: u64,
        state: u64,
    ) -> ArenaRead<(EntryHead, Vec<u8>, Vec<u8>)> {
        let (chunk, unit) = self.split(address);
        let state = mutant!(ScanForgetsReuse: self.state(chunk), else state);
        let Some(frame) = frame_in(state) else { return ArenaRead::Cold(state) };
        let words = self.frame(frame).get(to_usize(unit)..).unwrap_or(&[]);
        let Some((head, first)) = load_head(words) else { return ArenaRead::Changed };
        if head.units() > words.len() {
            return ArenaRead::Changed;
        }
        let (key, value) = copy_entry(&head, words);
        fence(Ordering::Acquire);
        let unchanged = words.first().is_some_and(|word| word.load(Ordering::Relaxed) == first)
            && self.state(chunk) == state;
        if unchanged { ArenaRead::Found((head, key, value)) } else { ArenaRead::Changed }
    }

    /// Prefetches the first lines of the entry at `address`. Returns word 0 of its chunk.
    #[inline]
    pub(super) fn prefetch(&self, address: u64) -> u64 {
        let (chunk, unit) = self.split(address);
        let state = self.state(chunk);
        if let Some(frame) = frame_in(state) {
            let first = to_usize((frame << self.unit_bits) + unit);
            for line in [0, 8, 16] {
                self.frames.prefetch(first + line);
            }
        }
        state
    }
}

#[inline]
fn frame_in(state: u64) -> Option<u64> {
    (state & UNITS_MASK).checked_sub(1)
}

/// Returns the head at the start of `words`, and its first word; `None` during an update in place.
#[inline]
pub(super) fn load_head(words: &[AtomicU64]) -> Option<(EntryHead, u64)> {
    let [first, second, rest @ ..] = words else { return None };
    let first = first.load(Ordering::Acquire);
    if first & 1 != 0 {
        return None;
    }
    let third = || rest.first().map_or(0, |word| word.load(Ordering::Relaxed));
    EntryHead::decode(first, second.load(Ordering::Relaxed), third).map(|head| (head, first))
}

/// Copies the value of an entry to `out`.
#[inline]
pub(super) fn copy_value(head: &EntryHead, words: &[AtomicU64], out: &mut [u8]) {
    copy_out(words, head.value_at(), out);
}

/// Returns copies of the key and the value of an entry.
pub(super) fn copy_entry(head: &EntryHead, words: &[AtomicU64]) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut value) = (vec![0; head.key_bytes], vec![0; head.value_bytes]);
    copy_out(words, head.key_at(), &mut key);
    copy_out(words, head.value_at(), &mut value);
    (key, value)
}
