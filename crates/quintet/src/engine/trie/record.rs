//! The record format: a key with its value, or with the address of its value in the extents.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | crc | on disk: CRC32C of life (8), unit (8) and all bytes from 4 on; in memory unused |
//! | 4 | 2 | key size | 1 to 65,535 |
//! | 6 | 1 | kind | 1: the value follows; 2: an extent's place follows (offset, bytes, crc: 8 each) |
//! | 7 | 1 | reserved | 0 |
//! | 8 | 4 | value size | of what follows the key |
//! | 12 | 4 | reserved | 0 |
//! | 16 | | key, value | then zeros to a multiple of 16 |
//!
//! A first word of zero at the place of a record means that no record begins before the next block.
//!
//! Invariants: the checksum covers the region's life and the record's unit. So bytes of an earlier
//! life, or of another place in the file, never verify as a record.

use crate::{
    engine::trie::store::regions::UNIT_BYTES,
    util::{
        codec::{crc32c, crc32c_append, low_u8, to_u64, to_usize},
        sync::{AtomicU64, Ordering},
        words,
    },
};

/// Bytes of a record's head.
pub(super) const HEAD_BYTES: usize = 16;
/// Records of more than this part of a region keep their value in an extent. This bounds the space
/// that is wasted at the ends of regions.
pub(super) const LARGE_PART: u64 = 4;
const PUT: u8 = 1;
const EXTENT: u8 = 2;

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrieRecordHead {
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    /// The bytes after the key are the address of an extent.
    pub(super) is_extent: bool,
}

impl TrieRecordHead {
    /// The head of a record of `units` units that belongs to no key. `units` is 2 or more.
    pub(super) fn filler(units: u64) -> Self {
        let value_bytes = to_usize(units * UNIT_BYTES).saturating_sub(HEAD_BYTES + 1);
        Self { key_bytes: 1, value_bytes, is_extent: false }
    }

    /// Units of the whole record.
    pub(super) fn units(&self) -> u64 {
        to_u64(HEAD_BYTES + self.key_bytes + self.value_bytes).div_ceil(UNIT_BYTES)
    }

    /// Bytes of the whole record, padding included.
    pub(super) fn bytes(&self) -> usize {
        to_usize(self.units() * UNIT_BYTES)
    }

    /// Offset of the value in the record.
    pub(super) fn value_at(&self) -> usize {
        HEAD_BYTES + self.key_bytes
    }

    fn first(&self) -> u64 {
        let kind = if self.is_extent { EXTENT } else { PUT };
        to_u64(self.key_bytes) << 32 | u64::from(kind) << 48
    }

    /// Decodes the first two words. Returns `None` for values that no writer stores.
    #[inline]
    pub(super) fn decode(first: u64, second: u64) -> Option<Self> {
        let is_extent = match low_u8(first >> 48) {
            PUT => false,
            EXTENT => true,
            _ => return None,
        };
        let head = Self {
            key_bytes: to_usize(first >> 32 & 0xffff),
            value_bytes: to_usize(second),
            is_extent,
        };
        (head.key_bytes != 0 && first >> 56 == 0 && second >> 32 == 0).then_some(head)
    }

    /// Decodes the head at the start of `words`. Returns `None` if it is not one.
    #[inline]
    pub(super) fn load(words: &[AtomicU64]) -> Option<Self> {
        let [first, second, ..] = words else { return None };
        Self::decode(first.load(Ordering::Acquire), second.load(Ordering::Relaxed))
    }

    /// Stores the record into `words`, with zeroed padding.
    pub(super) fn store(&self, words: &[AtomicU64], key: &[u8], value: [&[u8]; 2]) {
        let [first, second, rest @ ..] = words else { return };
        first.store(self.first(), Ordering::Relaxed);
        second.store(to_u64(self.value_bytes), Ordering::Relaxed);
        if let Some(last) = rest.get(self.bytes() / 8 - 3) {
            last.store(0, Ordering::Relaxed);
        }
        words::store_bytes(rest, &[key, value[0], value[1]]);
    }

    /// Returns whether the record in `words` has this key.
    #[inline]
    pub(super) fn has_key(&self, words: &[AtomicU64], key: &[u8]) -> bool {
        self.key_bytes == key.len()
            && words.get(HEAD_BYTES / 8..).is_some_and(|words| words::equals(words, key))
    }

    /// Copies the value to `out`.
    #[inline]
    pub(super) fn copy_value(&self, words: &[AtomicU64], out: &mut [u8]) {
        words::copy_out(words, self.value_at(), out);
    }

    /// Bytes of key and value, in the record or in its extent.
    pub(super) fn stored_bytes(&self, extent: impl FnOnce() -> Option<ExtentAddr>) -> u64 {
        let value = if self.is_extent {
            extent().map_or(0, |extent| extent.bytes)
        } else {
            to_u64(self.value_bytes)
        };
        to_u64(self.key_bytes) + value
    }

