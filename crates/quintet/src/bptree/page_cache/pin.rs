//! Pins: a page stays in its frame between the admission of a write and its application.
//!
//! Why: a logged write must be applied. If its page is pinned, it cannot fail on a disk read.
//!
//! Invariants: each [`PagePin`] is counted in its frame's descriptor; a frame with a count stays.
//! Eviction latches the frame and then reads the count. A pin increments the count and then reads
//! the version. With sequentially consistent order one of the two sees the other.

use super::{
    cache::PageCache,
    descriptor::{LATCH, PINS, SAVED},
    guard::{ReadGuard, WriteGuard},
};
use crate::util::sync::{AtomicU64, Ordering, fence};

/// A pinned page, and its version when it was pinned. [`PageCache::unpin`] unpins it.
#[derive(Debug)]
#[must_use = "the page stays in its frame until it is unpinned"]
pub struct PagePin(PageVersion);

impl PagePin {
    /// Returns the page and its version when it was pinned.
    pub const fn page_version(&self) -> PageVersion {
        self.0
    }
}

impl ReadGuard<'_> {
    /// Returns the page and its version.
    pub const fn page_version(&self) -> PageVersion {
        PageVersion { frame: self.frame, version: self.version }
    }

    /// Pins the page. Returns `None` if it has changed since the guard read its version.
    pub fn pin(&self) -> Option<PagePin> {
        let count = self.cache.word(self.frame, PINS)?;
        count.fetch_add(1, Ordering::SeqCst);
        let version = self.cache.word(self.frame, LATCH)?.load(Ordering::SeqCst);
        let pin = PagePin(self.page_version());
        if version == self.version {
            return Some(pin);
        }
        self.cache.unpin(pin);
        None
    }
}

/// A page and its version: a [`ReadGuard`] that can be stored and validated later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageVersion {
    frame: u32,
    version: u64,
}

impl WriteGuard<'_> {
    /// Returns the page and the version that it will have when the guard is dropped.
    pub fn version_after(&self) -> PageVersion {
        PageVersion { frame: self.frame, version: self.cache.get(self.frame, LATCH) + 1 }
    }
}

impl PageCache {
    /// Returns a guard of the page; `None` if it has changed or was evicted since.
    #[inline]
    pub fn revalidate(&self, seen: &PageVersion) -> Option<ReadGuard<'_>> {
        let guard = ReadGuard { cache: self, frame: seen.frame, version: seen.version };
        guard.is_unchanged().then_some(guard)
    }

    /// Unpins a page.
    #[expect(clippy::needless_pass_by_value, reason = "once for each")]
    pub fn unpin(&self, pin: PagePin) {
        if let Some(count) = self.word(pin.0.frame, PINS) {
            count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether the page of a frame is pinned. The caller holds the frame's latch.
    pub(super) fn is_pinned(&self, frame: u32) -> bool {
        fence(Ordering::SeqCst);
        self.word(frame, PINS)
            .is_some_and(|count: &AtomicU64| count.load(Ordering::Relaxed) & !SAVED != 0)
    }
}
