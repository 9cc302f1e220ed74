//! The page cache's state: options, counts, frame memory and descriptors.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, OnceLock},
};

use super::{
    descriptor::{FRAME_WORDS, NO_PAGE, index_of},
    free_list::FreeList,
    overlay::Overlay,
    page_id::PageId,
    saved_pages::SavedPages,
};
use crate::{
    Error, Result,
    io::{Env, File, Queues, Region},
    util::{
        budget::Budget,
        codec::to_u64,
        sync::{AtomicU64, Mutex, Ordering},
    },
};

/// Offset from which frames and descriptors use huge pages, in bytes: the size of one. A small
/// table would take a whole one for its first frame.
const HUGE_FROM_BYTES: u64 = 2 << 20;
/// Memory of a frame beside its page, in bytes: descriptor and two buckets.
const FRAME_OVERHEAD_BYTES: u64 = 64 + 16;

/// How the cache chooses a victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The next frame that was not used since the clock hand last passed it.
    #[default]
    Clock,
    /// A random frame that was not used since it was last picked.
    Random,
}

/// Options of a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Size of a page in bytes: a power of two from 4096 to 65,536.
    pub page_bytes: usize,
    /// Number of frames that the cache may have even beyond the budget.
    pub frames_min: u64,
    /// Maximum number of frames while the budget has memory.
    pub frames_max: u64,
    /// Whether the cache grows even if a member of the budget must release memory for it. Otherwise
    /// it leaves a part of the budget to others, and takes memory only from tables that have more
    /// for each use.
    pub may_reclaim_others: bool,
    /// The table that has the pages.
    pub table_id: u64,
    /// How the cache chooses a victim.
    pub replacement: Replacement,
    /// The evict-last kind (byte 8 of a page): such pages are evicted only if no other page can be.
    /// Inner nodes, because every descent needs them.
    pub evict_last_kind: u8,
    /// Salt of every checksum, so that another table's page is not valid.
    pub salt: u32,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Frames, free ones included.
    pub frames: u64,
    /// Dirty pages.
    pub dirty: u64,
    /// Pages read from the disk.
    pub misses_total: u64,
    /// Pages evicted.
    pub evictions_total: u64,
    /// Frames allocated beyond the capacity.
    pub overflows_total: u64,
    /// Pages of which writers saved units for an unfinished checkpoint.
    pub saved_total: u64,
}

/// A page that is journaled and not written back.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWriteBack {
    pub(super) page: PageId,
    pub(super) frame: u32,
    /// The first journal group that may have the page.
    pub(super) group: u64,
}

/// A page cache. See the module documentation.
#[derive(Debug)]
pub struct PageCache {
    /// Set before the first write.
    pub(super) file: OnceLock<Arc<dyn File>>,
    /// Source of I/O queues for batched reads. Without it pages are read one by one.
    pub(super) env: OnceLock<Arc<dyn Env>>,
    pub(super) queues: Queues,
    pub(super) label: String,
    pub(super) options: CacheOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) frames: Region,
    pub(super) descriptors: Region,
    pub(super) buckets: Box<[AtomicU64]>,
    pub(super) free: FreeList,
    pub(super) free_count: AtomicU64,
    /// Frames whose memory was returned to the system.
    pub(super) discarded: FreeList,
    pub(super) discarded_count: AtomicU64,
    /// Number of times that a page was put into a frame.
    pub(super) allocations: AtomicU64,
    /// The count of allocations from which other tables are asked for memory again.
    pub(super) refused_until: AtomicU64,
    /// Number of frames with a page at the last call of `prepare_frames`.
    pub(super) filled_before: AtomicU64,
    /// Number of frames allocated, discarded ones included.
    pub(super) made: AtomicU64,
    pub(super) growing: Mutex<()>,
    pub(super) hand: AtomicU64,
    /// Grows by one with each checkpoint; starts at 1.
    pub(super) epoch: AtomicU64,
    pub(super) dirty: Mutex<Vec<(PageId, u32)>>,
    pub(super) dirty_count: AtomicU64,
    /// Pages that are journaled and not written back, ordered by the first journal group that has
    /// them. Entries may be duplicates or stale.
    pub(super) pending_writeback: Mutex<VecDeque<PendingWriteBack>>,
    pub(super) pending_writeback_count: AtomicU64,
    /// Number of frames whose page is dirty or pending write-back.
    pub(super) unevictable_count: AtomicU64,
    /// Journal changes of pages that were not read since the table was opened.
    pub(super) overlay: Overlay,
    /// Approximate size of the units that changed since the last checkpoint, in bytes.
    pub(super) changed_bytes: AtomicU64,
    pub(super) saved: Mutex<SavedPages>,
    pub(super) saved_total: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) overflows: AtomicU64,
}

