//! Reader of a segment file: the record at an offset, and the search for the next valid record
//! behind bytes that are none.
//!
//! Why: recovery, `check` and `inspect` read the same bytes with the same rules, in bounded
//! memory, from files that may hold any bytes.
//!
//! Invariants: no allocation exceeds the length in a verified head; the body of a record that
//! [`SegmentReader::record_at`] returned is verified.
//!
//! Threads: one at a time (`&mut self`).

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::{
    record::{self, RecordKind},
    segment::{self, SegmentHead},
};
use crate::{
    Error, Result,
    io::{self, File},
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Bytes of a read. Bounds the memory of recovery, except for larger records. Each byte is read
/// twice (search and checksum), and this many stay in the processor's cache.
const WINDOW_BYTES: u64 = 256 << 10;

/// A valid record in a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// Commit or filler.
    pub kind: RecordKind,
    /// Offset in the segment file.
    pub offset: u64,
    /// LSN of the record.
    pub lsn: Lsn,
    /// The log was durable below this LSN when the record was formed.
    pub durable: Lsn,
    /// Size of the body in bytes.
    pub body_bytes: u64,
    /// Size in the log in bytes, head and padding included.
    pub size: u64,
}

impl RecordInfo {
    fn head_bytes(&self) -> u64 {
        record::head_bytes(self.kind, self.body_bytes)
    }
}

/// Reads one segment file.
#[derive(Debug)]
pub struct SegmentReader {
    file: Arc<dyn File>,
    head: SegmentHead,
    salt: u32,
    window: Vec<u8>,
    window_start: u64,
    /// Bytes at and behind this offset are not read.
    limit: u64,
}

impl SegmentReader {
    /// Opens a segment file and verifies its head. Messages call it `name`. Fails with
    /// `Corruption` if the head does not parse or the file has another size.
    pub fn open(file: Arc<dyn File>, name: &str) -> Result<Self> {
        let io = |error| Error::io(format!("read {name}"), error);
        let mut block = vec![0; to_usize(segment::HEAD_BYTES)];
        let count = io::read_up_to(&*file, &mut block, 0).map_err(io)?;
        block.truncate(count);
        let head = SegmentHead::parse(&block).map_err(|fault| fault.into_error(name))?;
        let size = file.len().map_err(io)?;
        if size != head.capacity {
            let what = format!("the file has {size} bytes, but its head says {}", head.capacity);
            return Err(Error::corruption(name, size.min(head.capacity), what));
        }
        let limit = head.capacity;
        Ok(Self { file, head, salt: head.salt(), window: Vec::new(), window_start: 0, limit })
    }

    /// Returns the segment's head.
    pub fn head(&self) -> &SegmentHead {
        &self.head
    }

