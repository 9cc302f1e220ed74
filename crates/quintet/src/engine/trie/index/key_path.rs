//! The path of a key in the trie, and where a writer finds that it leads.

use super::word::{ROOT_BITS, TAG_BITS};

/// The most nodes of a path: each uses six bits of the tag or more, and a path may use two tags.
pub(super) const DEPTH_MAX: usize = 8;

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

/// The path to a slot that holds no node.
#[derive(Debug)]
pub(super) struct SlotPath {
    /// The hash whose bits lead to the slot, and whose tag its records have: below a switched node,
    /// the keyed hash.
    pub(super) hash: u64,
    /// The position of the slot.
    pub(super) slot: u64,
    pub(super) word: u64,
    /// Bits of the hash that the path uses.
    pub(super) position: u32,
    /// The nodes on the path from the top: the slot that links to each, and its position.
    pub(super) nodes: [(u64, u64); DEPTH_MAX],
    pub(super) depth: usize,
    /// The number in `nodes` of the switched node; [`DEPTH_MAX`]: none.
    pub(super) switched: usize,
}

impl SlotPath {
    /// Returns whether the slot is below a switched node.
    pub(super) fn is_switched(&self) -> bool {
        self.switched < DEPTH_MAX
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
