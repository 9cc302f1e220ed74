//! Flush: writes the chunks in memory to the data files.
//!
//! A flush freezes the open extents, writes them, and syncs. Until then their chunk stays in
//! memory. If a file fails, data not known to be durable in it moves: the whole chunk is written
//! again to another file range, because an uncompressed chunk has one range.
//!
//! Locks: the caller holds `maintenance`. A chunk's `flush` lock is held for one step at a time,
//! never across a write.

use std::{mem, sync::Arc};

use super::{
    arena::EXTENT_HEAD_UNITS,
    chunk::Chunk,
    entry::{EntryKind, LargeRef, StoredEntry, UNIT_BYTES, seal},
    files::{CHUNK_MAGIC, DataFiles, EXTENT_HEAD_BYTES, ExtentHead, FileRange, LARGE_MAGIC},
    large_value::{LargeState, LargeValue},
    maintenance::{Maintenance, PendingExtent},
    manifest::{Extent, IndexHint, encode_hints},
    table::HashLog,
};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES},
    util::{
        codec::{Lsn, crc32c, crc32c_append, low_u32, move_to, round_up, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, Mutex, Ordering, lock, read, write},
    },
};

/// Units of a disk block. Extents start at multiples of it.
const BLOCK_UNITS: u64 = BLOCK_BYTES / 8;
/// Maximum number of units of a read of one entry. A larger entry takes a second read.
const SPAN_UNITS_MAX: u64 = BLOCK_UNITS;

/// Bytes of one write of a large value: a multiple of the block.
const PIECE_BYTES: usize = 1 << 20;
/// Hints that await a checkpoint may take the budget divided by this.
const HINTS_PART: u64 = 32;

impl HashLog {
    /// Ends and freezes the extents that have entries, and waits for writers. Nothing in these
    /// extents changes afterwards.
    pub(super) fn freeze(&self) {
        let chunks: Vec<Arc<Chunk>> = read(&self.chunks).values().cloned().collect();
        for chunk in chunks {
            mutant!(HashlogLosesMovedEntries => if chunk.order % 2 == 1 { continue; });
            let mut flush = lock(&chunk.flush);
            if flush.sealed || chunk.retired.load(Ordering::Relaxed) {
                continue;
            }
            let (used, sealed) = self.arena.used(chunk.id);
            if used == flush.start + EXTENT_HEAD_UNITS && !sealed {
                continue;
            }
            let (end, sealed) = self.arena.end_extent(chunk.id, BLOCK_UNITS);
            self.arena.freeze_below(chunk.id, end);
            let start = mem::replace(&mut flush.start, end.next_multiple_of(BLOCK_UNITS));
            if end > start + EXTENT_HEAD_UNITS {
                flush.ended.push((start, end));
            }
            flush.sealed = sealed;
        }
        self.counters.unflushed_units.store(0, Ordering::Relaxed);
        self.index.wait_for_writers();
    }

    /// Writes frozen extents and large values that are not in the files yet. Does not sync. If the
    /// disk has no space for one, writes the others that have their space, and fails with
    /// `DiskFull`.
    pub(super) fn write_frozen(&self, maintenance: &mut Maintenance) -> Result<()> {
        let mut outcome = Ok(());
        let chunks: Vec<Arc<Chunk>> = read(&self.chunks).values().cloned().collect();
        for chunk in chunks {
            let is_tried = outcome.is_ok() || chunk.file_range().is_some();
            if is_tried && !chunk.written.load(Ordering::Relaxed) {
                Self::detach_from_failed_file(maintenance, &chunk);
                match self.write_ended_beside_frames(maintenance, &chunk) {
                    Err(error @ Error::DiskFull { .. }) => outcome = outcome.and(Err(error)),
                    written => written?,
                }
            }
        }
        let larges: Vec<Arc<LargeValue>> = read(&self.larges).values().cloned().collect();
        for large in larges {
            let is_tried = outcome.is_ok() || large.file_range().is_some();
            if is_tried && !large.written.load(Ordering::Relaxed) {
                match self.write_large(maintenance, &large) {
                    Err(error @ Error::DiskFull { .. }) => outcome = outcome.and(Err(error)),
                    written => written?,
                }
            }
        }
        outcome
    }

