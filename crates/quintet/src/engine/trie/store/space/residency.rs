//! Which regions are in memory: loads, evictions, and the size of pages.

use std::{io, sync::Arc};

use super::{
    space_file::{Image, SpaceFile, apply_pending},
    word_space::{
        ABSENT, EVICTING, HUGE_BYTES, LIST_COUNT, LIST_SHIFT, LOADED, LOADING_COUNT, UNREFERENCED,
        WordSpace,
    },
};
use crate::{
    Error, Result,
    io::{AlignedBuffer, File},
    journal::read_all_blocks,
    util::{
        codec::{crc32c, to_usize},
        mutant::mutant,
        sync::{MutexGuard, Ordering, lock, yield_now},
    },
};

impl WordSpace {
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
    pub(super) fn read_image(
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

    pub(super) fn verify(&self, image: Image, buffer: &AlignedBuffer) -> Result<()> {
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
}
