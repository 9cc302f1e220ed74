//! A page cache of fixed capacity over direct I/O.
//!
//! What: pages of one file (4 to 64 KiB, a power of two) in frames of one reserved memory region.
//! Why: only the store knows which pages must not reach the disk yet; the kernel's cache does not.
//!
//! How: a hash table with a lock per bucket maps a page to its frame. Free frames are in a
//! lock-free list ([`free_list`]); a full cache evicts by a clock, or at random. A reader takes no
//! lock and stores nothing but the frame's reference bit: it walks the bucket's chain, remembers
//! the frame's version and verifies afterwards that it is the same ([`latch`]). Every change,
//! eviction or reuse of the frame changes the version.
//!
//! Checkpoints: a page that changed since the last checkpoint is dirty and cannot be evicted;
//! neither can a page whose changes are in the journal and not in the file.
//! [`PageCache::checkpoint`] makes all dirty pages the checkpoint, in constant time.
//! [`PageCache::image`] then reads them one by one as they were at that moment: a writer that
//! changes a page of an unfinished checkpoint first saves the units that it changes
//! ([`checkpoint`]). [`PageCache::finish`] makes the pages clean.
//!
//! Layout of a page: its first eight bytes are the cache's; the rest is its user's.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | checksum | CRC32C of the rest of the page, salted with the table's identity |
//! | 4 | 4 | page | number of the page in its file |
//!
//! Invariants:
//! - A page is in at most one frame; the frame's page number changes only under its latch.
//! - A page stays in its frame while its dirty epoch is not 0, the file lacks units of it, or it is
//!   pinned ([`pin`]). Pages of the evict-last kind are evicted only if no other page can be.
//! - A page is verified when it is read from disk, and never again.
//! - A frame is always available: if all are in use or dirty, the cache exceeds its capacity and
//!   counts that. Writers are admitted only while few pages are unevictable.
//!
//! Threads: any thread. A thread may take a bucket's lock while it holds a frame's latch, not the
//! other way round. `image`, `finish` and `abandon` belong to one thread at a time.
//!
//! Differences from the paper (ckvs): readers take no lock; the clock (default) or a random search
//! that skips recently used frames chooses the victim; capacity is any number; too small a capacity
//! costs memory, not progress.

mod batch;
mod checkpoint;
pub mod free_list;
mod guard;
pub mod latch;
#[cfg(all(test, model))]
mod models;
mod overlay;
pub mod page_bytes;
mod page_file;
mod pin;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, OnceLock},
};

pub use self::overlay::OverlayLayer;
pub use self::{
    checkpoint::CacheCheckpoint,
    guard::{ReadGuard, WriteGuard},
    page_file::checksum,
    pin::{PagePin, PageVersion},
};
use self::{
    checkpoint::{PendingWriteBack, SavedPages},
    free_list::FreeList,
    overlay::Overlay,
};
use crate::{
    Error, Result,
    io::{AlignedBuffer, Env, File, Queues, Region, prefetch},
    util::{
        budget::Budget,
        codec::{low_u8, low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Backoff, Mutex, Ordering, lock},
    },
};

/// Number of a page in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// Number of words of a frame descriptor: one cache line.
const FRAME_WORDS: usize = 8;
const LATCH: usize = 0;
const PAGE: usize = 1;
const NEXT: usize = 2;
/// Word: units that changed since the last checkpoint; if the page is clean, the units that the
/// overlay changed when the page was read.
const MASK: usize = 3;
const EPOCH: usize = 4;
const USED: usize = 5;
/// Word: units that are in the journal and not in the file.
const PENDING: usize = 6;
/// Word: number of pins ([`pin`]); the highest bit says that an unfinished checkpoint has saved
/// units of the page ([`checkpoint`]).
const PINS: usize = 7;
/// The page number of a frame without a page.
const NO_PAGE: u64 = u64::MAX;
/// Lock bit of a bucket; the rest is the number of its first frame plus one.
const BUCKET_LOCK: u64 = 1 << 63;
/// Maximum number of links that a reader follows. Chains have less than one frame on average; a
/// longer walk has met a concurrent change.
const CHAIN_MAX: u32 = 64;
/// Number of frames that the cache grows by.
const GROWTH_FRAMES: u64 = 16;
/// Maximum size of the frames prepared in advance, and of one preparation step, in bytes.
const READY_BYTES_MAX: u64 = 256 << 20;
const READY_STEP_BYTES: u64 = 2 << 20;
/// Number of failed searches for a victim before the cache exceeds its capacity.
const SEARCHES: u32 = 64;
/// Offset from which descriptors use huge pages, in bytes.
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
    /// Number of frames that are allocated at once, even beyond the budget.
    pub frames_min: u64,
    /// Maximum number of frames while the budget has memory.
    pub frames_max: u64,
    /// Whether the cache grows even if another user of the budget must release memory for it.
    pub may_reclaim_others: bool,
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

