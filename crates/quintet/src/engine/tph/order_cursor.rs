//! The cursor over a table in key order, for ranges: by the key-location array.
//!
//! A seek finds the sample of its key in memory and searches among 64 rows. Then the cursor loads
//! rows in batches. It copies entries from cached blocks and reads the other blocks at once, those
//! that are close together with one read. A batch is twice as large as the one before.

#![deny(clippy::indexing_slicing)]

use std::{mem, ops::Range, sync::Arc};

use super::{table::TphTable, two_tiers::key_order::KeyOrder};
use crate::{
    Error, Result,
    contract::Direction,
    io::{AlignedBuffer, BLOCK_BYTES, Env, Queues, Request},
    lsm::{
        cursor::merge::{ReadAheadSizes, ScanStart},
        sst::{
            Sst,
            block::{self, EntryRef},
            decoded_block::CopyStart,
            order_section::{CHUNK_ROWS, EntryLocation},
            slot_block::SlotBlock,
        },
    },
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
    },
};

/// Blocks of one piece with at most this many bytes between them are read at once.
const GAP_BYTES: u64 = 8 << 10;
/// Minimum number of rows of a batch.
const BATCH_ROWS_MIN: u64 = 2;

/// What a cursor reads the disk with.
#[derive(Clone, Debug)]
pub(super) struct ScanIo {
    pub(super) env: Arc<dyn Env>,
    pub(super) queues: Queues,
}

/// A row that is loaded: offsets in the cursor's bytes.
#[derive(Clone, Debug)]
struct LoadedRow {
    key: Range<usize>,
    value: Range<usize>,
    tombstone: bool,
}

/// Blocks that one read gets, and the rows whose entries they have, as a range of the sorted ones.
#[derive(Clone, Debug)]
struct BlockRun {
    piece: usize,
    blocks: Range<u32>,
    rows: Range<usize>,
}

/// A cursor over a table. See the module head.
#[derive(Debug)]
pub(super) struct KeyOrderCursor {
    table: Arc<TphTable>,
    start: ScanStart,
    io: ScanIo,
    /// Rows of the next batch, and their maximum.
    batch_rows: u64,
    batch_rows_max: u64,
    /// Upwards, the next row to load; downwards, the number of rows not loaded.
    next: u64,
    /// The chunk of the array that was read last.
    chunk: Option<(u64, Vec<EntryLocation>)>,
    bytes: Vec<u8>,
    /// Entries that were copied out of the cache last.
    copied: Vec<u8>,
    rows: Vec<Option<LoadedRow>>,
    position: Option<usize>,
    is_started: bool,
    /// A batch was read from the disk: later ones do not go to the cache.
    has_read: bool,
}

impl KeyOrderCursor {
    pub(super) fn new(
        table: &Arc<TphTable>,
        start: &ScanStart,
        ahead: ReadAheadSizes,
        io: &ScanIo,
    ) -> Self {
        let data: u64 = table.ssts.iter().map(|one| one.sst.data_bytes()).sum();
        let entry_bytes = (table.live_bytes() / table.live().max(1)).max(1);
        // A row may need a block of its own.
        let row_bytes = entry_bytes.max(BLOCK_BYTES);
        let batch_rows_max = (ahead.most() / row_bytes).max(BATCH_ROWS_MIN);
        let first = ahead.first_of(data) / entry_bytes + 1;
        Self {
            table: Arc::clone(table),
            start: start.clone(),
            io: io.clone(),
            batch_rows: first.clamp(BATCH_ROWS_MIN, batch_rows_max),
            batch_rows_max,
            next: 0,
            chunk: None,
            bytes: Vec::new(),
            copied: Vec::new(),
            rows: Vec::new(),
            position: None,
            is_started: false,
            has_read: false,
        }
    }

    fn row_count(&self) -> u64 {
        self.table.order.as_ref().map_or(0, KeyOrder::rows)
    }

    /// Returns the piece of a location.
    fn piece(&self, location: EntryLocation) -> Result<&Arc<Sst>> {
        let piece = self.table.ssts.get(location.piece).map(|one| &one.sst);
        let has_block = |piece: &&Arc<Sst>| location.block < piece.blocks();
        piece.filter(has_block).ok_or_else(|| self.damage("a row names no block"))
    }

    fn damage(&self, what: &str) -> Error {
        let newest = self.table.ssts.first().map(|one| &one.sst);
        let (label, offset) =
            newest.map_or(("", 0), |sst| (sst.label.as_str(), sst.footer.order.offset));
        Error::corruption(label, offset, format!("key-location array: {what}"))
    }

