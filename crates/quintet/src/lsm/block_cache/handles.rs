//! The handles of all blocks of a file, which the owner of the file holds.
//!
//! Threads and invariants: those of [`super`].

use std::sync::Arc;

use super::{
    cache::BlockCache,
    handle::{BlockHandle, BlockRef, CacheAdmission},
};
use crate::util::codec::{to_u64, to_usize};

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
                    self.blocks.fill_from(slot, payload, BlockCache::allocate_free);
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
