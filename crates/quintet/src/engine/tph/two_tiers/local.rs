//! The local hash of a piece: from a key to its block and to its slot in the block.
//!
//! A piece is divided into segments of consecutive keys. A segment has a perfect hash
//! ([`crate::engine::tph::perfect_hash`], `CPHash`) of its keys' hashes, and a number of slots a
//! block. The first keys of the segments are stored as the shortest prefixes that are above all
//! keys before them.
//!
//! Layout of the section: varint number of segments, and each:
//!
//! | part | meaning |
//! |---|---|
//! | first key | varint length, bytes; empty for the first segment |
//! | slots a block | varint, 1 to 256 |
//! | blocks | varint |
//! | hash | varint length, bytes |
//!
//! Invariants: the first keys ascend. The blocks of all segments are those of the piece, in order,
//! and have all slots of their segments. [`LocalIndex::decode`] verifies this, so a lookup returns
//! a block of the piece for any key.

#![deny(clippy::indexing_slicing)]

use crate::{
    Error, Result,
    engine::tph::perfect_hash::PerfectHash,
    lsm::sst::slot_block::SLOTS_MAX,
    util::codec::{Decoder, low_u32, put_bytes, put_varint, to_u64, to_usize},
};

/// A segment of a piece.
#[derive(Debug)]
pub(crate) struct LocalSegment {
    hash: PerfectHash,
    first_block: u32,
    block_slots: u32,
}

/// The block of a key and its slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotPlace {
    pub(crate) block: u32,
    pub(crate) slot: usize,
}

/// The local hash of a piece. See the module head.
#[derive(Debug, Default)]
pub(crate) struct LocalIndex {
    segments: Vec<LocalSegment>,
    /// The first keys of all segments, concatenated, and where each ends: a search reads nothing
    /// else.
    first_keys: Vec<u8>,
    key_ends: Vec<u32>,
    blocks: u32,
}

impl LocalIndex {
    /// Adds a segment behind the last one. `first_key` is above all keys before it and not above
    /// the segment's first key.
    pub(crate) fn push(&mut self, first_key: &[u8], hash: PerfectHash, block_slots: usize) {
        let block_slots = block_slots.clamp(1, SLOTS_MAX);
        let blocks = hash.slot_count().div_ceil(block_slots);
        self.first_keys.extend_from_slice(first_key);
        self.segments.push(LocalSegment {
            hash,
            first_block: self.blocks,
            block_slots: low_u32(to_u64(block_slots)),
        });
        self.key_ends.push(low_u32(to_u64(self.first_keys.len())));
        self.blocks += low_u32(to_u64(blocks));
    }

    /// Returns whether the first keys are too large for their offsets.
    pub(crate) fn is_too_large(&self) -> bool {
        u32::try_from(self.first_keys.len()).is_err()
    }

    /// Releases memory that further segments would use.
    pub(crate) fn shrink(&mut self) {
        self.segments.shrink_to_fit();
        self.first_keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
    }

