//! A page cache of fixed capacity over direct I/O.
//!
//! What: pages of one file (4 to 64 KiB, a power of two) in frames of one reserved region. A hash
//! table of pages with a lock for each bucket finds a page's frame; free frames come from a
//! lock-free stack ([`stack`]); a full cache takes the frame of a page that was not used lately.
//! Why: the store knows which pages must not reach the disk yet, and the kernel does not.
//!
//! A reader takes no lock and, but for a bit that is set once after each search for a victim,
//! stores nothing: it walks the bucket's chain, remembers the frame's version and asks afterwards
//! whether it is still the same ([`latch`]). Whatever went on meanwhile (the page changed, left the
//! cache, another took its frame) changed the version.
//!
//! Dirty pages and cuts: a page that was changed since the last cut is dirty and does not leave the
//! cache; nor does one whose changes are in the journal but not in the file. [`PageCache::cut`]
//! makes all dirty pages the cut, in constant time; they are then read
//! one by one with [`PageCache::image`] as they were at that moment: who changes a page of a cut
//! that is not finished saves what it changes first. [`PageCache::finish`] makes them clean.
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
//! - A page whose dirty epoch is not 0, of which the file lacks units, or that somebody keeps
//!   ([`keep`]), stays in its frame. Pages of the lasting kind leave where no other can.
//! - A page is verified when it comes from the disk, and never after.
//! - There is always a frame for whoever needs one: if all are taken or dirty, the cache grows past
//!   its capacity and counts it; writers are admitted only while at most half is dirty.
//!
//! Thread rules: any thread. A frame's latch may be held while a bucket's lock is taken, not the
//! other way round. `image`, `finish` and `abandon` belong to one thread at a time.
//!
//! How we differ from the paper (ckvs): readers take no lock; the victim is searched by a clock,
//! or, with `Replacement::Random`, at random as there, passing over what was used lately; capacity
//! is any number; too small a capacity costs memory, not liveness.

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

pub use self::overlay::Layer;
pub use self::{
    checkpoint::CacheCheckpoint,
    guard::{ReadGuard, WriteGuard},
    page_file::checksum,
    pin::{Kept, Seen},
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
        mutant::{self, Bug},
        sync::{AtomicU64, Backoff, Mutex, Ordering, lock},
    },
};

/// Number of a page in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// Words of a descriptor: a cache line.
const FRAME_WORDS: usize = 8;
const LATCH: usize = 0;
const PAGE: usize = 1;
const NEXT: usize = 2;
/// Units that changed since the last cut; where there are none, what the overlay changed as the
/// page was read.
const MASK: usize = 3;
const EPOCH: usize = 4;
const USED: usize = 5;
/// Units that the journal has and the file lacks.
const PENDING: usize = 6;
/// Writes to come that need the page ([`keep`]); in the highest bit, whether a cut has images of it
/// ([`cut`]).
const KEPT: usize = 7;
/// The page of a frame that has none.
const NO_PAGE: u64 = u64::MAX;
/// A bucket's lock; the rest is the number of its first frame plus one.
const BUCKET_LOCK: u64 = 1 << 63;
/// Chains hold less than one frame on average; a reader that comes further was led astray.
const CHAIN_MAX: u32 = 64;
/// Frames that the cache grows by.
const GROWTH_FRAMES: u64 = 16;
/// What frames made ready ahead take, at most, and how much of it is made ready at once.
const READY_BYTES_MAX: u64 = 256 << 20;
const READY_STEP_BYTES: u64 = 2 << 20;
/// Fruitless searches for a victim before the cache grows past its capacity.
const SEARCHES: u32 = 64;
/// Descriptors from this byte on are in huge pages.
const HUGE_FROM_BYTES: u64 = 2 << 20;
/// What a frame costs beside its page: descriptor and two buckets.
const FRAME_OVERHEAD_BYTES: u64 = 64 + 16;

/// How the victim is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The next frame in turn that was not used since its last turn.
    #[default]
    Clock,
    /// A frame at random that was not used since it was last picked.
    Random,
}

