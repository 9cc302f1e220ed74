//! Reading a segment file record by record.
//!
//! What: a window over a segment file, the record at an offset, and the search for the next valid
//! record after a place that does not parse.
//! Why: recovery, `check` and `inspect` read the same bytes with the same rules, in bounded
//! memory, from files that may hold anything.
//!
//! Invariants: nothing beyond the verified head's length is allocated; a returned body has been
//! verified.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::{
    record::{self, Kind},
    segment,
};
use crate::{
    Error, Result,
    io::{self, File},
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::{self, Bug},
    },
};

/// Bytes read at once. Bounds the memory of recovery, but for larger records. What is read is
/// looked at twice: this much stays in the processor's cache.
const WINDOW_BYTES: u64 = 256 << 10;

/// A record as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Offset in the segment file.
    pub offset: u64,
    /// Its LSN.
    pub lsn: Lsn,
    /// The log was durable below this when the record was formed.
    pub durable: Lsn,
    /// Bytes of body.
    pub body_bytes: u64,
    /// Bytes in the log, head and padding included.
    pub size: u64,
}

impl Found {
    fn head_bytes(&self) -> u64 {
        record::head_bytes(self.kind, self.body_bytes)
    }
}

/// Reads one segment file.
#[derive(Debug)]
pub struct SegmentReader {
    file: Arc<dyn File>,
    head: segment::Head,
    salt: u32,
    window: Vec<u8>,
    window_start: u64,
}

impl SegmentReader {
    /// Opens a segment file by its head. `name` is for messages.
    pub fn open(file: Arc<dyn File>, name: &str) -> Result<Self> {
        let io = |error| Error::io(format!("read {name}"), error);
        let mut block = vec![0; to_usize(segment::HEAD_BYTES)];
        let count = io::read_up_to(&*file, &mut block, 0).map_err(io)?;
        block.truncate(count);
        let head = segment::Head::parse(&block).map_err(|fault| fault.into_error(name))?;
        let size = file.len().map_err(io)?;
        if size != head.capacity {
            let what = format!("the file has {size} bytes, its head says {}", head.capacity);
            return Err(Error::corruption(name, size.min(head.capacity), what));
        }
        Ok(Self { file, head, salt: head.salt(), window: Vec::new(), window_start: 0 })
    }

    /// The segment's head.
    pub fn head(&self) -> &segment::Head {
        &self.head
    }

    /// Offset of the first record.
    pub const fn first_offset() -> u64 {
        segment::HEAD_BYTES
    }

    /// The file.
    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    fn name(&self) -> String {
        segment::display_name(self.head.number)
    }

    /// Bytes `offset..offset + count`, fewer at the end of the file.
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
        let size = count.max(WINDOW_BYTES).min(self.head.capacity.saturating_sub(offset));
        self.window.resize(to_usize(size), 0);
        self.window.shrink_to(to_usize(WINDOW_BYTES));
        let read = io::read_up_to(&*self.file, &mut self.window, offset)
            .map_err(|error| Error::io(format!("read {}", self.name()), error))?;
        self.window.truncate(read);
        self.window_start = offset;
        Ok(())
    }

    /// Whether a record could begin at `offset`: else the segment ends here.
    pub fn has_room(&self, offset: u64) -> bool {
        offset + record::RECORD_BYTES_MIN <= self.head.capacity
    }

    /// The valid record at `offset`, if there is one.
    pub fn record_at(&mut self, offset: u64) -> Result<Option<Found>> {
        if !self.has_room(offset) {
            return Ok(None);
        }
        let (salt, capacity) = (self.salt, self.head.capacity);
        let lsn = Lsn(self.head.base.0 + offset);
        let bytes = self.bytes(offset, record::RECORD_BYTES_MIN)?;
        let Some(head) = record::Head::parse(bytes, salt, lsn) else { return Ok(None) };
        let size = head.size();
        if offset + size > capacity {
            return Ok(None);
        }
        let found = Found {
            kind: head.kind,
            offset,
            lsn,
            durable: head.durable,
            body_bytes: u64::from(head.body_bytes),
            size,
        };
        if head.kind == Kind::Commit
            && !record::body_is_whole(self.padded_body(&found)?, found.body_bytes, head.body_crc)
            && !mutant::active(Bug::LogSkipsBodyChecksum)
        {
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// The body of a record that [`Self::record_at`] returned.
    pub fn body(&mut self, found: &Found) -> Result<&[u8]> {
        self.bytes(found.offset + found.head_bytes(), found.body_bytes)
    }

    fn padded_body(&mut self, found: &Found) -> Result<&[u8]> {
        self.bytes(found.offset + found.head_bytes(), found.size - found.head_bytes())
    }

    /// The first valid record at or after `offset`.
    pub fn next_valid(&mut self, offset: u64) -> Result<Option<Found>> {
        self.next_valid_before(self.head.capacity, offset)
    }

    /// The first valid record at or after `offset` that begins before `end`, or about there.
    pub(super) fn next_valid_before(&mut self, end: u64, offset: u64) -> Result<Option<Found>> {
        let mut offset = offset.next_multiple_of(record::ALIGNMENT);
        while self.has_room(offset) && offset < end {
            match self.first_candidate(offset, end)? {
                None => break,
                Some(candidate) => {
                    if let Some(found) = self.record_at(candidate)? {
                        return Ok(Some(found));
                    }
                    offset = candidate + record::ALIGNMENT;
                }
            }
        }
        Ok(None)
    }

    /// The highest `durable lsn` of any valid record at or after `offset` that begins before `end`;
    /// 0 where there is none.
    pub(super) fn highest_durable(&mut self, offset: u64, end: u64) -> Result<Lsn> {
        let (mut highest, mut offset) = (Lsn(0), offset);
        while let Some(found) = self.next_valid_before(end, offset)? {
            highest = highest.max(found.durable);
            offset = found.offset + found.size;
        }
        Ok(highest)
    }

    /// The first offset from `offset` on with a valid head that lies before `end`, or about there.
    fn first_candidate(&mut self, mut offset: u64, end: u64) -> Result<Option<u64>> {
        let (base, capacity, salt) = (self.head.base.0, self.head.capacity, self.salt);
        while offset + record::RECORD_BYTES_MIN <= capacity && offset < end {
            let count = (capacity - offset).min(WINDOW_BYTES);
            let bytes = self.bytes(offset, count)?;
            // Places whose first 24 bytes are in the window.
            let places = (to_u64(bytes.len()) / 8).saturating_sub(2);
            let hit = (0..places).map(|index| index * 8).find(|at| {
                let head = bytes.get(to_usize(*at)..).unwrap_or(&[]);
                record::Head::parse(head, salt, Lsn(base + offset + at)).is_some()
            });
            if let Some(at) = hit {
                return Ok(Some(offset + at));
            }
            if places == 0 || to_u64(bytes.len()) < count {
                break; // The file is shorter than its head says.
            }
            offset += places * 8;
        }
        Ok(None)
    }
}
