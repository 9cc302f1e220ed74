//! Lookups: the addresses that may be those of a key, and whether they still are.
//!
//! ```text
//! let mut candidates = table.candidates(hash);
//! while let Some(address) = candidates.next() {
//!     // Read the entry. It has another key: continue. It changed: candidates.restart().
//!     // It is the key's, and candidates.is_current(): done.
//! }
//! ```
//!
//! Locks: none, and lookups store nothing.

use std::slice;

use super::{
    slot::{ADDRESS_MASK, is_link, node_of},
    slot_table::{GroupGuard, GroupLock, SlotTable, pause},
    tag::Tag,
};
use crate::util::{
    mutant::mutant,
    sync::{AtomicU64, Ordering, fence},
};

/// Maximum number of nodes that a reader follows. Chains are a few nodes long: beyond this, a
/// concurrent change has misled the reader.
const CHAIN_NODES_MAX: u32 = 1 << 12;

/// The addresses of one chain whose tag is that of a hash.
#[derive(Debug)]
pub struct ChainCandidates<'a> {
    table: &'a SlotTable,
    tag: Tag,
    /// Slots of the line or node that were not read yet.
    slots: slice::Iter<'a, AtomicU64>,
    /// The slot of the last candidate.
    slot: Option<&'a AtomicU64>,
    /// The last word that was read.
    word: u64,
    nodes: u32,
}

impl<'a> ChainCandidates<'a> {
    #[inline]
    pub(super) fn new(table: &'a SlotTable, (slots, tag): (&'a [AtomicU64], Tag)) -> Self {
        Self { table, tag, slots: slots.iter(), slot: None, word: 0, nodes: 0 }
    }
}

impl Iterator for ChainCandidates<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        // A copy: the compiler keeps it in registers.
        let tag = self.tag;
        loop {
            for slot in self.slots.by_ref() {
                let word = slot.load(Ordering::Acquire);
                self.word = word;
                if tag.matches(word) && word != 0 && !is_link(word) {
                    self.slot = Some(slot);
                    return Some(word & ADDRESS_MASK);
                }
            }
            // The last word may be a link.
            if !is_link(self.word) || self.nodes == CHAIN_NODES_MAX {
                return None;
            }
            self.nodes += 1;
            self.slots = self.table.node(node_of(self.word)).iter();
            self.word = 0;
        }
    }
}

/// The addresses that may be those of a hash's key, for a reader without a lock.
///
/// The end means that no address is the key's, because the group did not change meanwhile. If it
/// did, the iteration starts again.
#[derive(Debug)]
pub struct Candidates<'a> {
    chain: ChainCandidates<'a>,
    group: &'a GroupLock,
    /// The version of the group at the start.
    version: u64,
    hash: u64,
    attempts: u32,
}

impl SlotTable {
    /// Returns the addresses that may be those of the key with this hash.
    #[inline]
    pub fn candidates(&self, hash: u64) -> Candidates<'_> {
        let group = self.group(hash);
        let version = group.0.load(Ordering::Acquire);
        let chain = ChainCandidates::new(self, self.current_line(hash));
        Candidates { chain, group, version, hash, attempts: 0 }
    }
}

impl<'a> GroupGuard<'a> {
    /// Returns the addresses that may be those of the hash's key. They stay while the group is
    /// locked.
    pub fn candidates(&self) -> ChainCandidates<'a> {
        ChainCandidates::new(self.table, self.first())
    }
}

impl Candidates<'_> {
    /// Returns whether the last candidate is still in its slot. Otherwise it may have been another
    /// key's while the caller read its entry.
    #[inline]
    pub fn is_current(&self) -> bool {
        fence(Ordering::Acquire);
        mutant!(FindForgetsItsSlot => return true);
        self.chain.slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == self.chain.word)
    }

    /// Starts again from the first candidate, after an entry changed while the caller read it.
    #[cold]
    pub fn restart(&mut self) {
        pause(&mut self.attempts);
        let attempts = self.attempts;
        *self = Self { attempts, ..self.chain.table.candidates(self.hash) };
    }
}

impl Iterator for Candidates<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        loop {
            let next = self.chain.next();
            if next.is_some() {
                return next;
            }
            fence(Ordering::Acquire);
            let is_whole = !is_link(self.chain.word) && self.version & 1 == 0;
            if is_whole && self.group.0.load(Ordering::Relaxed) == self.version {
                return None;
            }
            self.restart();
        }
    }
}
