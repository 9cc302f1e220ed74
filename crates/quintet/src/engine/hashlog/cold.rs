//! Reads from the disk: one direct read of the blocks around an entry. The entry's checksum
//! verifies it. Large values are read whole.
//!
//! Invariant: a returned entry belonged to the chunk when the read ended. If the chunk changed
//! meanwhile, the result is `None` and the caller repeats its lookup.
//!
//! Locks: none is held across a read. Any thread may call.

use std::sync::Arc;

use super::{
    cold_entry::{ColdBytes, ColdEntry, ColdRead},
    entry::{StoredEntry, UNIT_BYTES},
    table::HashLog,
};
use crate::{
    Result,
    io::{AlignedBuffer, Completion, Request},
    util::{
        codec::{to_u64, to_usize},
        sync::{Ordering, read},
    },
};

/// Disk reads between two requests for memory of other tables.
const REQUEST_PERIOD: u64 = 16;

impl HashLog {
    /// Plans the read of the entry at `address`; `None` if its chunk changed.
    pub(super) fn cold_read(&self, address: u64, state: u64) -> Option<ColdRead> {
        let (id, unit) = self.arena.split(address);
        let chunk = self.chunk(id)?;
        let serial = chunk.serial;
        let span = chunk.span.load(Ordering::Relaxed).max(3) * to_u64(UNIT_BYTES);
        let (file_range, from, rest) = if let Some(file_range) = chunk.file_range() {
            let from = unit * to_u64(UNIT_BYTES);
            let rest = file_range.bytes.checked_sub(from)?;
            (file_range, from, rest)
        } else {
            let packed_extent = chunk.packed_extent(unit)?;
            let (file_range, block) =
                (packed_extent.file_range.clone(), packed_extent.blocks.find(unit)?);
            if !block.is_raw {
                let (from, bytes) = (block.from, block.bytes);
                let read = ColdRead { file_range, serial, unit, from, bytes, block: Some(block) };
                return (self.arena.state(id) == state).then_some(read);
            }
            let skip = (unit - block.start) * to_u64(UNIT_BYTES);
            (file_range, block.from + skip, to_u64(block.bytes) - skip)
        };
        if self.arena.state(id) != state {
            return None;
        }
        let bytes = to_usize(span.min(rest));
        Some(ColdRead { file_range, serial, unit, from, bytes, block: None })
    }

    /// Requests that background work loads chunks into memory, if there is memory for them. A table
    /// that often reads from disk takes memory from tables that use theirs less.
    pub(super) fn ask_for_warming(&self) {
        let reads = self.counters.cold_reads_total.load(Ordering::Relaxed);
        let takes = reads.is_multiple_of(REQUEST_PERIOD) && !self.has_room_to_warm();
        if takes {
            let bytes = self.arena.segment_bytes();
            self.context.budget.reclaim_from_others(self.context.table_id, bytes);
        }
        let asked = self.warm_wanted.swap(true, Ordering::Relaxed);
        if (takes || !asked) && self.has_room_to_warm() {
            self.context.host.wake();
        }
    }

    /// Runs planned reads with concurrent requests. Completions are in their order.
    pub(super) fn transfer_cold<'r>(
        &self,
        reads: impl Iterator<Item = &'r ColdRead>,
    ) -> Result<Vec<Completion>> {
        let requests = reads.map(|read| {
            self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
            let (offset, _, length) = read.span();
            let file = Arc::clone(&read.file_range.file.file);
            Request::Read { file, offset, buffer: AlignedBuffer::zeroed(length), length }
        });
        self.queues.transfer(&*self.context.env, requests)
    }

    /// Reads an entry from the disk, unless a prefetch did. An entry far larger than most takes a
    /// second read. Returns `None` if its chunk changed meanwhile.
    ///
    /// Fails with `Corruption` if the checksum does not match.
    pub(super) fn read_cold(&self, address: u64, state: u64) -> Result<Option<ColdEntry>> {
        if let Some(entry) = self.prefetched.take(address, state) {
            return Ok(Some(entry));
        }
        let Some(request) = self.cold_read(address, state) else { return Ok(None) };
        self.ask_for_warming();
        self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
        let (buffer, skip) = request.file_range.read(request.from, request.bytes)?;
        self.finish_cold(address, state, &request, buffer, skip)
    }

    /// Verifies the entry in a completed read, and reads the rest of a long entry. See
    /// [`Self::read_cold`].
    pub(super) fn finish_cold(
        &self,
        address: u64,
        state: u64,
        request: &ColdRead,
        mut buffer: AlignedBuffer,
        mut skip: usize,
    ) -> Result<Option<ColdEntry>> {
        let from = request.from;
        let bytes = if let Some(block) = &request.block {
            let mut out = vec![0; block.unpacked_bytes()];
            let stored = buffer.as_slice().get(skip..).unwrap_or(&[]);
            // Without bytes the checksum fails below.
            if block.unpack(stored, &mut out).is_none() {
                out.clear();
            }
            ColdBytes::Unpacked(out, to_usize(request.unit - block.start) * UNIT_BYTES)
        } else {
            let head = StoredEntry::head(buffer.as_slice().get(skip..).unwrap_or(&[]));
            let size = head.map_or(0, |head| head.units() * UNIT_BYTES);
            if skip + size > buffer.len() && from + to_u64(size) <= request.file_range.bytes {
                (buffer, skip) = request.file_range.read(from, size)?;
            }
            ColdBytes::Plain(buffer, skip)
        };
        let unit = to_usize(request.unit);
        let cold = ColdEntry::new(bytes, request.serial, unit);
        let (id, _) = self.arena.split(address);
        match (cold.entry().is_some(), self.arena.state(id) == state && self.chunk_is(id, request))
        {
            (true, true) => Ok(Some(cold)),
            (_, false) => Ok(None),
            (false, true) => {
                Err(request.file_range.damage(from, "the entry's checksum does not match"))
            }
        }
    }

    fn chunk_is(&self, id: u64, request: &ColdRead) -> bool {
        read(&self.chunks).get(&id).is_some_and(|chunk| chunk.serial == request.serial)
    }
}
