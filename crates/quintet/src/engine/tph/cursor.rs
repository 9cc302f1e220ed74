//! Walking over the tables of a level, and over what of a walk belongs to one table.

use std::sync::Arc;

use super::{Version, table::Part};
use crate::{
    Result,
    lsm::{
        cursor::merge::{
            Direction, DiskCursor, MemtableCursor, ReadAheadSizes, ScanStart, SortedCursor,
            SstCursor,
        },
        sst::key_section::KeyCursor,
    },
    util::{
        codec::to_u64,
        mutant::{self, Bug},
    },
};

/// Many walks as one.
pub(super) type MergeCursor = crate::lsm::cursor::merge::MergeCursor<Source>;

/// A walk over the tables of a level that follow each other in key order.
#[derive(Debug)]
pub(super) struct LevelCursor {
    version: Arc<Version>,
    /// The level's place.
    level: usize,
    start: ScanStart,
    ahead: ReadAheadSizes,
    /// The next table; walking down, one more than its place.
    next: usize,
    inner: Option<MergeCursor>,
}

impl LevelCursor {
    pub(super) fn new(
        version: Arc<Version>,
        level: usize,
        start: ScanStart,
        ahead: ReadAheadSizes,
    ) -> Self {
        let tables = version.levels.get(level).map_or(&[][..], Vec::as_slice);
        let key = start.key.as_deref();
        let after = match (key, start.way) {
            (Some(key), Direction::Up) => {
                tables.partition_point(|table| table.low.as_slice() <= key)
            }
            (Some(key), Direction::Down) => {
                tables.partition_point(|table| table.low.as_slice() < key)
            }
            (None, Direction::Up) => 1,
            (None, Direction::Down) => tables.len(),
        };
        let next = if start.way == Direction::Up { after.saturating_sub(1) } else { after };
        let mut cursor = Self { version, level, start, ahead, next, inner: None };
        cursor.open_next();
        cursor
    }

    /// Opens the next table that has anything.
    fn open_next(&mut self) {
        self.inner = None;
        loop {
            let place = match self.start.way {
                Direction::Up => Some(self.next),
                Direction::Down => self.next.checked_sub(1),
            };
            let tables = self.version.levels.get(self.level);
            let table = place.and_then(|place| tables?.get(place));
            let Some(table) = table else { return };
            self.next = match self.start.way {
                Direction::Up => self.next + 1,
                Direction::Down => self.next - 1,
            };
            if !table.uses.is_empty() {
                let sources = table.cursors(&self.start, self.ahead);
                self.inner = Some(MergeCursor::new(sources, self.start.way));
                // Further tables are walked from their first key.
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
            self.start.key = None;
            if mutant::active(Bug::TphRangeStopsEarly) {
                self.inner = None;
                return Ok(());
            }
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

/// What of a walk belongs to one table of the next level.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) inner: MergeCursor,
    pub(super) part: Part,
}

impl Filter {
    fn load_first(&mut self) -> Result<()> {
        self.inner.load_first()?;
        while self.inner.key().is_some_and(|key| !self.part.has(key)) {
            if self.inner.key().is_some_and(|key| self.part.is_past(key)) {
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

/// One walk of a merge.
#[derive(Debug)]
pub(super) enum Source {
    Mem(Box<MemtableCursor>),
    Sst(Box<SstCursor>),
    /// Of an SST whose values nobody wants: they look empty.
    Keys(Box<KeyCursor>),
    Level(Box<LevelCursor>),
    Filter(Box<Filter>),
}

impl SortedCursor for Source {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Mem(cursor) => cursor.key(),
            Self::Sst(cursor) => cursor.key(),
            Self::Keys(cursor) => cursor.key(),
            Self::Level(cursor) => cursor.inner.as_ref()?.key(),
            Self::Filter(filter) => filter.inner.key(),
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Mem(cursor) => cursor.value(),
            Self::Sst(cursor) => cursor.value(),
            Self::Keys(cursor) => cursor.value_bytes().map(|_| &[][..]),
            Self::Level(cursor) => cursor.inner.as_ref()?.value(),
            Self::Filter(filter) => filter.inner.value(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Mem(cursor) => cursor.advance(),
            Self::Sst(cursor) => cursor.advance(),
            Self::Keys(cursor) => cursor.advance(),
            Self::Level(cursor) => cursor.advance(),
            Self::Filter(filter) => filter.advance(),
        }
    }

    fn load_first(&mut self) -> Result<()> {
        match self {
            Self::Mem(_) => Ok(()),
            Self::Sst(cursor) => cursor.load_first(),
            Self::Keys(cursor) => cursor.load_first(),
            Self::Level(cursor) => cursor.load_first(),
            Self::Filter(filter) => filter.load_first(),
        }
    }

    fn prefetch(&self) {
        match self {
            Self::Mem(_) | Self::Keys(_) => {}
            Self::Sst(cursor) => cursor.prefetch(),
            Self::Level(cursor) => {
                let sources = cursor.inner.iter().flat_map(|inner| &inner.sources);
                sources.for_each(SortedCursor::prefetch);
            }
            Self::Filter(filter) => filter.inner.sources.iter().for_each(SortedCursor::prefetch),
        }
    }

    fn collect_disk_reads<'a>(&'a mut self, out: &mut Vec<&'a mut dyn DiskCursor>) -> Result<()> {
        match self {
            Self::Sst(cursor) => cursor.collect_disk_reads(out),
            Self::Level(cursor) => {
                let sources = cursor.inner.iter_mut().flat_map(|inner| &mut inner.sources);
                sources.into_iter().try_for_each(|source| source.collect_disk_reads(out))
            }
            Self::Filter(filter) => filter
                .inner
                .sources
                .iter_mut()
                .try_for_each(|source| source.collect_disk_reads(out)),
            Self::Mem(_) | Self::Keys(_) => Ok(()),
        }
    }
}

impl Source {
    /// The block of an SST's entry, and the length of its value; `None` for a tombstone.
    pub(super) fn place(&self) -> (u32, Option<u64>) {
        match self {
            Self::Sst(cursor) => (cursor.block(), cursor.value().map(|value| to_u64(value.len()))),
            Self::Keys(cursor) => (cursor.block(), cursor.value_bytes()),
            other => (0, other.value().map(|value| to_u64(value.len()))),
        }
    }
}
