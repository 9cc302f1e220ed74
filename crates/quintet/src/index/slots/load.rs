//! Loading: a table is filled at once, by several threads, before anybody else uses it.
//!
//! Its lines are divided into shares of neighbours. Whoever loads a share alone may store to its
//! lines without locks, and they are in its caches as long as the share is small.

use std::collections::BTreeMap;

use super::{
    ADDRESS_MASK, CENTIBYTES_PER_KEY, HUGE_ABOVE_BYTES, LINE_SLOTS, Shape, SlotTable, TAG_SHIFT,
    is_link, node_of,
    tag::{Tag, placing},
};
use crate::{
    codec::{low_u32, to_usize},
    sync::{AtomicU64, Ordering, lock},
};

/// Hashes are told apart by their low 56 bits: 32 of them by line and tag, the rest by what is kept
/// beside the line while its share is loaded.
const REST_MASK: u64 = (1 << 24) - 1;
/// What is kept is not 0.
const REST_KNOWN: u32 = 1 << 24;

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
            self.advise_huge();
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

impl<'a> Loader<'a> {
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

    /// The number of a line within its share: from 0, below [`Self::lines_max`].
    #[inline]
    pub(super) fn local_line(self, array: usize, pair: u64) -> usize {
        let second = to_usize(pair >> self.shape.bits() & 1);
        to_usize(pair & ((1 << self.local_bits()) - 1)) << 2 | second << 1 | array
    }

    /// Starts to load one share, the newest entries first.
    pub fn share_loader(self) -> ShareLoader<'a> {
        let slots = self.lines_max() * to_usize(LINE_SLOTS);
        ShareLoader { loader: self, rests: vec![0; slots], beyond: BTreeMap::new() }
    }

    /// Adds an entry; its key has none. `false` where there is no memory left for it.
    #[must_use]
    #[inline]
    pub fn load(self, hash: u64, address: u64) -> bool {
        let (array, pair, known) = self.shape.line(placing(hash));
        self.table.add(self.table.line_at(array, pair), Tag::new(hash, known).slot(address))
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the table.
    New,
    /// Another of its hash is.
    Older,
    /// There is no memory left for it.
    Full,
}

/// Loads one share of a table: of the entries of one hash (of which the low 56 bits count), the
/// first that it is given.
#[derive(Debug)]
pub struct ShareLoader<'a> {
    loader: Loader<'a>,
    /// The rest of each slot's hash; 0 where it was loaded in an earlier pass, of other hashes.
    rests: Vec<u32>,
    /// The same for the entries that are in nodes, by address.
    beyond: BTreeMap<u64, u32>,
}

impl ShareLoader<'_> {
    /// Adds an entry if there is none of its hash.
    #[inline]
    pub fn add(&mut self, hash: u64, address: u64) -> Added {
        let (array, pair, known) = self.loader.shape.line(placing(hash));
        let (new, rest) = (Tag::new(hash, known).slot(address), rest_of(hash));
        let line = self.loader.table.line_at(array, pair);
        let first = self.loader.local_line(array, pair) * to_usize(LINE_SLOTS);
        for (slot, known_rest) in line.iter().zip(self.rests.get_mut(first..).unwrap_or(&mut [])) {
            let word = slot.load(Ordering::Relaxed);
            if word == 0 {
                slot.store(new, Ordering::Release);
                *known_rest = rest;
                return Added::New;
            }
            if has_tag_of(word, new) && *known_rest == rest && !is_link(word) {
                return Added::Older;
            }
        }
        self.add_beyond(line, first, (new, rest))
    }

    /// Whether there is an entry of the hash.
    pub fn has(&self, hash: u64) -> bool {
        let (array, pair, known) = self.loader.shape.line(placing(hash));
        let (new, rest) = (Tag::new(hash, known).slot(0), rest_of(hash));
        let line = self.loader.table.line_at(array, pair);
        let first = self.loader.local_line(array, pair) * to_usize(LINE_SLOTS);
        let rests = self.rests.get(first..).unwrap_or(&[]);
        let in_line = line.iter().zip(rests).any(|(slot, known_rest)| {
            let word = slot.load(Ordering::Relaxed);
            word != 0 && has_tag_of(word, new) && *known_rest == rest && !is_link(word)
        });
        in_line || self.has_beyond(line, (new, rest))
    }

    /// Whether the nodes of a line have an entry of the hash.
    fn has_beyond(&self, line: &[AtomicU64], (new, rest): (u64, u32)) -> bool {
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
                    && self.beyond.get(&(word & ADDRESS_MASK)) == Some(&rest)
            };
            if slots.iter().any(is_same) {
                return true;
            }
        }
    }

    /// The line is full.
    fn add_beyond(&mut self, line: &[AtomicU64], first: usize, (new, rest): (u64, u32)) -> Added {
        if self.has_beyond(line, (new, rest)) {
            return Added::Older;
        }
        let last = line.last().map_or(0, |last| last.load(Ordering::Relaxed));
        if !self.loader.table.add(line, new) {
            return Added::Full;
        }
        if !is_link(last) {
            // It has moved to the node, where the link is now.
            let moved = self.rests.get(first + line.len() - 1).copied().unwrap_or(0);
            self.beyond.insert(last & ADDRESS_MASK, moved);
        }
        self.beyond.insert(new & ADDRESS_MASK, rest);
        Added::New
    }
}

#[inline]
const fn rest_of(hash: u64) -> u32 {
    low_u32(hash >> 32 & REST_MASK) | REST_KNOWN
}

#[inline]
const fn has_tag_of(word: u64, other: u64) -> bool {
    (word ^ other) >> TAG_SHIFT == 0
}