/// What a cache is made with.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// A power of two from 4096 to 65,536.
    pub page_bytes: usize,
    /// Frames that are drawn from the budget at once.
    pub frames_min: u64,
    /// Frames that it grows to while the budget has memory.
    pub frames_max: u64,
    /// It grows to that where somebody else has to give memory back for it, too.
    pub goes_first: bool,
    /// How the victim is chosen.
    pub replacement: Replacement,
    /// Pages of this kind (byte 8) leave only where no other can: the way to all others.
    pub lasting_kind: u8,
    /// Mixed into every checksum, so that another table's page is no page.
    pub salt: u32,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Frames, free ones included.
    pub frames: u64,
    /// Pages that must not leave.
    pub dirty: u64,
    /// Pages read from the disk.
    pub misses_total: u64,
    /// Pages that left for another.
    pub evictions_total: u64,
    /// Frames made past the capacity.
    pub overflows_total: u64,
    /// Images that writers saved because a cut was not finished.
    pub saved_total: u64,
}

/// The cache. See the module head.
#[derive(Debug)]
pub struct PageCache {
    /// Missing until something is to be written.
    file: OnceLock<Arc<dyn File>>,
    /// Where queues for reads come from; without it pages are read one by one.
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
    /// Frames that had a page when frames were made ready last.
    filled_before: AtomicU64,
    /// Frames made so far.
    made: AtomicU64,
    growing: Mutex<()>,
    hand: AtomicU64,
    /// Grows by one with each cut; starts at 1.
    epoch: AtomicU64,
    dirty: Mutex<Vec<(PageId, u32)>>,
    dirty_count: AtomicU64,
    /// Pages that are journaled and not placed, by the first group that has them; some of them
    /// twice, or no more.
    unplaced: Mutex<VecDeque<PendingWriteBack>>,
    unplaced_count: AtomicU64,
    /// Frames whose page must not leave.
    kept_count: AtomicU64,
    /// What the journal has of pages that were not read since the table was opened.
    overlay: Overlay,
    /// Bytes of units that changed since the last cut, about.
    changed_bytes: AtomicU64,
    saved: Mutex<SavedPages>,
    saved_total: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    overflows: AtomicU64,
}

