//! Older versions of a key, and what a node keeps of its hash: for the version store.

use super::{Arena, NODE_MASK, Node, SkipList};

impl<A: Arena> SkipList<A> {
    /// Returns the oldest version of exactly this key that is not older than `least`. Takes no
    /// lock. Cost: the versions from `least` on.
    pub(crate) fn get_oldest_from(&self, key: &[u8], hash: u64, least: u64) -> Option<Node> {
        let mut oldest = None;
        let mut next = self.get(key, hash);
        while let Some(node) = next.filter(|node| self.version(*node) >= least) {
            oldest = Some(node);
            let behind = self.word(node.0 + 3) & NODE_MASK;
            next = self.find_in_chain(behind, key, hash).map(Node);
        }
        oldest
    }

    /// Returns the high half of the hash.
    pub(crate) fn hash_half(&self, node: Node) -> u64 {
        self.word(node.0 + 3) >> 32
    }

    /// Returns the version number.
    pub(crate) fn version(&self, node: Node) -> u64 {
        self.word(node.0 + 1)
    }
}