impl PageCache {
    /// Returns a cache for the pages of a file, which `label` names in messages.
    pub fn new(label: String, options: CacheOptions, budget: Arc<Budget>) -> Result<Self> {
        // Replay and threads that need a frame may exceed the capacity. The reservation costs only
        // address space.
        let most = (options.frames_max * 4).max(1 << 14).min(u64::from(u32::MAX) - 1);
        // A model checker allocates every word again for each execution.
        let most = if cfg!(model) { options.frames_max } else { most };
        let page_bytes = to_u64(options.page_bytes);
        let reserve = |bytes: u64| {
            Region::reserve(bytes).map_err(|error| Error::address_space("a page cache", error))
        };
        let frames = reserve(most * page_bytes)?;
        frames.advise_huge(HUGE_FROM_BYTES..options.frames_max * page_bytes);
        let descriptors = reserve(most * to_u64(FRAME_WORDS) * 8)?;
        descriptors.advise_huge(HUGE_FROM_BYTES..options.frames_max * to_u64(FRAME_WORDS) * 8);
        let bucket_count = (options.frames_max * 2).next_power_of_two().min(1 << 26);
        let cache = Self {
            frames,
            descriptors,
            buckets: (0..bucket_count).map(|_| AtomicU64::new(0)).collect(),
            free: FreeList::default(),
            free_count: AtomicU64::new(0),
            discarded: FreeList::default(),
            discarded_count: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            refused_until: AtomicU64::new(0),
            filled_before: AtomicU64::new(0),
            made: AtomicU64::new(0),
            growing: Mutex::new(()),
            hand: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            dirty: Mutex::new(Vec::new()),
            dirty_count: AtomicU64::new(0),
            pending_writeback: Mutex::new(VecDeque::new()),
            pending_writeback_count: AtomicU64::new(0),
            unevictable_count: AtomicU64::new(0),
            overlay: Overlay::default(),
            changed_bytes: AtomicU64::new(0),
            saved: Mutex::default(),
            saved_total: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            file: OnceLock::new(),
            env: OnceLock::new(),
            queues: Queues::default(),
            label,
            options,
            budget,
        };
        cache.allocate_first_frames();
        Ok(cache)
    }

    /// Sets the file; only the first call has an effect.
    pub fn set_file(&self, file: Arc<dyn File>) {
        let _ = self.file.set(file);
    }

    /// Sets the source of I/O queues; only the first call has an effect.
    pub fn set_env(&self, env: Arc<dyn Env>) {
        let _ = self.env.set(env);
    }

    /// Returns the file. Fails with `Io` if no file was set.
    pub fn file(&self) -> Result<&Arc<dyn File>> {
        self.file.get().ok_or_else(|| {
            Error::io(
                format!("read {}", self.label),
                io::Error::new(io::ErrorKind::NotFound, "there is no file yet"),
            )
        })
    }

    /// Returns the size of a page in bytes.
    pub const fn page_bytes(&self) -> usize {
        self.options.page_bytes
    }

    /// Returns the name of the file, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the maximum number of frames.
    pub const fn capacity(&self) -> u64 {
        self.options.frames_max
    }

    /// Returns the number of frames that have memory.
    pub fn frames(&self) -> u64 {
        let made = self.made.load(Ordering::Acquire);
        made.saturating_sub(self.discarded_count.load(Ordering::Relaxed))
    }

    /// Returns the number of frames that there are addresses for.
    pub(super) fn frames_possible(&self) -> u64 {
        let descriptors = self.descriptors.words().len() / FRAME_WORDS;
        to_u64(descriptors.min(self.frames.words().len() * 8 / self.options.page_bytes))
    }

    /// Returns the number of frames that the cache has, or can allocate now without an eviction.
    pub fn frames_reachable(&self) -> u64 {
        let limit = self.budget.limit() - self.left_to_others();
        let room = limit.saturating_sub(self.budget.used()) / self.frame_cost();
        let within = (self.frames() + room).min(self.options.frames_max.max(self.frames()));
        within.max(self.options.frames_min)
    }

    /// Returns the number of pages that changed since the last checkpoint.
    pub fn dirty_count(&self) -> u64 {
        self.dirty_count.load(Ordering::Relaxed)
    }

    /// Returns the number of pages whose changes are in the journal and not in the file.
    pub fn pending_writeback_count(&self) -> u64 {
        self.pending_writeback_count.load(Ordering::Relaxed)
    }

    /// Returns the number of pages that are dirty or pending write-back, and so cannot be evicted.
    pub fn unevictable_count(&self) -> u64 {
        self.unevictable_count.load(Ordering::Relaxed)
    }

    /// Returns approximately how many bytes changed since the last checkpoint.
    pub fn changed_bytes(&self) -> u64 {
        self.changed_bytes.load(Ordering::Relaxed)
    }

    /// Returns the salt of checksums.
    pub const fn salt(&self) -> u32 {
        self.options.salt
    }

    /// Returns the number of pages read from disk since the cache was created.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes reserved from the budget.
    pub fn memory_bytes(&self) -> u64 {
        self.frames() * self.frame_cost()
    }

    /// Returns the counts.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            frames: self.frames(),
            dirty: self.dirty_count(),
            misses_total: self.misses(),
            evictions_total: self.evictions.load(Ordering::Relaxed),
            overflows_total: self.overflows.load(Ordering::Relaxed),
            saved_total: self.saved_total.load(Ordering::Relaxed),
        }
    }

    pub(super) fn frame_cost(&self) -> u64 {
        to_u64(self.options.page_bytes) + FRAME_OVERHEAD_BYTES
    }

    #[inline]
    pub(super) fn word(&self, frame: u32, which: usize) -> Option<&AtomicU64> {
        self.descriptors.words().get(index_of(frame) * FRAME_WORDS + which)
    }

    /// Returns a word of the descriptor of a frame that exists.
    #[inline]
    pub(super) fn get(&self, frame: u32, which: usize) -> u64 {
        self.word(frame, which).map_or(NO_PAGE, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set(&self, frame: u32, which: usize, value: u64) {
        if let Some(word) = self.word(frame, which) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn words(&self, frame: u32) -> &[AtomicU64] {
        let count = self.options.page_bytes / 8;
        let start = index_of(frame) * count;
        self.frames.words().get(start..start + count).unwrap_or(&[])
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.discard_saved();
        self.overlay.set(Vec::new(), false, &self.budget);
        self.budget.release(self.memory_bytes());
    }
}
