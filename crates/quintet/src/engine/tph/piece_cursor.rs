//! The cursor over a piece for merges and checks: segment by segment, each sorted by key in memory.
//!
//! The next segment is read ahead while the current one is visited.

#![deny(clippy::indexing_slicing)]

use std::{mem, ops::Range, sync::Arc};

use super::{
    table::{TableSst, TphTable},
    two_tiers::local::LocalIndex,
};
use crate::{
    Result,
    io::{AlignedBuffer, Pending, Request},
    lsm::{
        cursor::merge::ScanStart,
        sst::{Sst, block, slot_block::SlotBlock},
        table_hasher::TableHasher,
    },
    util::mutant::mutant,
};

/// An entry of the loaded segment: offsets in its bytes, and its place.
#[derive(Clone, Debug)]
struct LoadedEntry {
    key: Range<usize>,
    value: Range<usize>,
    tombstone: bool,
    block: u32,
    ordinal: usize,
}

/// Skips keys that lead to the invalid piece of a table.
#[derive(Clone, Debug)]
pub(super) struct InvalidFilter {
    table: Arc<TphTable>,
    hasher: TableHasher,
}

impl InvalidFilter {
    /// Returns the filter of a table; `None` if no key of it leads to the invalid piece.
    pub(super) fn new(table: &Arc<TphTable>, hasher: TableHasher) -> Option<Self> {
        (table.invalid > 0).then(|| Self { table: Arc::clone(table), hasher })
    }

    fn is_invalid(&self, key: &[u8]) -> bool {
        let is_invalid = self.table.is_invalid(self.hasher.hash(key), key);
        mutant!(TphRevivesInvalid: false, else is_invalid)
    }
}

/// An upward cursor over a piece. See the module head.
#[derive(Debug)]
pub(super) struct PieceCursor {
    sst: Arc<Sst>,
    local: Arc<LocalIndex>,
    start: ScanStart,
    filter: Option<InvalidFilter>,
    /// The next segment to load.
    next: usize,
    /// The read-ahead of the next segment, and the buffer for the one after it.
    ahead: Option<Pending>,
    spare: AlignedBuffer,
    bytes: Vec<u8>,
    entries: Vec<LoadedEntry>,
    position: usize,
    is_started: bool,
}

impl PieceCursor {
    /// Creates a cursor; `None` if the piece has no local hash.
    pub(super) fn new(
        piece: &TableSst,
        start: &ScanStart,
        filter: Option<InvalidFilter>,
    ) -> Option<Self> {
        let local = Arc::clone(piece.local.as_ref()?);
        let next = start.key.as_deref().map_or(0, |key| local.segment_of(key));
        let mut cursor = Self {
            sst: Arc::clone(&piece.sst),
            local,
            start: start.clone(),
            filter,
            next,
            ahead: None,
            spare: AlignedBuffer::zeroed(0),
            bytes: Vec::new(),
            entries: Vec::new(),
            position: 0,
            is_started: false,
        };
        cursor.read_ahead();
        Some(cursor)
    }

    /// Starts the read of the next segment, if the cursor has a flow.
    fn read_ahead(&mut self) {
        let Some(flow) = self.start.flow.as_ref().filter(|_| self.next < self.local.segments())
        else {
            return;
        };
        let span = self.sst.span(self.local.blocks_of(self.next));
        let mut buffer = mem::replace(&mut self.spare, AlignedBuffer::zeroed(0));
        buffer.fit(span.whole());
        let (file, offset, length) = (Arc::clone(self.sst.file()), span.offset, buffer.len());
        self.ahead = Some(flow.start(Request::Read { file, offset, buffer, length }));
    }

