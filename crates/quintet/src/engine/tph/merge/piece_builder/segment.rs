//! The segment of a piece that a merge fills: its entries, then its hash and its blocks.
//!
//! Entries arrive in key order. A full segment gets a perfect hash, and its entries go to blocks of
//! a fixed number of slots, in the order of slots (the paper's section 4.2). The number of slots is
//! that whose entries take `block_bytes` on average.
//!
//! Invariant: a segment ends with [`ENTRIES_MAX`] entries or with the bytes that the writer says.
//! So a merge has a bounded part of a piece in memory.

use crate::{
    Error, Result,
    engine::tph::{
        perfect_hash::{BuildOptions, Lanes, Method, PerfectHash},
        two_tiers::local::LocalIndex,
    },
    lsm::sst::{
        SstWriter,
        block::put_entry,
        order_section::{EntryLocation, ORDINAL_MAX},
        slot_block::{self, SLOTS_MAX},
    },
    util::{codec::shared_len, mutant::mutant},
};

/// Maximum number of entries of a segment. With about a thousand, the parts of a perfect hash that
/// every segment has take a quarter of a byte a key. A merge sorts this many entries at a time.
const ENTRIES_MAX: usize = 1024;

/// An entry of the segment.
#[derive(Clone, Copy, Debug)]
struct SegmentEntry {
    hash: u64,
    /// Its encoded bytes in the segment's.
    start: usize,
    end: usize,
    /// Number of its row in the merge.
    row: usize,
}

/// A segment under construction. See the module head.
#[derive(Debug, Default)]
pub(super) struct PieceSegment {
    entries: Vec<SegmentEntry>,
    bytes: Vec<u8>,
    /// The shortest prefix of the first key that is above all keys before it.
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// A segment of the piece is before this one.
    has_before: bool,
}

impl PieceSegment {
    /// Returns whether the segment ends before the next entry.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes.len() >= bytes_max
    }

    /// Adds an entry, whose key is above all others; `row` is the number of its row.
    pub(super) fn push(&mut self, (hash, key): (u64, &[u8]), value: Option<&[u8]>, row: usize) {
        if self.entries.is_empty() && self.has_before {
            let shared = shared_len(&self.last_key, key);
            let prefix = mutant!(TphShortensFirstKeys: shared, else shared + 1);
            self.first_key.extend_from_slice(key.get(..prefix).unwrap_or(key));
        }
        let start = self.bytes.len();
        put_entry(&mut self.bytes, key, value);
        self.entries.push(SegmentEntry { hash, start, end: self.bytes.len(), row });
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// Writes the segment and adds it to the local hash. Calls `locate` with each row and the
    /// location of its entry. The segment is empty afterwards.
    pub(super) fn finish(
        &mut self,
        writer: &mut SstWriter,
        local: &mut LocalIndex,
        block_bytes: usize,
        mut locate: impl FnMut(usize, EntryLocation),
    ) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let hash = self.build_hash()?;
        let block_slots = block_slots(self.bytes.len(), hash.slot_count(), block_bytes);
        // By slot; the entries of one slot by key.
        let mut order: Vec<(usize, usize)> =
            self.entries.iter().map(|entry| hash.slot(entry.hash)).zip(0..).collect();
        order.sort_unstable();
        let mut remaining = order.as_slice();
        let first_block = local.blocks();
        let (mut starts, mut bytes) = (Vec::new(), Vec::new());
        let slots = hash.slot_count();
        for (block, first_slot) in (first_block..).zip((0..slots).step_by(block_slots)) {
            starts.clear();
            bytes.clear();
            let mut ordinal = 0;
            for slot in first_slot..slots.min(first_slot + block_slots) {
                starts.push(bytes.len());
                while let Some(((_, index), rest)) =
                    remaining.split_first().filter(|((next, _), _)| *next == slot)
                {
                    remaining = rest;
                    let Some(entry) = self.entries.get(*index) else { continue };
                    bytes.extend_from_slice(self.bytes.get(entry.start..entry.end).unwrap_or(&[]));
                    let location = EntryLocation { piece: 0, block, ordinal };
                    mutant!(TphShiftsSlots: locate(entry.row, EntryLocation { block, piece: 0,
                        ordinal: ordinal + 1 }), else locate(entry.row, location));
                    ordinal += 1;
                }
            }
            if ordinal > ORDINAL_MAX {
                let what = format!("{ordinal} keys of one block have equal hashes");
                return Err(Error::Limit { what });
            }
            writer.add_slot_block(&slot_block::encode(&starts, &bytes), &bytes)?;
        }
        local.push(&self.first_key, hash, block_slots);
        self.entries.clear();
        self.bytes.clear();
        self.first_key.clear();
        self.has_before = true;
        Ok(())
    }

    /// Builds the perfect hash of the entries' distinct hashes.
    fn build_hash(&self) -> Result<PerfectHash> {
        let mut hashes: Vec<u64> = self.entries.iter().map(|entry| entry.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let method = Method::CpHash(Lanes::Widest);
        PerfectHash::build(&hashes, 0, &BuildOptions { method, ..BuildOptions::default() })
    }
}

/// Returns the number of slots whose entries fill a block of `block_bytes` on average.
fn block_slots(entries_bytes: usize, slots: usize, block_bytes: usize) -> usize {
    let head = slot_block::table_bytes(0, block_bytes) + crate::lsm::sst::block::HEAD_BYTES;
    let offset_bytes = slot_block::table_bytes(1, block_bytes) - slot_block::table_bytes(0, 0);
    let slot_bytes = entries_bytes.div_ceil(slots.max(1)) + offset_bytes;
    (block_bytes.saturating_sub(head) / slot_bytes.max(1)).clamp(1, SLOTS_MAX)
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::codec::to_u64;

    #[test]
    fn blocks_have_the_slots_that_fill_them() {
        // 1,127 slots of 1,024 entries: the paper's 1.1 slots a key.
        assert_eq!(block_slots(1024 * 150, 1127, 4096), 29);
        assert_eq!(block_slots(1024 * 1050, 1127, 4096), 4);
        assert_eq!(block_slots(1024 * 9000, 1127, 4096), 1);
        assert_eq!(block_slots(1024 * 3, 1127, 4096), SLOTS_MAX);
    }

    #[test]
    fn a_segment_is_full_by_entries_or_by_bytes() {
        let mut segment = PieceSegment::default();
        for number in 0..to_u64(ENTRIES_MAX) {
            assert!(!segment.is_full(usize::MAX));
            segment.push((number, &number.to_be_bytes()), None, 0);
        }
        assert!(segment.is_full(usize::MAX));
        let mut segment = PieceSegment::default();
        segment.push((1, b"k"), Some(&[0; 1000]), 0);
        assert!(segment.is_full(1000) && !segment.is_full(2000));
    }
}
