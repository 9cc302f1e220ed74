//! Changes of the tree: puts, deletes, shifts (FAST) and splits (FAIR).
//!
//! **FAST**, insertion by shifts: an entry is valid if its pointer differs from its left
//! neighbour's. Entries move right one by one, pointer before prefix. Each becomes a duplicate of
//! its left neighbour. Then the insertion slot becomes a duplicate too, gets its prefix, and last
//! its pointer, which makes the entry valid. A deletion makes an entry a duplicate and moves the
//! later ones left, prefix before pointer. When a shift moves on from a cache line, that line is
//! persistent before the next one changes.
//!
//! **FAIR**, splits without a log: the right half is written and made persistent. Then it is linked
//! as the left node's sibling, truncated from the left node, and entered into the parent. Each
//! node has the lowest key of its range, so a descent that reaches a node too far left continues at
//! the sibling.

use super::{
    CAPACITY, ENTRIES, ENTRY_BYTES, FairTree, Goal, LEFT, LIMBO, LOW, NODE_BYTES, NODE_MARK,
    NOWHERE, ROOT, Result, SIBLING, pointer_at, prefix_at, record::VALUE, slot_at,
};
use crate::{
    Error,
    pmem::{link, target},
    util::{
        codec::{low_u8, shared_len, to_u64},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// A slot of a node.
#[derive(Clone, Copy, Debug)]
struct NodeSlot {
    slot: u64,
    /// Number of entries of the node.
    count: u64,
    /// Whether the entry in the slot has the key.
    is_there: bool,
}

/// An entry to insert into a node.
#[derive(Clone, Copy, Debug)]
struct FairEntry {
    prefix: u64,
    pointer: u64,
    /// Whether its target was flushed and no fence has followed yet.
    is_fresh: bool,
}

/// The contents of a new node.
struct NodeDraft {
    level: u8,
    skip: usize,
    /// Link to the first child, or [`NOWHERE`].
    left: u64,
    /// Links to the next node of the level and to the record of the lowest key.
    sibling: u64,
    low: u64,
    entries: Vec<(u64, u64)>,
}

/// Returns the shortest prefix of `upper` that separates it from `lower`.
fn separator<'k>(lower: &[u8], upper: &'k [u8]) -> &'k [u8] {
    upper.get(..=shared_len(lower, upper)).unwrap_or(upper)
}

const fn is_line_start(slot: u64) -> bool {
    slot.is_multiple_of(64 / ENTRY_BYTES)
}

impl FairTree {
    /// Sets the word of a key persistently. Returns the old word.
    ///
    /// Fails with [`Error::DiskFull`] if the pool is full; nothing has changed then.
    pub(crate) fn put(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        let _writer = lock(&self.writer);
        let leaf = self.find_leaf(Goal::At(key))?;
        let place = self.place_of(leaf, key)?;
        if place.is_there {
            let record = target(self.pool.load(pointer_at(leaf, place.slot)));
            let before = self.pool.load(record + VALUE);
            self.pool.replace(record + VALUE, value);
            return Ok(Some(before));
        }
        let record = self.write_record(key, value)?;
        if let Err(error) = self.add(leaf, place, key, link(record), true) {
            self.pool.free(record)?;
            return Err(error);
        }
        self.keys.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }

    /// Removes a key persistently. Returns its word.
    pub(crate) fn delete(&self, key: &[u8]) -> Result<Option<u64>> {
        let mut limbo = lock(&self.writer);
        let leaf = self.find_leaf(Goal::At(key))?;
        let place = self.place_of(leaf, key)?;
        if !place.is_there {
            return Ok(None);
        }
        let record = target(self.pool.load(pointer_at(leaf, place.slot)));
        let before = self.pool.load(record + VALUE);
        self.shift_left(leaf, place.slot, place.count);
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.retire(&mut limbo, record)?;
        if place.count == 1 {
            self.unlink(leaf, &mut limbo)?;
        }
        Ok(Some(before))
    }

