//! A space of words that is changed in place and journaled: what a trie's nodes live in.
//!
//! What: a growing array of 8-byte words in memory, in regions of one size. Each region has its
//! image in a file, and all changes since that image in the redo journal; a region is loaded, and
//! its changes applied, when it is first touched, and may leave memory again at any time.
//! Why: readers need plain memory, a restart must not read the whole index, and a crash must find
//! the words as they were at one cut.
//!
//! A store goes to memory and, as (index, word), to one of 64 lists. A cut takes the lists: they
//! are the changes since the last one, and become a group of the journal. Memory is never copied
//! for the disk: images are made from the last image and the journaled changes, so no writer waits
//! and no torn word can be written (CedrusDB, section 3.3, reads blocks back for the same reason).
//! An image goes to a free slot of the file, never over the one that counts, so a torn one does no
//! harm and nothing is written twice to be safe.
//!
//! | offset in `nodes` | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | see [`crate::journal::FileHead`], magic `QTRIENOD` |
//! | 4096 | | slots | images of regions, one region size each, in any order; which is whose and its CRC32C is part of the state in the journal |
//!
//! Invariants:
//! - Of two stores to a word the later is later in its list: writers of one word exclude one
//!   another, and a word has one list.
//! - `pending` holds exactly the committed changes of each region since its image; `flying` what
//!   cuts took and no durable group has yet; the lists what came after. Image, `pending`, `flying`
//!   and lists, in this order, are what a region is: so it may leave memory whatever no cut has.
//! - A word of a region that is not loaded is never written. It may be read, by a reader that found
//!   the region loaded; whoever evicts changes a version that such a reader compares afterwards.
//!
//! Thread rules: any thread; writers of one word exclude one another. Cuts, commits and images
//! belong to maintenance, one thread at a time. Lock order: `loading`; `disk`; a list.
//!
//! Regions are small, because a look at a trie that does not fit in memory reads one. While all of
//! them fit, their memory is in huge pages, which are charged whole; once one has to leave, huge
//! pages are split and no more are asked for.
//!
//! How we differ from the paper: what keeps a region in memory is not a typed handle that counts
//! (each reader would store to a shared line) but the lock of whoever changes it; readers notice
//! afterwards. Which region leaves: the first, in turn, that nobody has read since the hand last
//! passed; a reader stores that it did only where the hand has passed since.

mod images;
mod recovering;

use std::{collections::BTreeMap, io, mem::take, sync::Arc};

pub(crate) use self::images::Images;
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, Region},
    journal::{
        read_all_blocks,
        redo::{GroupWriter, Owner, Patch},
    },
    util::{
        codec::{crc32c, low_u32, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock, yield_now},
    },
};

const NAME: &str = "nodes";
const MAGIC: &[u8; 8] = b"QTRIENOD";
/// Lists of changes: enough that writers rarely meet.
const LIST_COUNT: u64 = if cfg!(model) { 1 } else { 64 };
/// Words next to each other share a list, so that a new node takes one lock.
const LIST_SHIFT: u32 = 9;
/// The space's number in the journal.
pub(crate) const SPACE: u8 = 0;
/// What an unsaved or pending change takes in memory, in bytes: half of that, in arrays that grow
/// by doubling.
pub(crate) const CHANGE_BYTES: u64 = 32;
/// What making a cut durable takes for each change beside it, until it is done: sorting, and the
/// group in the making.
const WORK_BYTES: u64 = 32;
/// Regions that are loaded at the same time, at most.
const LOADING_COUNT: u64 = if cfg!(model) { 1 } else { 16 };
/// A huge page.
const HUGE_BYTES: u64 = 2 << 20;
/// States of a region. Not in memory:
const ABSENT: u64 = 0;
/// On its way out of memory.
const LEAVING: u64 = 1;
/// In memory; the hand has passed since it was last read.
const PASSED: u64 = 2;
/// In memory.
const LOADED: u64 = 3;

/// The image of a region: its slot in the file and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Image {
    slot: u64,
    crc: u32,
}

#[derive(Debug, Default)]
struct OnDisk {
    file: Option<Arc<dyn File>>,
    images: BTreeMap<u64, Image>,
    /// Slots that neither an image nor one before it needs.
    free: Vec<u64>,
    slot_count: u64,
    /// Committed changes since the image, by region.
    pending: BTreeMap<u64, Pending>,
    /// What cuts took whose group is not durable, in the order of its words, the latest value of
    /// each.
    flying: Changes,
    /// What the last cut took, as it was taken, until it is part of `flying`.
    taken: Vec<Changes>,
}

