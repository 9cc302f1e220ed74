//! A B+-tree in persistent memory: FAST & FAIR, the index of SLM-DB (section 3.2).
//!
//! Problem: an ordered index that is durable without a log. Every 8-byte store leaves a readable
//! tree. So a change needs neither a log nor a copy of its node, readers need no lock, and opening
//! repairs the effects of a crash at any moment. `write` has the algorithm of a change.
//! How: the tree maps byte-string keys to one word each. A leaf entry links to a *record* of the
//! whole key and the word, so keys of any length have an exact order. The entry itself holds 8
//! bytes of the key, which decide most comparisons.
//!
//! Layout in the pool (a *link* is an offset with a checksum, see [`pmem`](crate::pmem)):
//!
//! | object | offset | size | name | meaning |
//! |---|---|---|---|---|
//! | tree | 0 | 8 | magic | `QNTFAIR\0` |
//! | tree | 8 | 8 | root | link to a node |
//! | node | 0 | 8 | head | bits 0 to 15: `NF`; 16 to 23: level, 0 a leaf; 32 to 47: skip, the bytes that all keys of its range begin with |
//! | node | 8 | 8 | left | link to the first child; of a leaf: 1 |
//! | node | 16 | 8 | sibling | link to the next node of the level; 0: none |
//! | node | 24 | 8 | low | link to the record of the lowest key of its range; 0: from the first key on |
//! | node | 64 | 16 each | entries | prefix (8 bytes of the key behind skip, big-endian, filled up with zeros), then link to record or child; the first link of 0 is the end |
//! | record | 0 | 8 | head | bits 0 to 15: bytes of the key, modulo 2^16; 16 to 23: `K`; 24 to 31: the rest of the bytes; 32 to 63: CRC32C of the key |
//! | record | 8 | 8 | value | the word; 0 in a node's low key |
//! | record | 16 | | key | little-endian words, the last filled up with zeros |
//!
//! Invariants:
//! - `low` and `skip` of a node never change. The ranges of a level are adjacent.
//! - The target of a link was persistent before the link.
//! - Between operations no entry is a duplicate. No node has an entry that its sibling has. A
//!   node that is missing in its parent (the pool was full, or a crash) is reached through its left
//!   neighbour.
//! - Unlinked objects are freed in batches; `releases` is incremented before. A reader that loads
//!   the same `releases` before and after has seen no reused memory.
//!
//! Threads: readers take no lock and never wait. The counters `turns`, in ordinary memory, are odd
//! while a deletion shifts a node left. Readers then scan from the right, so that a moving entry
//! comes towards them, and they retry if the counter changed. One writer at a time.
//!
//! Differences from the paper: keys are byte strings. There is one writer at a time, which suffices
//! for our compactions. Nodes are not merged, but an empty leaf is removed unless it is its
//! parent's first child. Opening completes an interrupted split, not the next visitor. Start
//! reading at [`FairTree::get`].

mod estimate;
mod open;
mod read;
mod record;
mod repair;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod write;

use std::{cmp, sync::Arc};

use crate::{
    Result,
    pmem::{Pool, is_link, target},
    util::{
        codec::{low_u8, low_u32, to_usize},
        sync::{AtomicU64, Mutex, Ordering},
    },
};