    /// Returns the slot of a key, or the slot to insert it at: the first entry that is not below
    /// the key.
    fn place_of(&self, node: u64, key: &[u8]) -> Result<NodeSlot> {
        let head = self.head(node)?;
        let (prefix, count) = (prefix_at(key, head.skip), self.end_of(node));
        for slot in 0..count {
            let theirs = self.pool.load(slot_at(node, slot));
            let order = if theirs == prefix {
                let pointer = target(self.pool.load(pointer_at(node, slot)));
                if head.level == 0 {
                    self.compare_key(pointer, key)?
                } else {
                    self.compare_low(pointer, Goal::At(key))?
                }
            } else {
                theirs.cmp(&prefix)
            };
            if order.is_ge() {
                return Ok(NodeSlot { slot, count, is_there: order.is_eq() });
            }
        }
        Ok(NodeSlot { slot: count, count, is_there: false })
    }

    /// Returns the slot of a key in a leaf, or where it would be, and the number of entries.
    pub(super) fn rank_in(&self, leaf: u64, key: &[u8]) -> Result<(u64, u64)> {
        self.place_of(leaf, key).map(|place| (place.slot, place.count))
    }

    /// Adds an entry to a node, or to the right half after a split. A failure changes nothing.
    fn add(
        &self,
        node: u64,
        place: NodeSlot,
        key: &[u8],
        pointer: u64,
        is_fresh: bool,
    ) -> Result<()> {
        let (mut node, mut place, mut is_fresh) = (node, place, is_fresh);
        if place.count >= CAPACITY {
            let right = self.split(node, place)?;
            // The split has fenced already.
            is_fresh = false;
            if self.compare_low(right, Goal::At(key))?.is_le() {
                node = right;
            }
            place = self.place_of(node, key)?;
        }
        let prefix = prefix_at(key, self.head(node)?.skip);
        self.shift_right(node, place, FairEntry { prefix, pointer, is_fresh });
        Ok(())
    }

    /// Returns the pointer left of an entry.
    fn left_of(&self, node: u64, slot: u64) -> u64 {
        let before = slot.checked_sub(1);
        self.pool.load(before.map_or(node + LEFT, |slot| pointer_at(node, slot)))
    }

    /// FAST insertion: shifts entries right in a node with a free slot, and stores the new entry.
    fn shift_right(&self, node: u64, place: NodeSlot, new: FairEntry) {
        let pool = &*self.pool;
        let (slot, count) = (place.slot, place.count);
        let mut is_fresh = new.is_fresh;
        // Move the end marker first.
        pool.store(pointer_at(node, count + 1), 0);
        if is_line_start(count + 1) {
            pool.flush(slot_at(node, count + 1), ENTRY_BYTES);
            pool.fence();
            is_fresh = false;
        }
        for from in (slot..count).rev() {
            pool.store(pointer_at(node, from + 1), pool.load(pointer_at(node, from)));
            pool.store(slot_at(node, from + 1), pool.load(slot_at(node, from)));
            if mutant!(FairSkipsShift: false, else is_line_start(from + 1)) {
                pool.flush(slot_at(node, from + 1), ENTRY_BYTES);
                pool.fence();
                is_fresh = false;
            }
        }
        if mutant!(FairKeepsPointer: false, else slot < count) {
            pool.store(pointer_at(node, slot), self.left_of(node, slot));
        }
        pool.store(slot_at(node, slot), new.prefix);
        if is_fresh {
            pool.fence();
        }
        pool.replace(pointer_at(node, slot), new.pointer);
    }