/// A page cache. See the module documentation.
#[derive(Debug)]
pub struct PageCache {
    /// Set before the first write.
    file: OnceLock<Arc<dyn File>>,
    /// Source of I/O queues for batched reads. Without it pages are read one by one.
    env: OnceLock<Arc<dyn Env>>,
    queues: Queues,
    label: String,
    options: CacheOptions,
    budget: Arc<Budget>,
    frames: Region,
    descriptors: Region,
    buckets: Box<[AtomicU64]>,
    free: FreeList,
    free_count: AtomicU64,
    /// Number of frames with a page at the last call of `prepare_frames`.
    filled_before: AtomicU64,
    /// Number of frames allocated.
    made: AtomicU64,
    growing: Mutex<()>,
    hand: AtomicU64,
    /// Grows by one with each checkpoint; starts at 1.
    epoch: AtomicU64,
    dirty: Mutex<Vec<(PageId, u32)>>,
    dirty_count: AtomicU64,
    /// Pages that are journaled and not written back, ordered by the first journal group that has
    /// them. Entries may be duplicates or stale.
    pending_writeback: Mutex<VecDeque<PendingWriteBack>>,
    pending_writeback_count: AtomicU64,
    /// Number of frames whose page is dirty or pending write-back.
    unevictable_count: AtomicU64,
    /// Journal changes of pages that were not read since the table was opened.
    overlay: Overlay,
    /// Approximate size of the units that changed since the last checkpoint, in bytes.
    changed_bytes: AtomicU64,
    saved: Mutex<SavedPages>,
    saved_total: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    overflows: AtomicU64,
}

