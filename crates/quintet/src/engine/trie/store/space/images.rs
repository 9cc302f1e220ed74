//! Images of regions: built from the previous image and the committed changes, written to free
//! slots.
//!
//! Only checkpoints change images, and maintenance makes one at a time. So code here may read the
//! images' metadata, release the lock of `disk`, and rely on it.

use std::sync::Arc;

use super::{
    space_file::{Image, NewImages, SpaceFile, apply_pending},
    word_space::{MAGIC, NAME, WordSpace},
};
use crate::{
    Error, Result,
    io::{AlignedBuffer, Env, Queue, Request},
    journal::{FileHead, write_back::Writeback},
    util::{
        codec::{Decoder, crc32c, put_u32, put_varint, to_u64, to_usize},
        mutant::mutant,
        report::Report,
        sync::{Ordering, lock},
    },
};

/// The most images that are read or written at the same time.
const IMAGES_AT_ONCE: usize = 32;

impl WordSpace {
    /// The regions whose changes have waited longest: those that wait since a group up to `last`,
    /// and as many more as leave at most `changes_max` changes.
    fn overdue(&self, changes_max: u64, last: u64) -> Vec<u64> {
        let disk = lock(&self.disk);
        let regions = disk.pending.iter();
        let mut regions: Vec<(u64, u64, u64)> = regions
            .map(|(region, pending)| (pending.since, *region, to_u64(pending.changes.len())))
            .collect();
        drop(disk);
        regions.sort_unstable();
        let mut left: u64 = regions.iter().map(|(_, _, changes)| changes).sum();
        let is_due = |(since, _, changes): &&(u64, u64, u64)| {
            let due = *since <= last || left > changes_max;
            left -= changes;
            due
        };
        regions.iter().take_while(is_due).map(|(_, region, _)| *region).collect()
    }

    /// The oldest group of the journal that is needed beside these images and the next group.
    pub(crate) fn needed_beside(&self, images: &NewImages) -> u64 {
        let disk = lock(&self.disk);
        let kept = disk.pending.iter().filter(|(region, _)| !images.new.contains_key(region));
        kept.map(|(_, pending)| pending.since).min().unwrap_or(u64::MAX)
    }

    /// Writes new images and syncs them: of the regions whose changes wait since a group up to
    /// `last`, and of those that wait longest until at most `changes_max` changes wait. Buffers
    /// take `buffer_bytes`, but at least one for reading and one for writing.
    ///
    /// The images become valid when the state of the next group ([`Self::encode`]) is durable; then
    /// call [`Self::install_images`].
    pub(crate) fn write_images(
        &self,
        env: &dyn Env,
        changes_max: u64,
        last: u64,
        buffer_bytes: u64,
    ) -> Result<NewImages> {
        let regions = self.overdue(changes_max, last);
        if regions.is_empty() {
            return Ok(NewImages::default());
        }
        let at_once = to_usize(buffer_bytes / 2 / self.region_bytes()).clamp(1, IMAGES_AT_ONCE);
        let mut writes = Writeback::bounded(env, to_u64(at_once) * self.region_bytes())?;
        let mut reads = env.queue(at_once).map_err(|error| {
            Error::io(format!("set up a queue to read {}", self.label()), error)
        })?;
        let mut images = NewImages::default();
        let mut outcome = Ok(());
        for some in regions.chunks(at_once) {
            outcome = outcome
                .and_then(|()| self.renew_images(some, &mut *reads, &mut writes, &mut images));
        }
        let finished = writes.finish();
        images.written_bytes = writes.written_bytes();
        match outcome.and(finished).and_then(|()| self.sync_images()) {
            Ok(()) => Ok(images),
            Err(error) => {
                self.discard_images(&images);
                Err(error)
            }
        }
    }

    /// Syncs the file, if there is one.
    fn sync_images(&self) -> Result<()> {
        mutant!(ImagesSkipSync => return Ok(()));
        match &lock(&self.disk).file {
            Some(file) => {
                file.sync_data().map_err(|error| Error::io(format!("sync {}", self.label()), error))
            }
            None => Ok(()),
        }
    }

