//! The page table: a hash table from page numbers to frames, with chains and a lock per bucket.
//!
//! A bucket is one word: the link to its first frame, and the lock. A link is the number of a frame
//! plus one; 0 ends the chain. The links of further frames are in the descriptors.
//!
//! Invariants: a page is in at most one chain. A writer changes a chain only with the bucket's
//! lock.
//!
//! Threads: readers take no lock. They may follow a chain that changes and reach the wrong frame,
//! so the caller verifies the frame's page number under its version.

use super::{
    cache::PageCache,
    descriptor::{FRAME_WORDS, NEXT, NO_PAGE, PAGE, USED, index_of},
    page_id::PageId,
};
use crate::{
    io::prefetch,
    util::{
        codec::{low_u32, to_usize},
        sync::{AtomicU64, Backoff, Ordering},
    },
};

/// Lock bit of a bucket; the rest is the number of its first frame plus one.
const BUCKET_LOCK: u64 = 1 << 63;
/// Maximum number of links that a reader follows. Chains have less than one frame on average; a
/// longer walk has met a concurrent change.
const CHAIN_MAX: u32 = 64;

impl PageCache {
    #[inline]
    pub(super) fn bucket(&self, page: PageId) -> Option<&AtomicU64> {
        // Page numbers are dense: their low bits spread them evenly.
        self.buckets.get(index_of(page.0) & (self.buckets.len() - 1))
    }

    /// Returns the frame that probably holds a page. Takes no lock; the caller verifies.
    #[inline]
    pub(super) fn find(&self, page: PageId) -> Option<u32> {
        let head = self.bucket(page)?.load(Ordering::Acquire) & !BUCKET_LOCK;
        let mut link = low_u32(head);
        // The first frame of the chain usually matches: prefetch its page along with its
        // descriptor.
        self.prefetch_head(link);
        for _ in 0..CHAIN_MAX {
            let frame = link.checked_sub(1)?;
            if self.get(frame, PAGE) == u64::from(page.0) {
                return Some(frame);
            }
            link = low_u32(self.get(frame, NEXT));
        }
        None
    }

    fn find_from(&self, head: u64, page: PageId) -> Option<u32> {
        let mut link = low_u32(head);
        while let Some(frame) = link.checked_sub(1) {
            if self.get(frame, PAGE) == u64::from(page.0) {
                return Some(frame);
            }
            link = low_u32(self.get(frame, NEXT));
        }
        None
    }

    /// Whether the page is in the cache.
    pub fn contains(&self, page: PageId) -> bool {
        self.find(page).is_some()
    }

    /// Links a latched frame into the hash table as this page's. Returns `false` if the page has a
    /// frame.
    pub(super) fn link(&self, page: PageId, frame: u32) -> bool {
        let Some(bucket) = self.bucket(page) else { return false };
        let head = lock_bucket(bucket);
        let absent = self.find_from(head, page).is_none();
        if absent {
            self.set(frame, PAGE, u64::from(page.0));
            self.set(frame, NEXT, head);
            self.set(frame, USED, 1);
        }
        bucket.store(if absent { u64::from(frame) + 1 } else { head }, Ordering::Release);
        absent
    }

    /// Removes a latched frame from the hash table.
    pub(super) fn unlink(&self, page: PageId, frame: u32) {
        let Some(bucket) = self.bucket(page) else { return };
        let mut head = lock_bucket(bucket);
        let own = u64::from(frame) + 1;
        let below = self.get(frame, NEXT);
        if head == own {
            head = below;
        } else {
            let mut link = low_u32(head);
            while let Some(at) = link.checked_sub(1) {
                link = low_u32(self.get(at, NEXT));
                if u64::from(link) == own {
                    self.set(at, NEXT, below);
                    break;
                }
            }
        }
        self.set(frame, PAGE, NO_PAGE);
        bucket.store(head, Ordering::Release);
    }

    /// Prefetches the descriptor of a page and the first two cache lines of the page, which
    /// [`PageCache::read`] and a search read first. Returns `false` if the bucket is empty.
    #[inline]
    pub fn prefetch(&self, page: PageId) -> bool {
        let head = self.bucket(page).map_or(0, |bucket| bucket.load(Ordering::Relaxed));
        let link = low_u32(head);
        if let Some(frame) = link.checked_sub(1) {
            self.descriptors.prefetch(index_of(frame) * FRAME_WORDS);
        }
        self.prefetch_head(link);
        link != 0
    }

    /// Prefetches the first `count` cache lines of a page, if it is in the cache.
    #[inline]
    pub fn prefetch_lines(&self, page: PageId, count: u64) {
        let head = self.bucket(page).map_or(0, |bucket| bucket.load(Ordering::Relaxed));
        let Some(frame) = low_u32(head).checked_sub(1) else { return };
        self.descriptors.prefetch(index_of(frame) * FRAME_WORDS);
        let (lines, _) = self.words(frame).as_chunks::<8>();
        lines.iter().take(to_usize(count)).for_each(|[word, ..]| prefetch(word));
    }

    /// Prefetches the first two cache lines of the frame that a link refers to.
    #[inline]
    fn prefetch_head(&self, link: u32) {
        if let Some(frame) = link.checked_sub(1) {
            let first = index_of(frame) * (self.options.page_bytes / 8);
            self.frames.prefetch(first);
            self.frames.prefetch(first + 8);
        }
    }
}

/// Locks a bucket and returns its link.
fn lock_bucket(bucket: &AtomicU64) -> u64 {
    let mut backoff = Backoff::default();
    loop {
        let head = bucket.load(Ordering::Relaxed);
        let free = head & BUCKET_LOCK == 0;
        let locked = head | BUCKET_LOCK;
        if free
            && bucket.compare_exchange(head, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return head;
        }
        backoff.wait();
    }
}