impl PageCache {
    /// A cache of pages of a file, which `label` names in messages.
    pub fn new(label: String, options: CacheOptions, budget: Arc<Budget>) -> Result<Self> {
        // Replay and threads without a frame may go past the capacity; address space is all that
        // this costs.
        let most = (options.frames_max * 4).max(1 << 14).min(u64::from(u32::MAX) - 1);
        // A checker makes every word anew for each of its runs.
        let most = if cfg!(model) { options.frames_max } else { most };
        let reserve = |bytes: u64| {
            Region::reserve(bytes).map_err(|error| Error::io("reserve memory for pages", error))
        };
        let frames = reserve(most * to_u64(options.page_bytes))?;
        frames.advise_huge(0..options.frames_max * to_u64(options.page_bytes));
        let descriptors = reserve(most * to_u64(FRAME_WORDS) * 8)?;
        // A small table's are not worth a huge page.
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
            unplaced: Mutex::new(VecDeque::new()),
            unplaced_count: AtomicU64::new(0),
            kept_count: AtomicU64::new(0),
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

    /// Says where the pages are; once.
    pub fn set_file(&self, file: Arc<dyn File>) {
        let _ = self.file.set(file);
    }

    /// Says where queues for reads come from; once.
    pub fn set_env(&self, env: Arc<dyn Env>) {
        let _ = self.env.set(env);
    }

    /// Where the pages are.
    pub fn file(&self) -> Result<&Arc<dyn File>> {
        self.file.get().ok_or_else(|| {
            Error::io(
                format!("read {}", self.label),
                io::Error::new(io::ErrorKind::NotFound, "there is no file yet"),
            )
        })
    }

    /// The size of a page.
    pub const fn page_bytes(&self) -> usize {
        self.options.page_bytes
    }

    /// Its file, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Frames that the cache may have while the budget lasts.
    pub const fn capacity(&self) -> u64 {
        self.options.frames_max
    }

    /// Frames that it has.
    pub fn frames(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Frames that it has, or can have now without putting a page out.
    pub fn frames_reachable(&self) -> u64 {
        let limit = self.budget.limit() - self.left_to_others();
        let room = limit.saturating_sub(self.budget.used()) / self.frame_cost();
        (self.frames() + room).min(self.options.frames_max.max(self.frames()))
    }

    /// Pages that changed since the last cut.
    pub fn dirty_count(&self) -> u64 {
        self.dirty_count.load(Ordering::Relaxed)
    }

    /// Pages that the journal has and the file lacks.
    pub fn unplaced_count(&self) -> u64 {
        self.unplaced_count.load(Ordering::Relaxed)
    }

    /// Pages that must not leave the cache, for one reason or the other.
    pub fn kept_count(&self) -> u64 {
        self.kept_count.load(Ordering::Relaxed)
    }

    /// About how many bytes changed since the last cut.
    pub fn changed_bytes(&self) -> u64 {
        self.changed_bytes.load(Ordering::Relaxed)
    }

    /// What every checksum is salted with.
    pub const fn salt(&self) -> u32 {
        self.options.salt
    }

    /// Pages read from the disk since the cache was made.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Bytes drawn from the budget.
    pub fn memory_bytes(&self) -> u64 {
        self.frames() * self.frame_cost()
    }

    /// Counts.
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

    /// A word of a descriptor, for frames that exist.
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

    /// The frame that seems to hold a page, without a lock.
    #[inline]
    fn find(&self, page: PageId) -> Option<u32> {
        let head = self.bucket(page)?.load(Ordering::Acquire) & !BUCKET_LOCK;
        let mut link = low_u32(head);
        // Mostly it is the first: what will be read of it comes along with its descriptor.
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

    /// Starts loading the descriptor of a page and the first two lines of the page itself: what
    /// [`PageCache::read`] and a search begin with. `false`: it is not in the cache.
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

    /// Starts loading the first `count` lines of a page, if it is in the cache.
    #[inline]
    pub fn prefetch_lines(&self, page: PageId, count: u64) {
        let head = self.bucket(page).map_or(0, |bucket| bucket.load(Ordering::Relaxed));
        let Some(frame) = low_u32(head).checked_sub(1) else { return };
        self.descriptors.prefetch(index_of(frame) * FRAME_WORDS);
        let (lines, _) = self.words(frame).as_chunks::<8>();
        lines.iter().take(to_usize(count)).for_each(|[word, ..]| prefetch(word));
    }

    /// Starts loading the first two lines of the frame that a link names.
    #[inline]
    fn prefetch_head(&self, link: u32) {
        if let Some(frame) = link.checked_sub(1) {
            let first = index_of(frame) * (self.options.page_bytes / 8);
            self.frames.prefetch(first);
            self.frames.prefetch(first + 8);
        }
    }

    /// A page to be read. Fails with `Io`, or `Corruption` where the page is not what was written.
    #[inline]
    pub fn read(&self, page: PageId) -> Result<ReadGuard<'_>> {
        match self.look(page) {
            Some(guard) => Ok(guard),
            None => self.read_slowly(page),
        }
    }

    #[cold]
    fn read_slowly(&self, page: PageId) -> Result<ReadGuard<'_>> {
        loop {
            if let Some(guard) = self.look(page) {
                return Ok(guard);
            }
            // Somebody else may have brought it meanwhile, and the frame may have been taken again.
            if self.find(page).is_none() {
                drop(self.load(page, Fill::Read)?);
            }
        }
    }

    /// A page to be read, if it is in the cache. `None` also where it has just left its frame.
    #[inline]
    pub fn look(&self, page: PageId) -> Option<ReadGuard<'_>> {
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

    /// A page to be changed: waits for its latch. Fails as [`PageCache::read`].
    pub fn write(&self, page: PageId) -> Result<WriteGuard<'_>> {
        loop {
            let guard = self.read(page)?;
            if let Some(guard) = guard.upgrade() {
                return Ok(guard);
            }
        }
    }

