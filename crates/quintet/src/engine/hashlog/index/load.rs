//! Bulk load: several threads fill an empty table before it is used.
//!
//! The lines are divided into shares of neighbours. The thread that loads a share stores to its
//! lines without locks. A small share stays in the caches of that thread.

use std::collections::BTreeMap;

use super::{
    shape::IndexShape,
    slot::{ADDRESS_MASK, LINE_SLOTS, SLOTS, TAG_SHIFT, is_link, node_of},
    slot_table::{CENTIBYTES_PER_KEY, HUGE_ABOVE_BYTES, SlotTable},
    tag::{Tag, placing},
};
use crate::util::{
    codec::{low_u32, to_u64, to_usize},
    sync::{AtomicU64, Ordering, lock},
};

/// Hash bits beside those in line and tag. Loading distinguishes hashes by their low 56 bits: 32 in
/// line and tag, and these in a word beside each slot while its share is loaded.
const REMAINDER_MASK: u64 = (1 << 24) - 1;
/// Set in that word if the slot is filled.
const REMAINDER_FILLED: u32 = 1 << 24;
/// That word for a slot that an earlier pass filled.
const REMAINDER_UNKNOWN: u32 = 1 << 25;

/// Loads a table in shares. Threads may load different shares in parallel.
#[derive(Clone, Copy, Debug)]
pub struct IndexLoader<'a> {
    table: &'a SlotTable,
    shape: IndexShape,
    share_bits: u32,
}

impl SlotTable {
    /// Grows an empty table to the size that `keys` keys need. A large one gets huge pages.
    pub fn presize(&self, keys: u64) {
        let mut huge = lock(&self.growth);
        let mut shape = IndexShape(self.shape.load(Ordering::Relaxed));
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
            self.advise_huge();
        }
    }

    /// Starts a load in at most `1 << share_bits` shares. The table must not be used otherwise
    /// until the last entry is loaded and counted.
    pub fn loader(&self, share_bits: u32) -> IndexLoader<'_> {
        let shape = IndexShape(self.shape.load(Ordering::Acquire));
        IndexLoader { table: self, shape, share_bits: share_bits.min(shape.bits()) }
    }

    /// Adds loaded entries to the count.
    pub fn add_len(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}

impl<'a> IndexLoader<'a> {
    /// Returns the number of shares, as a power of two.
    pub fn share_bits(self) -> u32 {
        self.share_bits
    }

    /// Returns the number of bits of a group's number within its share.
    fn local_bits(self) -> u32 {
        self.shape.bits() - self.share_bits
    }

    /// Returns the share of a hash.
    #[inline]
    pub fn share(self, hash: u64) -> usize {
        let group = placing(hash) & ((1 << self.shape.bits()) - 1);
        to_usize(group >> self.local_bits())
    }

    /// Prefetches the line of `hash`.
    #[inline]
    pub fn prefetch(self, hash: u64) {
        let (array, pair, _) = self.shape.line(placing(hash));
        self.table.lines[array].prefetch(to_usize(pair * LINE_SLOTS));
    }

    /// Returns the maximum number of lines of a share.
    pub fn lines_max(self) -> usize {
        4 << self.local_bits()
    }

    /// Returns the number of a line within its share, below [`Self::lines_max`].
    #[inline]
    pub(super) fn local_line(self, array: usize, pair: u64) -> usize {
        let second = to_usize(pair >> self.shape.bits() & 1);
        to_usize(pair & ((1 << self.local_bits()) - 1)) << 2 | second << 1 | array
    }

    /// Starts the load of one share. The newest entries must come first. `is_first`: nothing was
    /// loaded into it before. `memory` is empty, or from [`ShareLoader::into_memory`] of another
    /// share.
    pub fn share_loader(
        self,
        share: usize,
        is_first: bool,
        mut memory: Vec<[u32; SLOTS]>,
    ) -> ShareLoader<'a> {
        memory.clear();
        memory.resize(self.lines_max(), [0; SLOTS]);
        let mut loader =
            ShareLoader { loader: self, remainders: memory, overflow: BTreeMap::new() };
        if !is_first {
            loader.mark_filled(share);
        }
        loader
    }

    /// Adds an entry. Its key must have none. Returns `false` if there is no free node.
    #[must_use]
    #[inline]
    pub fn load(self, hash: u64, address: u64) -> bool {
        let (array, pair, known) = self.shape.line(placing(hash));
        self.table.add(self.table.line_at(array, pair), Tag::new(hash, known).slot(address))
    }
}

/// The outcome of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    /// The entry was added.
    New,
    /// The table has a newer entry of its hash.
    Older,
    /// There is no free node.
    Full,
}

/// Loads one share of a table. It keeps the first of the entries of one hash; the low 56 bits
/// count.
#[derive(Debug)]
pub struct ShareLoader<'a> {
    loader: IndexLoader<'a>,
    /// The remaining hash bits of each slot of each line; 0 for a free slot.
    remainders: Vec<[u32; SLOTS]>,
    /// The remaining hash bits of the entries in nodes, by address.
    overflow: BTreeMap<u64, u32>,
}

