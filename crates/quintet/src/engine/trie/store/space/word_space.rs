//! The array of words in memory: reads, stores, and the state of each region.

use std::io;

use super::space_file::{Changes, SpaceFile};
use crate::{
    Error,
    io::{BLOCK_BYTES, Region},
    journal::redo::Owner,
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, lock},
    },
};

pub(super) const NAME: &str = "nodes";
pub(super) const MAGIC: &[u8; 8] = b"QTRIENOD";
/// Lists of changes: enough that writers rarely contend.
pub(super) const LIST_COUNT: u64 = if cfg!(model) { 1 } else { 64 };
/// Log2 of the adjacent words that share a list, so that a new node takes one lock.
pub(super) const LIST_SHIFT: u32 = 9;
/// The number of this space in the journal.
pub(crate) const SPACE: u8 = 0;
/// The most regions that are loaded at the same time.
pub(super) const LOADING_COUNT: u64 = if cfg!(model) { 1 } else { 16 };
/// Bytes of a huge page.
pub(super) const HUGE_BYTES: u64 = 2 << 20;
/// State of a region: not in memory.
pub(super) const ABSENT: u64 = 0;
/// State of a region: being evicted. No reader finds it.
pub(super) const EVICTING: u64 = 1;
/// State of a region: in memory, and not read since the hand last passed.
pub(super) const UNREFERENCED: u64 = 2;
/// State of a region: in memory.
pub(super) const LOADED: u64 = 3;

/// The space of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct WordSpace {
    pub(super) owner: Owner,
    pub(super) read_only: bool,
    pub(super) memory: Region,
    /// The states of the regions.
    pub(super) states: Region,
    pub(super) region_bits: u32,
    /// Memory is in huge pages, except the first.
    pub(super) is_huge: AtomicBool,
    /// Locks of regions, held while a region is loaded.
    pub(super) loading: Box<[Mutex<()>]>,
    pub(super) loaded_count: AtomicU64,
    pub(super) loads_total: AtomicU64,
    pub(super) evicted_total: AtomicU64,
    /// The region after which the search for one to evict continues.
    pub(super) hand: AtomicU64,
    pub(super) lists: Box<[CachePadded<Mutex<Changes>>]>,
    /// Changes in the lists. Every change adds to it, so it has a cache line apart from what gets
    /// read.
    pub(super) unsaved: CachePadded<AtomicU64>,
    pub(super) in_flight: AtomicU64,
    pub(super) pending: AtomicU64,
    pub(super) disk: Mutex<SpaceFile>,
}

impl WordSpace {
    /// An empty space of at most `bytes_max`, in regions of `region_bytes` (a power of two). Fails
    /// if the system does not grant the address space.
    pub(crate) fn new(
        owner: Owner,
        read_only: bool,
        bytes_max: u64,
        region_bytes: u64,
    ) -> io::Result<Self> {
        let region_bits = (region_bytes / 8).trailing_zeros();
        Ok(Self {
            owner,
            read_only,
            memory: Region::reserve(bytes_max)?,
            states: Region::reserve(bytes_max / region_bytes * 8)?,
            region_bits,
            is_huge: AtomicBool::new(true),
            loading: (0..LOADING_COUNT).map(|_| Mutex::default()).collect(),
            loaded_count: AtomicU64::new(0),
            loads_total: AtomicU64::new(0),
            evicted_total: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            lists: (0..LIST_COUNT).map(|_| CachePadded::default()).collect(),
            unsaved: CachePadded(AtomicU64::new(0)),
            in_flight: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            disk: Mutex::default(),
        })
    }

    /// The most words of the space.
    pub(crate) fn words_max(&self) -> u64 {
        to_u64(self.memory.words().len())
    }

    /// Words of a region.
    pub(crate) fn region_words(&self) -> u64 {
        1 << self.region_bits
    }

    #[inline]
    pub(super) fn state(&self, region: u64) -> Option<&AtomicU64> {
        self.states.words().get(to_usize(region))
    }