    /// Loads the next segment and sorts its entries. Returns `false` at the end.
    fn load_segment(&mut self) -> Result<bool> {
        self.entries.clear();
        self.bytes.clear();
        self.position = 0;
        if self.next >= self.local.segments() {
            return Ok(false);
        }
        let blocks = self.local.blocks_of(self.next);
        let span = self.sst.span(blocks.clone());
        let (mut buffer, mut is_loaded) = (AlignedBuffer::zeroed(0), false);
        if let Some(read) = self.ahead.take() {
            let done = read.wait();
            // A failed read-ahead is read again, and that read reports the error.
            is_loaded = done.result.is_ok_and(|count| count == span.whole());
            buffer = done.buffer;
        }
        if !is_loaded {
            self.sst.read_into(span, &mut buffer)?;
        }
        for number in blocks.clone() {
            let open = self.sst.open_block(&buffer, span, (blocks.start, number))?;
            let damage = |what: &str| self.sst.damage(span.offset, what);
            let slots = SlotBlock::parse(open.entries());
            let slots = slots.ok_or_else(|| damage("a block has no table of slots"))?;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(slots.entries());
            let parsed = list_entries(&self.bytes, start, number, &mut self.entries);
            parsed.ok_or_else(|| damage("an entry does not parse"))?;
        }
        let bytes = &self.bytes;
        self.entries.sort_unstable_by_key(|entry| bytes.get(entry.key.clone()));
        self.next += 1;
        self.spare = buffer;
        self.read_ahead();
        Ok(true)
    }

    fn entry(&self) -> Option<&LoadedEntry> {
        self.entries.get(self.position)
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.bytes.get(self.entry()?.key.clone())
    }

    pub(super) fn value(&self) -> Option<&[u8]> {
        let entry = self.entry().filter(|entry| !entry.tombstone)?;
        self.bytes.get(entry.value.clone())
    }

    /// Returns the block of the current entry and its index there.
    pub(super) fn place(&self) -> (u32, usize) {
        self.entry().map_or((0, 0), |entry| (entry.block, entry.ordinal))
    }

    /// Returns the bytes of keys and values of the piece.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.sst.footer.payload_bytes
    }

    /// Returns the first block of the current entry's segment.
    pub(super) fn segment_block(&self) -> u32 {
        self.local.blocks_of(self.next.saturating_sub(1)).start
    }

    /// Loads segments until there is an entry that counts, or the end.
    fn settle(&mut self) -> Result<()> {
        loop {
            match self.key() {
                None => {
                    if !self.load_segment()? {
                        return Ok(());
                    }
                }
                Some(key) if self.filter.as_ref().is_some_and(|one| one.is_invalid(key)) => {
                    self.position += 1;
                }
                Some(_) => return Ok(()),
            }
        }
    }

    pub(super) fn load_first(&mut self) -> Result<()> {
        if mem::replace(&mut self.is_started, true) {
            return Ok(());
        }
        self.load_segment()?;
        if let Some(start) = self.start.key.take() {
            let bytes = &self.bytes;
            let is_below =
                |entry: &LoadedEntry| bytes.get(entry.key.clone()).is_some_and(|key| key < &*start);
            self.position = self.entries.partition_point(is_below);
        }
        self.settle()
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        self.position += 1;
        self.settle()
    }
}

/// Appends the entries of a block, whose bytes begin at `start`, to `out`. Returns `None` if one
/// does not parse.
fn list_entries(bytes: &[u8], start: usize, block: u32, out: &mut Vec<LoadedEntry>) -> Option<()> {
    let mut at = start;
    let mut ordinal = 0;
    while at < bytes.len() {
        let (block::EntryRef { key, value, tombstone }, next) = block::entry_at(bytes, at)?;
        out.push(LoadedEntry { key, value, tombstone, block, ordinal });
        (at, ordinal) = (next, ordinal + 1);
    }
    Some(())
}

/// Reads the keys of a block's entries, in order.
pub(super) fn keys_of_block(sst: &Sst, number: u32) -> Result<Vec<Vec<u8>>> {
    let span = sst.span(number..number + 1);
    let buffer = sst.read(span)?;
    let open = sst.open_block(&buffer, span, (number, number))?;
    let damage = |what: &str| sst.damage(span.offset, what);
    keys_of(open.entries()).ok_or_else(|| damage("a block of slots does not parse"))
}

/// Returns the keys of a decoded block, in the order of slots.
pub(super) fn keys_of(block: &[u8]) -> Option<Vec<Vec<u8>>> {
    let entries = SlotBlock::parse(block)?.entries();
    let mut found = Vec::new();
    list_entries(entries, 0, 0, &mut found)?;
    found.into_iter().map(|entry| entries.get(entry.key).map(<[u8]>::to_vec)).collect()
}