    /// The address of the extent that holds the value of the record in `words`; `None` if the
    /// record holds it.
    pub(super) fn extent(&self, words: &[AtomicU64]) -> Option<ExtentAddr> {
        if !self.is_extent || self.value_bytes != EXTENT_ADDR_BYTES {
            return None;
        }
        let mut bytes = [0; EXTENT_ADDR_BYTES];
        self.copy_value(words, &mut bytes);
        ExtentAddr::decode(&bytes)
    }

    /// Returns whether all of the record is in `words`.
    #[inline]
    pub(super) fn fits(&self, words: &[AtomicU64]) -> bool {
        to_usize(self.units() * UNIT_BYTES / 8) <= words.len()
    }
}

/// Address of a value in the file of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentAddr {
    /// Offset in the file of extents, in bytes.
    pub(super) offset: u64,
    /// Bytes of the value.
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

/// Bytes of an encoded [`ExtentAddr`].
pub(super) const EXTENT_ADDR_BYTES: usize = 24;

impl ExtentAddr {
    /// Encodes the address: three little-endian words.
    pub(super) fn encode(self) -> [u8; EXTENT_ADDR_BYTES] {
        let mut out = [0; EXTENT_ADDR_BYTES];
        let words = [self.offset, self.bytes, u64::from(self.crc)];
        for (chunk, word) in out.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = crate::util::codec::Decoder::new(bytes);
        let place =
            Self { offset: rest.u64()?, bytes: rest.u64()?, crc: u32::try_from(rest.u64()?).ok()? };
        rest.is_empty().then_some(place)
    }
}

/// A record in bytes that were read from disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskRecord<'a> {
    pub(super) head: TrieRecordHead,
    bytes: &'a [u8],
}

impl<'a> DiskRecord<'a> {
    /// Decodes the head at the start of `bytes`, unverified.
    pub(super) fn head(bytes: &[u8]) -> Option<TrieRecordHead> {
        let first = bytes.first_chunk::<8>()?;
        let second = bytes.get(8..)?.first_chunk::<8>()?;
        TrieRecordHead::decode(u64::from_le_bytes(*first), u64::from_le_bytes(*second))
    }

    /// Returns the record at the start of `bytes` if its checksum matches for this life of the
    /// region and this unit in it.
    pub(super) fn verify(bytes: &'a [u8], life: u64, unit: u64) -> Option<Self> {
        let head = Self::head(bytes)?;
        let bytes = bytes.get(..head.bytes())?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*crc) == checksum(rest, life, unit)).then_some(Self { head, bytes })
    }

    pub(super) fn key(&self) -> &'a [u8] {
        self.bytes.get(HEAD_BYTES..self.head.value_at()).unwrap_or(&[])
    }

    pub(super) fn value(&self) -> &'a [u8] {
        let end = self.head.value_at() + self.head.value_bytes;
        self.bytes.get(self.head.value_at()..end).unwrap_or(&[])
    }
}

fn checksum(rest: &[u8], life: u64, unit: u64) -> u32 {
    let mut place = [0; 16];
    let (low, high) = place.split_at_mut(8);
    low.copy_from_slice(&life.to_le_bytes());
    high.copy_from_slice(&unit.to_le_bytes());
    crc32c_append(crc32c(&place), rest)
}

/// Visits the records in `bytes`, which begin at `unit` of a region: the unit of each with its
/// head, or with `None` for bytes that are no record.
pub(super) fn walk(bytes: &[u8], unit: u64, mut visit: impl FnMut(u64, Option<TrieRecordHead>)) {
    let end = to_u64(bytes.len()) / UNIT_BYTES;
    let block = crate::engine::trie::store::regions::BLOCK_UNITS;
    let mut at = 0;
    while at < end {
        let rest = bytes.get(to_usize(at * UNIT_BYTES)..).unwrap_or(&[]);
        match DiskRecord::head(rest) {
            Some(head) if head.bytes() <= rest.len() => {
                visit(unit + at, Some(head));
                at += head.units();
            }
            _ => {
                if rest.get(..8).is_some_and(|word| word.iter().any(|byte| *byte != 0)) {
                    visit(unit + at, None);
                }
                let next = if unit + at == 0 { 1 } else { (at + 1).next_multiple_of(block) };
                at = next;
            }
        }
    }
}

/// Copies words that no thread changes.
pub(super) fn copy_words(words: &[AtomicU64], out: &mut [u8]) {
    let (chunks, _) = out.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.load(Ordering::Relaxed).to_le_bytes();
    }
}

/// Computes the checksums of the records in `bytes`, which are about to be written.
pub(super) fn seal(bytes: &mut [u8], life: u64, unit: u64) {
    let mut places = Vec::new();
    walk(bytes, unit, |at, head| places.extend(head.map(|head| (at, head.bytes()))));
    for (at, size) in places {
        let from = to_usize((at - unit) * UNIT_BYTES);
        let record = bytes.get_mut(from..from + size).unwrap_or(&mut []);
        if let Some((crc, rest)) = record.split_first_chunk_mut::<4>() {
            *crc = checksum(rest, life, at).to_le_bytes();
        }
    }
}
