//! Lazy ordering: sorts the nodes inserted since the last scan and links them into the skip list.
//!
//! Sorted nodes are linked one after the other, each with a finger search that begins at the
//! previous one. When many are linked at once, as before a flush, almost no node is read twice.
//!
//! Of the versions of a key that are sorted at once, only the newest is linked: no reader asks for
//! the others. Popular keys have thousands of versions in a memtable.
//!
//! Invariants:
//! - The thread holds `ordering`. Only it stores links of ordered nodes.
//! - Readers see a node at level 0 before they see it at higher levels.
//! - Puts are reported to [`crate::lsm::empty_ranges`] before `ordered` covers them.

use std::cmp;

use super::{Arena, HEAD, HEIGHT_MAX, Node, SkipList, words_of};
use crate::util::{
    codec::{low_u32, to_u64, to_usize},
    mutant::mutant,
    sync::{Ordering, lock},
    words::load_at,
};

/// The last node of each level before the position of the node that was linked last.
type Finger = [u64; HEIGHT_MAX];

impl<A: Arena> SkipList<A> {
    /// Links the nodes that were inserted and are not ordered yet.
    #[inline]
    pub(crate) fn order_nodes(&self) {
        let newest = self.newest.load(Ordering::Acquire);
        if self.ordered.load(Ordering::Acquire) != newest {
            self.link_unordered();
        }
    }

    #[cold]
    fn link_unordered(&self) {
        let _alone = lock(&self.ordering);
        let newest = self.newest.load(Ordering::Acquire);
        let ordered = self.ordered.load(Ordering::Relaxed);
        let mut nodes = Vec::new();
        let mut node = newest;
        while node != ordered && node != 0 {
            nodes.push((0, low_u32(node)));
            node = self.link(node, 0);
        }
        self.sort(&mut nodes);
        self.report_puts(&nodes);
        let mut finger: Option<Finger> = None;
        for versions in nodes.chunk_by(|one, next| self.is_same_key(*one, *next)) {
            let linked = mutant!(OrderLinksOldest: versions.last(), else versions.first());
            if let Some((_, node)) = linked {
                self.link_after(&mut finger, u64::from(*node));
            }
        }
        self.ordered_count.fetch_add(to_u64(nodes.len()), Ordering::Relaxed);
        self.ordered.store(newest, Ordering::Release);
    }

    /// Returns whether two sorted nodes have the same key.
    fn is_same_key(&self, (part, one): (u64, u32), (other_part, other): (u64, u32)) -> bool {
        let (one, other) = (u64::from(one), u64::from(other));
        let bytes = self.key_bytes(one);
        let (first, second) = (to_u64(self.key_at(one)), to_u64(self.key_at(other)));
        part == other_part
            && bytes == self.key_bytes(other)
            && (0..to_u64(words_of(bytes)))
                .all(|index| self.word(first + index) == self.word(second + index))
    }

    /// Reports the puts among nodes that are about to be ordered.
    fn report_puts(&self, nodes: &[(u64, u32)]) {
        let Some((ranges, kind)) = &self.reports_to else { return };
        let Some(mut report) = ranges.puts() else { return };
        let mut key = Vec::new();
        for (_, node) in nodes {
            let node = Node(u64::from(*node));
            if self.kind(node) == *kind {
                self.copy_key(node, &mut key);
                report.add(&key);
            }
        }
    }

    /// Sorts nodes by [`Self::compare_nodes`]. The number beside each is scratch space.
    fn sort(&self, nodes: &mut [(u64, u32)]) {
        let Some((_, first)) = nodes.first().copied() else { return };
        // Keys often share a prefix: the 8 bytes after it tell most of them apart.
        let shared = nodes.iter().fold(usize::MAX, |shared, (_, node)| {
            shared.min(self.shared_bytes((u64::from(first), u64::from(*node)), shared))
        });
        for (part, node) in nodes.iter_mut() {
            let node = u64::from(*node);
            let rest = self.key_bytes(node).saturating_sub(shared).min(8);
            let words = self.arena.words().get(self.key_at(node)..).unwrap_or(&[]);
            let word = load_at(words, shared).swap_bytes();
            *part = word.checked_shr(64 - low_u32(to_u64(rest)) * 8).unwrap_or(0);
            *part = part.checked_shl(64 - low_u32(to_u64(rest)) * 8).unwrap_or(0);
        }
        nodes.sort_unstable_by(|(one, node), (other, next)| {
            one.cmp(other).then_with(|| self.compare_nodes(u64::from(*node), u64::from(*next)))
        });
    }

    /// Returns how many bytes the keys of two nodes share at their beginning, up to `most`.
    fn shared_bytes(&self, (one, other): (u64, u64), most: usize) -> usize {
        let least = self.key_bytes(one).min(self.key_bytes(other)).min(most);
        let (first, second) = (to_u64(self.key_at(one)), to_u64(self.key_at(other)));
        for index in 0..to_u64(words_of(least)) {
            let differs = self.word(first + index) ^ self.word(second + index);
            if differs != 0 {
                let bytes = index * 8 + u64::from(differs.trailing_zeros() / 8);
                return to_usize(bytes).min(least);
            }
        }
        least
    }

    /// Orders two nodes: by key, then the newer first, then the one inserted later.
    fn compare_nodes(&self, one: u64, other: u64) -> cmp::Ordering {
        let lengths = (self.key_bytes(one), self.key_bytes(other));
        let (first, second) = (to_u64(self.key_at(one)), to_u64(self.key_at(other)));
        for index in 0..to_u64(words_of(lengths.0.min(lengths.1))) {
            // Both sides are padded with zeros. Where only the padding differs, the lengths decide.
            let ours = self.word(first + index).swap_bytes();
            let order = ours.cmp(&self.word(second + index).swap_bytes());
            if order.is_ne() {
                return order;
            }
        }
        let versions = self.word(other + 1).cmp(&self.word(one + 1));
        lengths.0.cmp(&lengths.1).then(versions).then(other.cmp(&one))
    }

    /// Returns whether a linked node is before another.
    fn precedes(&self, linked: u64, node: u64) -> bool {
        linked != 0 && self.compare_nodes(linked, node).is_lt()
    }

    /// Links a node that is after the node linked last with this finger.
    fn link_after(&self, finger: &mut Option<Finger>, node: u64) {
        let top = match finger {
            None => HEIGHT_MAX,
            // A finger search needs only the levels where a linked node is between the finger and
            // the new node.
            Some(finger) => {
                let lies_between = |level: &usize| {
                    let before = finger.get(*level).copied().unwrap_or(HEAD);
                    self.precedes(self.link(before, *level), node)
                };
                (0..HEIGHT_MAX).take_while(lies_between).count()
            }
        };
        let finger = finger.get_or_insert([HEAD; HEIGHT_MAX]);
        let mut moved = None;
        for (level, before) in finger.iter_mut().enumerate().take(top).rev() {
            *before = moved.unwrap_or(*before);
            loop {
                let next = self.link(*before, level);
                if !self.precedes(next, node) {
                    break;
                }
                *before = next;
                moved = Some(next);
            }
        }
        let height = to_usize(self.word(node) >> 20 & 0xf);
        for (level, before) in finger.iter().enumerate().take(height) {
            if let Some(link) = self.link_word(node, level) {
                link.store(self.link(*before, level), Ordering::Relaxed);
            }
        }
        for (level, before) in finger.iter_mut().enumerate().take(height) {
            if let Some(link) = self.link_word(*before, level) {
                link.store(node, Ordering::Release);
            }
            *before = node;
        }
    }
}
