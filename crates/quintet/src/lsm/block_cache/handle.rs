//! The handle of a cached block: a word that stores the frame it was put into.
//!
//! A handle is a hint: the frame's head says which block is there.

use crate::util::sync::{AtomicU32, Ordering};

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
