//! Links: offsets with a checksum.

/// Bits of the offset in a link.
pub(super) const OFFSET_BITS: u32 = 48;

/// Makes a link to an offset: 48 bits of offset, and 16 bits of its checksum. The link 0 points
/// nowhere.
#[inline]
pub(crate) const fn link(offset: u64) -> u64 {
    if offset == 0 {
        return 0;
    }
    let check = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> OFFSET_BITS;
    offset | check << OFFSET_BITS
}

/// Returns the offset of a link without checking its checksum.
#[inline]
pub(crate) const fn target(link: u64) -> u64 {
    link & ((1 << OFFSET_BITS) - 1)
}

/// Whether the checksum of a link is right.
#[inline]
pub(crate) const fn is_link(word: u64) -> bool {
    link(target(word)) == word
}
