//! Shrinking: growth backwards, one group at a time. Memory goes back to the system.
//!
//! The group that grew last loses its last line. Its entries are removed and added again under the
//! previous shape. Unused pages of lines and nodes are discarded. The bound of 12 bytes a key
//! therefore holds after mass deletes as well, without a pause.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    shape::IndexShape,
    slot::{LINE_SLOTS, LOCK_BITS, NODE_SLOTS},
    slot_table::SlotTable,
    tag::moved,
};
use crate::util::{
    codec::{to_u64, to_usize},
    mutant::mutant,
    sync::{MutexGuard, Ordering, lock},
};

/// Size above which the table shrinks, in hundredths of a byte a key. It is above the bound of
/// growth, so that alternate inserts and removals do not resize the table in turn.
const CENTIBYTES_PER_KEY_MAX: u64 = 1200;
/// Bytes of lines that are discarded together if they are in huge pages.
const DISCARD_HUGE_BYTES: u64 = 2 << 20;
/// Bytes of lines that are discarded together if they are not.
const DISCARD_BYTES: u64 = 64 << 10;
/// Number of free nodes without which the table does not shrink: more than one group may need.
const NODES_SPARE: u64 = 1 << 10;

impl SlotTable {
    /// Shrinks the table by at most `steps` groups, if it is too large for its keys. Call it after
    /// a removal, without a group locked. Two steps a removal keep up.
    pub fn shrink(&self, steps: u32) {
        if !self.wants_shrinking() {
            return;
        }
        // Another thread is resizing the table: it does the work.
        let Ok(huge) = self.growth.try_lock() else { return };
        for _ in 0..steps {
            let shape = IndexShape(self.shape.load(Ordering::Relaxed));
            let Some(before) = shape.shrunk(LOCK_BITS) else { break };
            // Fewer lines take more nodes. Without a free node, an entry would be lost.
            let nodes_left = self.nodes_max - self.nodes_used.load(Ordering::Relaxed);
            if !self.wants_shrinking() || nodes_left < NODES_SPARE.min(self.nodes_max / 2) {
                break;
            }
            let (group, pair) = before.next_growth();
            let mut writer = self.lock(group << (6 - LOCK_BITS));
            let known = before.known_once_grown(group);
            let mut entries = writer.drain_lines(before.lines_once_grown(group), known);
            mutant!(SlotsShrinkLosesNodes => entries.truncate(to_usize(LINE_SLOTS) * 3));
            self.shape.store(before.0, Ordering::Release);
            for (word, placing) in entries {
                let (array, pair, still_known) = before.line(placing);
                let word = moved(word, placing, known, still_known);
                self.add(self.line_at(array, pair), word);
            }
            drop(writer);
            self.discard_lines(&huge, before, pair);
        }
    }

    fn wants_shrinking(&self) -> bool {
        self.bytes() * 100 > self.len() * CENTIBYTES_PER_KEY_MAX
    }

    /// Discards the pages of lines from `pair` on, if a page starts there. `huge`: the lines are in
    /// huge pages.
    fn discard_lines(&self, huge: &MutexGuard<'_, bool>, shape: IndexShape, pair: u64) {
        let start = pair * LINE_SLOTS * 8;
        // The first huge page is discarded in parts: a table that was large may become small.
        let in_whole = **huge && start >= DISCARD_HUGE_BYTES;
        let step = if in_whole { DISCARD_HUGE_BYTES } else { DISCARD_BYTES };
        if !start.is_multiple_of(step) {
            return;
        }
        // Lines are dropped from the highest pair down, those of the second array first.
        let array = shape.array_that_grows();
        if let Some(lines) = self.lines.get(array) {
            lines.discard(start..start + step);
        }
        self.discard_nodes();
    }

    /// Discards the highest free nodes if more than half of all nodes are free.
    fn discard_nodes(&self) {
        let mut nodes = lock(&self.free_nodes);
        let end = nodes.next;
        if to_u64(nodes.free.len()) * 2 <= end {
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
        // Under the lock: no thread can allocate one of these nodes.
        self.nodes.discard(first * NODE_SLOTS * 8..end * NODE_SLOTS * 8);
    }
}