    /// FAST deletion: removes an entry, perhaps a duplicate, from a node of `count` entries.
    pub(super) fn shift_left(&self, node: u64, slot: u64, count: u64) {
        let pool = &*self.pool;
        self.turn(node).fetch_add(1, Ordering::AcqRel);
        if slot + 1 < count {
            pool.store(pointer_at(node, slot), self.left_of(node, slot));
        }
        for to in slot..count.saturating_sub(1) {
            pool.store(slot_at(node, to), pool.load(slot_at(node, to + 1)));
            pool.store(pointer_at(node, to), pool.load(pointer_at(node, to + 1)));
            if mutant!(FairSkipsShiftBack: false, else is_line_start(to + 1)) {
                pool.flush(slot_at(node, to), ENTRY_BYTES);
                pool.fence();
            }
        }
        pool.replace(pointer_at(node, count - 1), 0);
        self.turn(node).fetch_add(1, Ordering::AcqRel);
    }

    /// Writes a node that nothing links to yet, and flushes it. The caller must fence.
    fn write_node(&self, draft: &NodeDraft) -> Result<u64> {
        let (node, pool) = (self.pool.alloc(NODE_BYTES)?, &*self.pool);
        let count = to_u64(draft.entries.len());
        let head = NODE_MARK | u64::from(draft.level) << 16 | to_u64(draft.skip) << 32;
        pool.store(node, head);
        pool.store(node + LEFT, draft.left);
        pool.store(node + SIBLING, draft.sibling);
        pool.store(node + LOW, draft.low);
        for (slot, (prefix, pointer)) in (0..).zip(&draft.entries) {
            pool.store(slot_at(node, slot), *prefix);
            pool.store(pointer_at(node, slot), *pointer);
        }
        pool.store(pointer_at(node, count), 0);
        mutant!(FairSkipsNode => return Ok(node));
        // Two ranges: the bytes between the header fields and the entries are unused.
        pool.flush(node, LOW + 8);
        pool.flush(node + ENTRIES, (count + 1) * ENTRY_BYTES);
        Ok(node)
    }

    /// Writes a new root of a level with this first child; a leaf has none.
    pub(super) fn write_root(&self, level: u8, left: u64, entries: Vec<(u64, u64)>) -> Result<u64> {
        let left = if level == 0 { NOWHERE } else { link(left) };
        self.write_node(&NodeDraft { level, skip: 0, left, sibling: 0, low: 0, entries })
    }

    /// FAIR split: moves the right half of a node to a new node, which is returned. If the new
    /// entry is the last of the whole tree, only one entry moves: ascending inserts leave full
    /// nodes.
    fn split(&self, node: u64, place: NodeSlot) -> Result<u64> {
        let (pool, head) = (&*self.pool, self.head(node)?);
        let sibling = self.follow(node + SIBLING)?;
        let entry = |slot| (pool.load(slot_at(node, slot)), pool.load(pointer_at(node, slot)));
        let entries: Vec<(u64, u64)> = (0..place.count).map(entry).collect();
        let is_last = sibling == 0 && place.slot == place.count;
        let middle = if is_last { entries.len() - 1 } else { entries.len() / 2 };
        let (kept, moved) = entries.split_at(middle);
        let key = |&(_, pointer): &(u64, u64)| self.entry_key(head.level, target(pointer));
        let keys: Vec<Vec<u8>> = moved.iter().map(key).collect::<Result<_>>()?;
        let first = keys.first().map_or(&[][..], |key| key);
        let (low_key, moved_first, left) = if head.level == 0 {
            let before = kept.last().map(key).transpose()?.unwrap_or_default();
            (separator(&before, first), 0, NOWHERE)
        } else {
            (first, 1, moved.first().map_or(NOWHERE, |(_, pointer)| *pointer))
        };
        let skip = match sibling {
            0 => 0,
            sibling => shared_len(low_key, &self.low_key(sibling)?),
        };
        let prefixed = moved.iter().zip(&keys).skip(moved_first);
        let entries = prefixed.map(|((_, pointer), key)| (prefix_at(key, skip), *pointer));
        let entries: Vec<(u64, u64)> = entries.collect();
        let low = self.write_record(low_key, 0)?;
        let (level, links) = (head.level, (link(sibling), link(low)));
        let draft = NodeDraft { level, skip, left, sibling: links.0, low: links.1, entries };
        let right = match self.write_node(&draft) {
            Ok(right) => right,
            Err(error) => {
                pool.free(low)?;
                return Err(error);
            }
        };
        mutant!(FairCutsFirst => pool.replace(pointer_at(node, to_u64(middle)), 0));
        pool.publish(node + SIBLING, link(right));
        pool.replace(pointer_at(node, to_u64(middle)), 0);
        match self.add_child(level + 1, right) {
            // The node is reachable through its left neighbour, and the next opening enters it into
            // the parent.
            Ok(()) | Err(Error::DiskFull { .. }) => Ok(right),
            Err(error) => Err(error),
        }
    }

