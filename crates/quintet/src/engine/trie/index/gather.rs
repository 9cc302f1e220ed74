//! Gathering: replaces sparse nodes by lists, and shrinks the space.
//!
//! Problem: deletes remove a node only when one child at most is left, so a trie that has shrunk
//! keeps nodes with a few records each. The paper leaves them for later inserts.
//!
//! How: after enough deletes, a node with no more records below it than a list may have becomes
//! that list. The result has the nodes of a trie that is built anew. Then objects in use at the end
//! of the space move to free objects before it. Whole regions leave memory and, after the next
//! checkpoint, the file.
//!
//! Thread rules: one thread gathers, beside readers and writers. It locks a subtree for one child
//! of its first node at a time. It skips what is not in memory.

use std::ops::ControlFlow;

use super::{
    layout::Layout,
    lazy_trie::{LazyTrie, ROOT_AT, ROOTS},
    list::CHAIN_MAX,
    word::{self, ROOT_BITS, TrieSlot},
};
use crate::{
    Result,
    util::sync::{Ordering, lock},
};

/// Removed records below which a walk over the trie is not worth its cost.
const REMOVED_MIN: u64 = 64;
/// The most nodes of a path.
const LEVELS_MAX: u32 = 5;
/// Part of the records that has to be removed before nodes are gathered.
const REMOVED_PART: u64 = 4;

impl LazyTrie {
    /// Returns whether enough records were removed since the last time to make gathering
    /// worthwhile.
    pub(crate) fn wants_gathering(&self) -> bool {
        let removed = self.counts.removed.load(Ordering::Relaxed);
        removed >= REMOVED_MIN && removed >= self.len() / REMOVED_PART
    }

    /// The number of free nodes, and the bytes of all free objects.
    pub(crate) fn free_nodes(&self) -> (u64, u64) {
        let objects = lock(&self.objects);
        let mut counts = objects.free_counts();
        let nodes = counts.find(|(class, _)| *class == self.fan_bits).map_or(0, |(_, count)| count);
        (nodes, objects.free_words() * 8)
    }

    /// Gathers sparse nodes and shrinks the space. Returns whether regions became free, which the
    /// next checkpoint removes from the file. The caller has no subtree locked.
    pub(crate) fn gather(&self) -> Result<bool> {
        let _one = lock(&self.gathering);
        self.counts.removed.store(0, Ordering::Relaxed);
        let gathered = self.each_part(|slot, levels| {
            self.gather_slot(slot, levels).map(|_| ControlFlow::Continue(()))
        });
        gathered?;
        let Some(boundary) = lock(&self.objects).begin_shrinking(&self.space) else {
            return Ok(false);
        };
        let moved = self.each_part(|slot, levels| self.move_below(slot, levels, boundary));
        let writers = self.lock_all();
        let mut objects = lock(&self.objects);
        let end = objects.end_shrinking(&self.space);
        if let Some(end) = end {
            self.space.evict_all(objects.tail(), end);
        }
        drop(objects);
        drop(writers);
        moved.map(|()| end.is_some())
    }

