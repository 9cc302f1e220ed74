//! The cursor over one SST.
//!
//! It copies entries from cached blocks: two at first, then twice as many each time, so that one of
//! many sources copies little more than it returns. Blocks that are not cached are read from the
//! disk, several at a time. Their entries are used in place in the read buffer, unless a block of
//! them is compressed.
//!
//! With a [`Flow`](crate::io::Flow) a cursor reads ahead: its first read is under way when it is
//! created, and from the second read on the next one always is.

#![deny(clippy::indexing_slicing)]

use std::{mem, ops::Range, sync::Arc};

use super::sorted_cursor::{DiskCursor, ReadAheadSizes, ScanStart, SortedCursor};
use crate::{
    Error, Result,
    contract::Direction,
    io::{AlignedBuffer, File, Pending, Request},
    lsm::sst::{
        Span, Sst,
        block::{self, EntryRef},
        decoded_block::{CopiedEntries, CopyStart},
    },
    util::codec::to_usize,
};

/// Entries that are copied out of a cached block: at first, and at most.
const COPIED_ENTRIES_MIN: usize = 2;
const COPIED_ENTRIES_MAX: usize = 64;

/// Where the cursor continues in the blocks that are loaded next.
#[derive(Clone, Copy, Debug)]
enum ResumePoint {
    /// At their first entry, or downwards at their last.
    Edge,
    /// At the start key: the first entry not below it, or downwards the last below it. It is in one
    /// of these blocks, or the next.
    Key { start: u32, end: u32 },
    /// At entry `number` of `of` of the block; downwards, before it.
    Entry { number: usize, of: usize },
}

/// Offsets of an entry in the cursor's data.
#[derive(Clone, Copy, Debug)]
struct EntrySpan {
    key: u32,
    value: u32,
    end: u32,
    block: u32,
    tombstone: bool,
}

impl EntrySpan {
    fn key(&self) -> Range<usize> {
        to_usize(u64::from(self.key))..to_usize(u64::from(self.value))
    }

    fn value(&self) -> Option<Range<usize>> {
        let range = to_usize(u64::from(self.value))..to_usize(u64::from(self.end));
        (!self.tombstone).then_some(range)
    }
}

/// Appends the offsets of a block's entries in a range of `data` to `out`. Returns `None` if one
/// does not parse.
fn list_entries(
    data: &[u8],
    range: Range<usize>,
    block: u32,
    out: &mut Vec<EntrySpan>,
) -> Option<()> {
    let data = data.get(..range.end)?;
    let mut at = range.start;
    while at < data.len() {
        let (EntryRef { key, value, tombstone }, next) = block::entry_at(data, at)?;
        let offset = |at: usize| u32::try_from(at).ok();
        let (key, end) = (offset(key.start)?, offset(value.end)?);
        out.push(EntrySpan { key, value: offset(value.start)?, end, block, tombstone });
        at = next;
    }
    Some(())
}

/// A cursor over one SST. See the module head.
#[derive(Debug)]
pub(crate) struct SstCursor {
    sst: Arc<Sst>,
    start: ScanStart,
    /// Bytes of the next read, and their maximum.
    read_bytes: u64,
    read_bytes_max: u64,
    /// Blocks to load next, and where the cursor continues in them.
    pending: Option<Range<u32>>,
    resume: ResumePoint,
    /// Blocks that are loaded. If only a part of a cached block was copied, which part.
    loaded: Range<u32>,
    part: Option<CopiedEntries>,
    /// Number of entries to copy next.
    copy_entries: usize,
    /// The data that the entries are in: `buffer` if `is_read`, else `bytes` (copied from the
    /// cache, or decompressed).
    buffer: AlignedBuffer,
    bytes: Vec<u8>,
    is_read: bool,
    /// The loaded entries, and the index of the current one.
    entries: Vec<EntrySpan>,
    position: Option<usize>,
    /// Whether the cursor has read from the disk.
    has_read: bool,
    /// The read-ahead under way, and the buffer for the next one.
    ahead: Option<(Range<u32>, Pending)>,
    spare: AlignedBuffer,
}

