//! The size of a node under construction, and the separator before it.

use crate::bptree::node::{HEAD_BYTES, LongKey, REFERENCE_BYTES, SLOT_BYTES, TreeShape};

/// The size of entries in a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFill {
    /// In bytes, with whole keys; of long keys the most that a node holds.
    pub(super) bytes: usize,
    /// Number of entries whose key loses the prefix.
    pub(super) short: usize,
}

impl NodeFill {
    pub(super) fn add(&mut self, shape: TreeShape, (key, payload): (usize, usize), long: bool) {
        let key_bytes = if long { shape.key_inline_max() + REFERENCE_BYTES } else { key };
        self.bytes += SLOT_BYTES + 4 + key_bytes + payload;
        self.short += usize::from(!long);
    }

    /// Returns the size of a node with a prefix of this length.
    pub(super) const fn size(&self, prefix: usize) -> usize {
        (HEAD_BYTES + prefix).next_multiple_of(8) + self.bytes - self.short * prefix
    }
}

/// The separator before a node, and its extent if it is long and has one. Empty if there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct LowerSeparator {
    pub(super) key: Vec<u8>,
    pub(super) long: Option<LongKey>,
}
