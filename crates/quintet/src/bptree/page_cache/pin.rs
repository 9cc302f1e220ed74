//! Pages that stay in the cache for a write that is to come.
//!
//! What: who has found the page that a write will change keeps it: until it is let go of, the page
//! does not leave its frame, so the write cannot fail by reading it. Why: what is logged has to be
//! applied, and a disk may fail in between.
//!
//! Invariants: each [`Kept`] is counted in its frame's descriptor; a frame with a count stays.
//! Who puts a page out latches it first and then looks at the count; who keeps it counts first and
//! then looks at the version: one of the two sees the other.

use super::{KEPT, LATCH, PageCache, ReadGuard, WriteGuard};
use crate::{
    bptree::page_cache::checkpoint::SAVED,
    util::sync::{AtomicU64, Ordering, fence},
};

/// A page that stays in its frame until [`PageCache::let_leave`], and its version when it was
/// looked at.
#[derive(Debug)]
#[must_use = "the page stays in its frame until it is let go of"]
pub struct Kept(Seen);

impl Kept {
    /// The page as it was when it was kept.
    pub const fn seen(&self) -> Seen {
        self.0
    }
}

impl ReadGuard<'_> {
    /// The page as it is now.
    pub const fn seen(&self) -> Seen {
        Seen { frame: self.frame, version: self.version }
    }

    /// Keeps the page in the cache; `None`: it has changed since it was looked at.
    pub fn keep(&self) -> Option<Kept> {
        let count = self.cache.word(self.frame, KEPT)?;
        count.fetch_add(1, Ordering::SeqCst);
        let version = self.cache.word(self.frame, LATCH)?.load(Ordering::SeqCst);
        let kept = Kept(self.seen());
        if version == self.version {
            return Some(kept);
        }
        self.cache.let_leave(kept);
        None
    }
}

/// A page and its version: what a [`ReadGuard`] holds, to be asked for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    frame: u32,
    version: u64,
}

impl WriteGuard<'_> {
    /// The page as it will be when this is dropped.
    pub fn seen_after(&self) -> Seen {
        Seen { frame: self.frame, version: self.cache.get(self.frame, LATCH) + 1 }
    }
}

impl PageCache {
    /// The page as it was seen; `None`: it has changed since, or left the cache.
    #[inline]
    pub fn seen(&self, seen: &Seen) -> Option<ReadGuard<'_>> {
        let guard = ReadGuard { cache: self, frame: seen.frame, version: seen.version };
        guard.is_unchanged().then_some(guard)
    }

    /// Lets go of a page.
    #[expect(clippy::needless_pass_by_value, reason = "once for each")]
    pub fn let_leave(&self, kept: Kept) {
        if let Some(count) = self.word(kept.0.frame, KEPT) {
            count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether somebody keeps the page of a frame that the caller has latched.
    pub(super) fn is_counted(&self, frame: u32) -> bool {
        fence(Ordering::SeqCst);
        self.word(frame, KEPT)
            .is_some_and(|count: &AtomicU64| count.load(Ordering::Relaxed) & !SAVED != 0)
    }
}
