//! Segments: runs of appended records, their addresses, and reads without locks.
//!
//! An address is a segment's number and a position in units. One word a segment, its *state*, says
//! in which frame of memory it is. A row of words says how full it is. Gets read states and appends
//! change rows, so these are on different cache lines.
//!
//! | word | bits | meaning |
//! |---|---|---|
//! | state | 0 to 31 | frame number + 1; 0: not in memory |
//! | state | 32 to 63 | generation: changes whenever the segment leaves its frame or its number is used anew |
//! | row 0 | | unused |
//! | row 1 | | units below this are frozen: no record there changes any more |
//! | row 2 | | of the engine |
//! | row 3 | 0 to 31 | units in use |
//! | row 3 | 63 | sealed: no more appends |
//! | row 4 and up | | of the engine |
//!
//! Invariants: a state changes before its frame is written for another segment. A reader that finds
//! the state unchanged after its reads has read this segment. Frames stay mapped until the table is
//! closed, so a stale read returns wrong bytes but never faults.
//!
//! Threads: any thread may read and reserve. Only the thread that starts, evicts or drops a segment
//! calls [`RecordSegments::attach`] and [`RecordSegments::detach`] for it.

use std::{fmt::Debug, io, sync::Arc};

use crate::{
    io::Region,
    record_store::frames::Frames,
    util::{
        budget::Budget,
        codec::to_usize,
        mutant::mutant,
        sync::{AtomicU64, Ordering, fence},
    },
};

/// Bit of row 3.
pub(crate) const SEALED: u64 = 1 << 63;
/// Mask of the lower half of a word.
pub(crate) const LOW: u64 = 0xffff_ffff;
/// One generation, in a state.
const GENERATION: u64 = 1 << 32;

/// A kind of segments: sizes, and the state that an engine adds to them.
pub(crate) trait SegmentKind: Debug {
    /// Words of a unit. Records are aligned to it.
    const UNIT_WORDS: u64;
    /// Words of a row.
    const ROW_WORDS: u64;
    /// Maximum number of segments of a table.
    const COUNT_MAX: u64;
    /// Readers may have addresses of any segment. Such a read is of the last segment instead, which
    /// an engine with such readers does not use.
    const HAS_STALE_ADDRESSES: bool;
}

/// The segments of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct RecordSegments<K> {
    pub(crate) frames: Frames,
    states: Region,
    rows: Region,
    unit_bits: u32,
    count_max: u64,
    pub(crate) kind: K,
}

/// The words from an address on, read without a lock.
///
/// Other threads may change them at any time. What was read from them counts only if
/// [`RecordSegments::is_unchanged`] returns `true` afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordWords<'a> {
    pub(crate) words: &'a [AtomicU64],
    segment: u64,
    state: u64,
}

impl<K: SegmentKind> RecordSegments<K> {
    /// Reserves address space for segments of `segment_bytes` (a power of two), with addresses
    /// below `address_end`. Fails if the system grants none.
    pub(crate) fn reserve_space(
        segment_bytes: u64,
        address_end: u64,
        budget: Arc<Budget>,
        kind: K,
    ) -> io::Result<Self> {
        let unit_bits = (segment_bytes / (K::UNIT_WORDS * 8)).trailing_zeros();
        let count_max = (address_end >> unit_bits).min(K::COUNT_MAX);
        Ok(Self {
            frames: Frames::new(segment_bytes, budget)?,
            states: Region::reserve(count_max * 8)?,
            rows: Region::reserve(count_max * K::ROW_WORDS * 8)?,
            unit_bits,
            count_max,
            kind,
        })
    }

    /// Returns the number of units of a segment.
    #[inline]
    pub(crate) fn segment_units(&self) -> u64 {
        1 << self.unit_bits
    }

