//! The hash of the keys of one table.

use crate::util::codec::KeyHash;

/// The hash of the keys of one table, for the table and for cursors that do not own it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHasher {
    pub(super) hash: KeyHash,
    /// Bits of a hash that the table uses: all, except in tests of equal hashes.
    pub(super) hash_mask: u64,
}

impl TableHasher {
    /// Returns the hash of a key.
    #[inline]
    pub(crate) fn hash(self, key: &[u8]) -> u64 {
        self.hash.hash(key) & self.hash_mask
    }
}