    /// As [`Self::write_ended`]. If writers are fast, another thread populates frames for them
    /// during the write. One after the other takes as long as a chunk takes to fill, and the log to
    /// replay grows.
    fn write_ended_beside_frames(
        &self,
        maintenance: &mut Maintenance,
        chunk: &Chunk,
    ) -> Result<()> {
        if !self.arena.is_filling() {
            self.populate_frames();
            return self.write_ended(maintenance, chunk);
        }
        let writing = Mutex::new((maintenance, Ok(())));
        self.context.env.parallel(2, &|task| {
            if task == 0 {
                let (maintenance, outcome) = &mut *lock(&writing);
                *outcome = self.write_ended(maintenance, chunk);
            } else {
                self.populate_frames();
            }
        });
        let mut writing = lock(&writing);
        mem::replace(&mut writing.1, Ok(()))
    }

    /// Writes a chunk's frozen extents and adds them to the next checkpoint.
    fn write_ended(&self, maintenance: &mut Maintenance, chunk: &Chunk) -> Result<()> {
        loop {
            let (next, sealed) = {
                let flush = lock(&chunk.flush);
                (flush.ended.first().copied(), flush.sealed)
            };
            let Some(range) = next else { return Ok(()) };
            let pending = self.write_extent(maintenance, chunk, range, sealed)?;
            let mut flush = lock(&chunk.flush);
            flush.extents.push(pending.extent);
            flush.ended.remove(0);
            maintenance.pending.push(pending);
        }
    }

    /// Syncs the data files. Chunks that are durable may leave memory. After an error, the next
    /// flush writes the data of a failed file to another one.
    pub(super) fn sync_written(&self, maintenance: &mut Maintenance) -> Result<()> {
        let outcome = mutant!(HashlogSkipsDataSync: Ok(()), else maintenance.files.sync());
        let chunks: Vec<Arc<Chunk>> = read(&self.chunks).values().cloned().collect();
        for chunk in chunks {
            if chunk.written.load(Ordering::Relaxed) {
                continue;
            }
            Self::detach_from_failed_file(maintenance, &chunk);
            let mut flush = lock(&chunk.flush);
            flush.durable_count = flush.extents.len();
            if flush.sealed && flush.ended.is_empty() {
                chunk.written.store(true, Ordering::Release);
                if let Some(file_range) = &flush.file_range {
                    let end = flush.extents.last().map_or(0, |last| last.end);
                    DataFiles::trim(file_range, end * to_u64(UNIT_BYTES));
                }
            }
        }
        for large in maintenance.pending_larges.clone() {
            if !Self::detach_large_from_failed_file(maintenance, &large) {
                large.written.store(true, Ordering::Release);
            }
        }
        outcome
    }

    /// Detaches a chunk that is not durable from a failed file: all of its extents are to be
    /// written again.
    fn detach_from_failed_file(maintenance: &mut Maintenance, chunk: &Chunk) {
        let mut flush = lock(&chunk.flush);
        let whole = flush.ended.is_empty() && flush.durable_count == flush.extents.len();
        let mut packed_extents = write(&chunk.packed_extents);
        let file_ranges = flush
            .file_range
            .iter()
            .chain(packed_extents.iter().map(|packed_extent| &packed_extent.file_range));
        let file_ranges: Vec<FileRange> = file_ranges.cloned().collect();
        if whole || !file_ranges.iter().any(|file_range| file_range.file.has_failed()) {
            return;
        }
        flush.file_range = None;
        packed_extents.clear();
        let this =
            |add: &PendingExtent| (add.extent.chunk, add.extent.serial) == (chunk.id, chunk.serial);
        let uncommitted = maintenance.pending.iter().filter(|add| this(add)).count();
        maintenance.pending.retain(|add| !this(add));
        let extents = mem::take(&mut flush.extents);
        let committed = extents.get(..extents.len() - uncommitted).unwrap_or(&[]);
        let needed: u64 = committed.iter().map(Extent::manifest_bytes).sum();
        maintenance.manifest_needed = maintenance.manifest_needed.saturating_sub(needed);
        if committed.is_empty() {
            for file_range in file_ranges {
                maintenance.files.free(file_range);
            }
        } else {
            maintenance.relocated.push((chunk.id, chunk.serial));
            maintenance.old_ranges.extend(file_ranges);
        }
        let ranges = extents.iter().map(|extent| (extent.start, extent.end));
        flush.ended = ranges.chain(mem::take(&mut flush.ended)).collect();
        flush.durable_count = 0;
    }