const MAGIC: u64 = u64::from_le_bytes(*b"QNTFAIR\0");
const TREE_BYTES: u64 = 16;
const ROOT: u64 = 8;
/// Bytes of a node: 28 entries and the end entry. Smaller in tests, so that nodes split.
const NODE_BYTES: u64 = if cfg!(test) { 256 } else { 512 };
/// Bytes of the pool that a put needs besides three times its key, in the mean of many. They are a
/// record, and a split of its leaf and of a part of an inner node.
pub(crate) const PUT_BYTES: u64 = NODE_BYTES * 2;
const NODE_MARK: u64 = 0x464e;
/// Bits of a node's first word that must be [`NODE_MARK`]: the mark, and the two upper bits of the
/// level. So no level is above 63, which no pool can have.
const MARK_MASK: u64 = 0xc0_ffff;
const LEFT: u64 = 8;
const SIBLING: u64 = 16;
const LOW: u64 = 24;
const ENTRIES: u64 = 64;
const ENTRY_BYTES: u64 = 16;
/// Slots of a node, one of which is the end.
const SLOTS: u64 = (NODE_BYTES - ENTRIES) / ENTRY_BYTES;
/// Maximum number of entries of a node.
const CAPACITY: u64 = SLOTS - 1;
/// The word left of a leaf's first entry: not a link.
const NOWHERE: u64 = 1;
/// Maximum number of nodes of one descent in an undamaged tree.
const STEPS_MAX: u32 = 1 << 20;
/// Number of deletion counters; each node maps to one.
const TURNS: usize = 64;
/// Number of unlinked objects that are freed in one batch.
const LIMBO: usize = if cfg!(test) { 4 } else { 64 };

/// The tree. See the module documentation.
#[derive(Debug)]
pub(crate) struct FairTree {
    pool: Arc<Pool>,
    /// Offset of the tree object.
    at: u64,
    /// The writer lock, with the unlinked objects that wait to be freed.
    writer: Mutex<Vec<u64>>,
    releases: AtomicU64,
    turns: [AtomicU64; TURNS],
    keys: AtomicU64,
}

/// The target of a descent.
#[derive(Clone, Copy, Debug)]
enum Goal<'k> {
    /// The node whose range contains this key.
    At(&'k [u8]),
    /// The last node with keys below this one.
    Below(&'k [u8]),
    /// The last node.
    End,
}

impl Goal<'_> {
    /// Whether a node is not too far right, given how its lowest key compares with the goal's.
    fn is_met(self, low: cmp::Ordering) -> bool {
        match self {
            Self::At(_) => low.is_le(),
            Self::Below(_) => low.is_lt(),
            Self::End => true,
        }
    }
}

/// A decoded node head.
#[derive(Clone, Copy, Debug)]
struct NodeHead {
    level: u8,
    skip: usize,
}

const fn slot_at(node: u64, slot: u64) -> u64 {
    node + ENTRIES + slot * ENTRY_BYTES
}

const fn pointer_at(node: u64, slot: u64) -> u64 {
    slot_at(node, slot) + 8
}

/// Returns eight bytes of a key from `skip` on, padded with zeros.
fn prefix_at(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; 8];
    for (place, byte) in bytes.iter_mut().zip(key.get(skip..).unwrap_or(&[])) {
        *place = *byte;
    }
    u64::from_be_bytes(bytes)
}

impl FairTree {
    /// Returns the offset of the tree object, for a root word.
    pub(crate) const fn root(&self) -> u64 {
        self.at
    }

    /// Sets the number of keys of a tree that was opened by [`open_at`](Self::open_at).
    pub(crate) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    fn turn(&self, node: u64) -> &AtomicU64 {
        let index = to_usize(node / NODE_BYTES) % TURNS;
        self.turns.get(index).unwrap_or(&self.releases)
    }

    /// Returns the offset that the link at an offset points to; 0 if it points nowhere. Fails with
    /// [`Error::Corruption`] if its checksum is wrong.
    fn follow(&self, at: u64) -> Result<u64> {
        let word = self.pool.load(at);
        if is_link(word) { Ok(target(word)) } else { Err(self.pool.damage(at, "no link")) }
    }

    fn head(&self, node: u64) -> Result<NodeHead> {
        let head = self.pool.load(node);
        if node == 0 || head & MARK_MASK != NODE_MARK {
            return Err(self.pool.damage(node, "a link of the index does not point to a node"));
        }
        Ok(NodeHead { level: low_u8(head >> 16), skip: to_usize(u64::from(low_u32(head >> 32))) })
    }

