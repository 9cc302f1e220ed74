//! The space: a journaled array of words, changed in place, that holds the nodes and lists of a
//! trie.
//!
//! Problem: readers need plain memory, a restart must not read the whole index, and a crash must
//! find the words as of one checkpoint.
//!
//! How: a growing array of 8-byte words in regions of one size. Each region has an image in a file,
//! and the redo journal has all changes since that image. A region is loaded, and its changes
//! applied, when it is first used, and may be evicted at any time. A store goes to memory and, as
//! (index, word), to one of 64 lists. A checkpoint takes the lists: they are the changes since the
//! last one, and become a group of the journal. Memory is never copied to disk. Images are built
//! from the last image and the journaled changes, so no writer waits and no torn word is written
//! (CedrusDB, section 3.3, reads blocks back for the same reason). An image goes to a free slot of
//! the file, never over the valid one, so a torn image does no harm.
//!
//! | offset in `nodes` | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | see [`crate::journal::FileHead`], magic `QTRIENOD` |
//! | 4096 | | slots | images of regions, one region size each, in any order; which is whose and its CRC32C is part of the state in the journal |
//!
//! Invariants:
//! - Of two stores to a word the later is later in its list: writers of one word exclude one
//!   another, and a word has one list.
//! - `pending` holds exactly the committed changes of each region since its image, `in_flight`
//!   those that checkpoints took and no durable group has, the lists those after that. Image,
//!   `pending`, `in_flight` and lists, in this order, are the content of a region. So it may be
//!   evicted with changes that no checkpoint has.
//! - A word of a region that is not loaded is never written. It may be read, by a reader that found
//!   the region loaded: the evicting thread changes a version that the reader compares afterwards.
//!
//! Thread rules: any thread; writers of one word exclude one another. Checkpoints, commits and
//! images belong to maintenance, one thread at a time. Lock order: `loading`; `disk`; a list.
//!
//! Regions are small, because a lookup in a trie that does not fit in memory reads one. While all
//! of them fit, their memory is in huge pages, which are charged whole. Before the first is
//! evicted, huge pages are split, and no more are requested.
//!
//! How we differ from the paper: no counted handle keeps a region in memory (each reader would
//! store to a shared line). A writer's lock does, and readers validate afterwards. Eviction is
//! CLOCK: the hand evicts the first region that was not read since it last passed. A reader stores
//! its mark only if the hand has passed since.

mod images;
mod recovery;

use std::{collections::BTreeMap, io, mem::take, sync::Arc};

pub(crate) use self::images::NewImages;
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, Region},
    journal::{
        read_all_blocks,
        redo::{GroupWriter, Owner, Patch},
    },
    util::{
        codec::{crc32c, low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock, yield_now},
    },
};

const NAME: &str = "nodes";
const MAGIC: &[u8; 8] = b"QTRIENOD";
/// Lists of changes: enough that writers rarely contend.
const LIST_COUNT: u64 = if cfg!(model) { 1 } else { 64 };
/// Log2 of the adjacent words that share a list, so that a new node takes one lock.
const LIST_SHIFT: u32 = 9;
/// The number of this space in the journal.
pub(crate) const SPACE: u8 = 0;
/// Bytes of memory that an unsaved or pending change takes: twice its size, because arrays grow by
/// doubling.
pub(crate) const CHANGE_BYTES: u64 = 32;
/// Bytes that a checkpoint takes for each change until it is durable: for sorting, and for the
/// group that it builds.
const WORK_BYTES: u64 = 32;
/// The most regions that are loaded at the same time.
const LOADING_COUNT: u64 = if cfg!(model) { 1 } else { 16 };
/// Bytes of a huge page.
const HUGE_BYTES: u64 = 2 << 20;
/// State of a region: not in memory.
const ABSENT: u64 = 0;
/// State of a region: being evicted. No reader finds it.
const EVICTING: u64 = 1;
/// State of a region: in memory, and not read since the hand last passed.
const UNREFERENCED: u64 = 2;
/// State of a region: in memory.
const LOADED: u64 = 3;

/// The image of a region: its slot in the file and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Image {
    slot: u64,
    crc: u32,
}

/// The state of the file, and changes that no image has.
#[derive(Debug, Default)]
struct SpaceFile {
    file: Option<Arc<dyn File>>,
    images: BTreeMap<u64, Image>,
    /// Slots that neither a valid image nor its predecessor needs.
    free: Vec<u64>,
    slot_count: u64,
    /// Committed changes since the image, by region.
    pending: BTreeMap<u64, PendingChanges>,
    /// Changes that checkpoints took and whose group is not durable: sorted by word, the latest
    /// value of each.
    in_flight: Changes,
    /// The lists that the last checkpoint took, until they are merged into `in_flight`.
    taken: Vec<Changes>,
}

