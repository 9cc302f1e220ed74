//! Flushing, publishing, eviction and warming: what keeps files and memory in step.
//!
//! persist: freeze what is in the chunks -> wait for writers that did not see it -> sync the log
//! -> write -> sync the data -> publish in the manifest -> free what the publication dropped.

use std::{
    mem,
    sync::{Arc, OnceLock},
};

use super::{
    Chunk, HashLog, Large,
    arena::EXTENT_HEAD_UNITS,
    entry::{Kind, LargeRef, Stored, UNIT_BYTES, seal},
    files::{CHUNK_MAGIC, DataFiles, EXTENT_HEAD_BYTES, ExtentHead, LARGE_MAGIC, Owner, Place},
    manifest::{Commit, Extent, Hint, LargeRecord, Manifest, encode_hints},
};
use crate::{
    Error, Result,
    codec::{Lsn, crc32c, round_up, to_u64, to_usize},
    disk::{AlignedBuffer, BLOCK_BYTES, Dir},
    sync::{Ordering, lock, read, write},
};

/// Extents start at blocks.
const BLOCK_UNITS: u64 = BLOCK_BYTES / 8;
/// A cold read fetches at most this much, unless an entry turns out to be larger.
const SPAN_UNITS_MAX: u64 = BLOCK_UNITS;
/// A manifest is rewritten when it is half as large again as what it says needs, and this.
const MANIFEST_BYTES_MIN: u64 = 32 << 10;
/// Chunks that one call of `compact` loads into memory.
const WARM_STEP: usize = 16;

/// What belongs to the one thread that maintains the table.
#[derive(Debug)]
pub(super) struct Maintenance {
    pub(super) files: DataFiles,
    pub(super) manifest: Option<Manifest>,
    /// The chunk that compaction copies to.
    pub(super) cold: Option<Arc<Chunk>>,
    /// Chunks without anything live, for the next publication to drop.
    pub(super) retired: Vec<Arc<Chunk>>,
    /// Large values likewise.
    pub(super) dead_larges: Vec<u64>,
    /// Written and not yet published, with their hints.
    pub(super) pending: Vec<(Extent, Vec<u8>)>,
    pub(super) pending_larges: Vec<Arc<Large>>,
    pub(super) complete: u64,
    /// Bytes that the manifest would take, written anew.
    pub(super) manifest_needed: u64,
    /// A failed sync is final.
    failed: Option<Error>,
}

impl Maintenance {
    pub(super) fn new(dir: Arc<dyn Dir>, owner: Owner) -> Self {
        Self {
            files: DataFiles::new(dir, owner, 0),
            manifest: None,
            cold: None,
            retired: Vec::new(),
            dead_larges: Vec::new(),
            pending: Vec::new(),
            pending_larges: Vec::new(),
            complete: 0,
            manifest_needed: 0,
            failed: None,
        }
    }
}

/// What an extent takes in the manifest, about.
pub(super) fn manifest_bytes(extent: &Extent) -> u64 {
    140 + extent.entry_count * 8
}

impl HashLog {
    pub(super) fn persist_to(&self, up_to: Lsn) -> Result<Lsn> {
        let mut maintenance = lock(&self.maintenance);
        self.publish(&mut maintenance, up_to.0)?;
        Ok(Lsn(maintenance.complete))
    }

    /// Makes everything applied so far durable in the files, and says that they are complete to
    /// `complete`.
    pub(super) fn publish(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        if let Some(error) = &maintenance.failed {
            return Err(error.clone());
        }
        if self.context.read_only {
            return Err(Error::ReadOnly);
        }
        self.publish_wanted.store(false, Ordering::Relaxed);
        // Before the freeze: what replaced these is applied, so this publication holds it.
        maintenance.dead_larges.append(&mut lock(&self.dead_larges));
        self.freeze();
        self.context.host.sync_log()?;
        self.write_ended(maintenance)?;
        self.write_larges(maintenance)?;
        let complete = complete.max(maintenance.complete);
        let idle = maintenance.pending.is_empty()
            && maintenance.retired.is_empty()
            && maintenance.dead_larges.is_empty()
            && maintenance.pending_larges.is_empty();
        if idle && complete == maintenance.complete {
            return Ok(());
        }
        if let Err(error) = self.commit(maintenance, complete) {
            maintenance.failed = Some(error.clone());
            return Err(error);
        }
        self.free_dropped(maintenance)?;
        self.rewrite_manifest(maintenance)?;
        self.count_bytes(maintenance);
        Ok(())
    }

