//! What a slot says of its entry's hash, and what a reader may conclude.
//!
//! The 26 bits of a tag are hash bits 6 to 31, all that growth will ever ask for. The lowest of
//! them choose the group: once the table has grown past them, a slot's place says what they are,
//! and in the slot they would tell nothing. So a tag has other bits of the hash there. Growth
//! cannot put them in (it reads no records), so how many a tag has depends on how large the table
//! was when it was written: never more than its place says now. Two entries of a line have the same
//! tag once in some millions, at any size of the table.
//!
//! A reader does not know when a tag was written, so it takes any number of other bits, from none
//! to all that the place allows: below some position the tag agrees with the other bits, from there
//! on with the hash.

use super::{ADDRESS_MASK, LOCK_BITS, TAG_BITS, TAG_SHIFT};

const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
/// Checkpoints keep 56 bits of a hash: the other bits are bits 32 to 55, for all but the highest
/// two.
const OTHER_BITS: u32 = 24;

/// The hash bits that choose a group and a line: those below `LOCK_BITS` are the lock's number.
pub(super) const fn placing(hash: u64) -> u64 {
    (hash & 0xffff_ffff) >> (6 - LOCK_BITS)
}

/// A hash as the slots of one line have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    plain: u64,
    other: u64,
    /// Low bits of the tag that the line's place says.
    known: u32,
}

impl Tag {
    /// `known` counts the placing bits that the line's place says.
    #[inline]
    pub(super) fn new(hash: u64, known: u32) -> Self {
        let plain = hash >> 6 & TAG_MASK;
        let few = (1 << OTHER_BITS) - 1;
        let other = hash >> 32 & few | plain & !few;
        Self { plain, other, known: known - LOCK_BITS }
    }

    /// The slot of an entry.
    #[inline]
    pub(super) fn slot(self, address: u64) -> u64 {
        let known = (1 << self.known) - 1;
        (self.plain & !known | self.other & known) << TAG_SHIFT | address
    }

    /// Whether the slot may be of this hash.
    #[inline]
    pub(super) fn matches(self, word: u64) -> bool {
        // Nearly all that do not match leave here.
        if (word ^ self.plain << TAG_SHIFT) >> (TAG_SHIFT + self.known) != 0 {
            return false;
        }
        let tag = word >> TAG_SHIFT;
        let from_plain = tag ^ self.plain;
        let from_other = tag ^ self.other;
        // The lowest bit that is not the other bits' is above the highest that is not the hash's.
        let agreeing = (from_other & from_other.wrapping_neg()).wrapping_sub(1);
        agreeing >= from_plain
    }
}

/// The placing bits behind a slot whose place says that the lowest `known` are those of `place`.
pub(super) fn placing_of(word: u64, place: u64, known: u32) -> u64 {
    let known = (1 << known) - 1;
    (word >> TAG_SHIFT << LOCK_BITS) & !known | place & known
}

/// The slot as it has to be where the place says only the lowest `known` bits.
pub(super) fn moved(word: u64, placing: u64, known_before: u32, known: u32) -> u64 {
    let lost = (((1 << known_before) - 1) & !((1 << known) - 1)) >> LOCK_BITS;
    let tag = (word >> TAG_SHIFT) & !lost | (placing >> LOCK_BITS) & lost;
    tag << TAG_SHIFT | word & ADDRESS_MASK
}