    /// A page whose content does not matter, zeroed, to be changed; all of it counts as changed.
    pub fn create(&self, page: PageId) -> Result<WriteGuard<'_>> {
        let guard = self.create_to_fill(page)?;
        self.words(guard.frame).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        guard.edit().put_u32(4, page.0);
        guard.changed.set(u64::MAX);
        Ok(guard)
    }

    /// As [`PageCache::create`], for who will set all of it: until then it holds anything.
    pub fn create_to_fill(&self, page: PageId) -> Result<WriteGuard<'_>> {
        let guard = loop {
            // Never from the disk: what is there need not be a page.
            let found = match self.find(page) {
                Some(frame) => self.latch_as(page, frame),
                None => self.load(page, Fill::Zero)?,
            };
            if let Some(guard) = found {
                break guard;
            }
        };
        self.overlay.take(page, &self.budget);
        if self.note_change(guard.frame) {
            self.save_all(guard.frame);
        }
        // All of it, and not counted: it goes to its place without a detour.
        self.set(guard.frame, MASK, u64::MAX);
        guard.changed.set(u64::MAX);
        Ok(guard)
    }

    /// Latches a frame, if it holds the page.
    fn latch_as(&self, page: PageId, frame: u32) -> Option<WriteGuard<'_>> {
        latch::lock(self.word(frame, LATCH)?);
        let guard = WriteGuard::new(self, frame);
        (guard.page() == page).then_some(guard)
    }

    /// Whether the page is in the cache.
    pub fn contains(&self, page: PageId) -> bool {
        self.find(page).is_some()
    }

    /// Gets a page that is not in the cache into a frame, whose latch the guard holds; `None`:
    /// somebody else did.
    fn load(&self, page: PageId, fill: Fill) -> Result<Option<WriteGuard<'_>>> {
        let frame = self.take_frame();
        if !self.link(page, frame) {
            self.release(frame);
            return Ok(None);
        }
        let guard = WriteGuard::new(self, frame);
        if fill == Fill::Read
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

    /// Has pages be what the file holds with these changes over it, the oldest layer first. With
    /// `keep` they stay so; else until somebody changes a page or has it placed.
    pub fn set_overlay(&self, layers: Vec<Layer>, keep: bool) {
        self.overlay.set(layers, keep, &self.budget);
    }

    /// At most `count` pages that are in the overlay still.
    pub fn overlaid(&self, count: usize) -> Vec<PageId> {
        self.overlay.pages(count)
    }

    /// Whether there are pages in the overlay still.
    pub fn is_overlaid(&self) -> bool {
        self.overlay.is_filled()
    }

    /// Has the frame of a page be where its changes are that the overlay has, so that it is placed.
    pub fn take_from_overlay(&self, page: PageId) -> Result<()> {
        let guard = self.write(page)?;
        self.take_overlay((page, guard.frame));
        Ok(())
    }

    /// A latched frame without changes of its own has those of the overlay too, in the units that
    /// it was read with: from now on it alone has them.
    fn take_overlay(&self, (page, frame): (PageId, u32)) {
        if self.get(frame, EPOCH) == 0 && self.overlay.take(page, &self.budget) {
            self.add_pending((page, frame), self.get(frame, MASK), 0);
        }
    }

    /// Has a page that nobody will read again not be written.
    pub fn discard(&self, page: PageId) {
        self.overlay.take(page, &self.budget);
        if let Some(guard) = self.find(page).and_then(|frame| self.latch_as(page, frame)) {
            guard.discard();
        }
    }

    /// Has the cache hold nothing of a page that was written round it: what it may have of the page
    /// is from when it was free. Nobody changes the page, or has changed it since the last cut.
    pub fn forget(&self, page: PageId) {
        self.overlay.take(page, &self.budget);
        let mut patience = Backoff::default();
        while let Some(frame) = self.find(page) {
            let Some(guard) = self.latch_as(page, frame) else { continue };
            // Somebody may have found it when it was another's leaf, and will let go of it.
            if self.is_counted(frame) {
                drop(guard);
                patience.wait();
                continue;
            }
            let frame = guard.forget();
            self.unlink(page, frame);
            self.release(frame);
        }
    }

    /// Puts a latched frame into the table as this page's, unless there is one.
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

    /// Takes a latched frame out of the table.
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

    /// Gives a latched frame that is in no chain back.
    fn release(&self, frame: u32) {
        self.set(frame, MASK, 0);
        self.mark(frame, 0, 0);
        if let Some(word) = self.word(frame, LATCH) {
            latch::unlock(word);
        }
        self.push_free(frame);
    }

    fn push_free(&self, frame: u32) {
        self.free_count.fetch_add(1, Ordering::Relaxed);
        self.free.push(frame, |frame| self.word(frame, NEXT));
    }

    /// A latched frame without a page.
    fn take_frame(&self) -> u32 {
        let mut patience = Backoff::default();
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
            patience.wait();
            if patience.count() > SEARCHES {
                self.grow(GROWTH_FRAMES, Growth::Must);
            }
        }
    }

    /// Makes as many frames ready as were filled since the last call, less those that are: their
    /// memory is touched, for which a writer would wait milliseconds a huge page.
    pub fn make_ready(&self) {
        let free = || self.free_count.load(Ordering::Relaxed);
        let filled = self.frames().saturating_sub(free());
        let before = self.filled_before.swap(filled, Ordering::Relaxed);
        let page_bytes = to_u64(self.options.page_bytes);
        let wanted = filled.saturating_sub(before).min(READY_BYTES_MAX / page_bytes);
        while free() < wanted && self.grow(READY_STEP_BYTES / page_bytes, Growth::Ready) {}
    }

    /// Makes frames: past capacity and budget only if it must.
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
            if count == 0 || !self.draw(count * self.frame_cost()) {
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

    /// Draws memory for frames; whether there is some.
    fn draw(&self, cost: u64) -> bool {
        if self.options.goes_first {
            return self.budget.reserve(cost).is_ok();
        }
        self.budget.used() + cost + self.left_to_others() <= self.budget.limit()
            && self.budget.try_reserve(cost).is_ok()
    }

    /// Bytes of the budget that are for other tables.
    fn left_to_others(&self) -> u64 {
        if self.options.goes_first { 0 } else { self.budget.limit() / 8 }
    }

    /// The latched frame of a page that was put out.
    fn evict(&self) -> Option<u32> {
        self.evict_if(|frame| !self.is_lasting(frame)).or_else(|| self.evict_if(|_| true))
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
            if self.is_kept(frame) {
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
            if self.is_kept(frame) || self.is_counted(frame) {
                self.word(frame, LATCH).into_iter().for_each(latch::unlock);
                continue;
            }
            self.unlink(PageId(low_u32(self.get(frame, PAGE))), frame);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            return Some(frame);
        }
        None
    }

    /// Whether a frame has a page that is put out last. Asked without a latch: a guess.
    fn is_lasting(&self, frame: u32) -> bool {
        let kind = self.words(frame).get(1).map(|word| word.load(Ordering::Relaxed));
        kind.is_some_and(|kind| low_u8(kind) == self.options.lasting_kind)
    }

    /// Whether a frame has no page, or one that must stay.
    fn is_kept(&self, frame: u32) -> bool {
        let dirty = self.get(frame, EPOCH) != 0 || self.get(frame, PENDING) != 0;
        self.get(frame, PAGE) == NO_PAGE || (dirty && !mutant::active(Bug::PageEvictsDirty))
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.drop_saved();
        self.overlay.set(Vec::new(), false, &self.budget);
        self.budget.release(self.memory_bytes());
    }
}

/// What a frame is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Read,
    Zero,
}

/// How frames are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// Within capacity and budget.
    May,
    /// Past them too.
    Must,
    /// Within them, their memory touched.
    Ready,
}

fn index_of(number: u32) -> usize {
    to_usize(u64::from(number))
}

fn lock_bucket(bucket: &AtomicU64) -> u64 {
    let mut patience = Backoff::default();
    loop {
        let head = bucket.load(Ordering::Relaxed);
        let free = head & BUCKET_LOCK == 0;
        let locked = head | BUCKET_LOCK;
        if free
            && bucket.compare_exchange(head, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return head;
        }
        patience.wait();
    }
}

/// Spreads consecutive numbers (`SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}
