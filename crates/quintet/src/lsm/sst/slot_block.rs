//! Blocks of slots: the blocks of a piece of `tph` with two tiers of hashes.
//!
//! Problem: a hash leads to a slot, and the read of a get should lead from there to the entry
//! without a search. How: a block has the entries of consecutive slots, and a table of where the
//! entries of each slot begin (the paper's key-offset table, section 4.2). It is stored as the
//! entries of a block ([`super::block`]), with its checksum and its compression.
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 2 | slots | number of slots |
//! | 2 | width | of an offset: 2 or 4 |
//! | width each | offsets | of the first entry of each slot, and of the end: one more than slots |
//! | | entries | back to back, as in [`super::block`], in the order of slots; of one slot, by key |
//!
//! A slot has no entry, one, or those of all keys with one hash.
//!
//! Invariant: readers bound every offset, because a checksum shows no more than that a writer wrote
//! the bytes.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use super::block::{EntryRef, find_from};
use crate::util::codec::{Decoder, low_u32, to_u64, to_usize};

/// Maximum number of slots of a block.
pub(crate) const SLOTS_MAX: usize = 256;
const HEAD_BYTES: usize = 4;

/// Returns the bytes of the table before the entries.
pub(crate) const fn table_bytes(slots: usize, entries_bytes: usize) -> usize {
    HEAD_BYTES + (slots + 1) * width_of(entries_bytes)
}

const fn width_of(entries_bytes: usize) -> usize {
    if entries_bytes <= 0xffff { 2 } else { 4 }
}

/// Encodes a block. `starts` has the offset of the first entry of each slot.
pub(crate) fn encode(starts: &[usize], entries: &[u8]) -> Vec<u8> {
    let width = width_of(entries.len());
    let mut out = Vec::with_capacity(table_bytes(starts.len(), entries.len()) + entries.len());
    for word in [starts.len(), width] {
        out.extend(low_u32(to_u64(word)).to_le_bytes().iter().take(2));
    }
    for start in starts.iter().chain([&entries.len()]) {
        out.extend(low_u32(to_u64(*start)).to_le_bytes().iter().take(width));
    }
    out.extend_from_slice(entries);
    out
}

/// A block of slots, verified to have a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotBlock<'a> {
    width: usize,
    offsets: &'a [u8],
    entries: &'a [u8],
}

impl<'a> SlotBlock<'a> {
    /// Decodes the table. Returns `None` if the bytes are too few.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let head = decoder.u32()?;
        let (slots, width) = (to_usize(u64::from(head & 0xffff)), to_usize(u64::from(head >> 16)));
        if width != 2 && width != 4 {
            return None;
        }
        let offsets = decoder.take((slots + 1) * width)?;
        Some(Self { width, offsets, entries: decoder.rest() })
    }

    /// Returns the entries of all slots.
    pub(crate) fn entries(&self) -> &'a [u8] {
        self.entries
    }

    fn offset(&self, slot: usize) -> Option<usize> {
        let at = slot.checked_mul(self.width)?;
        let bytes = self.offsets.get(at..at.checked_add(self.width)?)?;
        let offset = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Some(to_usize(offset))
    }

    /// Returns the range of a slot's entries.
    pub(crate) fn slot(&self, slot: usize) -> Option<Range<usize>> {
        let (start, end) = (self.offset(slot)?, self.offset(slot + 1)?);
        (start <= end && end <= self.entries.len()).then_some(start..end)
    }

    /// Returns the entry of a key that a slot leads to.
    pub(crate) fn find(&self, slot: usize, key: &[u8]) -> Option<EntryRef> {
        let range = self.slot(slot)?;
        find_from(self.entries.get(..range.end)?, range.start, key)
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::lsm::sst::block::put_entry;

    /// Four slots: one entry, none, two of one hash, one that is deleted.
    fn sample(value_bytes: usize) -> (Vec<u8>, Vec<u8>) {
        let mut entries = Vec::new();
        put_entry(&mut entries, b"one", Some(&vec![1; value_bytes]));
        let two = entries.len();
        put_entry(&mut entries, b"b", Some(b"2"));
        put_entry(&mut entries, b"c", Some(b"3"));
        let three = entries.len();
        put_entry(&mut entries, b"gone", None);
        (encode(&[0, two, two, three], &entries), entries)
    }

    #[test]
    fn a_slot_leads_to_its_entries_alone() {
        for value_bytes in [0, 9, 70_000] {
            let (bytes, entries) = sample(value_bytes);
            assert_eq!(bytes.len(), table_bytes(4, entries.len()) + entries.len());
            let block = SlotBlock::parse(&bytes).unwrap();
            assert_eq!(block.entries(), entries);
            let value = |slot, key: &[u8]| {
                block.find(slot, key).map(|entry| (entry.tombstone, entry.value.len()))
            };
            assert_eq!(value(0, b"one"), Some((false, value_bytes)));
            assert_eq!((value(1, b"one"), value(2, b"one")), (None, None));
            assert_eq!((value(2, b"b"), value(2, b"c")), (Some((false, 1)), Some((false, 1))));
            assert_eq!((value(3, b"gone"), value(4, b"gone")), (Some((true, 0)), None));
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let mut entries = Vec::new();
        put_entry(&mut entries, b"k", Some(b"v"));
        let bytes = encode(&[0, 4], &entries);
        assert_eq!(bytes, b"\x02\0\x02\0\0\0\x04\0\x04\0\x01\x02kv");
    }

    #[test]
    fn offsets_that_no_writer_makes_lead_nowhere() {
        let (bytes, _) = sample(9);
        for at in 0..bytes.len() {
            assert!(SlotBlock::parse(&bytes[..at]).is_none_or(|block| {
                (0..6).all(|slot| block.slot(slot).is_none_or(|range| range.end <= at))
            }));
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            if let Some(block) = SlotBlock::parse(&damaged) {
                for slot in 0..6 {
                    let _ = block.find(slot, b"b");
                }
            }
        }
    }
}