    /// Calls `work` for each slot of the first node of each subtree, with all levels below it, and
    /// then for the subtree's own slot with one level. `levels` is the number of nodes below the
    /// slot that `work` may enter. The subtree is locked meanwhile.
    fn each_part(&self, mut work: impl FnMut(u64, u32) -> Result<ControlFlow<()>>) -> Result<()> {
        for root in 0..ROOTS {
            let (hash, slot) = (root << (64 - ROOT_BITS), ROOT_AT + root);
            for child in 0..1 << self.fan_bits {
                let _writer = self.lock(hash);
                let Some(TrieSlot::Node { at, .. }) = self.space.get(slot).map(TrieSlot::of) else {
                    break;
                };
                if work(at + child, LEVELS_MAX)?.is_break() {
                    return Ok(());
                }
            }
            let _writer = self.lock(hash);
            if work(slot, 1)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gathers the nodes below a slot. Returns the records below it if they fit in one list, which
    /// then holds them. Returns `None` if there are more, or if some are not in memory.
    fn gather_slot(&self, slot: u64, levels: u32) -> Result<Option<Vec<u64>>> {
        let Some(word) = self.space.get(slot) else { return Ok(None) };
        let few = |words: Vec<u64>| (words.len() <= self.sluggishness).then_some(words);
        match TrieSlot::of(word) {
            TrieSlot::Empty => Ok(Some(Vec::new())),
            TrieSlot::Record(word) => Ok(Some(vec![word])),
            TrieSlot::List { class, at } => {
                let mut words = Vec::new();
                let seen = self.visit_list(class, at, &mut |word| words.push(word));
                Ok(seen.ok().and_then(|()| few(words)))
            }
            TrieSlot::Node { .. } if levels == 0 => Ok(None),
            TrieSlot::Node { at: node, .. } => {
                let mut below = Some(Vec::new());
                for child in node..node + (1 << self.fan_bits) {
                    let is_node = |word| matches!(TrieSlot::of(word), TrieSlot::Node { .. });
                    if below.is_none() && !self.space.get(child).is_some_and(is_node) {
                        // Too many already: only nodes below, which may be gathered on their own,
                        // are visited.
                        continue;
                    }
                    let more = self.gather_slot(child, levels - 1)?;
                    below = below.zip(more).and_then(|(mut all, more)| {
                        all.extend(more);
                        few(all)
                    });
                    if below.is_none() && levels == 1 {
                        break;
                    }
                }
                let Some(words) = below else { return Ok(None) };
                self.replace_node(slot, node, &words)?;
                Ok(Some(words))
            }
        }
    }

    /// Replaces a node by the records below it, which are in its slots and in lists.
    fn replace_node(&self, slot: u64, node: u64, words: &[u64]) -> Result<()> {
        let word = match words {
            [] => 0,
            [word] => *word,
            _ => self.build_list(words)?,
        };
        self.space.set(slot, word);
        for child in node..node + (1 << self.fan_bits) {
            if let Some(TrieSlot::List { class, at }) = self.space.get(child).map(TrieSlot::of) {
                self.free_list(class, at)?;
            }
        }
        self.counts.nodes.fetch_sub(1, Ordering::Relaxed);
        self.free(self.fan_bits, node);
        Ok(())
    }

    /// Moves nodes and lists below a slot that are above the boundary to free objects below it, as
    /// long as there are any.
    fn move_below(&self, slot: u64, levels: u32, boundary: u64) -> Result<ControlFlow<()>> {
        let Some(word) = self.space.get(slot) else { return Ok(ControlFlow::Break(())) };
        match TrieSlot::of(word) {
            TrieSlot::Empty | TrieSlot::Record(_) => Ok(ControlFlow::Continue(())),
            TrieSlot::List { class, at } => Ok(self.move_list(slot, class, at, boundary)),
            TrieSlot::Node { class, at } => {
                let Some(at) = self.move_object(slot, (word::node, class, at), boundary) else {
                    return Ok(ControlFlow::Break(()));
                };
                for child in (at..at + (1 << class)).take_while(|_| levels > 1) {
                    if self.move_below(child, levels - 1, boundary)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    fn move_list(&self, mut slot: u64, class: u32, mut at: u64, boundary: u64) -> ControlFlow<()> {
        for _ in 0..CHAIN_MAX {
            let Some(moved) = self.move_object(slot, (word::list, class, at), boundary) else {
                return ControlFlow::Break(());
            };
            slot = moved + 1;
            match (self.layout, self.space.get(slot).map(TrieSlot::of)) {
                (Layout::Chain, Some(TrieSlot::List { at: next, .. })) => at = next,
                _ => return ControlFlow::Continue(()),
            }
        }
        ControlFlow::Break(())
    }

    /// Moves an object below the boundary and returns its position. Returns `None` if it is not in
    /// memory or there is no free object below.
    fn move_object(
        &self,
        slot: u64,
        (link, class, at): (fn(u32, u64) -> u64, u32, u64),
        boundary: u64,
    ) -> Option<u64> {
        if at < boundary {
            return Some(at);
        }
        let words = self.space.words(at, 1 << class)?;
        let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let object = lock(&self.objects).allocate_below(&self.space, class)?;
        self.fill(object, class, &words);
        self.space.set(slot, link(class, object.at));
        self.free(class, at);
        Some(object.at)
    }
}
