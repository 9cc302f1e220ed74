//! The path of a key in the trie.

use super::word::{ROOT_BITS, TAG_BITS};

/// The path of a key: its hash, and the key for subtrees that are [switched](super::switched).
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPath<'k> {
    pub(crate) hash: u64,
    pub(crate) key: &'k [u8],
}

impl KeyPath<'_> {
    /// The path of a hash without a key: enough to lock its subtree, and to follow it in a trie
    /// that does not switch subtrees.
    pub(crate) const fn of_hash(hash: u64) -> Self {
        Self { hash, key: &[] }
    }
}

/// Returns a hash of the key of the record at an address: the keyed hash, or that of its path.
/// `None` if the key is not known.
pub(crate) type HashOf<'a> = dyn Fn(u64) -> Option<u64> + 'a;

/// The bits of a path that a trie with nodes of `fan_bits` bits uses: those of the root table, and
/// whole characters of the tag.
pub(super) const fn path_bits(fan_bits: u32) -> u32 {
    ROOT_BITS + TAG_BITS / fan_bits * fan_bits
}