    /// Returns the number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    fn first_key(&self, segment: usize) -> &[u8] {
        let end =
            |segment: usize| self.key_ends.get(segment).map_or(0, |end| to_usize(u64::from(*end)));
        let start = segment.checked_sub(1).map_or(0, end);
        self.first_keys.get(start..end(segment)).unwrap_or(&[])
    }

    /// Returns the segment that a key belongs to.
    #[inline]
    pub(crate) fn segment_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (1, self.segments.len().max(1));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.first_key(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }

    /// Returns the blocks of a segment.
    pub(crate) fn blocks_of(&self, segment: usize) -> std::ops::Range<u32> {
        let first =
            |segment: usize| self.segments.get(segment).map_or(self.blocks, |one| one.first_block);
        first(segment)..first(segment + 1)
    }

    /// Returns where a key's entry is, if the piece has one. For another key the place is
    /// arbitrary. Returns `None` if the piece has no entry.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<SlotPlace> {
        let segment = self.segments.get(self.segment_of(key))?;
        let slot = segment.hash.slot(hash);
        let block_slots = to_usize(u64::from(segment.block_slots));
        let block = segment.first_block + low_u32(to_u64(slot / block_slots));
        Some(SlotPlace { block, slot: slot % block_slots })
    }

    /// Returns the bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let hashes = self.segments.iter().map(|one| one.hash.memory_bytes());
        let rest = size_of::<LocalSegment>() - size_of::<PerfectHash>() + size_of::<u32>();
        hashes.sum::<u64>() + to_u64(self.first_keys.capacity() + self.segments.len() * rest)
    }

    /// Encodes the section.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, to_u64(self.segments.len()));
        for (number, segment) in self.segments.iter().enumerate() {
            let blocks = self.blocks_of(number);
            put_bytes(&mut out, self.first_key(number));
            put_varint(&mut out, u64::from(segment.block_slots));
            put_varint(&mut out, u64::from(blocks.end - blocks.start));
            put_bytes(&mut out, &segment.hash.encode());
        }
        out
    }

    /// Decodes the section of a piece with `blocks` blocks. Fails with `Corruption` if the bytes
    /// are invalid. `origin` is the file and the section's offset in it, for the message.
    pub(crate) fn decode(bytes: &[u8], blocks: u32, origin: (&str, u64)) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut index = Self::default();
        let found = index.decode_segments(&mut decoder, origin)?;
        index.shrink();
        let is_sound = found.is_some() && decoder.is_empty() && index.blocks == blocks;
        is_sound
            .then_some(index)
            .ok_or_else(|| Error::corruption(origin.0, origin.1, "the local hash does not decode"))
    }

    fn decode_segments(
        &mut self,
        decoder: &mut Decoder<'_>,
        origin: (&str, u64),
    ) -> Result<Option<()>> {
        let Some(count) = decoder.varint() else { return Ok(None) };
        let mut last = None;
        // No memory is reserved for the count: each segment needs bytes of the input.
        for _ in 0..count {
            let mut parts = || {
                let first_key = decoder.bytes()?;
                let block_slots = to_usize(decoder.varint()?);
                Some((first_key, block_slots, decoder.varint()?, decoder.bytes()?))
            };
            let Some((first_key, block_slots, blocks, hash)) = parts() else { return Ok(None) };
            let ascends = last.map_or(first_key.is_empty(), |last| first_key > last);
            if !ascends || !(1..=SLOTS_MAX).contains(&block_slots) {
                return Ok(None);
            }
            let hash = PerfectHash::decode(hash, origin.0, origin.1)?;
            let needed = to_u64(hash.slot_count().div_ceil(block_slots));
            let end = needed.checked_add(u64::from(self.blocks));
            let fits = end.is_some_and(|end| u32::try_from(end).is_ok());
            if needed == 0 || blocks != needed || !fits {
                return Ok(None);
            }
            last = Some(first_key);
            self.push(first_key, hash, block_slots);
        }
        Ok(Some(()))
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::engine::tph::perfect_hash::{BuildOptions, Lanes, Method};

    fn hash_of(key: &[u8]) -> u64 {
        key.iter().fold(7, |sum: u64, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }

    fn keys(segment: u32) -> Vec<Vec<u8>> {
        (0..300 + segment * 7).map(|n| format!("key-{segment:02}-{n:05}").into_bytes()).collect()
    }

    fn sample() -> LocalIndex {
        let mut index = LocalIndex::default();
        let options =
            BuildOptions { method: Method::CpHash(Lanes::Widest), ..BuildOptions::default() };
        for segment in 0..9 {
            let hashes: Vec<u64> = keys(segment).iter().map(|key| hash_of(key)).collect();
            let hash = PerfectHash::build(&hashes, 0, &options).unwrap();
            let first_key = format!("key-{segment:02}").into_bytes();
            let first_key = if segment == 0 { Vec::new() } else { first_key };
            index.push(&first_key, hash, 3 + to_usize(u64::from(segment)));
        }
        index
    }

    #[test]
    fn each_key_has_a_slot_of_its_own() {
        let index = sample();
        let bytes = index.encode();
        let index = LocalIndex::decode(&bytes, index.blocks(), ("f", 0)).unwrap();
        assert_eq!(index.encode(), bytes);
        let mut used = std::collections::BTreeSet::new();
        for segment in 0..9 {
            for key in keys(segment) {
                assert_eq!(index.segment_of(&key), to_usize(u64::from(segment)));
                let place = index.find(hash_of(&key), &key).unwrap();
                let blocks = index.blocks_of(to_usize(u64::from(segment)));
                assert!(blocks.contains(&place.block), "{place:?} of {blocks:?}");
                assert!(place.slot < 3 + to_usize(u64::from(segment)));
                assert!(used.insert((place.block, place.slot)), "a slot twice");
            }
        }
        assert_eq!(index.segment_of(b""), 0);
        assert_eq!(index.segment_of(b"z"), 8);
        assert!(LocalIndex::default().find(1, b"a").is_none());
    }

    #[test]
    fn other_bytes_are_refused() {
        let index = sample();
        let (bytes, blocks) = (index.encode(), index.blocks());
        assert!(LocalIndex::decode(&bytes, blocks + 1, ("f", 0)).is_err());
        for cut in 0..bytes.len() {
            assert!(LocalIndex::decode(&bytes[..cut], blocks, ("f", 0)).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(LocalIndex::decode(&longer, blocks, ("f", 0)).is_err());
        // The first key of the first segment is empty, and its slots a block are 3.
        for (at, value) in [(1, 1), (2, 0), (2, 4), (3, 1)] {
            let mut changed = bytes.clone();
            changed[at] = value;
            assert!(LocalIndex::decode(&changed, blocks, ("f", 0)).is_err(), "{at}");
        }
    }
}
