//! Access to pages: lookups, latches, and the load of a missing page.
//!
//! Start with `PageCache::lookup` (a hit) and `PageCache::load` (a miss).

use super::{
    cache::PageCache,
    descriptor::{LATCH, MASK, PAGE, USED},
    guard::{ReadGuard, WriteGuard},
    latch,
    page_id::PageId,
};
use crate::{
    Result,
    io::AlignedBuffer,
    util::sync::{Backoff, Ordering},
};

/// Number of attempts to read a page that other threads evict as soon as it is in a frame: they use
/// more pages at once than there are frames.
const LOADS_MAX: u32 = 4096;

/// The initial content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameContent {
    Read,
    Zero,
}

impl PageCache {
    /// Returns a page for reading, from disk if necessary. Fails with `Io`, or with `Corruption` if
    /// the page is not valid.
    #[inline]
    pub fn read(&self, page: PageId) -> Result<ReadGuard<'_>> {
        match self.lookup(page) {
            Some(guard) => Ok(guard),
            None => self.read_slowly(page),
        }
    }

    #[cold]
    fn read_slowly(&self, page: PageId) -> Result<ReadGuard<'_>> {
        for _ in 0..LOADS_MAX {
            if let Some(guard) = self.lookup(page) {
                return Ok(guard);
            }
            // Another thread may have loaded the page meanwhile, and its frame may have been
            // evicted again.
            if self.find(page).is_none() {
                drop(self.load(page, FrameContent::Read)?);
            }
        }
        Err(self.no_frame())
    }

    /// Returns a page for reading if it is in the cache. Also returns `None` if it has just been
    /// evicted.
    #[inline]
    pub fn lookup(&self, page: PageId) -> Option<ReadGuard<'_>> {
        let frame = self.find(page)?;
        let version = latch::begin(self.word(frame, LATCH)?);
        if self.get(frame, PAGE) != u64::from(page.0) {
            return None;
        }
        if self.get(frame, USED) == 0 {
            self.set(frame, USED, 1);
        }
        Some(ReadGuard { cache: self, frame, version })
    }

    /// Latches a page for writing; waits for the latch. Fails as [`PageCache::read`].
    pub fn write(&self, page: PageId) -> Result<WriteGuard<'_>> {
        loop {
            let guard = self.read(page)?;
            if let Some(guard) = guard.upgrade() {
                return Ok(guard);
            }
        }
    }

    /// Latches a page for writing, zeroed; its old content is not read. All of it counts as
    /// changed.
    pub fn create(&self, page: PageId) -> Result<WriteGuard<'_>> {
        let guard = self.create_to_fill(page)?;
        self.words(guard.frame).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        guard.edit().put_u32(4, page.0);
        guard.changed.set(u64::MAX);
        Ok(guard)
    }

    /// As [`PageCache::create`], without zeroing: the caller must set the whole page.
    pub fn create_to_fill(&self, page: PageId) -> Result<WriteGuard<'_>> {
        let guard = loop {
            // The page is not read from disk: the file need not have a valid page there.
            let found = match self.find(page) {
                Some(frame) => self.latch_as(page, frame),
                None => self.load(page, FrameContent::Zero)?,
            };
            if let Some(guard) = found {
                break guard;
            }
        };
        self.overlay.remove(page, &self.budget);
        if self.mark_dirty(guard.frame) {
            self.save_all(guard.frame);
        }
        // All units are marked, and not counted in `changed_bytes`: a new page is written directly
        // to its place.
        self.set(guard.frame, MASK, u64::MAX);
        guard.changed.set(u64::MAX);
        Ok(guard)
    }

    /// Latches a frame. Returns `None` if it does not hold the page.
    fn latch_as(&self, page: PageId, frame: u32) -> Option<WriteGuard<'_>> {
        latch::lock(self.word(frame, LATCH)?);
        let guard = WriteGuard::new(self, frame);
        (guard.page() == page).then_some(guard)
    }

    /// Allocates a latched frame for a page that is not in the cache. Returns `None` if another
    /// thread did so first. Fails with `OutOfMemory` as [`PageCache::allocate_frame`].
    fn load(&self, page: PageId, fill: FrameContent) -> Result<Option<WriteGuard<'_>>> {
        let frame = self.allocate_frame()?;
        if !self.link(page, frame) {
            self.release(frame);
            return Ok(None);
        }
        let guard = WriteGuard::new(self, frame);
        if fill == FrameContent::Read
            && let Err(error) = self.read_from_disk(page, frame)
        {
            let frame = guard.forget();
            self.unlink(page, frame);
            self.release(frame);
            return Err(error);
        }
        Ok(Some(guard))
    }

    fn read_from_disk(&self, page: PageId, frame: u32) -> Result<()> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let mut buffer = AlignedBuffer::zeroed(self.options.page_bytes);
        let units = self.read_page(page, &mut buffer)?;
        self.put_image(frame, buffer.as_slice());
        self.set(frame, MASK, units.unwrap_or(0));
        Ok(())
    }

    pub(super) fn put_image(&self, frame: u32, image: &[u8]) {
        let (chunks, _) = image.as_chunks::<8>();
        for (word, chunk) in self.words(frame).iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }

    /// Discards the content of a freed page, so that it is not written.
    pub fn discard(&self, page: PageId) {
        self.overlay.remove(page, &self.budget);
        if let Some(guard) = self.find(page).and_then(|frame| self.latch_as(page, frame)) {
            guard.discard();
        }
    }

    /// Drops a page that was written directly to the file: the cached content, if any, is from
    /// before. The page must not have changed since the last checkpoint.
    pub fn forget(&self, page: PageId) {
        self.overlay.remove(page, &self.budget);
        let mut backoff = Backoff::default();
        while let Some(frame) = self.find(page) {
            let Some(guard) = self.latch_as(page, frame) else { continue };
            // A writer may have pinned it as another page's content; it will unpin it.
            if self.is_pinned(frame) {
                drop(guard);
                backoff.wait();
                continue;
            }
            let frame = guard.forget();
            self.unlink(page, frame);
            self.release(frame);
        }
    }
}