impl SstCursor {
    pub(crate) fn new(sst: Arc<Sst>, start: ScanStart, ahead: ReadAheadSizes) -> Self {
        let (blocks, read_bytes) = (sst.blocks(), ahead.first_of(sst.data_bytes()));
        let wanted = match (&start.key, start.way) {
            (Some(key), _) => sst.seek(key),
            (None, Direction::Up) => 0..1,
            (None, Direction::Down) => blocks.saturating_sub(1)..blocks,
        };
        let pending = (blocks > 0).then(|| match start.way {
            Direction::Up => {
                wanted.start..sst.blocks_from(wanted.start, read_bytes).end.max(wanted.end)
            }
            Direction::Down => {
                sst.blocks_before(wanted.end, read_bytes).start.min(wanted.start)..wanted.end
            }
        });
        let resume = match &start.key {
            Some(_) => ResumePoint::Key { start: wanted.start, end: wanted.end },
            None => ResumePoint::Edge,
        };
        let mut cursor = Self {
            sst,
            start,
            read_bytes,
            read_bytes_max: ahead.most(),
            pending: pending.clone(),
            resume,
            loaded: 0..0,
            part: None,
            copy_entries: COPIED_ENTRIES_MIN,
            buffer: AlignedBuffer::zeroed(0),
            bytes: Vec::new(),
            is_read: false,
            entries: Vec::new(),
            position: None,
            has_read: false,
            ahead: None,
            spare: AlignedBuffer::zeroed(0),
        };
        if let Some(blocks) = pending {
            cursor.read_ahead(blocks);
        }
        cursor
    }

    /// Starts a read-ahead of blocks, if the cursor has a flow.
    fn read_ahead(&mut self, blocks: Range<u32>) {
        let Some(flow) = &self.start.flow else { return };
        let span = self.sst.span(blocks.clone());
        let mut buffer = mem::replace(&mut self.spare, AlignedBuffer::zeroed(0));
        buffer.fit(span.whole());
        let (file, offset, length) = (Arc::clone(self.sst.file()), span.offset, buffer.len());
        let read = flow.start(Request::Read { file, offset, buffer, length });
        self.ahead = Some((blocks, read));
    }

    /// Reads the pending blocks, or waits for their read-ahead.
    fn fetch(&mut self) -> Result<()> {
        let Some(blocks) = self.pending.clone() else { return Ok(()) };
        let span = self.sst.span(blocks.clone());
        let mut is_loaded = false;
        if let Some((_, read)) = self.ahead.take().filter(|(ahead, _)| *ahead == blocks) {
            let done = read.wait();
            // A failed read-ahead is read again, and that read reports the error.
            is_loaded = done.result.is_ok_and(|count| count == span.whole());
            self.spare = mem::replace(&mut self.buffer, done.buffer);
        }
        if !is_loaded {
            self.sst.read_into(span, &mut self.buffer)?;
        }
        let was_read = self.has_read;
        self.load_buffer()?;
        if was_read && self.loaded.end < self.sst.blocks() {
            self.read_ahead(self.sst.blocks_from(self.loaded.end, self.read_bytes_max));
        }
        Ok(())
    }

    fn load_buffer(&mut self) -> Result<()> {
        let Some(blocks) = self.pending.take() else { return Ok(()) };
        let cache = self.start.cache.clone().filter(|_| !self.has_read);
        self.bytes.clear();
        self.entries.clear();
        self.is_read = true;
        let mut number = blocks.start;
        while number < blocks.end {
            let span = self.sst.span(blocks.clone());
            let open = self.sst.open_block(&self.buffer, span, (blocks.start, number))?;
            let in_place = open.in_place();
            if in_place.is_none() && self.is_read {
                // A compressed block: all blocks are copied, from the first one on.
                self.is_read = false;
                self.entries.clear();
                number = blocks.start;
                continue;
            }
            if let Some(cache) = &cache {
                cache.fill(self.sst.slot_to_fill(number, cache), open.entries());
            }
            let listed = if let Some(range) = in_place.filter(|_| self.is_read) {
                list_entries(self.buffer.as_slice(), range, number, &mut self.entries)
            } else {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(open.entries());
                list_entries(&self.bytes, start..self.bytes.len(), number, &mut self.entries)
            };
            listed.ok_or_else(|| self.no_entry(number))?;
            number += 1;
        }
        (self.loaded, self.part, self.has_read) = (blocks, None, true);
        self.set_position();
        Ok(())
    }

