//! Cursors over tables, levels and partitions, and the sources of merges.

use std::sync::Arc;

use super::{
    order_cursor::{KeyOrderCursor, ScanIo},
    partition::Partition,
    piece_cursor::{InvalidFilter, PieceCursor},
    table::{TableSst, TphTable},
    version::Version,
};
use crate::{
    Result,
    lsm::{
        cursor::merge::{
            Direction, DiskCursor, MemtableCursor, MergeCursor, ReadAheadSizes, ScanStart,
            SortedCursor, SstCursor,
        },
        memtable::Memtable,
        sst::key_section::KeyCursor,
    },
    util::{codec::to_u64, mutant::mutant},
};

/// A merging cursor over the sources of this engine.
pub(super) type TphMergeCursor = MergeCursor<TphCursor>;

/// Creates a cursor for each memtable.
pub(super) fn memtable_cursors(memtables: &[Arc<Memtable>], start: &ScanStart) -> Vec<TphCursor> {
    let cursors = MemtableCursor::all(memtables.to_vec(), start);
    cursors.into_iter().map(|cursor| TphCursor::Memtable(Box::new(cursor))).collect()
}

/// Creates a cursor for each SST of a table, for a merge. `filter` skips the keys that a table with
/// two tiers leads to the invalid piece.
pub(super) fn merge_cursors(
    table: &TphTable,
    start: &ScanStart,
    ahead: ReadAheadSizes,
    filter: Option<&InvalidFilter>,
) -> Vec<TphCursor> {
    table.ssts.iter().map(|one| merge_cursor(one, start, ahead, filter)).collect()
}

/// Creates a cursor for an SST, for a merge.
pub(super) fn merge_cursor(
    one: &TableSst,
    start: &ScanStart,
    ahead: ReadAheadSizes,
    filter: Option<&InvalidFilter>,
) -> TphCursor {
    if let Some(cursor) = PieceCursor::new(one, start, filter.cloned()) {
        return TphCursor::Piece(Box::new(cursor));
    }
    TphCursor::Sst(Box::new(SstCursor::new(Arc::clone(&one.sst), start.clone(), ahead)))
}

/// Creates the cursors of a range over a table: one for each SST, or one for the whole table with
/// two tiers.
pub(super) fn range_cursors(
    table: &Arc<TphTable>,
    start: &ScanStart,
    ahead: ReadAheadSizes,
    io: &ScanIo,
) -> Vec<TphCursor> {
    if table.order.is_none() {
        return merge_cursors(table, start, ahead, None);
    }
    vec![TphCursor::Order(Box::new(KeyOrderCursor::new(table, start, ahead, io)))]
}

/// A cursor over the tables of a level of key ranges. It opens one table at a time.
#[derive(Debug)]
pub(super) struct LevelCursor {
    version: Arc<Version>,
    /// Index of the level in the version.
    level: usize,
    start: ScanStart,
    ahead: ReadAheadSizes,
    io: ScanIo,
    /// Index of the next table. In a downward scan, one more than its index.
    next: usize,
    /// The cursor over the current table.
    inner: Option<TphMergeCursor>,
}

impl LevelCursor {
    pub(super) fn new(
        version: Arc<Version>,
        level: usize,
        start: ScanStart,
        (ahead, io): (ReadAheadSizes, ScanIo),
    ) -> Self {
        let tables = version.levels.get(level).map_or(&[][..], Vec::as_slice);
        let key = start.key.as_deref();
        let after = match (key, start.way) {
            (Some(key), Direction::Up) => {
                tables.partition_point(|table| table.lower_bound.as_slice() <= key)
            }
            (Some(key), Direction::Down) => {
                tables.partition_point(|table| table.lower_bound.as_slice() < key)
            }
            (None, Direction::Up) => 1,
            (None, Direction::Down) => tables.len(),
        };
        let next = if start.way == Direction::Up { after.saturating_sub(1) } else { after };
        let mut cursor = Self { version, level, start, ahead, io, next, inner: None };
        cursor.open_next();
        cursor
    }

    /// Opens the next table that has an SST.
    fn open_next(&mut self) {
        self.inner = None;
        loop {
            let index = match self.start.way {
                Direction::Up => Some(self.next),
                Direction::Down => self.next.checked_sub(1),
            };
            let tables = self.version.levels.get(self.level);
            let table = index.and_then(|index| tables?.get(index));
            let Some(table) = table else { return };
            self.next = match self.start.way {
                Direction::Up => self.next + 1,
                Direction::Down => self.next - 1,
            };
            if !table.ssts.is_empty() {
                let sources = range_cursors(table, &self.start, self.ahead, &self.io);
                self.inner = Some(TphMergeCursor::new(sources, self.start.way));
                return;
            }
        }
    }

