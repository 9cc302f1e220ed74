//! The index of a table: the block of each key's newest entry.
//!
//! The index is a perfect hash of the keys' hashes. Each slot has a signature of the key and a
//! block number. Blocks are numbered through the table's SSTs, from the newest on. A get finds the
//! block in memory and reads it. For an absent key it reads a block only if the signature matches,
//! which one in 2^`tag_bits` does.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | count | number of slots |
//! | 8 | 4 | tag bits | of a signature |
//! | 12 | 4 | block bits | of a block number |
//! | 16 | 8 | hash bytes | |
//! | 24 | | hash | [`crate::engine::tph::perfect_hash`] |
//! | | | slots | `tag bits + block bits` each, signature above, packed from the lowest bit of 8-byte words on |
//! | | | collisions | varint count; each: hash (8), varint block, varint key length, key |
//!
//! Invariants:
//! - The index has every key of every SST of the table, tombstones included. A key that it does not
//!   have is in no block. So a signature that matches by chance leads to a block without the key,
//!   never to an old entry.
//! - Keys with equal 64-bit hashes are all among the collisions, which store the whole key.
//!
//! Difference from the paper: one tier. The block number makes the second hash table (from key to
//! position in an SST) unnecessary, which saves 2.7 bytes a key.

#![deny(clippy::indexing_slicing)]

use crate::{
    Error, Result,
    engine::tph::perfect_hash::{BuildOptions, PerfectHash},
    io::Array,
    util::codec::{Decoder, low_u32, put_bytes, put_u32, put_u64, put_varint, to_u64, to_usize},
};

/// Number of words of slots that one step of `encode` returns: 32 KiB.
const CHUNK_WORDS: usize = 4096;

/// A key whose hash another key of the table has too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Collision {
    pub(super) hash: u64,
    pub(super) key: Vec<u8>,
    pub(super) block: u32,
}

/// The index of a table. See the module head.
#[derive(Debug)]
pub(super) struct TableIndex {
    hash: PerfectHash,
    tag_bits: u32,
    block_bits: u32,
    slots: Array<u64>,
    /// Sorted by hash, then by key.
    collisions: Vec<Collision>,
}

/// Number of slots, bits of a signature, bits of a block number.
type SlotLayout = (u64, u32, u32);