    fn no_entry(&self, number: u32) -> Error {
        let offset = self.sst.span(number..number + 1).offset;
        self.sst.damage(offset, "an entry does not parse")
    }

    /// Returns the data that the entries are in.
    #[inline]
    fn data(&self) -> &[u8] {
        if self.is_read { self.buffer.as_slice() } else { &self.bytes }
    }

    /// Loads the pending entries from the cache, if they are there.
    fn load_cached(&mut self) -> Result<()> {
        let (Some(cache), Some(blocks)) = (&self.start.cache, &self.pending) else { return Ok(()) };
        let bytes = &mut self.bytes;
        let mut copy = |number: u32, look: CopyStart<'_>| {
            bytes.clear();
            let wanted = (look, self.start.way, self.copy_entries);
            cache.copy_entries(self.sst.slot(number), wanted, bytes)
        };
        let edge = match self.start.way {
            Direction::Up => blocks.start,
            Direction::Down => blocks.end.saturating_sub(1),
        };
        let found = match (self.resume, self.start.key.as_deref(), self.start.way) {
            (ResumePoint::Key { start, end }, Some(key), _) => {
                // The last block whose first entry is below the key, or the first block.
                let before =
                    |(number, part): &(u32, CopiedEntries)| !part.has_below && *number > start;
                let mut number = end.saturating_sub(1);
                let mut found = copy(number, CopyStart::Key(key)).map(|part| (number, part));
                while found.as_ref().is_some_and(before) {
                    number -= 1;
                    found = copy(number, CopyStart::Key(key)).map(|part| (number, part));
                }
                found
            }
            (ResumePoint::Entry { number, .. }, ..) => {
                copy(edge, CopyStart::Entry(number)).map(|part| (edge, part))
            }
            (_, _, Direction::Up) => copy(edge, CopyStart::Entry(0)).map(|part| (edge, part)),
            (_, _, Direction::Down) => {
                copy(edge, CopyStart::Entry(usize::MAX)).map(|part| (edge, part))
            }
        };
        let Some((number, part)) = found else { return Ok(()) };
        self.entries.clear();
        self.is_read = false;
        list_entries(&self.bytes, 0..self.bytes.len(), number, &mut self.entries)
            .ok_or_else(|| self.no_entry(number))?;
        (self.pending, self.loaded) = (None, number..number + 1);
        if part.is_whole {
            self.part = None;
            self.set_position();
        } else {
            self.part = Some(part);
            self.resume = ResumePoint::Edge;
            self.copy_entries = (self.copy_entries * 2).min(COPIED_ENTRIES_MAX);
            self.set_position_at_edge();
        }
        Ok(())
    }

    fn set_position_at_edge(&mut self) {
        self.position = match self.start.way {
            Direction::Up => (!self.entries.is_empty()).then_some(0),
            Direction::Down => self.entries.len().checked_sub(1),
        };
    }

    fn key_at(&self, position: usize) -> &[u8] {
        self.entries.get(position).and_then(|entry| self.data().get(entry.key())).unwrap_or(&[])
    }

    /// Sets the position in blocks that were loaded as a whole.
    fn set_position(&mut self) {
        let first = match (mem::replace(&mut self.resume, ResumePoint::Edge), self.start.key.take())
        {
            (ResumePoint::Key { .. }, Some(key)) => {
                let data = self.data();
                let below = |entry: &EntrySpan| data.get(entry.key()).unwrap_or(&[]) < &*key;
                self.entries.partition_point(below)
            }
            // Upwards the block is the first of those loaded, downwards the last.
            (ResumePoint::Entry { number, of }, _) => match self.start.way {
                Direction::Up => number,
                Direction::Down => (self.entries.len() + number).saturating_sub(of),
            },
            _ => return self.set_position_at_edge(),
        };
        self.position = match self.start.way {
            Direction::Up => (first < self.entries.len()).then_some(first),
            Direction::Down => first.checked_sub(1),
        };
    }

    /// Sets what to load next: the rest of the block, or other blocks. Returns `false` at the end.
    fn set_next(&mut self) -> bool {
        let (way, blocks) = (self.start.way, self.sst.blocks());
        if let Some(part) = self.part.take() {
            let number = match way {
                Direction::Up => part.entries.end,
                Direction::Down => part.entries.start,
            };
            if number > 0 && number < part.count {
                self.resume = ResumePoint::Entry { number, of: part.count };
                self.pending = Some(self.loaded.clone());
                return true;
            }
        }
        if self.has_read {
            self.read_bytes = (self.read_bytes * 2).clamp(1, self.read_bytes_max);
        }
        let bytes = self.read_bytes;
        self.pending = match way {
            Direction::Up if self.loaded.end < blocks => match &self.ahead {
                Some((ahead, _)) => Some(ahead.clone()),
                None => Some(self.sst.blocks_from(self.loaded.end, bytes)),
            },
            Direction::Down if self.loaded.start > 0 => {
                Some(self.sst.blocks_before(self.loaded.start, bytes))
            }
            _ => None,
        };
        self.pending.is_some()
    }

    /// Loads until there is an entry, or the end.
    fn load_next(&mut self) -> Result<()> {
        loop {
            self.load_cached()?;
            self.fetch()?;
            if self.position.is_some() || !self.set_next() {
                return Ok(());
            }
        }
    }

    fn entry(&self) -> Option<&EntrySpan> {
        self.entries.get(self.position?)
    }

    /// Returns the block number of the current entry.
    pub(crate) fn block(&self) -> u32 {
        self.entry().map_or(0, |entry| entry.block)
    }
}

