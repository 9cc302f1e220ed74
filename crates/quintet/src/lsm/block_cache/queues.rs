//! The state behind the lock of the block cache: cells, the two S3-FIFO queues and the ghosts.

use std::{collections::VecDeque, mem};

use super::allocator::CellAllocator;
use crate::util::codec::{to_u64, to_usize};

/// Minimum number of ghosts.
const GHOSTS_MIN: usize = 64;

/// What the lock of the cache protects.
#[derive(Debug)]
pub(super) struct CacheState {
    /// Chunks that are reserved in the budget.
    pub(super) chunks: usize,
    pub(super) cells: CellAllocator,
    pub(super) short: VecDeque<QueueEntry>,
    pub(super) long: VecDeque<QueueEntry>,
    /// Cells of the frames in the short queue.
    pub(super) short_cells: usize,
    /// Ghosts: identities of blocks evicted from the short queue, each in the slot of its hash.
    pub(super) ghosts: Vec<u64>,
    /// Number of fills so far.
    pub(super) fills: u64,
}

/// A queue entry: a frame that may be evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueEntry {
    pub(super) frame: u32,
    pub(super) cells: u32,
    /// The version of the fill that this entry is for.
    pub(super) version: u64,
}

/// Spreads the bits of an identity.
pub(super) fn mix(id: u64) -> u64 {
    let mixed = (id ^ id >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

impl CacheState {
    pub(super) fn new(chunk_cells: u32) -> Self {
        Self {
            chunks: 0,
            cells: CellAllocator::new(chunk_cells),
            short: VecDeque::new(),
            long: VecDeque::new(),
            short_cells: 0,
            ghosts: Vec::new(),
            fills: 0,
        }
    }

    pub(super) fn recount_short(&mut self) {
        self.short_cells = self.short.iter().map(|one| to_usize(u64::from(one.cells))).sum();
    }

    fn ghost_slot(&mut self, id: u64) -> Option<&mut u64> {
        let mask = to_u64(self.ghosts.len()).checked_sub(1)?;
        self.ghosts.get_mut(to_usize(mix(id) & mask))
    }

    /// Remembers a ghost. The table holds one to two times as many as there are frames.
    pub(super) fn add_ghost(&mut self, id: u64) {
        if self.cells.frames() >= self.ghosts.len() {
            let more = (self.cells.frames() + 1).next_power_of_two().max(GHOSTS_MIN);
            for id in mem::replace(&mut self.ghosts, vec![0; more]) {
                if let Some(slot) = self.ghost_slot(id) {
                    *slot = id;
                }
            }
        }
        if let Some(slot) = self.ghost_slot(id) {
            *slot = id;
        }
    }

    /// Returns whether a block is a ghost, and forgets it.
    pub(super) fn remove_ghost(&mut self, id: u64) -> bool {
        match self.ghost_slot(id) {
            Some(slot) if *slot == id => {
                *slot = 0;
                true
            }
            _ => false,
        }
    }
}
