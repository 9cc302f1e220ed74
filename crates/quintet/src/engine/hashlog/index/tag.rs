//! Tags: the hash bits in a slot, and how a reader compares them.
//!
//! The 26 bits of a tag are hash bits 6 to 31: all that growth ever needs. The lowest of them
//! select the group. In a large table the position of a slot determines those bits, and they would
//! not distinguish entries. The tag then holds other hash bits in their place. Growth cannot write
//! those (it reads no entries), so the number of other bits in a tag depends on the size of the
//! table when it was written. It is never more than the position determines now. Two entries of a
//! line have the same tag once in some millions, at any size.
//!
//! A reader does not know when a tag was written. It accepts any number of other bits, from none to
//! all that the position allows. Below some bit the tag must agree with the other bits. From that
//! bit on it must agree with the hash.

use super::slot::{ADDRESS_MASK, LOCK_BITS, TAG_BITS, TAG_SHIFT};

const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
/// Number of other bits from hash bits 32 to 55: the manifest holds 56 bits of a hash. The highest
/// two bits of a tag are always hash bits.
const OTHER_BITS: u32 = 24;

/// Returns the hash bits that select a group and a line. The lowest `LOCK_BITS` are the lock's
/// number.
pub(super) const fn placing(hash: u64) -> u64 {
    (hash & 0xffff_ffff) >> (6 - LOCK_BITS)
}

/// The tag of a hash in the slots of one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    plain: u64,
    other: u64,
    /// Number of low bits of the tag that the line's position determines.
    known: u32,
}

impl Tag {
    /// `known` is the number of placing bits that the line's position determines.
    #[inline]
    pub(super) fn new(hash: u64, known: u32) -> Self {
        let plain = hash >> 6 & TAG_MASK;
        let few = (1 << OTHER_BITS) - 1;
        let other = hash >> 32 & few | plain & !few;
        Self { plain, other, known: known - LOCK_BITS }
    }

    /// Returns the slot word of an entry.
    #[inline]
    pub(super) fn slot(self, address: u64) -> u64 {
        let known = (1 << self.known) - 1;
        (self.plain & !known | self.other & known) << TAG_SHIFT | address
    }

    /// Returns whether the slot may belong to this hash.
    #[inline]
    pub(super) fn matches(self, word: u64) -> bool {
        // Nearly all slots that do not match end here.
        if (word ^ self.plain << TAG_SHIFT) >> (TAG_SHIFT + self.known) != 0 {
            return false;
        }
        let tag = word >> TAG_SHIFT;
        let from_plain = tag ^ self.plain;
        let from_other = tag ^ self.other;
        // The lowest bit that differs from the other bits must be above the highest that differs
        // from the hash.
        let agreeing = (from_other & from_other.wrapping_neg()).wrapping_sub(1);
        agreeing >= from_plain
    }
}

/// Returns the placing bits of a slot whose position determines that the lowest `known` are those
/// of `place`.
pub(super) fn placing_of(word: u64, place: u64, known: u32) -> u64 {
    let known = (1 << known) - 1;
    (word >> TAG_SHIFT << LOCK_BITS) & !known | place & known
}

/// Returns the slot word for a position that determines only the lowest `known` bits.
pub(super) fn moved(word: u64, placing: u64, known_before: u32, known: u32) -> u64 {
    let lost = (((1 << known_before) - 1) & !((1 << known) - 1)) >> LOCK_BITS;
    let tag = (word >> TAG_SHIFT) & !lost | (placing >> LOCK_BITS) & lost;
    tag << TAG_SHIFT | word & ADDRESS_MASK
}
