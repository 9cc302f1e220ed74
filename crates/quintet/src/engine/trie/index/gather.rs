//! Left-over nodes gathered, and the space that they leave given back.
//!
//! Deletes take away a node that is left with one child at most, so a trie that has shrunk keeps
//! nodes of a few records each: the paper leaves them, to be used by later inserts. Here, after so
//! many deletes that it is worth it, a node with no more records below it than a list may have
//! becomes that list, which leaves the nodes that a trie of what is left would have if it were
//! built anew. Then what is in use at the end of the space moves to free objects before it, and
//! whole regions leave memory and, after the next cut, the file.
//!
//! Thread rules: one thread gathers, beside readers and writers: it locks a subtree for one child
//! of its first node at a time. What is not in memory is left alone.

use std::ops::ControlFlow;

use super::{
    ROOT_AT, ROOTS, Trie,
    list::{CHAIN_MAX, Layout},
    word::{self, ROOT_BITS, Slot},
};
use crate::{
    Result,
    util::sync::{Ordering, lock},
};

/// Fewer records removed are not worth a walk over the trie.
const REMOVED_MIN: u64 = 64;
/// No path has more nodes.
const LEVELS_MAX: u32 = 5;
/// Of the records, what has to be removed before nodes are gathered.
const REMOVED_PART: u64 = 4;

impl Trie {
    /// Whether so much was removed since nodes were gathered that it is worth it.
    pub(crate) fn wants_gathering(&self) -> bool {
        let removed = self.counts.removed.load(Ordering::Relaxed);
        removed >= REMOVED_MIN && removed >= self.len() / REMOVED_PART
    }

    /// Nodes that are free to be used, and bytes of all free objects.
    pub(crate) fn free_nodes(&self) -> (u64, u64) {
        let objects = lock(&self.objects);
        let mut counts = objects.free_counts();
        let nodes = counts.find(|(class, _)| *class == self.fan_bits).map_or(0, |(_, count)| count);
        (nodes, objects.free_words() * 8)
    }

    /// Gathers left-over nodes and gives space back; whether regions are free now, which the next
    /// cut takes out of the file. The caller has no subtree locked.
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
            self.space.leave_all(objects.tail(), end);
        }
        drop(objects);
        drop(writers);
        moved.map(|()| end.is_some())
    }

    /// Does `work` for each slot of each node that a subtree begins with, all below it, and then
    /// for the subtree's own slot alone: `levels` is how many nodes below the slot it may look
    /// into. The subtree is locked meanwhile.
    fn each_part(&self, mut work: impl FnMut(u64, u32) -> Result<ControlFlow<()>>) -> Result<()> {
        for root in 0..ROOTS {
            let (hash, slot) = (root << (64 - ROOT_BITS), ROOT_AT + root);
            for child in 0..1 << self.fan_bits {
                let _writer = self.lock(hash);
                let Some(Slot::Node { at, .. }) = self.space.get(slot).map(Slot::of) else { break };
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

    /// The records below a slot where they are few enough for a list, which they are in after this;
    /// `None` where they are more, or not in memory.
    fn gather_slot(&self, slot: u64, levels: u32) -> Result<Option<Vec<u64>>> {
        let Some(word) = self.space.get(slot) else { return Ok(None) };
        let few = |words: Vec<u64>| (words.len() <= self.sluggishness).then_some(words);
        match Slot::of(word) {
            Slot::Empty => Ok(Some(Vec::new())),
            Slot::Record(word) => Ok(Some(vec![word])),
            Slot::List { class, at } => {
                let mut words = Vec::new();
                let seen = self.visit_list(class, at, &mut |word| words.push(word));
                Ok(seen.ok().and_then(|()| few(words)))
            }
            Slot::Node { .. } if levels == 0 => Ok(None),
            Slot::Node { at: node, .. } => {
                let mut below = Some(Vec::new());
                for child in node..node + (1 << self.fan_bits) {
                    let is_node = |word| matches!(Slot::of(word), Slot::Node { .. });
                    if below.is_none() && !self.space.get(child).is_some_and(is_node) {
                        // Too many already: only what is gathered for itself is looked at.
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

    /// Puts the records below a node, which are in its slots and in lists, in its place.
    fn replace_node(&self, slot: u64, node: u64, words: &[u64]) -> Result<()> {
        let word = match words {
            [] => 0,
            [word] => *word,
            _ => self.build_list(words)?,
        };
        self.space.set(slot, word);
        for child in node..node + (1 << self.fan_bits) {
            if let Some(Slot::List { class, at }) = self.space.get(child).map(Slot::of) {
                self.give_list(class, at)?;
            }
        }
        self.counts.nodes.fetch_sub(1, Ordering::Relaxed);
        self.give(self.fan_bits, node);
        Ok(())
    }

    /// Moves nodes and lists below a slot that are above the boundary to free objects below it, as
    /// long as there are any.
    fn move_below(&self, slot: u64, levels: u32, boundary: u64) -> Result<ControlFlow<()>> {
        let Some(word) = self.space.get(slot) else { return Ok(ControlFlow::Break(())) };
        match Slot::of(word) {
            Slot::Empty | Slot::Record(_) => Ok(ControlFlow::Continue(())),
            Slot::List { class, at } => Ok(self.move_list(slot, class, at, boundary)),
            Slot::Node { class, at } => {
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
            match (self.layout, self.space.get(slot).map(Slot::of)) {
                (Layout::Chain, Some(Slot::List { at: next, .. })) => at = next,
                _ => return ControlFlow::Continue(()),
            }
        }
        ControlFlow::Break(())
    }

    /// Where an object is that had to be below the boundary; `None` where that cannot be.
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
        let fresh = lock(&self.objects).take_below(&self.space, class)?;
        self.fill(fresh, class, &words);
        self.space.set(slot, link(class, fresh.at));
        self.give(class, at);
        Some(fresh.at)
    }
}
