//! Loading: a table is filled at once, by several threads, before anybody else uses it.
//!
//! Its lines are divided into shares of neighbours. Whoever loads a share alone may store to its
//! lines without locks, and they are in its caches as long as the share is small.

use super::{
    CENTIBYTES_PER_KEY, HUGE_ABOVE_BYTES, LINE_SLOTS, Shape, SlotTable,
    tag::{Tag, placing},
};
use crate::{
    codec::to_usize,
    sync::{Ordering, lock},
};

/// Loads a table, in shares. Threads may load different shares at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Loader<'a> {
    table: &'a SlotTable,
    shape: Shape,
    share_bits: u32,
}

impl SlotTable {
    /// Gives an empty table the size that `keys` keys will need, in huge pages where that is
    /// large.
    pub fn presize(&self, keys: u64) {
        let mut huge = lock(&self.growth);
        let mut shape = Shape(self.shape.load(Ordering::Relaxed));
        // Nodes take a tenth of the memory at the usual load.
        let lines = keys * CENTIBYTES_PER_KEY / 110 / (LINE_SLOTS * 8);
        if !self.is_empty() {
            return;
        }
        while shape.line_count() < lines
            && shape.can_grow()
            && shape.next_growth().1 < self.pairs_max
        {
            shape = shape.grown_towards(lines);
        }
        self.shape.store(shape.0, Ordering::Release);
        if self.bytes() > HUGE_ABOVE_BYTES {
            *huge = true;
            for lines in &self.lines {
                lines.advise_huge(0..self.pairs_max * LINE_SLOTS * 8);
            }
        }
    }

    /// Starts to load the table into at most `1 << share_bits` shares. Until the last entry is
    /// loaded and counted, nobody may use it in another way.
    pub fn loader(&self, share_bits: u32) -> Loader<'_> {
        let shape = Shape(self.shape.load(Ordering::Acquire));
        Loader { table: self, shape, share_bits: share_bits.min(shape.bits()) }
    }

    /// Counts entries that were loaded.
    pub fn add_len(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}

impl Loader<'_> {
    /// How many shares there are, as a power of two.
    pub fn share_bits(self) -> u32 {
        self.share_bits
    }

    /// Bits of the number of a group within its share.
    fn local_bits(self) -> u32 {
        self.shape.bits() - self.share_bits
    }

    /// The share of a hash.
    #[inline]
    pub fn share(self, hash: u64) -> usize {
        let group = placing(hash) & ((1 << self.shape.bits()) - 1);
        to_usize(group >> self.local_bits())
    }

    /// Lines of a share, at most.
    pub fn lines_max(self) -> usize {
        4 << self.local_bits()
    }

    /// The number of a hash's line within its share: from 0, below [`Self::lines_max`].
    #[inline]
    pub fn line(self, hash: u64) -> usize {
        let (array, pair, _) = self.shape.line(placing(hash));
        let second = to_usize(pair >> self.shape.bits() & 1);
        to_usize(pair & ((1 << self.local_bits()) - 1)) << 2 | second << 1 | array
    }

    /// Adds an entry; its key has none. `false` where there is no memory left for it.
    #[must_use]
    #[inline]
    pub fn load(self, hash: u64, address: u64) -> bool {
        let (array, pair, known) = self.shape.line(placing(hash));
        self.table.add(self.table.line_at(array, pair), Tag::new(hash, known).slot(address))
    }
}
