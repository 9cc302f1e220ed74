//! Older versions of a key, and what a node keeps of its hash: for the version store.

use super::{Arena, NODE_MASK, Node, SkipList};

impl<A: Arena> SkipList<A> {
    /// Returns the oldest version of exactly this key that is not older than `least`. Takes no
    /// lock. Cost: the versions from `least` on.
    pub(crate) fn get_oldest_from(&self, key: &[u8], hash: u64, least: u64) -> Option<Node> {
        self.versions_from(key, hash, least).last()
    }

    /// Returns the versions of exactly this key that are not older than `least`, the newest first.
    /// They are in the chain of the key's bucket: the list links only some of them.
    pub(crate) fn versions_from(
        &self,
        key: &[u8],
        hash: u64,
        least: u64,
    ) -> impl Iterator<Item = Node> {
        let mut next = self.get(key, hash);
        std::iter::from_fn(move || {
            let node = next.filter(|node| self.version(*node) >= least)?;
            let behind = self.word(node.0 + 3) & NODE_MASK;
            next = self.find_in_chain(behind, key, hash).map(Node);
            Some(node)
        })
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
