//! Where the blocks of a file were put: a word for each, which whoever owns the file keeps.
//!
//! Invariants and thread rules: those of [`super`]. A place is a hint of where to look; what is
//! there says itself which block it is.

use std::sync::Arc;

use super::BlockCache;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::{AtomicU32, Ordering},
};

/// Where a block was put, if it was.
#[derive(Debug)]
pub(crate) struct BlockHandle(pub(super) AtomicU32);

impl Default for BlockHandle {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A block's place, and the identity that its frame has to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRef<'a> {
    pub(super) place: &'a BlockHandle,
    pub(super) id: u64,
}

impl BlockRef<'_> {
    /// Starts loading the place.
    #[inline]
    pub(crate) fn prefetch(&self) {
        crate::io::prefetch(&self.place.0);
    }

    /// The frame that the place names.
    #[inline]
    pub(super) fn frame(&self) -> Option<u32> {
        self.place.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// What a block gets that has just been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CacheAdmission {
    /// A frame that nobody needs, if there is one.
    IfFree,
    /// A frame, as a block that was read: somebody may want it soon.
    Normal,
    /// The same, and it counts as used again: it takes the place of a block that was.
    Hot,
}

/// Places of the blocks of one file, drawn from the budget. Their frames are free again when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct BlockHandles {
    all: Vec<BlockHandle>,
    /// The identity of block 0; the others follow.
    first: u64,
    /// Bytes that were drawn.
    charged: u64,
    blocks: Arc<BlockCache>,
}

impl BlockHandles {
    /// Places of no blocks yet.
    pub(crate) fn new(blocks: &Arc<BlockCache>, first: u64) -> Self {
        Self { all: Vec::new(), first, charged: 0, blocks: Arc::clone(blocks) }
    }

    /// Places for this many blocks.
    pub(crate) fn with_count(mut self, count: u32) -> Self {
        self.all.resize_with(to_usize(u64::from(count)), BlockHandle::default);
        self.all.shrink_to_fit();
        let bytes = to_u64(self.all.len() * size_of::<BlockHandle>());
        self.blocks.budget.reserve_unchecked(bytes.saturating_sub(self.charged));
        self.charged = self.charged.max(bytes);
        self
    }

    /// One more block, which has just been written.
    pub(crate) fn push(&mut self, payload: Option<&[&[u8]]>, room: CacheAdmission) {
        let place = BlockHandle::default();
        if let Some(payload) = payload {
            let slot = BlockRef { place: &place, id: self.first + to_u64(self.all.len()) };
            match room {
                CacheAdmission::IfFree => self.blocks.put(slot, payload, BlockCache::take_free),
                CacheAdmission::Normal | CacheAdmission::Hot => self.blocks.fill(slot, payload),
            }
            if room == CacheAdmission::Hot
                && let Some(cell) = slot.frame()
            {
                self.blocks.count_use(cell);
            }
        }
        self.all.push(place);
    }

    /// The place of a block.
    #[inline]
    pub(crate) fn get(&self, block: u32) -> Option<BlockRef<'_>> {
        let place = self.all.get(to_usize(u64::from(block)))?;
        Some(BlockRef { place, id: self.first + u64::from(block) })
    }
}

impl Drop for BlockHandles {
    fn drop(&mut self) {
        self.blocks.release(&self.all, self.first);
        self.blocks.budget.release(self.charged);
    }
}
