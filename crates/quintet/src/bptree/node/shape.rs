//! The size limits of nodes, derived from the page size.

use super::layout::{HEAD_BYTES, SLOT_BYTES};

/// The size limits of a tree, derived from its page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// Size of a page in bytes: a power of two from 4096 to 65,536.
    pub page_bytes: usize,
    /// Length of the values of packed leaves, in bytes; 0 if no leaf is packed. A leaf whose values
    /// all have this length is packed, and redistributes entries to a neighbour before it splits.
    /// For trees of many small entries.
    pub value_bytes: usize,
}

impl TreeShape {
    /// Whether a leaf with `count` entries is packed if all its values have the length
    /// [`TreeShape::value_bytes`].
    pub const fn packs(self, count: usize) -> bool {
        self.value_bytes > 0 && count > 0
    }

    /// Length of the longest key that its node holds whole, in bytes. Of a longer key the node
    /// holds this many bytes, and an extent the whole key.
    pub const fn key_inline_max(self) -> usize {
        self.page_bytes / 16
    }

    /// Length of the longest prefix that a node stores, in bytes.
    pub const fn prefix_max(self) -> usize {
        self.page_bytes / 16
    }

    /// Size of the largest entry (with its slot) that its leaf holds whole, in bytes. With this
    /// limit each half of a full leaf has room for one more entry.
    pub const fn entry_max(self) -> usize {
        (self.page_bytes - HEAD_BYTES) / 4 - 16
    }

    /// Size of the largest separator with its slot, in bytes.
    pub const fn separator_max(self) -> usize {
        self.key_inline_max() + 24
    }

    /// A node with fewer bytes in use is merged with a sibling.
    pub const fn underfull(self) -> usize {
        self.page_bytes / 4
    }

    /// Two siblings are merged if they use at most this many bytes together. The limit leaves room,
    /// so that the next insert does not split them again.
    pub const fn merged_max(self) -> usize {
        self.page_bytes / 8 * 7
    }

    /// Whether a key is too long for a node, so that an extent holds it.
    pub fn is_long(self, key: &[u8]) -> bool {
        key.len() > self.key_inline_max()
    }

    /// Whether the leaf holds an entry of this key and value whole.
    pub fn is_inline(self, key: &[u8], value_bytes: usize) -> bool {
        let key_bytes = if self.is_long(key) { self.key_inline_max() + 8 } else { key.len() };
        SLOT_BYTES + 4 + key_bytes + value_bytes <= self.entry_max()
    }
}