    /// Returns the offset of the first record.
    pub const fn first_offset() -> u64 {
        segment::HEAD_BYTES
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    fn name(&self) -> String {
        segment::display_name(self.head.number)
    }

    /// Returns bytes `offset..offset + count`; fewer at the end of the file.
    #[inline]
    fn bytes(&mut self, offset: u64, count: u64) -> Result<&[u8]> {
        let inside = offset >= self.window_start
            && offset + count <= self.window_start + to_u64(self.window.len());
        if !inside {
            self.fill(offset, count)?;
        }
        let start = to_usize(offset - self.window_start);
        let end = (start + to_usize(count)).min(self.window.len());
        Ok(self.window.get(start..end).unwrap_or(&[]))
    }

    #[cold]
    fn fill(&mut self, offset: u64, count: u64) -> Result<()> {
        let size = count.max(WINDOW_BYTES).min(self.limit.saturating_sub(offset));
        self.window.resize(to_usize(size), 0);
        self.window.shrink_to(to_usize(WINDOW_BYTES));
        let read = io::read_up_to(&*self.file, &mut self.window, offset)
            .map_err(|error| Error::io(format!("read {}", self.name()), error))?;
        self.window.truncate(read);
        self.window_start = offset;
        Ok(())
    }

    /// Sets the offset behind the last byte that may be read. A writer may still change later
    /// bytes, so they must not be buffered.
    pub(super) fn limit(&mut self, offset: u64) {
        self.limit = offset.min(self.head.capacity);
    }

    /// Releases the memory that a large record took, if the window has one.
    pub(super) fn release_large_window(&mut self) {
        if to_u64(self.window.len()) > WINDOW_BYTES {
            self.release_window();
        }
    }

    /// Releases the memory that a large record took. The other segments of a log are read next.
    pub(super) fn release_window(&mut self) {
        (self.window, self.window_start) = (Vec::new(), 0);
    }

    /// Returns whether a record can begin at `offset`. If not, the segment ends here.
    pub fn has_room(&self, offset: u64) -> bool {
        offset + record::RECORD_BYTES_MIN <= self.head.capacity
    }

    /// Returns the record at `offset`, or `None` if no valid one begins there.
    pub fn record_at(&mut self, offset: u64) -> Result<Option<RecordInfo>> {
        if !self.has_room(offset) {
            return Ok(None);
        }
        let (salt, capacity) = (self.salt, self.head.capacity);
        let lsn = Lsn(self.head.base.0 + offset);
        let bytes = self.bytes(offset, record::RECORD_BYTES_MIN)?;
        let Some(head) = record::RecordHead::parse(bytes, salt, lsn) else { return Ok(None) };
        let size = head.size();
        if offset + size > capacity {
            return Ok(None);
        }
        let record = RecordInfo {
            kind: head.kind,
            offset,
            lsn,
            durable: head.durable,
            body_bytes: u64::from(head.body_bytes),
            size,
        };
        if head.kind == RecordKind::Commit && !self.has_valid_body(&record, head.body_crc)? {
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// Returns the body of a record that [`Self::record_at`] returned.
    pub fn body(&mut self, record: &RecordInfo) -> Result<&[u8]> {
        self.bytes(record.offset + record.head_bytes(), record.body_bytes)
    }

    fn has_valid_body(&mut self, record: &RecordInfo, crc: u32) -> Result<bool> {
        mutant!(LogSkipsBodyChecksum => return Ok(true));
        let head_bytes = record.head_bytes();
        let padded = self.bytes(record.offset + head_bytes, record.size - head_bytes)?;
        Ok(record::is_valid_body(padded, record.body_bytes, crc))
    }

    /// Returns the first valid record at or after `offset`.
    pub fn next_valid(&mut self, offset: u64) -> Result<Option<RecordInfo>> {
        self.next_valid_before(self.head.capacity, offset)
    }

    /// Returns the first valid record at or after `offset` that begins before `end`. It may begin
    /// up to one read behind `end`.
    pub(super) fn next_valid_before(
        &mut self,
        end: u64,
        offset: u64,
    ) -> Result<Option<RecordInfo>> {
        let mut offset = offset.next_multiple_of(record::ALIGNMENT);
        while self.has_room(offset) && offset < end {
            match self.first_candidate(offset, end)? {
                None => break,
                Some(candidate) => {
                    if let Some(record) = self.record_at(candidate)? {
                        return Ok(Some(record));
                    }
                    offset = candidate + record::ALIGNMENT;
                }
            }
        }
        Ok(None)
    }

    /// Returns the highest `durable lsn` of the valid records at or after `offset` that begin
    /// before `end`; 0 if there is none.
    pub(super) fn highest_durable(&mut self, offset: u64, end: u64) -> Result<Lsn> {
        let (mut highest, mut offset) = (Lsn(0), offset);
        while let Some(record) = self.next_valid_before(end, offset)? {
            highest = highest.max(record.durable);
            offset = record.offset + record.size;
        }
        Ok(highest)
    }

    /// Returns the offset of the first valid head at or after `offset` and before `end`, or up to
    /// one read behind it.
    fn first_candidate(&mut self, mut offset: u64, end: u64) -> Result<Option<u64>> {
        let (base, capacity, salt) = (self.head.base.0, self.head.capacity, self.salt);
        while offset + record::RECORD_BYTES_MIN <= capacity && offset < end {
            let count = (capacity - offset).min(WINDOW_BYTES);
            let bytes = self.bytes(offset, count)?;
            // Words that begin 24 bytes of the window.
            let starts = (to_u64(bytes.len()) / 8).saturating_sub(2);
            let hit = (0..starts).map(|index| index * 8).find(|at| {
                let head = bytes.get(to_usize(*at)..).unwrap_or(&[]);
                record::RecordHead::parse(head, salt, Lsn(base + offset + at)).is_some()
            });
            if let Some(at) = hit {
                return Ok(Some(offset + at));
            }
            if starts == 0 || to_u64(bytes.len()) < count {
                break; // The file is shorter than its capacity.
            }
            offset += starts * 8;
        }
        Ok(None)
    }
}
