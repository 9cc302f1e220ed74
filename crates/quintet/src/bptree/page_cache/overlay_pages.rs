//! Pages whose changes are in the overlay: the move of these changes to frames.
//!
//! A page read from disk has the overlay's changes applied. Its first change or its write-back
//! moves them to the frame, as units that are pending write-back.

use super::{
    cache::PageCache,
    descriptor::{EPOCH, MASK},
    overlay::OverlayLayer,
    page_id::PageId,
};
use crate::Result;

impl PageCache {
    /// Sets the overlay: reads of a page apply these changes to what the file has, the oldest layer
    /// first. With `keep` the changes stay in the overlay; otherwise they leave it when a page is
    /// changed or written back.
    pub fn set_overlay(&self, layers: Vec<OverlayLayer>, keep: bool) {
        self.overlay.set(layers, keep, &self.budget);
    }

    /// Returns at most `count` pages that have changes in the overlay.
    pub fn pages_in_overlay(&self, count: usize) -> Vec<PageId> {
        self.overlay.pages(count)
    }

    /// Whether any page has changes in the overlay.
    pub fn has_overlay(&self) -> bool {
        self.overlay.is_filled()
    }

    /// Moves the overlay's changes of a page to its frame, as pending write-back.
    pub fn move_from_overlay(&self, page: PageId) -> Result<()> {
        let guard = self.write(page)?;
        self.move_overlay_changes((page, guard.frame));
        Ok(())
    }

    /// Takes over the overlay's changes for a latched clean frame. The frame was read with them
    /// applied.
    pub(super) fn move_overlay_changes(&self, (page, frame): (PageId, u32)) {
        if self.get(frame, EPOCH) == 0 && self.overlay.remove(page, &self.budget) {
            self.add_pending((page, frame), self.get(frame, MASK), 0);
        }
    }
}