/// Committed changes of one region.
#[derive(Debug, Default)]
struct PendingChanges {
    /// The journal group with the first of them.
    since: u64,
    /// Word in the region, and value.
    changes: Vec<(u32, u64)>,
}

/// Changes: word and value.
type Changes = Vec<(u64, u64)>;

/// The space of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Space {
    owner: Owner,
    read_only: bool,
    memory: Region,
    /// The states of the regions.
    states: Region,
    region_bits: u32,
    /// Memory is in huge pages, except the first.
    is_huge: AtomicBool,
    /// Locks of regions, held while a region is loaded.
    loading: Box<[Mutex<()>]>,
    loaded_count: AtomicU64,
    loads_total: AtomicU64,
    evicted_total: AtomicU64,
    /// The region after which the search for one to evict continues.
    hand: AtomicU64,
    lists: Box<[CachePadded<Mutex<Changes>>]>,
    /// Changes in the lists. Every change adds to it, so it has a cache line apart from what gets
    /// read.
    unsaved: CachePadded<AtomicU64>,
    in_flight: AtomicU64,
    pending: AtomicU64,
    disk: Mutex<SpaceFile>,
}

impl Space {
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
    fn state(&self, region: u64) -> Option<&AtomicU64> {
        self.states.words().get(to_usize(region))
    }

    /// Returns whether the region of a word is in memory, and marks it as read.
    #[inline]
    fn is_loaded(&self, index: u64) -> bool {
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
    fn advise(&self, region: u64) {
        let start = (region * self.region_bytes()) & !(HUGE_BYTES - 1);
        if start > 0 && self.is_huge.load(Ordering::Relaxed) {
            self.memory.advise_huge(start..start + HUGE_BYTES);
        }
    }

    /// Bytes of a region.
    fn region_bytes(&self) -> u64 {
        self.region_words() * 8
    }

    /// Puts the memory of the words before `end` in ordinary pages, so that each region has its
    /// own, and frees the memory of regions that are not loaded. Called before regions are evicted.
    /// The caller keeps writers out.
    pub(crate) fn split_huge_pages(&self, end: u64) {
        if !self.is_huge.load(Ordering::Relaxed) {
            return;
        }
        let _all: Vec<MutexGuard<'_, ()>> = self.loading.iter().map(lock).collect();
        self.is_huge.store(false, Ordering::Relaxed);
        let bytes = self.region_bytes();
        let count = end.div_ceil(self.region_words());
        self.memory.advise_small(0..count * bytes);
        for region in 0..count {
            if self.state(region).is_some_and(|state| state.load(Ordering::Relaxed) == ABSENT) {
                self.memory.discard(region * bytes..(region + 1) * bytes);
            }
        }
    }

    /// Uses ordinary pages if all words before `end` need more than `limit` bytes. Called before
    /// anything is loaded.
    pub(crate) fn choose_pages(&self, end: u64, limit: u64) {
        self.is_huge.store(end * 8 + HUGE_BYTES <= limit, Ordering::Relaxed);
    }

    /// Loads the region of a word. Fails with [`Error::Io`], and with [`Error::Corruption`] if its
    /// image is damaged.
    pub(crate) fn load(&self, index: u64) -> Result<()> {
        let region = index >> self.region_bits;
        let Some(state) = self.state(region) else {
            return Err(self.damage(0, format!("there is no region {region}")));
        };
        let _one = self.loading.get(to_usize(region % LOADING_COUNT)).map(lock);
        loop {
            if self.is_loaded(index) {
                return Ok(());
            }
            let (file, image) = {
                let disk = lock(&self.disk);
                (disk.file.clone(), disk.images.get(&region).copied())
            };
            let mut buffer = AlignedBuffer::zeroed(to_usize(self.region_bytes()));
            let read = image.map_or(Ok(()), |image| self.read_image(file, image, &mut buffer));
            let disk = lock(&self.disk);
            if disk.images.get(&region).copied() != image {
                // Another image is valid by now, and the slot may be reused.
                continue;
            }
            read?;
            self.apply_changes(&disk, region, buffer.as_mut_slice());
            while state.load(Ordering::Acquire) == EVICTING {
                yield_now();
            }
            self.advise(region);
            let first = to_usize(region << self.region_bits);
            let words = self.memory.words().get(first..).unwrap_or(&[]);
            let (chunks, _) = buffer.as_slice().as_chunks::<8>();
            for (word, chunk) in words.iter().zip(chunks).take(to_usize(self.region_words())) {
                word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
            }
            self.loaded_count.fetch_add(1, Ordering::Relaxed);
            self.loads_total.fetch_add(1, Ordering::Relaxed);
            state.store(LOADED, Ordering::Release);
            return Ok(());
        }
    }

    /// Reads and verifies an image.
    fn read_image(
        &self,
        file: Option<Arc<dyn File>>,
        image: Image,
        buffer: &mut AlignedBuffer,
    ) -> Result<()> {
        let offset = self.slot_offset(image.slot);
        let file = file.ok_or_else(|| self.damage(0, "the file is missing"))?;
        read_all_blocks(&*file, buffer.as_mut_slice(), offset).map_err(|error| {
            match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damage(offset, "the file ends early"),
                _ => Error::io(format!("read {}", self.label()), error),
            }
        })?;
        self.verify(image, buffer)
    }

