//! The pages of a checkpoint, and the units in which their images differ.

use super::page_id::PageId;
use crate::util::codec::to_usize;

/// The units in which a page image differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageUnits {
    /// From the previous checkpoint.
    pub changed: u64,
    /// From the file.
    pub pending: u64,
}

/// The pages of a checkpoint. Pass it to [`super::PageCache::finish`] or
/// [`super::PageCache::abandon`].
#[derive(Debug)]
pub struct CacheCheckpoint {
    pub(super) pages: Vec<(PageId, u32)>,
    /// Frames of the pages to write back, ascending.
    pub(super) writeback_frames: Vec<u32>,
    /// A bit for each page that no durable checkpoint has.
    pub(super) fresh: Vec<u64>,
    pub(super) epoch: u64,
    /// The first journal group that the checkpoint may become.
    pub(super) group: u64,
}

impl CacheCheckpoint {
    /// Returns the pages and their frames, in no order. A page may occur twice, or not be dirty.
    pub fn pages(&self) -> &[(PageId, u32)] {
        &self.pages
    }

    /// Sets which pages no durable checkpoint has: a bit for each.
    #[must_use]
    pub fn with_fresh(mut self, fresh: Vec<u64>) -> Self {
        self.fresh = fresh;
        self
    }

    /// Whether no durable checkpoint has the page.
    pub fn is_fresh(&self, page: PageId) -> bool {
        is_in(&self.fresh, page)
    }

    /// Whether the page in a frame is written back with the checkpoint; others are only journaled.
    pub fn is_to_write_back(&self, frame: u32) -> bool {
        self.writeback_frames.binary_search(&frame).is_ok()
    }

    /// Returns the number of pages to write back.
    pub fn writeback_count(&self) -> usize {
        self.writeback_frames.len()
    }
}

/// Whether the bit of a page is set.
pub(super) fn is_in(bits: &[u64], page: PageId) -> bool {
    let word = bits.get(to_usize(u64::from(page.0 / 64)));
    word.is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
}