impl ShareLoader<'_> {
    /// Marks the slots that an earlier pass filled.
    fn mark_filled(&mut self, share: usize) {
        let IndexLoader { table, shape, .. } = self.loader;
        let first = to_u64(share) << self.loader.local_bits();
        for (index, remainders) in self.remainders.iter_mut().enumerate() {
            let pair = (first + to_u64(index >> 2)) | (to_u64(index >> 1 & 1) << shape.bits());
            let words = table.line_at(index & 1, pair).iter().map(|s| s.load(Ordering::Relaxed));
            for (rest, _) in remainders.iter_mut().zip(words).filter(|(_, word)| *word != 0) {
                *rest = REMAINDER_UNKNOWN;
            }
        }
    }

    /// Returns the buffer for the load of another share.
    pub fn into_memory(self) -> Vec<[u32; SLOTS]> {
        self.remainders
    }

    /// Adds an entry unless there is one of its hash.
    #[inline]
    pub fn add(&mut self, hash: u64, address: u64) -> AddOutcome {
        let (array, pair, known) = self.loader.shape.line(placing(hash));
        let (new, rest) = (Tag::new(hash, known).slot(address), remainder_of(hash));
        let line = self.loader.table.line_at(array, pair);
        let number = self.loader.local_line(array, pair);
        let Some(remainders) = self.remainders.get_mut(number) else { return AddOutcome::Full };
        // No branch a slot: the number of filled slots differs from line to line.
        let is_known =
            remainders.iter().map(|known| usize::from(*known == rest)).sum::<usize>() > 0;
        let filled = remainders.iter().map(|known| usize::from(*known != 0)).sum::<usize>();
        if !is_known
            && let (Some(slot), Some(place)) = (line.get(filled), remainders.get_mut(filled))
        {
            slot.store(new, Ordering::Release);
            *place = rest;
            return AddOutcome::New;
        }
        if is_known && has_in_line(line, remainders, (new, rest)) {
            return AddOutcome::Older;
        }
        self.add_to_chain(line, number, (new, rest))
    }

    /// As [`Self::add`], for a line that is full or has an entry with the same remaining hash bits.
    fn add_to_chain(
        &mut self,
        line: &[AtomicU64],
        number: usize,
        (new, rest): (u64, u32),
    ) -> AddOutcome {
        if let Some(remainders) = self.remainders.get_mut(number)
            && let Some(filled) = remainders.iter().position(|known| *known == 0)
            && let Some(slot) = line.get(filled)
        {
            slot.store(new, Ordering::Release);
            remainders[filled] = rest;
            return AddOutcome::New;
        }
        self.add_overflow(line, number, (new, rest))
    }

    /// Returns whether there is an entry of the hash.
    pub fn has(&self, hash: u64) -> bool {
        let (array, pair, known) = self.loader.shape.line(placing(hash));
        let (new, rest) = (Tag::new(hash, known).slot(0), remainder_of(hash));
        let line = self.loader.table.line_at(array, pair);
        let remainders = self.remainders.get(self.loader.local_line(array, pair));
        remainders.is_some_and(|remainders| has_in_line(line, remainders, (new, rest)))
            || self.overflow_has(line, (new, rest))
    }

    /// Returns whether the nodes of a line have an entry of the hash.
    fn overflow_has(&self, line: &[AtomicU64], (new, rest): (u64, u32)) -> bool {
        let mut slots = line;
        loop {
            let last = slots.last().map_or(0, |last| last.load(Ordering::Relaxed));
            if !is_link(last) {
                return false;
            }
            slots = self.loader.table.node(node_of(last));
            let is_same = |slot: &AtomicU64| {
                let word = slot.load(Ordering::Relaxed);
                word != 0
                    && has_tag_of(word, new)
                    && !is_link(word)
                    && self.overflow.get(&(word & ADDRESS_MASK)) == Some(&rest)
            };
            if slots.iter().any(is_same) {
                return true;
            }
        }
    }

    /// Adds an entry to the nodes of a full line, unless they have one of its hash.
    fn add_overflow(
        &mut self,
        line: &[AtomicU64],
        number: usize,
        (new, rest): (u64, u32),
    ) -> AddOutcome {
        if self.overflow_has(line, (new, rest)) {
            return AddOutcome::Older;
        }
        let last = line.last().map_or(0, |last| last.load(Ordering::Relaxed));
        if !self.loader.table.add(line, new) {
            return AddOutcome::Full;
        }
        if !is_link(last) {
            // The last entry moved to the node: the link took its slot.
            let moved = self
                .remainders
                .get(number)
                .and_then(|remainders| remainders.last())
                .copied()
                .unwrap_or(0);
            self.overflow.insert(last & ADDRESS_MASK, moved);
        }
        self.overflow.insert(new & ADDRESS_MASK, rest);
        AddOutcome::New
    }
}

/// Returns whether a line has an entry of the hash.
fn has_in_line(line: &[AtomicU64], remainders: &[u32], (new, rest): (u64, u32)) -> bool {
    line.iter().zip(remainders).any(|(slot, known)| {
        let word = slot.load(Ordering::Relaxed);
        *known == rest && has_tag_of(word, new) && !is_link(word)
    })
}

#[inline]
const fn remainder_of(hash: u64) -> u32 {
    low_u32(hash >> 32 & REMAINDER_MASK) | REMAINDER_FILLED
}

#[inline]
const fn has_tag_of(word: u64, other: u64) -> bool {
    (word ^ other) >> TAG_SHIFT == 0
}
