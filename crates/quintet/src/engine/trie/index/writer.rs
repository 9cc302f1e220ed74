//! Changes of the trie: a locked subtree and the operations on it.
//!
//! A [`Writer`] holds the lock of one subtree. Dropping it increments the version and so unlocks.

use super::{
    key_path::{DEPTH_MAX, SlotPath},
    layout::Layout,
    lazy_trie::{ROOT_AT, WordPosition, Writer, damaged, word_at},
    list::CELL,
    search::{RecordVerdict, SearchResult},
    word::{ADDRESS_END, ROOT_BITS, TrieSlot, address_of, moved, record},
};
use crate::{
    Result,
    util::{codec::to_u64, mutant::mutant, sync::Ordering},
};

impl Writer<'_> {
    /// Follows the path, and loads regions that are not in memory.
    pub(super) fn path(&self) -> Result<SlotPath> {
        let trie = self.trie;
        let hash = self.path.hash;
        let mut path = SlotPath {
            hash,
            slot: ROOT_AT + (hash >> (64 - ROOT_BITS)),
            word: 0,
            position: ROOT_BITS,
            nodes: [(0, 0); DEPTH_MAX],
            depth: 0,
            switched: DEPTH_MAX,
        };
        loop {
            path.word = word_at(&trie.space, path.slot)?;
            let at = match TrieSlot::of(path.word) {
                TrieSlot::Node { at, .. } => at,
                TrieSlot::Switched { at, .. } => {
                    self.follow_keyed(&mut path)?;
                    at
                }
                _ => return Ok(path),
            };
            let Some(node) = path.nodes.get_mut(path.depth) else {
                return Err(damaged("a path has too many nodes"));
            };
            *node = (path.slot, at);
            path.depth += 1;
            path.slot = trie.child(at, path.hash, path.position);
            path.position += trie.fan_bits;
        }
    }

    /// Continues a path that came to a switched node with the keyed hash.
    #[cold]
    fn follow_keyed(&self, path: &mut SlotPath) -> Result<()> {
        match self.trie.keyed_hash(self.path.key) {
            Some(keyed) if !path.is_switched() => {
                (path.hash, path.position, path.switched) = (keyed, ROOT_BITS, path.depth);
                Ok(())
            }
            _ => Err(damaged("a switched node is where none can be")),
        }
    }

    /// Loads all regions of the path.
    pub(super) fn load_path(&self) -> Result<()> {
        self.records(self.path()?.word).map(drop)
    }

    /// The records in a slot's word.
    pub(super) fn records(&self, word: u64) -> Result<Vec<u64>> {
        match TrieSlot::of(word) {
            TrieSlot::Record(word) => Ok(vec![word]),
            TrieSlot::List { class, at } => self.trie.read_list(class, at),
            TrieSlot::Empty | TrieSlot::Node { .. } | TrieSlot::Switched { .. } => Ok(Vec::new()),
        }
    }

    /// Passes `look` the addresses whose tag is that of the hash. Returns its first result and the
    /// position of that record's word; `None` if there is none.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        mut look: impl FnMut(u64) -> Option<T>,
    ) -> Result<Option<(T, WordPosition)>> {
        let mut look = |word, at| match look(address_of(word)) {
            Some(found) => RecordVerdict::Found((found, WordPosition { at, word })),
            None => RecordVerdict::Other,
        };
        loop {
            match self.trie.search(self.path, &mut look) {
                SearchResult::Found(found) => return Ok(Some(found)),
                SearchResult::Missing => return Ok(None),
                SearchResult::Load(index) => self.trie.space.load(index)?,
                SearchResult::Changed => return Err(damaged("a path has too many nodes")),
            }
        }
    }

    /// Adds a record for the key. The caller knows that it has none. Returns whether the record may
    /// be in a list that is longer than it should be, which [`Self::switch`] switches. Fails with
    /// [`Error::Limit`] if the trie is full, and with errors of loading regions.
    pub(crate) fn insert(&mut self, address: u64) -> Result<bool> {
        debug_assert!(address != 0 && address < ADDRESS_END);
        let trie = self.trie;
        let path = self.path()?;
        let word = record(path.hash, address);
        trie.counts.keys.fetch_add(1, Ordering::Relaxed);
        trie.counts.insert_nodes_total.fetch_add(to_u64(path.depth) + 1, Ordering::Relaxed);
        let splits = trie.splits_at(path.position);
        let has_room = |count: usize| count < trie.sluggishness || !splits;
        let is_full = |count: usize| count >= trie.list_max(path.is_switched());
        if trie.layout == Layout::Lines
            && let TrieSlot::List { class, at } = TrieSlot::of(path.word)
            && let Some(words) = trie.space.words(at, 1 << class)
            && let Some(count) = words.iter().position(|word| word.load(Ordering::Relaxed) == 0)
            && has_room(count)
        {
            trie.space.set(at + to_u64(count), word);
            return Ok(!splits && is_full(count));
        }
        let mut words = self.records(path.word)?;
        if let TrieSlot::List { .. } | TrieSlot::Record(_) = TrieSlot::of(path.word)
            && trie.layout == Layout::Chain
            && has_room(words.len())
        {
            trie.space.set(path.slot, trie.extend_chain(word, path.word, &words)?);
            return Ok(!splits && is_full(words.len()));
        }
        // A split may separate nothing.
        let may_be_overfull = is_full(words.len());
        words.push(word);
        trie.space.set(path.slot, trie.build(&words, path.position)?);
        if let TrieSlot::List { class, at } = TrieSlot::of(path.word) {
            trie.free_list(class, at)?;
        }
        Ok(may_be_overfull)
    }

    /// Returns whether the record at `address` is in the trie.
    pub(crate) fn has(&self, address: u64) -> Result<bool> {
        self.find(|found| (found == address).then_some(())).map(|found| found.is_some())
    }

    /// Exchanges the record at `old` for `new`; `false` if there is none at `old`.
    pub(crate) fn replace(&mut self, old: u64, new: u64) -> Result<bool> {
        let found = self.find(|address| (address == old).then_some(()))?;
        if let Some(((), position)) = found {
            self.exchange(position, new);
        }
        Ok(found.is_some())
    }

    /// Exchanges the record that [`Self::find`] found there for `new`.
    #[inline]
    pub(crate) fn exchange(&mut self, WordPosition { at, word }: WordPosition, new: u64) {
        mutant!(TrieExchangesTag => return self.trie.space.set(at, record(self.path.hash, new)));
        self.trie.space.set(at, moved(word, new));
    }

    /// Removes the record at `address`; `false` if it is not in the trie.
    pub(crate) fn remove(&mut self, address: u64) -> Result<bool> {
        let trie = self.trie;
        let path = self.path()?;
        let gone = record(path.hash, address);
        match TrieSlot::of(path.word) {
            TrieSlot::Record(word) if word == gone => {
                trie.space.set(path.slot, 0);
                self.merge(&path)?;
            }
            TrieSlot::List { .. } if trie.layout == Layout::Chain => {
                let Some(place) = trie.find_in_chain(path.slot, gone)? else {
                    return Ok(false);
                };
                trie.space.set(place.link, place.other);
                trie.free_object(CELL, place.cell);
            }
            TrieSlot::List { class, at } => {
                let mut words = trie.read_list(class, at)?;
                let Some(index) = words.iter().position(|word| *word == gone) else {
                    return Ok(false);
                };
                words.swap_remove(index);
                self.shrink(&path, class, at, index, &words)?;
            }
            _ => return Ok(false),
        }
        trie.counts.keys.fetch_sub(1, Ordering::Relaxed);
        trie.counts.removed.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Stores the remaining words of a list after the record at `index` was removed.
    fn shrink(
        &self,
        path: &SlotPath,
        class: u32,
        at: u64,
        index: usize,
        words: &[u64],
    ) -> Result<()> {
        let trie = self.trie;
        // A list that is half empty keeps its class: the next insert would grow it again.
        let small = words.len() * 4 <= 1 << class;
        if words.len() == 1 || small {
            let word = if let [word] = words { *word } else { trie.build_list(words)? };
            trie.space.set(path.slot, word);
            return trie.free_list(class, at);
        }
        if let Some(moved) = words.get(index) {
            trie.space.set(at + to_u64(index), *moved);
        }
        trie.space.set(at + to_u64(words.len()), 0);
        Ok(())
    }

    /// Removes the nodes on the path to an empty slot that hold nothing now, or a single record or
    /// list, which moves up.
    fn merge(&self, path: &SlotPath) -> Result<()> {
        let trie = self.trie;
        for (depth, (slot, node)) in path.nodes.iter().enumerate().take(path.depth).rev() {
            word_at(&trie.space, *node)?;
            let words = trie.space.words(*node, 1 << trie.fan_bits);
            let words = words.ok_or_else(|| damaged("a node is outside the trie"))?;
            let mut left = words.iter().map(|w| w.load(Ordering::Relaxed)).filter(|w| *w != 0);
            let (first, second) = (left.next().unwrap_or(0), left.next());
            let is_node =
                matches!(TrieSlot::of(first), TrieSlot::Node { .. } | TrieSlot::Switched { .. });
            if second.is_some() || is_node {
                break;
            }
            let is_switched =
                depth == path.switched && mutant!(TrieMergeLosesSwitch: false, else true);
            if is_switched && first != 0 {
                // Its tag is of the keyed hash.
                break;
            }
            trie.space.set(*slot, first);
            if is_switched {
                trie.free_switched(*node);
                continue;
            }
            trie.counts.nodes.fetch_sub(1, Ordering::Relaxed);
            trie.counts.merges_total.fetch_add(1, Ordering::Relaxed);
            mutant!(TrieLeaksNodes => continue);
            trie.free(trie.fan_bits, *node);
        }
        Ok(())
    }
}
