//! Residency: which chunks are in memory.
//!
//! The oldest written chunk is evicted first. Background work loads the youngest absent chunks
//! while there is memory.
//!
//! Invariant: a chunk is evicted only if all of it is durable in its file, so a disk failure does
//! not affect reads of chunks in memory.
//!
//! Locks: `residency` serialises evictions and loads.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    arena::{ChunkArena, EXTENT_HEAD_UNITS},
    chunk::Chunk,
    entry::{StoredEntry, UNIT_BYTES},
    files::{CHUNK_MAGIC, EXTENT_HEAD_BYTES, ExtentHead, FileRange},
    manifest::Extent,
    table::HashLog,
};
use crate::{
    Result,
    contract::MemoryUse,
    io::AlignedBuffer,
    util::{
        budget::{Reservation, USES_OF_A_READ},
        codec::{crc32c, to_u64, to_usize},
        mutant::mutant,
        sync::{Ordering, lock, read, try_lock, try_read},
    },
};

/// Chunks that a table keeps in memory, however idle it is.
const CHUNKS_MIN: u64 = 2;
/// Maximum number of chunks that a maintenance step loads into memory.
const WARM_STEP: usize = 16;

/// The bytes of a chunk read from its file, and their budget.
#[derive(Debug)]
pub(super) struct ChunkImage {
    buffer: AlignedBuffer,
    _memory: Reservation,
}