impl PageCache {
    /// Returns a cache for the pages of a file, which `label` names in messages.
    pub fn new(label: String, options: CacheOptions, budget: Arc<Budget>) -> Result<Self> {
        // Replay and threads that need a frame may exceed the capacity. The reservation costs only
        // address space.
        let most = (options.frames_max * 4).max(1 << 14).min(u64::from(u32::MAX) - 1);
        // A model checker allocates every word again for each execution.
        let most = if cfg!(model) { options.frames_max } else { most };
        let reserve = |bytes: u64| {
            Region::reserve(bytes).map_err(|error| Error::io("reserve memory for pages", error))
        };
        let frames = reserve(most * to_u64(options.page_bytes))?;
        frames.advise_huge(0..options.frames_max * to_u64(options.page_bytes));
        let descriptors = reserve(most * to_u64(FRAME_WORDS) * 8)?;
        // The descriptors of a small table do not justify a huge page.
        descriptors.advise_huge(HUGE_FROM_BYTES..options.frames_max * to_u64(FRAME_WORDS) * 8);
        let bucket_count = (options.frames_max * 2).next_power_of_two().min(1 << 26);
        let cache = Self {
            frames,
            descriptors,
            buckets: (0..bucket_count).map(|_| AtomicU64::new(0)).collect(),
            free: FreeList::default(),
            free_count: AtomicU64::new(0),
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
        cache.grow(cache.options.frames_min, Growth::Must);
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

    /// Returns the number of frames.
    pub fn frames(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that the cache has, or can allocate now without an eviction.
    pub fn frames_reachable(&self) -> u64 {
        let limit = self.budget.limit() - self.left_to_others();
        let room = limit.saturating_sub(self.budget.used()) / self.frame_cost();
        (self.frames() + room).min(self.options.frames_max.max(self.frames()))
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

    fn frame_cost(&self) -> u64 {
        to_u64(self.options.page_bytes) + FRAME_OVERHEAD_BYTES
    }

    #[inline]
    fn word(&self, frame: u32, which: usize) -> Option<&AtomicU64> {
        self.descriptors.words().get(index_of(frame) * FRAME_WORDS + which)
    }

    /// Returns a word of the descriptor of a frame that exists.
    #[inline]
    fn get(&self, frame: u32, which: usize) -> u64 {
        self.word(frame, which).map_or(NO_PAGE, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn set(&self, frame: u32, which: usize, value: u64) {
        if let Some(word) = self.word(frame, which) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn words(&self, frame: u32) -> &[AtomicU64] {
        let count = self.options.page_bytes / 8;
        let start = index_of(frame) * count;
        self.frames.words().get(start..start + count).unwrap_or(&[])
    }

    #[inline]
    fn bucket(&self, page: PageId) -> Option<&AtomicU64> {
        // Page numbers are dense: their low bits spread them evenly.
        self.buckets.get(index_of(page.0) & (self.buckets.len() - 1))
    }

    /// Returns the frame that probably holds a page. Takes no lock; the caller verifies.
    #[inline]
    fn find(&self, page: PageId) -> Option<u32> {
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
        loop {
            if let Some(guard) = self.lookup(page) {
                return Ok(guard);
            }
            // Another thread may have loaded the page meanwhile, and its frame may have been
            // evicted again.
            if self.find(page).is_none() {
                drop(self.load(page, FrameContent::Read)?);
            }
        }
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

    /// Whether the page is in the cache.
    pub fn contains(&self, page: PageId) -> bool {
        self.find(page).is_some()
    }

    /// Allocates a latched frame for a page that is not in the cache. Returns `None` if another
    /// thread did so first.
    fn load(&self, page: PageId, fill: FrameContent) -> Result<Option<WriteGuard<'_>>> {
        let frame = self.allocate_frame();
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

    fn put_image(&self, frame: u32, image: &[u8]) {
        let (chunks, _) = image.as_chunks::<8>();
        for (word, chunk) in self.words(frame).iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }

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
    fn move_overlay_changes(&self, (page, frame): (PageId, u32)) {
        if self.get(frame, EPOCH) == 0 && self.overlay.remove(page, &self.budget) {
            self.add_pending((page, frame), self.get(frame, MASK), 0);
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

    /// Links a latched frame into the hash table as this page's. Returns `false` if the page has a
    /// frame.
    fn link(&self, page: PageId, frame: u32) -> bool {
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

    /// Removes a latched frame from the hash table.
    fn unlink(&self, page: PageId, frame: u32) {
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

    /// Frees a latched frame that is in no chain.
    fn release(&self, frame: u32) {
        self.set(frame, MASK, 0);
        self.set_page_state(frame, 0, 0);
        if let Some(word) = self.word(frame, LATCH) {
            latch::unlock(word);
        }
        self.push_free(frame);
    }

    fn push_free(&self, frame: u32) {
        self.free_count.fetch_add(1, Ordering::Relaxed);
        self.free.push(frame, |frame| self.word(frame, NEXT));
    }

    /// Returns a latched frame without a page: free, newly allocated or evicted.
    fn allocate_frame(&self) -> u32 {
        let mut backoff = Backoff::default();
        loop {
            if let Some(frame) = self.free.pop(|frame| self.word(frame, NEXT)) {
                self.free_count.fetch_sub(1, Ordering::Relaxed);
                if let Some(word) = self.word(frame, LATCH) {
                    latch::lock(word);
                }
                return frame;
            }
            if self.grow(GROWTH_FRAMES, Growth::May) {
                continue;
            }
            if let Some(frame) = self.evict() {
                return frame;
            }
            backoff.wait();
            if backoff.count() > SEARCHES {
                self.grow(GROWTH_FRAMES, Growth::Must);
            }
        }
    }

    /// Allocates as many frames as were filled since the last call, less the free ones, and touches
    /// their memory. Otherwise a writer would wait milliseconds for each huge page.
    pub fn prepare_frames(&self) {
        let free = || self.free_count.load(Ordering::Relaxed);
        let filled = self.frames().saturating_sub(free());
        let before = self.filled_before.swap(filled, Ordering::Relaxed);
        let page_bytes = to_u64(self.options.page_bytes);
        let wanted = filled.saturating_sub(before).min(READY_BYTES_MAX / page_bytes);
        while free() < wanted && self.grow(READY_STEP_BYTES / page_bytes, Growth::Ready) {}
    }

    /// Allocates frames. Exceeds capacity and budget only for [`Growth::Must`].
    fn grow(&self, count: u64, growth: Growth) -> bool {
        let must = growth == Growth::Must;
        if !must && self.frames() >= self.options.frames_max {
            return false;
        }
        let _growing = lock(&self.growing);
        let made = self.frames();
        let count = if must {
            self.budget.reserve_unchecked(count * self.frame_cost());
            self.overflows.fetch_add(if made > 0 { count } else { 0 }, Ordering::Relaxed);
            count
        } else {
            let count = count.min(self.options.frames_max.saturating_sub(made));
            if count == 0 || !self.reserve_memory(count * self.frame_cost()) {
                return false;
            }
            count
        };
        if growth == Growth::Ready {
            let page_bytes = to_u64(self.options.page_bytes);
            self.frames.populate(made * page_bytes..(made + count) * page_bytes);
        }
        for number in made..made + count {
            self.set(low_u32(number), PAGE, NO_PAGE);
            self.push_free(low_u32(number));
        }
        self.made.store(made + count, Ordering::Release);
        true
    }

    /// Reserves memory for frames. Returns whether the budget had it.
    fn reserve_memory(&self, cost: u64) -> bool {
        if self.options.may_reclaim_others {
            return self.budget.reserve(cost).is_ok();
        }
        self.budget.used() + cost + self.left_to_others() <= self.budget.limit()
            && self.budget.try_reserve(cost).is_ok()
    }

    /// Returns the bytes of the budget that are left to other tables.
    fn left_to_others(&self) -> u64 {
        if self.options.may_reclaim_others { 0 } else { self.budget.limit() / 8 }
    }

    /// Evicts a page and returns its latched frame.
    fn evict(&self) -> Option<u32> {
        self.evict_if(|frame| !self.is_evict_last(frame)).or_else(|| self.evict_if(|_| true))
    }

    fn evict_if(&self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let made = self.made.load(Ordering::Acquire);
        for _ in 0..made * 2 + 8 {
            let turn = self.hand.fetch_add(1, Ordering::Relaxed);
            let turn = match self.options.replacement {
                Replacement::Clock => turn,
                Replacement::Random => mixed(turn),
            };
            let frame = low_u32(turn % made.max(1));
            if self.is_unevictable(frame) {
                continue;
            }
            if self.get(frame, USED) != 0 {
                self.set(frame, USED, 0);
                continue;
            }
            if !may_go(frame) {
                continue;
            }
            let latched = self.word(frame, LATCH).is_some_and(latch::try_lock);
            if !latched {
                continue;
            }
            if self.is_unevictable(frame) || self.is_pinned(frame) {
                self.word(frame, LATCH).into_iter().for_each(latch::unlock);
                continue;
            }
            self.unlink(PageId(low_u32(self.get(frame, PAGE))), frame);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            return Some(frame);
        }
        None
    }

    /// Whether a frame has a page of the evict-last kind. A guess if the frame is not latched.
    fn is_evict_last(&self, frame: u32) -> bool {
        let kind = self.words(frame).get(1).map(|word| word.load(Ordering::Relaxed));
        kind.is_some_and(|kind| low_u8(kind) == self.options.evict_last_kind)
    }

    /// Whether a frame has no page, or one that is dirty or pending write-back.
    fn is_unevictable(&self, frame: u32) -> bool {
        let dirty = self.get(frame, EPOCH) != 0 || self.get(frame, PENDING) != 0;
        let dirty = mutant!(PageEvictsDirty: false, else dirty);
        self.get(frame, PAGE) == NO_PAGE || dirty
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.discard_saved();
        self.overlay.set(Vec::new(), false, &self.budget);
        self.budget.release(self.memory_bytes());
    }
}

/// The initial content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameContent {
    Read,
    Zero,
}

/// How frames are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// Only within capacity and budget.
    May,
    /// Also beyond capacity and budget.
    Must,
    /// Only within capacity and budget; touches the memory.
    Ready,
}

fn index_of(number: u32) -> usize {
    to_usize(u64::from(number))
}

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

/// Spreads consecutive numbers (`SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}