    fn verify(&self, image: Image, buffer: &AlignedBuffer) -> Result<()> {
        mutant!(ImageSkipsChecksum => return Ok(()));
        if crc32c(buffer.as_slice()) == image.crc {
            return Ok(());
        }
        Err(self.damage(self.slot_offset(image.slot), "the checksum of a region does not match"))
    }

    /// Applies all changes since the image. No thread stores to the region meanwhile, because it is
    /// not in memory.
    fn apply_changes(&self, disk: &SpaceFile, region: u64, bytes: &mut [u8]) {
        apply_pending(disk.pending.get(&region), bytes);
        mutant!(SpaceEvictsUncommitted => return);
        let (first, mask) = (region << self.region_bits, self.region_words() - 1);
        let (words, _) = bytes.as_chunks_mut::<8>();
        let mut apply = |changes: &[(u64, u64)]| {
            for (index, value) in changes.iter().filter(|change| change.0 & !mask == first) {
                if let Some(word) = words.get_mut(to_usize(index & mask)) {
                    *word = value.to_le_bytes();
                }
            }
        };
        let from = disk.in_flight.partition_point(|change| change.0 < first);
        let to = disk.in_flight.partition_point(|change| change.0 <= first | mask);
        apply(disk.in_flight.get(from..to).unwrap_or(&[]));
        for changes in &disk.taken {
            apply(changes);
        }
        // Runs of words share a list: a region has at most as many lists as runs.
        let runs = (self.region_words() >> LIST_SHIFT).clamp(1, LIST_COUNT);
        for run in 0..runs {
            let list = self.lists.get(to_usize(((first >> LIST_SHIFT) + run) % LIST_COUNT));
            if let Some(list) = list {
                apply(&lock(list));
            }
        }
    }

    /// Chooses a region to evict, neither the first nor one of `kept`, and hides it from readers. A
    /// reader that found it before may still read it: the caller keeps writers out, changes the
    /// version that readers compare, lets both continue, and then calls [`Self::finish_eviction`].
    pub(crate) fn begin_eviction(&self, end: u64, kept: [u64; 2]) -> Option<u64> {
        let count = end.div_ceil(self.region_words());
        let mut hand = self.hand.load(Ordering::Relaxed);
        // Two rounds: the first clears the marks of regions that were read.
        for _ in 0..count * 2 {
            hand = if hand + 1 < count { hand + 1 } else { 1 };
            if kept.contains(&hand) {
                continue;
            }
            let Some(state) = self.state(hand) else { continue };
            if state.load(Ordering::Relaxed) == LOADED {
                state.store(UNREFERENCED, Ordering::Relaxed);
            } else if state
                .compare_exchange(UNREFERENCED, EVICTING, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                self.hand.store(hand, Ordering::Relaxed);
                return Some(hand);
            }
        }
        None
    }