    fn load_first(&mut self) -> Result<()> {
        while let Some(inner) = &mut self.inner {
            inner.load_first()?;
            if inner.key().is_some() {
                return Ok(());
            }
            // The scan of each further table begins at the table's first entry.
            self.start.key = None;
            mutant!(TphRangeStopsEarly => self.next = usize::MAX);
            self.open_next();
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(inner) = &mut self.inner {
            inner.advance()?;
        }
        self.load_first()
    }
}

/// A cursor over the entries that belong to one partition of the next level.
#[derive(Debug)]
pub(super) struct PartitionCursor {
    pub(super) inner: TphMergeCursor,
    pub(super) partition: Partition,
}

impl PartitionCursor {
    fn load_first(&mut self) -> Result<()> {
        self.inner.load_first()?;
        while self.inner.key().is_some_and(|key| !self.partition.contains(key)) {
            if self.inner.key().is_some_and(|key| self.partition.is_past(key)) {
                self.inner.end();
                return Ok(());
            }
            self.inner.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        self.inner.advance()?;
        self.load_first()
    }
}

/// A source of a merge.
#[derive(Debug)]
pub(super) enum TphCursor {
    Memtable(Box<MemtableCursor>),
    Sst(Box<SstCursor>),
    /// The keys of an SST. Values look empty: the merge does not need them.
    Keys(Box<KeyCursor>),
    /// A piece of a table with two tiers.
    Piece(Box<PieceCursor>),
    /// A table with two tiers, in key order.
    Order(Box<KeyOrderCursor>),
    Level(Box<LevelCursor>),
    Partition(Box<PartitionCursor>),
}

impl SortedCursor for TphCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Sst(cursor) => cursor.key(),
            Self::Keys(cursor) => cursor.key(),
            Self::Piece(cursor) => cursor.key(),
            Self::Order(cursor) => cursor.key(),
            Self::Level(cursor) => cursor.inner.as_ref()?.key(),
            Self::Partition(cursor) => cursor.inner.key(),
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Memtable(cursor) => cursor.value(),
            Self::Sst(cursor) => cursor.value(),
            Self::Keys(cursor) => cursor.value_bytes().map(|_| &[][..]),
            Self::Piece(cursor) => cursor.value(),
            Self::Order(cursor) => cursor.value(),
            Self::Level(cursor) => cursor.inner.as_ref()?.value(),
            Self::Partition(cursor) => cursor.inner.value(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Memtable(cursor) => cursor.advance(),
            Self::Sst(cursor) => cursor.advance(),
            Self::Keys(cursor) => cursor.advance(),
            Self::Piece(cursor) => cursor.advance(),
            Self::Order(cursor) => cursor.advance(),
            Self::Level(cursor) => cursor.advance(),
            Self::Partition(cursor) => cursor.advance(),
        }
    }

    fn load_first(&mut self) -> Result<()> {
        match self {
            Self::Memtable(_) => Ok(()),
            Self::Sst(cursor) => cursor.load_first(),
            Self::Keys(cursor) => cursor.load_first(),
            Self::Piece(cursor) => cursor.load_first(),
            Self::Order(cursor) => cursor.load_first(),
            Self::Level(cursor) => cursor.load_first(),
            Self::Partition(cursor) => cursor.load_first(),
        }
    }

    fn prefetch(&self) {
        match self {
            Self::Memtable(_) | Self::Keys(_) | Self::Piece(_) | Self::Order(_) => {}
            Self::Sst(cursor) => cursor.prefetch(),
            Self::Level(cursor) => {
                let sources = cursor.inner.iter().flat_map(|inner| &inner.sources);
                sources.for_each(SortedCursor::prefetch);
            }
            Self::Partition(cursor) => cursor.inner.sources.iter().for_each(SortedCursor::prefetch),
        }
    }

    fn collect_disk_reads<'a>(&'a mut self, out: &mut Vec<&'a mut dyn DiskCursor>) -> Result<()> {
        match self {
            Self::Sst(cursor) => cursor.collect_disk_reads(out),
            Self::Level(cursor) => {
                let sources = cursor.inner.iter_mut().flat_map(|inner| &mut inner.sources);
                sources.into_iter().try_for_each(|source| source.collect_disk_reads(out))
            }
            Self::Partition(cursor) => cursor
                .inner
                .sources
                .iter_mut()
                .try_for_each(|source| source.collect_disk_reads(out)),
            Self::Memtable(_) | Self::Keys(_) | Self::Piece(_) | Self::Order(_) => Ok(()),
        }
    }
}

impl TphCursor {
    /// Returns the bytes of one segment of each piece that the cursor visits. A segment has at most
    /// `most` bytes.
    pub(super) fn segment_bytes(&self, most: u64) -> u64 {
        match self {
            Self::Piece(cursor) => cursor.payload_bytes().min(most),
            Self::Partition(cursor) => {
                cursor.inner.sources.iter().map(|source| source.segment_bytes(most)).sum()
            }
            _ => 0,
        }
    }

    /// Returns the block of an SST's current entry and the length of its value, `None` for a
    /// tombstone.
    pub(super) fn entry_block(&self) -> (u32, Option<u64>) {
        match self {
            Self::Sst(cursor) => (cursor.block(), cursor.value().map(|value| to_u64(value.len()))),
            Self::Keys(cursor) => (cursor.block(), cursor.value_bytes()),
            Self::Piece(cursor) => {
                (cursor.place().0, cursor.value().map(|value| to_u64(value.len())))
            }
            other => (0, other.value().map(|value| to_u64(value.len()))),
        }
    }
}