    /// Ends the extents that have entries. Afterwards nothing in them changes.
    fn freeze(&self) {
        let chunks: Vec<Arc<Chunk>> = read(&self.chunks).values().cloned().collect();
        for chunk in chunks {
            let mut flush = lock(&chunk.flush);
            if flush.sealed || chunk.retired.load(Ordering::Relaxed) {
                continue;
            }
            let (used, sealed) = self.arena.used(chunk.id);
            if used == flush.start + EXTENT_HEAD_UNITS && !sealed {
                continue;
            }
            let (end, sealed) = self.arena.end_extent(chunk.id, BLOCK_UNITS);
            self.arena.freeze(chunk.id, end);
            let start = mem::replace(&mut flush.start, end.next_multiple_of(BLOCK_UNITS));
            if end > start + EXTENT_HEAD_UNITS {
                flush.ended.push((start, end));
            }
            flush.sealed = sealed;
        }
        self.counters.unflushed_units.store(0, Ordering::Relaxed);
        self.index.wait_for_writers();
    }

    /// Writes frozen extents to the data files, not durably, and keeps them for the next
    /// publication.
    fn write_ended(&self, maintenance: &mut Maintenance) -> Result<()> {
        let chunks: Vec<Arc<Chunk>> = read(&self.chunks).values().cloned().collect();
        for chunk in chunks {
            loop {
                let (next, sealed) = {
                    let flush = lock(&chunk.flush);
                    (flush.ended.first().copied(), flush.sealed)
                };
                let Some((start, end)) = next else {
                    if sealed {
                        chunk.written.store(true, Ordering::Release);
                    }
                    break;
                };
                let (extent, hints) =
                    self.write_extent(maintenance, &chunk, (start, end), sealed)?;
                maintenance.pending.push((extent, hints));
                let mut flush = lock(&chunk.flush);
                flush.extents.push(extent);
                flush.ended.remove(0);
            }
        }
        Ok(())
    }

