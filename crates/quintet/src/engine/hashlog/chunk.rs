//! A chunk: its identity, what of it is in files, and where.
//!
//! The counts that change with each write are in the [arena](super::arena).

use std::sync::Arc;

use super::{arena::EXTENT_HEAD_UNITS, files::FileRange, manifest::Extent, pack::PackedExtent};
use crate::{
    Error,
    util::sync::{AtomicBool, AtomicU64, Mutex, RwLock, lock, read, write},
};

/// A chunk. The counts that change with each write are in the [`ChunkArena`].
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) id: u64,
    pub(super) serial: u64,
    pub(super) order: u64,
    pub(super) created: u64,
    /// The table was opened with it: it takes no entries.
    pub(super) is_adopted: bool,
    /// Its packed extents, each in its own file range; empty in a table without compression.
    pub(super) packed_extents: RwLock<Vec<Arc<PackedExtent>>>,
    /// Units that a read of one entry from the file fetches.
    pub(super) span: AtomicU64,
    /// The whole chunk is durable and sealed: it may leave memory.
    pub(super) written: AtomicBool,
    /// It holds nothing live: the next checkpoint drops it.
    pub(super) retired: AtomicBool,
    /// Number of entries that writers had to read from its file.
    pub(super) writer_reads: AtomicU64,
    pub(super) flush: Mutex<FlushState>,
}

/// How much of a chunk is in its file.
#[derive(Debug, Default)]
pub(super) struct FlushState {
    /// Start of the next extent, in units.
    pub(super) start: u64,
    /// Start and end of extents that are frozen but not written.
    pub(super) ended: Vec<(u64, u64)>,
    /// No extent follows those.
    pub(super) sealed: bool,
    /// Its file range, once one is allocated; a new one after that file has failed.
    pub(super) file_range: Option<FileRange>,
    /// Extents that are written, and how many of them are durable.
    pub(super) extents: Vec<Extent>,
    pub(super) durable_count: usize,
}

impl Chunk {
    /// Returns the units of all entries in its extents that are written.
    pub(super) fn entry_units(&self) -> u64 {
        let units = |extent: &Extent| extent.end - extent.start - EXTENT_HEAD_UNITS;
        lock(&self.flush).extents.iter().map(units).sum()
    }

    /// Returns its file range; `None` before the first flush, and for a packed chunk.
    pub(super) fn file_range(&self) -> Option<FileRange> {
        lock(&self.flush).file_range.clone()
    }

    /// Returns the packed extent that holds a unit.
    pub(super) fn packed_extent(&self, unit: u64) -> Option<Arc<PackedExtent>> {
        let packed_extents = read(&self.packed_extents);
        let packed_extent = packed_extents
            .iter()
            .find(|packed_extent| packed_extent.start <= unit && unit < packed_extent.end)?;
        Some(Arc::clone(packed_extent))
    }

    /// Adds a packed extent, unless it is there.
    pub(super) fn add_packed_extent(&self, packed_extent: PackedExtent) {
        let mut packed_extents = write(&self.packed_extents);
        if packed_extents.iter().all(|known| known.start != packed_extent.start) {
            packed_extents.push(Arc::new(packed_extent));
        }
    }

    /// Returns all file ranges of the chunk.
    pub(super) fn file_ranges(&self) -> Vec<FileRange> {
        let packed_extents = read(&self.packed_extents);
        let packed_extents =
            packed_extents.iter().map(|packed_extent| packed_extent.file_range.clone());
        self.file_range().into_iter().chain(packed_extents).collect()
    }

    /// Returns a `Corruption` error at the position of a unit in the files.
    pub(super) fn damage(&self, unit: u64, what: &str) -> Error {
        if let Some(packed_extent) = self.packed_extent(unit) {
            let from = packed_extent.blocks.find(unit).map_or(0, |block| block.from);
            return packed_extent.file_range.damage(from, what);
        }
        self.file_range().map_or(Error::Closed, |file_range| file_range.damage(unit * 8, what))
    }
}