impl ChunkImage {
    pub(super) fn as_slice(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl HashLog {
    /// Evicts the oldest written chunk, or a written large value if there is no chunk. Returns
    /// `false` if nothing can be evicted.
    pub(super) fn evict_one(&self) -> bool {
        let _residency = lock(&self.residency);
        let coldest = Self::coldest(&read(&self.chunks), &self.arena);
        let Some(chunk) = coldest else { return self.evict_large() };
        self.evict_chunk(&chunk);
        true
    }

    /// Returns the oldest written chunk in memory.
    fn coldest(chunks: &BTreeMap<u64, Arc<Chunk>>, arena: &ChunkArena) -> Option<Arc<Chunk>> {
        chunks
            .values()
            .filter(|chunk| chunk.written.load(Ordering::Acquire))
            .filter(|chunk| arena.is_resident(chunk.id))
            .min_by_key(|chunk| (chunk.order, chunk.serial))
            .cloned()
    }

    /// Evicts a written chunk. The caller holds `residency`.
    fn evict_chunk(&self, chunk: &Chunk) {
        if let Some(frame) = self.arena.detach(chunk.id) {
            self.arena.release_frame(frame);
            self.counters.evicted_total.fetch_add(1, Ordering::Relaxed);
            self.counters.cold_chunks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns what [`Self::reclaim`] could release: the written chunks in memory, beyond the
    /// floor.
    pub(super) fn memory_use(&self) -> MemoryUse {
        let counters = &self.counters;
        let unflushed = counters.unflushed_units.load(Ordering::Relaxed) * to_u64(UNIT_BYTES);
        let floor = CHUNKS_MIN * self.arena.segment_bytes();
        let floor = floor.max(self.context.budget.table_floor());
        let releasable = self.arena.frames.memory_bytes().saturating_sub(floor);
        // A chunk that is written in part cannot be evicted.
        let unwritten_bytes = unflushed.min(releasable);
        let reads = counters.cold_reads_total.load(Ordering::Relaxed);
        MemoryUse {
            reclaimable_bytes: releasable - unwritten_bytes,
            unwritten_bytes,
            uses_total: counters.applied.load(Ordering::Relaxed) + reads * USES_OF_A_READ,
        }
    }

    /// Releases about `bytes` for another table: spare frames, then the oldest written chunks.
    /// Waits for no lock, because the caller may hold one of another table that a holder of ours
    /// waits for.
    pub(super) fn reclaim(&self, bytes: u64) -> u64 {
        let Some(_residency) = try_lock(&self.residency) else { return 0 };
        let memory = self.memory_use();
        let wanted = bytes.min(memory.reclaimable_bytes);
        let lacks = bytes > wanted && memory.unwritten_bytes > 0;
        if lacks && !self.checkpoint_wanted.swap(true, Ordering::Relaxed) {
            self.context.host.wake();
        }
        let before = self.arena.frames.memory_bytes();
        let released = || before.saturating_sub(self.arena.frames.memory_bytes());
        self.arena.frames.discard_spares(0);
        while released() < wanted {
            let coldest = try_read(&self.chunks).and_then(|all| Self::coldest(&all, &self.arena));
            let Some(chunk) = coldest else { break };
            self.evict_chunk(&chunk);
            self.arena.frames.discard_spares(0);
        }
        released()
    }

    /// Evicts one written large value. Returns `false` if there is none.
    fn evict_large(&self) -> bool {
        for large in read(&self.larges).values() {
            if large.written.load(Ordering::Acquire)
                && let Some(bytes) = lock(&large.state).bytes.take()
            {
                self.context.budget.release(to_u64(bytes.len()));
                return true;
            }
        }
        false
    }

    /// Removes a chunk without live entries from memory. Returns whether it was in memory.
    pub(super) fn release_frame(&self, chunk: u64) -> bool {
        let _residency = lock(&self.residency);
        let frame = self.arena.detach(chunk);
        if let Some(frame) = frame {
            self.arena.release_frame(frame);
        }
        frame.is_some()
    }

    /// Loads a chunk into memory and verifies it. Returns `false` if the budget has no frame or the
    /// chunk was dropped. Fails with `Corruption` if the chunk is damaged.
    pub(super) fn warm(&self, id: u64) -> Result<bool> {
        let Some(chunk) = self.chunk(id) else { return Ok(false) };
        let image = match self.read_chunk(&chunk) {
            Ok(image) => image,
            // It was dropped during the read.
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
        let Some(frame) = self.arena.reserve_frame(false) else { return Ok(false) };
        let words = self.arena.frame(frame);
        for (word, bytes) in words.iter().zip(image.as_slice().as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        for extent in &extents {
            let mut unit = to_usize(extent.start + EXTENT_HEAD_UNITS);
            while unit < to_usize(extent.end) {
                let bytes = image.as_slice().get(unit * UNIT_BYTES..).unwrap_or(&[]);
                let Some(head) = StoredEntry::head(bytes) else { break };
                // In memory, the checksum's bytes hold the version: 0.
                if let Some(word) = words.get(unit) {
                    let first = word.load(Ordering::Relaxed);
                    word.store(first & !0xffff_ffff, Ordering::Relaxed);
                }
                unit += head.units();
            }
        }
        self.arena.attach(id, frame);
        self.counters.cold_chunks.fetch_sub(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Reads a written chunk from its file. Fails with `Corruption` if its extents are damaged.
    pub(super) fn read_chunk(&self, chunk: &Chunk) -> Result<ChunkImage> {
        let (extents, file_range) = {
            let flush = lock(&chunk.flush);
            (flush.extents.clone(), flush.file_range.clone())
        };
        let end = extents.iter().map(|extent| extent.end).max().unwrap_or(0);
        let memory = self.working_memory(end * 8);
        if extents.iter().any(|extent| extent.packing_bytes() > 0) {
            let buffer = self.read_packed_chunk(chunk, &extents, end)?;
            return Ok(ChunkImage { buffer, _memory: memory });
        }
        let Some(file_range) = file_range else {
            return Ok(ChunkImage { buffer: AlignedBuffer::zeroed(0), _memory: memory });
        };
        if end * 8 > file_range.bytes {
            return Err(file_range.damage(0, "the chunk's extents exceed its file range"));
        }
        let (buffer, _) = file_range.read(0, to_usize(end * 8))?;
        for extent in &extents {
            let from = to_usize(extent.start * 8);
            self.verify_extent(&file_range, extent, buffer.as_slice().get(from..).unwrap_or(&[]))?;
        }
        Ok(ChunkImage { buffer, _memory: memory })
    }

    /// Verifies head and body of the extent at the start of `bytes`.
    pub(super) fn verify_extent(
        &self,
        file_range: &FileRange,
        extent: &Extent,
        bytes: &[u8],
    ) -> Result<()> {
        let from = extent.start * 8;
        let size = extent.end.saturating_sub(extent.start) * 8;
        let bytes = bytes.get(..to_usize(size)).unwrap_or(&[]);
        let head = ExtentHead::decode(bytes, CHUNK_MAGIC, &self.owner)
            .map_err(|what| file_range.damage(from, what))?;
        let named = (head.serial, head.order, u64::from(head.start), u64::from(head.end));
        if named != (extent.serial, extent.order, extent.start, extent.end) {
            return Err(file_range.damage(from, "the file range holds another extent"));
        }
        let body = crc32c(bytes.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]));
        let matches = u64::from(body) == extent.body_crc && body == head.body_crc;
        let valid = mutant!(HashlogSkipsExtentChecksum: true, else matches);
        if !valid {
            return Err(file_range.damage(from, "the checksum of the extent does not match"));
        }
        Ok(())
    }

    /// Loads up to [`WARM_STEP`] chunks into memory while there is memory, the youngest first.
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