    fn write_extent(
        &self,
        maintenance: &mut Maintenance,
        chunk: &Chunk,
        (start, end): (u64, u64),
        sealed: bool,
    ) -> Result<(Extent, Vec<u8>)> {
        let now = self.context.env.unix_millis();
        let place = if let Some(place) = chunk.place.get() {
            place.clone()
        } else {
            let bytes = if sealed { end * 8 } else { self.arena.chunk_bytes() };
            let place = maintenance.files.place(bytes, now)?;
            chunk.place.get_or_init(|| place).clone()
        };
        let bytes = to_usize((end - start) * 8);
        let mut buffer = AlignedBuffer::zeroed(bytes);
        let image = buffer.as_mut_slice().get_mut(..bytes).unwrap_or(&mut []);
        let words = self.arena.words(chunk.id).unwrap_or(&[]);
        let words = words.get(to_usize(start)..to_usize(end)).unwrap_or(&[]);
        for (out, word) in image.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let mut head = ExtentHead {
            serial: chunk.serial,
            order: chunk.order,
            start: u32::try_from(start).unwrap_or(u32::MAX),
            end: u32::try_from(end).unwrap_or(u32::MAX),
            first_lsn: u64::MAX,
            created: chunk.created,
            updated: now,
            capacity: self.arena.chunk_bytes(),
            ..ExtentHead::default()
        };
        let (hints, widest) = self.seal_entries(image, start, &mut head)?;
        head.body_crc = crc32c(image.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]));
        if let Some(front) = image.get_mut(..EXTENT_HEAD_BYTES) {
            front.copy_from_slice(&head.encode(CHUNK_MAGIC, &self.owner));
        }
        maintenance.files.write(&place, start * 8, buffer.as_slice())?;
        let average = (end - start) / u64::from(head.entry_count).max(1) * 2;
        let span = if widest <= SPAN_UNITS_MAX { widest } else { average.min(SPAN_UNITS_MAX) };
        let span = chunk.span.fetch_max(span, Ordering::Relaxed).max(span);
        let extent = Extent {
            chunk: chunk.id,
            serial: chunk.serial,
            order: chunk.order,
            created: chunk.created,
            file: place.file.number,
            offset: place.offset,
            place_bytes: place.bytes,
            start,
            end,
            entry_count: u64::from(head.entry_count),
            body_crc: u64::from(head.body_crc),
            first_lsn: head.first_lsn,
            last_lsn: head.last_lsn,
            sealed: u64::from(sealed),
            span,
        };
        Ok((extent, hints))
    }

    /// Puts checksums into the entries of an extent's image and collects their hints.
    fn seal_entries(
        &self,
        image: &mut [u8],
        start: u64,
        head: &mut ExtentHead,
    ) -> Result<(Vec<u8>, u64)> {
        let mut hints = Vec::with_capacity(image.len() / 64);
        let mut widest = 0;
        let mut at = EXTENT_HEAD_BYTES;
        while at < image.len() {
            let rest = image.get_mut(at..).unwrap_or(&mut []);
            let found = Stored::head(rest).map(|head| (head, head.units() * UNIT_BYTES));
            let Some((entry, bytes)) = found.filter(|(_, bytes)| *bytes <= rest.len()) else {
                return Err(self.broken("an entry in memory has no head"));
            };
            let unit = to_usize(start) + at / UNIT_BYTES;
            let rest = rest.get_mut(..bytes).unwrap_or(&mut []);
            seal(rest, head.serial, unit);
            let key = rest.get(entry.key_at()..entry.value_at()).unwrap_or(&[]);
            let value = rest.get(entry.value_at()..entry.bytes()).unwrap_or(&[]);
            let (kind, large) = match entry.kind {
                Kind::Put => (0, 0),
                Kind::Tombstone => (1, 0),
                Kind::Large => (2, LargeRef::decode(value).map_or(0, |large| large.number)),
            };
            let payload = to_u64(entry.key_bytes + entry.value_bytes);
            let wide = u64::from(entry.key_at() == 24);
            hints.push(Hint { hash: self.hash(key), payload, wide, kind, large });
            head.entry_count += 1;
            head.first_lsn = head.first_lsn.min(entry.lsn);
            head.last_lsn = head.last_lsn.max(entry.lsn);
            widest = widest.max(to_u64(entry.units()));
            at += bytes;
        }
        Ok((encode_hints(&hints), widest))
    }

    fn broken(&self, what: &str) -> Error {
        Error::TableFailed { table: self.context.table_id.to_string(), reason: what.to_owned() }
    }

    /// Writes large values that are not in the files yet.
    fn write_larges(&self, maintenance: &mut Maintenance) -> Result<()> {
        let larges: Vec<Arc<Large>> = read(&self.larges).values().cloned().collect();
        for large in larges {
            if large.written.load(Ordering::Relaxed) {
                continue;
            }
            let (bytes, place) = {
                let held = lock(&large.bytes);
                let Some(bytes) = held.clone() else { continue };
                let place = self.place_large(maintenance, &large.place, bytes.len())?;
                (bytes, place)
            };
            let now = self.context.env.unix_millis();
            let head = ExtentHead {
                serial: large.number,
                body_crc: crc32c(&bytes),
                first_lsn: large.lsn,
                last_lsn: large.lsn,
                created: now,
                updated: now,
                capacity: large.length,
                ..ExtentHead::default()
            };
            let mut buffer = AlignedBuffer::zeroed(EXTENT_HEAD_BYTES + bytes.len());
            let (front, back) = buffer.as_mut_slice().split_at_mut(EXTENT_HEAD_BYTES);
            front.copy_from_slice(&head.encode(LARGE_MAGIC, &self.owner));
            back[..bytes.len()].copy_from_slice(&bytes);
            maintenance.files.write(&place, 0, buffer.as_slice())?;
            large.written.store(true, Ordering::Release);
            maintenance.pending_larges.push(large);
        }
        Ok(())
    }

    fn place_large(
        &self,
        maintenance: &mut Maintenance,
        slot: &OnceLock<Place>,
        length: usize,
    ) -> Result<Place> {
        if let Some(place) = slot.get() {
            return Ok(place.clone());
        }
        let bytes = round_up(to_u64(EXTENT_HEAD_BYTES + length), BLOCK_BYTES);
        let place = maintenance.files.place(bytes, self.context.env.unix_millis())?;
        Ok(slot.get_or_init(|| place).clone())
    }

    /// Syncs the data and publishes it.
    fn commit(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        maintenance.files.sync()?;
        let commit = Commit {
            sequence: 0,
            complete,
            next_serial: lock(&self.roll).next_serial,
            next_large: self.next_large.load(Ordering::Relaxed),
            next_file: maintenance.files.next_number(),
            collided: u64::from(self.collided.load(Ordering::Relaxed)),
        };
        let dir = &self.context.dir;
        let manifest = match &mut maintenance.manifest {
            Some(manifest) => manifest,
            none => {
                let first = Commit { complete: 0, ..commit };
                none.insert(Manifest::create(dir, self.owner, 1, None, first)?)
            }
        };
        manifest.begin();
        for (extent, hints) in &maintenance.pending {
            manifest.add_extent(extent, hints);
        }
        for large in &maintenance.pending_larges {
            if let Some(place) = large.place.get() {
                manifest.add_large(&LargeRecord {
                    number: large.number,
                    lsn: large.lsn,
                    file: place.file.number,
                    offset: place.offset,
                    place_bytes: place.bytes,
                    bytes: large.length,
                });
            }
        }
        for chunk in &maintenance.retired {
            manifest.add_drop(chunk.id, chunk.serial);
        }
        for number in &maintenance.dead_larges {
            manifest.add_drop_large(*number);
        }
        manifest.commit(commit)?;
        maintenance.complete = complete;
        let added: u64 = maintenance.pending.iter().map(|(extent, _)| manifest_bytes(extent)).sum();
        maintenance.manifest_needed += added;
        maintenance.pending.clear();
        maintenance.pending_larges.clear();
        Ok(())
    }

    /// Gives back what the last publication dropped.
    fn free_dropped(&self, maintenance: &mut Maintenance) -> Result<()> {
        let mut outcome = Ok(());
        for chunk in mem::take(&mut maintenance.retired) {
            write(&self.chunks).remove(&chunk.id);
            self.release_frame(chunk.id);
            let needed: u64 = lock(&chunk.flush).extents.iter().map(manifest_bytes).sum();
            maintenance.manifest_needed = maintenance.manifest_needed.saturating_sub(needed);
            if let Some(place) = chunk.place.get() {
                outcome = outcome.and(maintenance.files.free(place));
            }
            lock(&self.roll).free_ids.push(chunk.id);
        }
        for number in mem::take(&mut maintenance.dead_larges) {
            if let Some(large) = self.remove_large(number)
                && let Some(place) = large.place.get()
            {
                outcome = outcome.and(maintenance.files.free(place));
            }
        }
        outcome
    }

    fn rewrite_manifest(&self, maintenance: &mut Maintenance) -> Result<()> {
        let Some(old) = &maintenance.manifest else { return Ok(()) };
        if old.bytes() < MANIFEST_BYTES_MIN + maintenance.manifest_needed * 3 / 2 {
            return Ok(());
        }
        let contents = old.reread()?;
        let dir = &self.context.dir;
        let from = Some((old, &contents));
        let new = Manifest::create(dir, self.owner, old.number() + 1, from, contents.commit)?;
        self.counters.written_bytes_total.fetch_add(old.written_bytes, Ordering::Relaxed);
        maintenance.manifest = Some(new);
        Ok(())
    }

    pub(super) fn count_bytes(&self, maintenance: &Maintenance) {
        let counters = &self.counters;
        counters.data_bytes.store(maintenance.files.file_bytes(), Ordering::Relaxed);
        let manifest = maintenance.manifest.as_ref();
        counters.manifest_bytes.store(manifest.map_or(0, Manifest::bytes), Ordering::Relaxed);
        let written =
            maintenance.files.written_bytes + manifest.map_or(0, |manifest| manifest.written_bytes);
        counters.written_bytes_total.fetch_max(written, Ordering::Relaxed);
    }

    /// Writes what is frozen and what can be frozen, so that chunks may leave memory. Nothing is
    /// published.
    pub(super) fn flush_for_room(&self) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        if maintenance.failed.is_some() || self.context.read_only {
            return Ok(());
        }
        let hot = self.hot.load(Ordering::Acquire);
        if let Some(chunk) = hot.checked_sub(1) {
            self.arena.seal(chunk);
        }
        self.freeze();
        self.write_ended(&mut maintenance)?;
        self.write_larges(&mut maintenance)?;
        let waiting = maintenance.pending.len();
        if to_u64(waiting) >= self.mutable_chunks {
            self.publish_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
        Ok(())
    }

    /// Takes the coldest written chunk out of memory; its frame is free then.
    pub(super) fn evict_one(&self) -> bool {
        let _residency = lock(&self.residency);
        let coldest = read(&self.chunks)
            .values()
            .filter(|chunk| chunk.written.load(Ordering::Acquire))
            .filter(|chunk| self.arena.is_resident(chunk.id))
            .min_by_key(|chunk| (chunk.order, chunk.serial))
            .cloned();
        let Some(chunk) = coldest else { return self.evict_large() };
        if let Some(frame) = self.arena.detach(chunk.id) {
            self.arena.give_frame(frame);
            self.counters.evicted_total.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn evict_large(&self) -> bool {
        for large in read(&self.larges).values() {
            if large.written.load(Ordering::Acquire)
                && let Some(bytes) = lock(&large.bytes).take()
            {
                self.context.budget.give(to_u64(bytes.len()));
                return true;
            }
        }
        false
    }

    /// Takes a chunk that nothing refers to out of memory.
    pub(super) fn release_frame(&self, chunk: u64) {
        let _residency = lock(&self.residency);
        if let Some(frame) = self.arena.detach(chunk) {
            self.arena.give_frame(frame);
        }
    }

    /// Loads a chunk into memory, verified, if the budget has a frame for it.
    pub(super) fn warm(&self, id: u64) -> Result<bool> {
        let Some(chunk) = self.chunk(id) else { return Ok(false) };
        let image = match self.read_chunk(&chunk) {
            Ok(image) => image,
            // Dropped while it was read.
            Err(_) if self.chunk(id).is_none_or(|now| now.serial != chunk.serial) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let extents = lock(&chunk.flush).extents.clone();
        let _residency = lock(&self.residency);
        let same = self.chunk(id).is_some_and(|now| now.serial == chunk.serial)
            && !chunk.retired.load(Ordering::Relaxed);
        if !same || self.arena.is_resident(id) {
            return Ok(same);
        }
        let Some(frame) = self.arena.take_frame(false) else { return Ok(false) };
        let words = self.arena.frame(frame);
        for (word, bytes) in words.iter().zip(image.as_slice().as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        for extent in &extents {
            let mut unit = to_usize(extent.start + EXTENT_HEAD_UNITS);
            while unit < to_usize(extent.end) {
                let bytes = image.as_slice().get(unit * UNIT_BYTES..).unwrap_or(&[]);
                let Some(head) = Stored::head(bytes) else { break };
                // The checksum's place is the version's.
                if let Some(word) = words.get(unit) {
                    let first = word.load(Ordering::Relaxed);
                    word.store(first & !0xffff_ffff, Ordering::Relaxed);
                }
                unit += head.units();
            }
        }
        self.arena.attach(id, frame);
        Ok(true)
    }

    /// The bytes of a written chunk, from its file, verified.
    pub(super) fn read_chunk(&self, chunk: &Chunk) -> Result<AlignedBuffer> {
        let extents = lock(&chunk.flush).extents.clone();
        let end = extents.iter().map(|extent| extent.end).max().unwrap_or(0);
        let Some(place) = chunk.place.get() else { return Ok(AlignedBuffer::zeroed(0)) };
        if end * 8 > place.bytes {
            return Err(place.damage(0, "the manifest names more of the chunk than it has place"));
        }
        let (buffer, _) = place.read(0, to_usize(end * 8))?;
        for extent in &extents {
            self.verify_extent(place, extent, buffer.as_slice())?;
        }
        Ok(buffer)
    }

    /// Verifies head and body of an extent within its chunk's bytes.
    pub(super) fn verify_extent(&self, place: &Place, extent: &Extent, chunk: &[u8]) -> Result<()> {
        let from = extent.start * 8;
        let bytes = chunk.get(to_usize(from)..to_usize(extent.end * 8)).unwrap_or(&[]);
        let head = ExtentHead::decode(bytes, CHUNK_MAGIC, &self.owner)
            .map_err(|what| place.damage(from, what))?;
        let named = (head.serial, head.order, u64::from(head.start), u64::from(head.end));
        if named != (extent.serial, extent.order, extent.start, extent.end) {
            return Err(place.damage(from, "another extent is here"));
        }
        let body = crc32c(bytes.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]));
        if u64::from(body) != extent.body_crc || body != head.body_crc {
            return Err(place.damage(from, "the checksum of the extent does not match"));
        }
        Ok(())
    }

    /// Loads a few chunks into memory while there is room: the youngest first.
    pub(super) fn warm_step(&self) -> Result<()> {
        let mut chunks: Vec<Arc<Chunk>> = read(&self.chunks)
            .values()
            .filter(|chunk| chunk.written.load(Ordering::Relaxed))
            .filter(|chunk| !chunk.retired.load(Ordering::Relaxed))
            .filter(|chunk| !self.arena.is_resident(chunk.id))
            .cloned()
            .collect();
        chunks.sort_unstable_by_key(|chunk| (chunk.order, chunk.serial));
        if chunks.len() <= WARM_STEP {
            self.warm_wanted.store(false, Ordering::Relaxed);
        }
        for chunk in chunks.iter().rev().take(WARM_STEP) {
            if !self.has_room_to_warm() || !self.warm(chunk.id)? {
                break;
            }
        }
        Ok(())
    }
}
