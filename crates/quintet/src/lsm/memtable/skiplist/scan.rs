//! The steps of a scan: from a node to the next one.

use super::{Arena, Node, SkipList};
use crate::{
    io::prefetch,
    util::{
        codec::{key_prefix, to_usize},
        mutant::mutant,
    },
};

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Cache lines that a scan prefetches of the next node: head, links, key, and 128 bytes of value.
const PREFETCHED_LINES: usize = 4;

impl<A: Arena> SkipList<A> {
    /// Returns the next node: an older version, or the next key.
    #[cfg(test)]
    pub(crate) fn next(&self, node: Node) -> Option<Node> {
        Self::node(self.link(node.0, 0))
    }

    /// Returns the newest version of the key that follows `node`, whose key is `key`. Passes older
    /// versions of `key` by their highest links: the cost is logarithmic in their number.
    pub(crate) fn next_key(&self, node: Node, key: &[u8]) -> Option<Node> {
        let prefix = key_prefix(key);
        let has_key = |node: &u64| *node != 0 && self.compare(*node, key, prefix).is_eq();
        let mut next = self.link(node.0, 0);
        while has_key(&next) {
            let height = to_usize(self.word(next) >> 20 & 0xf);
            let levels = mutant!(NextKeyReadsEachVersion: 0..1, else 0..height);
            let mut links = levels.rev().map(|level| self.link(next, level));
            next = links.find(has_key).unwrap_or_else(|| self.link(next, 0));
        }
        Self::node(next)
    }

    /// Prefetches the node that follows, for a scan that reads it next. A hint.
    #[inline]
    pub(crate) fn prefetch_next(&self, node: Node) {
        let next = to_usize(self.link(node.0, 0));
        for line in 0..PREFETCHED_LINES {
            self.arena.words().get(next + line * LINE_WORDS).into_iter().for_each(prefetch);
        }
    }
}
