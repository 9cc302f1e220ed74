//! The mixing of hashes, and the error for equal ones.

/// Two hashes of the set are equal. Has the hash after mixing.
#[derive(Debug)]
pub(super) struct DuplicateHash(pub(super) u64);

/// Spreads the differences of hashes over all bits: the last steps of `SplitMix64`. Different
/// hashes stay different.
#[inline]
pub(super) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
