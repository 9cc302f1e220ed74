//! Tables (TPHs): SSTs whose entries share one index.
//!
//! Invariants: SSTs are listed from the newest to the oldest; of entries of one key the newest
//! SST's counts. The index has every key of every SST, and lies in the newest SST.

use std::{ops::Range, sync::Arc};

use super::{cursor::Source, index::Index, options::TphSettings};
use crate::{
    lsm::{
        cursor::merge::{ReadAheadSizes, ScanStart, SstCursor},
        sst::Sst,
    },
    util::codec::{KeyHash, low_u32},
};

/// An SST as one of a table.
#[derive(Clone, Debug)]
pub(super) struct SstUse {
    pub(super) sst: Arc<Sst>,
    /// How many it has: gets look here, at one place for all SSTs of a table.
    pub(super) blocks: u32,
    /// Entries that no newer SST has, tombstones included, and bytes of their keys and values.
    pub(super) live: u64,
    pub(super) live_bytes: u64,
}

impl SstUse {
    /// An SST with so many live entries of so many bytes.
    pub(super) fn new(sst: Arc<Sst>, (live, live_bytes): (u64, u64)) -> Self {
        Self { blocks: sst.blocks(), sst, live, live_bytes }
    }
}

/// A table. See the module head.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The lowest place that belongs to it: a key, or, in hash ranges, four bytes of its hash.
    pub(super) low: Vec<u8>,
    pub(super) uses: Vec<SstUse>,
    /// Live tombstones.
    pub(super) tombstones: u64,
    pub(super) index: Option<Index>,
}

impl Table {
    /// SST and block that may have a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<(&Arc<Sst>, u32)> {
        let number = self.index.as_ref()?.find(hash, key)?;
        self.block(number)
    }

    /// The slot of a hash in the index, for [`find_at`](Self::find_at).
    #[inline]
    pub(super) fn slot_of(&self, hash: u64) -> usize {
        self.index.as_ref().map_or(0, |index| index.slot_of(hash))
    }

    /// As [`find`](Self::find), for a hash of this slot.
    #[inline]
    pub(super) fn find_at(&self, slot: usize, hash: u64, key: &[u8]) -> Option<(&Arc<Sst>, u32)> {
        let number = self.index.as_ref()?.find_at(slot, hash, key)?;
        self.block(number)
    }

    /// The SST of a block counted through all SSTs, and its number there.
    fn block(&self, mut number: u32) -> Option<(&Arc<Sst>, u32)> {
        for one in &self.uses {
            if number < one.blocks {
                return Some((&one.sst, number));
            }
            number -= one.blocks;
        }
        None
    }

    /// Blocks of all SSTs.
    pub(super) fn blocks(&self) -> u64 {
        self.uses.iter().map(|one| u64::from(one.blocks)).sum()
    }

    /// Live entries, tombstones included.
    pub(super) fn live(&self) -> u64 {
        self.uses.iter().map(|one| one.live).sum()
    }

    /// Its size in per cent of a full table's, by bytes or by entries, whichever is more.
    pub(super) fn fullness(&self, settings: &TphSettings) -> u64 {
        let by_bytes = self.live_bytes().saturating_mul(100) / settings.table_bytes;
        by_bytes.max(self.live().saturating_mul(100) / settings.table_entries)
    }

    /// Bytes of their keys and values.
    pub(super) fn live_bytes(&self) -> u64 {
        self.uses.iter().map(|one| one.live_bytes).sum()
    }

    /// Bytes of keys and values of all entries.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.uses.iter().map(|one| one.sst.footer.payload_bytes).sum()
    }

    /// Entries of all SSTs.
    pub(super) fn entries(&self) -> u64 {
        self.uses.iter().map(|one| one.sst.footer.entries).sum()
    }

    /// Walks over its SSTs.
    pub(super) fn cursors(&self, start: &ScanStart, ahead: ReadAheadSizes) -> Vec<Source> {
        let cursor = |one: &SstUse| {
            let cursor = SstCursor::new(Arc::clone(&one.sst), start.clone(), ahead);
            Source::Sst(Box::new(cursor))
        };
        self.uses.iter().map(cursor).collect()
    }

    /// Bytes of memory: of the index (hash, signatures, blocks' numbers) and of SSTs (offsets and
    /// fences).
    pub(super) fn memory_bytes(&self) -> [u64; 4] {
        let [hash, tags, blocks] = self.index.as_ref().map_or([0; 3], Index::memory_bytes);
        [hash, tags, blocks, self.uses.iter().map(|one| one.sst.memory_bytes()).sum()]
    }
}

/// How places of keys are told: by the key, or by its hash.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    Key,
    Hash(KeyHash),
}

impl Route {
    /// Calls `look` with the place of a key.
    #[inline]
    pub(super) fn with<T>(self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Key => look(key),
            Self::Hash(hash) => look(&low_u32(hash.hash(key) >> 32).to_be_bytes()),
        }
    }
}

/// The places of one table.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) route: Route,
    pub(super) places: Range<Vec<u8>>,
    /// Nothing lies past it.
    pub(super) is_last: bool,
}

impl Part {
    /// Whether a key belongs to it.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.route.with(key, |place| {
            place >= self.places.start.as_slice()
                && (self.is_last || place < self.places.end.as_slice())
        })
    }

    /// Whether neither this key nor any above it belongs to it.
    pub(super) fn is_past(&self, key: &[u8]) -> bool {
        matches!(self.route, Route::Key) && !self.is_last && key >= self.places.end.as_slice()
    }

    /// A key below all of its own.
    pub(super) fn first_key(&self) -> Option<Vec<u8>> {
        matches!(self.route, Route::Key).then(|| self.places.start.clone())
    }
}
