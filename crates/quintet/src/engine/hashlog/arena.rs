//! Chunks in memory: the counts of each chunk, and reads of entries without locks.
//!
//! An address is a chunk's id and a position in units of 8 bytes. [`crate::record_store::segments`]
//! has the addresses, the frames and the protocol of readers. A chunk's row has these words more:
//!
//! | word | bits | meaning |
//! |---|---|---|
//! | 2 | 0 to 31 | dead units |
//! | 2 | 32 to 63 | units of tombstones |
//!
//! A get reads the entry's cache lines and writes nothing, while other threads evict, recycle and
//! update frames. It keeps what it read only if the entry's first word and the state of the chunk
//! are the same afterwards.

use std::{io, sync::Arc};

use super::entry::{EntryHead, UNIT_BYTES};
use crate::{
    engine::hashlog::index::ADDRESS_END,
    io::prefetch,
    record_store::{
        frames::{HUGE_PAGE_BYTES, SPARE_FRAMES},
        segments::{LOW, RecordSegments, RecordWords, SEALED, SegmentKind},
    },
    util::{
        budget::Budget,
        codec::to_u64,
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Ordering, fence},
        words::{copy_out, equals},
    },
};

/// Units of an extent's head. Appends start behind it.
pub(super) const EXTENT_HEAD_UNITS: u64 = 16;
/// Number of frames populated ahead of fast writers: more than they fill during a flush.
const POPULATED_FRAMES: usize = 8;

/// The chunks of a table in memory. See the module documentation.
pub(super) type ChunkArena = RecordSegments<ChunkKind>;

/// What a table has for its chunks beside their segments.
#[derive(Debug, Default)]
pub(super) struct ChunkKind {
    /// Writers fill chunks fast: frames are to be populated ahead.
    is_filling: AtomicBool,
}

impl SegmentKind for ChunkKind {
    const UNIT_WORDS: u64 = to_u64(UNIT_BYTES / 8);
    const ROW_WORDS: u64 = 4;
    const COUNT_MAX: u64 = 1 << 20;
    // Slots hold only addresses of chunks.
    const HAS_STALE_ADDRESSES: bool = false;
}

/// The result of a read at an address.
#[derive(Debug)]
pub(super) enum ArenaRead<T> {
    /// The entry. A reader without a lock has it only if [`ChunkArena::is_current`] says so after
    /// its last read; [`ChunkArena::copy`] has asked already.
    Found(T),
    /// The entry at the address is another key's.
    OtherKey,
    /// The memory changed during the read: repeat the lookup.
    Changed,
    /// The chunk is not in memory. Holds its word 0, to detect a later change.
    Cold(u64),
}

/// An entry in memory, as a reader found it. [`ChunkArena::is_current`] says whether it is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryWords<'a> {
    pub(super) head: EntryHead,
    /// The words of the whole entry.
    pub(super) words: &'a [AtomicU64],
    /// Its first word, with the version.
    first: u64,
    record: RecordWords<'a>,
}

impl EntryWords<'_> {
    /// Returns whether the first word is what it was.
    #[inline]
    fn is_same(&self) -> bool {
        self.words.first().is_some_and(|word| word.load(Ordering::Relaxed) == self.first)
    }
}

impl ChunkArena {
    /// Reserves address space for chunks of `chunk_bytes`. Fails if the system grants none.
    pub(super) fn new(chunk_bytes: u64, budget: Arc<Budget>) -> io::Result<Self> {
        Self::reserve_space(chunk_bytes, ADDRESS_END, budget, ChunkKind::default())
    }

    /// Returns a free frame, reserved from the budget. With `beyond_limit` it may exceed the limit.
    /// `None`: the budget or the address space has none.
    pub(super) fn reserve_frame(&self, beyond_limit: bool) -> Option<u64> {
        self.frames.reserve(beyond_limit)
    }

    /// Releases a frame. A few stay ready while the budget is kept.
    pub(super) fn release_frame(&self, frame: u64) {
        let budget = self.frames.budget();
        self.frames.release(frame, budget.used() <= budget.limit());
    }

    /// Records whether writers fill chunks so fast that frames are to be populated ahead.
    pub(super) fn set_filling(&self, fast: bool) {
        let fast = fast && self.segment_bytes() >= HUGE_PAGE_BYTES;
        self.kind.is_filling.store(fast, Ordering::Relaxed);
    }

    /// Returns whether writers fill chunks fast.
    pub(super) fn is_filling(&self) -> bool {
        self.kind.is_filling.load(Ordering::Relaxed)
    }

    /// Returns whether [`Self::populate_ahead`] has work, if there is memory for it.
    pub(super) fn wants_frames(&self) -> bool {
        self.kind.is_filling.load(Ordering::Relaxed)
            && self.frames.spare_count() < POPULATED_FRAMES / 2
    }

