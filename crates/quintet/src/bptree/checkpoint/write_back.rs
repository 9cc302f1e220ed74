//! Write-back of a checkpoint's pages to their place in the file.
//!
//! How: whole pages that are new, and of other pages the blocks that the file lacks. Adjacent
//! pieces share a request.
//!
//! Invariants: a page that a durable checkpoint has is written only after the journal holds its
//! changes; a page that none has, before the journal group is committed. The caller syncs.

use std::sync::Arc;

use super::{paged_tree::PagedTree, settings::PAGE_BYTES_MAX};
use crate::{
    Result,
    bptree::page_cache::{CacheCheckpoint, PageCache, PageId, page_bytes::UNITS},
    io::{AlignedBuffer, BLOCK_BYTES, Env, File},
    journal::write_back::Writeback,
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

/// Maximum size of a request in bytes; no less than a page.
pub(super) const REQUEST_BYTES: usize = 256 << 10;
/// Maximum number of bytes in flight.
pub(super) const WAITING_BYTES_MAX: u64 = 2 << 20;

/// Writes of pieces in ascending order; adjacent pieces share a request.
#[derive(Debug)]
pub(super) struct PageWrites {
    file: Arc<dyn File>,
    label: String,
    writeback: Writeback,
    /// The next request: `filled` bytes of a buffer, for `start`.
    buffer: Option<AlignedBuffer>,
    filled: usize,
    start: u64,
}

impl PageWrites {
    pub(super) fn new(cache: &PageCache, env: &dyn Env) -> Result<Self> {
        let (file, label) = (Arc::clone(cache.file()?), cache.label().to_owned());
        let writeback = Writeback::bounded(env, WAITING_BYTES_MAX)?;
        Ok(Self { file, label, writeback, buffer: None, filled: 0, start: 0 })
    }

    pub(super) fn add(&mut self, offset: u64, piece: &[u8]) {
        let adjoins = offset == self.start + to_u64(self.filled);
        if !adjoins || self.filled + piece.len() > REQUEST_BYTES {
            self.submit();
            self.start = offset;
        }
        let writeback = &mut self.writeback;
        let buffer = self.buffer.get_or_insert_with(|| writeback.buffer(REQUEST_BYTES));
        let end = self.filled + piece.len();
        if let Some(room) = buffer.as_mut_slice().get_mut(self.filled..end) {
            room.copy_from_slice(piece);
        }
        self.filled = end;
    }

    fn submit(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.writeback.write((&self.file, &self.label), self.start, buffer, self.filled);
        }
        self.filled = 0;
    }

    /// Whether a write has failed.
    pub(super) const fn has_failed(&self) -> bool {
        self.writeback.has_failed()
    }

    /// Waits for all writes. Returns the outcome and the number of bytes written.
    pub(super) fn finish(mut self) -> (Result<()>, u64) {
        self.submit();
        let outcome = self.writeback.finish();
        (outcome, self.writeback.written_bytes())
    }
}

impl PagedTree {
    /// Writes whole those pages of a checkpoint that no durable checkpoint has.
    pub(super) fn write_fresh_pages(
        &self,
        checkpoint: &CacheCheckpoint,
        pages: &[(PageId, u32)],
    ) -> Result<()> {
        let cache = self.tree.cache();
        let mut image = vec![0; cache.page_bytes()];
        self.write_each(pages, |page, writes| {
            if cache.image(checkpoint, page, &mut image).is_some() {
                writes.add(cache.offset(page.0), &image);
            }
        })
    }

    /// Writes the blocks of a checkpoint's pages that the file lacks.
    pub(super) fn write_back_pages(
        &self,
        checkpoint: &CacheCheckpoint,
        pages: &[(PageId, u32)],
    ) -> Result<()> {
        let cache = self.tree.cache();
        let unit = cache.page_bytes() / UNITS;
        let units_of_block = (to_usize(BLOCK_BYTES) / unit).min(UNITS);
        let mut image = vec![0; cache.page_bytes()];
        self.write_each(pages, |page, writes| {
            let Some(units) = cache.image(checkpoint, page, &mut image) else { return };
            for (first, count) in runs(widen(units.pending, units_of_block)) {
                let bytes = image.get(first * unit..(first + count) * unit).unwrap_or(&[]);
                writes.add(cache.offset(page.0) + to_u64(first * unit), bytes);
            }
        })
    }

    fn write_each(
        &self,
        pages: &[(PageId, u32)],
        mut each: impl FnMut((PageId, u32), &mut PageWrites),
    ) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let mut writes = PageWrites::new(self.tree.cache(), &*self.context.env)?;
        for page in pages {
            each(*page, &mut writes);
        }
        let (outcome, written) = writes.finish();
        self.written_bytes_total.fetch_add(written, Ordering::Relaxed);
        self.written_back_bytes_total.fetch_add(written, Ordering::Relaxed);
        outcome
    }
}

/// Returns the runs of set bits: first and count.
pub(super) fn runs(mut mask: u64) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let skip = mask.trailing_zeros();
        mask >>= skip;
        let count = mask.trailing_ones();
        let first = at + skip;
        at = first + count;
        mask = mask.checked_shr(count).unwrap_or(0);
        Some((to_usize(u64::from(first)), to_usize(u64::from(count))))
    })
}

/// Sets all bits of each group of `size` bits that has a set bit.
fn widen(mask: u64, size: usize) -> u64 {
    let group = u64::MAX >> (64 - size);
    (0..UNITS).step_by(size).fold(0, |wide, shift| {
        if mask & (group << shift) == 0 { wide } else { wide | group << shift }
    })
}

const _: () = assert!(REQUEST_BYTES >= PAGE_BYTES_MAX, "a page goes in one request");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_become_runs_and_blocks() {
        assert_eq!(runs(0).count(), 0);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs(1 << 63 | 0b1101).collect::<Vec<_>>(), [(0, 1), (2, 2), (63, 1)]);
        assert_eq!(widen(0b10, 16), 0xffff);
        assert_eq!(widen(1 << 63, 64), u64::MAX);
        assert_eq!(widen(1 << 20, 4), 0xf0_0000);
        assert_eq!(widen(5, 1), 5);
    }
}
