//! A space of words that is changed in place and journaled: what a trie's nodes live in.
//!
//! What: a growing array of 8-byte words in memory, in regions of one size. Each region has its
//! image in a file, and all changes since that image in the redo journal; a region is loaded, and
//! its changes applied, when it is first touched, and may leave memory again when all its changes
//! are committed.
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
//! | 0 | 64 | head | see [`super::FileHead`], magic `QTRIENOD` |
//! | 4096 | | slots | images of regions, one region size each, in any order; which is whose and its CRC32C is part of the state in the journal |
//!
//! Invariants:
//! - Of two stores to a word the later is later in its list: writers of one word exclude one
//!   another, and a word has one list.
//! - `pending` holds exactly the committed changes of each region since its image.
//! - A word of a region that is not loaded is never written. It may be read, by a reader that found
//!   the region loaded; whoever evicts changes a version that such a reader compares afterwards.
//! - A region with changes that are not committed is in memory.
//!
//! Thread rules: any thread; writers of one word exclude one another. Cuts, commits and images
//! belong to maintenance, one thread at a time. Lock order: a list; `disk`.
//!
//! How we differ from the paper: what keeps a region in memory is not a typed handle that counts
//! (each reader would store to a shared line) but the lock of whoever changes it; readers notice
//! afterwards. Which region leaves: the first, in turn, that nobody has read since the hand last
//! passed; a reader stores that it did only where the hand has passed since.

use std::{collections::BTreeMap, io, mem::take, sync::Arc};

use super::{
    FileHead, Region, read_all_blocks,
    redo::{GroupWriter, Owner, Patch},
    writeback::Writeback,
};
use crate::{
    Error, Result,
    codec::{Decoder, crc32c, low_u32, put_u32, put_varint, to_u64, to_usize},
    disk::{AlignedBuffer, BLOCK_BYTES, Env, File},
    report::Report,
    seeded::{self, Bug},
    sync::{Apart, AtomicU64, Mutex, Ordering, lock, yield_now},
};

const NAME: &str = "nodes";
const MAGIC: &[u8; 8] = b"QTRIENOD";
/// Lists of changes: enough that writers rarely meet.
const LIST_COUNT: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };
/// Words next to each other share a list, so that a new node takes one lock.
const LIST_SHIFT: u32 = 9;
/// The space's number in the journal.
pub(crate) const SPACE: u8 = 0;
/// What an unsaved or pending change takes in memory, in bytes.
const CHANGE_BYTES: u64 = 16;
/// Words of memory kept for each region: its state, and the number of the cut that its newest
/// change is part of.
const ROW_WORDS: u64 = 2;
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
    /// Committed changes since the image, by region: (word in the region, value).
    pending: BTreeMap<u64, Vec<(u32, u64)>>,
}

/// Changes of one cut, in the order of their words.
pub(crate) type Changes = Vec<(u64, u64)>;

/// The space. See the module head.
#[derive(Debug)]
pub(crate) struct Space {
    owner: Owner,
    read_only: bool,
    memory: Region,
    /// Rows of [`ROW_WORDS`].
    rows: Region,
    region_bits: u32,
    /// Number of the cut that changes made now will be part of; changes with all writers out.
    next_cut: AtomicU64,
    /// All cuts below this are committed.
    committed_cuts: AtomicU64,
    loaded_count: AtomicU64,
    loads_total: AtomicU64,
    evicted_total: AtomicU64,
    /// The region after which the search for one to evict goes on.
    hand: AtomicU64,
    lists: Box<[Apart<Mutex<Changes>>]>,
    /// Every change adds to it; gets read what is around it.
    unsaved: Apart<AtomicU64>,
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
            rows: Region::reserve(bytes_max / region_bytes * ROW_WORDS * 8)?,
            region_bits,
            next_cut: AtomicU64::new(1),
            committed_cuts: AtomicU64::new(1),
            loaded_count: AtomicU64::new(0),
            loads_total: AtomicU64::new(0),
            evicted_total: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            lists: (0..LIST_COUNT).map(|_| Apart::default()).collect(),
            unsaved: Apart(AtomicU64::new(0)),
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
    fn row(&self, region: u64, word: u64) -> Option<&AtomicU64> {
        self.rows.words().get(to_usize(region * ROW_WORDS + word))
    }