    /// Returns whether the region of a word is in memory, and marks it as read.
    #[inline]
    pub(super) fn is_loaded(&self, index: u64) -> bool {
        let Some(state) = self.state(index >> self.region_bits) else { return false };
        match state.load(Ordering::Acquire) {
            LOADED => true,
            UNREFERENCED => {
                // Fails if the region is being evicted; the reader then continues as if it were
                // not, and validates afterwards.
                let _ = state.compare_exchange(
                    UNREFERENCED,
                    LOADED,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                true
            }
            _ => false,
        }
    }

    /// The word at `index`; `None` if its region has to be loaded ([`Self::load`]).
    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<u64> {
        self.words(index, 1).and_then(|words| words.first()).map(|w| w.load(Ordering::Acquire))
    }

    /// `count` words from `index` on, all in one region; `None` as for [`Self::get`].
    #[inline]
    pub(crate) fn words(&self, index: u64, count: u64) -> Option<&[AtomicU64]> {
        let first = to_usize(index);
        let words = self.memory.words().get(first..first + to_usize(count))?;
        self.is_loaded(index).then_some(words)
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub(crate) fn prefetch(&self, index: u64) {
        self.memory.prefetch(to_usize(index));
    }

    /// Stores a word of a loaded region.
    #[inline]
    pub(crate) fn set(&self, index: u64, value: u64) {
        self.set_all(index, std::iter::once(value));
    }

    /// Stores words from `index` on, of one aligned run of at most 512 or of one object.
    pub(crate) fn set_all(&self, index: u64, values: impl Iterator<Item = u64>) {
        let Some(list) = self.lists.get(to_usize((index >> LIST_SHIFT) % LIST_COUNT)) else {
            return;
        };
        let mut list = lock(list);
        let before = list.len();
        for (index, value) in (index..).zip(values) {
            let Some(word) = self.memory.words().get(to_usize(index)) else { break };
            word.store(value, Ordering::Release);
            list.push((index, value));
        }
        let added = to_u64(list.len() - before);
        drop(list);
        self.unsaved.fetch_add(added, Ordering::Relaxed);
    }

    /// Marks a region that was never used as loaded.
    pub(crate) fn begin_region(&self, index: u64) {
        let region = index >> self.region_bits;
        if let Some(state) = self.state(region) {
            self.advise(region);
            self.loaded_count.fetch_add(1, Ordering::Relaxed);
            state.store(LOADED, Ordering::Release);
        }
    }

    /// Requests huge pages for a region while all regions fit. Not for the first huge page: a small
    /// table should not take one.
    pub(super) fn advise(&self, region: u64) {
        let start = (region * self.region_bytes()) & !(HUGE_BYTES - 1);
        if start > 0 && self.is_huge.load(Ordering::Relaxed) {
            self.memory.advise_huge(start..start + HUGE_BYTES);
        }
    }

    /// Bytes of a region.
    pub(super) fn region_bytes(&self) -> u64 {
        self.region_words() * 8
    }

    /// Regions in memory.
    pub(crate) fn loaded_count(&self) -> u64 {
        self.loaded_count.load(Ordering::Relaxed)
    }

    /// Bytes of memory of the regions before `end`. In huge pages, all that they will take.
    pub(crate) fn memory_bytes(&self, end: u64) -> u64 {
        let bytes = end * 8;
        if self.is_huge.load(Ordering::Relaxed) && bytes > HUGE_BYTES {
            bytes.next_multiple_of(HUGE_BYTES)
        } else {
            self.loaded_count() * self.region_bytes()
        }
    }

    /// Regions loaded from disk, and regions evicted, since the table was opened.
    pub(crate) fn load_counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.loads_total), load(&self.evicted_total))
    }

    pub(super) fn slot_offset(&self, slot: u64) -> u64 {
        BLOCK_BYTES + slot * self.region_bytes()
    }

    pub(super) fn label(&self) -> String {
        self.owner.label(NAME)
    }

    pub(super) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.label(), offset, what)
    }
}