/// Committed changes of one region.
#[derive(Debug, Default)]
struct Pending {
    /// The journal's group that has the first of them.
    since: u64,
    /// Word in the region, and value.
    changes: Vec<(u32, u64)>,
}

/// Changes: word and value.
type Changes = Vec<(u64, u64)>;

/// The space. See the module head.
#[derive(Debug)]
pub(crate) struct Space {
    owner: Owner,
    read_only: bool,
    memory: Region,
    /// The states of the regions.
    states: Region,
    region_bits: u32,
    /// Memory is in huge pages, but for the first.
    is_huge: AtomicBool,
    /// Whoever loads a region holds its lock.
    loading: Box<[Mutex<()>]>,
    loaded_count: AtomicU64,
    loads_total: AtomicU64,
    evicted_total: AtomicU64,
    /// The region after which the search for one to evict goes on.
    hand: AtomicU64,
    lists: Box<[CachePadded<Mutex<Changes>>]>,
    /// Every change adds to it; gets read what is around it.
    unsaved: CachePadded<AtomicU64>,
    flying: AtomicU64,
    pending: AtomicU64,
    disk: Mutex<OnDisk>,
}

impl Space {
    /// An empty space of at most `bytes_max`, in regions of `region_bytes` (a power of two).
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
            flying: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            disk: Mutex::default(),
        })
    }

    /// Words that the space can have.
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

    /// Whether the region of a word is in memory.
    #[inline]
    fn is_loaded(&self, index: u64) -> bool {
        let Some(state) = self.state(index >> self.region_bits) else { return false };
        match state.load(Ordering::Acquire) {
            LOADED => true,
            PASSED => {
                // Fails where the region has begun to leave: then it is read as if it had not.
                let _ =
                    state.compare_exchange(PASSED, LOADED, Ordering::Relaxed, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// The word at `index`; `None` where its region is not in memory: [`Self::load`] it.
    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<u64> {
        self.words(index, 1).and_then(|words| words.first()).map(|w| w.load(Ordering::Acquire))
    }

    /// `count` words from `index`, all in one region; `None` as for [`Self::get`].
    #[inline]
    pub(crate) fn words(&self, index: u64, count: u64) -> Option<&[AtomicU64]> {
        let first = to_usize(index);
        let words = self.memory.words().get(first..first + to_usize(count))?;
        self.is_loaded(index).then_some(words)
    }

    /// Starts loading the cache line of a word. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, index: u64) {
        self.memory.prefetch(to_usize(index));
    }

    /// Changes a word of a loaded region.
    #[inline]
    pub(crate) fn set(&self, index: u64, value: u64) {
        self.set_all(index, std::iter::once(value));
    }

    /// Changes words from `index` on, of one aligned run of at most 512 or of one object.
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

    /// Makes a region that was never used ready for use.
    pub(crate) fn begin_region(&self, index: u64) {
        let region = index >> self.region_bits;
        if let Some(state) = self.state(region) {
            self.advise(region);
            self.loaded_count.fetch_add(1, Ordering::Relaxed);
            state.store(LOADED, Ordering::Release);
        }
    }

    /// While all regions fit, the memory of a region is part of a huge page, but for the first huge
    /// page: a small table should not take one.
    fn advise(&self, region: u64) {
        let start = (region * self.region_bytes()) & !(HUGE_BYTES - 1);
        if start > 0 && self.is_huge.load(Ordering::Relaxed) {
            self.memory.advise_huge(start..start + HUGE_BYTES);
        }
    }

    fn region_bytes(&self) -> u64 {
        self.region_words() * 8
    }

    /// Has memory in ordinary pages from here on, of which each region has its own: what is not
    /// loaded of the words before `end` takes none. Before regions leave. The caller keeps writers
    /// out.
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

    /// Has memory in ordinary pages where `limit` bytes are too few for all words before `end`.
    /// Before anything is loaded.
    pub(crate) fn choose_pages(&self, end: u64, limit: u64) {
        self.is_huge.store(end * 8 + HUGE_BYTES <= limit, Ordering::Relaxed);
    }

    /// Brings the region of a word into memory.
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
                // Another image counts by now, and the slot may be used again.
                continue;
            }
            read?;
            self.apply_changes(&disk, region, buffer.as_mut_slice());
            while state.load(Ordering::Acquire) == LEAVING {
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
        let file = file.ok_or_else(|| self.damage(0, "it is missing"))?;
        read_all_blocks(&*file, buffer.as_mut_slice(), offset).map_err(|error| {
            match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damage(offset, "the file ends early"),
                _ => Error::io(format!("read {}", self.label()), error),
            }
        })?;
        self.verify(image, buffer)
    }

    fn verify(&self, image: Image, buffer: &AlignedBuffer) -> Result<()> {
        if crc32c(buffer.as_slice()) == image.crc || mutant::active(Bug::ImageSkipsChecksum) {
            return Ok(());
        }
        Err(self.damage(self.slot_offset(image.slot), "the checksum of a region does not match"))
    }

    /// Changes an image of a region to what the region is now. Nobody stores to it meanwhile,
    /// because it is not in memory.
    fn apply_changes(&self, disk: &OnDisk, region: u64, bytes: &mut [u8]) {
        apply_pending(disk.pending.get(&region), bytes);
        if mutant::active(Bug::SpaceEvictsUncommitted) {
            return;
        }
        let (first, mask) = (region << self.region_bits, self.region_words() - 1);
        let (words, _) = bytes.as_chunks_mut::<8>();
        let mut apply = |changes: &[(u64, u64)]| {
            for (index, value) in changes.iter().filter(|change| change.0 & !mask == first) {
                if let Some(word) = words.get_mut(to_usize(index & mask)) {
                    *word = value.to_le_bytes();
                }
            }
        };
        let from = disk.flying.partition_point(|change| change.0 < first);
        let to = disk.flying.partition_point(|change| change.0 <= first | mask);
        apply(disk.flying.get(from..to).unwrap_or(&[]));
        for changes in &disk.taken {
            apply(changes);
        }
        // Runs of words share a list: there are no more lists of a region than runs in it.
        let runs = (self.region_words() >> LIST_SHIFT).clamp(1, LIST_COUNT);
        for run in 0..runs {
            let list = self.lists.get(to_usize(((first >> LIST_SHIFT) + run) % LIST_COUNT));
            if let Some(list) = list {
                apply(&lock(list));
            }
        }
    }

    /// Chooses a region to leave memory, not the first and not those in `kept`. From here on nobody
    /// finds it, but what was found before may still be read: the caller keeps writers out, makes
    /// readers look again, lets both go on, and then calls [`Self::finish_leaving`].
    pub(crate) fn begin_leaving(&self, end: u64, kept: [u64; 2]) -> Option<u64> {
        let count = end.div_ceil(self.region_words());
        let mut hand = self.hand.load(Ordering::Relaxed);
        // Twice round: the first time takes the marks of those that were read.
        for _ in 0..count * 2 {
            hand = if hand + 1 < count { hand + 1 } else { 1 };
            if kept.contains(&hand) {
                continue;
            }
            let Some(state) = self.state(hand) else { continue };
            if state.load(Ordering::Relaxed) == LOADED {
                state.store(PASSED, Ordering::Relaxed);
            } else if state
                .compare_exchange(PASSED, LEAVING, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                self.hand.store(hand, Ordering::Relaxed);
                return Some(hand);
            }
        }
        None
    }

    /// Gives the memory of a region back that [`Self::begin_leaving`] chose.
    pub(crate) fn finish_leaving(&self, region: u64) {
        self.leave(region);
        self.evicted_total.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, region: u64) {
        let bytes = self.region_bytes();
        self.memory.discard(region * bytes..(region + 1) * bytes);
        self.loaded_count.fetch_sub(1, Ordering::Relaxed);
        if let Some(state) = self.state(region) {
            state.store(ABSENT, Ordering::Release);
        }
    }

    /// Takes all regions of these words out of memory: nothing in them is used any more. The caller
    /// keeps writers out and makes readers look again.
    pub(crate) fn leave_all(&self, from: u64, to: u64) {
        for region in from.div_ceil(self.region_words())..to.div_ceil(self.region_words()) {
            let Some(state) = self.state(region) else { continue };
            while state.load(Ordering::Acquire) == LEAVING {
                yield_now();
            }
            if state.swap(LEAVING, Ordering::Relaxed) == ABSENT {
                state.store(ABSENT, Ordering::Relaxed);
            } else {
                self.leave(region);
            }
        }
    }

    /// Regions in memory.
    pub(crate) fn loaded_count(&self) -> u64 {
        self.loaded_count.load(Ordering::Relaxed)
    }

    /// Bytes of memory that regions before `end` take: where it is in huge pages, all that they
    /// will take.
    pub(crate) fn memory_bytes(&self, end: u64) -> u64 {
        let bytes = end * 8;
        if self.is_huge.load(Ordering::Relaxed) && bytes > HUGE_BYTES {
            bytes.next_multiple_of(HUGE_BYTES)
        } else {
            self.loaded_count() * self.region_bytes()
        }
    }

    /// Regions that were read from the disk, and regions that left memory, since this was made.
    pub(crate) fn moves(&self) -> (u64, u64) {
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

    /// Takes the changes since the last cut. The caller keeps all writers out meanwhile, and calls
    /// [`Self::coalesce`] once it no longer does.
    pub(crate) fn cut(&self) {
        let mut disk = lock(&self.disk);
        let lists = self.lists.iter().map(|list| take(&mut *lock(list)));
        disk.taken.extend(lists.filter(|list| !list.is_empty()));
        drop(disk);
        let count = self.unsaved.swap(0, Ordering::Relaxed);
        self.flying.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds what the cut took to what earlier cuts took and could not save, the latest value of
    /// each word alone.
    pub(crate) fn coalesce(&self) {
        let mut disk = lock(&self.disk);
        let (taken, mut all) = (take(&mut disk.taken), take(&mut disk.flying));
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
        self.flying.store(to_u64(all.len()), Ordering::Relaxed);
        disk.flying = all;
    }

    /// Memory that making a cut of all that is unsaved durable will take, in bytes.
    pub(crate) fn work_bytes(&self) -> u64 {
        let changes = self.unsaved.load(Ordering::Relaxed) + self.flying.load(Ordering::Relaxed);
        changes * WORK_BYTES
    }

    /// Adds what cuts took to a group, words next to each other as one patch.
    pub(crate) fn journal(&self, group: &mut GroupWriter) {
        let disk = lock(&self.disk);
        let mut bytes = Vec::new();
        for run in disk.flying.chunk_by(|one, next| one.0 + 1 == next.0) {
            bytes.clear();
            bytes.extend(run.iter().flat_map(|(_, value)| value.to_le_bytes()));
            let Some((first, _)) = run.first() else { continue };
            group.patch(Patch { space: SPACE, offset: first * 8, bytes: &bytes });
        }
    }

    /// The group with what cuts took is durable: its number in the journal.
    pub(crate) fn committed(&self, group: u64) {
        let mut disk = lock(&self.disk);
        let flying = take(&mut disk.flying);
        for run in
            flying.chunk_by(|one, next| one.0 >> self.region_bits == next.0 >> self.region_bits)
        {
            let Some((first, _)) = run.first() else { continue };
            let new = || Pending { since: group, changes: Vec::new() };
            let pending = disk.pending.entry(first >> self.region_bits).or_insert_with(new);
            let mask = self.region_words() - 1;
            pending
                .changes
                .extend(run.iter().map(|(index, value)| (low_u32(index & mask), *value)));
        }
        self.pending.fetch_add(to_u64(flying.len()), Ordering::Relaxed);
        self.flying.store(0, Ordering::Relaxed);
    }

    /// Memory that changes take which no image holds, in bytes.
    pub(crate) fn change_bytes(&self) -> u64 {
        let counts = [&*self.unsaved, &self.flying, &self.pending];
        counts.map(|count| count.load(Ordering::Relaxed)).iter().sum::<u64>() * CHANGE_BYTES
    }

    /// Changes since the last cut, in bytes of memory.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed) * CHANGE_BYTES
    }
}

/// Changes an image by committed changes.
fn apply_pending(changes: Option<&Pending>, bytes: &mut [u8]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (index, value) in changes.into_iter().flat_map(|pending| &pending.changes) {
        if let Some(word) = words.get_mut(to_usize(u64::from(*index))) {
            *word = value.to_le_bytes();
        }
    }
}
