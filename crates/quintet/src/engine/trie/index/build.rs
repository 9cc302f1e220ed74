//! Builds nodes and lists from records.

use super::{
    lazy_trie::LazyTrie,
    word::{self, character},
};
use crate::{
    Result,
    util::{codec::to_usize, sync::Ordering},
};

impl LazyTrie {
    /// Builds a slot's word for records that share the hash bits before `position`.
    pub(super) fn build(&self, words: &[u64], position: u32) -> Result<u64> {
        if let [word] = words {
            return Ok(*word);
        }
        if words.len() <= self.sluggishness || !self.splits_at(position) {
            return self.build_list(words);
        }
        let node = self.build_node(words, position)?;
        Ok(word::node(self.fan_bits, node))
    }

    /// Builds a node for records that share the hash bits before `position`, and returns where it
    /// is.
    pub(super) fn build_node(&self, words: &[u64], position: u32) -> Result<u64> {
        let mut children = vec![0; 1 << self.fan_bits];
        let mut sorted = words.to_vec();
        let of = |word: &u64| character(*word, position, self.fan_bits);
        sorted.sort_unstable_by_key(of);
        for group in sorted.chunk_by(|one, next| of(one) == of(next)) {
            let Some(first) = group.first() else { continue };
            if let Some(child) = children.get_mut(to_usize(of(first))) {
                *child = self.build(group, position + self.fan_bits)?;
            }
        }
        let object = self.allocate(self.fan_bits)?;
        let end = children.iter().rposition(|child| *child != 0).map_or(0, |last| last + 1);
        self.fill(object, self.fan_bits, children.get(..end).unwrap_or(&[]));
        self.counts.nodes.fetch_add(1, Ordering::Relaxed);
        self.counts.splits_total.fetch_add(1, Ordering::Relaxed);
        Ok(object.at)
    }
}
