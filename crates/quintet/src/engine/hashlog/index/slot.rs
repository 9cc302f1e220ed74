//! A slot: a word with a tag and an address, or with a link. The head of [`super`] has its bits.

use crate::util::codec::to_u64;

/// Number of hash bits that select a lock. The smallest table has a group for each lock.
pub(super) const LOCK_BITS: u32 = if cfg!(model) { 0 } else { 6 };
pub(super) const LOCK_COUNT: u64 = 1 << LOCK_BITS;
/// Slots of a line: a cache line of words.
pub const SLOTS: usize = if cfg!(model) { 2 } else { 8 };
pub(super) const LINE_SLOTS: u64 = to_u64(SLOTS);
/// Slots of an overflow node. Most chains that overflow need one to three more slots.
pub(super) const NODE_SLOTS: u64 = if cfg!(model) { 2 } else { 4 };

pub(super) const TAG_SHIFT: u32 = 38;
/// Bits of a tag.
pub const TAG_BITS: u32 = 26;
pub(super) const ADDRESS_MASK: u64 = (1 << TAG_SHIFT) - 1;
const LINK: u64 = 0x3f << 32;
/// Addresses are from 1 to below this.
pub const ADDRESS_END: u64 = LINK;

pub(super) const fn is_link(word: u64) -> bool {
    word & LINK == LINK
}

pub(super) const fn link(node: u64) -> u64 {
    LINK | node
}

pub(super) const fn node_of(word: u64) -> u64 {
    word & 0xffff_ffff
}