    /// Whether the region of a word is in memory.
    #[inline]
    fn is_loaded(&self, index: u64) -> bool {
        let Some(state) = self.row(index >> self.region_bits, 0) else { return false };
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
        let cut = self.next_cut.load(Ordering::Relaxed);
        if let Some(newest) = self.row(index >> self.region_bits, 1)
            && newest.load(Ordering::Relaxed) != cut
        {
            newest.store(cut, Ordering::Relaxed);
        }
    }

    /// Makes a region that was never used ready for use.
    pub(crate) fn begin_region(&self, index: u64) {
        let region = index >> self.region_bits;
        if let Some(state) = self.row(region, 0) {
            self.advise(region);
            // Its first change is on its way: until then nothing on disk has it.
            if let Some(newest) = self.row(region, 1) {
                newest.store(self.next_cut.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.loaded_count.fetch_add(1, Ordering::Relaxed);
            state.store(LOADED, Ordering::Release);
        }
    }

    /// Large regions are in huge pages, but for the first: a small table should not take one.
    fn advise(&self, region: u64) {
        let bytes = self.region_words() * 8;
        if region > 0 {
            self.memory.advise_huge(region * bytes..(region + 1) * bytes);
        }
    }

    /// Brings the region of a word into memory.
    pub(crate) fn load(&self, index: u64) -> Result<()> {
        let region = index >> self.region_bits;
        let disk = lock(&self.disk);
        if self.is_loaded(index) {
            return Ok(());
        }
        let bytes = self.image_now(&disk, region)?;
        let Some(state) = self.row(region, 0) else {
            return Err(self.damage(0, format!("there is no region {region}")));
        };
        while state.load(Ordering::Acquire) == LEAVING {
            yield_now();
        }
        self.advise(region);
        let first = to_usize(region << self.region_bits);
        let words = self.memory.words().get(first..).unwrap_or(&[]);
        let (chunks, _) = bytes.as_slice().as_chunks::<8>();
        for (word, chunk) in words.iter().zip(chunks).take(to_usize(self.region_words())) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        self.loaded_count.fetch_add(1, Ordering::Relaxed);
        self.loads_total.fetch_add(1, Ordering::Relaxed);
        state.store(LOADED, Ordering::Release);
        Ok(())
    }

    /// Chooses a region to leave memory: one whose changes are all committed, not the first and not
    /// those in `kept`. From here on nobody finds it, but what was found before may still be read:
    /// the caller keeps writers out, makes readers look again, lets both go on, and then calls
    /// [`Self::finish_leaving`].
    pub(crate) fn begin_leaving(&self, end: u64, kept: [u64; 2]) -> Option<u64> {
        let count = end.div_ceil(self.region_words());
        let committed = self.committed_cuts.load(Ordering::Acquire);
        let mut hand = self.hand.load(Ordering::Relaxed);
        // Twice round: the first time takes the marks of those that were read.
        for _ in 0..count * 2 {
            hand = if hand + 1 < count { hand + 1 } else { 1 };
            if kept.contains(&hand) {
                continue;
            }
            let (Some(state), Some(newest)) = (self.row(hand, 0), self.row(hand, 1)) else {
                continue;
            };
            let is_committed = newest.load(Ordering::Relaxed) < committed;
            if !is_committed && !seeded::active(Bug::SpaceEvictsUncommitted) {
                continue;
            }
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
        let bytes = self.region_words() * 8;
        self.memory.discard(region * bytes..(region + 1) * bytes);
        self.loaded_count.fetch_sub(1, Ordering::Relaxed);
        self.evicted_total.fetch_add(1, Ordering::Relaxed);
        if let Some(state) = self.row(region, 0) {
            state.store(ABSENT, Ordering::Release);
        }
    }

    /// Takes all regions of these words out of memory: nothing in them is used any more. The caller
    /// keeps writers out and makes readers look again.
    pub(crate) fn leave_all(&self, from: u64, to: u64) {
        for region in from.div_ceil(self.region_words())..to.div_ceil(self.region_words()) {
            let Some(state) = self.row(region, 0) else { continue };
            while state.load(Ordering::Acquire) == LEAVING {
                yield_now();
            }
            if state.swap(LEAVING, Ordering::Relaxed) == ABSENT {
                state.store(ABSENT, Ordering::Relaxed);
            } else {
                self.finish_leaving(region);
            }
        }
    }

    /// Bytes of regions in memory.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_count.load(Ordering::Relaxed) * self.region_words() * 8
    }

    /// Regions that were read from the disk, and regions that left memory, since this was made.
    pub(crate) fn moves(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.loads_total), load(&self.evicted_total))
    }

