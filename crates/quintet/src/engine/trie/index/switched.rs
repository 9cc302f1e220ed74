//! Switched subtrees: the fallback to a keyed hash where paths are bytes of keys.
//!
//! Problem: with the option `hash=none` the path of a key is made of its own bytes. A client may
//! send keys that agree in these bytes. Without a fallback they would form one list, which each
//! lookup searches from the start.
//!
//! How: a list that grows beyond [`LazyTrie::list_max`] where a path has no bits left becomes a
//! *switched node*. Paths and tags below it are those of the keyed hash of each key, from the first
//! bit of the tag on. The word that links to the node says that it is switched. So a lookup needs
//! no other state: it computes the keyed hash when it reads that word.
//!
//! | event | effect |
//! |---|---|
//! | insert in a full list | switches if the keys of all its records are in memory, else the list grows |
//! | insert, split, delete below | as in the rest of the trie, with the keyed hash |
//! | merge | ends at the switched node: a record below has a tag that is not of its path |
//! | last record deleted | removes the switched node |
//! | gathering | makes a list again of few records, if their keys are in memory |
//! | checkpoint, recovery, eviction | words as any other |
//!
//! Invariants:
//! - A switched node is where the path has no bits left, so all its keys agree in the bits of the
//!   path. The order of scans (bits of the path, then bits of the keyed hash) is the same whether a
//!   subtree is switched or not.
//! - No switched node is below another one.
//!
//! Thread rules: those of the trie. A switch is one change under the subtree's lock, which the path
//! alone selects.

use super::{
    key_path::{HashOf, SlotPath},
    lazy_trie::{LazyTrie, Writer, damaged},
    word::{self, ROOT_BITS, TrieSlot, address_of, record},
};
use crate::{
    Result,
    util::{mutant::mutant, sync::Ordering},
};

/// Records that a list without a further split may have before it is switched, at least, whatever
/// the sluggishness. Of a billion uniform keys, some 20,000 times five have one of the 2^32 paths:
/// the nodes for these take 12 MB. With two it would be gigabytes.
const LIST_MAX: usize = 4;

impl LazyTrie {
    /// Records that a list may have where the path has no bits left, before it is switched.
    #[inline]
    pub(super) fn list_max(&self, is_switched: bool) -> usize {
        mutant!(TrieNeverSwitches => return usize::MAX);
        if self.fallback.is_none() || is_switched {
            usize::MAX
        } else {
            self.sluggishness.max(LIST_MAX)
        }
    }

    /// The keyed hash of a key. `None` in a trie that never switches, where a switched node is
    /// damage.
    #[cold]
    #[inline(never)]
    pub(super) fn keyed_hash(&self, key: &[u8]) -> Option<u64> {
        self.fallback.as_ref().map(|keyed| keyed.hash(key))
    }

    /// Builds a switched node for the records at these addresses and returns its word. Returns
    /// `None` if `hash_of` does not know one of them.
    fn build_switched(&self, words: &[u64], hash_of: &HashOf<'_>) -> Result<Option<u64>> {
        let rehash = |word: &u64| {
            let address = address_of(*word);
            let hash = hash_of(address)?;
            Some(mutant!(TrieSwitchKeepsTags: *word, else record(hash, address)))
        };
        let Some(words) = words.iter().map(rehash).collect::<Option<Vec<u64>>>() else {
            return Ok(None);
        };
        let node = self.build_node(&words, ROOT_BITS)?;
        self.counts.switched.fetch_add(1, Ordering::Relaxed);
        self.counts.switches_total.fetch_add(1, Ordering::Relaxed);
        Ok(Some(word::switched(self.fan_bits, node)))
    }

    /// Frees the switched node at `node`, which is empty or whose records are elsewhere now.
    pub(super) fn free_switched(&self, node: u64) {
        self.counts.switched.fetch_sub(1, Ordering::Relaxed);
        self.counts.nodes.fetch_sub(1, Ordering::Relaxed);
        self.counts.merges_total.fetch_add(1, Ordering::Relaxed);
        self.free(self.fan_bits, node);
    }
}

impl Writer<'_> {
    /// The addresses of the list on the path, if it is longer than it may be; else nothing.
    pub(crate) fn overfull(&self) -> Result<Vec<u64>> {
        let path = self.path()?;
        Ok(self.overfull_list(&path)?.iter().map(|word| address_of(*word)).collect())
    }

    fn overfull_list(&self, path: &SlotPath) -> Result<Vec<u64>> {
        let mut words = self.records(path.word)?;
        if self.trie.splits_at(path.position)
            || words.len() <= self.trie.list_max(path.is_switched())
        {
            words.clear();
        }
        Ok(words)
    }

    /// Switches the list on the path, if it is longer than it may be and `hash_of` knows all its
    /// records. Returns whether it did.
    pub(crate) fn switch(&mut self, hash_of: &HashOf<'_>) -> Result<bool> {
        let path = self.path()?;
        let words = self.overfull_list(&path)?;
        if words.is_empty() {
            return Ok(false);
        }
        let TrieSlot::List { class, at } = TrieSlot::of(path.word) else {
            return Err(damaged("a long list is no list"));
        };
        let Some(word) = self.trie.build_switched(&words, hash_of)? else { return Ok(false) };
        self.trie.space.set(path.slot, word);
        self.trie.free_list(class, at)?;
        Ok(true)
    }
}