    /// Frees the memory of a region that [`Self::begin_eviction`] chose.
    pub(crate) fn finish_eviction(&self, region: u64) {
        self.free_memory(region);
        self.evicted_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the memory of a region that no reader finds.
    fn free_memory(&self, region: u64) {
        let bytes = self.region_bytes();
        self.memory.discard(region * bytes..(region + 1) * bytes);
        self.loaded_count.fetch_sub(1, Ordering::Relaxed);
        if let Some(state) = self.state(region) {
            state.store(ABSENT, Ordering::Release);
        }
    }

    /// Evicts all regions of these words, which nothing uses any more. The caller keeps writers
    /// out, and changes the version that readers compare.
    pub(crate) fn evict_all(&self, from: u64, to: u64) {
        for region in from.div_ceil(self.region_words())..to.div_ceil(self.region_words()) {
            let Some(state) = self.state(region) else { continue };
            while state.load(Ordering::Acquire) == EVICTING {
                yield_now();
            }
            if state.swap(EVICTING, Ordering::Relaxed) == ABSENT {
                state.store(ABSENT, Ordering::Relaxed);
            } else {
                self.free_memory(region);
            }
        }
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

    fn slot_offset(&self, slot: u64) -> u64 {
        BLOCK_BYTES + slot * self.region_bytes()
    }

    fn label(&self) -> String {
        self.owner.label(NAME)
    }

    fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.label(), offset, what)
    }

    /// Takes the changes since the last checkpoint. The caller keeps writers out, and calls
    /// [`Self::coalesce`] once it no longer does.
    pub(crate) fn begin_checkpoint(&self) {
        let mut disk = lock(&self.disk);
        let lists = self.lists.iter().map(|list| take(&mut *lock(list)));
        disk.taken.extend(lists.filter(|list| !list.is_empty()));
        drop(disk);
        let count = self.unsaved.swap(0, Ordering::Relaxed);
        self.in_flight.fetch_add(count, Ordering::Relaxed);
    }

    /// Merges the changes that [`Self::begin_checkpoint`] took with those of earlier checkpoints
    /// that failed. Keeps the latest value of each word.
    pub(crate) fn coalesce(&self) {
        let mut disk = lock(&self.disk);
        let (taken, mut all) = (take(&mut disk.taken), take(&mut disk.in_flight));
        all.reserve(taken.iter().map(Vec::len).sum());
        for list in taken {
            all.extend(list);
        }
        // Stable: of one word's changes the last stays last.
        all.sort_by_key(|(index, _)| *index);
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = next.1;
            }
            same
        });
        self.in_flight.store(to_u64(all.len()), Ordering::Relaxed);
        disk.in_flight = all;
    }

    /// Bytes of memory that a checkpoint of all unsaved changes will take.
    pub(crate) fn work_bytes(&self) -> u64 {
        let changes = self.unsaved.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed);
        changes * WORK_BYTES
    }

    /// Adds the changes of a checkpoint to a group, one patch for each run of adjacent words.
    pub(crate) fn journal(&self, group: &mut GroupWriter) {
        let disk = lock(&self.disk);
        let mut bytes = Vec::new();
        for run in disk.in_flight.chunk_by(|one, next| one.0 + 1 == next.0) {
            bytes.clear();
            bytes.extend(run.iter().flat_map(|(_, value)| value.to_le_bytes()));
            let Some((first, _)) = run.first() else { continue };
            group.patch(Patch { space: SPACE, offset: first * 8, bytes: &bytes });
        }
    }

    /// Records that the group with the changes is durable, by its number in the journal.
    pub(crate) fn commit(&self, group: u64) {
        let mut disk = lock(&self.disk);
        let in_flight = take(&mut disk.in_flight);
        for run in
            in_flight.chunk_by(|one, next| one.0 >> self.region_bits == next.0 >> self.region_bits)
        {
            let Some((first, _)) = run.first() else { continue };
            let new = || PendingChanges { since: group, changes: Vec::new() };
            let pending = disk.pending.entry(first >> self.region_bits).or_insert_with(new);
            let mask = self.region_words() - 1;
            pending
                .changes
                .extend(run.iter().map(|(index, value)| (low_u32(index & mask), *value)));
        }
        self.pending.fetch_add(to_u64(in_flight.len()), Ordering::Relaxed);
        self.in_flight.store(0, Ordering::Relaxed);
    }

    /// Bytes of memory of the changes that no image has.
    pub(crate) fn change_bytes(&self) -> u64 {
        let counts = [&*self.unsaved, &self.in_flight, &self.pending];
        counts.map(|count| count.load(Ordering::Relaxed)).iter().sum::<u64>() * CHANGE_BYTES
    }

    /// Bytes of memory of the changes since the last checkpoint.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed) * CHANGE_BYTES
    }
}

/// Applies committed changes to an image.
fn apply_pending(changes: Option<&PendingChanges>, bytes: &mut [u8]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (index, value) in changes.into_iter().flat_map(|pending| &pending.changes) {
        if let Some(word) = words.get_mut(to_usize(u64::from(*index))) {
            *word = value.to_le_bytes();
        }
    }
}
