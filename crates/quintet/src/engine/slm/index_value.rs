//! Values of the index: where the live entry of a key is.
//!
//! A value has 8 bytes, little-endian:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 31 | number of the run |
//! | 32 to 54 | number of the block |
//! | 55 to 62 | the part of the block in which the entry begins, in 256ths of `block_bytes` |
//! | 63 | the value has no expiry time |
//!
//! The value of the empty key is the list of runs ([`super::run_list`]) and has another layout.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use crate::util::codec::{low_u8, low_u32, to_u64};

/// Address of a block: the number of its run, and its number in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockAddress {
    /// Number of the run.
    pub(super) run: u32,
    /// Number of the block in the run.
    pub(super) block: u32,
}

impl BlockAddress {
    /// Decodes the address in a value of the index; `None` if the value has a wrong length.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        IndexValue::decode(bytes).map(|index_value| index_value.address)
    }
}

/// Exclusive limit of the blocks of a run, and of its entries: a block number has 23 bits.
pub(super) const BLOCKS_MAX: u32 = 1 << 23;
/// Bits of a block's number.
const BLOCK_BITS: u32 = BLOCKS_MAX.trailing_zeros();
/// Bit of the high word that marks a value without an expiry time.
const NEVER_EXPIRES: u32 = 1 << 31;
/// Logarithm of the number of parts into which a block is divided.
pub(super) const PART_BITS: u32 = 8;

/// The value of a key in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexValue {
    /// The block of the entry.
    pub(super) address: BlockAddress,
    /// The value has no expiry time, so the key exists: no read is needed to know that.
    pub(super) never_expires: bool,
    /// The part of the block in which the entry begins. Gets prefetch it, and ranges read the entry
    /// there without a search. Runs that do not record their block size have no parts.
    pub(super) part: u8,
}

/// Returns the part of a block of `block_bytes` that contains byte `offset` of its entries.
pub(super) fn part_of_offset(offset: usize, block_bytes: usize) -> u8 {
    low_u8(to_u64((offset << PART_BITS) / block_bytes).min(u64::from(u8::MAX)))
}

/// Returns the offsets in a block's entries that belong to a part. The last part has no end.
pub(super) fn offsets_of_part(part: u8, block_bytes: usize) -> Range<usize> {
    let first = |part: usize| (part * block_bytes).div_ceil(1 << PART_BITS);
    let part = usize::from(part);
    first(part)..if part < usize::from(u8::MAX) { first(part + 1) } else { usize::MAX }
}

impl IndexValue {
    /// Encodes the value for the index.
    pub(super) fn encode(self) -> [u8; 8] {
        self.to_word().to_le_bytes()
    }

    /// Encodes the value as a word of the index in a pool.
    pub(super) fn to_word(self) -> u64 {
        let part = u32::from(self.part) << BLOCK_BITS;
        let block = self.address.block | part | if self.never_expires { NEVER_EXPIRES } else { 0 };
        u64::from(block) << 32 | u64::from(self.address.run)
    }

    /// Decodes a value of the index; `None` if it has a wrong length.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = bytes.first_chunk::<8>().filter(|_| bytes.len() == 8)?;
        Some(Self::of_word(u64::from_le_bytes(*word)))
    }

    /// Decodes a value that is a word of the index in a pool.
    #[inline]
    pub(super) fn of_word(word: u64) -> Self {
        let block = low_u32(word >> 32);
        let address = BlockAddress { run: low_u32(word), block: block % BLOCKS_MAX };
        let part = low_u8(u64::from(block >> BLOCK_BITS));
        Self { address, never_expires: block & NEVER_EXPIRES != 0, part }
    }

    /// As [`IndexValue::decode`], as the callback of a lookup in the index.
    #[inline]
    pub(super) fn from_lookup(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Self> {
        let mut bytes = [0; 8];
        if length == bytes.len() {
            fill(&mut bytes);
            return Self::decode(&bytes);
        }
        None
    }
}

const _: () = assert!(size_of::<BlockAddress>() == 8, "an address of a block is one word");

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn index_values_have_the_documented_layout_and_decode() {
        let address = BlockAddress { run: 7, block: 0x0002_0304 };
        let index_value = |never_expires, part| IndexValue { address, never_expires, part };
        assert_eq!(index_value(false, 0).encode(), [7, 0, 0, 0, 4, 3, 2, 0]);
        assert_eq!(index_value(true, 0).encode(), [7, 0, 0, 0, 4, 3, 2, 128]);
        assert_eq!(index_value(false, 3).encode(), [7, 0, 0, 0, 4, 3, 130, 1]);
        for part in [0, 1, 128, 255] {
            for index_value in [index_value(false, part), index_value(true, part)] {
                assert_eq!(IndexValue::decode(&index_value.encode()), Some(index_value));
                assert_eq!(BlockAddress::decode(&index_value.encode()), Some(address));
            }
        }
        let last = BlockAddress { run: u32::MAX, block: BLOCKS_MAX - 1 };
        let last = IndexValue { address: last, never_expires: true, part: 255 };
        assert_eq!(IndexValue::decode(&last.encode()), Some(last));
        assert_eq!(
            [0, 15, 16, 4087, 1 << 20].map(|at| part_of_offset(at, 4096)),
            [0, 0, 1, 255, 255]
        );
        for block_bytes in [512, 1000, 4096, 5000, 1 << 20] {
            for at in (0..2 * block_bytes).step_by(block_bytes / 500) {
                let bytes = offsets_of_part(part_of_offset(at, block_bytes), block_bytes);
                assert!(bytes.contains(&at), "{at} of {block_bytes}: {bytes:?}");
            }
        }
        assert_eq!(BlockAddress::decode(&[0; 9]), None);
    }
}
