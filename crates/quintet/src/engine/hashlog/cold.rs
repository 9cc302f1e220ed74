//! Reading from the disk: one direct read of the blocks around an entry, verified by the entry's
//! own checksum; large values whole.
//!
//! Invariants: what is returned was the chunk's when the read ended; where the chunk changed
//! meanwhile the caller looks again.
//!
//! Thread rules: any thread, no lock held across a read.

use super::{
    HashLog, Large,
    entry::{LargeRef, Stored, UNIT_BYTES},
    files::{EXTENT_HEAD_BYTES, ExtentHead, LARGE_MAGIC, Place},
    pack::{Block, unpack_value},
};
use crate::{
    Result,
    contract::Value,
    io::AlignedBuffer,
    util::{
        codec::{crc32c, to_u64, to_usize},
        sync::{Ordering, lock, read},
    },
};

/// An entry read from the disk.
#[derive(Debug)]
pub(super) struct ColdEntry {
    bytes: ColdBytes,
    serial: u64,
    unit: usize,
}

/// Where the bytes of an entry begin in what was read.
#[derive(Debug)]
enum ColdBytes {
    Plain(AlignedBuffer, usize),
    Unpacked(Vec<u8>, usize),
}

impl ColdEntry {
    fn bytes(&self) -> &[u8] {
        let (bytes, skip) = match &self.bytes {
            ColdBytes::Plain(buffer, skip) => (buffer.as_slice(), *skip),
            ColdBytes::Unpacked(bytes, skip) => (bytes.as_slice(), *skip),
        };
        bytes.get(skip..).unwrap_or(&[])
    }

    pub(super) fn entry(&self) -> Option<Stored<'_>> {
        Stored::verify(self.bytes(), self.serial, self.unit)
    }
}

/// One read to be made for an entry.
#[derive(Debug)]
pub(super) struct ColdRead {
    pub(super) place: Place,
    serial: u64,
    unit: u64,
    /// Bytes from the start of the place, and how many.
    pub(super) from: u64,
    pub(super) bytes: usize,
    /// The packed block that this is.
    block: Option<Block>,
}

impl HashLog {
    /// Where to read the entry at `address`; `None` where its chunk changed.
    pub(super) fn cold_read(&self, address: u64, state: u64) -> Option<ColdRead> {
        let (id, unit) = self.arena.split(address);
        let chunk = self.chunk(id)?;
        let serial = chunk.serial;
        let span = chunk.span.load(Ordering::Relaxed).max(3) * to_u64(UNIT_BYTES);
        let (place, from, rest) = if let Some(place) = chunk.place() {
            let from = unit * to_u64(UNIT_BYTES);
            let rest = place.bytes.checked_sub(from)?;
            (place, from, rest)
        } else {
            let piece = chunk.piece(unit)?;
            let (place, block) = (piece.place.clone(), piece.blocks.find(unit)?);
            if !block.kept {
                let (from, bytes) = (block.from, block.bytes);
                let read = ColdRead { place, serial, unit, from, bytes, block: Some(block) };
                return (self.arena.state(id) == state).then_some(read);
            }
            let skip = (unit - block.start) * to_u64(UNIT_BYTES);
            (place, block.from + skip, to_u64(block.bytes) - skip)
        };
        if self.arena.state(id) != state {
            return None;
        }
        let bytes = to_usize(span.min(rest));
        Some(ColdRead { place, serial, unit, from, bytes, block: None })
    }

    /// Has chunks loaded into memory in the background, if there is room for them.
    pub(super) fn ask_for_warming(&self) {
        if !self.warm_wanted.swap(true, Ordering::Relaxed) && self.has_room_to_warm() {
            self.context.host.wake();
        }
    }

    /// Reads an entry from the disk, in one read unless it is far larger than most. `None` where
    /// its chunk changed meanwhile: look again.
    pub(super) fn read_cold(&self, address: u64, state: u64) -> Result<Option<ColdEntry>> {
        let Some(request) = self.cold_read(address, state) else { return Ok(None) };
        self.ask_for_warming();
        self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
        let (buffer, skip) = request.place.read(request.from, request.bytes)?;
        self.finish_cold(address, state, &request, buffer, skip)
    }

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
            // What does not unpack has no entry.
            if block.unpack(stored, &mut out).is_none() {
                out.clear();
            }
            ColdBytes::Unpacked(out, to_usize(request.unit - block.start) * UNIT_BYTES)
        } else {
            let head = Stored::head(buffer.as_slice().get(skip..).unwrap_or(&[]));
            let size = head.map_or(0, |head| head.units() * UNIT_BYTES);
            if skip + size > buffer.len() && from + to_u64(size) <= request.place.bytes {
                (buffer, skip) = request.place.read(from, size)?;
            }
            ColdBytes::Plain(buffer, skip)
        };
        let unit = to_usize(request.unit);
        let cold = ColdEntry { bytes, serial: request.serial, unit };
        let (id, _) = self.arena.split(address);
        match (cold.entry().is_some(), self.arena.state(id) == state && self.chunk_is(id, request))
        {
            (true, true) => Ok(Some(cold)),
            (_, false) => Ok(None),
            (false, true) => Err(request.place.damage(from, "the entry's checksum does not match")),
        }
    }

    fn chunk_is(&self, id: u64, request: &ColdRead) -> bool {
        read(&self.chunks).get(&id).is_some_and(|chunk| chunk.serial == request.serial)
    }

    /// The bytes of a large value; `None` where it is gone.
    pub(super) fn read_large(&self, large: LargeRef) -> Result<Option<Value>> {
        let found = read(&self.larges).get(&large.number).cloned();
        let Some(found) = found else { return Ok(None) };
        let (bytes, place) = {
            let state = lock(&found.state);
            (state.bytes.clone(), state.place.clone())
        };
        if let Some(bytes) = bytes {
            return Ok(Some(Value::shared(bytes)));
        }
        let Some(place) = place else { return Ok(None) };
        self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
        match self.read_large_at(&found, &place) {
            Ok(value) => Ok(Some(value)),
            Err(_) if !read(&self.larges).contains_key(&large.number) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read_large_at(&self, large: &Large, place: &Place) -> Result<Value> {
        let length = to_usize(large.length);
        let whole = EXTENT_HEAD_BYTES + length;
        let (buffer, skip) = place.read(0, whole.min(to_usize(place.bytes)))?;
        let bytes = buffer.as_slice().get(skip..).unwrap_or(&[]);
        let head = ExtentHead::decode(bytes, LARGE_MAGIC, &self.owner)
            .map_err(|what| place.damage(0, what))?;
        let packed = usize::try_from(head.packing).unwrap_or(usize::MAX);
        let stored = if packed == 0 { length } else { packed };
        let Some(stored) = bytes.get(EXTENT_HEAD_BYTES..).and_then(|rest| rest.get(..stored))
        else {
            return Err(place.damage(0, "the large value is longer than its place"));
        };
        if head.serial != large.number || head.capacity != large.length {
            return Err(place.damage(0, "another large value is here"));
        }
        if crc32c(stored) != head.body_crc {
            return Err(place.damage(0, "the checksum of the large value does not match"));
        }
        if packed == 0 {
            return Ok(Value::fill_with(length, |out| out.copy_from_slice(stored)));
        }
        let mut unpacks = None;
        let value = Value::fill_with(length, |out| unpacks = unpack_value(stored, out));
        unpacks.ok_or_else(|| place.damage(0, "the large value does not unpack"))?;
        Ok(value)
    }
}
