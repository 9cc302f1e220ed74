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
//! Below a [switched](super::switched) node the trie is gathered likewise. A switched node with few
//! records below it becomes a list, whose tags are of the paths again, if the keys of its records
//! are in memory.
//!
//! Thread rules: one thread gathers, beside readers and writers. It locks a subtree for one child
//! of its first node at a time, and for one child of a switched node at a time. It skips what is
//! not in memory.

use std::ops::ControlFlow;

use super::{
    key_path::{HashOf, KeyPath},
    layout::Layout,
    lazy_trie::{LazyTrie, ROOT_AT, ROOTS},
    list::CHAIN_MAX,
    word::{self, ROOT_BITS, TrieSlot, address_of, record},
};
use crate::{
    Result,
    util::{
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Removed records below which a walk over the trie is not worth its cost.
const REMOVED_MIN: u64 = 64;
/// The most nodes of a path.
const LEVELS_MAX: u32 = 5;
/// Part of the records that has to be removed before nodes are gathered.
const REMOVED_PART: u64 = 4;

/// A slot, and what a walk may do below it.
#[derive(Clone, Copy)]
struct Part {
    slot: u64,
    /// The bits of paths that lead to the slot, from the top. Below a switched node, those that
    /// lead to that node.
    path: u64,
    /// The number of these bits.
    position: u32,
    /// The number of nodes below the slot that the walk may enter.
    levels: u32,
}

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

    /// Gathers sparse nodes and shrinks the space. `path_of` returns the hash of the path of the
    /// record at an address. Returns whether regions became free, which the next checkpoint
    /// removes from the file. The caller has no subtree locked.
    pub(crate) fn gather(&self, path_of: &HashOf<'_>) -> Result<bool> {
        let _one = lock(&self.gathering);
        let removed = self.counts.removed.swap(0, Ordering::Relaxed);
        self.counts.removed_before.fetch_add(removed, Ordering::Relaxed);
        self.each_part(|part, switched| {
            self.gather_slot(part, switched, path_of).map(|_| ControlFlow::Continue(()))
        })?;
        let Some(boundary) = lock(&self.objects).begin_shrinking(&self.space) else {
            return Ok(false);
        };
        let moved = self.each_part(|part, switched| self.move_below(part, switched, boundary));
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
    /// then for the subtree's own slot with one level. `work` adds the paths of the switched nodes
    /// that it meets to a list, and does not enter them: each then is treated like a subtree. The
    /// subtree is locked meanwhile.
    fn each_part(
        &self,
        mut work: impl FnMut(Part, &mut Vec<u64>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut switched = Vec::new();
        for root in 0..ROOTS {
            let path = root << (64 - ROOT_BITS);
            let top = || {
                let slot = ROOT_AT + root;
                let node = match self.space.get(slot).map(TrieSlot::of) {
                    Some(TrieSlot::Node { at, .. }) => Some(at),
                    _ => None,
                };
                Some((Part { slot, path, position: ROOT_BITS, levels: 1 }, node))
            };
            if self.each_child(path, top, |part| work(part, &mut switched))?.is_break() {
                return Ok(());
            }
        }
        for path in switched {
            let top = || self.switched_at(path);
            if self.each_child(path, top, |part| work(part, &mut Vec::new()))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `work` for each slot of the node that `top` finds, and then for the slot that links to
    /// it. Locks the subtree of `path` for each call.
    fn each_child(
        &self,
        path: u64,
        top: impl Fn() -> Option<(Part, Option<u64>)>,
        mut work: impl FnMut(Part) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        for index in 0..1 << self.fan_bits {
            let _writer = self.lock(KeyPath::of_hash(path));
            let Some((part, Some(node))) = top() else { break };
            let child = Part { levels: LEVELS_MAX, ..self.child_part(part, node, index) };
            if work(child)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let _writer = self.lock(KeyPath::of_hash(path));
        top().map_or(Ok(ControlFlow::Continue(())), |(part, _)| work(part))
    }

    /// The part of the slot of a node below the slot of `part`.
    fn child_part(&self, part: Part, node: u64, index: u64) -> Part {
        let position = part.position + self.fan_bits;
        // Below a switched node the bits are of the keyed hash.
        let bits = if position > self.path_bits() { 0 } else { index << (64 - position) };
        let levels = part.levels.saturating_sub(1);
        Part { slot: node + index, path: part.path | bits, position, levels }
    }

    /// The slot of the switched node on a path, and the node. Returns `None` if there is none, or
    /// if some of the path is not in memory.
    fn switched_at(&self, path: u64) -> Option<(Part, Option<u64>)> {
        let (mut slot, mut position) = (ROOT_AT + (path >> (64 - ROOT_BITS)), ROOT_BITS);
        loop {
            match TrieSlot::of(self.space.get(slot)?) {
                TrieSlot::Node { at, .. } if self.splits_at(position) => {
                    slot = self.child(at, path, position);
                    position += self.fan_bits;
                }
                TrieSlot::Switched { at, .. } => {
                    return Some((Part { slot, path, position, levels: 1 }, Some(at)));
                }
                _ => return None,
            }
        }
    }

    /// Gathers the nodes below a slot. Returns the records below it if they fit in one list, which
    /// then holds them. Returns `None` if there are more, or if some are not in memory.
    fn gather_slot(
        &self,
        part: Part,
        switched: &mut Vec<u64>,
        path_of: &HashOf<'_>,
    ) -> Result<Option<Vec<u64>>> {
        let Some(word) = self.space.get(part.slot) else { return Ok(None) };
        match TrieSlot::of(word) {
            TrieSlot::Empty => Ok(Some(Vec::new())),
            TrieSlot::Record(word) => Ok(Some(vec![word])),
            TrieSlot::List { class, at } => {
                let mut words = Vec::new();
                let seen = self.visit_list(class, at, &mut |word| words.push(word));
                Ok(seen.ok().and_then(|()| self.few(words)))
            }
            TrieSlot::Node { .. } if part.levels == 0 => Ok(None),
            TrieSlot::Node { at: node, .. } => {
                let mut below = Some(Vec::new());
                for index in 0..1 << self.fan_bits {
                    let child = self.child_part(part, node, index);
                    if below.is_none() && !self.space.get(child.slot).is_some_and(is_node) {
                        // Too many already: only nodes below, which may be gathered on their own,
                        // are visited.
                        continue;
                    }
                    let more = self.gather_slot(child, switched, path_of)?;
                    below = below.zip(more).and_then(|(mut all, more)| {
                        all.extend(more);
                        self.few(all)
                    });
                    if below.is_none() && part.levels == 1 {
                        break;
                    }
                }
                let Some(words) = below else { return Ok(None) };
                self.replace_node(part.slot, node, &words)?;
                Ok(Some(words))
            }
            TrieSlot::Switched { at: node, .. } => {
                let Some(words) = self.words_of_paths(node, path_of) else {
                    switched.push(part.path);
                    return Ok(None);
                };
                self.replace_node(part.slot, node, &words)?;
                self.counts.switched.fetch_sub(1, Ordering::Relaxed);
                Ok(Some(words))
            }
        }
    }

    /// Returns the records if they fit in one list.
    fn few(&self, words: Vec<u64>) -> Option<Vec<u64>> {
        (words.len() <= self.sluggishness).then_some(words)
    }

    /// The records below a switched node, with the tags of their paths. Returns `None` if they do
    /// not fit in one list, or if some are not in memory.
    fn words_of_paths(&self, node: u64, path_of: &HashOf<'_>) -> Option<Vec<u64>> {
        let mut words = Vec::new();
        for child in node..node + (1 << self.fan_bits) {
            match TrieSlot::of(self.space.get(child)?) {
                TrieSlot::Empty => {}
                TrieSlot::Record(word) => words.push(word),
                TrieSlot::List { class, at } => {
                    self.visit_list(class, at, &mut |word| words.push(word)).ok()?;
                }
                TrieSlot::Node { .. } | TrieSlot::Switched { .. } => return None,
            }
            if words.len() > self.sluggishness {
                return None;
            }
        }
        let with_tag = |word: u64| {
            mutant!(TrieGatherKeepsTags => return Some(word));
            let address = address_of(word);
            Some(record(path_of(address)?, address))
        };
        words.into_iter().map(with_tag).collect()
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
        self.counts.merges_total.fetch_add(1, Ordering::Relaxed);
        self.free(self.fan_bits, node);
        Ok(())
    }

    /// Moves nodes and lists below a slot that are above the boundary to free objects below it, as
    /// long as there are any.
    fn move_below(
        &self,
        part: Part,
        switched: &mut Vec<u64>,
        boundary: u64,
    ) -> Result<ControlFlow<()>> {
        let slot = part.slot;
        let Some(word) = self.space.get(slot) else { return Ok(ControlFlow::Break(())) };
        match TrieSlot::of(word) {
            TrieSlot::Empty | TrieSlot::Record(_) => Ok(ControlFlow::Continue(())),
            TrieSlot::List { class, at } => Ok(self.move_list(slot, class, at, boundary)),
            TrieSlot::Switched { class, at } => {
                switched.push(part.path);
                let moved = self.move_object(slot, (word::switched, class, at), boundary);
                Ok(moved.map_or(ControlFlow::Break(()), |_| ControlFlow::Continue(())))
            }
            TrieSlot::Node { class, at } => {
                let Some(at) = self.move_object(slot, (word::node, class, at), boundary) else {
                    return Ok(ControlFlow::Break(()));
                };
                for index in (0..1 << class).take_while(|_| part.levels > 1) {
                    let child = self.child_part(part, at, index);
                    if self.move_below(child, switched, boundary)?.is_break() {
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

/// Returns whether a word links to a node.
fn is_node(word: u64) -> bool {
    matches!(TrieSlot::of(word), TrieSlot::Node { .. } | TrieSlot::Switched { .. })
}