    /// Reads the images of some regions at the same time, and queues writes of their new images.
    fn renew_images(
        &self,
        regions: &[u64],
        reads: &mut dyn Queue,
        writes: &mut Writeback,
        images: &mut NewImages,
    ) -> Result<()> {
        let length = to_usize(self.region_bytes());
        let mut done = Vec::new();
        for region in regions {
            let disk = lock(&self.disk);
            match (disk.images.get(region), &disk.file) {
                (Some(image), Some(file)) => {
                    let (file, offset) = (Arc::clone(file), self.slot_offset(image.slot));
                    drop(disk);
                    let buffer = writes.buffer(length);
                    reads.submit(*region, Request::Read { file, offset, buffer, length });
                }
                (Some(_), None) => return Err(self.damage(0, "the file is missing")),
                (None, _) => {
                    drop(disk);
                    let buffer = AlignedBuffer::zeroed(length);
                    self.renew_image(*region, buffer, writes, images)?;
                }
            }
        }
        let mut outcome = Ok(());
        while reads.pending() > 0 {
            reads.wait(1, &mut done);
            for completion in done.drain(..) {
                let (region, buffer) = (completion.token, completion.buffer);
                let image = lock(&self.disk).images.get(&region).copied();
                let io = |error| Error::io(format!("read {}", self.label()), error);
                outcome = outcome
                    .and_then(|()| completion.result.map_err(io))
                    .and_then(|_| image.map_or(Ok(()), |image| self.verify(image, &buffer)))
                    .and_then(|()| self.renew_image(region, buffer, writes, images));
            }
        }
        outcome
    }