    /// Populates one frame ahead, so that the next writer does not wait for the system to clear its
    /// memory. Returns `false` if there is no need or no memory.
    pub(super) fn populate_ahead(&self) -> bool {
        if !self.is_filling() {
            return false;
        }
        let outcome = self.frames.populate_spare(POPULATED_FRAMES);
        if outcome.is_none() {
            self.kind.is_filling.store(false, Ordering::Relaxed);
        }
        outcome == Some(true)
    }

    /// Returns whether frames were populated ahead and not used.
    pub(super) fn has_populated(&self) -> bool {
        self.frames.spare_count() > SPARE_FRAMES
    }

    /// Returns the frames populated ahead to the system. Call it when the table is idle.
    pub(super) fn release_populated(&self) {
        self.kind.is_filling.store(false, Ordering::Relaxed);
        self.frames.discard_spares(SPARE_FRAMES);
    }

    /// Initialises the counts of an unused chunk id. `frozen` and `used` are in units.
    pub(super) fn begin(&self, chunk: u64, frozen: u64, used: u64, is_sealed: bool) {
        self.row(chunk, 1).store(frozen, Ordering::Relaxed);
        self.row(chunk, 2).store(0, Ordering::Relaxed);
        self.row(chunk, 3).store(used | if is_sealed { SEALED } else { 0 }, Ordering::Relaxed);
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
        (word & LOW, word >> 32)
    }

    /// Undoes the last reservation. The chunk must have a single writer.
    pub(super) fn unreserve(&self, chunk: u64, units: u64) {
        self.row(chunk, 3).fetch_sub(units, Ordering::AcqRel);
    }

    /// Ends the current extent of a chunk. The next append goes behind the head of a new extent,
    /// which starts at a multiple of `align` units; without room for one the chunk is sealed.
    /// Returns the end of the extent, and whether the chunk is sealed.
    pub(super) fn end_extent(&self, chunk: u64, align: u64) -> (u64, bool) {
        let capacity = self.segment_units();
        let next = |word: u64| {
            let start = (word & LOW).next_multiple_of(align);
            let end = start + EXTENT_HEAD_UNITS;
            // An extent with less room than an alignment is not worth its head.
            if start + align > capacity { word & LOW | SEALED } else { end }
        };
        let before = self
            .row(chunk, 3)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & SEALED == 0).then(|| next(word))
            })
            .unwrap_or_else(|word| word);
        let sealed = before & SEALED != 0 || next(before) & SEALED != 0;
        (before & LOW, sealed)
    }

    /// Returns the entry at `address` if it has this `key`. `state` is the state of its chunk when
    /// the index held the address. What is read from the entry counts only if [`Self::is_current`]
    /// returns `true` afterwards.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a call, and the entry in memory, cost 60 of 1,000 instructions"
    )]
    pub(super) fn entry_at(
        &self,
        address: u64,
        state: u64,
        key: &[u8],
    ) -> ArenaRead<EntryWords<'_>> {
        let Some(record) = self.words_at(address, state) else { return ArenaRead::Cold(state) };
        // The head decides the position of the value. Load the next lines before it arrives.
        for line in [8, 16] {
            if let Some(word) = record.words.get(line) {
                prefetch(word);
            }
        }
        let Some((head, first)) = load_head(record.words) else { return ArenaRead::Changed };
        let Some(words) = record.words.get(..head.units()) else { return ArenaRead::Changed };
        let entry = EntryWords { head, words, first, record };
        let key_words = words.get(head.key_at() / UNIT_BYTES..);
        let Some(has_key) =
            key_words.map(|words| head.key_bytes == key.len() && equals(words, key))
        else {
            return ArenaRead::Changed;
        };
        match has_key {
            true => ArenaRead::Found(entry),
            false if self.is_current(&entry) => ArenaRead::OtherKey,
            false => ArenaRead::Changed,
        }
    }

    /// Returns whether the entry was the same at all reads so far.
    #[inline]
    pub(super) fn is_current(&self, entry: &EntryWords<'_>) -> bool {
        mutant!(ReadChecksFrameFirst => return self.is_unchanged(&entry.record) && entry.is_same());
        // The frame last: another chunk's entry in it may have the same first word.
        fence(Ordering::Acquire);
        entry.is_same() && self.is_unchanged(&entry.record)
    }

    /// Copies head, key and value of the entry at `address`. Returns `Changed` if the state of its
    /// chunk is no longer `state`, and `Cold` if `state` has no frame.
    pub(super) fn copy(
        &self,
        address: u64,
        state: u64,
    ) -> ArenaRead<(EntryHead, Vec<u8>, Vec<u8>)> {
        let state = mutant!(ScanForgetsReuse: self.state_of(address), else state);
        let Some(record) = self.words_at(address, state) else { return ArenaRead::Cold(state) };
        let Some((head, first)) = load_head(record.words) else { return ArenaRead::Changed };
        let Some(words) = record.words.get(..head.units()) else { return ArenaRead::Changed };
        let (key, value) = copy_entry(&head, words);
        if self.is_current(&EntryWords { head, words, first, record }) {
            ArenaRead::Found((head, key, value))
        } else {
            ArenaRead::Changed
        }
    }
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