/// Returns the signature: bits of a key's hash that do not depend on its slot.
#[inline]
fn tag_of(hash: u64, bits: u32) -> u64 {
    (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> (64 - bits)
}

fn words_of(count: u64, bits: u32) -> Option<u64> {
    Some(count.checked_mul(u64::from(bits))?.div_ceil(64))
}

impl TableIndex {
    /// Builds the index. `blocks` has the hash of each key and its block, sorted. The keys of equal
    /// hashes are in `collisions`.
    pub(super) fn build(
        blocks: &[(u64, u64)],
        mut collisions: Vec<Collision>,
        tag_bits: u32,
        options: &BuildOptions<'_>,
    ) -> Result<Self> {
        let mut hashes = Array::with_capacity(blocks.len());
        for (hash, _) in blocks {
            if hashes.last() != Some(hash) {
                hashes.push(*hash);
            }
        }
        let hash = PerfectHash::build(&hashes, 0, options)?;
        drop(hashes);
        let highest = blocks.iter().map(|(_, block)| *block).max().unwrap_or(0);
        let block_bits = (u64::BITS - highest.leading_zeros()).max(1);
        let bits = tag_bits + block_bits;
        let count = to_u64(hash.slot_count());
        let words = words_of(count, bits).unwrap_or(0);
        collisions.sort_unstable();
        let mut index =
            Self { hash, tag_bits, block_bits, slots: Array::zeroed(to_usize(words)), collisions };
        let mut last = None;
        for (hash, block) in blocks {
            if last.replace(*hash) != Some(*hash) {
                let value = tag_of(*hash, tag_bits) << block_bits | block;
                let slot = index.hash.slot(*hash);
                index.set(slot, value);
            }
        }
        Ok(index)
    }

    fn bits(&self) -> u32 {
        self.tag_bits + self.block_bits
    }

    fn set(&mut self, slot: usize, value: u64) {
        let at = slot * to_usize(u64::from(self.bits()));
        let shift = at % 64;
        if let Some(word) = self.slots.get_mut(at / 64) {
            *word |= value << shift;
        }
        if shift + to_usize(u64::from(self.bits())) > 64
            && let Some(word) = self.slots.get_mut(at / 64 + 1)
        {
            *word |= value >> (64 - shift);
        }
    }

    #[inline]
    fn slot(&self, slot: usize) -> u64 {
        let bits = self.bits();
        let at = slot * to_usize(u64::from(bits));
        let shift = at % 64;
        let low = self.slots.get(at / 64).copied().unwrap_or(0) >> shift;
        let value = if shift + to_usize(u64::from(bits)) > 64 {
            low | self.slots.get(at / 64 + 1).copied().unwrap_or(0) << (64 - shift)
        } else {
            low
        };
        value & ((1 << bits) - 1)
    }

    /// Returns the slot of a hash: the first half of [`find`](Self::find), for multi-gets.
    #[inline]
    pub(super) fn slot_of(&self, hash: u64) -> usize {
        if self.hash.slot_count() == 0 { 0 } else { self.hash.slot(hash) }
    }

    /// Returns the block that may have this key, or `None` if no block of the table has it.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.find_at(self.slot_of(hash), hash, key)
    }

    /// Returns the same as [`find`](Self::find), for a hash with this slot.
    #[inline]
    pub(super) fn find_at(&self, slot: usize, hash: u64, key: &[u8]) -> Option<u32> {
        if !self.collisions.is_empty() {
            let first = self.collisions.partition_point(|one| one.hash < hash);
            let mut same = self.collisions.get(first..)?.iter();
            if self.collisions.get(first).is_some_and(|one| one.hash == hash) {
                let mut same = same.by_ref().take_while(|one| one.hash == hash);
                return same.find(|one| one.key == key).map(|one| one.block);
            }
        }
        if self.hash.slot_count() == 0 {
            return None;
        }
        let value = self.slot(slot);
        let matches = value >> self.block_bits == tag_of(hash, self.tag_bits);
        matches.then(|| low_u32(value & ((1 << self.block_bits) - 1)))
    }

    /// Returns bytes of memory: of the hash, the signatures and the block numbers.
    pub(super) fn memory_bytes(&self) -> [u64; 3] {
        let slots = to_u64(self.hash.slot_count());
        let array = |bits: u32| slots * u64::from(bits) / 8;
        [self.hash.memory_bytes(), array(self.tag_bits), array(self.block_bits)]
    }

    /// Encodes the section in chunks.
    pub(super) fn encode(&self) -> impl Iterator<Item = Vec<u8>> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let slots = self.slots.chunks(CHUNK_WORDS).map(words);
        let (head, collisions) = (self.encode_head(), self.encode_collisions());
        std::iter::once(head).chain(slots).chain(std::iter::once(collisions))
    }

    fn encode_head(&self) -> Vec<u8> {
        let hash = self.hash.encode();
        let mut out = Vec::with_capacity(24 + hash.len());
        put_u64(&mut out, to_u64(self.hash.slot_count()));
        put_u32(&mut out, self.tag_bits);
        put_u32(&mut out, self.block_bits);
        put_u64(&mut out, to_u64(hash.len()));
        out.extend_from_slice(&hash);
        out
    }

    fn encode_collisions(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, to_u64(self.collisions.len()));
        for one in &self.collisions {
            put_u64(&mut out, one.hash);
            put_varint(&mut out, u64::from(one.block));
            put_bytes(&mut out, &one.key);
        }
        out
    }

    /// Decodes a section whose table has `blocks` blocks. Fails with `Corruption` if the bytes are
    /// invalid. `origin` is the file and the section's offset in it, for the message.
    pub(super) fn decode(bytes: &[u8], blocks: u64, origin: (&str, u64)) -> Result<Self> {
        let damage = |what: &str| Error::corruption(origin.0, origin.1, what);
        let index =
            Self::parse(bytes, origin)?.ok_or_else(|| damage("the index does not decode"))?;
        let mask = (1_u64 << index.block_bits) - 1;
        let named = (0..index.hash.slot_count()).map(|slot| index.slot(slot) & mask);
        let named = named.chain(index.collisions.iter().map(|one| u64::from(one.block)));
        match named.max() {
            Some(highest) if highest >= blocks => {
                Err(damage("the index has the number of a block that does not exist"))
            }
            _ => Ok(index),
        }
    }

    fn parse(bytes: &[u8], origin: (&str, u64)) -> Result<Option<Self>> {
        let mut decoder = Decoder::new(bytes);
        let Some((layout, hash)) = Self::parse_head(&mut decoder) else { return Ok(None) };
        let hash = PerfectHash::decode(hash, origin.0, origin.1)?;
        if to_u64(hash.slot_count()) != layout.0 {
            return Ok(None);
        }
        Ok(Self::parse_slots(&mut decoder, layout, hash))
    }

    /// Returns the layout of the slots, and the bytes of the hash.
    fn parse_head<'a>(decoder: &mut Decoder<'a>) -> Option<(SlotLayout, &'a [u8])> {
        let count = decoder.u64()?;
        let tag_bits = decoder.u32().filter(|bits| (1..=24).contains(bits))?;
        let block_bits = decoder.u32().filter(|bits| (1..=32).contains(bits))?;
        let hash_bytes = decoder.u64()?;
        Some(((count, tag_bits, block_bits), decoder.take(to_usize(hash_bytes))?))
    }

    fn parse_slots(
        decoder: &mut Decoder<'_>,
        (count, tag_bits, block_bits): SlotLayout,
        hash: PerfectHash,
    ) -> Option<Self> {
        let words = words_of(count, tag_bits + block_bits)?.checked_mul(8)?;
        let (slots, _) = decoder.take(to_usize(words))?.as_chunks::<8>();
        let slots = slots.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut collisions = Vec::new();
        for _ in 0..decoder.varint()? {
            let hash = decoder.u64()?;
            let block = decoder.varint().and_then(|block| u32::try_from(block).ok())?;
            collisions.push(Collision { hash, key: decoder.bytes()?.to_vec(), block });
        }
        let is_valid = decoder.is_empty() && collisions.is_sorted();
        is_valid.then_some(Self { hash, tag_bits, block_bits, slots, collisions })
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    fn mix(number: u64) -> u64 {
        let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    fn build(count: u64, collisions: Vec<Collision>) -> TableIndex {
        let mut blocks: Vec<(u64, u64)> =
            (0..count).map(|number| (mix(number + 1), number / 3)).collect();
        blocks.sort_unstable();
        TableIndex::build(&blocks, collisions, 11, &BuildOptions::default()).unwrap()
    }

    fn bytes_of(index: &TableIndex) -> Vec<u8> {
        index.encode().flatten().collect()
    }

    #[test]
    fn every_key_is_found_and_others_rarely_match() {
        for count in [0, 1, 2, 3, 100, 20_000] {
            let index = build(count, Vec::new());
            let bytes = bytes_of(&index);
            let index = TableIndex::decode(&bytes, count.div_ceil(3), ("f", 0)).unwrap();
            assert_eq!(bytes_of(&index), bytes);
            for number in 0..count {
                assert_eq!(index.find(mix(number + 1), b""), Some(low_u32(number / 3)));
            }
            let others = (0..100_000).filter(|n| index.find(mix((n + 1) << 32), b"").is_some());
            // One in 2048: 49 of them.
            assert!(others.count() < 90);
            if count > 3 {
                assert!(TableIndex::decode(&bytes, count.div_ceil(3) - 1, ("f", 0)).is_err());
            }
        }
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let one = |key: &[u8], block| Collision { hash: mix(5), key: key.to_vec(), block };
        let index = build(50, vec![one(b"b", 9), one(b"a", 3)]);
        let index = TableIndex::decode(&bytes_of(&index), 17, ("f", 0)).unwrap();
        assert_eq!(index.find(mix(5), b"a"), Some(3));
        assert_eq!(index.find(mix(5), b"b"), Some(9));
        assert_eq!(index.find(mix(5), b"c"), None);
        assert_eq!(index.find(mix(6), b"d"), Some(1));
    }

    #[test]
    fn incomplete_bytes_and_trailing_bytes_are_refused() {
        let bytes = bytes_of(&build(300, Vec::new()));
        for cut in 0..bytes.len() {
            assert!(TableIndex::decode(&bytes[..cut], 100, ("f", 0)).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(TableIndex::decode(&longer, 100, ("f", 0)).is_err());
    }
}