    /// Queues the write of a region's new image, with its committed changes, to a free slot.
    fn renew_image(
        &self,
        region: u64,
        mut buffer: AlignedBuffer,
        writes: &mut Writeback,
        images: &mut NewImages,
    ) -> Result<()> {
        let mut disk = lock(&self.disk);
        apply_pending(disk.pending.get(&region), buffer.as_mut_slice());
        let file = match &disk.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(disk.file.insert(self.head().create(&self.owner, NAME)?)),
        };
        let slot = disk.free.pop().unwrap_or_else(|| {
            disk.slot_count += 1;
            disk.slot_count - 1
        });
        drop(disk);
        images.new.insert(region, Image { slot, crc: crc32c(buffer.as_slice()) });
        let length = buffer.len();
        writes.write((&file, NAME), self.slot_offset(slot), buffer, length);
        Ok(())
    }

    /// Frees the slots of images that will not become valid.
    pub(crate) fn discard_images(&self, images: &NewImages) {
        lock(&self.disk).free.extend(images.new.values().map(|image| image.slot));
    }

    /// Makes the images the valid ones: frees the slots of those that they replace, and drops the
    /// changes in them.
    pub(crate) fn install_images(&self, images: NewImages) {
        let mut disk = lock(&self.disk);
        let mut replaced = Vec::new();
        for (region, image) in images.new {
            replaced.extend(disk.images.insert(region, image).map(|old| old.slot));
            let dropped = disk.pending.remove(&region).map_or(0, |pending| pending.changes.len());
            self.pending.fetch_sub(to_u64(dropped), Ordering::Relaxed);
        }
        self.free_slots(&mut disk, &replaced);
    }

    /// Drops the images and the committed changes of words from `end` on. A durable state says that
    /// none of these words is used.
    pub(crate) fn drop_beyond(&self, end: u64) {
        let region = end.div_ceil(self.region_words());
        let mut disk = lock(&self.disk);
        let pending = disk.pending.split_off(&region);
        let dropped: usize = pending.values().map(|pending| pending.changes.len()).sum();
        self.pending.fetch_sub(to_u64(dropped), Ordering::Relaxed);
        let images = disk.images.split_off(&region);
        if !images.is_empty() {
            let replaced: Vec<u64> = images.values().map(|image| image.slot).collect();
            self.free_slots(&mut disk, &replaced);
        }
    }

    /// The end of the words that are in an image or a committed change.
    pub(crate) fn known_end(&self) -> u64 {
        let disk = lock(&self.disk);
        let last = [disk.images.keys().last(), disk.pending.keys().last()];
        last.into_iter().flatten().max().map_or(0, |last| (last + 1) << self.region_bits)
    }

    /// Adds slots to the free ones, truncates the file after the last used slot, and punches holes.
    fn free_slots(&self, disk: &mut SpaceFile, replaced: &[u64]) {
        disk.free.extend(replaced);
        disk.free.sort_unstable_by(|one, next| next.cmp(one));
        let count = disk.slot_count;
        while disk.slot_count > 0 && disk.free.first() == Some(&(disk.slot_count - 1)) {
            disk.free.remove(0);
            disk.slot_count -= 1;
        }
        if let Some(file) = &disk.file {
            // File systems without this keep the space; the slots are free either way.
            if disk.slot_count < count {
                let _ = file.set_len(self.slot_offset(disk.slot_count));
            }
            for slot in replaced.iter().filter(|slot| **slot < disk.slot_count) {
                let _ = file.punch_hole(self.slot_offset(*slot), self.region_bytes());
            }
        }
    }

    /// Appends the slot and the checksum of each region's image, as of `images`. No word from `end`
    /// on is used.
    pub(crate) fn encode(&self, images: &NewImages, end: u64, out: &mut Vec<u8>) {
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

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else.
    pub(crate) fn decode(&self, rest: &mut Decoder<'_>) -> Option<()> {
        let mut disk = lock(&self.disk);
        disk.images.clear();
        for _ in 0..rest.varint()? {
            let (region, image) = decode_image(rest)?;
            let fits = region < self.words_max() >> self.region_bits && image.slot < 1 << 32;
            if !fits || disk.images.insert(region, image).is_some() {
                return None;
            }
        }
        Some(())
    }

    /// Opens the file, after the state was decoded. Fails with [`Error::Corruption`] if it is
    /// missing, or if two regions have the same slot.
    pub(crate) fn open_file(&self) -> Result<()> {
        let mut disk = lock(&self.disk);
        if disk.images.is_empty() {
            // A file without a valid image may be incomplete: the first image creates it again.
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
        FileHead::new(*MAGIC, &self.owner, self.region_bytes())
    }

    /// Verifies every image and adds the findings to `report`. The caller keeps other images from
    /// being written.
    pub(crate) fn check(&self, report: &mut Report) -> Result<()> {
        let (file, images) = {
            let disk = lock(&self.disk);
            (disk.file.clone(), disk.images.values().copied().collect::<Vec<_>>())
        };
        let mut buffer = AlignedBuffer::zeroed(to_usize(self.region_bytes()));
        for image in images {
            match self.read_image(file.clone(), image, &mut buffer) {
                Ok(()) => report.checked_bytes += to_u64(buffer.len()),
                Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Bytes of images in the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        to_u64(lock(&self.disk).images.len()) * self.region_bytes()
    }
}

/// Decodes a region with its image.
fn decode_image(rest: &mut Decoder<'_>) -> Option<(u64, Image)> {
    Some((rest.varint()?, Image { slot: rest.varint()?, crc: rest.u32()? }))
}

impl WordSpace {
    /// Describes the state that [`WordSpace::encode`] wrote: where regions of the trie space have
    /// their images. Returns `None` for anything else.
    pub(crate) fn describe_state(rest: &mut Decoder<'_>, lines: &mut Vec<String>) -> Option<()> {
        let count = rest.varint()?;
        lines.push(format!("    {count} regions with images in the file"));
        for _ in 0..count {
            let (region, Image { slot, crc }) = decode_image(rest)?;
            lines.push(format!("    region {region}: slot {slot}, checksum {crc:08x}"));
        }
        Some(())
    }
}