    /// As [`Self::detach_from_failed_file`], for a large value. Returns whether it was detached.
    fn detach_large_from_failed_file(maintenance: &mut Maintenance, large: &LargeValue) -> bool {
        let mut state = lock(&large.state);
        let failed =
            state.file_range.as_ref().is_some_and(|file_range| file_range.file.has_failed());
        if !failed || large.written.load(Ordering::Relaxed) {
            return false;
        }
        if state.bytes.is_none() {
            // Only the log has it for certain: no checkpoint may succeed.
            maintenance.has_lost_value = true;
            return true;
        }
        maintenance.pending_larges.retain(|other| other.number != large.number);
        if let Some(file_range) = state.file_range.take() {
            maintenance.files.free(file_range);
        }
        state.in_file = false;
        true
    }

    /// Returns the file range of a chunk, and allocates it before the first write.
    fn allocate_chunk(
        &self,
        maintenance: &mut Maintenance,
        chunk: &Chunk,
        now: u64,
    ) -> Result<FileRange> {
        let mut flush = lock(&chunk.flush);
        if let Some(file_range) = &flush.file_range {
            return Ok(file_range.clone());
        }
        let end = flush.ended.last().filter(|_| flush.sealed).map(|(_, end)| *end);
        let bytes = end.map_or(self.arena.segment_bytes(), |end| end * 8);
        let file_range = maintenance.files.allocate(bytes, now)?;
        flush.file_range = Some(file_range.clone());
        Ok(file_range)
    }

