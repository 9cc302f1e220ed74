//! Tables (two-tier perfect-hash tables, TPHs): groups of SSTs that share one index.
//!
//! Invariants:
//! - The SSTs are listed from the newest to the oldest. Of the entries of a key, the newest SST's
//!   is the current one.
//! - The index has every key of every SST. It is stored in the newest SST. With two tiers it has
//!   pieces in the place of blocks ([`super::two_tiers`]).

use std::sync::Arc;

use super::{
    index::TableIndex,
    options::TphSettings,
    two_tiers::{
        global::{self, GlobalAnswer},
        key_order::KeyOrder,
        local::LocalIndex,
    },
};
use crate::{lsm::sst::Sst, util::mutant::mutant};

/// An SST of a table.
#[derive(Clone, Debug)]
pub(super) struct TableSst {
    pub(super) sst: Arc<Sst>,
    /// Number of blocks: a copy, so that a get reads one array for all SSTs of a table.
    pub(super) blocks: u32,
    /// Number of entries whose key no newer SST has, tombstones included, and bytes of their keys
    /// and values.
    pub(super) live: u64,
    pub(super) live_bytes: u64,
    /// The local hash, with two tiers.
    pub(super) local: Option<Arc<LocalIndex>>,
}

impl TableSst {
    /// Creates the entry of an SST with this number of live entries and bytes.
    pub(super) fn new(
        sst: Arc<Sst>,
        (live, live_bytes): (u64, u64),
        local: Option<Arc<LocalIndex>>,
    ) -> Self {
        Self { blocks: sst.blocks(), sst, live, live_bytes, local }
    }
}

/// A table. See the module head.
#[derive(Debug, Default)]
pub(super) struct TphTable {
    /// The lowest partition key of the table ([`super::partition`]).
    pub(super) lower_bound: Vec<u8>,
    pub(super) ssts: Vec<TableSst>,
    /// Number of live tombstones.
    pub(super) tombstones: u64,
    pub(super) index: Option<TableIndex>,
    /// The samples of the key order, with two tiers.
    pub(super) order: Option<KeyOrder>,
    /// Number of keys that lead to the invalid piece, with two tiers.
    pub(super) invalid: u64,
}

impl TphTable {
    /// Returns the SST and the block that may have a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<(&TableSst, u32)> {
        self.find_at(self.slot_of(hash), hash, key)
    }

    /// Returns the index slot of a hash, for [`find_at`](Self::find_at).
    #[inline]
    pub(super) fn slot_of(&self, hash: u64) -> usize {
        self.index.as_ref().map_or(0, |index| index.slot_of(hash))
    }

    /// Returns the same as [`find`](Self::find), for a hash with this slot.
    #[inline]
    pub(super) fn find_at(&self, slot: usize, hash: u64, key: &[u8]) -> Option<(&TableSst, u32)> {
        let number = self.index.as_ref()?.find_at(slot, hash, key)?;
        if self.order.is_none() {
            return self.block(number);
        }
        let GlobalAnswer::Piece(piece) = global::answer(Some(number)) else { return None };
        let piece = self.ssts.get(mutant!(TphTakesOtherPiece: 0, else piece))?;
        let place = piece.local.as_ref()?.find(hash, key)?;
        Some((piece, place.block))
    }

    /// Returns whether a key of a table with two tiers leads to the invalid piece. The table must
    /// have an entry of the key.
    pub(super) fn is_invalid(&self, hash: u64, key: &[u8]) -> bool {
        let number = self.index.as_ref().and_then(|index| index.find(hash, key));
        self.invalid > 0 && global::answer(number) == GlobalAnswer::Nothing
    }

    /// Returns the SST of a block that is numbered through all SSTs, and its number in the SST.
    fn block(&self, mut number: u32) -> Option<(&TableSst, u32)> {
        for one in &self.ssts {
            if number < one.blocks {
                return Some((one, number));
            }
            number -= one.blocks;
        }
        None
    }

    /// Returns the number of blocks of all SSTs.
    pub(super) fn blocks(&self) -> u64 {
        self.ssts.iter().map(|one| u64::from(one.blocks)).sum()
    }

    /// Returns the number of live entries, tombstones included.
    pub(super) fn live(&self) -> u64 {
        self.ssts.iter().map(|one| one.live).sum()
    }

    /// Returns the size in percent of a full table, by bytes or by entries, whichever is more.
    pub(super) fn fullness(&self, settings: &TphSettings) -> u64 {
        let by_bytes = self.live_bytes().saturating_mul(100) / settings.table_bytes;
        by_bytes.max(self.live().saturating_mul(100) / settings.table_entries)
    }

    /// Returns the bytes of keys and values of the live entries.
    pub(super) fn live_bytes(&self) -> u64 {
        self.ssts.iter().map(|one| one.live_bytes).sum()
    }

    /// Returns the bytes of keys and values of all entries.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.ssts.iter().map(|one| one.sst.footer.payload_bytes).sum()
    }

    /// Returns the number of entries of all SSTs.
    pub(super) fn entries(&self) -> u64 {
        self.ssts.iter().map(|one| one.sst.footer.entries).sum()
    }

    /// Returns bytes of memory: hash, signatures and numbers of the index, the offsets and block
    /// indexes of the SSTs, and with two tiers the local hashes and the samples.
    pub(super) fn memory_bytes(&self) -> [u64; 6] {
        let [hash, tags, numbers] = self.index.as_ref().map_or([0; 3], TableIndex::memory_bytes);
        let offsets = self.ssts.iter().map(|one| one.sst.memory_bytes()).sum();
        let local = self.ssts.iter().filter_map(|one| one.local.as_ref());
        let local = local.map(|local| local.memory_bytes()).sum();
        let samples = self.order.as_ref().map_or(0, KeyOrder::memory_bytes);
        [hash, tags, numbers, offsets, local, samples]
    }
}