    /// A region as of the last commit: its image with the changes since.
    fn image_now(&self, disk: &OnDisk, region: u64) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(to_usize(self.region_words() * 8));
        if let Some(image) = disk.images.get(&region) {
            let offset = self.slot_offset(image.slot);
            let file = disk.file.as_deref().ok_or_else(|| self.damage(0, "it is missing"))?;
            read_all_blocks(file, buffer.as_mut_slice(), offset).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => self.damage(offset, "the file ends early"),
                    _ => Error::io(format!("read {}", self.label()), error),
                }
            })?;
            if crc32c(buffer.as_slice()) != image.crc && !seeded::active(Bug::ImageSkipsChecksum) {
                return Err(self.damage(offset, "the checksum of a region does not match"));
            }
        }
        let (words, _) = buffer.as_mut_slice().as_chunks_mut::<8>();
        for (index, value) in disk.pending.get(&region).into_iter().flatten() {
            if let Some(word) = words.get_mut(to_usize(u64::from(*index))) {
                *word = value.to_le_bytes();
            }
        }
        Ok(buffer)
    }

    fn slot_offset(&self, slot: u64) -> u64 {
        BLOCK_BYTES + slot * self.region_words() * 8
    }

    fn label(&self) -> String {
        self.owner.label(NAME)
    }

    fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.label(), offset, what)
    }

    /// Takes the changes since the last cut. The caller keeps all writers out meanwhile.
    pub(crate) fn cut(&self) -> Vec<Changes> {
        let lists = self.lists.iter().map(|list| take(&mut *lock(list))).collect();
        self.unsaved.store(0, Ordering::Relaxed);
        self.next_cut.fetch_add(1, Ordering::Relaxed);
        lists
    }

    /// Adds what a cut took to what earlier cuts took and could not save, the latest value of each
    /// word alone.
    pub(crate) fn coalesce(earlier: &mut Changes, cut: Vec<Changes>) {
        for list in cut {
            earlier.extend(list);
        }
        // Stable: of one word's changes the last stays last.
        earlier.sort_by_key(|(index, _)| *index);
        earlier.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = next.1;
            }
            same
        });
    }

    /// Adds changes to a group, words next to each other as one patch.
    pub(crate) fn journal(changes: &Changes, group: &mut GroupWriter) {
        let mut bytes = Vec::new();
        for run in changes.chunk_by(|one, next| one.0 + 1 == next.0) {
            bytes.clear();
            bytes.extend(run.iter().flat_map(|(_, value)| value.to_le_bytes()));
            let Some((first, _)) = run.first() else { continue };
            group.patch(Patch { space: SPACE, offset: first * 8, bytes: &bytes });
        }
    }

    /// Notes the changes of all cuts until now, whose group is durable.
    pub(crate) fn committed(&self, changes: &Changes) {
        let mut disk = lock(&self.disk);
        for run in
            changes.chunk_by(|one, next| one.0 >> self.region_bits == next.0 >> self.region_bits)
        {
            let Some((first, _)) = run.first() else { continue };
            let pending = disk.pending.entry(first >> self.region_bits).or_default();
            let mask = self.region_words() - 1;
            pending.extend(run.iter().map(|(index, value)| (low_u32(index & mask), *value)));
        }
        self.pending.fetch_add(to_u64(changes.len()), Ordering::Relaxed);
        self.committed_cuts.store(self.next_cut.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Takes a patch of a needed group while the journal is opened; `false` for one that no cut
    /// made.
    pub(crate) fn recover(&self, patch: &Patch<'_>) -> bool {
        let (chunks, rest) = patch.bytes.as_chunks::<8>();
        let first = patch.offset / 8;
        let words = to_u64(chunks.len());
        let end = first.checked_add(words);
        if !rest.is_empty()
            || !patch.offset.is_multiple_of(8)
            || end.is_none_or(|e| e > self.words_max())
        {
            return false;
        }
        let mut disk = lock(&self.disk);
        for (index, chunk) in (first..).zip(chunks) {
            let place = low_u32(index & (self.region_words() - 1));
            let pending = disk.pending.entry(index >> self.region_bits).or_default();
            pending.push((place, u64::from_le_bytes(*chunk)));
        }
        self.pending.fetch_add(words, Ordering::Relaxed);
        true
    }

    /// Writes a new image of every region that has changes, to free slots, and syncs them. They
    /// count once the next group's state ([`Self::encode`]) is durable: then [`Self::settle`].
    pub(crate) fn write_images(&self, env: &dyn Env) -> Result<Images> {
        let mut writes = Writeback::new(env)?;
        let regions: Vec<u64> = lock(&self.disk).pending.keys().copied().collect();
        let mut images = Images::default();
        for region in regions {
            let mut disk = lock(&self.disk);
            let bytes = self.image_now(&disk, region)?;
            let file = match &disk.file {
                Some(file) => Arc::clone(file),
                None => Arc::clone(disk.file.insert(self.head().create(&self.owner, NAME)?)),
            };
            let slot = disk.free.pop().unwrap_or_else(|| {
                disk.slot_count += 1;
                disk.slot_count - 1
            });
            drop(disk);
            images.new.insert(region, Image { slot, crc: crc32c(bytes.as_slice()) });
            let length = bytes.len();
            writes.write((&file, NAME), self.slot_offset(slot), bytes, length);
        }
        let finished = writes.finish();
        images.written_bytes = writes.written_bytes();
        let synced = finished.and_then(|()| match &lock(&self.disk).file {
            Some(file) if !seeded::active(Bug::ImagesSkipSync) => {
                file.sync_data().map_err(|error| Error::io(format!("sync {}", self.label()), error))
            }
            _ => Ok(()),
        });
        match synced {
            Ok(()) => Ok(images),
            Err(error) => {
                self.forget(&images);
                Err(error)
            }
        }
    }

    /// Gives the slots of images back that will not count.
    pub(crate) fn forget(&self, images: &Images) {
        lock(&self.disk).free.extend(images.new.values().map(|image| image.slot));
    }

    /// The images count: what they replace is free, and the changes in them are not pending.
    pub(crate) fn settle(&self, images: Images) {
        let mut disk = lock(&self.disk);
        let mut gone = Vec::new();
        for (region, image) in images.new {
            gone.extend(disk.images.insert(region, image).map(|old| old.slot));
            let settled = disk.pending.remove(&region).map_or(0, |changes| changes.len());
            self.pending.fetch_sub(to_u64(settled), Ordering::Relaxed);
        }
        self.free_slots(&mut disk, &gone);
    }

    /// Forgets the images and the committed changes of words from `end` on: a durable state says
    /// that none of them is used.
    pub(crate) fn drop_beyond(&self, end: u64) {
        let region = end.div_ceil(self.region_words());
        let mut disk = lock(&self.disk);
        let pending = disk.pending.split_off(&region);
        let dropped: usize = pending.values().map(Vec::len).sum();
        self.pending.fetch_sub(to_u64(dropped), Ordering::Relaxed);
        let images = disk.images.split_off(&region);
        if !images.is_empty() {
            let gone: Vec<u64> = images.values().map(|image| image.slot).collect();
            self.free_slots(&mut disk, &gone);
        }
    }

    /// The end of the words that an image or a committed change has.
    pub(crate) fn known_end(&self) -> u64 {
        let disk = lock(&self.disk);
        let last = [disk.images.keys().last(), disk.pending.keys().last()];
        last.into_iter().flatten().max().map_or(0, |last| (last + 1) << self.region_bits)
    }

    fn free_slots(&self, disk: &mut OnDisk, gone: &[u64]) {
        disk.free.extend(gone);
        disk.free.sort_unstable_by(|one, next| next.cmp(one));
        let count = disk.slot_count;
        while disk.slot_count > 0 && disk.free.first() == Some(&(disk.slot_count - 1)) {
            disk.free.remove(0);
            disk.slot_count -= 1;
        }
        if let Some(file) = &disk.file {
            // Space is given back as far as the system does it; the slots are free either way.
            if disk.slot_count < count {
                let _ = file.set_len(self.slot_offset(disk.slot_count));
            }
            for slot in gone.iter().filter(|slot| **slot < disk.slot_count) {
                let _ = file.punch_hole(self.slot_offset(*slot), self.region_words() * 8);
            }
        }
    }

    /// Appends which image is whose, as of `images`; of the words from `end` on none is used.
    pub(crate) fn encode(&self, images: &Images, end: u64, out: &mut Vec<u8>) {
        let disk = lock(&self.disk);
        let mut all = disk.images.clone();
        all.extend(&images.new);
        drop(all.split_off(&end.div_ceil(self.region_words())));
        put_varint(out, to_u64(all.len()));
        for (region, image) in &all {
            put_varint(out, *region);
            put_varint(out, image.slot);
            put_u32(out, image.crc);
        }
    }

    /// Takes what [`Self::encode`] wrote; `None` for what it never writes.
    pub(crate) fn decode(&self, rest: &mut Decoder<'_>) -> Option<()> {
        let mut disk = lock(&self.disk);
        disk.images.clear();
        for _ in 0..rest.varint()? {
            let region = rest.varint()?;
            let image = Image { slot: rest.varint()?, crc: rest.u32()? };
            let fits = region < self.words_max() >> self.region_bits && image.slot < 1 << 32;
            if !fits || disk.images.insert(region, image).is_some() {
                return None;
            }
        }
        Some(())
    }

    /// Opens the file after the state was decoded.
    pub(crate) fn open_file(&self) -> Result<()> {
        let mut disk = lock(&self.disk);
        if disk.images.is_empty() {
            // A file without an image that counts may be unfinished: the first image makes it anew.
            return Ok(());
        }
        disk.file = self.head().open(&self.owner, NAME, self.read_only)?;
        if disk.file.is_none() {
            return Err(self.damage(0, "the file is missing"));
        }
        let used: Vec<u64> = disk.images.values().map(|image| image.slot).collect();
        disk.slot_count = used.iter().max().map_or(0, |slot| slot + 1);
        let mut is_free = vec![true; to_usize(disk.slot_count)];
        for slot in used {
            if let Some(free) = is_free.get_mut(to_usize(slot)) {
                if !*free {
                    return Err(self.damage(self.slot_offset(slot), "two regions share a slot"));
                }
                *free = false;
            }
        }
        disk.free = (0..).zip(is_free).filter(|(_, free)| *free).map(|(slot, _)| slot).collect();
        Ok(())
    }

    fn head(&self) -> FileHead {
        FileHead::new(*MAGIC, &self.owner, self.region_words() * 8)
    }

    /// Verifies every image.
    pub(crate) fn check(&self, report: &mut Report) -> Result<()> {
        let regions: Vec<u64> = lock(&self.disk).images.keys().copied().collect();
        for region in regions {
            match self.image_now(&lock(&self.disk), region) {
                Ok(bytes) => report.checked_bytes += to_u64(bytes.len()),
                Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Bytes of images in the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        to_u64(lock(&self.disk).images.len()) * self.region_words() * 8
    }

    /// Memory that changes take which no image holds, in bytes.
    pub(crate) fn change_bytes(&self) -> u64 {
        let changes = self.unsaved.load(Ordering::Relaxed) + self.pending.load(Ordering::Relaxed);
        changes * CHANGE_BYTES
    }

    /// Changes since the last cut, in bytes of memory.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed) * CHANGE_BYTES
    }
}

/// Images that were written and do not count yet.
#[derive(Debug, Default)]
pub(crate) struct Images {
    new: BTreeMap<u64, Image>,
    pub(crate) written_bytes: u64,
}