    /// Returns the locations of rows.
    fn locations(&mut self, rows: Range<u64>) -> Result<Vec<EntryLocation>> {
        let mut found = Vec::new();
        let mut next = rows.start;
        while next < rows.end {
            let number = next / CHUNK_ROWS;
            if self.chunk.as_ref().is_none_or(|(loaded, _)| *loaded != number)
                && let Some(newest) = self.table.ssts.first()
            {
                let cache = self.start.cache.as_deref();
                self.chunk = Some((number, newest.sst.order_chunk(number, cache)?));
            }
            let first = number * CHUNK_ROWS;
            let end = rows.end.min(first + CHUNK_ROWS);
            let chunk = self.chunk.as_ref().map_or(&[][..], |(_, chunk)| chunk);
            let part = chunk.get(to_usize(next - first)..to_usize(end - first));
            found.extend_from_slice(part.ok_or_else(|| self.damage("it ends early"))?);
            next = end;
        }
        Ok(found)
    }

    /// Returns the number of rows whose keys are below `key`.
    fn rows_below(&mut self, key: &[u8]) -> Result<u64> {
        let Some(order) = &self.table.order else { return Ok(0) };
        let Range { start: mut low, end: mut high } = order.seek(key);
        while low < high {
            let middle = low + (high - low) / 2;
            self.load_rows(middle..middle + 1)?;
            if self.row(0).is_some_and(|row| self.key_of(row) < key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn row(&self, position: usize) -> Option<&LoadedRow> {
        self.rows.get(position)?.as_ref()
    }

    fn key_of(&self, row: &LoadedRow) -> &[u8] {
        self.bytes.get(row.key.clone()).unwrap_or(&[])
    }

    /// Loads rows in the place of those that were loaded before.
    fn load_rows(&mut self, rows: Range<u64>) -> Result<()> {
        let locations = self.locations(rows)?;
        self.bytes.clear();
        self.rows.clear();
        self.rows.resize(locations.len(), None);
        let mut missing = Vec::new();
        for (index, location) in locations.iter().enumerate() {
            if !self.copy_cached(index, *location)? {
                missing.push((*location, index));
            }
        }
        if !missing.is_empty() {
            missing.sort_unstable();
            self.read_blocks(&missing)?;
        }
        if self.rows.iter().all(Option::is_some) {
            return Ok(());
        }
        Err(self.damage("a row names no entry"))
    }

    /// Copies the entry of a row from the cache. Returns `false` if its block is not there.
    fn copy_cached(&mut self, index: usize, location: EntryLocation) -> Result<bool> {
        let mut entries = mem::take(&mut self.copied);
        let Some(cache) = &self.start.cache else { return Ok(false) };
        let piece = self.piece(location)?;
        let wanted = (CopyStart::Entry(location.ordinal), Direction::Up, 1);
        let copied = cache.copy_entries(piece.slot(location.block), wanted, &mut entries);
        if let Some(copied) = &copied {
            let ordinal = if copied.is_whole { location.ordinal } else { 0 };
            let found = nth_entry(&entries, ordinal);
            if let Some((entry, slot)) = found.zip(self.rows.get_mut(index)) {
                *slot = copy_to(&mut self.bytes, &entries, entry);
            }
        }
        self.copied = entries;
        Ok(copied.is_some())
    }

    /// Reads the blocks of rows, which are sorted, and copies their entries.
    fn read_blocks(&mut self, missing: &[(EntryLocation, usize)]) -> Result<()> {
        let runs = self.runs_of(missing)?;
        let mut requests = Vec::new();
        for run in &runs {
            let sst = self.sst(run.piece)?;
            let span = sst.span(run.blocks.clone());
            let buffer = AlignedBuffer::zeroed(span.whole());
            let (file, offset, length) = (Arc::clone(sst.file()), span.offset, buffer.len());
            requests.push(Request::Read { file, offset, buffer, length });
        }
        let done = self.io.queues.transfer(&*self.io.env, requests)?;
        for (run, completion) in runs.iter().zip(done) {
            let sst = self.sst(run.piece)?;
            let span = sst.span(run.blocks.clone());
            let mut buffer = completion.buffer;
            if completion.result.ok() != Some(span.whole()) {
                // The read is repeated, and that reports the error.
                sst.read_into(span, &mut buffer)?;
            }
            let mut rows = missing.get(run.rows.clone()).unwrap_or(&[]);
            while let Some((first, _)) = rows.first() {
                let block = first.block;
                let count = rows.partition_point(|(location, _)| location.block <= block);
                let (these, rest) = rows.split_at(count.max(1));
                let open = sst.open_block(&buffer, span, (run.blocks.start, block))?;
                let slots = SlotBlock::parse(open.entries());
                let slots = slots.ok_or_else(|| self.damage("a block has no table of slots"))?;
                if let Some(cache) = self.start.cache.as_ref().filter(|_| !self.has_read) {
                    cache.fill(sst.slot_to_fill(block, cache), slots.entries());
                }
                self.copy_entries(slots.entries(), these);
                rows = rest;
            }
        }
        Ok(())
    }

    fn sst(&self, piece: usize) -> Result<Arc<Sst>> {
        let sst = self.table.ssts.get(piece).map(|one| Arc::clone(&one.sst));
        sst.ok_or_else(|| self.damage("a row names no piece"))
    }

    /// Copies entries of one block, whose rows are sorted by the index in the block.
    fn copy_entries(&mut self, entries: &[u8], rows: &[(EntryLocation, usize)]) {
        let (mut at, mut ordinal) = (0, 0);
        for (location, index) in rows {
            let mut found = None;
            while ordinal <= location.ordinal
                && let Some((entry, next)) = block::entry_at(entries, at)
            {
                found = (ordinal == location.ordinal).then_some(entry);
                (at, ordinal) = (next, ordinal + 1);
            }
            if let Some((entry, slot)) = found.zip(self.rows.get_mut(*index)) {
                *slot = copy_to(&mut self.bytes, entries, entry);
            }
        }
    }

    /// Divides sorted rows into those that one read gets.
    fn runs_of(&self, missing: &[(EntryLocation, usize)]) -> Result<Vec<BlockRun>> {
        let mut runs: Vec<BlockRun> = Vec::new();
        for (at, (location, _)) in missing.iter().enumerate() {
            let sst = self.piece(*location)?;
            let end = location.block + 1;
            let extended = runs.last_mut().filter(|run| {
                let last = run.blocks.end - 1;
                run.piece == location.piece
                    && (location.block <= last || sst.gap_bytes(last..location.block) <= GAP_BYTES)
            });
            match extended {
                Some(run) => {
                    run.blocks.end = run.blocks.end.max(end);
                    run.rows.end = at + 1;
                }
                None => runs.push(BlockRun {
                    piece: location.piece,
                    blocks: location.block..end,
                    rows: at..at + 1,
                }),
            }
        }
        Ok(runs)
    }

    /// Loads the next batch of rows.
    fn load_batch(&mut self) -> Result<()> {
        let all = self.row_count();
        let rows = match self.start.way {
            Direction::Up => self.next..all.min(self.next + self.batch_rows),
            Direction::Down => self.next.saturating_sub(self.batch_rows)..self.next,
        };
        self.position = None;
        if rows.is_empty() {
            return Ok(());
        }
        self.next = match self.start.way {
            Direction::Up => mutant!(TphScanSkipsRows: rows.end + 1, else rows.end),
            Direction::Down => rows.start,
        };
        self.load_rows(rows)?;
        self.has_read = true;
        self.batch_rows = (self.batch_rows * 2).min(self.batch_rows_max);
        self.position = match self.start.way {
            Direction::Up => Some(0),
            Direction::Down => self.rows.len().checked_sub(1),
        };
        Ok(())
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.bytes.get(self.row(self.position?)?.key.clone())
    }

    pub(super) fn value(&self) -> Option<&[u8]> {
        let row = self.row(self.position?).filter(|row| !row.tombstone)?;
        self.bytes.get(row.value.clone())
    }

    pub(super) fn load_first(&mut self) -> Result<()> {
        if self.is_started {
            return Ok(());
        }
        self.is_started = true;
        self.next = match (self.start.key.take(), self.start.way) {
            (Some(key), _) => self.rows_below(&key)?,
            (None, Direction::Up) => 0,
            (None, Direction::Down) => self.row_count(),
        };
        self.load_batch()
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        let Some(position) = self.position else { return Ok(()) };
        self.position = match self.start.way {
            Direction::Up => Some(position + 1).filter(|next| *next < self.rows.len()),
            Direction::Down => position.checked_sub(1),
        };
        if self.position.is_none() { self.load_batch() } else { Ok(()) }
    }
}

/// Returns the entry with this index.
fn nth_entry(entries: &[u8], ordinal: usize) -> Option<EntryRef> {
    let mut at = 0;
    for _ in 0..ordinal {
        at = block::entry_at(entries, at)?.1;
    }
    Some(block::entry_at(entries, at)?.0)
}

/// Appends key and value of an entry to `bytes`.
fn copy_to(bytes: &mut Vec<u8>, entries: &[u8], entry: EntryRef) -> Option<LoadedRow> {
    let start = bytes.len();
    bytes.extend_from_slice(entries.get(entry.key)?);
    let middle = bytes.len();
    bytes.extend_from_slice(entries.get(entry.value)?);
    Some(LoadedRow { key: start..middle, value: middle..bytes.len(), tombstone: entry.tombstone })
}

/// Returns an estimate of the number of rows in a range of keys.
pub(super) fn estimate_rows(table: &TphTable, (start, end): (Option<&[u8]>, Option<&[u8]>)) -> u64 {
    let Some(order) = &table.order else { return 0 };
    let middle = |rows: Range<u64>| u64::midpoint(rows.start, rows.end);
    let first = start.map_or(0, |key| middle(order.seek(key)));
    let last = end.map_or(order.rows(), |key| middle(order.seek(key)));
    last.saturating_sub(first).min(to_u64(usize::MAX))
}
