//! Shrinking: growth backwards, one group at a time, and memory given back.
//!
//! The group that grew last loses its last line: its entries are taken out and put back by the
//! shape before. Pages of lines and nodes that are no longer in use go back to the system. So the
//! bound of 12 bytes a key holds after mass deletes as well, without a pause.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{LINE_SLOTS, LOCK_BITS, NODE_SLOTS, Shape, SlotTable, tag::moved};
use crate::util::{
    mutant::{self, Bug},
    sync::{MutexGuard, Ordering, lock},
};

/// More than this, in hundredths of a byte for each key, is given back: above what growth stops
/// at, so that keys that come and go do not make the table grow and shrink in turn.
const CENTIBYTES_PER_KEY_MAX: u64 = 1200;
/// Lines that are given back at once: whole huge pages, or ordinary pages of a smaller table.
const DISCARD_HUGE_BYTES: u64 = 2 << 20;
const DISCARD_BYTES: u64 = 64 << 10;
/// Nodes that a group may need at once, with room to spare.
const NODES_SPARE: u64 = 1 << 10;

impl SlotTable {
    /// Shrinks the table as far as its keys allow, by at most `steps` groups. Call it without a
    /// lock held after removals; two steps for each keep up.
    pub fn shrink(&self, steps: u32) {
        if !self.wants_shrinking() {
            return;
        }
        // Whoever resizes the table now does it for us as well.
        let Ok(huge) = self.growth.try_lock() else { return };
        for _ in 0..steps {
            let shape = Shape(self.shape.load(Ordering::Relaxed));
            let Some(before) = shape.shrunk(LOCK_BITS) else { break };
            // Fewer lines take more nodes: without any an entry would have no place.
            let nodes_left = self.nodes_max - self.nodes_used.load(Ordering::Relaxed);
            if !self.wants_shrinking() || nodes_left < NODES_SPARE.min(self.nodes_max / 2) {
                break;
            }
            let (group, pair) = before.next_growth();
            let mut writer = self.lock(group << (6 - LOCK_BITS));
            let known = before.known_once_grown(group);
            let mut entries = writer.drain_lines(before.lines_once_grown(group), known);
            if mutant::active(Bug::SlotsShrinkLosesNodes) {
                entries.truncate(super::to_usize(LINE_SLOTS) * 3);
            }
            self.shape.store(before.0, Ordering::Release);
            for (word, placing) in entries {
                let (array, pair, still_known) = before.line(placing);
                let word = moved(word, placing, known, still_known);
                self.add(self.line_at(array, pair), word);
            }
            drop(writer);
            self.give_back(&huge, before, pair);
        }
    }

    fn wants_shrinking(&self) -> bool {
        self.bytes() * 100 > self.len() * CENTIBYTES_PER_KEY_MAX
    }

    /// Gives back the pages of lines from `pair` on, where that is where some begin; `huge` is
    /// whether the lines are in huge pages.
    fn give_back(&self, huge: &MutexGuard<'_, bool>, shape: Shape, pair: u64) {
        let start = pair * LINE_SLOTS * 8;
        // The first huge page goes in parts: a table that once was large may end small.
        let in_whole = **huge && start >= DISCARD_HUGE_BYTES;
        let step = if in_whole { DISCARD_HUGE_BYTES } else { DISCARD_BYTES };
        if !start.is_multiple_of(step) {
            return;
        }
        // Lines go from the highest pair down, first those of the second array.
        let array = shape.array_that_grows();
        if let Some(lines) = self.lines.get(array) {
            lines.discard(start..start + step);
        }
        self.give_back_nodes();
    }

    fn give_back_nodes(&self) {
        let mut nodes = lock(&self.free_nodes);
        let end = nodes.next;
        if super::to_u64(nodes.free.len()) * 2 <= end {
            return;
        }
        let mut free: Vec<Reverse<u64>> = std::mem::take(&mut nodes.free).into_vec();
        free.sort_unstable_by_key(|Reverse(node)| *node);
        while free.last().is_some_and(|Reverse(node)| node + 1 == nodes.next) {
            free.pop();
            nodes.next -= 1;
        }
        let first = nodes.next;
        nodes.free = BinaryHeap::from(free);
        // Under the lock: none of these is anybody's.
        self.nodes.discard(first * NODE_SLOTS * 8..end * NODE_SLOTS * 8);
    }
}
