//! Handles of cached blocks: for each block of a file, a word that stores the frame it was put
//! into.
//!
//! The owner of a file holds its handles. A handle is a hint: the frame's head says which block is
//! there.
//!
//! Threads and invariants: those of [`super`].

use std::sync::Arc;

use super::BlockCache;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::{AtomicU32, Ordering},
};

/// The frame that a block was put into: its first cell plus one, or 0.
#[derive(Debug)]
pub(crate) struct BlockHandle(pub(super) AtomicU32);

impl Default for BlockHandle {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A block's handle, and the identity that its frame must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRef<'a> {
    pub(super) handle: &'a BlockHandle,
    pub(super) id: u64,
}

impl BlockRef<'_> {
    /// Prefetches the handle.
    #[inline]
    pub(crate) fn prefetch(&self) {
        crate::io::prefetch(&self.handle.0);
    }

    /// Returns the first cell of the frame that the handle refers to.
    #[inline]
    pub(super) fn frame(&self) -> Option<u32> {
        self.handle.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// The admission class of a block that has just been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CacheAdmission {
    /// Cached only in free memory.
    IfFree,
    /// Cached like a block that was read.
    Normal,
    /// Cached, and counted as used: it replaces a block that was used.
    Hot,
}

/// The handles of all blocks of a file. Their memory is reserved in the budget. Drop frees the
/// frames of the blocks.
#[derive(Debug)]
pub(crate) struct BlockHandles {
    all: Vec<BlockHandle>,
    /// The identity of block 0. Those of other blocks follow.
    first: u64,
    /// Bytes reserved in the budget.
    charged: u64,
    blocks: Arc<BlockCache>,
}

impl BlockHandles {
    /// Creates handles of no blocks.
    pub(crate) fn new(blocks: &Arc<BlockCache>, first: u64) -> Self {
        Self { all: Vec::new(), first, charged: 0, blocks: Arc::clone(blocks) }
    }

    /// Extends the handles to `count` blocks.
    pub(crate) fn with_count(mut self, count: u32) -> Self {
        self.all.resize_with(to_usize(u64::from(count)), BlockHandle::default);
        self.all.shrink_to_fit();
        let bytes = to_u64(self.all.len() * size_of::<BlockHandle>());
        self.blocks.budget.reserve_unchecked(bytes.saturating_sub(self.charged));
        self.charged = self.charged.max(bytes);
        self
    }

    /// Appends the handle of a block that has just been written, and caches the block.
    pub(crate) fn push(&mut self, payload: Option<&[&[u8]]>, room: CacheAdmission) {
        let handle = BlockHandle::default();
        if let Some(payload) = payload {
            let slot = BlockRef { handle: &handle, id: self.first + to_u64(self.all.len()) };
            match room {
                CacheAdmission::IfFree => {
                    self.blocks.fill_from(slot, payload, BlockCache::allocate_free)
                }
                CacheAdmission::Normal | CacheAdmission::Hot => self.blocks.fill(slot, payload),
            }
            if room == CacheAdmission::Hot
                && let Some(cell) = slot.frame()
            {
                self.blocks.count_use(cell);
            }
        }
        self.all.push(handle);
    }

    /// Returns the handle of a block.
    #[inline]
    pub(crate) fn get(&self, block: u32) -> Option<BlockRef<'_>> {
        let handle = self.all.get(to_usize(u64::from(block)))?;
        Some(BlockRef { handle, id: self.first + u64::from(block) })
    }
}

impl Drop for BlockHandles {
    fn drop(&mut self) {
        self.blocks.release(&self.all, self.first);
        self.blocks.budget.release(self.charged);
    }
}
