//! Writers: a locked group, and changes of its entries.
//!
//! A [`GroupGuard`] holds the lock of one group. Dropping it increments the version and so
//! unlocks.

use super::{
    shape::IndexShape,
    slot::{ADDRESS_END, ADDRESS_MASK, LOCK_BITS, LOCK_COUNT, is_link, node_of},
    slot_table::{GroupGuard, SlotTable},
    tag::{Tag, placing, placing_of},
};
use crate::util::sync::{AtomicU64, Ordering};

impl SlotTable {
    /// Returns after every writer that held a lock at the time of the call has released it.
    pub fn wait_for_writers(&self) {
        for number in 0..LOCK_COUNT {
            drop(self.lock(number << (6 - LOCK_BITS)));
        }
    }

    /// Returns a cursor of [`SlotTable::walk`] at which the walk visits keys of this hash, whatever
    /// the size of the table. A walk visits keys in the order of their reversed cursors.
    pub fn cursor_of(hash: u64) -> u64 {
        placing(hash)
    }

    /// Calls `each` with the addresses of the group at `cursor`, under the group's lock. Cursors
    /// start at 0. Returns the next cursor, or `None` after the last.
    ///
    /// A walk from 0 to the end visits every entry that is present throughout at least once,
    /// also if the table is resized meanwhile. Cursors count in reversed bits, so the groups
    /// that a group splits into are all visited or all still to come.
    pub fn walk(&self, cursor: u64, mut each: impl FnMut(u64)) -> Option<u64> {
        let low = cursor & (LOCK_COUNT - 1);
        let writer = self.lock(low << (6 - LOCK_BITS));
        let shape = IndexShape(self.shape.load(Ordering::Acquire));
        let mask = (1 << shape.bits()) - 1;
        for (array, pair) in shape.lines_of(cursor & mask) {
            writer.each(self.line_at(array, pair), |word| each(word & ADDRESS_MASK));
        }
        drop(writer);
        let next = ((cursor | !mask).reverse_bits()).wrapping_add(1).reverse_bits();
        (next != 0).then_some(next)
    }
}

/// The position of a word.
struct SlotRef<'a> {
    slots: &'a [AtomicU64],
    index: usize,
}

impl<'a> GroupGuard<'a> {
    /// Adds an entry for the hash. The key must have none. Returns `false` if there is no free
    /// node.
    #[must_use]
    pub fn insert(&mut self, address: u64) -> bool {
        debug_assert!(address != 0 && address < ADDRESS_END);
        let (slots, tag) = self.first();
        let added = self.table.add(slots, tag.slot(address));
        if added {
            self.table.keys.fetch_add(1, Ordering::Relaxed);
        }
        added
    }

    /// Replaces the address `old` by `new`. Returns `false` if `old` is not in the table.
    pub fn replace(&mut self, old: u64, new: u64) -> bool {
        let Some(found) = self.slot_of(old) else { return false };
        found.slots[found.index].store(self.first().1.slot(new), Ordering::Release);
        true
    }

    /// Removes the entry at `address`. Returns `false` if there is none.
    pub fn remove(&mut self, address: u64) -> bool {
        let Some(found) = self.slot_of(address) else { return false };
        self.fill_from_end(&found);
        self.table.keys.fetch_sub(1, Ordering::Relaxed);
        true
    }

    pub(super) fn first(&self) -> (&'a [AtomicU64], Tag) {
        self.table.line(IndexShape(self.table.shape.load(Ordering::Acquire)), self.hash)
    }

    fn slot_of(&self, address: u64) -> Option<SlotRef<'a>> {
        let (mut slots, tag) = self.first();
        loop {
            let mut next = None;
            for (index, slot) in slots.iter().enumerate() {
                let found = slot.load(Ordering::Relaxed);
                if found & ADDRESS_MASK == address && tag.matches(found) {
                    return Some(SlotRef { slots, index });
                }
                if is_link(found) {
                    next = Some(node_of(found));
                }
            }
            slots = self.table.node(next?);
        }
    }

    /// Moves the chain's last word to `hole`. Frees a node left with one word: the word replaces
    /// the link.
    fn fill_from_end(&self, hole: &SlotRef<'a>) {
        let (mut slots, _) = self.first();
        let mut parent: Option<(&AtomicU64, u64)> = None;
        while let Some(last) = slots.last().filter(|last| is_link(last.load(Ordering::Relaxed))) {
            let node = node_of(last.load(Ordering::Relaxed));
            parent = Some((last, node));
            slots = self.table.node(node);
        }
        let count = slots.iter().take_while(|slot| slot.load(Ordering::Relaxed) != 0).count();
        let Some(end) = count.checked_sub(1).and_then(|index| slots.get(index)) else { return };
        hole.slots[hole.index].store(end.load(Ordering::Relaxed), Ordering::Release);
        end.store(0, Ordering::Release);
        if let (Some((link, node)), 2) = (parent, count) {
            link.store(slots[0].load(Ordering::Relaxed), Ordering::Release);
            self.table.free_node(node);
        }
    }

    fn each(&self, mut slots: &'a [AtomicU64], mut visit: impl FnMut(u64)) {
        loop {
            let mut next = None;
            for slot in slots {
                match slot.load(Ordering::Relaxed) {
                    0 => {}
                    word if is_link(word) => next = Some(node_of(word)),
                    word => visit(word),
                }
            }
            match next {
                Some(node) => slots = self.table.node(node),
                None => return,
            }
        }
    }

    /// Removes all words from the lines of a group, whose position determines `known` placing bits.
    /// Returns each word with all of its placing bits.
    pub(super) fn drain_lines(
        &mut self,
        lines: impl Iterator<Item = (usize, u64)>,
        known: u32,
    ) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        for (array, pair) in lines {
            let line = self.table.line_at(array, pair);
            self.each(line, |word| entries.push((word, placing_of(word, pair, known))));
            let mut end = line.last().map_or(0, |last| last.load(Ordering::Relaxed));
            for slot in line {
                slot.store(0, Ordering::Release);
            }
            while is_link(end) {
                let node = node_of(end);
                end = self.table.node(node).last().map_or(0, |last| last.load(Ordering::Relaxed));
                self.table.free_node(node);
            }
        }
        entries
    }
}