impl SortedCursor for SstCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.position.map(|position| self.key_at(position))
    }

    fn value(&self) -> Option<&[u8]> {
        self.data().get(self.entry()?.value()?)
    }

    fn advance(&mut self) -> Result<()> {
        self.position = match (self.position, self.start.way) {
            (None, _) => return Ok(()),
            (Some(position), Direction::Up) => {
                Some(position + 1).filter(|next| *next < self.entries.len())
            }
            (Some(position), Direction::Down) => position.checked_sub(1),
        };
        if self.position.is_none() && self.set_next() { self.load_next() } else { Ok(()) }
    }

    fn load_first(&mut self) -> Result<()> {
        if self.position.is_none() { self.load_next() } else { Ok(()) }
    }

    fn prefetch(&self) {
        if let (Some(cache), Some(blocks)) = (&self.start.cache, &self.pending) {
            let number = match (self.resume, self.start.way) {
                (ResumePoint::Key { end, .. }, _) => end.saturating_sub(1),
                (_, Direction::Up) => blocks.start,
                (_, Direction::Down) => blocks.end.saturating_sub(1),
            };
            cache.prefetch(self.sst.slot(number));
        }
    }

    fn collect_disk_reads<'a>(&'a mut self, out: &mut Vec<&'a mut dyn DiskCursor>) -> Result<()> {
        self.load_cached()?;
        if self.pending.is_some() {
            out.push(self);
        }
        Ok(())
    }
}

impl DiskCursor for SstCursor {
    fn request(&self) -> Option<(&Arc<dyn File>, Span)> {
        Some((self.sst.file(), self.sst.span(self.pending.clone()?)))
    }

    fn accept(&mut self, buffer: AlignedBuffer) -> Result<()> {
        self.buffer = buffer;
        self.load_buffer()
    }
}