    /// Returns the size of a segment in bytes.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_units() * K::UNIT_WORDS * 8
    }

    /// Returns the maximum number of segments.
    pub(crate) fn count_max(&self) -> u64 {
        self.count_max
    }

    /// Returns the address of a unit.
    #[inline]
    pub(crate) fn address(&self, segment: u64, unit: u64) -> u64 {
        segment << self.unit_bits | unit
    }

    /// Returns the segment and the unit of an address.
    #[inline]
    pub(crate) fn split(&self, address: u64) -> (u64, u64) {
        (address >> self.unit_bits, address & (self.segment_units() - 1))
    }

    #[inline]
    fn index(&self, segment: u64) -> u64 {
        if K::HAS_STALE_ADDRESSES { segment.min(self.count_max - 1) } else { segment }
    }

    /// Returns a word of a segment's row.
    #[inline]
    pub(crate) fn row(&self, segment: u64, word: u64) -> &AtomicU64 {
        // Addresses are those of segments of this table, or `index` bounds them.
        &self.rows.words()[to_usize(self.index(segment) * K::ROW_WORDS + word)]
    }

    #[inline]
    fn state_word(&self, segment: u64) -> &AtomicU64 {
        // As in `row`.
        &self.states.words()[to_usize(self.index(segment))]
    }

    /// Returns the state of a segment.
    #[inline]
    pub(crate) fn state(&self, segment: u64) -> u64 {
        self.state_word(segment).load(Ordering::Acquire)
    }

    /// Returns the state of the segment of an address.
    #[inline]
    pub(crate) fn state_of(&self, address: u64) -> u64 {
        self.state(self.split(address).0)
    }

    /// Returns whether a segment is in memory.
    pub(crate) fn is_resident(&self, segment: u64) -> bool {
        self.state(segment) & LOW != 0
    }

    /// Returns the words of a frame.
    #[inline]
    pub(crate) fn frame(&self, frame: u64) -> &[AtomicU64] {
        let first = to_usize((frame << self.unit_bits) * K::UNIT_WORDS);
        let count = to_usize(self.segment_units() * K::UNIT_WORDS);
        self.frames.words().get(first..first + count).unwrap_or(&[])
    }

    /// Returns the words of a segment from `unit` on; `None` if it is not in memory.
    #[inline]
    pub(crate) fn words(&self, segment: u64, unit: u64) -> Option<&[AtomicU64]> {
        let frame = frame_in(self.state(segment))?;
        self.frame(frame).get(to_usize(unit * K::UNIT_WORDS)..)
    }

    /// Returns the words from `address` on, if its segment is in memory in this `state`.
    #[inline]
    pub(crate) fn words_at(&self, address: u64, state: u64) -> Option<RecordWords<'_>> {
        let (segment, unit) = self.split(address);
        let frame = frame_in(state)?;
        let words = self.frame(frame).get(to_usize(unit * K::UNIT_WORDS)..).unwrap_or(&[]);
        Some(RecordWords { words, segment, state })
    }

    /// Returns whether the words were those of their segment at all reads so far.
    #[inline]
    pub(crate) fn is_unchanged(&self, record: &RecordWords<'_>) -> bool {
        fence(Ordering::Acquire);
        mutant!(ReadForgetsRecycling => return true);
        self.state_word(record.segment).load(Ordering::Relaxed) == record.state
    }

    /// Prefetches the first cache lines of the record at `address`. Returns the state of its
    /// segment.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) -> u64 {
        let (segment, unit) = self.split(address);
        let state = self.state(segment);
        if let Some(frame) = frame_in(state) {
            let first = to_usize(((frame << self.unit_bits) + unit) * K::UNIT_WORDS);
            for line in [0, 8, 16] {
                self.frames.prefetch(first + line);
            }
        }
        state
    }

    /// Makes `frame`, which is filled, the frame of a segment.
    pub(crate) fn attach(&self, segment: u64, frame: u64) {
        let state = self.state_word(segment);
        let generation = state.load(Ordering::Relaxed) & !LOW;
        state.store(generation | (frame + 1), Ordering::Release);
    }

    /// Removes a segment from memory and increments its generation, which running reads detect.
    /// Returns its frame, if it had one; the caller owns it.
    pub(crate) fn detach(&self, segment: u64) -> Option<u64> {
        let state = self.state_word(segment);
        let before = state.load(Ordering::Relaxed);
        mutant!(SegmentKeepsStateOnDetach => return frame_in(before));
        let step = mutant!(RecycleKeepsGeneration: 0, else GENERATION);
        state.store((before & !LOW).wrapping_add(step), Ordering::Relaxed);
        // Readers see the change before any later store to the frame. Pairs with the fence in
        // `is_unchanged`.
        fence(Ordering::Release);
        frame_in(before)
    }

    /// Returns the bound below which units do not change any more.
    pub(crate) fn frozen(&self, segment: u64) -> u64 {
        self.row(segment, 1).load(Ordering::Acquire)
    }

    /// Freezes the units below `units`.
    pub(crate) fn freeze_below(&self, segment: u64, units: u64) {
        self.row(segment, 1).store(units, Ordering::Release);
    }

    /// Returns the units in use, and whether the segment is sealed.
    pub(crate) fn used(&self, segment: u64) -> (u64, bool) {
        let word = self.row(segment, 3).load(Ordering::Acquire);
        (word & LOW, word & SEALED != 0)
    }

    /// Reserves `units` at the end of a segment. Returns the first, or `None` if the segment is
    /// full or sealed.
    pub(crate) fn reserve(&self, segment: u64, units: u64) -> Option<u64> {
        let capacity = self.segment_units();
        let add =
            |word: u64| (word & SEALED == 0 && word + units <= capacity).then_some(word + units);
        self.row(segment, 3).fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()
    }

    /// Prevents further appends. Returns the units in use.
    pub(crate) fn seal(&self, segment: u64) -> u64 {
        self.row(segment, 3).fetch_or(SEALED, Ordering::AcqRel) & LOW
    }
}

/// A state without a frame: what is at an address is not read with it.
pub(crate) const NO_FRAME: u64 = 0;

/// Returns the frame in a state.
#[inline]
pub(crate) fn frame_in(state: u64) -> Option<u64> {
    (state & LOW).checked_sub(1)
}