    /// Compares the lowest key of a node's range with a goal.
    fn compare_low(&self, node: u64, goal: Goal<'_>) -> Result<cmp::Ordering> {
        let (Goal::At(key) | Goal::Below(key)) = goal else { return Ok(cmp::Ordering::Less) };
        match self.follow(node + LOW)? {
            0 => Ok(cmp::Ordering::Less),
            low => self.compare_key(low, key),
        }
    }

    /// Moves right from a node, which is not too far right, to the node of its level that meets the
    /// goal.
    fn move_right(&self, mut node: u64, goal: Goal<'_>, steps: &mut u32) -> Result<u64> {
        loop {
            let sibling = self.follow(node + SIBLING)?;
            if sibling == 0 || !goal.is_met(self.compare_low(sibling, goal)?) {
                return Ok(node);
            }
            node = sibling;
            self.count_step(node, steps)?;
        }
    }

    fn count_step(&self, node: u64, steps: &mut u32) -> Result<()> {
        *steps += 1;
        if *steps < STEPS_MAX {
            Ok(())
        } else {
            Err(self.pool.damage(node, "a descent visits too many nodes; links form a cycle"))
        }
    }

    /// Returns the child of an inner node that meets the goal, or one to its left. Beside a writer
    /// the child may also be too far right; its lowest key shows that.
    fn child_for(&self, node: u64, skip: usize, goal: Goal<'_>) -> Result<u64> {
        let prefix = match goal {
            Goal::At(key) | Goal::Below(key) => Some(prefix_at(key, skip)),
            Goal::End => None,
        };
        let mut child = self.pool.load(node + LEFT);
        for slot in 0..SLOTS {
            let pointer = self.pool.load(pointer_at(node, slot));
            if pointer == 0 {
                break;
            }
            if pointer == child {
                continue;
            }
            let theirs = self.pool.load(slot_at(node, slot));
            let is_met = match prefix.map_or(cmp::Ordering::Less, |prefix| theirs.cmp(&prefix)) {
                cmp::Ordering::Less => true,
                cmp::Ordering::Equal => {
                    goal.is_met(self.compare_low(self.checked(pointer, node)?, goal)?)
                }
                cmp::Ordering::Greater => false,
            };
            if !is_met {
                break;
            }
            child = pointer;
        }
        self.checked(child, node)
    }

    fn checked(&self, pointer: u64, node: u64) -> Result<u64> {
        let is_good = is_link(pointer) && pointer != 0;
        if is_good {
            Ok(target(pointer))
        } else {
            Err(self.pool.damage(node, "no link to a child"))
        }
    }

    /// Returns the node of a level whose range meets the goal; `None` if the tree is not that high.
    fn find_node(&self, level: u8, goal: Goal<'_>) -> Result<Option<u64>> {
        let mut steps = 0;
        let mut node = self.follow(self.at + ROOT)?;
        if self.head(node)?.level < level {
            return Ok(None);
        }
        loop {
            node = self.move_right(node, goal, &mut steps)?;
            let head = self.head(node)?;
            if head.level == level {
                return Ok(Some(node));
            }
            let child = self.child_for(node, head.skip, goal)?;
            let is_below = self.head(child)?.level + 1 == head.level;
            if is_below && goal.is_met(self.compare_low(child, goal)?) {
                node = child;
            } else {
                // A writer has changed the node meanwhile: retry.
                node = self.follow(self.at + ROOT)?;
            }
            self.count_step(node, &mut steps)?;
        }
    }

    fn find_leaf(&self, goal: Goal<'_>) -> Result<u64> {
        let leaf = self.find_node(0, goal)?;
        leaf.ok_or_else(|| self.pool.damage(self.at, "the index has no leaf"))
    }
}

const _: () = assert!(NODE_BYTES.is_power_of_two() && SLOTS >= 4);