    /// Returns the key of the entry that links to `pointer` in a node of this level.
    fn entry_key(&self, level: u8, pointer: u64) -> Result<Vec<u8>> {
        if level == 0 { self.read_key(pointer) } else { self.low_key(pointer) }
    }

    /// Returns the lowest key of a node's range; empty for the first node of its level.
    pub(super) fn low_key(&self, node: u64) -> Result<Vec<u8>> {
        match self.follow(node + LOW)? {
            0 => Ok(Vec::new()),
            low => self.read_key(low),
        }
    }

    /// Enters a node into its parent, which is on `level`.
    pub(super) fn add_child(&self, level: u8, child: u64) -> Result<()> {
        let low = self.low_key(child)?;
        let Some(parent) = self.find_node(level, Goal::At(&low))? else {
            let entries = vec![(prefix_at(&low, 0), link(child))];
            let root = self.write_root(level, self.follow(self.at + ROOT)?, entries)?;
            self.pool.publish(self.at + ROOT, link(root));
            return Ok(());
        };
        let place = self.place_of(parent, &low)?;
        if place.is_there {
            return Ok(());
        }
        self.add(parent, place, &low, link(child), false)
    }

    /// Queues an unlinked object to be freed.
    fn retire(&self, limbo: &mut Vec<u64>, object: u64) -> Result<()> {
        limbo.push(object);
        if limbo.len() < LIMBO {
            return Ok(());
        }
        // Increment first: a reader that sees reused memory also sees the new count.
        self.releases.fetch_add(1, Ordering::AcqRel);
        limbo.drain(..).try_for_each(|object| self.pool.free(object))
    }

    /// Removes an empty leaf, unless it is its parent's first child: first from the parent, then
    /// from the chain of leaves. Between the two steps the leaf is missing in its parent, as after
    /// an interrupted split.
    fn unlink(&self, leaf: u64, limbo: &mut Vec<u64>) -> Result<()> {
        let low = self.follow(leaf + LOW)?;
        if low == 0 {
            return Ok(());
        }
        let low_key = self.read_key(low)?;
        let Some(parent) = self.find_node(1, Goal::At(&low_key))? else { return Ok(()) };
        let place = self.place_of(parent, &low_key)?;
        if !place.is_there || self.pool.load(pointer_at(parent, place.slot)) != link(leaf) {
            return Ok(());
        }
        let before = self.checked(self.left_of(parent, place.slot), parent)?;
        let sibling = self.follow(leaf + SIBLING)?;
        if self.follow(before + SIBLING)? != leaf || !self.may_reach(before, sibling)? {
            return Ok(());
        }
        self.shift_left(parent, place.slot, place.count);
        self.pool.replace(before + SIBLING, link(sibling));
        self.retire(limbo, low)?;
        self.retire(limbo, leaf)
    }

    /// Whether all keys from a node's range up to `sibling`'s begin with the bytes that the node
    /// skips.
    fn may_reach(&self, node: u64, sibling: u64) -> Result<bool> {
        let skip = self.head(node)?.skip;
        if skip == 0 {
            return Ok(true);
        }
        let high = if sibling == 0 { Vec::new() } else { self.low_key(sibling)? };
        Ok(shared_len(&self.low_key(node)?, &high) >= skip)
    }
}

const _: () = assert!(CAPACITY < 255 && low_u8(CAPACITY) > 2);