    /// Writes the extent of these units, without a sync. Returns its record and hints for the
    /// manifest.
    fn write_extent(
        &self,
        maintenance: &mut Maintenance,
        chunk: &Chunk,
        (start, end): (u64, u64),
        sealed: bool,
    ) -> Result<PendingExtent> {
        let now = self.context.env.unix_millis();
        // Before the image is made: on a full disk this fails again and again.
        let file_range = if self.settings.compresses {
            None
        } else {
            Some(self.allocate_chunk(maintenance, chunk, now)?)
        };
        let bytes = to_usize((end - start) * 8);
        let _image_memory = self.working_memory(to_u64(bytes));
        let mut buffer = AlignedBuffer::zeroed(bytes);
        let image = buffer.as_mut_slice().get_mut(..bytes).unwrap_or(&mut []);
        let words = self.arena.words(chunk.id, 0).unwrap_or(&[]);
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
            capacity: self.arena.segment_bytes(),
            ..ExtentHead::default()
        };
        let (entry_hints, widest) = self.seal_entries(image, start, &mut head)?;
        let mut hints = Vec::new();
        let file_range = if let Some(file_range) = file_range {
            if end * 8 > file_range.bytes {
                return Err(self.broken("a chunk is larger than its file range"));
            }
            head.body_crc = crc32c(image.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]));
            if let Some(front) = image.get_mut(..EXTENT_HEAD_BYTES) {
                front.copy_from_slice(&head.encode(CHUNK_MAGIC, &self.owner));
            }
            maintenance.files.write(&file_range, start * 8, buffer.as_slice())?;
            file_range
        } else {
            let (file_range, directory) =
                self.write_packed(maintenance, chunk, image, &mut head)?;
            hints = directory;
            file_range
        };
        let packing = to_u64(hints.len());
        encode_hints(&mut hints, &entry_hints);
        drop(entry_hints);
        let average = (end - start) / u64::from(head.entry_count).max(1) * 2;
        let span = if widest <= SPAN_UNITS_MAX { widest } else { average.min(SPAN_UNITS_MAX) };
        let span = chunk.span.fetch_max(span, Ordering::Relaxed).max(span);
        let extent = Extent {
            chunk: chunk.id,
            serial: chunk.serial,
            order: chunk.order,
            created: chunk.created,
            file: file_range.file.number,
            offset: file_range.offset,
            range_bytes: file_range.bytes,
            start,
            end,
            entry_count: u64::from(head.entry_count),
            body_crc: u64::from(head.body_crc),
            first_lsn: head.first_lsn,
            last_lsn: head.last_lsn,
            sealed: u64::from(sealed) | packing << 1,
            span,
            hint_bytes: to_u64(hints.len()),
        };
        let memory = self.context.budget.reserve_transient(to_u64(hints.len()));
        Ok(PendingExtent { extent, hints, _memory: memory })
    }

    /// Writes the checksums of the entries in an extent's image, and completes the counts in its
    /// head. Returns the hints, and the units of the largest entry.
    fn seal_entries(
        &self,
        image: &mut [u8],
        start: u64,
        head: &mut ExtentHead,
    ) -> Result<(Vec<IndexHint>, u64)> {
        let mut hints = Vec::with_capacity(image.len() / 64);
        let mut widest = 0;
        let mut at = EXTENT_HEAD_BYTES;
        while at < image.len() {
            let rest = image.get_mut(at..).unwrap_or(&mut []);
            let found = StoredEntry::head(rest).map(|head| (head, head.units() * UNIT_BYTES));
            let Some((entry, bytes)) = found.filter(|(_, bytes)| *bytes <= rest.len()) else {
                return Err(self.broken("an entry in memory has no valid head"));
            };
            let unit = to_usize(start) + at / UNIT_BYTES;
            let rest = rest.get_mut(..bytes).unwrap_or(&mut []);
            seal(rest, head.serial, unit);
            let key = rest.get(entry.key_at()..entry.value_at()).unwrap_or(&[]);
            let value = rest.get(entry.value_at()..entry.bytes()).unwrap_or(&[]);
            let (kind, large) = match entry.kind {
                EntryKind::Put => (0, 0),
                EntryKind::Tombstone => (1, 0),
                EntryKind::Large => (2, LargeRef::decode(value).map_or(0, |large| large.number)),
            };
            let payload = to_u64(entry.key_bytes + entry.value_bytes);
            let wide = u64::from(entry.key_at() == 24);
            hints.push(IndexHint { hash: self.hash(key), payload, wide, kind, large });
            head.entry_count += 1;
            head.first_lsn = head.first_lsn.min(entry.lsn);
            head.last_lsn = head.last_lsn.max(entry.lsn);
            widest = widest.max(to_u64(entry.units()));
            at += bytes;
        }
        Ok((hints, widest))
    }

    /// Writes a large value that is not in the files yet, without a sync.
    fn write_large(&self, maintenance: &mut Maintenance, large: &Arc<LargeValue>) -> Result<()> {
        Self::detach_large_from_failed_file(maintenance, large);
        let now = self.context.env.unix_millis();
        let _memory = self.working_memory(large.length.min(to_u64(PIECE_BYTES)));
        let (bytes, packed, file_range) = {
            let mut state = lock(&large.state);
            let Some(bytes) = state.bytes.clone().filter(|_| !state.in_file) else {
                return Ok(());
            };
            let packed = self.large_body(&bytes);
            let stored = packed.as_ref().map_or(bytes.len(), Vec::len);
            let file_range = match &state.file_range {
                Some(file_range) => file_range.clone(),
                None => maintenance.files.allocate(to_u64(EXTENT_HEAD_BYTES + stored), now)?,
            };
            state.file_range = Some(file_range.clone());
            (bytes, packed, file_range)
        };
        let body: &[u8] = packed.as_deref().unwrap_or(&bytes);
        let packing = packed.as_ref().map_or(0, |packed| to_u64(packed.len()));
        self.write_large_body(maintenance, large, &file_range, (packing, [body, &[]]))?;
        lock(&large.state).in_file = true;
        maintenance.pending_larges.push(Arc::clone(large));
        Ok(())
    }

    /// Writes a large value to its file at once, so that it takes no memory. The next checkpoint
    /// syncs it. Returns `false` if it cannot.
    pub(super) fn write_large_at_once(&self, number: u64, lsn: Lsn, value: [&[u8]; 2]) -> bool {
        if self.context.read_only {
            return false;
        }
        let mut maintenance = lock(&self.maintenance);
        let length = to_u64(value[0].len() + value[1].len());
        let now = self.context.env.unix_millis();
        let Ok(file_range) = maintenance.files.allocate(to_u64(EXTENT_HEAD_BYTES) + length, now)
        else {
            return false;
        };
        let state = LargeState { bytes: None, file_range: Some(file_range.clone()), in_file: true };
        let (state, written) = (Mutex::new(state), AtomicBool::new(false));
        let large = Arc::new(LargeValue { number, lsn: lsn.0, length, state, written });
        if self.write_large_body(&mut maintenance, &large, &file_range, (0, value)).is_err() {
            maintenance.files.free(file_range);
            return false;
        }
        mutant!(HashlogForgetsUnsyncedValues: (), else {
            maintenance.pending_larges.push(Arc::clone(&large));
        });
        write(&self.larges).insert(number, large);
        true
    }

    /// Writes the head and the body of a large value to its file range, without a sync.
    fn write_large_body(
        &self,
        maintenance: &mut Maintenance,
        large: &LargeValue,
        file_range: &FileRange,
        (packing, body): (u64, [&[u8]; 2]),
    ) -> Result<()> {
        let now = self.context.env.unix_millis();
        let head = ExtentHead {
            serial: large.number,
            body_crc: crc32c_append(crc32c(body[0]), body[1]),
            packing: low_u32(packing),
            first_lsn: large.lsn,
            last_lsn: large.lsn,
            created: now,
            updated: now,
            capacity: large.length,
            ..ExtentHead::default()
        };
        let head = head.encode(LARGE_MAGIC, &self.owner);
        let length = head.len() + body[0].len() + body[1].len();
        let mut rest: [&[u8]; 3] = [&head, body[0], body[1]];
        let mut buffer = AlignedBuffer::zeroed(PIECE_BYTES.min(length));
        for start in (0..length).step_by(PIECE_BYTES) {
            let count = (length - start).min(PIECE_BYTES);
            let whole = to_usize(round_up(to_u64(count), BLOCK_BYTES));
            let piece = buffer.as_mut_slice().get_mut(..whole).unwrap_or(&mut []);
            move_to(&mut rest, piece);
            maintenance.files.write(file_range, to_u64(start), piece)?;
        }
        Ok(())
    }

    /// Flushes and syncs all chunks, so that they may leave memory. `all` includes the active
    /// chunk. Writes the manifest only if the hints that await a checkpoint take too much memory.
    pub(super) fn flush_for_room(&self, all: bool) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        if self.context.read_only {
            return Ok(());
        }
        let active = self.active.load(Ordering::Acquire);
        if let Some(chunk) = active.checked_sub(1).filter(|_| all) {
            self.arena.seal(chunk);
        }
        self.freeze();
        self.write_frozen(&mut maintenance)?;
        self.sync_written(&mut maintenance)?;
        let hint_bytes: u64 = maintenance.pending.iter().map(|add| to_u64(add.hints.len())).sum();
        if hint_bytes > self.context.budget.limit() / HINTS_PART {
            // The checkpoint releases the hints.
            let complete = maintenance.complete;
            return self.make_checkpoint(&mut maintenance, complete);
        }
        self.request_checkpoint_if_due(&maintenance);
        Ok(())
    }
}
